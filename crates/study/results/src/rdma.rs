//! What a run reports on any testbed.
//!
//! Rates are over the measured time only. Every number's unit ends its name. Maps are ordered, so that equal
//! runs print equal bytes.

use isolane_rdma_scenario::model::{Class, Host, Scenario};
use isolane_rdma_scenario::stack;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the JSON form of a result; raised when a field changes meaning or goes.
pub const RESULT_VERSION: u32 = 2;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunResult {
    /// [`RESULT_VERSION`].
    pub version: u32,
    /// The scenario's name.
    pub scenario: String,
    /// The device profile's name.
    pub profile: String,
    /// The policy's name.
    pub policy: String,
    /// False where the policy needs hardware that is not on sale.
    #[serde(default = "on_sale")]
    pub on_sale: bool,
    /// The run seed.
    pub seed: u64,
    /// Which testbed ran it: `sim` or `verbs`.
    pub testbed: String,
    /// Measured time, seconds.
    pub measured_s: f64,
    /// Per tenant, in the scenario's order.
    pub tenants: Vec<TenantResult>,
    /// Counters of each NIC over the measured time: hosts A and B, and every other that a workload has an end on.
    pub counters: Vec<HostCounters>,
    /// The policy's own figures: SafeUtil, tokens per second, CPU share, ...
    pub policy_state: BTreeMap<String, f64>,
    /// Width of one point of the time series, microseconds.
    pub sample_us: f64,
    /// Whether the run settled, and when. Absent where tenants start late, stop, or post a fixed number of messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settling: Option<Settling>,
}

/// Of results that do not say it.
fn on_sale() -> bool {
    true
}

/// How long a run took to settle: until its rates and latencies no longer depended on how long it was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Settling {
    /// True when every tenant settled.
    pub settled: bool,
    /// Simulated time before the measured time, microseconds: what came before it does not count.
    pub settled_after_us: f64,
    /// Measured time, microseconds.
    pub measured_us: f64,
    /// Simulated time after which the run ends, settled or not, microseconds. The end of the measured time where the
    /// scenario's own times were measured.
    pub cap_us: f64,
    /// Per tenant, in the scenario's order; empty in a hunt, which judges the run as a whole.
    pub tenants: Vec<TenantSettling>,
}

/// How one tenant settled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TenantSettling {
    /// True when consecutive windows agreed, or left no doubt on which side of its limits the tenant is.
    pub settled: bool,
    /// True when windows, or the bounds of the 99th percentile, are on both sides of a limit.
    pub on_the_edge: bool,
    /// Latencies measured.
    pub samples: u64,
    /// The true 99th percentile is at least this with 99 %, microseconds; absent where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_low_us: Option<f64>,
    /// The true 99th percentile is at most this with 99 %, microseconds; absent with too few samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_high_us: Option<f64>,
}

/// One tenant's share of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TenantResult {
    /// The tenant's name.
    pub name: String,
    /// The class the policy treated it as.
    pub class: Class,
    /// The class it declared.
    pub declared_class: Class,
    /// Payload it tried to send, gigabits per second; absent for closed loops, which offer what they get.
    pub offered_gbps: Option<f64>,
    /// Payload delivered, gigabits per second.
    pub goodput_gbps: f64,
    /// Bytes on the wire including headers, gigabits per second (what NIC byte counters show).
    pub wire_gbps: f64,
    /// Messages completed per second.
    pub message_rate_per_s: f64,
    /// Control verbs completed per second.
    pub control_rate_per_s: f64,
    /// Fraction of the link's payload capacity.
    pub share: f64,
    /// Latency of measured messages; absent where none completed.
    pub latency_us: Option<LatencyResult>,
    /// Operations of its distributed application; absent where it runs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<ApplicationResult>,
    /// Cores the policy spends on this tenant.
    pub policy_cores: f64,
    /// Completions with an error.
    pub errors: u64,
    /// Goodput of each queue pair, Gb/s (minimum, median, maximum) for fairness inside the tenant.
    pub queue_pair_gbps: [f64; 3],
    /// Goodput over time, Gb/s per sample.
    pub goodput_series_gbps: Vec<f64>,
    /// 99th percentile latency over time, microseconds per sample, `null` where no message completed; empty when the
    /// tenant has no latency samples.
    pub p99_series_us: Vec<Option<f64>>,
}

/// What an application achieved: its own operations, not its messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApplicationResult {
    /// Whole operations per second: an allreduce of all workers, an answered request.
    pub operations_per_s: f64,
    /// Operations per second by the time between their ends, from the last one before the measured time; a last
    /// operation that takes longer than those before it slows it. Unlike a count it is not off by up to one
    /// operation. Absent where none or only one ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace_per_s: Option<f64>,
    /// From an operation's start to its end at its last process, microseconds; absent where none ended.
    pub operation_us: Option<LatencyResult>,
}

/// Latency of one tenant's messages, microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyResult {
    /// Messages measured.
    pub samples: u64,
    /// Smallest.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Largest.
    pub max: f64,
    /// False when the figures rather reflect the run's length than the tenant: fewer than
    /// [`STEADY_SAMPLES_MIN`] messages, or a median above the measured time over [`STEADY_MEDIANS_MIN`].
    pub steady: bool,
}

/// Messages that a steady latency is measured on, at least.
pub const STEADY_SAMPLES_MIN: u64 = 20;
/// Medians that the measured time of a steady latency holds, at least.
pub const STEADY_MEDIANS_MIN: u32 = 4;

/// Counters of one NIC over the measured time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostCounters {
    /// Whose NIC.
    pub host: Host,
    /// Vendor-style names (`tx_vport_rdma_unicast_bytes`, `icm_cache_miss`, ...), and values.
    pub values: BTreeMap<String, u64>,
    /// Ratios worked out from them (`mtt_miss_ratio`, `pcie_tx_utilisation`, `rx_pause_ratio`, ...), 0 to 1.
    pub ratios: BTreeMap<String, f64>,
}

impl RunResult {
    /// A run of `scenario` on the device `profile`, without figures; times are the scenario's.
    pub fn empty(scenario: &Scenario, profile: &str, testbed: &str) -> Self {
        Self {
            version: RESULT_VERSION,
            scenario: scenario.name.clone(),
            profile: profile.to_owned(),
            policy: scenario.policy.name.clone(),
            on_sale: stack::is_on_sale(&scenario.policy.name),
            seed: scenario.seed,
            testbed: testbed.to_owned(),
            measured_s: scenario.duration.as_secs_f64(),
            tenants: Vec::new(),
            counters: Vec::new(),
            policy_state: BTreeMap::new(),
            sample_us: scenario.sample_interval.as_us_f64(),
            settling: None,
        }
    }

    /// The tenant called `name`.
    pub fn tenant(&self, name: &str) -> Option<&TenantResult> {
        self.tenants.iter().find(|tenant| tenant.name == name)
    }
}

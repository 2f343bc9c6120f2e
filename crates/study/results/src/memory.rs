//! What a run of tiered memory reports. Units end the names; maps and lists are ordered.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the JSON form; raised when a field changes meaning or goes.
pub const MEM_RESULT_VERSION: u32 = 2;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemResult {
    /// [`MEM_RESULT_VERSION`].
    pub version: u32,
    /// The scenario's name.
    pub scenario: String,
    /// The machine's name.
    pub machine: String,
    /// Who moved pages and set limits.
    pub policy: String,
    /// The run seed.
    pub seed: u64,
    /// Time before measuring, seconds.
    #[serde(default)]
    pub warmup_s: f64,
    /// Time measured, seconds.
    pub measured_s: f64,
    /// The applications, in the scenario's order.
    pub apps: Vec<MemAppResult>,
    /// The tiers, nearest first.
    pub tiers: Vec<MemTierResult>,
    /// The whole machine.
    pub machine_wide: MemMachineResult,
    /// Points over time, if the scenario requests them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<MemPoint>,
    /// What the policy changed over time, where there is a series.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<MemChange>,
}

/// One application, over the measured time in which it ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemAppResult {
    /// Its name.
    pub name: String,
    /// The model of its accesses.
    pub kind: String,
    /// Larger is more important.
    pub priority: u32,
    /// Its objective, nanoseconds, if it is latency-sensitive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo_latency_ns: Option<f64>,
    /// Its objective, gigabytes per second, if it is bandwidth-intensive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo_bandwidth_gb_per_s: Option<f64>,
    /// `admitted`, `best-effort` or `refused`; absent without a policy that decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// Of a refused application why it may not run; of a best-effort one what it lacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict_reason: Option<String>,
    /// Measured time in which it ran, seconds.
    pub ran_s: f64,
    /// Mean latency of its loads from memory, nanoseconds; absent where it never ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<f64>,
    /// Mean bandwidth, gigabytes per second.
    pub bandwidth_gb_per_s: f64,
    /// Operations per second.
    pub throughput: f64,
    /// What an operation is.
    pub operation: String,
    /// Mean time of an operation on one core, microseconds; absent where none ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_us: Option<f64>,
    /// Share of the time it ran in which the objective was met; 1 without an objective.
    pub slo_met_share: f64,
    /// Memory of the near tier that it held, mean, bytes.
    pub local_bytes: u64,
    /// Memory of other tiers that it held, mean, bytes.
    pub far_bytes: u64,
    /// The same two at the end.
    pub last_local_bytes: u64,
    /// Bytes of far tiers at the end.
    pub last_far_bytes: u64,
    /// Processor time it was allowed, mean, share of its cores.
    pub cpu_share: f64,
    /// Memory moved nearer, bytes.
    pub promoted_bytes: u64,
    /// Memory moved farther, bytes.
    pub demoted_bytes: u64,
    /// Why its limits changed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reason: Option<String>,
    /// What profiling it alone found, where the policy needs that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<MemProfileResult>,
}

/// What an application needs alone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemProfileResult {
    /// Whether the objective can be met at all.
    pub admissible: bool,
    /// Near memory that just meets it, bytes.
    pub local_bytes: u64,
    /// Processor time that just meets it, share of its cores.
    pub cpu_share: f64,
    /// Bandwidth at that point, gigabytes per second.
    pub bandwidth_gb_per_s: f64,
}

/// One tier, over the measured time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemTierResult {
    /// `local`, `far` or `farther`.
    pub name: String,
    /// Memory it has, bytes.
    pub capacity_bytes: u64,
    /// Memory in use, mean, bytes.
    pub used_bytes: u64,
    /// Bandwidth, mean, gigabytes per second.
    pub bandwidth_gb_per_s: f64,
    /// Share of its bandwidth that was used, mean.
    pub utilisation: f64,
    /// Latency of a request to it, slots included, mean, nanoseconds.
    pub latency_ns: f64,
    /// Share of the time in which its queue was full.
    pub queue_full_share: f64,
}

/// The whole machine, over the measured time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemMachineResult {
    /// Request slots in use, mean, share of all.
    pub slots_busy_share: f64,
    /// Time a request waits for a slot, mean, nanoseconds.
    pub slot_wait_ns: f64,
    /// Hint faults on far pages, mean, per second.
    pub hint_faults_per_s: f64,
    /// Healthy bandwidth of the near tier by the microbenchmarks, gigabytes per second.
    pub healthy_local_gb_per_s: f64,
    /// Healthy hint faults by the microbenchmarks, per second.
    pub healthy_hint_faults_per_s: f64,
    /// What happened: `actions`, `promoted_pages`, `demoted_pages`.
    pub counts: BTreeMap<String, u64>,
}

/// One moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemPoint {
    /// Since the start of the run, seconds.
    pub at_s: f64,
    /// The applications that run then, by name.
    pub apps: BTreeMap<String, MemAppPoint>,
}

/// One application at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemAppPoint {
    /// Latency, nanoseconds.
    pub latency_ns: f64,
    /// Bandwidth, gigabytes per second.
    pub bandwidth_gb_per_s: f64,
    /// Operations per second.
    pub throughput: f64,
    /// Near memory it holds, bytes.
    pub local_bytes: u64,
    /// Processor time it may use, share of its cores.
    pub cpu_share: f64,
}

/// New limits of one application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemChange {
    /// Since the start of the run, seconds.
    pub at_s: f64,
    /// Whose.
    pub app: String,
    /// Near memory it may hold from then on, bytes; absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_limit_bytes: Option<u64>,
    /// Processor time it may use, share of its cores.
    pub cpu_share: f64,
    /// Why.
    pub reason: String,
}

impl MemAppResult {
    /// Whether the policy refused it: then it never ran: it has no latency, and its rates are zero.
    pub fn is_refused(&self) -> bool {
        self.verdict.as_deref() == Some("refused")
    }

    /// The verdict in words for tables; `None` where the policy gives none.
    pub fn verdict_words(&self) -> Option<&str> {
        match self.is_refused() {
            true => Some("rejected"),
            false => self.verdict.as_deref(),
        }
    }
}

impl MemResult {
    /// The application called `name`.
    pub fn app(&self, name: &str) -> Option<&MemAppResult> {
        self.apps.iter().find(|app| app.name == name)
    }
}

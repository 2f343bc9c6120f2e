//! What a study reports on any testbed. Units end the names; maps and lists are ordered.

pub mod paired;
pub mod summary;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the JSON form; raised when a field changes meaning or goes.
pub const NIC_RESULT_VERSION: u32 = 1;

/// One run of one configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NicResult {
    /// [`NIC_RESULT_VERSION`].
    pub version: u32,
    /// `simulated` or `soft-nic`.
    pub testbed: String,
    /// The configuration's name.
    pub config: String,
    /// Bulk flows.
    pub flows: u32,
    /// The run seed; a real testbed ignores it.
    pub seed: u64,
    /// Time measured, seconds.
    pub measured_s: f64,
    /// Payload of all flows, gigabits per second.
    pub throughput_gbps: f64,
    /// Busy time of all processors of the sending host, percent of one processor.
    pub cpu_percent: f64,
    /// Ping round trips, microseconds; `None` if no ping was sent.
    pub ping_us: Option<Quantiles>,
    /// Worst normalised fairness over any millisecond (titan 3); 0 is fair.
    pub nfm_1ms: f64,
    /// Worst normalised fairness over any second (over the whole time, if it was shorter).
    pub nfm_1s: f64,
    /// Goodput of each flow, gigabits per second.
    pub flow_gbps: Vec<f64>,
    /// Bytes sent by each transmit queue.
    pub queue_bytes: Vec<u64>,
    /// Longest ever in a hardware queue, bytes.
    pub queue_bytes_max: Vec<u64>,
    /// Completion times, milliseconds, if flows end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_ms: Option<Completions>,
    /// What happened: `retransmissions`, `drops`, `reordered`, `moves` (flows that took another queue), `weight_writes`,
    /// `interrupts`, `segments`, `packets`.
    pub counts: BTreeMap<String, u64>,
    /// What the testbed could not do of the configuration, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_done: Vec<String>,
}

impl NicResult {
    /// One second of the simulator in which nothing happened.
    pub fn simulated(config: &str, flows: u32, seed: u64) -> Self {
        Self {
            version: NIC_RESULT_VERSION,
            testbed: "simulated".to_owned(),
            config: config.to_owned(),
            flows,
            seed,
            measured_s: 1.0,
            throughput_gbps: 0.0,
            cpu_percent: 0.0,
            ping_us: None,
            nfm_1ms: 0.0,
            nfm_1s: 0.0,
            flow_gbps: Vec::new(),
            queue_bytes: Vec::new(),
            queue_bytes_max: Vec::new(),
            completion_ms: None,
            counts: BTreeMap::new(),
            not_done: Vec::new(),
        }
    }
}

/// Quantiles of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quantiles {
    /// How many.
    pub count: u64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// Flows of a cluster that ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Completions {
    /// Of every flow, in order of completion, milliseconds.
    pub all_ms: Vec<f64>,
    /// Per host: the last completion less the first, milliseconds.
    pub spread_ms: Vec<f64>,
}

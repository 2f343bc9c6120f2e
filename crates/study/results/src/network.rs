//! What a run on a network reports. Units end the names; maps and lists are ordered.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the JSON form; raised when a field changes meaning or goes.
pub const FABRIC_RESULT_VERSION: u32 = 1;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FabricResult {
    /// [`FABRIC_RESULT_VERSION`].
    pub version: u32,
    /// The scenario's name.
    pub scenario: String,
    /// The policy's name.
    pub policy: String,
    /// The congestion control's name.
    pub transport: String,
    /// The run seed.
    pub seed: u64,
    /// Hosts of the network.
    pub hosts: u32,
    /// Simulated time in which calls were measured, seconds.
    pub measured_s: f64,
    /// Simulated time of the whole run, until its last event, seconds.
    #[serde(default)]
    pub simulated_s: f64,
    /// Per requested class, the highest first.
    pub classes: Vec<ClassResult>,
    /// Payload of completed calls over the payload that arrived, measured calls only.
    pub utilisation: f64,
    /// Payload delivered per second by all hosts, gigabits per second.
    pub goodput_gbps: f64,
    /// What happened to the packets of the whole run.
    pub packets: PacketCounts,
    /// What happened at the ports, worst ones first in their lists.
    pub ports: PortCounts,
    /// The policy's and the transport's own figures.
    pub policy_state: BTreeMap<String, f64>,
    /// Per pair of hosts and class, on request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<PairResult>,
    /// Time series, on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<FabricSeries>,
}

/// Calls that requested one class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClassResult {
    /// The class's name.
    pub name: String,
    /// Calls that began, asking for this class.
    pub issued: u64,
    /// Of those, calls that ran in it.
    pub admitted: u64,
    /// Of those, calls sent in the lowest class instead.
    pub downgraded: u64,
    /// Of those, calls that the policy ended unfinished (D3, PDQ).
    pub terminated: u64,
    /// Of those, calls unfinished when the run ended.
    pub unfinished: u64,
    /// Payload of calls that requested this class, part of all payload.
    pub asked_share: f64,
    /// Payload of calls that ran in this class, part of all payload (the achieved mix).
    pub ran_share: f64,
    /// Admitted over issued, by calls.
    pub admitted_share: f64,
    /// Network latency of calls that ran in this class, of any requested class, microseconds.
    pub rnl_us: Option<LatencySummary>,
    /// The same, divided by the call's MTUs, microseconds.
    pub rnl_per_mtu_us: Option<LatencySummary>,
    /// Part of the calls that requested this class, ran in this class and met its objective; absent without an
    /// objective.
    pub met_slo_share: Option<f64>,
    /// The same by payload.
    pub met_slo_bytes_share: Option<f64>,
    /// Part of the calls that ran in this class which met its objective; absent without one.
    pub ran_met_slo_share: Option<f64>,
    /// Goodput of calls that ran in it, gigabits per second over all hosts.
    pub goodput_gbps: f64,
    /// Calls in flight in this class per receiving host, sampled at each call's start: median and 99th percentile.
    pub outstanding_p50: f64,
    /// See `outstanding_p50`.
    pub outstanding_p99: f64,
}

/// Quantiles of latencies, microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencySummary {
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
    /// Samples.
    pub count: u64,
}

/// Packets of a whole run. `sent == delivered + dropped + in_flight` holds in every run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PacketCounts {
    /// Packets that hosts handed to their ports, repeats and acknowledgements included.
    pub sent: u64,
    /// Packets that reached the host they were for.
    pub delivered: u64,
    /// Packets dropped, by reason (`buffer-full`, `no-route`, `pfabric-lower-priority`, ...).
    pub dropped: BTreeMap<String, u64>,
    /// Packets in the network when the run ended.
    pub in_flight: u64,
    /// Data packets among the sent ones.
    pub data: u64,
    /// Data packets sent again.
    pub repeated: u64,
    /// Packets marked by a switch.
    pub marked: u64,
    /// Pause frames.
    pub pauses: u64,
    /// Events of the simulator.
    pub events: u64,
}

/// Ports of the network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PortCounts {
    /// The fullest ports by largest queue, at most ten.
    pub fullest: Vec<PortResult>,
    /// The busiest ports by utilisation, at most ten.
    pub busiest: Vec<PortResult>,
}

/// One port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PortResult {
    /// Where it is: `leaf2->spine0`, `switch->host7`, `host3->switch`.
    pub name: String,
    /// Largest queue, bytes.
    pub queue_max_bytes: u64,
    /// Busy time over run time.
    pub utilisation: f64,
    /// Packets dropped here.
    pub dropped: u64,
    /// Time paused by its peer over run time.
    pub paused_share: f64,
}

/// One pair of hosts and class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PairResult {
    /// Calling host.
    pub from: u32,
    /// Called host.
    pub to: u32,
    /// Requested class.
    pub class: String,
    /// Calls that began.
    pub issued: u64,
    /// Calls admitted.
    pub admitted: u64,
    /// Payload of completed calls that ran in the class, gigabits per second.
    pub goodput_gbps: f64,
    /// Latency of calls that ran in the class, microseconds.
    pub rnl_us: Option<LatencySummary>,
    /// Admit probability over the measured time, sampled: smallest, 1st percentile, mean; absent without admission.
    pub admit_probability: Option<ProbabilitySummary>,
}

/// Samples of an admit probability.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProbabilitySummary {
    /// Smallest.
    pub min: f64,
    /// 1st percentile.
    pub p01: f64,
    /// Mean.
    pub mean: f64,
    /// At the end.
    pub last: f64,
}

/// Time series: one value per interval and class (or pair).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FabricSeries {
    /// Width of an interval, microseconds.
    pub interval_us: f64,
    /// By name (`rnl_p99_us/high`, `goodput_gbps/high`, `admit/0->2/high`, `queue_bytes/switch->host7`): one value per
    /// interval; null where nothing was measured.
    pub values: BTreeMap<String, Vec<Option<f64>>>,
}

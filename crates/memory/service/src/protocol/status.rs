//! What the service shows of itself, the machine and the applications: for `isolane mem status`, `top` and metrics.
//!
//! Units: end the names. A measured value has its age and its source; an unknown one is absent.

use super::{Lacks, Limits};
use crate::application::Slo;
use serde::{Deserialize, Serialize};

/// Everything at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Release of the service.
    pub release: String,
    /// Its policy.
    pub policy: String,
    /// What enforces limits.
    pub backend: String,
    /// Time between two steps.
    pub period_ms: u64,
    /// Since it started.
    pub uptime_ms: u64,
    /// Steps since then.
    pub steps: u64,
    /// Longest step since then.
    pub step_max_us: u64,
    /// Steps of less than a period that came late by more than a period.
    pub late_steps: u64,
    /// Changes of limits since then.
    pub changes: u64,
    /// Applications that were refused since then.
    pub refused: u64,
    /// Writes that the kernel rejected since then.
    pub refused_writes: u64,
    /// The backend's reports since then.
    #[serde(default)]
    pub backend_events: BackendEvents,
    /// Memory tiers, nearest first.
    pub tiers: Vec<TierStatus>,
    /// Pages found far from the processor that wanted them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint_faults_per_s: Option<Measured>,
    /// Where applications begin to suffer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thresholds: Option<Thresholds>,
    /// What measures.
    pub sources: Vec<SourceStatus>,
    /// By falling priority.
    pub applications: Vec<ApplicationStatus>,
    /// What is wrong, for people.
    pub problems: Vec<String>,
}

/// What a backend works on beside the loop, and how that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendEvents {
    /// Applications that it could not take under control.
    pub adoptions_refused: u64,
    /// Applications whose limits it could not lift.
    pub releases_refused: u64,
    /// Applications whose limits it lifted.
    pub released: u64,
    /// Times that an application's limits stopped getting nearer.
    pub stuck: u64,
}

/// A measured value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// In the unit of the field that holds it.
    pub value: f64,
    /// Since it was measured.
    pub age_ms: u64,
    /// By what.
    pub source: String,
}

/// One tier.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TierStatus {
    /// 0 is the nearest.
    pub tier: u8,
    /// Memory for applications.
    pub capacity_bytes: u64,
    /// In use by any process.
    pub used_bytes: u64,
    /// Its bandwidth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_bytes_per_s: Option<Measured>,
}

/// Thresholds of the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thresholds {
    /// Healthy bandwidth of the nearest tier.
    pub local_bandwidth_bytes_per_s: u64,
    /// Healthy rate of hint faults; absent where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint_faults_per_s: Option<f64>,
    /// Whether they were measured on this machine.
    pub measured: bool,
}

/// One source of measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceStatus {
    /// Its name.
    pub name: String,
    /// What it measures.
    pub measures: String,
    /// Whether it works here.
    pub works: bool,
    /// What was seen, or why not.
    pub seen: String,
}

/// One application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApplicationStatus {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: u32,
    /// `ls`, `bi` or `best-effort`.
    pub kind: String,
    /// Its objective.
    pub slo: Slo,
    /// Larger is more important.
    pub priority: u32,
    /// Its cgroup.
    pub cgroup: String,
    /// Whether the service made the cgroup.
    pub own_cgroup: bool,
    /// What its objective lacked when it was taken in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<Lacks>,
    /// Whether its objective is met now; absent while unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo_met: Option<bool>,
    /// Share of the periods with a reading in which the objective was met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo_met_share: Option<f64>,
    /// Mean latency of its accesses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Measured>,
    /// Its bandwidth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_bytes_per_s: Option<Measured>,
    /// Processor time it used, thousandths of its cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_used_per_mille: Option<Measured>,
    /// Part of the last ten seconds in which at least one of its tasks waited for memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure_some_percent: Option<Measured>,
    /// The same for all tasks that could run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure_full_percent: Option<Measured>,
    /// What it holds of each tier.
    pub held_bytes: Vec<u64>,
    /// What it may use.
    pub limits: Limits,
    /// Why that changed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_change: Option<Change>,
    /// Whether the tier limits hold: `none` (no limit), `moving`, `reached` or `stuck`.
    pub enforcement: String,
    /// What is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A change of limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// How long ago.
    pub ago_ms: u64,
    /// Why.
    pub reason: String,
    /// Why the machine does not do it; absent where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl ApplicationStatus {
    /// What it holds of the nearest tier.
    pub fn local_bytes(&self) -> u64 {
        self.held_bytes.first().copied().unwrap_or(0)
    }

    /// What it holds of all others.
    pub fn far_bytes(&self) -> u64 {
        self.held_bytes.iter().skip(1).sum()
    }
}

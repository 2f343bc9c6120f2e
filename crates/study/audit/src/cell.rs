//! One pair of victim and attacker under one policy, and what each is alone, as plain data.
//!
//! Units end the names, as in [`crate::matrix`].

use isolane_common_quantities::stats::summary::median;
use isolane_rdma_scenario::catalogue::Column;
use isolane_rdma_scenario::model::Host;
use isolane_study_results::rdma::TenantResult;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The rule that judges a victim whose rate counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PredicateName {
    /// At least `(1 - alpha) * min(alone, guarantee)` (husky 4.4).
    #[default]
    Share,
    /// Bit rate and message rate both at least `(1 - alpha) * alone` (the rule of Husky's public prototype).
    Ratio,
}

/// What of a victim counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VictimKind {
    /// Its rate.
    Rate,
    /// The 99th percentile of its latency.
    Latency,
    /// The operations of its application.
    Application,
}

/// A workload whose performance is judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Victim {
    /// The catalogue's name without `victim/`, or the tenant's name in its scenario.
    pub name: String,
    /// What counts.
    pub kind: VictimKind,
    /// Group of similar victims (`large bandwidth`, `small throughput`, ...).
    pub category: String,
    /// Measured time of its runs, microseconds, where it needs more than the audit's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_us: Option<f64>,
}

/// A workload that tries to take more than its share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Attacker {
    /// The catalogue's name without `attacker/`, the tenant's name in its scenario, or `all-others`.
    pub name: String,
    /// `BW`, `PCIe`, `PU` or `Cache`; the class of a scenario's tenant.
    pub category: String,
    /// The resource it is made to exhaust, finer than the category.
    pub resource: String,
    /// Column of husky table 4.3; a scenario's tenant has none.
    #[serde(default)]
    pub column: Option<Column>,
}

/// Rates and latency of one tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metrics {
    /// Payload delivered, gigabits per second.
    pub goodput_gbps: f64,
    /// Messages completed per second.
    pub message_rate_per_s: f64,
    /// Control verbs completed per second.
    pub control_rate_per_s: f64,
    /// Median latency, microseconds; absent where no message completed.
    pub p50_us: Option<f64>,
    /// 99th percentile latency, microseconds; absent where no message completed.
    pub p99_us: Option<f64>,
    /// Operations of an application per second, by the time between their ends; absent for other tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations_per_s: Option<f64>,
    /// Whole operations in the measured time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<u64>,
    /// Median time of an operation, microseconds; absent where none ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_p50_us: Option<f64>,
    /// Its 99th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_p99_us: Option<f64>,
}

impl From<&TenantResult> for Metrics {
    fn from(tenant: &TenantResult) -> Self {
        Self {
            goodput_gbps: tenant.goodput_gbps,
            message_rate_per_s: tenant.message_rate_per_s,
            control_rate_per_s: tenant.control_rate_per_s,
            p50_us: tenant.latency_us.as_ref().map(|latency| latency.p50),
            p99_us: tenant.latency_us.as_ref().map(|latency| latency.p99),
            ..Self::default()
        }
    }
}

impl Metrics {
    /// Medians field by field; a latency that half of `all` lack is absent.
    pub fn medians<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        let all: Vec<&Self> = all.into_iter().collect();
        let of = |field: fn(&Self) -> f64| {
            let values: Vec<f64> = all.iter().map(|metrics| field(metrics)).collect();
            median(&values).unwrap_or(0.0)
        };
        let optional = |field: fn(&Self) -> Option<f64>| {
            // A run without a completed message has an endless latency.
            let endless = |metrics: &&Self| field(metrics).unwrap_or(f64::INFINITY);
            let values: Vec<f64> = all.iter().map(endless).collect();
            median(&values).filter(|value| value.is_finite())
        };
        Self {
            goodput_gbps: of(|metrics| metrics.goodput_gbps),
            message_rate_per_s: of(|metrics| metrics.message_rate_per_s),
            control_rate_per_s: of(|metrics| metrics.control_rate_per_s),
            p50_us: optional(|metrics| metrics.p50_us),
            p99_us: optional(|metrics| metrics.p99_us),
            operations_per_s: optional(|metrics| metrics.operations_per_s),
            operations: optional(|metrics| metrics.operations.map(|count| count as f64))
                .map(|count| count as u64),
            operation_p50_us: optional(|metrics| metrics.operation_p50_us),
            operation_p99_us: optional(|metrics| metrics.operation_p99_us),
        }
    }

    /// The same for a tenant whose operations count, measured for `measured_s` seconds. One that is no distributed
    /// application has messages for operations.
    pub(crate) fn with_operations(tenant: &TenantResult, measured_s: f64) -> Self {
        let (count_per_s, pace_per_s, latency) = match &tenant.application {
            Some(application) => (
                application.operations_per_s,
                // Without two ends there is no pace: the tenant does no operations that could be judged.
                application.pace_per_s.unwrap_or(0.0),
                &application.operation_us,
            ),
            None => (
                tenant.message_rate_per_s,
                tenant.message_rate_per_s,
                &tenant.latency_us,
            ),
        };
        Self {
            operations_per_s: Some(pace_per_s),
            operations: Some((count_per_s * measured_s).round() as u64),
            operation_p50_us: latency.as_ref().map(|latency| latency.p50),
            operation_p99_us: latency.as_ref().map(|latency| latency.p99),
            ..Self::from(tenant)
        }
    }
}

/// What a victim does alone under a policy: medians over the seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Solo {
    /// The policy.
    pub policy: String,
    /// The victim.
    pub victim: String,
    /// Medians over the seeds; absent when the device cannot run the victim or the runs are not done.
    pub median: Option<Metrics>,
    /// How its runs settled; absent where times are fixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settling: Option<Settling>,
    /// Why it was not run.
    pub not_applicable: Option<String>,
}

/// One cell of the matrix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// The policy.
    pub policy: String,
    /// The victim.
    pub victim: String,
    /// The attacker.
    pub attacker: String,
    /// The verdict.
    pub verdict: Verdict,
    /// One sentence: what the victim was owed, what it got, and which resource ran out; or why the cell does not apply.
    pub why: String,
    /// What the victim was owed; absent when the cell does not apply.
    pub expected: Option<Expected>,
    /// Median over the seeds of the judged metric, in its unit; absent when nothing completed or not applicable.
    pub measured: Option<f64>,
    /// How much of its solo performance the victim kept: rate under attack / alone, or for latency alone / under
    /// attack. 1 is unharmed, 0 is starved.
    pub retained: Option<f64>,
    /// True when the value is near its limit, or the seeds disagree: some keep isolation and some violate it, or the windows
    /// of one run do.
    pub borderline: bool,
    /// How its runs settled; absent where times are fixed or the cell does not apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settling: Option<Settling>,
    /// Smallest and largest value of the judged metric over the seeds.
    pub spread: Option<Spread>,
    /// Medians over the seeds: the victim under attack.
    pub victim_median: Option<Metrics>,
    /// Medians over the seeds: the attacker. Several together count with the sum of their rates and the latency of
    /// the slowest.
    pub attacker_median: Option<Metrics>,
    /// Each seed's run.
    pub runs: Vec<SeedRun>,
    /// The resource under most pressure, from the counters of the first seed.
    pub exhausted: Option<Exhausted>,
    /// Time series of one seed.
    pub series: Option<Series>,
    /// Dominant shares, fairness and the policy's cost; absent when the cell does not apply.
    #[serde(default)]
    pub figures: Option<CellFigures>,
}

impl Cell {
    /// A cell without a verdict yet, of a policy, a victim and an attacker.
    pub(crate) fn not_applicable([policy, victim, attacker]: [&str; 3]) -> Self {
        Self {
            policy: policy.to_owned(),
            victim: victim.to_owned(),
            attacker: attacker.to_owned(),
            verdict: Verdict::NotApplicable,
            why: String::new(),
            expected: None,
            measured: None,
            retained: None,
            spread: None,
            borderline: false,
            settling: None,
            victim_median: None,
            attacker_median: None,
            runs: Vec::new(),
            exhausted: None,
            series: None,
            figures: None,
        }
    }
}

/// Did the policy keep its promise?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The victim got what it was owed.
    Pass,
    /// It did not.
    Violation,
    /// The runs did not settle within the cap, so that nothing can be said.
    NotSettled,
    /// The device cannot run one of the two.
    NotApplicable,
}

impl Verdict {
    /// Whether it says that isolation was kept or broken.
    pub fn is_judged(self) -> bool {
        matches!(self, Self::Pass | Self::Violation)
    }
}

/// How the runs of one cell, or of a victim alone, settled.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Settling {
    /// Seeds whose run settled.
    pub settled: u32,
    /// Seeds whose windows, or bounds of the 99th percentile, are on both sides of what the victim is owed.
    pub on_the_edge: u32,
    /// Simulated time before the measured time, microseconds; the longest over the seeds.
    pub settled_after_us: f64,
    /// Measured time, microseconds; the longest over the seeds.
    pub measured_us: f64,
    /// Latencies measured; the fewest over the seeds.
    pub samples: u64,
    /// The true 99th percentile is at least this with 99 %, microseconds; the least over the seeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_low_us: Option<f64>,
    /// The true 99th percentile is at most this with 99 %, microseconds; the largest over the seeds, absent with too
    /// few samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_high_us: Option<f64>,
}

/// The metric that a rule compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JudgedMetric {
    /// Payload, gigabits per second; more is better.
    GoodputGbps,
    /// Messages per second; more is better.
    MessageRatePerS,
    /// 99th percentile latency, microseconds; less is better.
    P99Us,
    /// Operations of an application per second; more is better.
    OperationsPerS,
}

/// What a victim was owed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Expected {
    /// What was compared.
    pub metric: JudgedMetric,
    /// The bound in the metric's unit: the least rate, or the largest latency.
    pub bound: f64,
    /// The victim alone, in the metric's unit.
    pub solo: f64,
    /// The guarantee B_g in the metric's unit, for the share rule.
    pub guarantee: Option<f64>,
    /// The rule in words, with its numbers.
    pub rule: String,
}

/// Smallest and largest value over the seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
}

/// One seed's run of one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SeedRun {
    /// The run seed.
    pub seed: u64,
    /// The victim.
    pub victim: Metrics,
    /// The attacker.
    pub attacker: Metrics,
}

/// The resource that ran out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Exhausted {
    /// In words: `receive units stalled by receiver-not-ready errors`, `PCIe towards the NIC`, ...; it begins with
    /// `no resource saturated` where only the largest change is known.
    pub resource: String,
    /// Whose NIC.
    pub host: Host,
    /// The ratio that shows it (`rnr_stall_ratio`, ...).
    pub counter: String,
    /// Its value with the victim alone, 0 to 1.
    pub solo: f64,
    /// Its value under attack, 0 to 1.
    pub contended: f64,
    /// One sentence with the number.
    pub evidence: String,
}

/// Time series of one cell's drill-down, at most [`SERIES_POINTS`] points each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// Which seed.
    pub seed: u64,
    /// Width of one point, microseconds.
    pub sample_us: f64,
    /// The victim's goodput alone, gigabits per second.
    pub solo_goodput_gbps: Vec<f64>,
    /// The victim's goodput under attack, gigabits per second.
    pub victim_goodput_gbps: Vec<f64>,
    /// The attacker's goodput, gigabits per second.
    pub attacker_goodput_gbps: Vec<f64>,
    /// The victim's 99th percentile latency alone, microseconds, `null` where nothing completed; empty for rate victims.
    pub solo_p99_us: Vec<Option<f64>>,
    /// The victim's 99th percentile latency under attack, in the same form.
    pub victim_p99_us: Vec<Option<f64>>,
}

/// Points of a drill-down series: enough for a plot 300 pixels wide, few enough for thousands of cells in one file.
pub const SERIES_POINTS: usize = 25;

/// What the tenants of one pair got together: medians over the seeds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellFigures {
    /// Dominant share of each tenant, the victim first.
    pub shares: Vec<f64>,
    /// Jain's index over what each tenant got of what it was owed; absent where one has control verbs only.
    pub fairness: Option<f64>,
    /// CPU cores that the policy spends on the pair.
    pub policy_cores: f64,
}

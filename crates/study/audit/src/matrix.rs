//! What an audit found: the verdict matrix as plain data, for JSON, JUnit XML, the terminal and the HTML report.
//!
//! Units end the names: `gbps` is gigabits (10^9 bits) of payload per second, `per_s` is per second, `us` is
//! microseconds. Nothing here depends on when, where or with how many workers the audit ran, so two audits of
//! one selection print equal bytes. Lists keep the catalogue's order (policies, then victims, then attackers).

use crate::figures::{CellFigures, ColumnSummary, PolicyFigures};
use isolane_rdma_scenario::catalogue::Column;
use isolane_rdma_scenario::model::Host;
use isolane_study_results::rdma::TenantResult;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of the JSON form; raised when a field changes meaning or goes.
pub const AUDIT_VERSION: u32 = 2;

/// One audit: every selected victim alone and under every selected attacker, per policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AuditResult {
    /// [`AUDIT_VERSION`].
    pub version: u32,
    /// The device profile's name.
    pub profile: String,
    /// Which testbed ran it: `sim` or `verbs`.
    pub testbed: String,
    /// The rule that judged rate victims.
    pub predicate: PredicateName,
    /// Tolerance of the rule, 0 to 1: a victim may lose this fraction of what it is owed.
    pub alpha: f64,
    /// Tenants that share the NIC in each cell (the victim and its attacker); under `all-others`, which only the
    /// audit of a scenario has, every tenant of the file is there.
    pub tenants: u32,
    /// Run seeds; every cell was run once with each.
    pub seeds: Vec<u64>,
    /// Time before measuring starts, microseconds: the least where runs go on until they settle.
    pub warmup_us: f64,
    /// Measured time of each run, microseconds: the least where runs go on until they settle.
    pub measured_us: f64,
    /// Simulated time after which a run ends, settled or not, microseconds; absent where times are fixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap_us: Option<f64>,
    /// Policies, in the order asked for.
    pub policies: Vec<String>,
    /// Policies of `all` that the device cannot run.
    #[serde(default)]
    pub policies_left_out: Vec<LeftOut>,
    /// Victims, in the catalogue's order.
    pub victims: Vec<Victim>,
    /// Attackers, in the catalogue's order.
    pub attackers: Vec<Attacker>,
    /// What each victim does alone, per policy.
    pub solo: Vec<Solo>,
    /// One per policy, victim and attacker; cells not run yet are absent.
    pub cells: Vec<Cell>,
    /// One per policy.
    pub summaries: Vec<PolicySummary>,
    /// How much of the audit is done.
    pub progress: Progress,
    /// A command line that runs this audit again.
    pub rerun: String,
}

/// A policy that was not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    /// The policy.
    pub policy: String,
    /// Why not: the part, what it needs, and who lacks it.
    pub reason: String,
}

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
    /// One sentence: what was owed, what was got, and what ran out; or why the cell does not apply.
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
    /// Seeds whose windows, or bounds of the 99th percentile, lie on both sides of what is owed.
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
    /// `no resource saturated` where only the largest change can be told.
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

/// One policy's outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicySummary {
    /// The policy.
    pub policy: String,
    /// Whether what it needs can be bought: false where it needs hardware that is not on sale.
    #[serde(default = "on_sale")]
    pub on_sale: bool,
    /// Cells judged (not-applicable ones excluded).
    pub cells: u32,
    /// Violations among them.
    pub violations: u32,
    /// Cells that do not apply.
    pub not_applicable: u32,
    /// Cells whose runs did not settle; they count as neither kept nor broken.
    #[serde(default)]
    pub not_settled: u32,
    /// Per attacker category, in the catalogue's order.
    pub categories: Vec<CategorySummary>,
    /// Per column of husky table 4.3, in the table's order; empty for a scenario's tenants.
    #[serde(default)]
    pub columns: Vec<ColumnSummary>,
    /// Utilisation, fairness, CPU and idle latency; absent where no pair was judged.
    #[serde(default)]
    pub figures: Option<PolicyFigures>,
    /// The victim that lost the largest fraction of what it has alone.
    pub worst: Option<WorstVictim>,
}

/// What results say that are older than the field.
fn on_sale() -> bool {
    true
}

/// One policy against one category of attackers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CategorySummary {
    /// Attacker category.
    pub category: String,
    /// Cells judged.
    pub cells: u32,
    /// Violations among them.
    pub violations: u32,
    /// Attackers that broke at least one victim.
    pub attackers_that_break: u32,
    /// Victims broken by at least one attacker.
    pub victims_broken: u32,
}

/// The victim hurt most.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorstVictim {
    /// The victim.
    pub victim: String,
    /// The attacker that hurt it most.
    pub attacker: String,
    /// What it kept of its solo performance, 0 to 1.
    pub retained: f64,
    /// Attackers that broke this victim.
    pub violations: u32,
    /// The cell's one-line reason.
    pub why: String,
}

/// How much of an audit is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// Runs done (a run is one scenario with one seed).
    pub runs_done: u64,
    /// Runs of the whole audit.
    pub runs_total: u64,
    /// True when it was interrupted; `--resume` continues it.
    pub partial: bool,
}

impl AuditResult {
    /// The cell of `policy`, `victim` and `attacker`, if it was run.
    pub fn cell(&self, policy: &str, victim: &str, attacker: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| {
            cell.policy == policy && cell.victim == victim && cell.attacker == attacker
        })
    }

    /// Violations over all policies.
    pub fn violations(&self) -> u32 {
        self.summaries
            .iter()
            .map(|summary| summary.violations)
            .sum()
    }

    /// Pairs that have a verdict, over all policies.
    pub fn judged(&self) -> u32 {
        self.summaries.iter().map(|summary| summary.cells).sum()
    }
}

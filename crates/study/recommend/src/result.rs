//! The answer as plain data, for JSON, the terminal and the HTML page.

use isolane_study_audit::cell::{Exhausted, Metrics};
use isolane_study_audit::matrix::LeftOut;
use isolane_study_results::settling::SettlingSummary;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of the JSON form; raised when a field changes meaning or goes.
pub const RECOMMENDATION_VERSION: u32 = 2;

/// Every policy's outcome for one scenario, best first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Recommendation {
    /// [`RECOMMENDATION_VERSION`].
    pub version: u32,
    /// The scenario's name.
    pub scenario: String,
    /// The device profile's name.
    pub profile: String,
    /// Which testbed ran it.
    pub testbed: String,
    /// Run seeds.
    pub seeds: Vec<u64>,
    /// Measured time of each run, microseconds; the least where runs go on until they settle.
    pub measured_us: f64,
    /// How long the runs of all tenants together took to settle; absent where times are fixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settling: Option<SettlingSummary>,
    /// The tenants and what they need, in the scenario's order.
    pub tenants: Vec<TenantNeeds>,
    /// The policies, best first.
    pub policies: Vec<PolicyOutcome>,
    /// Policies that do not fit the device or the scenario.
    pub left_out: Vec<LeftOut>,
    /// The recommendation in words.
    pub advice: String,
    /// A command line that gives it again.
    pub rerun: String,
}

/// A tenant and what it needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TenantNeeds {
    /// Its name.
    pub name: String,
    /// Its weight.
    pub weight: u32,
    /// What it needs; empty for a tenant without an SLO.
    pub objectives: Vec<Objective>,
    /// True when the scenario has no SLO at all, and `objectives` are derived from what the tenant gets alone.
    pub derived: bool,
}

/// What an objective counts.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectiveKind {
    /// Payload at least, gigabits per second.
    GoodputMin,
    /// Messages at least, per second.
    MessagesMin,
    /// Median latency at most, microseconds.
    P50Max,
    /// 99th percentile of latency at most, microseconds.
    P99Max,
}

/// One bound of an SLO.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Objective {
    /// What counts.
    pub kind: ObjectiveKind,
    /// The bound, in the kind's unit.
    pub target: f64,
}

/// Whether an objective was met.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ObjectiveOutcome {
    /// What counts.
    pub kind: ObjectiveKind,
    /// The bound, in the kind's unit.
    pub target: f64,
    /// Median over the seeds, in the kind's unit; absent for the latency of a tenant that completed nothing.
    pub measured: Option<f64>,
    /// Whether the median meets the bound; false where it is not known.
    pub met: bool,
    /// False where the runs of half of the seeds or more did not settle, so that nothing can be said.
    #[serde(default = "is_settled")]
    pub settled: bool,
    /// True when the seeds, or the windows of one run, disagree.
    pub borderline: bool,
}

impl ObjectiveOutcome {
    /// Met, missed, or no verdict because the runs did not settle.
    pub fn mark(&self) -> &'static str {
        match (self.settled, self.met) {
            (false, _) => "?",
            (true, true) => "✓",
            (true, false) => "✗",
        }
    }

    /// Whether settled runs miss the objective; runs that did not settle give no verdict.
    pub(crate) fn is_missed(&self) -> bool {
        self.settled && !self.met
    }
}

/// Of results with fixed times.
fn is_settled() -> bool {
    true
}

/// One policy with all tenants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyOutcome {
    /// The policy.
    pub policy: String,
    /// False where the policy needs hardware that is not on sale. Such policies come after all others.
    pub on_sale: bool,
    /// How long its runs took to settle; absent where times are fixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settling: Option<SettlingSummary>,
    /// What it controls, in words.
    pub about: String,
    /// Objectives met.
    pub met: u32,
    /// All objectives.
    pub objectives: u32,
    /// Sum of the tenants' dominant shares (see `isolane_study_audit::figures`).
    pub utilisation: f64,
    /// Sum of the tenants' goodput, gigabits per second.
    pub goodput_gbps: f64,
    /// CPU cores that the policy spends.
    pub policy_cores: f64,
    /// The tenants, in the scenario's order.
    pub tenants: Vec<TenantOutcome>,
    /// Why tenants miss what they need.
    pub misses: Vec<Miss>,
}

/// One tenant under one policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TenantOutcome {
    /// Its name.
    pub name: String,
    /// Medians over the seeds.
    pub metrics: Metrics,
    /// What it needs and got.
    pub objectives: Vec<ObjectiveOutcome>,
}

/// Why a tenant misses its objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MissCause {
    /// It misses the objective alone too, under this policy and under none.
    Device,
    /// It meets the objective alone under none, and misses it alone under this policy.
    Policy,
    /// Without any one of the tenants named it meets the objective.
    Tenants,
    /// No single tenant's leaving is enough.
    Together,
}

/// A tenant that misses objectives under a policy, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Miss {
    /// The tenant.
    pub tenant: String,
    /// The objectives that it misses.
    pub objectives: Vec<ObjectiveOutcome>,
    /// The kind of cause.
    pub cause: MissCause,
    /// The tenants that `cause` names; for `together` the one whose removal helps most.
    pub attackers: Vec<String>,
    /// The resource that ran out in the run of all tenants, compared with the tenant alone.
    pub exhausted: Option<Exhausted>,
    /// All of it in one sentence.
    pub words: String,
}

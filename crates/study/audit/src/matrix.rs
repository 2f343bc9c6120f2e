//! What an audit found: the verdict matrix as plain data, for JSON, JUnit XML, the terminal and the HTML report.
//!
//! Units end the names: `gbps` is gigabits (10^9 bits) of payload per second, `per_s` is per second, `us` is
//! microseconds. Nothing here depends on when, where or with how many workers the audit ran, so two audits of
//! one selection print equal bytes. Lists keep the catalogue's order (policies, then victims, then attackers).

use crate::cell::{Attacker, Cell, JudgedMetric, PredicateName, Solo, Victim};
use crate::figures::{ColumnSummary, PolicyFigures};
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
    /// Policies, in the order of the request.
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

    /// What the `worst` victim under `policy` lost, in words that follow its name.
    pub fn loss(&self, policy: &str, worst: &WorstVictim) -> String {
        let cell = self.cell(policy, &worst.victim, &worst.attacker);
        let expected = cell.and_then(|cell| cell.expected.as_ref());
        loss(expected.map(|expected| expected.metric), worst.retained)
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

/// What a victim lost that kept `retained` (0 to 1) in `metric`, in words that follow its name.
fn loss(metric: Option<JudgedMetric>, retained: f64) -> String {
    // A starved victim is not rounded up to something.
    let percent = match retained * 100.0 {
        percent if percent > 0.0 && percent < 1.0 => format!("{percent:.3} %"),
        percent => format!("{percent:.0} %"),
    };
    match metric {
        Some(JudgedMetric::P99Us) if retained > 0.0 => match 1.0 / retained {
            growth if growth < 10.0 => {
                format!("has {growth:.1} times the p99 latency that it has alone")
            }
            growth => format!("has {growth:.0} times the p99 latency that it has alone"),
        },
        Some(JudgedMetric::P99Us) => "completes nothing".to_owned(),
        Some(JudgedMetric::GoodputGbps) => {
            format!("keeps {percent} of the goodput that it has alone")
        }
        Some(_) | None => format!("keeps {percent} of the rate that it has alone"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_said_in_its_metric() {
        let said = [
            loss(Some(JudgedMetric::P99Us), 0.161),
            loss(Some(JudgedMetric::P99Us), 0.00371),
            loss(Some(JudgedMetric::P99Us), 0.0),
            loss(Some(JudgedMetric::GoodputGbps), 0.16),
            loss(Some(JudgedMetric::MessageRatePerS), 0.0037),
        ];
        let want = "has 6.2 times the p99 latency that it has alone; has 270 times the p99 latency that it has alone; \
                    completes nothing; keeps 16 % of the goodput that it has alone; keeps 0.370 % of the rate that it has \
                    alone";
        assert_eq!(said.join("; "), want);
    }
}

//! What a policy costs and what it leaves of the NIC: utilisation, fairness, CPU, latency added to an idle tenant.
//!
//! Units: shares are fractions of the NIC, 0 to 1 (two tenants of different resources can have more than 1 together);
//! CPU is cores; latency is microseconds.
//!
//! * The **dominant share** of a tenant is the larger of its goodput over the link's rate and its messages over what
//!   the NIC's processing units do of its dearest verb: the unit in which the share rule of [`crate::predicate`]
//!   judges it. Control verbs have none.
//! * **Utilisation** of a pair is the sum of its tenants' dominant shares; of a policy, the mean over its pairs. A
//!   second figure divides it by the utilisation of the same pairs under `none`.
//! * **Fairness** of a pair is Jain's index over its tenants of `min(1, got / owed)`. A victim is owed the smaller of
//!   its part of the NIC and what it gets alone; an attacker, which never runs alone, its part. Pairs in which a
//!   tenant has control verbs only are left out.
//! * **CPU** is what the policy spends on all tenants of a pair, as the testbed reports it.
//! * **Idle latency**: p50 and p99 of the latency victims alone under the policy, minus the same under `none`; the
//!   most over the victims.
//!
//! Limits: an attacker that completes little by its nature (one whose receiver is never ready) lowers utilisation and
//! fairness under every policy alike: compare policies, do not read the figures by themselves.

use crate::cell::{Attacker, Cell, CellFigures, Metrics, Solo, Verdict, Victim, VictimKind};
use crate::outcome::round;
use isolane_rdma_scenario::catalogue::Column;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The policy that the others are compared with.
const BASE: &str = "none";

/// One policy's figures over all pairs judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyFigures {
    /// Mean over the pairs of the sum of dominant shares.
    pub utilisation: f64,
    /// The same over its value under `none`, for the pairs judged under both; absent without `none`.
    pub utilisation_of_none: Option<f64>,
    /// Mean of the pairs' fairness, 0 to 1; absent where no pair has one.
    pub fairness: Option<f64>,
    /// Mean over the pairs of the CPU cores that the policy spends.
    pub policy_cores_mean: f64,
    /// The most that it spends on one pair.
    pub policy_cores_max: f64,
    /// Median latency added to a latency victim that runs alone, microseconds; absent without `none` or such a victim.
    pub idle_p50_added_us: Option<f64>,
    /// The same for the 99th percentile.
    pub idle_p99_added_us: Option<f64>,
}

/// One policy against the attackers of one column of husky table 4.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ColumnSummary {
    /// The column.
    pub column: Column,
    /// Pairs judged.
    pub cells: u32,
    /// Violations among them; none is a tick.
    pub violations: u32,
}

/// Every column, in the table's order, bandwidth first.
pub const COLUMNS: [Column; 7] = [
    Column::Bandwidth,
    Column::PuErrorRc,
    Column::PuErrorUnreliable,
    Column::PuData,
    Column::CacheControl,
    Column::CacheData,
    Column::PcieData,
];

/// A column's heading: short, for tables.
pub fn heading(column: Column) -> &'static str {
    match column {
        Column::Bandwidth => "bandwidth",
        Column::PuErrorRc => "RC errors",
        Column::PuErrorUnreliable => "UC/UD errors",
        Column::PuData => "PU data",
        Column::CacheControl => "cache control",
        Column::CacheData => "cache data",
        Column::PcieData => "PCIe data",
    }
}

/// Jain's index of `parts`, each 0 or more; 1 where all parts are 0.
pub(crate) fn jain(parts: &[f64]) -> f64 {
    let sum: f64 = parts.iter().sum();
    let squares: f64 = parts.iter().map(|part| part * part).sum();
    match squares > 0.0 {
        true => sum * sum / (parts.len() as f64 * squares),
        false => 1.0,
    }
}

/// The figures of `policy` among the `cells` and `solo` of all policies.
pub(crate) fn policy_figures(
    policy: &str,
    victims: &[Victim],
    cells: &[Cell],
    solo: &[Solo],
) -> Option<PolicyFigures> {
    let judged: Vec<(&Cell, &CellFigures)> = of(policy, cells).collect();
    let count = judged.len() as f64;
    if judged.is_empty() {
        return None;
    }
    let work = |figures: &CellFigures| figures.shares.iter().sum::<f64>();
    let total: f64 = judged.iter().map(|(_, figures)| work(figures)).sum();
    let (mut ours, mut theirs) = (0.0, 0.0);
    let pair = |cell: &Cell| (cell.victim.clone(), cell.attacker.clone());
    let none: BTreeMap<_, _> = of(BASE, cells)
        .map(|(cell, figures)| (pair(cell), work(figures)))
        .collect();
    for (cell, figures) in &judged {
        if let Some(work_of_none) = none.get(&pair(cell)) {
            ours += work(figures);
            theirs += work_of_none;
        }
    }
    let fairness: Vec<f64> = judged.iter().filter_map(|(_, f)| f.fairness).collect();
    let cores = || judged.iter().map(|(_, figures)| figures.policy_cores);
    let added =
        |field: fn(&Metrics) -> Option<f64>| idle_added(policy, victims, solo, field).map(round);
    Some(PolicyFigures {
        utilisation: round(total / count),
        utilisation_of_none: (theirs > 0.0).then(|| round(ours / theirs)),
        fairness: (!fairness.is_empty())
            .then(|| round(fairness.iter().sum::<f64>() / fairness.len() as f64)),
        policy_cores_mean: round(cores().sum::<f64>() / count),
        policy_cores_max: round(cores().fold(0.0, f64::max)),
        idle_p50_added_us: added(|metrics| metrics.p50_us),
        idle_p99_added_us: added(|metrics| metrics.p99_us),
    })
}

/// The judged cells of `policy` with their figures.
fn of<'a>(policy: &'a str, cells: &'a [Cell]) -> impl Iterator<Item = (&'a Cell, &'a CellFigures)> {
    let judged = cells
        .iter()
        .filter(move |cell| cell.policy == policy && cell.verdict.is_judged());
    judged.filter_map(|cell| Some((cell, cell.figures.as_ref()?)))
}

/// The most that a latency victim's `field` grows from `none` to `policy` while it is alone.
fn idle_added(
    policy: &str,
    victims: &[Victim],
    solo: &[Solo],
    field: fn(&Metrics) -> Option<f64>,
) -> Option<f64> {
    let alone = |policy: &str, victim: &str| {
        let found = solo
            .iter()
            .find(|solo| solo.policy == policy && solo.victim == victim)?;
        field(found.median.as_ref()?)
    };
    victims
        .iter()
        .filter(|victim| victim.kind == VictimKind::Latency)
        .filter_map(|victim| Some(alone(policy, &victim.name)? - alone(BASE, &victim.name)?))
        .max_by(f64::total_cmp)
}

/// The columns of `attackers` with what `policy` does there, in the table's order; those without attackers left out.
pub(crate) fn columns(policy: &str, attackers: &[Attacker], cells: &[Cell]) -> Vec<ColumnSummary> {
    let in_column = |column| attackers.iter().filter(move |a| a.column == Some(column));
    COLUMNS
        .into_iter()
        .filter(|column| in_column(*column).next().is_some())
        .map(|column| {
            let judged = || {
                cells.iter().filter(move |cell| {
                    cell.policy == policy
                        && cell.verdict.is_judged()
                        && in_column(column).any(|attacker| attacker.name == cell.attacker)
                })
            };
            let broken = judged().filter(|cell| cell.verdict == Verdict::Violation);
            ColumnSummary {
                column,
                cells: judged().count() as u32,
                violations: broken.count() as u32,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(policy: &str, attacker: &str, verdict: Verdict, shares: &[f64]) -> Cell {
        Cell {
            verdict,
            figures: Some(CellFigures {
                shares: shares.to_vec(),
                fairness: (shares.len() == 2).then(|| jain(shares)),
                policy_cores: shares[0],
            }),
            ..Cell::not_applicable([policy, "victim", attacker])
        }
    }

    fn solo(policy: &str, p99: f64) -> Solo {
        let median = Metrics {
            p50_us: Some(1.0),
            p99_us: Some(p99),
            ..Metrics::default()
        };
        Solo {
            policy: policy.to_owned(),
            victim: "victim".to_owned(),
            median: Some(median),
            settling: None,
            not_applicable: None,
        }
    }

    #[test]
    fn jain_is_one_when_even_and_one_nth_when_one_takes_all() {
        assert_eq!(jain(&[0.5, 0.5]), 1.0);
        assert_eq!(jain(&[1.0, 0.0]), 0.5);
        assert_eq!(jain(&[0.0, 0.0]), 1.0);
    }

    #[test]
    fn a_policy_is_compared_with_none_pair_by_pair() {
        let victims = [Victim {
            name: "victim".to_owned(),
            kind: VictimKind::Latency,
            category: String::new(),
            measured_us: None,
        }];
        let cells = [
            cell("none", "a", Verdict::Violation, &[0.2, 0.6]),
            cell("none", "b", Verdict::NotApplicable, &[9.0, 9.0]),
            cell("palos", "a", Verdict::Pass, &[0.4, 0.4]),
            cell("palos", "c", Verdict::Pass, &[0.6, 0.6]),
        ];
        let solos = [solo("none", 2.0), solo("palos", 2.5)];
        let figures = policy_figures("palos", &victims, &cells, &solos).unwrap();
        assert_eq!(figures.utilisation, 1.0);
        assert_eq!(
            figures.utilisation_of_none,
            Some(1.0),
            "pair c has no partner"
        );
        assert_eq!(figures.fairness, Some(1.0));
        assert_eq!(
            (figures.policy_cores_mean, figures.policy_cores_max),
            (0.5, 0.6)
        );
        assert_eq!(figures.idle_p99_added_us, Some(0.5));
        assert_eq!(figures.idle_p50_added_us, Some(0.0));
        assert!(policy_figures("lite", &victims, &cells, &solos).is_none());
    }

    #[test]
    fn columns_count_their_own_attackers_only() {
        let attacker = |name: &str, column| Attacker {
            name: name.to_owned(),
            category: String::new(),
            resource: String::new(),
            column: Some(column),
        };
        let attackers = [
            attacker("a", Column::PcieData),
            attacker("b", Column::Bandwidth),
        ];
        let cells = [
            cell("none", "a", Verdict::Violation, &[0.1]),
            cell("none", "b", Verdict::Pass, &[0.1]),
            cell("lite", "b", Verdict::Violation, &[0.1]),
        ];
        let found = columns("none", &attackers, &cells);
        let counts: Vec<_> = found
            .iter()
            .map(|c| (c.column, c.cells, c.violations))
            .collect();
        assert_eq!(
            counts,
            [(Column::Bandwidth, 1, 0), (Column::PcieData, 1, 1)]
        );
    }
}

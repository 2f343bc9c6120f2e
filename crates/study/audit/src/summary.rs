//! A policy's cells summed up: counts by category, figures, the worst victim.

use crate::cell::{Cell, Solo, Verdict};
use crate::figures::{columns, policy_figures};
use crate::matrix::{CategorySummary, PolicySummary, WorstVictim};
use crate::plan::Plan;
use isolane_rdma_scenario::stack::is_on_sale;
use std::collections::{BTreeMap, BTreeSet};

/// The summary of `policy`.
pub(crate) fn summary(plan: &Plan, policy: &str, cells: &[Cell], solo: &[Solo]) -> PolicySummary {
    let victims: Vec<_> = plan
        .victims
        .iter()
        .map(|victim| victim.info.clone())
        .collect();
    let attackers: Vec<_> = plan.attackers.iter().map(|a| a.info.clone()).collect();
    let of_policy: Vec<&Cell> = cells.iter().filter(|cell| cell.policy == policy).collect();
    let count = |verdict| of_policy.iter().filter(|c| c.verdict == verdict).count() as u32;
    let (passes, violations) = (count(Verdict::Pass), count(Verdict::Violation));
    PolicySummary {
        on_sale: is_on_sale(policy),
        policy: policy.to_owned(),
        cells: passes + violations,
        violations,
        not_applicable: count(Verdict::NotApplicable),
        not_settled: count(Verdict::NotSettled),
        categories: categories(plan, &of_policy),
        columns: columns(policy, &attackers, cells),
        figures: policy_figures(policy, &victims, cells, solo),
        worst: worst(&of_policy),
    }
}

fn categories(plan: &Plan, cells: &[&Cell]) -> Vec<CategorySummary> {
    let mut order: Vec<&str> = Vec::new();
    let mut category_of: BTreeMap<&str, &str> = BTreeMap::new();
    for attacker in &plan.attackers {
        let category = attacker.info.category.as_str();
        category_of.insert(&attacker.info.name, category);
        if !order.contains(&category) {
            order.push(category);
        }
    }
    order
        .into_iter()
        .map(|category| {
            let judged = cells.iter().filter(|cell| {
                cell.verdict.is_judged() && category_of[cell.attacker.as_str()] == category
            });
            let broken: Vec<_> = judged
                .clone()
                .filter(|cell| cell.verdict == Verdict::Violation)
                .collect();
            let attackers: BTreeSet<&str> = broken.iter().map(|c| c.attacker.as_str()).collect();
            let victims: BTreeSet<&str> = broken.iter().map(|c| c.victim.as_str()).collect();
            CategorySummary {
                category: category.to_owned(),
                cells: judged.count() as u32,
                violations: broken.len() as u32,
                attackers_that_break: attackers.len() as u32,
                victims_broken: victims.len() as u32,
            }
        })
        .collect()
}

/// The violated cell that kept least; the first in order among equals.
fn worst(cells: &[&Cell]) -> Option<WorstVictim> {
    let retained = |cell: &Cell| cell.retained.unwrap_or(0.0);
    let broken = || cells.iter().filter(|c| c.verdict == Verdict::Violation);
    let cell = broken().min_by(|left, right| retained(left).total_cmp(&retained(right)))?;
    Some(WorstVictim {
        victim: cell.victim.clone(),
        attacker: cell.attacker.clone(),
        retained: retained(cell),
        violations: broken().filter(|c| c.victim == cell.victim).count() as u32,
        why: cell.why.clone(),
    })
}

//! From outcomes to verdicts: medians over the seeds, the predicate, the exhausted resource, the summaries.
//!
//! Only cells whose every seed is done are judged; an interrupted audit simply has fewer cells.

use crate::exhaustion::{Pressure, exhausted};
use crate::figures::{CellFigures, columns, jain, policy_figures};
use crate::matrix::{
    AUDIT_VERSION, AuditResult, CategorySummary, Cell, Exhausted, Expected, Metrics, PolicySummary,
    Progress, SeedRun, Series, Solo, Spread, Verdict, Victim, VictimKind, WorstVictim,
};
use crate::outcome::{Detail, Outcome, round};
use crate::plan::{Plan, Run, TENANTS};
use crate::predicate::{
    Capacity, Judged, Judgement, OPERATIONS_MIN, Part, judge, value, with_unit,
};
use isolane_core::stats::summary::median;
use isolane_core::text::counted;
use isolane_scenario::model::{Tenant, Traffic};
use isolane_scenario::stack::{honours_weights, is_on_sale};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Everything about `plan` that `outcomes` tell.
pub(crate) fn assemble(
    plan: &Plan,
    testbed: &str,
    outcomes: &BTreeMap<Run, Outcome>,
    progress: Progress,
) -> AuditResult {
    let judge = Judge { plan, outcomes };
    let mut solo = Vec::new();
    let mut cells = Vec::new();
    for policy in 0..plan.policies.len() {
        for victim in 0..plan.victims.len() {
            solo.push(judge.solo(policy, victim));
            let attackers = 0..plan.attackers.len();
            cells.extend(attackers.filter_map(|attacker| judge.cell(policy, victim, attacker)));
        }
    }
    let policies: Vec<String> = plan.policies.iter().map(|p| p.name.clone()).collect();
    let summaries = policies
        .iter()
        .map(|name| summary(plan, name, &cells, &solo))
        .collect();
    AuditResult {
        version: AUDIT_VERSION,
        profile: plan.profile.name.clone(),
        testbed: testbed.to_owned(),
        predicate: plan.predicate.name(),
        alpha: plan.predicate.alpha(),
        tenants: TENANTS,
        seeds: plan.seeds.clone(),
        warmup_us: plan.settled().as_us_f64(),
        measured_us: plan.duration.as_us_f64(),
        policies,
        policies_left_out: plan.left_out.clone(),
        victims: (0..plan.victims.len())
            .map(|index| victim(plan, index))
            .collect(),
        attackers: plan.attackers.iter().map(|a| a.info.clone()).collect(),
        solo,
        cells,
        summaries,
        progress,
        rerun: plan.rerun.clone(),
    }
}

/// A victim as the result names it.
fn victim(plan: &Plan, index: usize) -> Victim {
    let measured = plan.measured(index);
    Victim {
        measured_us: (measured > plan.duration).then(|| measured.as_us_f64()),
        ..plan.victims[index].info.clone()
    }
}

struct Judge<'a> {
    plan: &'a Plan,
    outcomes: &'a BTreeMap<Run, Outcome>,
}

impl Judge<'_> {
    /// The outcomes of all seeds, or `None` while one is missing.
    fn seeds(
        &self,
        policy: usize,
        victim: usize,
        attacker: Option<usize>,
    ) -> Option<Vec<&Outcome>> {
        let run = |seed| Run {
            policy,
            victim,
            attacker,
            seed,
        };
        (0..self.plan.seeds.len())
            .map(|seed| self.outcomes.get(&run(seed)))
            .collect()
    }

    fn solo(&self, policy: usize, victim: usize) -> Solo {
        let runs = self.seeds(policy, victim, None);
        Solo {
            policy: self.plan.policies[policy].name.clone(),
            victim: self.plan.victims[victim].info.name.clone(),
            median: runs.map(|runs| medians(runs.iter().map(|run| &run.victim))),
            not_applicable: self.plan.victims[victim].tenant.as_ref().err().cloned(),
        }
    }

    /// The verdict of one cell; `None` while its runs are not done.
    fn cell(&self, policy: usize, victim: usize, attacker: usize) -> Option<Cell> {
        let plan = self.plan;
        let (v, a) = (&plan.victims[victim], &plan.attackers[attacker]);
        let mut cell = Cell {
            policy: plan.policies[policy].name.clone(),
            victim: v.info.name.clone(),
            attacker: a.info.name.clone(),
            verdict: Verdict::NotApplicable,
            why: String::new(),
            expected: None,
            measured: None,
            retained: None,
            spread: None,
            borderline: false,
            victim_median: None,
            attacker_median: None,
            runs: Vec::new(),
            exhausted: None,
            series: None,
            figures: None,
        };
        let others = match plan.opponents(victim, attacker) {
            Ok(others) => others,
            Err(reason) => {
                reason.clone_into(&mut cell.why);
                return Some(cell);
            }
        };
        let tenant = v.tenant.as_ref().expect("opponents() checks the victim");
        let alone = self.seeds(policy, victim, None)?;
        let attacked = self.seeds(policy, victim, Some(attacker))?;
        let solo = medians(alone.iter().map(|run| &run.victim));
        let got = medians(attacked.iter().map(|run| &run.victim));
        cell.victim_median = Some(got);
        cell.attacker_median = Some(medians(
            attacked.iter().filter_map(|run| run.attacker.as_ref()),
        ));
        cell.runs = seed_runs(&plan.seeds, &attacked);
        let judged = match v.over_solo {
            Some(over_solo) => Judged::Latency { over_solo },
            None if v.info.kind == VictimKind::Application => Judged::Operations {
                capacity: one_link(tenant).then(|| Capacity::of(&plan.profile, tenant)),
            },
            None => Judged::Rate(Capacity::of(&plan.profile, tenant)),
        };
        let weights = honours_weights(&cell.policy);
        let predicate = plan
            .predicate
            .with_part(part(tenant, tenant, &others, weights));
        cell.figures = Some(figures(tenant, &others, weights, &alone, &attacked));
        let expected = match predicate.expected(judged, &solo, &got) {
            Ok(expected) => expected,
            Err(reason) => {
                cell.why = reason;
                return Some(cell);
            }
        };
        let judgement = judge(&expected, &got);
        cell.verdict = match judgement.kept {
            true => Verdict::Pass,
            false => Verdict::Violation,
        };
        cell.measured = judgement.measured;
        cell.retained = Some(round(judgement.retained));
        cell.spread = spread(&expected, &attacked);
        let details = (alone[0].detail.as_ref(), attacked[0].detail.as_ref());
        if let (Some(before), Some(after)) = details {
            let violation = cell.verdict == Verdict::Violation;
            cell.exhausted = exhausted(&pressure(before), &pressure(after), violation);
            let latency = v.info.kind == VictimKind::Latency;
            cell.series = Some(series(plan.seeds[0], before, after, latency));
        }
        let kept = |run: &&&Outcome| {
            let expected = predicate.expected(judged, &solo, &run.victim);
            expected.is_ok_and(|expected| judge(&expected, &run.victim).kept)
        };
        let keep = attacked.iter().filter(kept).count();
        cell.borderline = keep > 0 && keep < attacked.len();
        cell.why = why(&expected, &judgement, cell.exhausted.as_ref());
        if let Some(few) = got.operations.filter(|&count| count < OPERATIONS_MIN) {
            let _ = write!(
                cell.why,
                "; a coarse rate: {few} operations ended under attack"
            );
        }
        if cell.borderline {
            let _ = write!(
                cell.why,
                "; on the edge: {keep} of {} keep isolation",
                counted(attacked.len() as u64, "seed")
            );
        }
        cell.expected = Some(Expected {
            bound: round(expected.bound),
            guarantee: expected.guarantee.map(round),
            ..expected
        });
        Some(cell)
    }
}

/// Whether all that `tenant` does passes one link, so that its share of it is known; hosts of a distributed
/// application have several.
fn one_link(tenant: &Tenant) -> bool {
    let mut workloads = tenant.workloads.iter();
    workloads.all(|workload| !matches!(workload.traffic, Traffic::Application(_)))
}

/// The part of the NIC that `one` has while `victim` meets `others`: by weight where `weights` count.
fn part(one: &Tenant, victim: &Tenant, others: &[&Tenant], weights: bool) -> Part {
    match weights {
        true => Part {
            weight: one.weight,
            sum: victim.weight + others.iter().map(|other| other.weight).sum::<u32>(),
        },
        false => Part::one_of(1 + others.len() as u32),
    }
}

/// Medians over the seeds of what the tenants of one cell got together.
fn figures(
    victim: &Tenant,
    others: &[&Tenant],
    weights: bool,
    alone: &[&Outcome],
    attacked: &[&Outcome],
) -> CellFigures {
    let middle = |of: &dyn Fn(&Outcome) -> f64, runs: &[&Outcome]| {
        let values: Vec<f64> = runs.iter().map(|run| of(run)).collect();
        median(&values).map_or(0.0, round)
    };
    let share = |index: usize, runs: &[&Outcome]| {
        middle(&|run| run.shares.get(index).copied().unwrap_or(0.0), runs)
    };
    let shares: Vec<f64> = (0..=others.len())
        .map(|index| share(index, attacked))
        .collect();
    let tenants: Vec<&Tenant> = std::iter::once(victim)
        .chain(others.iter().copied())
        .collect();
    let moves_data = |tenant: &&Tenant| {
        let mut workloads = tenant.workloads.iter();
        workloads.any(|workload| matches!(workload.traffic, Traffic::Data(_)))
    };
    let got = tenants
        .iter()
        .zip(&shares)
        .enumerate()
        .map(|(index, (tenant, got))| {
            let part = part(tenant, victim, others, weights).of(1.0);
            // An attacker's demand is not known; the victim's is what it takes alone.
            let owed = match index {
                0 => part.min(share(0, alone)),
                _ => part,
            };
            if owed > 0.0 {
                (got / owed).min(1.0)
            } else {
                1.0
            }
        });
    let got: Vec<f64> = got.collect();
    CellFigures {
        fairness: tenants.iter().all(moves_data).then(|| round(jain(&got))),
        policy_cores: middle(&|run| run.policy_cores, attacked),
        shares,
    }
}

/// Field by field; a latency that half of the runs lack is absent.
fn medians<'a>(all: impl Iterator<Item = &'a Metrics>) -> Metrics {
    let all: Vec<&Metrics> = all.collect();
    let of = |field: fn(&Metrics) -> f64| {
        let values: Vec<f64> = all.iter().map(|metrics| field(metrics)).collect();
        median(&values).map_or(0.0, round)
    };
    let optional = |field: fn(&Metrics) -> Option<f64>| {
        // A run without a completed message has an endless latency.
        let endless = |metrics: &&Metrics| field(metrics).unwrap_or(f64::INFINITY);
        let values: Vec<f64> = all.iter().map(endless).collect();
        median(&values).filter(|value| value.is_finite()).map(round)
    };
    Metrics {
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

fn seed_runs(seeds: &[u64], attacked: &[&Outcome]) -> Vec<SeedRun> {
    seeds
        .iter()
        .zip(attacked)
        .map(|(&seed, outcome)| SeedRun {
            seed,
            victim: outcome.victim,
            attacker: outcome.attacker.unwrap_or_default(),
        })
        .collect()
}

fn spread(expected: &Expected, attacked: &[&Outcome]) -> Option<Spread> {
    let values = attacked
        .iter()
        .filter_map(|run| value(expected.metric, &run.victim));
    values.fold(None, |spread, value| {
        let Spread { min, max } = spread.unwrap_or(Spread {
            min: value,
            max: value,
        });
        Some(Spread {
            min: min.min(value),
            max: max.max(value),
        })
    })
}

fn pressure(detail: &Detail) -> Pressure {
    Pressure {
        hosts: detail.hosts.clone(),
    }
}

fn series(seed: u64, alone: &Detail, attacked: &Detail, latency: bool) -> Series {
    let if_latency = |series: &[Option<f64>]| match latency {
        true => series.to_vec(),
        false => Vec::new(),
    };
    Series {
        seed,
        sample_us: attacked.sample_us,
        solo_goodput_gbps: alone.victim_gbps.clone(),
        victim_goodput_gbps: attacked.victim_gbps.clone(),
        attacker_goodput_gbps: attacked.attacker_gbps.clone(),
        solo_p99_us: if_latency(&alone.victim_p99_us),
        victim_p99_us: if_latency(&attacked.victim_p99_us),
    }
}

/// The cell in one sentence.
fn why(expected: &Expected, judgement: &Judgement, exhausted: Option<&Exhausted>) -> String {
    let got = match judgement.measured {
        Some(measured) => with_unit(expected.metric, measured),
        None => "nothing".to_owned(),
    };
    let alone = with_unit(expected.metric, expected.solo);
    let owed = &expected.rule;
    match (judgement.kept, exhausted) {
        (true, _) => format!("got {got}, owed {owed}"),
        (false, None) => format!("got {got} instead of {alone}, owed {owed}; no counter shows why"),
        (false, Some(exhausted)) => {
            format!("got {got} instead of {alone}: {}", exhausted.evidence)
        }
    }
}

fn summary(plan: &Plan, policy: &str, cells: &[Cell], solo: &[Solo]) -> PolicySummary {
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
                cell.verdict != Verdict::NotApplicable
                    && category_of[cell.attacker.as_str()] == category
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

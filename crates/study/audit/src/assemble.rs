//! From outcomes to verdicts: medians over the seeds, the predicate, the exhausted resource, the summaries.
//!
//! Only cells whose every seed is done are judged; an interrupted audit simply has fewer cells.

use crate::exhaustion::{Pressure, exhausted};
use crate::figures::{CellFigures, columns, jain, policy_figures};
use crate::matrix::{
    AUDIT_VERSION, AuditResult, CategorySummary, Cell, Exhausted, Expected, JudgedMetric, Metrics,
    PolicySummary, Progress, SeedRun, Series, Settling, Solo, Spread, Verdict, Victim, VictimKind,
    WorstVictim,
};
use crate::outcome::{Detail, Outcome, fitted, largest, round};
use crate::plan::{Plan, Run, TENANTS};
use crate::predicate::{
    Capacity, Judged, Judgement, OPERATIONS_MIN, Part, Predicate, judge, value, with_unit,
};
use isolane_common_quantities::settle::{Demand, Figure, Limit, SAMPLES};
use isolane_common_quantities::stats::summary::median;
use isolane_common_quantities::units::Duration;
use isolane_common_text_output::counted;
use isolane_rdma_scenario::model::{Tenant, Traffic};
use isolane_rdma_scenario::stack::{honours_weights, is_on_sale};
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
        warmup_us: match plan.cap {
            Some(_) => plan.warmup.as_us_f64(),
            None => plan.settled().as_us_f64(),
        },
        cap_us: plan.cap.map(|cap| cap.as_us_f64()),
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

/// What has to be known of the victim when `run` ends: alone its figures, under attack on which side of what it is owed it
/// is. `outcomes` has the victim alone.
pub(crate) fn demand(plan: &Plan, outcomes: &BTreeMap<Run, Outcome>, run: &Run) -> Demand {
    let judge = Judge { plan, outcomes };
    let Some(attacker) = run.attacker else {
        return judge.demand_alone(run.victim);
    };
    let alone = judge.seeds(run.policy, run.victim, None);
    let alone = alone.expect("victims are run alone first");
    let solo = medians(alone.iter().map(|run| &run.victim));
    let (judged, predicate) = judge.rule(run.policy, run.victim, attacker);
    Demand::Limits(predicate.limits(judged, &solo))
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

    /// What has to be known of a victim alone: its latency or its rates, these only as far as they are below its part of the
    /// NIC, since it is owed no more than that.
    fn demand_alone(&self, victim: usize) -> Demand {
        let plan = self.plan;
        let v = &plan.victims[victim];
        if v.over_solo.is_some() {
            return Demand::Latency;
        }
        let (Ok(tenant), Predicate::Share { .. }, VictimKind::Rate) =
            (&v.tenant, plan.predicate, v.info.kind)
        else {
            return Demand::Rates;
        };
        let attackers = (0..plan.attackers.len()).filter_map(|a| plan.opponents(victim, a).ok());
        let parts = attackers.map(|others| {
            let by_weight = part(tenant, tenant, &others, true).of(1.0);
            by_weight.max(part(tenant, tenant, &others, false).of(1.0))
        });
        let most = parts.fold(0.0, f64::max);
        if most == 0.0 {
            return Demand::Rates;
        }
        let capacity = Capacity::of(&plan.profile, tenant);
        let limit = |figure, whole: f64| Limit {
            figure,
            value: most * whole,
        };
        Demand::RatesBelow(vec![
            limit(Figure::Goodput, capacity.link_gbps),
            limit(Figure::Messages, capacity.messages_per_s),
        ])
    }

    /// What of the victim counts under `attacker`, and the rule for it. Both can run on the device.
    fn rule(&self, policy: usize, victim: usize, attacker: usize) -> (Judged, Predicate) {
        let plan = self.plan;
        let v = &plan.victims[victim];
        let tenant = v.tenant.as_ref().expect("opponents() checks the victim");
        let others = plan.opponents(victim, attacker);
        let others = others.expect("the cell applies");
        let judged = match v.over_solo {
            Some(over_solo) => Judged::Latency { over_solo },
            None if v.info.kind == VictimKind::Application => Judged::Operations {
                capacity: one_link(tenant).then(|| Capacity::of(&plan.profile, tenant)),
            },
            None => Judged::Rate(Capacity::of(&plan.profile, tenant)),
        };
        let weights = honours_weights(&plan.policies[policy].name);
        let part = part(tenant, tenant, &others, weights);
        (judged, plan.predicate.with_part(part))
    }

    fn solo(&self, policy: usize, victim: usize) -> Solo {
        let runs = self.seeds(policy, victim, None);
        Solo {
            policy: self.plan.policies[policy].name.clone(),
            victim: self.plan.victims[victim].info.name.clone(),
            settling: runs.as_ref().and_then(|runs| settling(runs)),
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
            settling: None,
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
        let (judged, predicate) = self.rule(policy, victim, attacker);
        let weights = honours_weights(&cell.policy);
        cell.figures = Some(figures(tenant, &others, weights, &alone, &attacked));
        let expected = match predicate.expected(judged, &solo, &got) {
            Ok(expected) => expected,
            Err(reason) => {
                cell.why = reason;
                return Some(cell);
            }
        };
        let judgement = judge(&expected, &got);
        let keeps = |run: &&Outcome| {
            let expected = predicate.expected(judged, &solo, &run.victim);
            expected.is_ok_and(|expected| judge(&expected, &run.victim).kept)
        };
        cell.settling = settling(&attacked);
        cell.verdict = match is_known(&alone, &attacked, keeps, judgement.kept) {
            false => Verdict::NotSettled,
            true if judgement.kept => Verdict::Pass,
            true => Verdict::Violation,
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
        let keep = attacked.iter().filter(|run| keeps(run)).count();
        let disagree = keep > 0 && keep < attacked.len();
        let windows = cell.settling.map_or(0, |settling| settling.on_the_edge);
        cell.borderline = disagree || windows > 0;
        cell.why = why(&expected, &judgement, cell.exhausted.as_ref());
        if let Some(settling) = &cell.settling {
            note_settling(&mut cell.why, cell.verdict, &expected, settling, plan.cap);
        }
        if let Some(few) = got.operations.filter(|&count| count < OPERATIONS_MIN) {
            let _ = write!(
                cell.why,
                "; a coarse rate: {few} operations ended under attack"
            );
        }
        if disagree {
            let _ = write!(
                cell.why,
                "; on the edge: {keep} of {} keep isolation",
                counted(attacked.len() as u64, "seed")
            );
        } else if windows > 0 {
            let _ = write!(
                cell.why,
                "; on the edge: parts of {windows} of {} runs lie on either side of it",
                attacked.len()
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

/// How the victim's runs settled, over the seeds.
fn settling(runs: &[&Outcome]) -> Option<Settling> {
    let all: Option<Vec<Settling>> = runs.iter().map(|run| run.settling).collect();
    let both =
        |left: Option<f64>, right: Option<f64>, of: fn(f64, f64) -> f64| Some(of(left?, right?));
    all?.into_iter().reduce(|sum, one| Settling {
        settled: sum.settled + one.settled,
        on_the_edge: sum.on_the_edge + one.on_the_edge,
        settled_after_us: sum.settled_after_us.max(one.settled_after_us),
        measured_us: sum.measured_us.max(one.measured_us),
        samples: sum.samples.min(one.samples),
        p99_low_us: both(sum.p99_low_us, one.p99_low_us, f64::min),
        p99_high_us: both(sum.p99_high_us, one.p99_high_us, f64::max),
    })
}

/// Whether the verdict `kept` of the median is known: the runs of more than half of the seeds settled and say so, or all
/// settled. The victim alone has to have settled for more than half of the seeds.
fn is_known(
    alone: &[&Outcome],
    attacked: &[&Outcome],
    keeps: impl Fn(&&Outcome) -> bool,
    kept: bool,
) -> bool {
    let settled = |run: &&&Outcome| run.settling.is_none_or(|one| one.settled > 0);
    let most = |count: usize, of: usize| 2 * count > of;
    let agree = attacked
        .iter()
        .filter(settled)
        .filter(|run| keeps(run) == kept);
    most(alone.iter().filter(settled).count(), alone.len())
        && (most(agree.count(), attacked.len()) || attacked.iter().all(|run| settled(&run)))
}

/// Adds to `why` what limits the verdict: a run that did not settle, or a percentile of few samples and its bounds.
fn note_settling(
    why: &mut String,
    verdict: Verdict,
    expected: &Expected,
    settling: &Settling,
    cap: Option<Duration>,
) {
    if verdict == Verdict::NotSettled {
        let cap = cap.map_or(0.0, |cap| cap.as_us_f64() / 1e3);
        *why = format!("not settled within {cap:.0} ms of simulated time; {why}");
    }
    if expected.metric == JudgedMetric::P99Us && settling.samples < SAMPLES {
        let bound = |name: &str, us: Option<f64>| {
            us.map(|us| format!(" {name} {}", with_unit(JudgedMetric::P99Us, us)))
        };
        let bounds = [
            bound("at least", settling.p99_low_us),
            bound("at most", settling.p99_high_us),
        ];
        let bounds: Vec<String> = bounds.into_iter().flatten().collect();
        let _ = write!(why, "; {} messages: p99 is", settling.samples);
        match bounds.is_empty() {
            true => why.push_str(" not bounded"),
            false => {
                let _ = write!(why, "{} with 99 %", bounds.join(" and"));
            }
        }
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
    let mean = |part: &[f64]| round(part.iter().sum::<f64>() / part.len() as f64);
    let (from, to) = (alone.sample_us, attacked.sample_us);
    let points = attacked.victim_gbps.len();
    Series {
        seed,
        sample_us: attacked.sample_us,
        solo_goodput_gbps: fitted(&alone.victim_gbps, [from, to], points, mean),
        victim_goodput_gbps: attacked.victim_gbps.clone(),
        attacker_goodput_gbps: attacked.attacker_gbps.clone(),
        solo_p99_us: if_latency(&fitted(&alone.victim_p99_us, [from, to], points, largest)),
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

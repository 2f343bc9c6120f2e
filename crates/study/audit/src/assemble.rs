//! From outcomes to verdicts: the predicate applied to medians over the seeds, and the exhausted resource.
//!
//! Only cells whose every seed is done are judged; an interrupted audit simply has fewer cells.

use crate::cell::{Cell, CellFigures, Expected, Series, Solo, Verdict, Victim, VictimKind};
use crate::exhaustion::{Pressure, exhausted};
use crate::figures::jain;
use crate::matrix::{AUDIT_VERSION, AuditResult, Progress};
use crate::outcome::{Detail, Outcome, fitted, largest, round};
use crate::plan::{Plan, Run, TENANTS};
use crate::predicate::{Capacity, Judged, OPERATIONS_MIN, Part, Predicate, judge};
use crate::seeds::{is_known, medians, seed_runs, settling, spread};
use crate::summary::summary;
use crate::why::{note_settling, why};
use isolane_common_quantities::settle::{Demand, Figure, Limit};
use isolane_common_quantities::stats::summary::median;
use isolane_common_text_output::counted;
use isolane_rdma_scenario::model::{Tenant, Traffic};
use isolane_rdma_scenario::stack::honours_weights;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The result of `plan` as far as `outcomes` reach.
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

/// What has to be known of the victim when `run` ends. For a run of the victim alone: its figures. For a run under
/// attack: whether the victim gets what it is owed. `outcomes` has the victim alone.
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

    /// What has to be known of a victim alone: its latency or its rates. A rate above the victim's part of the NIC need
    /// not be known, since the victim is owed no more than its part.
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
        let mut cell =
            Cell::not_applicable([&plan.policies[policy].name, &v.info.name, &a.info.name]);
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
        let few = got.operations.filter(|&count| count < OPERATIONS_MIN);
        note_edges(&mut cell.why, few, keep, windows, attacked.len());
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

/// Adds what makes a verdict uncertain: few operations, seeds that disagree (`keep` of `runs` keep isolation), `windows` on
/// the edge.
fn note_edges(why: &mut String, few: Option<u64>, keep: usize, windows: u32, runs: usize) {
    if let Some(few) = few {
        let _ = write!(why, "; a coarse rate: {few} operations ended under attack");
    }
    if keep > 0 && keep < runs {
        let _ = write!(
            why,
            "; borderline: {keep} of {} keep isolation",
            counted(runs as u64, "seed")
        );
    } else if windows > 0 {
        let _ = write!(
            why,
            "; borderline: {windows} of {runs} runs are too near the limit to decide"
        );
    }
}

//! Cross-validation: each claim is predicted with parameters that were fitted to other claims.
//!
//! Problem: most claims are in-sample, because parameters were set with their outcomes known. What a model is worth shows when
//! it predicts a claim that took no part in the fit.
//! Method: a [`Family`] is the claims whose runs are all on one device; free are the parameters that its profile marks
//! `calibrated`, except those that `isolane rdma calibrate` measures on the simulated device. Settings of all free parameters are
//! drawn from half to twice the shipped value, evenly in the logarithm, and every claim runs under each setting. To predict a claim,
//! the setting is taken with the least misfit of the others; [`LeaveOut`] says which claims are left out together. The shipped
//! setting takes no part, because it was fitted to all of them.
//! The misfit is the mean squared logarithm of ours / published; a bound counts while it is broken, and a comparison that does
//! not hold counts as a factor of two.
//! Units: those of the claims. Draws are a Kronecker sequence, so equal calls give equal bytes.
//! The fit looks at the first seed of a claim: more settings say more than more seeds of one. Whether the claim holds is
//! judged by all of its seeds.
//! Limits: draws find a worse fit than a descent does, so compare the rate with [`CrossRates::fitted`],
//! the best draw for all claims. Mechanisms were chosen with outcomes known, and parameters that are not marked keep their values.
//! Claims over several devices belong to no family.

use crate::audit::ClaimAudit;
use crate::claim::{Claim, ClaimKind, ClaimRun, ClaimTestbed};
use crate::device::DeviceChanges;
use crate::expression::Value;
use crate::plan::{self, ScenarioFiles};
use crate::report::{ClaimReport, Relation};
use crate::verdict::Published;
use crate::world::World;
use isolane_common_text_output::Table;
use isolane_common_toml_input::sourced::{Parameter, SourceKind, Sourced};
use isolane_ethernet_scenario::profile::{NIC_PARAMETERS, NicProfile};
use isolane_rdma_scenario::catalogue::Column;
use isolane_rdma_scenario::profile::{MICROARCHITECTURE, PARAMETERS, Profile};
use serde::Serialize;
use std::cell::{Cell, OnceCell};
use std::collections::{BTreeMap, BTreeSet};

/// A parameter that was fitted, by its path in [`DeviceChanges`].
#[derive(Clone, Debug)]
struct Free {
    path: String,
    shipped: f64,
    known: &'static Parameter,
}

/// A device and what was fitted of it.
#[derive(Clone, Debug)]
pub struct Family {
    device: String,
    kind: Kind,
    free: Vec<Free>,
}

/// Which runs are on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Scenarios that name the profile.
    Rnic,
    /// Studies of the network card.
    Nic,
}

impl Family {
    /// Of an RDMA NIC.
    pub fn of_rnic(profile: &Profile) -> Self {
        let known = PARAMETERS.iter().chain(MICROARCHITECTURE);
        let known = known.filter(|known| !MEASURED.contains(&known.section));
        Self {
            device: profile.name.clone(),
            kind: Kind::Rnic,
            free: fitted(known, |section| profile.section(section)),
        }
    }

    /// Of an Ethernet NIC and its host.
    pub fn of_nic(profile: &NicProfile) -> Self {
        Self {
            device: profile.name.clone(),
            kind: Kind::Nic,
            free: fitted(NIC_PARAMETERS, |section| profile.sections.get(section)),
        }
    }

    /// Whether `claim` is judged, and all its runs are on the device.
    fn has(&self, claim: &Claim, files: &ScenarioFiles<'_>) -> bool {
        let kind = matches!(claim.kind, ClaimKind::Calibration | ClaimKind::Prediction);
        kind && claim.testbed == ClaimTestbed::Simulated
            && claim.published != Published::Withheld
            && !(claim.runs.is_empty() && claim.audits.is_empty())
            && claim.runs.iter().all(|run| self.has_run(run, files))
            && claim.audits.iter().all(|audit| self.has_audit(audit))
    }

    /// The claims on the device, those with audits last.
    fn members(&self, claims: &[&Claim], files: &ScenarioFiles<'_>) -> Vec<Claim> {
        let of_family = claims.iter().filter(|claim| self.has(claim, files));
        let mut members: Vec<Claim> = of_family.map(|claim| (*claim).clone()).collect();
        members.sort_by_key(|claim| !claim.audits.is_empty());
        members
    }

    fn has_audit(&self, audit: &ClaimAudit) -> bool {
        self.kind == Kind::Rnic && audit.profile == self.device
    }

    fn has_run(&self, run: &ClaimRun, files: &ScenarioFiles<'_>) -> bool {
        match self.kind {
            Kind::Nic => run.nic.is_some(),
            Kind::Rnic if run.nic.is_some() => false,
            Kind::Rnic => plan::run_text(run, 1, files)
                .ok()
                .and_then(|text| text.parse::<toml::Table>().ok())
                .is_some_and(|table| {
                    let profile = table.get("profile").and_then(toml::Value::as_str);
                    profile == Some(self.device.as_str())
                }),
        }
    }

    /// The setting of number `draw`.
    fn setting(&self, draw: usize) -> DeviceChanges {
        assert!(self.free.len() <= PRIMES.len(), "a step for each parameter");
        let values = self.free.iter().zip(PRIMES).map(|(free, prime)| {
            let place = ((draw + 1) as f64 * f64::from(prime).sqrt()).fract();
            (free.path.clone(), free.value(2.0 * place - 1.0))
        });
        values.collect()
    }
}

/// The members of `known` that were fitted, in a profile with these sections.
fn fitted<'a>(
    known: impl IntoIterator<Item = &'static Parameter>,
    section: impl Fn(&str) -> Option<&'a BTreeMap<String, Sourced>>,
) -> Vec<Free> {
    let free = known.into_iter().filter_map(|known| {
        let sourced = section(known.section)?.get(known.name)?;
        let fitted = sourced.kind == SourceKind::Calibrated;
        fitted.then(|| Free::new(known, sourced.value))
    });
    free.collect()
}

impl Free {
    fn new(known: &'static Parameter, shipped: f64) -> Self {
        Self {
            path: format!("{}.{}", known.section, known.name),
            shipped,
            known,
        }
    }

    /// The shipped value times two to the power of `exponent`, within the parameter's range; whole unless it is a time or a rate.
    fn value(&self, exponent: f64) -> f64 {
        let name = self.known.name;
        let whole = !(name.ends_with("_ns") || name.ends_with("_us") || name.ends_with("_gbps"));
        let value = self.shipped * exponent.exp2();
        let value = if whole { value.round() } else { value };
        value.clamp(self.known.min, self.known.max)
    }
}

impl LeaveOut {
    fn together(self, one: &Claim, other: &Claim) -> bool {
        match self {
            Self::Runs => same_runs(one, other),
            Self::Configuration => same_configuration(one, other),
        }
    }
}

/// How many claims of a device hold, and by which parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CrossRates {
    /// The device's profile.
    pub device: String,
    /// Parameters that were fitted.
    pub free: usize,
    /// Claims on it.
    pub claims: usize,
    /// Of these, how many hold with the shipped values.
    pub shipped: usize,
    /// With the best setting drawn, by all claims: in-sample.
    pub fitted: usize,
    /// Each with the setting that is best by the others: out-of-sample.
    pub left_out: usize,
    /// The claims that miss with that setting.
    pub left_out_missed: Vec<String>,
}

/// Which claims take no part in the fit that predicts a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaveOut {
    /// Those that measure the same runs.
    Runs,
    /// Those with a run of the same configuration: one that studies of network cards name, or a scenario, with any changes of it; of
    /// audits, those that share a column of attackers, under any policy.
    Configuration,
}

/// How to cross-validate.
#[derive(Clone, Copy, Debug)]
pub struct CrossOptions {
    /// Settings that are drawn for each family.
    pub draws: usize,
    /// What is left out with a claim.
    pub leave_out: LeaveOut,
}

/// Cross-validates each of `families` that has fitted parameters and two claims at least; `progress` is called with
/// (done, all) settings of all families.
pub fn check(
    families: &[Family],
    claims: &[&Claim],
    files: &ScenarioFiles<'_>,
    world: &dyn World,
    CrossOptions { draws, leave_out }: CrossOptions,
    progress: &dyn Fn(usize, usize),
) -> Vec<CrossRates> {
    let members: Vec<(&Family, Vec<Claim>)> = families
        .iter()
        .map(|family| (family, family.members(claims, files)))
        .filter(|(family, members)| !family.free.is_empty() && members.len() > 1)
        .collect();
    let all = members.len() * (draws + 1);
    let done = Cell::new(0);
    let run = |members: &[Claim], setting: &DeviceChanges| {
        progress(done.get().min(all), all);
        outcomes(members, setting, files, world)
    };
    members
        .iter()
        .map(|(family, members)| {
            let shipped = run(members, &DeviceChanges::default());
            done.set(done.get() + 1);
            let audits = members.partition_point(|claim| claim.audits.is_empty());
            let first: Vec<Claim> = members.iter().map(first_seed).collect();
            let (quick, audits) = first.split_at(audits);
            let drawn = (0..draws).map(|draw| {
                let setting = family.setting(draw);
                let quick = run(quick, &setting);
                done.set(done.get() + 1);
                Drawn {
                    quick,
                    audited: OnceCell::new(),
                    judged: OnceCell::new(),
                    setting,
                }
            });
            let fit = Fit {
                drawn: drawn.collect(),
                audits,
                members,
                run: &run,
            };
            let count = members.len();
            let fitted = fit.best(&vec![true; count]);
            let misses = |claim: &usize| {
                let apart = |other| !leave_out.together(&members[*claim], &members[other]);
                let takes_part: Vec<bool> = (0..count).map(apart).collect();
                let chosen = fit.best(&takes_part);
                !chosen.is_some_and(|at| fit.holds(at, *claim))
            };
            let missed = (0..count).filter(misses);
            let left_out_missed: Vec<String> =
                missed.map(|claim| members[claim].id.clone()).collect();
            CrossRates {
                device: family.device.clone(),
                free: family.free.len(),
                claims: count,
                shipped: shipped.iter().filter(|outcome| outcome.holds).count(),
                fitted: (0..count)
                    .filter(|claim| fitted.is_some_and(|at| fit.holds(at, *claim)))
                    .count(),
                left_out: count - left_out_missed.len(),
                left_out_missed,
            }
        })
        .collect()
}

/// One setting: the outcomes of claims without audits, which come first, and what is run only once it is needed.
struct Drawn {
    setting: DeviceChanges,
    quick: Vec<Outcome>,
    audited: OnceCell<Vec<Outcome>>,
    /// Of the claims with several seeds, whether they hold, in order.
    judged: OnceCell<Vec<Outcome>>,
}

/// How claims are run with a setting.
type RunClaims<'a> = &'a dyn Fn(&[Claim], &DeviceChanges) -> Vec<Outcome>;

/// All settings. An audit takes a hundred times as long as a run, so the audits of a setting run only if it may be the best.
struct Fit<'a> {
    drawn: Vec<Drawn>,
    /// The claims with audits, with their first seeds.
    audits: &'a [Claim],
    /// All claims with all seeds.
    members: &'a [Claim],
    run: RunClaims<'a>,
}

impl Fit<'_> {
    fn audited(&self, at: usize) -> &[Outcome] {
        let drawn = &self.drawn[at];
        drawn
            .audited
            .get_or_init(|| (self.run)(self.audits, &drawn.setting))
    }

    fn judged(&self, at: usize) -> &[Outcome] {
        let drawn = &self.drawn[at];
        drawn.judged.get_or_init(|| {
            let several = self.members.iter();
            let several: Vec<Claim> = several
                .filter(|claim| has_several_seeds(claim))
                .cloned()
                .collect();
            (self.run)(&several, &drawn.setting)
        })
    }

    /// Whether a claim holds by all of its seeds.
    fn holds(&self, at: usize, claim: usize) -> bool {
        if has_several_seeds(&self.members[claim]) {
            let earlier = self.members[..claim].iter();
            let place = earlier.filter(|claim| has_several_seeds(claim)).count();
            return self.judged(at)[place].holds;
        }
        let quick = &self.drawn[at].quick;
        match quick.get(claim) {
            Some(outcome) => outcome.holds,
            None => self.audited(at)[claim - quick.len()].holds,
        }
    }

    /// The first setting with the least misfit of the claims that take part; none where none does, or none was drawn.
    fn best(&self, takes_part: &[bool]) -> Option<usize> {
        let (quick, audits) = takes_part.split_at(self.drawn.first()?.quick.len());
        if !takes_part.contains(&true) {
            return None;
        }
        let drawn = self.drawn.iter().enumerate();
        let mut order: Vec<(f64, usize)> = drawn
            .map(|(at, drawn)| (misfits(&drawn.quick, quick), at))
            .collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut least: Option<(f64, usize)> = None;
        for (sum, at) in order {
            if least.is_some_and(|(least, _)| sum > least) {
                break;
            }
            let sum = match audits.contains(&true) {
                true => sum + misfits(self.audited(at), audits),
                false => sum,
            };
            if least.is_none_or(|least| (sum, at) < least) {
                least = Some((sum, at));
            }
        }
        least.map(|(_, at)| at)
    }
}

/// The sum over those that take part.
fn misfits(outcomes: &[Outcome], takes_part: &[bool]) -> f64 {
    let parts = outcomes.iter().zip(takes_part).filter(|(_, part)| **part);
    parts.map(|(outcome, _)| outcome.misfit).sum()
}

/// One claim under one setting.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Outcome {
    holds: bool,
    misfit: f64,
}

fn first_seed(claim: &Claim) -> Claim {
    let mut first = claim.clone();
    first.seeds.truncate(1);
    first
}

fn has_several_seeds(claim: &Claim) -> bool {
    claim.seeds.len() > 1
}

/// The claims under `setting`; what a claim itself changes of the device stays.
fn outcomes(
    claims: &[Claim],
    setting: &DeviceChanges,
    files: &ScenarioFiles<'_>,
    world: &dyn World,
) -> Vec<Outcome> {
    let changed: Vec<Claim> = claims
        .iter()
        .map(|claim| {
            let mut claim = claim.clone();
            for run in &mut claim.runs {
                let own = std::mem::replace(&mut run.device, setting.clone());
                run.device.merge(&own);
            }
            for audit in &mut claim.audits {
                let own = std::mem::replace(&mut audit.device, setting.clone());
                audit.device.merge(&own);
            }
            claim
        })
        .collect();
    let changed: Vec<&Claim> = changed.iter().collect();
    let reports = plan::check(&changed, files, world, &|_, _| ());
    let outcome = |report: &ClaimReport| Outcome {
        holds: report.within == Some(true),
        misfit: misfit(report),
    };
    reports.iter().map(outcome).collect()
}

/// Whether two claims measure the same runs: one says much about the other.
fn same_runs(one: &Claim, other: &Claim) -> bool {
    let part = |claim: &Claim, of: &Claim| {
        let among = |run: &ClaimRun| {
            of.runs.iter().any(|known| {
                ClaimRun {
                    label: run.label.clone(),
                    ..known.clone()
                } == *run
            })
        };
        let audited = |audit: &ClaimAudit| {
            of.audits.iter().any(|known| {
                ClaimAudit {
                    label: audit.label.clone(),
                    ..known.clone()
                } == *audit
            })
        };
        claim.runs.iter().all(among) && claim.audits.iter().all(audited)
    };
    part(one, other) || part(other, one)
}

/// Whether two claims have a run of the same configuration, or audits with a column in common.
fn same_configuration(one: &Claim, other: &Claim) -> bool {
    let is_same = |a: &ClaimRun, b: &ClaimRun| match (&a.nic, &b.nic) {
        (Some(a), Some(b)) => a.config == b.config,
        _ => a.scenario == b.scenario && a.inline == b.inline,
    };
    let mut pairs = one
        .runs
        .iter()
        .flat_map(|a| other.runs.iter().map(move |b| (a, b)));
    let columns = |claim: &Claim| -> BTreeSet<Column> {
        let audits = claim.audits.iter();
        audits.flat_map(|audit| audit.columns.clone()).collect()
    };
    pairs.any(|(a, b)| is_same(a, b)) || !columns(one).is_disjoint(&columns(other))
}

/// How wrong a claim is: the squared logarithm of ours / published, at most that of [`FACTOR_MAX`].
fn misfit(report: &ClaimReport) -> f64 {
    let most = FACTOR_MAX.ln().powi(2);
    match (report.published, report.ours) {
        (Some(Value::Number(published)), Some(Value::Number(ours))) if published > 0.0 => {
            let ratio = (ours / published).max(1.0 / FACTOR_MAX).ln();
            let ratio = match report.relation {
                Relation::AtLeast => ratio.min(0.0),
                Relation::AtMost => ratio.max(0.0),
                _ => ratio,
            };
            ratio.powi(2).min(most)
        }
        _ if report.within == Some(true) => 0.0,
        (_, Some(_)) => 2.0_f64.ln().powi(2),
        (_, None) => most,
    }
}

/// What counts most of one claim: a run that delivers nothing is as wrong as this factor.
const FACTOR_MAX: f64 = 100.0;

/// The rates as a table, and their sum.
pub fn text(rates: &[CrossRates]) -> String {
    let head = [
        "device",
        "fitted",
        "claims",
        "shipped",
        "best draw",
        "left out",
    ];
    let mut table = Table::new("lrrrrr", &head.map(str::to_owned));
    let row = |rates: &CrossRates| {
        let held = |held: usize| match rates.claims {
            0 => "none".to_owned(),
            claims => format!("{held} ({:.0} %)", 100.0 * held as f64 / claims as f64),
        };
        vec![
            rates.device.clone(),
            rates.free.to_string(),
            rates.claims.to_string(),
            held(rates.shipped),
            held(rates.fitted),
            held(rates.left_out),
        ]
    };
    for rates in rates {
        table.row(row(rates));
    }
    let sum = |of: fn(&CrossRates) -> usize| rates.iter().map(of).sum();
    table.row(row(&CrossRates {
        device: "all".to_owned(),
        free: sum(|rates| rates.free),
        claims: sum(|rates| rates.claims),
        shipped: sum(|rates| rates.shipped),
        fitted: sum(|rates| rates.fitted),
        left_out: sum(|rates| rates.left_out),
        left_out_missed: Vec::new(),
    }));
    table.render()
}

/// Sections of an RDMA NIC's profile that `isolane rdma calibrate` writes from runs of the simulated device: no published number is in
/// them.
const MEASURED: [&str; 2] = ["justitia", "harmonic"];

/// Their square roots are the steps of a Kronecker sequence, one for each parameter; no device has more that were fitted.
const PRIMES: [u16; 32] = [
    2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97,
    101, 103, 107, 109, 113, 127, 131,
];

#[cfg(test)]
mod tests;

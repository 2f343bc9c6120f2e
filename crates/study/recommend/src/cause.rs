//! Who and what is in the way of a tenant's objectives.
//!
//! Evidence is by removal: the tenant alone, then all tenants except one of the others, all with the first seed. For a
//! tenant that misses its objective alone, the device or the policy is the cause. A tenant whose removal lets the
//! objectives be met is a cause; there can be several. When no single removal is enough, all tenants together are the
//! cause, and the tenant whose removal helps most is named. The resource is the one that ran out in the run of all
//! tenants, by the counters of both NICs.
//!
//! Limits: removal of one at a time does not find pairs of attackers that hide behind each other.

use crate::needs::digits;
use crate::result::{Miss, MissCause, Objective, ObjectiveOutcome};
use isolane_study_audit::cell::{Exhausted, Metrics};
use isolane_study_audit::exhaustion::{NOT_SATURATED, Pressure, exhausted};
use isolane_study_results::rdma::RunResult;

/// The runs that explain a miss, all with the first seed.
pub(crate) struct Evidence<'a> {
    /// All tenants.
    pub(crate) together: &'a RunResult,
    /// The tenant alone under the policy.
    pub(crate) alone: &'a RunResult,
    /// The tenant alone under `none`; absent where `none` is not compared.
    pub(crate) alone_without_policy: Option<&'a RunResult>,
    /// All tenants except the named one.
    pub(crate) without: Vec<(&'a str, &'a RunResult)>,
}

/// Why `tenant` misses `missed` under `policy`.
pub(crate) fn miss(
    policy: &str,
    tenant: &str,
    missed: Vec<ObjectiveOutcome>,
    evidence: &Evidence<'_>,
) -> Miss {
    let meets = |run: &RunResult| {
        missed
            .iter()
            .all(|one| objective(one).met(got(run, tenant, one)))
    };
    let restores: Vec<&str> = evidence
        .without
        .iter()
        .filter(|(_, run)| meets(run))
        .map(|(name, _)| *name)
        .collect();
    let (cause, attackers) = match () {
        () if !meets(evidence.alone) => match evidence.alone_without_policy {
            Some(run) if meets(run) => (MissCause::Policy, Vec::new()),
            _ => (MissCause::Device, Vec::new()),
        },
        () if !restores.is_empty() => (MissCause::Tenants, restores),
        () => (MissCause::Together, helps_most(tenant, &missed, evidence)),
    };
    let pressure = |run: &RunResult| Pressure::from(run.counters.as_slice());
    let exhausted = match cause {
        MissCause::Policy | MissCause::Device => None,
        MissCause::Tenants | MissCause::Together => exhausted(
            &pressure(evidence.alone),
            &pressure(evidence.together),
            true,
        ),
    };
    let mut miss = Miss {
        tenant: tenant.to_owned(),
        objectives: missed,
        cause,
        attackers: attackers.into_iter().map(str::to_owned).collect(),
        exhausted,
        words: String::new(),
    };
    miss.words = words(policy, &miss, evidence);
    miss
}

fn objective(outcome: &ObjectiveOutcome) -> Objective {
    Objective {
        kind: outcome.kind,
        target: outcome.target,
    }
}

fn got(run: &RunResult, tenant: &str, one: &ObjectiveOutcome) -> Option<f64> {
    one.kind.of(&Metrics::from(run.tenant(tenant)?))
}

/// How far `value` is from the objective: 1 meets it, 0 is nothing.
fn progress(one: &ObjectiveOutcome, value: Option<f64>) -> f64 {
    match (one.kind.is_latency(), value) {
        (_, None) => 0.0,
        (true, Some(value)) if value > 0.0 => (one.target / value).min(1.0),
        (true, Some(_)) => 0.0,
        (false, Some(value)) => (value / one.target).min(1.0),
    }
}

/// The tenant whose removal brings the worst objective nearest to its target; none where no removal helps.
fn helps_most<'a>(
    tenant: &str,
    missed: &[ObjectiveOutcome],
    evidence: &Evidence<'a>,
) -> Vec<&'a str> {
    let worst = |run: &RunResult| {
        let each = missed
            .iter()
            .map(|one| progress(one, got(run, tenant, one)));
        each.fold(1.0, f64::min)
    };
    let mut best = (worst(evidence.together) * HELP_MIN, None);
    for (name, run) in &evidence.without {
        let reached = worst(run);
        if reached > best.0 {
            best = (reached, Some(*name));
        }
    }
    best.1.into_iter().collect()
}

/// A tenant's leaving helps when the worst objective comes nearer by a tenth: less is what any queue gains.
const HELP_MIN: f64 = 1.1;

fn words(policy: &str, miss: &Miss, evidence: &Evidence<'_>) -> String {
    let needs: Vec<String> = miss
        .objectives
        .iter()
        .map(|one| {
            let objective = objective(one);
            let got = one.kind.words(one.measured);
            let far = match one.measured.filter(|&value| value > 0.0) {
                Some(value) if one.kind.is_latency() => {
                    format!(", {} times", digits(value / one.target))
                }
                _ => String::new(),
            };
            format!("{}, got {got}{far}", objective.words())
        })
        .collect();
    let needs = needs.join("; ");
    let tenant = &miss.tenant;
    let alone: Vec<String> = miss
        .objectives
        .iter()
        .map(|one| one.kind.words(got(evidence.alone, tenant, one)))
        .collect();
    let alone = alone.join(", ");
    let resource = miss.exhausted.as_ref().map_or_else(String::new, resource);
    match miss.cause {
        MissCause::Device => format!(
            "{tenant} ({needs}) gets only {alone} even when it is alone: this device or this workload cannot meet it"
        ),
        MissCause::Policy => format!(
            "{tenant} ({needs}) gets only {alone} when it is alone: {policy} itself costs more than the need leaves"
        ),
        MissCause::Tenants => format!(
            "does not protect {tenant} ({needs}) from {}{resource}",
            miss.attackers.join(", nor from ")
        ),
        MissCause::Together => {
            let most = match miss.attackers.first() {
                Some(name) => format!(", {name} most"),
                None => String::new(),
            };
            format!("does not protect {tenant} ({needs}) from the others together{most}{resource}")
        }
    }
}

fn resource(exhausted: &Exhausted) -> String {
    let stop = match exhausted.resource.starts_with(NOT_SATURATED) {
        true => ";",
        false => ":",
    };
    format!("{stop} {}", exhausted.evidence)
}

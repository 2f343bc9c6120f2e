//! The two runs behind an explanation: the victim alone, and with the attacker from a third of the run on.
//!
//! Both are recorded. The first third of the second run is like the first run; the rest, without the time that the
//! attacker needs to fill caches and queues, is compared with the first run's. How long that takes and how long has to be
//! measured is found out first, by a run of the pair that goes on until the victim has settled, as in an audit.

use crate::{ExplainError, Subject};
use isolane_common_quantities::settle::Demand;
use isolane_common_quantities::units::Duration;
use isolane_rdma_scenario::model::{PolicySpec, Scenario};
use isolane_rdma_scenario::profile::Profile;
use isolane_rdma_simulator::rnic::run_traced;
use isolane_rdma_simulator::rnic::trace::{Trace, TraceOptions};
use isolane_study_audit::cell::VictimKind;
use isolane_study_audit::plan::{LEAST, WARMUP};
use isolane_study_audit::settled;
use isolane_study_results::rdma::RunResult;
use isolane_study_testbed_simulator::SimTestbed;

/// Least measured time where no option gives one: 1 ms alone and 2 ms under attack.
pub const DURATION: Duration = Duration::from_ms(3);
/// Points of every series: 20 before the attack and 40 after, wide enough for hundreds of messages each.
pub const POINTS: u64 = 60;

/// How to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The policy.
    pub policy: PolicySpec,
    /// Run seed.
    pub seed: u64,
    /// Measured time.
    pub duration: Duration,
    /// Time before measuring starts.
    pub warmup: Duration,
    /// Simulated time within which the pair has to settle; without it the times are fixed.
    pub cap: Option<Duration>,
}

/// One recorded run.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// What `isolane sim` would print.
    pub result: RunResult,
    /// Who waited for whom.
    pub trace: Trace,
}

/// Both runs.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The victim alone.
    pub alone: Recorded,
    /// The victim and its attackers.
    pub attacked: Recorded,
    /// When the attackers start, since measuring started.
    pub attack: Duration,
    /// Points of the series that count as under attack.
    pub window: (usize, usize),
    /// Measured time of each.
    pub duration: Duration,
    /// False when the pair did not settle within the cap.
    pub settled: bool,
}

struct Settled {
    settled: bool,
    /// From the start of all tenants until nothing depends on it any more.
    after: Duration,
    measured: Duration,
}

/// Runs the victim and its attackers from the same start until the victim has settled.
fn settle(
    subject: &Subject,
    profile: &Profile,
    settings: &Settings,
    cap: Duration,
) -> Result<Settled, ExplainError> {
    let mut tenants = vec![subject.victim.clone()];
    tenants.extend(subject.attackers.iter().cloned());
    let name = format!(
        "explain/{}/{}/settle",
        subject.victim.name, subject.attacker
    );
    let scenario = Scenario {
        topology: subject.topology,
        warmup: WARMUP,
        seed: settings.seed,
        sample_interval: LEAST / POINTS,
        policy: settings.policy.clone(),
        ..Scenario::plain(name, &profile.name, LEAST, tenants)
    };
    let scenario = settled::prepared(&scenario, profile, 1);
    let mut demands = vec![Demand::Nothing; scenario.tenants.len()];
    demands[0] = match subject.kind {
        VictimKind::Latency => Demand::Latency,
        VictimKind::Rate | VictimKind::Application => Demand::Rates,
    };
    let result = settled::run(&SimTestbed, &scenario, profile, (1, cap), &demands)?;
    let us = |us: f64| Duration::from_ns_f64(us * 1e3);
    Ok(match result.settling {
        Some(settling) => Settled {
            settled: settling.settled,
            after: us(settling.settled_after_us),
            measured: us(settling.measured_us),
        },
        None => Settled {
            settled: true,
            after: scenario.warmup,
            measured: scenario.duration,
        },
    })
}

/// Runs `subject` alone and under attack. Fails if the simulator refuses the policy.
pub fn measure(
    subject: &Subject,
    profile: &Profile,
    settings: &Settings,
) -> Result<Measured, ExplainError> {
    let settled = match settings.cap {
        Some(cap) => Some(settle(subject, profile, settings, cap)?),
        None => None,
    };
    let settle = settled.as_ref().map_or(WARMUP, |one| one.after);
    let mut settings = settings.clone();
    if let Some(one) = &settled {
        // A third of the run is the victim alone.
        let attack = one.after + one.measured;
        settings.duration = settings.duration.max(attack + attack / 2);
    }
    let bucket = (settings.duration / POINTS).max(Duration::from_us(1));
    // The rest of a division would be a point of its own, in which nothing is delivered.
    let points = (settings.duration.as_ps() / bucket.as_ps()).max(1);
    settings.duration = bucket * points;
    let settings = &settings;
    let first = points / 3;
    let attack = bucket * first;
    let mut scenario = Scenario {
        name: format!("explain/{}/alone", subject.victim.name),
        description: String::new(),
        profile: profile.name.clone(),
        topology: subject.topology,
        network: None,
        warmup: settings.warmup,
        duration: settings.duration,
        seed: settings.seed,
        sample_interval: bucket,
        policy: settings.policy.clone(),
        tenants: vec![subject.victim.clone()],
    };
    let options = TraceOptions { victim: 0, bucket };
    let run = |scenario: &Scenario| -> Result<Recorded, ExplainError> {
        let (result, trace) = run_traced(scenario, profile, options)?;
        Ok(Recorded { result, trace })
    };
    let alone = run(&scenario)?;
    scenario.name = format!("explain/{}/{}", subject.victim.name, subject.attacker);
    for attacker in &subject.attackers {
        let mut tenant = attacker.clone();
        tenant.start = tenant.start.max(settings.warmup + attack);
        scenario.tenants.push(tenant);
    }
    let attacked = run(&scenario)?;
    // Short runs spend at most half of the attack on what fills.
    let settle = (settle.as_ps().div_ceil(bucket.as_ps())).min((points - first) / 2);
    let window = ((first + settle) as usize, points as usize);
    Ok(Measured {
        settled: settled.is_none_or(|one| one.settled),
        duration: settings.duration,
        alone,
        attacked,
        attack,
        window,
    })
}

//! The two runs behind an explanation: the victim alone, and with the attacker from a third of the run on.
//!
//! Both are recorded. The first third of the second run is like the first run; the rest, without the time that the
//! attacker needs to fill caches and queues, is compared with the first run's.

use crate::{ExplainError, Subject};
use isolane_audit::plan::WARMUP;
use isolane_core::units::Duration;
use isolane_scenario::measure::RunResult;
use isolane_scenario::model::{PolicySpec, Scenario};
use isolane_scenario::profile::Profile;
use isolane_sim::rnic::run_traced;
use isolane_sim::rnic::trace::{Trace, TraceOptions};

/// Measured time unless asked for otherwise: 1 ms alone and 2 ms under attack, as long as two cells of the audit.
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
}

/// Runs `subject` alone and under attack.
///
/// # Errors
/// When the simulator refuses the policy.
pub fn measure(
    subject: &Subject,
    profile: &Profile,
    settings: &Settings,
) -> Result<Measured, ExplainError> {
    let bucket = (settings.duration / POINTS).max(Duration::from_us(1));
    let points = settings.duration.as_ps().div_ceil(bucket.as_ps()).max(1);
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
    // Caches and queues fill within the audit's warm-up; short runs spend at most half of the attack on it.
    let settle = (WARMUP.as_ps().div_ceil(bucket.as_ps())).min((points - first) / 2);
    let window = ((first + settle) as usize, points as usize);
    Ok(Measured {
        alone,
        attacked,
        attack,
        window,
    })
}

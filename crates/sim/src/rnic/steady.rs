//! Runs that measure once everything has begun, and go on until what they measured is steady.
//!
//! Problem: a run of fixed length is too short for thousands of queue pairs, whose contexts have to meet the caches, and far
//! too long for the same pairs where they meet them soon. Method: the warm-up ends a while after every queue pair has had
//! as many requests done as it posts at once at the start, or after so many events that all have met the caches
//! (eight million), at the latest when the scenario's is over. Then the run is measured for the scenario's duration; where
//! the caller does not find the result steady, it goes on and is measured again for twice as long, without a new beginning.
//!
//! Units: picoseconds. Limits: how far pairs are is looked up every 20 us; where one process posts for hundreds of pairs its
//! requests come in waves, long after the first burst is done, which `steady` has to notice; timers of policies end with
//! the first measured time, and operations of applications are counted from the start, so neither is run here ([`takes`]).
//! Source: ours.

use super::meter::Meter;
use super::policies::SimError;
use super::queue_pair::QueuePair;
use super::world::{Event, World};
use isolane_core::units::{Duration, Instant};
use isolane_scenario::measure::RunResult;
use isolane_scenario::model::{Scenario, Traffic};
use isolane_scenario::profile::Profile;

/// Time between two looks at how far the pairs are.
const LOOK: Duration = Duration::from_us(20);
/// Events after which a warm-up is over: some forty packets for each of 20,000 pairs in both directions, which one core
/// simulates in about a second.
const EVENTS_MAX: u64 = 8_000_000;
/// Later than any run ends.
const NEVER: Duration = Duration::from_ms(3_600_000);

/// How long a run may take to become steady.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// From the moment at which what was posted at the start is done until measuring begins.
    pub settle: Duration,
    /// How often a run that was not steady is measured again, twice as long each time.
    pub extensions: u32,
}

/// Whether [`run_steady`] can run `scenario`: without a policy, data and control verbs only.
pub fn takes(scenario: &Scenario) -> bool {
    let mut workloads = scenario.tenants.iter().flat_map(|tenant| &tenant.workloads);
    scenario.policy.name == "none"
        && scenario.network.is_none()
        && workloads.all(|workload| !matches!(workload.traffic, Traffic::Application(_)))
}

/// Runs `scenario` on the device `profile` describes until `steady` says so of the result, or patience ends. The scenario's
/// warm-up is the longest there may be.
///
/// # Errors
/// As [`super::run`].
///
/// # Panics
/// When it does not take the scenario ([`takes`]): our own mistake.
pub fn run_steady(
    scenario: &Scenario,
    profile: &Profile,
    patience: &Patience,
    steady: &dyn Fn(&RunResult) -> bool,
) -> Result<RunResult, SimError> {
    assert!(takes(scenario), "a run with a policy or an application");
    let mut measured = scenario.clone();
    measured.warmup = NEVER;
    let mut world = World::build(&measured, profile)?;
    measured.warmup = world.warm_up(scenario.warmup, patience.settle);
    let mut extensions = patience.extensions;
    loop {
        world.measure(&measured);
        let result = world.result(&measured, profile);
        if extensions == 0 || steady(&result) {
            return Ok(result);
        }
        extensions -= 1;
        measured.warmup += measured.duration;
        measured.duration += measured.duration;
        measured.sample_interval += measured.sample_interval;
    }
}

impl World {
    /// Runs until what was posted at the start is done and `settle` has passed, at the latest until `latest`; how long that was.
    fn warm_up(&mut self, latest: Duration, settle: Duration) -> Duration {
        let mut at = Duration::ZERO;
        let mut due = latest;
        // Pairs below this all have.
        let mut begun = 0;
        let mut events = 0;
        while at < due {
            at = (at + LOOK).min(due);
            events += self.run_until(at);
            let is_done = |pair: &&QueuePair| {
                let plan = self.processes[pair.process as usize].plan;
                pair.acknowledged >= u64::from(self.plans[plan as usize].depth)
            };
            begun += self.pairs[begun..].iter().take_while(is_done).count();
            if begun == self.pairs.len() || self.is_long(at, events) {
                due = due.min(at + settle);
            }
        }
        at
    }

    /// Whether `events` until `at` and the looks of DCQCN's timers, which count as such, are enough of a warm-up.
    fn is_long(&mut self, at: Duration, events: u64) -> bool {
        events >= EVENTS_MAX || self.timers_looked(at.as_ps(), EVENTS_MAX - events)
    }

    /// Measures from the end of the warm-up of `scenario` for its duration, with empty meters.
    fn measure(&mut self, scenario: &Scenario) {
        self.meter = Meter::new(&vec![true; self.meter.tenants.len()]);
        for pair in &mut self.pairs {
            pair.bytes_delivered = 0;
        }
        self.sample_interval = scenario.sample_interval.as_ps().max(1);
        let end = scenario.warmup + scenario.duration;
        self.end = end.as_ps();
        self.schedule(scenario.warmup.as_ps(), Event::Measure);
        self.run_until(end);
    }

    /// Takes the events until `end`, and none behind it; how many there were.
    pub(super) fn run_until(&mut self, end: Duration) -> u64 {
        let end = Instant::ZERO + end;
        let mut events = 0;
        while let Some((now, event)) = self.queue.pop_until(end) {
            self.look_ahead();
            self.handle(now.as_ps(), event);
            events += 1;
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_scenario::library::Library;

    const PATIENCE: Patience = Patience {
        settle: Duration::from_us(100),
        extensions: 2,
    };

    fn scenario(pairs: u32, size: &str) -> (Scenario, Profile) {
        let library = Library::embedded();
        let text = format!(
            "profile = \"cx6-200g-roce\"\ntopology = \"switch\"\nwarmup = \"2ms\"\nduration = \"200us\"\n\
             sample_interval = \"5us\"\n[[tenant]]\nname = \"one\"\nclass = \"bandwidth\"\n[[tenant.traffic]]\n\
             verb = \"write\"\nsize = \"{size}\"\nqueue_pairs = {pairs}\ndepth = 16\n"
        );
        let scenario = isolane_scenario::parse(&text, "steady.toml", &library);
        let profile = library.profile("cx6-200g-roce").expect("shipped").clone();
        (scenario.expect("it is well-formed"), profile)
    }

    #[test]
    fn a_short_warm_up_measures_what_a_long_one_does() {
        let (scenario, profile) = scenario(8, "64KiB");
        let long = crate::rnic::run(&scenario, &profile).unwrap();
        let steady = run_steady(&scenario, &profile, &PATIENCE, &|_| true).unwrap();
        let (long, short) = (long.tenants[0].goodput_gbps, steady.tenants[0].goodput_gbps);
        assert!((short / long - 1.0).abs() < 0.02, "{short} {long}");
        assert_eq!(steady.measured_s, 200e-6);
        assert_eq!(steady.tenants[0].goodput_series_gbps.len(), 40);
    }

    #[test]
    fn the_warm_up_ends_when_the_first_burst_is_done_or_the_scenario_s_is_over() {
        let (long, profile) = scenario(600, "512B");
        let mut world = World::build(&long, &profile).unwrap();
        let used = world.warm_up(long.warmup, PATIENCE.settle);
        assert!(used >= PATIENCE.settle && used < long.warmup, "{used:?}");
        assert!(world.pairs.iter().all(|pair| pair.acknowledged >= 16));
        let mut world = World::build(&long, &profile).unwrap();
        let shortest = Duration::from_us(1);
        assert_eq!(world.warm_up(shortest, PATIENCE.settle), shortest);
    }

    #[test]
    fn what_is_measured_again_is_twice_as_long_and_begins_empty() {
        let (scenario, profile) = scenario(8, "64KiB");
        let once = run_steady(&scenario, &profile, &PATIENCE, &|_| true).unwrap();
        let never = run_steady(&scenario, &profile, &PATIENCE, &|_| false).unwrap();
        assert_eq!(never.measured_s, 4.0 * once.measured_s);
        assert_eq!(never.tenants[0].goodput_series_gbps.len(), 40);
        let ratio = never.tenants[0].goodput_gbps / once.tenants[0].goodput_gbps;
        assert!((ratio - 1.0).abs() < 0.01, "{ratio}");
        let again = run_steady(&scenario, &profile, &PATIENCE, &|_| false).unwrap();
        assert_eq!(never, again);
    }

    #[test]
    fn policies_are_left_to_runs_of_fixed_length() {
        let (mut scenario, _) = scenario(8, "64KiB");
        assert!(takes(&scenario));
        "justitia".clone_into(&mut scenario.policy.name);
        assert!(!takes(&scenario));
    }
}

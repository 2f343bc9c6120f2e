//! Real devices as a testbed.
//!
//! One run at a time: devices are shared, and two runs would measure each other. Sessions with the machines stay open
//! from run to run; after a failure they are closed, which ends every process of the run, and opened again.

use crate::calibrate::{self, Calibration};
use crate::conduct::{Stage, conduct};
use crate::error::VerbsError;
use crate::fleet::Fleet;
use crate::gather;
use crate::link::Reach;
use crate::policy;
use crate::target::Target;
use isolane_common_quantities::units::Duration;
use isolane_rdma_scenario::model::{Host, Scenario, Tenant};
use isolane_rdma_scenario::profile::Profile;
use isolane_study_results::rdma::RunResult;
use isolane_study_testbed::{Testbed, TestbedError};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

/// The shortest measured time by default: a worker's start and stop are apart by microseconds to milliseconds, and a
/// software device completes some ten large messages in 100 ms.
pub const MEASURED_MIN: Duration = Duration::from_secs(1);
/// The shortest warm-up: it covers the apart starts of the workers.
pub const WARMUP_MIN: Duration = Duration::from_ms(200);
/// Points of the time series when the times are changed.
const SAMPLES: u64 = 50;

/// The devices of a target.
pub struct VerbsTestbed {
    target: Target,
    name: String,
    reach: Reach,
    cancel: Arc<AtomicBool>,
    stage: Box<dyn Fn(Stage) + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    fleet: Option<Fleet>,
    calibration: Option<Calibration>,
}

impl fmt::Debug for VerbsTestbed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("VerbsTestbed")
            .field("target", &self.name)
            .finish_non_exhaustive()
    }
}

impl VerbsTestbed {
    /// The devices of `target`. Runs stop when `cancel` is set, and report their stage to `stage`.
    pub fn new(
        target: Target,
        reach: Reach,
        cancel: Arc<AtomicBool>,
        stage: Box<dyn Fn(Stage) + Send + Sync>,
    ) -> Self {
        Self {
            name: target.to_string(),
            target,
            reach,
            cancel,
            stage,
            state: Mutex::new(State::default()),
        }
    }

    /// What the devices can do: known from before, or measured now. Fails for machines, devices and workers that cannot
    /// be used.
    pub fn calibration(&self) -> Result<Calibration, VerbsError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.calibrated(&mut state)
    }

    /// What runs take place on: firmware, driver, kernel and settings of each host, by names like `a.firmware`. Fails
    /// for machines and devices that cannot be used.
    pub fn environment(&self) -> Result<BTreeMap<String, String>, VerbsError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let described = self.attempt(&mut state, |fleet| fleet.describe(&self.cancel))?;
        let hosts = Host::ALL.into_iter().zip(described);
        let all = hosts.flat_map(|(host, facts)| {
            let letter = host.letter().to_ascii_lowercase();
            let named = facts.into_iter();
            named.map(move |(name, value)| (format!("{letter}.{name}"), value))
        });
        Ok(all.collect())
    }

    /// How many different devices the hosts of a scenario get.
    pub fn different_devices(&self) -> usize {
        let places = self.target.places.iter();
        let all: BTreeSet<_> = places
            .map(|place| (&place.machine, &place.device))
            .collect();
        all.len()
    }

    /// Whether it runs every part of the policy called `name`, or what runs the part that it does not.
    pub fn runs_policy(&self, name: &str) -> Result<(), String> {
        policy::runs(name)
    }

    /// Whether workers can do what `tenant` does, or why not. Connects to the machines if memory of another socket or of
    /// a GPU is used: they know whether they have one.
    pub fn runs_tenant(&self, tenant: &Tenant) -> Result<(), String> {
        let devices = Host::ALL.into_iter().zip(&self.target.places);
        let options = isolane_rdma_traffic::worker::Options {
            devices: devices
                .map(|(host, place)| (host, place.device.clone()))
                .collect(),
            ..Default::default()
        };
        let mut scenario = calibrate::scenarios()[0].clone();
        scenario.tenants = vec![tenant.clone()];
        let plan = isolane_rdma_traffic::worker::plan(&scenario, tenant, &options);
        let plan = plan.map_err(|error| error.to_string())?;
        let far: Vec<_> = plan.far_memory().collect();
        if far.is_empty() {
            return Ok(());
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let posts = self.attempt(&mut state, |fleet| Ok(fleet.posts.clone()));
        let posts = posts.map_err(|error| error.to_string())?;
        for (host, place) in far {
            let post = &posts[host.index()];
            let node = post.nodes.of(&post.device, place);
            node.map_err(|error| format!("tenant {:?} on {}: {error}", tenant.name, post.words))?;
        }
        Ok(())
    }

    /// Refuses a scenario that cannot run here, before anything is started. Fails with [`VerbsError::Scenario`].
    pub fn check(&self, scenario: &Scenario) -> Result<(), TestbedError> {
        let refused = |reason| {
            TestbedError::from(VerbsError::Scenario {
                scenario: scenario.name.clone(),
                target: self.name.clone(),
                reason,
            })
        };
        if scenario.network.is_some() {
            let reason = "it describes a network, and real devices have their own: drop [network]";
            return Err(refused(reason.to_owned()));
        }
        policy::runs(&scenario.policy.name).map_err(refused)?;
        policy::reaches(&scenario.policy.name, &self.target).map_err(refused)?;
        for tenant in &scenario.tenants {
            self.runs_tenant(tenant).map_err(refused)?;
        }
        Ok(())
    }

    /// Takes `calibration` for what the devices can do instead of measuring it.
    pub fn set_calibration(&self, calibration: Calibration) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.calibration = Some(calibration);
    }

    fn calibrated(&self, state: &mut State) -> Result<Calibration, VerbsError> {
        if let Some(calibration) = state.calibration {
            return Ok(calibration);
        }
        let unknown = Calibration {
            goodput_gbps: 0.0,
            messages_per_s: 0.0,
            idle_p50_us: 0.0,
            idle_p99_us: 0.0,
        };
        let quiet = |_: Stage| {};
        let mut results = Vec::new();
        for scenario in calibrate::scenarios() {
            let measured = self.attempt(state, |fleet| {
                (self.stage)(Stage::Calibrating);
                conduct(fleet, &scenario, None, &self.name, &self.cancel, &quiet)
            })?;
            results.push(gather::result(
                &scenario, &self.name, "", &unknown, &measured,
            ));
        }
        let results: [RunResult; 3] = results.try_into().expect("as many as there are scenarios");
        let calibration = calibrate::calibration(&results);
        state.calibration = Some(calibration);
        Ok(calibration)
    }

    /// Does `work` with the open sessions. After a failure they are closed.
    fn attempt<T>(
        &self,
        state: &mut State,
        work: impl FnOnce(&mut Fleet) -> Result<T, VerbsError>,
    ) -> Result<T, VerbsError> {
        let mut fleet = match state.fleet.take() {
            Some(fleet) => fleet,
            None => {
                (self.stage)(Stage::Connecting);
                Fleet::open(&self.target, &self.reach, &self.cancel)?
            }
        };
        let done = work(&mut fleet);
        match done {
            Ok(done) => {
                state.fleet = Some(fleet);
                Ok(done)
            }
            Err(error) => {
                // What could not be cleared ends with its session, here.
                let _ = fleet.clear();
                Err(error)
            }
        }
    }

    fn measure(&self, scenario: &Scenario) -> Result<RunResult, VerbsError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let calibration = self.calibrated(&mut state)?;
        let under = policy::under(scenario, &self.target, &calibration);
        let measured = self.attempt(&mut state, |fleet| {
            let measured = conduct(
                fleet,
                scenario,
                under.as_ref(),
                &self.name,
                &self.cancel,
                &self.stage,
            )?;
            if under.is_some() {
                fleet.clear()?;
            }
            Ok(measured)
        })?;
        Ok(gather::result(
            scenario,
            &self.name,
            &self.devices(),
            &calibration,
            &measured,
        ))
    }

    /// The text that results have where the simulator has its profile.
    fn devices(&self) -> String {
        let places = self.target.places.iter().map(ToString::to_string);
        format!(
            "{} (profile not applied)",
            places.collect::<Vec<_>>().join(",")
        )
    }
}

impl Testbed for VerbsTestbed {
    fn name(&self) -> &str {
        &self.name
    }

    fn policies(&self) -> Option<&'static [&'static str]> {
        Some(policy::PARTS)
    }

    /// Runs `scenario` on the devices. `profile` describes the simulator's device and is not applied.
    fn run(&self, scenario: &Scenario, _: &Profile) -> Result<RunResult, TestbedError> {
        self.check(scenario)?;
        Ok(self.measure(scenario)?)
    }
}

/// Makes a scenario that was written for a simulator's microseconds long enough for real devices: all its times grow
/// alike until the measured time is [`MEASURED_MIN`]. True when they changed.
pub fn lengthen(scenario: &mut Scenario) -> bool {
    let long_enough = scenario.duration >= MEASURED_MIN;
    if !long_enough {
        let factor = MEASURED_MIN
            .as_ps()
            .div_ceil(scenario.duration.as_ps().max(1));
        let longer = |time: Duration| Duration::from_ps(time.as_ps().saturating_mul(factor));
        scenario.duration = longer(scenario.duration);
        scenario.sample_interval = scenario.duration / SAMPLES;
        let end = scenario
            .tenants
            .iter()
            .any(|tenant| !tenant.start.is_zero() || tenant.stop.is_some());
        // Tenants that come and go do so at times that count from the beginning of the warm-up.
        if end {
            scenario.warmup = longer(scenario.warmup);
            for tenant in &mut scenario.tenants {
                tenant.start = longer(tenant.start);
                tenant.stop = tenant.stop.map(longer);
            }
        }
    }
    settle(scenario);
    !long_enough
}

/// Gives `scenario` a warm-up of at least [`WARMUP_MIN`]; tenants that come and go keep their times of the measured
/// time.
pub fn settle(scenario: &mut Scenario) {
    let missing = WARMUP_MIN.saturating_sub(scenario.warmup);
    if missing.is_zero() {
        return;
    }
    for tenant in &mut scenario.tenants {
        if !tenant.start.is_zero() {
            tenant.start += missing;
        }
        tenant.stop = tenant.stop.map(|stop| stop + missing);
    }
    scenario.warmup = WARMUP_MIN;
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_rdma_scenario::library::Library;

    fn scenario(head: &str, tenant: &str) -> Scenario {
        let text = format!(
            "profile = \"cx5-100g-roce\"\n{head}\n[[tenant]]\nname = \"a\"\n{tenant}\n\
             [[tenant.traffic]]\nverb = \"write\"\nsize = 8\n"
        );
        isolane_rdma_scenario::parse(&text, "test.toml", &Library::embedded()).unwrap()
    }

    #[test]
    fn short_scenarios_grow_and_keep_their_shape() {
        let mut short = scenario(
            "warmup = \"500us\"\nduration = \"5ms\"",
            "start = \"1ms\"\nstop = \"3ms\"",
        );
        assert!(lengthen(&mut short));
        assert_eq!(short.duration, Duration::from_secs(1));
        // 200 times as long: 100 ms of warm-up, and 100 ms more for the least.
        assert_eq!(short.warmup, WARMUP_MIN);
        assert_eq!(short.tenants[0].start, Duration::from_ms(300));
        assert_eq!(short.tenants[0].stop, Some(Duration::from_ms(700)));
        assert_eq!(short.sample_interval, Duration::from_ms(20));
    }

    #[test]
    fn long_scenarios_stay() {
        let mut long = scenario("warmup = \"1s\"\nduration = \"2s\"", "");
        let before = long.clone();
        assert!(!lengthen(&mut long));
        assert_eq!(long, before);
    }
}

//! Where scenarios run: the [`Testbed`] trait.
//!
//! The audit, the claims and the command line call a testbed, so the same run works on a simulated NIC and on a real
//! one. A run has tenants, a device and a duration; its result has rates, latencies and counters.
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "fake"))]
pub mod fake;
pub mod settle;

pub use settle::{Patience, Until};

use isolane_rdma_scenario::model::{Scenario, Traffic, Verb};
use isolane_rdma_scenario::profile::Profile;
use isolane_study_results::rdma::RunResult;
use settle::Again;

/// Something that runs scenarios.
pub trait Testbed: Sync {
    /// The name that results carry: `sim`, `verbs:r0,r1`, ...
    fn name(&self) -> &str;

    /// The parts of policies that it can run; all of them where it does not say.
    fn policies(&self) -> Option<&'static [&'static str]> {
        None
    }

    /// `scenario` without what has no effect here, such as names: two scenarios of which this is equal have equal results. None
    /// where a result can differ from run to run.
    fn essence(&self, scenario: &Scenario) -> Option<Scenario> {
        let _ = scenario;
        None
    }

    /// Runs `scenario` on the device that `profile` describes and reports what was measured.
    fn run(&self, scenario: &Scenario, profile: &Profile) -> Result<RunResult, TestbedError>;

    /// As [`Testbed::run`], and calls `watch` now and then with the part of the run that is over, 0 to 1, where the testbed
    /// knows it.
    fn run_watched(
        &self,
        scenario: &Scenario,
        profile: &Profile,
        watch: &dyn Fn(f64),
    ) -> Result<RunResult, TestbedError> {
        let _ = watch;
        self.run(scenario, profile)
    }

    /// Runs `scenario` until `patience` ends it ([`settle`]); from the beginning each time where the testbed cannot go on.
    fn run_until(
        &self,
        scenario: &Scenario,
        profile: &Profile,
        patience: &Patience<'_>,
    ) -> Result<RunResult, TestbedError> {
        let run = &|scenario: &Scenario| self.run(scenario, profile);
        settle::run(&mut Again { run, scenario }, scenario, patience)
    }
}

/// Why a testbed gave no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum TestbedError {
    /// The scenario was written for another device.
    #[error(
        "scenario {scenario} is for profile {expected}, but profile {given} was given: \
         load profile {expected}, or change the scenario's `profile`"
    )]
    ProfileMismatch {
        scenario: String,
        expected: String,
        given: String,
    },
    /// The device cannot do what the scenario requests.
    #[error("profile {profile} cannot run scenario {scenario}: {reason}")]
    Unsupported {
        scenario: String,
        profile: String,
        reason: String,
    },
    /// The testbed does not know the scenario's policy or a parameter of it.
    #[error("scenario {scenario}: {reason}")]
    Refused { scenario: String, reason: String },
    /// The scenario's network and its hosts do not go together.
    #[error("scenario {scenario}: {reason}")]
    Network { scenario: String, reason: String },
    /// The testbed cannot run the request; the scenario or the target has to change.
    #[error("{reason}")]
    Declined { reason: String },
    /// A machine of the testbed lacks a device, a library or a permission, or cannot be reached.
    #[error("{reason}")]
    Unavailable { reason: String },
    /// The run began and broke: a process was killed, a device was removed.
    #[error("{reason}")]
    Failed { reason: String },
    #[error("interrupted; every process of the run has been stopped")]
    Interrupted,
    /// The testbed broke: a defect of ours.
    #[error(
        "scenario {scenario} with seed {seed} under policy {policy} on profile {profile} broke the {testbed} \
         testbed: {reason}; please report it with this line"
    )]
    Broken {
        testbed: &'static str,
        scenario: String,
        seed: u64,
        policy: String,
        profile: String,
        reason: String,
    },
}

/// Whether `scenario` and `profile` go together. Fails if the profile is another than the scenario's, or its device
/// lacks atomics that a tenant uses.
pub fn check(scenario: &Scenario, profile: &Profile) -> Result<(), TestbedError> {
    if scenario.profile != profile.name {
        return Err(TestbedError::ProfileMismatch {
            scenario: scenario.name.clone(),
            expected: scenario.profile.clone(),
            given: profile.name.clone(),
        });
    }
    let atomics = scenario
        .tenants
        .iter()
        .find(|tenant| tenant.workloads.iter().any(|w| is_atomic(&w.traffic)));
    match atomics {
        Some(tenant) if !profile.atomics => Err(TestbedError::Unsupported {
            scenario: scenario.name.clone(),
            profile: profile.name.clone(),
            reason: format!(
                "tenant {:?} uses atomics, which the device lacks",
                tenant.name
            ),
        }),
        _ => Ok(()),
    }
}

fn is_atomic(traffic: &Traffic) -> bool {
    matches!(traffic, Traffic::Data(data) if matches!(data.verb, Verb::FetchAdd | Verb::CompareSwap))
}

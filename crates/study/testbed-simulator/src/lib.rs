//! The simulator as a testbed.
//!
//! A failed assertion inside the model is our mistake; it is caught here, so that one bad cell among thousands
//! is reported with everything needed to rerun it.
#![forbid(unsafe_code)]

use isolane_common_quantities::settle::Windows;
use isolane_common_quantities::units::Duration;
use isolane_network_simulator::leaf::{self, LeafError};
use isolane_rdma_scenario::model::{Scenario, Traffic};
use isolane_rdma_scenario::profile::Profile;
use isolane_rdma_simulator::rnic::continued::{Continued, WarmUp};
use isolane_study_results::rdma::RunResult;
use isolane_study_testbed::settle;
use isolane_study_testbed::settle::{Again, Course};
use isolane_study_testbed::{Patience, Testbed, TestbedError, check};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The calibrated, deterministic simulator of `isolane_rdma_simulator`.
#[derive(Clone, Copy, Debug, Default)]
pub struct SimTestbed;

/// What results carry.
const NAME: &str = "sim";

impl Testbed for SimTestbed {
    fn name(&self) -> &str {
        NAME
    }

    fn policies(&self) -> Option<&'static [&'static str]> {
        Some(isolane_rdma_simulator::rnic::POLICIES)
    }

    fn essence(&self, scenario: &Scenario) -> Option<Scenario> {
        let mut scenario = scenario.clone();
        scenario.name.clear();
        for (number, tenant) in scenario.tenants.iter_mut().enumerate() {
            tenant.name = number.to_string();
            for workload in &mut tenant.workloads {
                workload.name.clear();
                if let Traffic::Control(control) = &mut workload.traffic {
                    // The model's commands take as long in any protection domain.
                    control.protection_domains = 1;
                }
            }
        }
        Some(scenario)
    }

    fn run(&self, scenario: &Scenario, profile: &Profile) -> Result<RunResult, TestbedError> {
        self.run_watched(scenario, profile, &|_| {})
    }

    fn run_watched(
        &self,
        scenario: &Scenario,
        profile: &Profile,
        watch: &dyn Fn(f64),
    ) -> Result<RunResult, TestbedError> {
        guarded(scenario, profile, || match scenario.network {
            Some(_) => leaf::run_watched(scenario, profile, watch),
            None => isolane_rdma_simulator::rnic::run_watched(scenario, profile, watch)
                .map_err(LeafError::Hosts),
        })
    }

    fn run_until(
        &self,
        scenario: &Scenario,
        profile: &Profile,
        patience: &Patience<'_>,
    ) -> Result<RunResult, TestbedError> {
        if scenario.network.is_some() {
            let run = &|one: &Scenario| self.run(one, profile);
            return settle::run(&mut Again { run, scenario }, scenario, patience);
        }
        let run = || -> Result<_, LeafError> {
            let mut world = Run(Continued::new(scenario, profile)?);
            Ok(settle::run(&mut world, scenario, patience))
        };
        guarded(scenario, profile, run)?
    }
}

/// A simulated run that goes on where it stopped.
struct Run<'a>(Continued<'a>);

impl Course for Run<'_> {
    fn warm_up(&mut self, patience: &Patience<'_>) -> Duration {
        self.0.warm_up(&WarmUp {
            settle: patience.settle,
            stuck: patience.stuck,
            latest: patience.warmup_max,
        })
    }

    fn is_congested(&self) -> bool {
        self.0.is_congested()
    }

    fn go_on(&mut self, time: Duration) {
        self.0.go_on(time);
    }

    fn is_filling(&self) -> bool {
        self.0.is_filling()
    }

    fn measure(
        &mut self,
        _: Duration,
        length: Duration,
    ) -> Result<(RunResult, Vec<Windows>), TestbedError> {
        let windows = self.0.measure(length);
        Ok((self.0.result(), windows))
    }
}

/// What `run` gives, with its errors as the testbed's; a failed assertion is one too.
fn guarded<T>(
    scenario: &Scenario,
    profile: &Profile,
    run: impl FnOnce() -> Result<T, LeafError>,
) -> Result<T, TestbedError> {
    check(scenario, profile)?;
    // The simulator borrows its arguments immutably and keeps no state, so unwinding leaves nothing torn.
    let result = catch_unwind(AssertUnwindSafe(run)).map_err(|panic| TestbedError::Broken {
        testbed: NAME,
        scenario: scenario.name.clone(),
        seed: scenario.seed,
        policy: scenario.policy.name.clone(),
        profile: profile.name.clone(),
        reason: panic_message(panic.as_ref()),
    })?;
    result.map_err(|reason| match reason {
        LeafError::Hosts(reason) => TestbedError::Refused {
            scenario: scenario.name.clone(),
            reason: reason.to_string(),
        },
        reason => TestbedError::Network {
            scenario: scenario.name.clone(),
            reason: reason.to_string(),
        },
    })
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&'static str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("it stopped without a message")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watched_run_reports_progress_and_gives_the_same_result() {
        let library = isolane_rdma_scenario::library::Library::embedded();
        let text = "profile = \"cx5-100g-roce\"\nduration = \"200us\"\n[[tenant]]\nname = \"a\"\n\
                    perftest = \"ib_write_bw -s 4096\"\n";
        let scenario = isolane_rdma_scenario::parse(text, "one.toml", &library).unwrap();
        let profile = library.profile("cx5-100g-roce").unwrap();
        let seen = std::cell::RefCell::new(Vec::new());
        let watch = |part: f64| seen.borrow_mut().push(part);
        let watched = SimTestbed.run_watched(&scenario, profile, &watch).unwrap();
        assert_eq!(watched, SimTestbed.run(&scenario, profile).unwrap());
        let seen = seen.into_inner();
        assert!(seen.len() > 100 && seen.is_sorted(), "{}", seen.len());
        assert!(seen[0] > 0.0 && *seen.last().unwrap() < 1.0);
    }

    #[test]
    fn panic_messages_of_both_kinds_are_kept() {
        let literal = catch_unwind(|| panic!("literal")).unwrap_err();
        let formatted = catch_unwind(|| panic!("{} {}", "made", 1)).unwrap_err();
        assert_eq!(panic_message(literal.as_ref()), "literal");
        assert_eq!(panic_message(formatted.as_ref()), "made 1");
        assert_eq!(
            panic_message(&0u8 as &(dyn Any + Send)),
            "it stopped without a message"
        );
    }
}

//! A scenario run until it has settled: the same steps for the audit, `sim`, `recommend` and `explain`.
//!
//! The scenario's times are the least. The time constants of its policy and its loops are added ([`Constants`]), then the
//! testbed goes on until what is demanded of each tenant is known, at most until a cap ([`isolane_study_testbed::settle`]).

use crate::constants::{Constants, congestion};
use isolane_common_quantities::settle::Demand;
use isolane_common_quantities::units::Duration;
use isolane_rdma_scenario::model::{Class, Scenario, Tenant};
use isolane_rdma_scenario::profile::Profile;
use isolane_study_results::rdma::RunResult;
use isolane_study_testbed::settle::is_course;
use isolane_study_testbed::{Patience, Testbed, TestbedError};

/// The cap is at least so many times the least times of a run: two measured times, the second twice as long.
const LEAST_TIMES: u64 = 3;

/// `scenario` with the least times of a run that settles: each of its time constants is waited for `times` times.
pub fn prepared(scenario: &Scenario, profile: &Profile, times: u64) -> Scenario {
    let constants = Constants::of(scenario, profile).times(times);
    let points = scenario.duration.as_ps() / scenario.sample_interval.as_ps().max(1);
    let mut scenario = scenario.clone();
    scenario.warmup += constants.warmup;
    scenario.duration = constants.measured(scenario.duration);
    scenario.sample_interval = scenario.duration / points.max(1);
    scenario
}

/// Simulated time after which a run of `scenario`, prepared, ends: longer than `cap` where its least times are a large part
/// of it.
pub fn cap_of(scenario: &Scenario, cap: Duration) -> Duration {
    cap.max((scenario.warmup + scenario.duration) * LEAST_TIMES)
}

/// What a reader of all tenants' figures needs: the latency of those that declare it their concern, and the rates of all.
pub fn demands(scenario: &Scenario) -> Vec<Demand> {
    scenario.tenants.iter().map(demand).collect()
}

/// The same of one tenant.
pub fn demand(tenant: &Tenant) -> Demand {
    match tenant.class {
        Class::Latency => Demand::Latency,
        Class::Throughput | Class::Bandwidth | Class::Auto => Demand::Rates,
    }
}

/// Runs `scenario`, prepared with `times`, until `demands` are met. One that describes a course is measured for its own times.
pub fn run(
    testbed: &dyn Testbed,
    scenario: &Scenario,
    profile: &Profile,
    (times, cap): (u64, Duration),
    demands: &[Demand],
) -> Result<RunResult, TestbedError> {
    if is_course(scenario) {
        return testbed.run(scenario, profile);
    }
    let congestion = congestion(profile, times);
    let patience = Patience::settled(scenario, congestion, cap_of(scenario, cap), demands);
    testbed.run_until(scenario, profile, &patience)
}

//! A run with a recorder.

use super::{Trace, TraceOptions, Tracer};
use crate::rnic::policies::SimError;
use crate::rnic::world::World;
use isolane_rdma_scenario::model::Scenario;
use isolane_rdma_scenario::profile::Profile;
use isolane_study_results::rdma::RunResult;

/// Runs one scenario as [`crate::rnic::run`] does, and records who waits for whom.
///
/// The result is the same as without recording. Fails if the scenario names a policy or a policy parameter that the
/// simulator does not have. Panics if `options.victim` is no tenant of the scenario.
pub fn run_traced(
    scenario: &Scenario,
    profile: &Profile,
    options: TraceOptions,
) -> Result<(RunResult, Trace), SimError> {
    assert!(
        usize::from(options.victim) < scenario.tenants.len(),
        "tenant {} does not exist",
        options.victim
    );
    let mut world = World::<true>::build(scenario, profile)?;
    world.trace = Some(Box::new(Tracer::new(
        &world.nics,
        &world.pairs,
        scenario,
        options,
    )));
    for nic in &mut world.nics {
        nic.watched = true;
    }
    world.run();
    let result = world.result(scenario, profile);
    let tracer = world.trace.take().expect("it was put there above");
    let pairs = world.pairs.iter();
    let ends: Vec<(u8, u8)> = pairs.map(|pair| (pair.host, pair.peer)).collect();
    Ok((result, tracer.finish(scenario, &ends, world.end)))
}

//! Two RDMA NICs, their hosts, and the cable or switch between them.
//!
//! The model has the eleven stages of a work request's life; each is a mechanism with parameters from the
//! device profile, and interference between tenants emerges from what they share:
//!
//! 1. post and doorbell (`application`, `transmit`);
//! 2. work request fetch over PCIe, with bounded prefetch (`transmit`);
//! 3. schedule queue and engines, packet by packet or greedy turns (`lanes`, `arbiter`, `limiter`,
//!    `turns`);
//! 4. processing units at requester and responder (`transmit`, `receive`);
//! 5. caches for contexts, translations, protection and receives, with miss slots (`cache`, `lookup`);
//! 6. payload DMA over a PCIe bus shared by everything (`transmit`, `receive`, `world`);
//! 7. the wire, packet headers and acknowledgements (`wire`, `transmit`, `acknowledge`);
//! 8. receive buffer, pauses, the switch behind them (`buffer`);
//! 9. errors: receiver-not-ready and silent drops (`receive`);
//! 10. control verbs through the command queue (`control`);
//! 11. congestion control, DCQCN per pair (`congestion`).
//!
//! `docs/internals/rnic.md` explains each mechanism with its sources and limits.

mod access;
mod acknowledge;
mod addresses;
mod apart;
mod application;
pub mod arbiter;
pub mod border;
mod buffer;
mod build;
pub mod byte_time;
pub mod cache;
mod chunks;
mod congestion;
pub mod continued;
mod control;
mod datagrams;
mod device;
mod enforce;
mod event;
mod functions;
mod gates;
mod harmonic;
mod lanes;
mod limiter;
pub mod live;
mod lookup;
mod meter;
pub mod micro;
mod micro_receives;
mod nic;
mod peers;
mod policies;
mod process;
mod programs;
mod queue_pair;
mod receive;
mod results;
mod sizes;
mod tap;
pub mod trace;
mod transmit;
mod turns;
mod warm;
mod window;
pub mod wire;
mod world;

pub use policies::{POLICIES, SimError};
pub use trace::run_traced;

use isolane_rdma_scenario::model::Scenario;
use isolane_rdma_scenario::profile::Profile;
use isolane_study_results::rdma::RunResult;

/// Runs one scenario on the device `profile` describes.
///
/// The same arguments give the same result on every machine. Fails if the scenario names a policy or a policy parameter
/// that the simulator does not have.
pub fn run(scenario: &Scenario, profile: &Profile) -> Result<RunResult, SimError> {
    run_watched(scenario, profile, &|_| {})
}

/// As [`run`], and calls `watch` now and then with the part of the simulated time that is over, 0 to 1. The result is the
/// same. Fails as [`run`] does.
pub fn run_watched(
    scenario: &Scenario,
    profile: &Profile,
    watch: &dyn Fn(f64),
) -> Result<RunResult, SimError> {
    let mut world = <world::World>::build(scenario, profile)?;
    world.run_watched(watch);
    Ok(world.result(scenario, profile))
}

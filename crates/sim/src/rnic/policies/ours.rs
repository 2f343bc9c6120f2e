//! What our own policies mean for the simulated device and hosts.

use super::{LaneSetup, Pacing, Setup, pacing, shares};
use crate::rnic::arbiter::Sharing;
use crate::rnic::device::Device;
use crate::rnic::gates::Gates;
use isolane_core::policy::OptionError;
use isolane_core::policy::isolane::software::{Software, SoftwareOptions};
use isolane_scenario::model::{Class, Scenario};
use isolane_scenario::profile::Profile;

/// Unit of normalised requests: a sixteenth of a WRITE, so that a READ need not count as one or two.
const REQUEST_UNIT: u64 = 16;
/// Bytes of the largest frame: what the smallest share sends in one turn.
const FRAME_MAX: u64 = 4096 + 256;

/// `isolane-sw`: a shim and a daemon, and the hardware queues that NICs have.
pub(super) fn software(
    scenario: &Scenario,
    profile: &Profile,
    setup: &mut Setup,
) -> Result<(), OptionError> {
    let mut pacing = pacing::justitia(&scenario.policy, profile);
    pacing.message_rate_max_per_s *= REQUEST_UNIT;
    let mut options = SoftwareOptions::for_device(
        pacing.rate_max,
        pacing.message_rate_max_per_s,
        profile.value("cache", "context_entries") as u32,
    );
    options.pacing = pacing;
    Software::new(options.clone())?;
    setup.pacing = Some(Pacing::Software(options));
    setup.gates = Gates {
        receives: true,
        costs: request_costs(profile),
    };
    setup.lanes = latency_first(scenario, profile);
    Ok(())
}

/// What one request of each verb costs the slower of its two processing units, a WRITE being [`REQUEST_UNIT`].
fn request_costs(profile: &Profile) -> [u64; 5] {
    let device = Device::of(profile);
    let dearest = |verb: usize| device.request[verb].max(device.respond[verb]);
    let write = dearest(0).max(1);
    let mut costs = [0; 5];
    for (verb, cost) in costs.iter_mut().enumerate() {
        *cost = (REQUEST_UNIT * dearest(verb) + write / 2) / write;
    }
    costs
}

/// A class of strict priority for tenants that declare latency, and a weighted one for each of the others as long
/// as there are classes.
fn latency_first(scenario: &Scenario, profile: &Profile) -> LaneSetup {
    let shares = shares::of_link(scenario, profile);
    let classes = (profile.traffic_classes as usize).max(2);
    let mut quanta = vec![FRAME_MAX];
    let mut class_of_tenant = Vec::with_capacity(scenario.tenants.len());
    let least = shares.iter().min().map_or(1, |share| share.as_bps().max(1));
    for (tenant, share) in scenario.tenants.iter().zip(&shares) {
        if tenant.class == Class::Latency {
            class_of_tenant.push(0);
            continue;
        }
        let quantum = u128::from(FRAME_MAX) * u128::from(share.as_bps()) / u128::from(least);
        if quanta.len() < classes {
            quanta.push(quantum as u64);
        } else {
            *quanta.last_mut().expect("there are at least two classes") += quantum as u64;
        }
        class_of_tenant.push(quanta.len() as u8 - 1);
    }
    LaneSetup {
        rates: vec![None; quanta.len()],
        sharing: Sharing::Weighted { first: 1, quanta },
        class_of_tenant,
        buffer_parts: Vec::new(),
    }
}

//! What our own policies mean for the simulated device and hosts.

use super::{ApartSetup, LaneSetup, Pacing, Scheduler, Setup, chunks, pacing, shares};
use crate::rnic::apart::TURN;
use crate::rnic::arbiter::Sharing;
use crate::rnic::device::Device;
use crate::rnic::gates::Gates;
use isolane_common_quantities::OptionError;
use isolane_common_quantities::units::BitRate;
use isolane_rdma_policy::isolane::software::{Software, SoftwareOptions};
use isolane_rdma_scenario::model::{Class, Scenario};
use isolane_rdma_scenario::profile::Profile;

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
        costs: Some(request_costs(profile)),
        deregistrations_per_s: deregistrations(profile),
    };
    let classes = (profile.traffic_classes as usize).clamp(2, CLASSES);
    setup.lanes = class_each(scenario, profile, classes, true);
    Ok(())
}

/// Part of the time for which deregistrations may stop the translations of all tenants, a twentieth.
const STALLED_PART: f64 = 0.05;

/// Deregistrations per second that stop translations for [`STALLED_PART`] of the time; no limit where they stop none.
fn deregistrations(profile: &Profile) -> Option<u64> {
    let stall_us = profile.value("control", "deregistration_stall_us");
    (stall_us > 0.0).then(|| (STALLED_PART * 1e6 / stall_us).max(1.0) as u64)
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

/// Classes of a port whose buffers the model can keep apart.
const CLASSES: usize = 8;

/// `isolane`: a NIC that keeps its tenants apart.
pub(super) fn hardware(
    scenario: &Scenario,
    profile: &Profile,
    setup: &mut Setup,
) -> Result<(), OptionError> {
    setup.scheduler = Scheduler::Chunks(chunks::palos(&scenario.policy, profile)?);
    setup.lanes = class_each(scenario, profile, CLASSES, false);
    setup.apart = Some(ApartSetup {
        turns: turns(&setup.lanes),
        weights: scenario
            .tenants
            .iter()
            .map(|tenant| tenant.weight)
            .collect(),
    });
    Ok(())
}

/// The receiving units' time in one turn of each class, in proportion to what it may send.
fn turns(lanes: &LaneSetup) -> Vec<u64> {
    let Sharing::Weighted { quanta, .. } = &lanes.sharing else {
        return vec![TURN];
    };
    quanta
        .iter()
        .map(|quantum| TURN * quantum / FRAME_MAX)
        .collect()
}

/// A class for each tenant as long as there are classes; the last one is for all the others. Tenants that declare
/// latency go first: in a class of their own each, or, where `together`, all in the first.
fn class_each(scenario: &Scenario, profile: &Profile, classes: usize, together: bool) -> LaneSetup {
    let shares = shares::of_link(scenario, profile);
    let least = shares.iter().min().map_or(1, |share| share.as_bps().max(1));
    let quantum = |share: &BitRate| {
        (u128::from(FRAME_MAX) * u128::from(share.as_bps()) / u128::from(least)) as u64
    };
    let mut quanta = if together {
        vec![FRAME_MAX]
    } else {
        Vec::new()
    };
    let mut first = u16::from(together);
    let mut class_of_tenant = Vec::with_capacity(scenario.tenants.len());
    for (tenant, share) in scenario.tenants.iter().zip(&shares) {
        let latency = tenant.class == Class::Latency;
        if latency && together {
            class_of_tenant.push(0);
            continue;
        }
        if quanta.len() < classes {
            quanta.push(quantum(share));
            first |= u16::from(latency) << (quanta.len() - 1);
        } else if let Some(last) = quanta.last_mut() {
            *last += quantum(share);
        }
        class_of_tenant.push(quanta.len() as u8 - 1);
    }
    LaneSetup {
        rates: vec![None; quanta.len()],
        buffer_parts: quanta.clone(),
        sharing: Sharing::Weighted { first, quanta },
        class_of_tenant,
    }
}

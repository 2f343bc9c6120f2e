//! Parts that give tenants hardware queues: traffic classes, virtual lanes, virtual functions.

use super::{FunctionSetup, LaneSetup, parameter, shares};
use crate::rnic::arbiter::Sharing;
use isolane_common_quantities::units::BitRate;
use isolane_rdma_scenario::model::{Class, Scenario};
use isolane_rdma_scenario::profile::Profile;

/// Bytes of the largest frame: what the smallest share sends in one turn.
const FRAME_MAX: u64 = 4096 + 256;
/// Weight of a virtual lane entry that sends one packet of 4 KiB, in units of 64 B.
const ENTRY_WEIGHT: u64 = 64;
/// The largest weight of an entry (IB specification, volume 1, 7.6.9).
const ENTRY_WEIGHT_MAX: u64 = 255;
/// Bytes in a unit of the high table's limit, and the value that means no limit.
const HIGH_LIMIT_UNIT: u64 = 4096;
const HIGH_LIMIT_NONE: u64 = 255;
/// OpenSM's own default of the high table's limit is 0; ten packets favour the high table without starving the low.
const HIGH_LIMIT: f64 = 10.0;

/// One traffic class per tenant, weighted by the tenants' shares of the link.
pub(super) fn traffic_classes(scenario: &Scenario, profile: &Profile) -> LaneSetup {
    let shares = shares::of_link(scenario, profile);
    let least = shares.iter().min().map_or(1, |share| share.as_bps().max(1));
    let quantum = |share: &BitRate| {
        let bytes = u128::from(FRAME_MAX) * u128::from(share.as_bps()) / u128::from(least);
        bytes as u64
    };
    let limited = parameter(&scenario.policy, "rate_limit").unwrap_or(0.0) >= 0.5;
    LaneSetup {
        sharing: Sharing::Weighted {
            first: 0,
            quanta: shares.iter().map(quantum).collect(),
        },
        class_of_tenant: (0..scenario.tenants.len() as u8).collect(),
        rates: shares
            .iter()
            .map(|&share| limited.then_some(share))
            .collect(),
        buffer_parts: shares.iter().map(|share| share.as_bps()).collect(),
    }
}

/// One virtual lane per tenant, with entries by the tenants' weights.
pub(super) fn virtual_lanes(scenario: &Scenario) -> LaneSetup {
    let spec = &scenario.policy;
    let latency_high = parameter(spec, "latency_high").unwrap_or(1.0) >= 0.5;
    let limit = parameter(spec, "high_limit").unwrap_or(HIGH_LIMIT) as u64;
    let heaviest = scenario.tenants.iter().map(|tenant| tenant.weight).max();
    let heaviest = u64::from(heaviest.unwrap_or(1));
    let weight = |weight: u32| {
        let packets = ENTRY_WEIGHT * u64::from(weight);
        let scaled = if ENTRY_WEIGHT * heaviest <= ENTRY_WEIGHT_MAX {
            packets
        } else {
            ENTRY_WEIGHT_MAX * u64::from(weight) / heaviest
        };
        scaled.max(1) as u16
    };
    let (mut high, mut low) = (Vec::new(), Vec::new());
    for (lane, tenant) in scenario.tenants.iter().enumerate() {
        let table = if latency_high && tenant.class == Class::Latency {
            &mut high
        } else {
            &mut low
        };
        table.push((lane as u8, weight(tenant.weight)));
    }
    LaneSetup {
        sharing: Sharing::Tables {
            high,
            low,
            high_limit: (limit < HIGH_LIMIT_NONE).then_some(limit * HIGH_LIMIT_UNIT),
        },
        class_of_tenant: (0..scenario.tenants.len() as u8).collect(),
        rates: vec![None; scenario.tenants.len()],
        // Each lane has credits, and with them a part of the buffer, of its own (IB specification, volume 1, 7.9).
        buffer_parts: vec![1; scenario.tenants.len()],
    }
}

/// One virtual function per tenant.
pub(super) fn functions(scenario: &Scenario, profile: &Profile) -> FunctionSetup {
    let limited = parameter(&scenario.policy, "vf_rate_limit").unwrap_or(1.0) >= 0.5;
    let shares = shares::of_link(scenario, profile);
    FunctionSetup {
        rates: shares
            .into_iter()
            .map(|share| limited.then_some(share))
            .collect(),
    }
}

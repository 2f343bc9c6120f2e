//! What part of the link each tenant has: its guaranteed rate, or a part of the rest by weight.
//!
//! Units: bits per second on the wire, rounded down. Limits: a share is at least [`SHARE_MIN`] of the link, so that
//! a tenant beside guarantees that take everything still moves.

use isolane_common_quantities::units::BitRate;
use isolane_rdma_scenario::model::Scenario;
use isolane_rdma_scenario::profile::Profile;

/// The least share, as a fraction of the link (the least bandwidth of enhanced transmission selection is 1 %).
const SHARE_MIN: u64 = 100;

/// Each tenant's share of one direction of the link.
pub(super) fn of_link(scenario: &Scenario, profile: &Profile) -> Vec<BitRate> {
    let link = BitRate::from_gbps_f64(profile.value("link", "rate_gbps")).as_bps();
    let tenants = &scenario.tenants;
    let guaranteed: u64 = tenants
        .iter()
        .filter_map(|tenant| tenant.guarantee.rate)
        .fold(0, |sum, rate| sum.saturating_add(rate.as_bps()));
    let rest = link.saturating_sub(guaranteed);
    let weights: u64 = tenants
        .iter()
        .filter(|tenant| tenant.guarantee.rate.is_none())
        .map(|tenant| u64::from(tenant.weight))
        .sum();
    let share = |tenant: &isolane_rdma_scenario::model::Tenant| {
        let bps = match tenant.guarantee.rate {
            Some(rate) => rate.as_bps().min(link),
            None => {
                let part = u128::from(rest) * u128::from(tenant.weight) / u128::from(weights);
                part as u64
            }
        };
        BitRate::from_bps(bps.max(link / SHARE_MIN))
    };
    tenants.iter().map(share).collect()
}

//! Allocations of an RDMA NIC: performance profiles checked against its capacity, and shares of the PCIe bus.
//!
//! A tenant's profile promises it bits per second of payload ("BPS") and normalised data requests per second
//! ("DRPS"). What no profile promises is split by weight among the tenants that say nothing. Profiles that add up
//! to more than the NIC has are refused with the sum.
//!
//! No tenant states its PCIe bandwidth, so it follows from the other resources by dominant resource fairness: a
//! tenant's dominant share is the larger of its parts of link rate and request capacity, and the bus is split in
//! proportion to dominant shares.
//!
//! Units: bits per second, requests per second; shares are fractions of [`SHARE_ONE`]. Divisions round down.
//! Source: harmonic 5.3 (table 5.1) and 5.5.1. The worked example there prints 2/3 for 15 of 25 Gb/s, which is
//! 3/5; the rule below follows the text, and gives the printed 4:3 for dominant shares of 2/3 and 1/2.

use isolane_common_quantities::units::{BitRate, Bytes};

/// A share of one.
pub const SHARE_ONE: u64 = 1 << 32;

/// What a NIC has to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Rate of the link.
    pub rate: BitRate,
    /// Normalised data requests per second.
    pub data_requests_per_s: u64,
    /// Rate of the PCIe bus, each direction.
    pub pcie_rate: BitRate,
}

/// What one tenant has been promised, and may not exceed (harmonic table 5.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerformanceProfile {
    /// The tenant's name, for messages.
    pub name: String,
    /// Its part of the capacity without a guarantee; at least 1.
    pub weight: u32,
    /// Payload per second.
    pub rate: Option<BitRate>,
    /// Normalised data requests per second.
    pub data_requests_per_s: Option<u64>,
    /// Who is slowed last when the NIC's caches are short: 0 before 1.
    pub priority: u8,
    /// Limits on control verbs.
    pub control: ControlProfile,
}

/// How many objects a tenant may have, and how often it may call control verbs; absent limits do not bind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlProfile {
    /// Queue pairs.
    pub queue_pairs: Option<u64>,
    /// Work queue entries of all queue pairs.
    pub work_requests: Option<u64>,
    /// Memory regions.
    pub memory_regions: Option<u64>,
    /// Completion queues.
    pub completion_queues: Option<u64>,
    /// Entries of all completion queues.
    pub completion_entries: Option<u64>,
    /// Bytes of all memory regions.
    pub region_bytes: Option<Bytes>,
    /// Control verbs per second.
    pub control_requests_per_s: Option<u64>,
}

/// Which resource a tenant has the largest part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dominant {
    /// Bits per second.
    Rate,
    /// Data requests per second.
    DataRequests,
}

/// What a tenant may use; every figure is above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Payload per second.
    pub rate: BitRate,
    /// Normalised data requests per second.
    pub data_requests_per_s: u64,
    /// PCIe bandwidth, each direction.
    pub pcie_rate: BitRate,
    /// Its dominant resource; the rate where both are equal.
    pub dominant: Dominant,
    /// Its dominant share, of [`SHARE_ONE`].
    pub share: u64,
    /// Who is slowed last when the NIC's caches are short.
    pub priority: u8,
}

/// Why profiles cannot be kept together.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum AllocationError {
    /// More was promised than there is.
    #[error(
        "guarantees of {what} add up to more than the NIC has: {sum} = {total} {unit}, the NIC has {capacity} {unit}: \
         lower them by {excess} {unit} in all"
    )]
    Exceeded {
        what: &'static str,
        sum: String,
        total: f64,
        capacity: f64,
        excess: f64,
        unit: &'static str,
    },
    /// The whole capacity is guaranteed, and a tenant without a guarantee has no share.
    #[error(
        "nothing is left for {tenant}: guarantees of {what} take all {capacity} {unit} of the NIC ({sum}): \
         lower one, or give {tenant} a guarantee of its own"
    )]
    NothingLeft {
        tenant: String,
        what: &'static str,
        sum: String,
        capacity: f64,
        unit: &'static str,
    },
    #[error("{what} of {tenant} is zero: give a positive value, or leave it out")]
    Zero { tenant: String, what: &'static str },
}

/// Splits a NIC among tenants. Fails if guarantees add up to more than the capacity, leave nothing for a tenant without
/// one, or are zero.
///
/// ```
/// use isolane_rdma_policy::harmonic::{Capacity, PerformanceProfile, allocate};
/// use isolane_common_quantities::units::BitRate;
/// let nic = Capacity {
///     rate: BitRate::from_gbps(25),
///     data_requests_per_s: 30_000_000,
///     pcie_rate: BitRate::from_gbps(32),
/// };
/// let tenant = |name: &str, gbps| PerformanceProfile {
///     name: name.to_owned(),
///     weight: 1,
///     rate: Some(BitRate::from_gbps(gbps)),
///     ..PerformanceProfile::default()
/// };
/// let error = allocate(&nic, &[tenant("alice", 10), tenant("bob", 20)]).unwrap_err();
/// assert!(error.to_string().contains("alice 10 + bob 20 = 30 Gb/s, the NIC has 25 Gb/s"));
/// ```
pub fn allocate(
    capacity: &Capacity,
    tenants: &[PerformanceProfile],
) -> Result<Vec<Allocation>, AllocationError> {
    if let Some(tenant) = tenants.iter().find(|tenant| tenant.weight == 0) {
        return Err(AllocationError::Zero {
            tenant: tenant.name.clone(),
            what: "the weight",
        });
    }
    let rates = split(&RATE, capacity.rate.as_bps(), tenants)?;
    let requests = split(&REQUESTS, capacity.data_requests_per_s, tenants)?;
    let part =
        |value: u64, all: u64| (u128::from(value) * u128::from(SHARE_ONE) / u128::from(all)) as u64;
    let mut allocations: Vec<Allocation> = tenants
        .iter()
        .zip(rates.iter().zip(&requests))
        .map(|(tenant, (&rate, &requests))| {
            let (of_rate, of_requests) = (
                part(rate, capacity.rate.as_bps()),
                part(requests, capacity.data_requests_per_s),
            );
            Allocation {
                rate: BitRate::from_bps(rate),
                data_requests_per_s: requests,
                pcie_rate: BitRate::ZERO,
                dominant: if of_requests > of_rate {
                    Dominant::DataRequests
                } else {
                    Dominant::Rate
                },
                share: of_rate.max(of_requests).max(1),
                priority: tenant.priority,
            }
        })
        .collect();
    let shares: Vec<u64> = allocations.iter().map(|one| one.share).collect();
    let all: u64 = shares.iter().sum();
    for (one, share) in allocations.iter_mut().zip(shares) {
        let bus = u128::from(capacity.pcie_rate.as_bps()) * u128::from(share) / u128::from(all);
        one.pcie_rate = BitRate::from_bps((bus as u64).max(1));
    }
    Ok(allocations)
}

/// A guarantee that is split.
struct Guaranteed {
    what: &'static str,
    unit: &'static str,
    /// How many of the profile's unit make one of the message's.
    scale: f64,
    of: fn(&PerformanceProfile) -> Option<u64>,
}

const RATE: Guaranteed = Guaranteed {
    what: "rate",
    unit: "Gb/s",
    scale: 1e9,
    of: |tenant| tenant.rate.map(BitRate::as_bps),
};
const REQUESTS: Guaranteed = Guaranteed {
    what: "data requests",
    unit: "M requests/s",
    scale: 1e6,
    of: |tenant| tenant.data_requests_per_s,
};

/// What each tenant gets of `capacity`: what it was promised, or its part by weight of what is left.
fn split(
    guaranteed: &Guaranteed,
    capacity: u64,
    tenants: &[PerformanceProfile],
) -> Result<Vec<u64>, AllocationError> {
    let (what, unit) = (guaranteed.what, guaranteed.unit);
    let number = |value: u128| value as f64 / guaranteed.scale;
    let promised = || {
        tenants
            .iter()
            .filter_map(|tenant| Some((tenant, (guaranteed.of)(tenant)?)))
    };
    if let Some((tenant, _)) = promised().find(|(_, value)| *value == 0) {
        return Err(AllocationError::Zero {
            tenant: tenant.name.clone(),
            what: "a guarantee",
        });
    }
    let total: u128 = promised().map(|(_, value)| u128::from(value)).sum();
    let sum = || {
        let terms: Vec<String> = promised()
            .map(|(tenant, value)| format!("{} {}", tenant.name, number(value.into())))
            .collect();
        terms.join(" + ")
    };
    let Some(left) = u128::from(capacity).checked_sub(total) else {
        return Err(AllocationError::Exceeded {
            what,
            sum: sum(),
            total: number(total),
            capacity: number(capacity.into()),
            excess: number(total - u128::from(capacity)),
            unit,
        });
    };
    let open = || tenants.iter().filter(|t| (guaranteed.of)(t).is_none());
    let weights: u128 = open().map(|tenant| u128::from(tenant.weight)).sum();
    tenants
        .iter()
        .map(|tenant| match (guaranteed.of)(tenant) {
            Some(value) => Ok(value),
            None => match (left * u128::from(tenant.weight) / weights) as u64 {
                0 => Err(AllocationError::NothingLeft {
                    tenant: tenant.name.clone(),
                    what,
                    sum: sum(),
                    capacity: number(capacity.into()),
                    unit,
                }),
                part => Ok(part),
            },
        })
        .collect()
}

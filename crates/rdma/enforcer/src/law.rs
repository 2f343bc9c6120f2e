//! Decides which tenant uses too much, with equation 5.1 on the counters that a host has.
//!
//! Problem: Harmonic's daemon reads 40 counters per tenant from a PCIe switch. Without the switch, a host knows bytes
//! and packets per *device*, and queue pairs per *tenant*. Method: a device's traffic counts as a tenant's own while no
//! other tenant has a queue pair on the device that can send. With a function or device per tenant (SR-IOV, one device
//! per container) this always holds; on a shared device it holds only while the tenant is alone.
//! [`isolane_rdma_policy::harmonic::Harmonic`] judges this own traffic. Traffic that several tenants can have sent is
//! reported with their names and not judged.
//!
//! Units: bytes, packets, picoseconds of a steady clock. Packets are reported and not judged, because one message can
//! take many packets. Source: harmonic 5.5.1. Limits: PCIe transactions and cache misses are not visible here, so the
//! parts of the policy that need them stay inactive.

use crate::error::EnforceError;
use isolane_common_quantities::units::{BitRate, Duration, Instant};
use isolane_rdma_policy::harmonic::statistics::{BusDirection, ObjectKind, TenantStatistics};
use isolane_rdma_policy::harmonic::{
    Batch, BusFormat, Capacity, Harmonic, HarmonicOptions, PerformanceProfile, RequestCosts,
    allocate,
};
use isolane_rdma_scenario::enforcement::{EnforcedTenant, NicCapacity};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Poll interval: the default refresh time of hardware counters (`lifespan` in sysfs). More frequent polls read
/// unchanged values.
pub const POLL: Duration = Duration::from_ms(10);

/// Traffic of one device since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// RDMA bytes sent.
    pub sent_bytes: u64,
    /// RDMA bytes received.
    pub received_bytes: u64,
    /// RDMA packets sent.
    pub sent_packets: u64,
    /// RDMA packets received.
    pub received_packets: u64,
}

/// Result of one poll: each device's traffic since the last poll and the places that could send there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// By device.
    pub devices: BTreeMap<String, (Traffic, BTreeSet<usize>)>,
}

/// Traffic of one tenant so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Use {
    /// Traffic of devices on which only this tenant could send.
    pub own: Traffic,
    /// Traffic of devices on which other tenants could send too: an upper bound of this tenant's share.
    pub shared: Traffic,
}

/// The policy state for the tenants of one file.
#[derive(Debug)]
pub struct Law {
    harmonic: Option<Harmonic>,
    uses: Vec<Use>,
    statistics: Vec<TenantStatistics>,
    began: bool,
}

impl Law {
    /// Takes the tenants in the file's order. Without a capacity no tenant is judged. Fails for guarantees that add up
    /// to more than the capacity.
    pub fn new(
        tenants: &[EnforcedTenant],
        capacity: Option<NicCapacity>,
    ) -> Result<Self, EnforceError> {
        let harmonic = match capacity {
            None => None,
            Some(capacity) => Some(judge(tenants, capacity)?),
        };
        Ok(Self {
            harmonic,
            uses: vec![Use::default(); tenants.len()],
            statistics: vec![TenantStatistics::default(); tenants.len()],
            began: false,
        })
    }

    /// Accounts for `seen` up to `now`. Returns the batches of notifications that are due.
    pub fn poll(&mut self, now: Instant, seen: &Seen) -> Vec<Batch> {
        for (traffic, holders) in seen.devices.values() {
            let tenants = self.uses.len();
            let listed = holders.iter().copied().filter(|place| *place < tenants);
            let alone = holders.len() == 1;
            if let (true, Some(place)) = (alone, listed.clone().next()) {
                self.uses[place].own.add(traffic);
                let statistics = &mut self.statistics[place];
                let payload = ObjectKind::PrivateMemory;
                // Only bytes: packets are not bus transactions.
                statistics.add(payload, BusDirection::ToNic, 0, traffic.sent_bytes);
                statistics.add(payload, BusDirection::ToHost, 0, traffic.received_bytes);
            } else {
                listed.for_each(|place| self.uses[place].shared.add(traffic));
            }
        }
        let Some(harmonic) = &mut self.harmonic else {
            return Vec::new();
        };
        if !self.began {
            harmonic.begin(now, &self.statistics);
            self.began = true;
            return Vec::new();
        }
        harmonic.poll(now, &self.statistics);
        std::iter::from_fn(|| harmonic.poll_action()).collect()
    }

    /// Traffic of the tenant at `place`.
    pub fn used(&self, place: usize) -> &Use {
        &self.uses[place]
    }

    /// The rate that the tenant may send or receive at; `None` without a capacity.
    pub fn allowed(&self, place: usize) -> Option<BitRate> {
        Some(self.harmonic.as_ref()?.allocation(place).rate)
    }

    /// Number of batches so far, and notifications per sender in them.
    pub fn batches(&self, place: usize) -> (u64, u64) {
        self.harmonic
            .as_ref()
            .map_or((0, 0), |harmonic| harmonic.counts(place))
    }
}

impl Traffic {
    pub(crate) fn add(&mut self, more: &Self) {
        self.sent_bytes = self.sent_bytes.saturating_add(more.sent_bytes);
        self.received_bytes = self.received_bytes.saturating_add(more.received_bytes);
        self.sent_packets = self.sent_packets.saturating_add(more.sent_packets);
        self.received_packets = self.received_packets.saturating_add(more.received_packets);
    }
}

fn judge(tenants: &[EnforcedTenant], nic: NicCapacity) -> Result<Harmonic, EnforceError> {
    let profiles: Vec<PerformanceProfile> = tenants
        .iter()
        .map(|tenant| PerformanceProfile {
            name: tenant.name.clone(),
            weight: tenant.weight,
            rate: tenant.guarantee.rate,
            data_requests_per_s: tenant.guarantee.data_requests_per_s,
            priority: tenant.guarantee.priority,
            ..PerformanceProfile::default()
        })
        .collect();
    let capacity = Capacity {
        rate: nic.rate,
        data_requests_per_s: nic.data_requests_per_s,
        // Unreachable: bus transactions are not visible here.
        pcie_rate: BitRate::from_bps(nic.rate.as_bps().saturating_mul(64)),
    };
    let refused = |error: String| EnforceError::BadInput(error);
    let allocations = allocate(&capacity, &profiles).map_err(|error| refused(error.to_string()))?;
    let format = BusFormat {
        payload_max: u64::MAX,
        header: 0,
        work_request: 64,
        receive: 16,
    };
    let mut options = HarmonicOptions::published(RequestCosts::CONNECTX_6_DX, format, u64::MAX);
    // The published times are below the counters' refresh time. Both are scaled; their ratio stays.
    options.poll = POLL;
    options.t_min = Duration::from_ps(POLL.as_ps() * 2);
    options.t_basic = Duration::from_ps(POLL.as_ps() * 5);
    Harmonic::new(options, capacity, allocations).map_err(|error| refused(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_rdma_policy::harmonic::Reason;
    use isolane_rdma_scenario::enforcement::parse;

    const TEXT: &str = r#"
        [capacity]
        rate = "10Gb/s"
        [[tenant]]
        name = "a"
        guarantee = { rate = "4Gb/s" }
        [[tenant]]
        name = "b"
    "#;

    fn law() -> Law {
        let file = parse(TEXT, "p.toml").unwrap();
        Law::new(&file.tenants, file.capacity).unwrap()
    }

    /// `bytes` sent on one device while `holders` can send there.
    fn seen(bytes: u64, holders: &[usize]) -> Seen {
        let traffic = Traffic {
            sent_bytes: bytes,
            ..Traffic::default()
        };
        Seen {
            devices: [("d".to_owned(), (traffic, holders.iter().copied().collect()))].into(),
        }
    }

    /// Polls every 10 ms for one second with `bytes` each. Returns the number of batches per tenant.
    fn second(law: &mut Law, bytes: u64, holders: &[usize]) -> Vec<Batch> {
        let seen = seen(bytes, holders);
        let poll = |step| law.poll(Instant::from_ps(POLL.as_ps() * step), &seen);
        (1..=100).flat_map(poll).collect()
    }

    #[test]
    fn a_tenant_alone_on_its_device_is_held_to_its_guarantee() {
        // 5 MB in 10 ms are 4 Gb/s.
        assert_eq!(second(&mut law(), 5_000_000, &[0]), []);
        let batches = second(&mut law(), 10_000_000, &[0]);
        // Twice the allowed rate: T_i is T_min, 20 ms; 99 polls of 10 ms follow the first.
        assert_eq!(batches.len(), 49);
        assert!(
            batches
                .iter()
                .all(|batch| batch.tenant == 0 && batch.reason == Reason::Rate)
        );
    }

    #[test]
    fn a_slight_excess_is_notified_less_often_than_a_large_one() {
        // 10 % above the allowed rate: T_i is 45 ms, seen at 50 ms.
        let batches = second(&mut law(), 5_500_000, &[0]);
        assert_eq!(batches.len(), 19);
        // In 50 ms the senders' alpha falls from 1 to 0.03, so a later notification cuts a rate by 1.5 % only.
        let notifications: Vec<u32> = batches.iter().map(|batch| batch.notifications).collect();
        assert_eq!(notifications[0], 1);
        assert!(notifications[1..].iter().all(|&count| count == 4));
    }

    #[test]
    fn an_object_of_two_tenants_is_reported_and_judged_for_none() {
        let mut law = law();
        assert_eq!(second(&mut law, 100_000_000, &[0, 1]), []);
        assert_eq!(law.used(0).own, Traffic::default());
        assert_eq!(law.used(0).shared.sent_bytes, 100 * 100_000_000);
        assert_eq!(law.used(0), law.used(1));
    }

    #[test]
    fn an_unlisted_sender_beside_a_tenant_makes_its_figures_shared() {
        let mut law = law();
        assert_eq!(second(&mut law, 100_000_000, &[0, 2]), []);
        assert_eq!(law.used(0).own.sent_bytes, 0);
    }

    #[test]
    fn the_silent_tenant_gets_the_capacity_without_a_guarantee() {
        let law = law();
        assert_eq!(law.allowed(0), Some(BitRate::from_gbps(4)));
        assert_eq!(law.allowed(1), Some(BitRate::from_gbps(6)));
    }

    #[test]
    fn promises_beyond_the_nic_are_refused_with_the_sum() {
        let text = TEXT.replace("4Gb/s", "40Gb/s");
        let file = parse(&text, "p.toml").unwrap();
        let error = Law::new(&file.tenants, file.capacity).unwrap_err();
        assert!(error.to_string().contains("40"), "{error}");
        assert!(error.is_bad_input());
    }

    #[test]
    fn without_a_capacity_no_tenant_is_judged() {
        let file = parse("[[tenant]]\nname = \"a\"", "p.toml").unwrap();
        let mut law = Law::new(&file.tenants, file.capacity).unwrap();
        assert_eq!(second(&mut law, u64::MAX / 1_000, &[0]), []);
        assert_eq!(law.allowed(0), None);
    }
}

//! Who uses too much, and what is done about it: equation 5.1 on the counters that a host really has.
//!
//! Problem: Harmonic's daemon reads 40 counters per tenant from a PCIe switch. Without it, a host knows per *device* how
//! many bytes and packets went, and per *tenant* which queue pairs it holds. Method: a device's counters are a tenant's
//! when no other tenant has a queue pair there that can send: with a function or a device of its own (SR-IOV, one device
//! per container) always, on a shared device only while it is alone. Such exact figures go, as payload, into
//! [`isolane_rdma_policy::harmonic::Harmonic`], unchanged; what is shared between several tenants is reported with
//! their names and judged by nobody.
//!
//! Units: bytes, packets, picoseconds of a steady clock. A packet stands for a request where messages fit one packet;
//! otherwise it counts too much, so packets are reported and not judged. Source: harmonic 5.5.1. Limits: nothing here
//! sees PCIe transactions or cache misses; those parts of the policy stay at rest.

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

/// Hardware counters are refreshed this often by default (`lifespan` of sysfs): polls in between see the same numbers, and
/// means over less say nothing.
pub const POLL: Duration = Duration::from_ms(10);

/// What moved on one device since the start.
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

/// What was seen in one poll: per device what moved since the last one, and who could send there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// By device.
    pub devices: BTreeMap<String, (Traffic, BTreeSet<usize>)>,
}

/// A tenant's figures so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Use {
    /// Traffic that is this tenant's alone.
    pub own: Traffic,
    /// Traffic of devices while others could send there as well: at most so much is this tenant's.
    pub shared: Traffic,
}

/// The law for the tenants of one file.
#[derive(Debug)]
pub struct Law {
    harmonic: Option<Harmonic>,
    uses: Vec<Use>,
    statistics: Vec<TenantStatistics>,
    began: bool,
}

impl Law {
    /// For tenants in this order; without a capacity nobody is judged.
    ///
    /// # Errors
    /// Guarantees that add up to more than the capacity.
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

    /// Takes what was seen up to `now`; the batches of notifications that are due.
    pub fn poll(&mut self, now: Instant, seen: &Seen) -> Vec<Batch> {
        for (traffic, holders) in seen.devices.values() {
            let tenants = self.uses.len();
            let listed = holders.iter().copied().filter(|place| *place < tenants);
            let alone = holders.len() == 1;
            if let (true, Some(place)) = (alone, listed.clone().next()) {
                self.uses[place].own.add(traffic);
                let statistics = &mut self.statistics[place];
                let payload = ObjectKind::PrivateMemory;
                // Bytes alone: packets are no bus transactions.
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

    /// A tenant's figures.
    pub fn used(&self, place: usize) -> &Use {
        &self.uses[place]
    }

    /// What a tenant may send or receive; none where nobody is judged.
    pub fn allowed(&self, place: usize) -> Option<BitRate> {
        Some(self.harmonic.as_ref()?.allocation(place).rate)
    }

    /// Batches of notifications so far, and notifications per sender in them.
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
        // Never reached: the bus is not seen here.
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
    // The published times are below the counters' refresh; their ratio is kept.
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

    /// `bytes` sent on one device by whoever is in `holders`.
    fn seen(bytes: u64, holders: &[usize]) -> Seen {
        let traffic = Traffic {
            sent_bytes: bytes,
            ..Traffic::default()
        };
        Seen {
            devices: [("d".to_owned(), (traffic, holders.iter().copied().collect()))].into(),
        }
    }

    /// Polls every 10 ms for a second, `bytes` each; how many batches came for whom.
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
        // Twice as much: T_i is T_min, 20 ms, and 99 polls of 10 ms follow the first.
        assert_eq!(batches.len(), 49);
        assert!(
            batches
                .iter()
                .all(|batch| batch.tenant == 0 && batch.reason == Reason::Rate)
        );
    }

    #[test]
    fn a_slight_excess_is_told_of_less_often_than_a_large_one() {
        // 10 % too much: T_i is 45 ms, seen at 50.
        let batches = second(&mut law(), 5_500_000, &[0]);
        assert_eq!(batches.len(), 19);
        assert!(batches.iter().all(|batch| batch.notifications == 1));
    }

    #[test]
    fn what_two_tenants_share_is_told_of_and_judged_by_nobody() {
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
    fn the_silent_tenant_gets_what_nobody_was_promised() {
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
    fn without_a_capacity_nobody_is_judged() {
        let file = parse("[[tenant]]\nname = \"a\"", "p.toml").unwrap();
        let mut law = Law::new(&file.tenants, file.capacity).unwrap();
        assert_eq!(second(&mut law, u64::MAX / 1_000, &[0]), []);
        assert_eq!(law.allowed(0), None);
    }
}

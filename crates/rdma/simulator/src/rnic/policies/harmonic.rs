//! Harmonic: allocations from the tenants' guarantees, and the daemon's settings for the device.

use super::{SimError, parameter};
use crate::rnic::sizes::RECEIVE_WQE_BYTES;
use isolane_common_quantities::units::{BitRate, Duration};
use isolane_rdma_policy::harmonic::{
    Allocation, BusFormat, Capacity, ControlProfile, Harmonic, HarmonicOptions, PerformanceProfile,
    Reaction, RequestCosts, allocate,
};
use isolane_rdma_scenario::model::{Scenario, Tenant};
use isolane_rdma_scenario::profile::Profile;

/// Caches count as contended when misses keep half of the fewer miss slots busy.
const SEVERE: f64 = 0.5;
/// The switch's search for one address: 7 cycles at 250 MHz (harmonic 5.4.4).
const SEARCH_NS: f64 = 28.0;

/// What all hosts' daemons and drivers start with.
#[derive(Clone, Debug)]
pub(crate) struct HarmonicSetup {
    options: HarmonicOptions,
    capacity: Capacity,
    allocations: Vec<Allocation>,
    /// Each tenant's limits on control verbs.
    pub(crate) control: Vec<ControlProfile>,
    /// The CPU's read of one counter: a round trip over the bus, like a DMA read's, and the search in the switch.
    pub(crate) counter_read: Duration,
}

impl HarmonicSetup {
    /// # Errors
    /// When guarantees cannot be kept together, or parameters cannot work.
    pub(super) fn of(scenario: &Scenario, profile: &Profile) -> Result<Self, SimError> {
        let spec = &scenario.policy;
        let us = |name: &str, default: f64| {
            Duration::from_ns_f64(parameter(spec, name).unwrap_or(default) * 1e3)
        };
        let format = BusFormat {
            payload_max: profile.value("pcie", "payload_max_bytes") as u64,
            header: profile.value("pcie", "tlp_bytes") as u64,
            work_request: profile.value("wqe", "bytes") as u64,
            receive: RECEIVE_WQE_BYTES,
        };
        let misses = parameter(spec, "cache_misses_per_s").unwrap_or_else(|| severe(profile));
        let published = HarmonicOptions::published(costs(profile), format, misses as u64);
        let most = parameter(spec, "notifications_per_batch");
        let options = HarmonicOptions {
            t_basic: us("t_basic_us", published.t_basic.as_us_f64()),
            t_min: us("t_min_us", published.t_min.as_us_f64()),
            poll: us("poll_us", published.poll.as_us_f64()),
            explicit_rate: parameter(spec, "explicit_rate") == Some(1.0),
            notifications_max: most.map_or(published.notifications_max, |most| most as u32),
            reaction: Reaction {
                shift: profile.value("congestion", "alpha_shift") as u32,
                period: Duration::from_ns_f64(profile.value("congestion", "alpha_us") * 1e3),
            },
            ..published
        };
        options.check().map_err(|problem| SimError::Parameters {
            name: spec.name.clone(),
            problem,
        })?;
        let capacity = Capacity {
            rate: BitRate::from_gbps_f64(profile.value("link", "rate_gbps")),
            data_requests_per_s: (profile.value("justitia", "message_rate_max_mps") * 1e6) as u64,
            pcie_rate: BitRate::from_gbps_f64(profile.pcie_transaction_gbps()),
        };
        let profiles: Vec<PerformanceProfile> = scenario.tenants.iter().map(promised).collect();
        let allocations = allocate(&capacity, &profiles)
            .map_err(|error| SimError::Guarantees(Box::new(error)))?;
        let (read, jitter) = (
            profile.value("pcie", "read_ns"),
            profile.value("pcie", "jitter_ns"),
        );
        Ok(Self {
            options,
            capacity,
            allocations,
            control: profiles.into_iter().map(|one| one.control).collect(),
            counter_read: Duration::from_ns_f64(read + jitter / 2.0 + SEARCH_NS),
        })
    }

    /// A fresh daemon for one host.
    pub(crate) fn daemon(&self) -> Harmonic {
        Harmonic::new(
            self.options.clone(),
            self.capacity,
            self.allocations.clone(),
        )
        .expect("options are checked when the setup is made")
    }
}

/// What requests cost, from the profile, in thousandths of a WRITE.
fn costs(profile: &Profile) -> RequestCosts {
    let cost = |name: &str| {
        (profile.value("harmonic", name) * f64::from(RequestCosts::UNIT)).round() as u32
    };
    RequestCosts {
        write: RequestCosts::UNIT,
        send: cost("send_cost"),
        read: cost("read_cost"),
        atomic: cost("atomic_cost"),
    }
}

/// Metadata reads per second that keep so many miss slots busy.
fn severe(profile: &Profile) -> f64 {
    let slots = |name: &str| profile.value("cache", name);
    let fewer = slots("context_miss_slots").min(slots("translation_miss_slots"));
    SEVERE * fewer * 1e9 / slots("miss_ns")
}

fn promised(tenant: &Tenant) -> PerformanceProfile {
    let guarantee = &tenant.guarantee;
    PerformanceProfile {
        name: tenant.name.clone(),
        weight: tenant.weight,
        rate: guarantee.rate,
        data_requests_per_s: guarantee.data_requests_per_s,
        priority: guarantee.priority,
        control: ControlProfile {
            queue_pairs: guarantee.queue_pairs,
            work_requests: guarantee.work_requests,
            memory_regions: guarantee.memory_regions,
            completion_queues: guarantee.completion_queues,
            completion_entries: guarantee.completion_entries,
            region_bytes: guarantee.region_bytes,
            control_requests_per_s: guarantee.control_requests_per_s,
        },
    }
}

//! The plainest policy, tenant, traffic and scenario: code that builds a scenario names only what differs from them.

use crate::model::{
    Arrival, Class, DataTraffic, Guarantee, MemoryPlace, Message, PolicySpec, Scenario, Slo,
    Tenant, Topology, Transport, Verb,
};
use isolane_common_quantities::units::{Bytes, Duration};
use std::collections::BTreeMap;

/// RNR timer code of perftest: 0.64 ms.
pub(crate) const RNR_TIMER: u8 = 12;

impl PolicySpec {
    /// The policy `name` with its default parameters.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            parameters: BTreeMap::new(),
        }
    }
}

impl Tenant {
    /// A tenant of weight 1 without a guarantee or an objective; it runs nothing, from the start to the end.
    pub fn named(name: impl Into<String>, class: Class) -> Self {
        Self {
            name: name.into(),
            class,
            weight: 1,
            guarantee: Guarantee::default(),
            slo: Slo::default(),
            start: Duration::ZERO,
            stop: None,
            workloads: Vec::new(),
        }
    }
}

impl DataTraffic {
    /// One queue pair that keeps `depth` messages like `message` outstanding, from one region of host memory to another.
    /// Every message has its own doorbell, completion and receive. The path MTU is 4,096 B.
    pub fn plain(verb: Verb, transport: Transport, message: Message, depth: u32) -> Self {
        Self {
            verb,
            transport,
            queue_pairs: 1,
            post_list: 1,
            depth,
            completion_every: 1,
            receive_depth: 1,
            receive_batch: 1,
            min_rnr_timer: RNR_TIMER,
            max_read_atomic: 1,
            inline_bytes: 0,
            mtu: 4096,
            memory_regions: 1,
            region_bytes: Bytes::new(message.bytes().get().max(4096)),
            pattern: vec![message],
            arrival: Arrival::Closed {
                think: Duration::ZERO,
            },
            weight: 1,
            bidirectional: false,
            iterations: None,
            memory: MemoryPlace::Local,
            remote_memory: MemoryPlace::Local,
        }
    }
}

impl Scenario {
    /// `tenants` on one switch without a policy, on the device `profile`: measured from the start for `duration`, as one
    /// point, with seed 1.
    pub fn plain(
        name: impl Into<String>,
        profile: &str,
        duration: Duration,
        tenants: Vec<Tenant>,
    ) -> Self {
        Self {
            name: name.into(),
            description: String::new(),
            profile: profile.to_owned(),
            topology: Topology::Switch,
            network: None,
            warmup: Duration::ZERO,
            duration,
            seed: 1,
            sample_interval: duration,
            policy: PolicySpec::named("none"),
            tenants,
        }
    }
}

//! What traffic cannot do: limits of the verbs, of the queues, and of the device.
//!
//! The rules are stated once, for traffic written in full and for command lines alike. A rule names the invalid key;
//! the caller knows the line of that key.

use crate::model::{
    ATOMIC_BYTES, Arrival, Class, DataTraffic, MESSAGE_MAX, MTUS, Scenario, Traffic, Transport,
    Verb,
};
use crate::profile::{LinkLayer, Profile};
use isolane_common_quantities::units::Bytes;
use isolane_common_toml_input::error::{InputError, Problem};

/// What a device allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Default path MTU, bytes.
    pub mtu_default: u32,
    /// Largest path MTU, bytes.
    pub mtu_max: u32,
    /// Largest payload inside a work request, bytes.
    pub inline_max: u32,
    /// Whether the device has RDMA atomics.
    pub atomics: bool,
    /// What the link carries.
    pub link_layer: LinkLayer,
}

impl DeviceLimits {
    /// A device that allows everything, to check texts that no device has been chosen for.
    pub const PERMISSIVE: Self = Self {
        mtu_default: 4096,
        mtu_max: 4096,
        inline_max: 1024,
        atomics: true,
        link_layer: LinkLayer::Roce,
    };

    /// What `profile` allows.
    pub fn of(profile: &Profile) -> Self {
        let whole = |section, name| profile.value(section, name).clamp(0.0, 65_536.0) as u32;
        Self {
            mtu_default: whole("link", "mtu_default_bytes"),
            mtu_max: whole("link", "mtu_max_bytes"),
            inline_max: whole("wqe", "inline_max_bytes"),
            atomics: profile.atomics,
            link_layer: profile.link_layer,
        }
    }
}

/// A broken rule: which key, its value, and what it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The key of `[[tenant.traffic]]`.
    pub(crate) key: &'static str,
    pub(crate) value: String,
    /// What it must be, and why.
    pub(crate) expected: String,
}

fn fault(
    key: &'static str,
    value: impl ToString,
    expected: impl Into<String>,
) -> Result<(), Fault> {
    Err(Fault {
        key,
        value: value.to_string(),
        expected: expected.into(),
    })
}

/// Checks `scenario` against the device it names. The error is the first thing that the device cannot do, without a
/// line, because the scenario may have no file.
pub fn check_against(scenario: &Scenario, profile: &Profile) -> Result<(), InputError> {
    let limits = DeviceLimits::of(profile);
    for tenant in &scenario.tenants {
        for workload in &tenant.workloads {
            let Traffic::Data(traffic) = &workload.traffic else {
                continue;
            };
            traffic_allowed(traffic, &limits).map_err(|fault| InputError {
                file: scenario.name.clone(),
                line: None,
                place: Some(format!("tenant \"{}\"", tenant.name)),
                problem: Box::new(Problem::value(fault.key, fault.value, fault.expected)),
            })?;
        }
    }
    Ok(())
}

/// Checks everything about one process's traffic.
pub(crate) fn traffic_allowed(traffic: &DataTraffic, limits: &DeviceLimits) -> Result<(), Fault> {
    verb_allowed(traffic, limits)?;
    packets_allowed(traffic, limits)?;
    queues_allowed(traffic)?;
    arrival_allowed(traffic)
}

fn largest(traffic: &DataTraffic) -> Bytes {
    let sizes = traffic.pattern.iter().map(|message| message.bytes());
    sizes.max().unwrap_or(Bytes::ZERO)
}

fn verb_allowed(traffic: &DataTraffic, limits: &DeviceLimits) -> Result<(), Fault> {
    let verb = traffic.verb.name();
    let atomic = matches!(traffic.verb, Verb::FetchAdd | Verb::CompareSwap);
    match (traffic.verb, traffic.transport) {
        (Verb::Send, _) | (_, Transport::Rc) | (Verb::Write, Transport::Uc) => {}
        (Verb::Write, Transport::Ud) => {
            return fault("transport", "\"ud\"", "WRITE must use \"rc\" or \"uc\"");
        }
        (_, Transport::Uc) => {
            return fault("transport", "\"uc\"", format!("{verb} must use \"rc\""));
        }
        (_, Transport::Ud) => {
            return fault("transport", "\"ud\"", format!("{verb} must use \"rc\""));
        }
    }
    if limits.link_layer == LinkLayer::Iwarp && traffic.transport != Transport::Rc {
        return fault(
            "transport",
            format!("{:?}", traffic.transport).to_lowercase(),
            "iWARP has reliable connections only: must be \"rc\"",
        );
    }
    if atomic && !limits.atomics {
        return fault("verb", verb, "the device of this profile has no atomics");
    }
    for message in &traffic.pattern {
        if atomic && message.elements != [ATOMIC_BYTES as u32] {
            return fault(
                "size",
                message.bytes(),
                "an atomic must be 8 bytes in one element",
            );
        }
    }
    Ok(())
}

fn packets_allowed(traffic: &DataTraffic, limits: &DeviceLimits) -> Result<(), Fault> {
    if !MTUS.contains(&traffic.mtu) {
        let why = match limits.link_layer {
            LinkLayer::Roce => "RoCE (1500 is the Ethernet MTU; RoCE then uses 1024)",
            LinkLayer::Infiniband => "InfiniBand (1500 is an Ethernet MTU)",
            LinkLayer::Iwarp => "this model",
        };
        return fault(
            "mtu",
            traffic.mtu,
            format!("must be 256, 512, 1024, 2048 or 4096: there is no other path MTU on {why}"),
        );
    }
    if traffic.mtu > limits.mtu_max {
        return fault(
            "mtu",
            traffic.mtu,
            format!("must be at most {}, the profile's limit", limits.mtu_max),
        );
    }
    let largest = largest(traffic);
    if largest > MESSAGE_MAX {
        return fault("size", largest, format!("must be at most {MESSAGE_MAX}"));
    }
    if traffic.transport == Transport::Ud && largest.get() > u64::from(traffic.mtu) {
        return fault(
            "size",
            largest,
            format!(
                "a UD message must fit one packet: at most the MTU, {}",
                traffic.mtu
            ),
        );
    }
    if traffic.inline_bytes > limits.inline_max {
        return fault(
            "inline",
            traffic.inline_bytes,
            format!("must be 0 to {}, the profile's limit", limits.inline_max),
        );
    }
    if traffic.inline_bytes > 0 && !matches!(traffic.verb, Verb::Write | Verb::Send) {
        return fault(
            "inline",
            traffic.inline_bytes,
            format!(
                "{} carries no payload to the NIC: must be 0",
                traffic.verb.name()
            ),
        );
    }
    let element = traffic
        .pattern
        .iter()
        .flat_map(|message| &message.elements)
        .max();
    if element.is_some_and(|&bytes| u64::from(bytes) > traffic.region_bytes.get()) {
        return fault(
            "region",
            traffic.region_bytes,
            "must hold the largest element of the pattern",
        );
    }
    Ok(())
}

fn queues_allowed(traffic: &DataTraffic) -> Result<(), Fault> {
    if traffic.post_list > traffic.depth {
        return fault(
            "depth",
            traffic.depth,
            format!(
                "must be at least post_list, {}: a list has to fit the queue",
                traffic.post_list
            ),
        );
    }
    if traffic.completion_every > traffic.depth {
        return fault(
            "completion_every",
            traffic.completion_every,
            format!(
                "must be at most depth, {}: the queue fills before a completion, for ever",
                traffic.depth
            ),
        );
    }
    if traffic.verb != Verb::Send {
        return Ok(());
    }
    if traffic.receive_batch > traffic.receive_depth {
        return fault(
            "receive_batch",
            traffic.receive_batch,
            format!("must be at most receive_depth, {}", traffic.receive_depth),
        );
    }
    let never = traffic.receive_batch == 0;
    if never && traffic.iterations.is_some() {
        return fault(
            "receive_batch",
            0,
            "no receive is ever posted, so that iterations can never be reached: must be at least 1, or drop iterations",
        );
    }
    if never && traffic.arrival == Arrival::PingPong {
        return fault(
            "receive_batch",
            0,
            "a ping-pong is never answered: must be at least 1",
        );
    }
    Ok(())
}

fn arrival_allowed(traffic: &DataTraffic) -> Result<(), Fault> {
    if traffic.arrival != Arrival::PingPong {
        return Ok(());
    }
    if !matches!(traffic.verb, Verb::Write | Verb::Send) {
        return fault(
            "arrival",
            "\"ping-pong\"",
            format!(
                "{} needs no answer: must be \"closed\" with depth = 1",
                traffic.verb.name()
            ),
        );
    }
    if traffic.bidirectional {
        return fault(
            "bidirectional",
            true,
            "a ping-pong goes both ways already: must be false",
        );
    }
    if traffic.depth != 1 || traffic.post_list != 1 {
        return fault(
            "depth",
            traffic.depth,
            "a ping-pong has one message at a time: must be 1",
        );
    }
    Ok(())
}

/// The class of traffic that says nothing of itself: many small messages in lists want messages per second, all
/// else wants bits per second (the rule of Justitia's public code).
pub(crate) fn class_of(traffic: &Traffic) -> Class {
    /// Messages up to this size in long lists count as small, bytes.
    const SMALL_MAX: u64 = 1024;
    /// Shortest long list.
    const LIST_MIN: u32 = 16;
    match traffic {
        Traffic::Control(_) | Traffic::Application(_) => Class::Auto,
        Traffic::Data(data) if largest(data).get() <= SMALL_MAX && data.post_list >= LIST_MIN => {
            Class::Throughput
        }
        Traffic::Data(_) => Class::Bandwidth,
    }
}

//! Parameters of a network's transports and policies, in one place for the parser, the schema and the manual.
//!
//! Each is a number whose unit ends its name; the value in brackets is the default. The simulator reads every one that
//! is listed: one that nothing reads must not be here, for it would be accepted and do nothing.

use super::model::{Congestion, FabricPolicyKind};
use crate::policy_parts::{PolicyParameter, parameter};

/// Spelling of every congestion control, in the order of [`Congestion`].
pub const CONGESTION: &[&str] = &[
    "none", "window", "swift", "dcqcn", "dctcp", "timely", "hpcc",
];

/// Spelling of every policy, in the order of [`FabricPolicyKind`].
pub const POLICY: &[&str] = &[
    "none", "aequitas", "spq", "pfabric", "qjump", "d3", "pdq", "homa",
];

/// What each policy does, in the order of [`POLICY`].
pub const POLICY_ABOUT: &[&str] = &[
    "calls run in the class that they ask for",
    "admission by measured latency: calls beyond what a class can keep run in the lowest one",
    "strict priority between the classes instead of the ports' scheduler",
    "shortest remaining first in the network, small buffers, hosts at line rate",
    "the higher the level, the lower the rate a host may send in it, so that it cannot queue",
    "rates reserved at switches for deadlines, first come first served",
    "flows pre-empt each other by deadline, decided at switches",
    "receivers grant, and choose priorities by what remains",
];

/// Parameters of a congestion control.
pub fn congestion(kind: Congestion) -> &'static [PolicyParameter] {
    match kind {
        Congestion::None => &[],
        Congestion::Window => WINDOW,
        Congestion::Swift => SWIFT,
        Congestion::Dcqcn => DCQCN,
        Congestion::Dctcp => DCTCP,
        Congestion::Timely => TIMELY,
        Congestion::Hpcc => HPCC,
    }
}

/// Parameters of a policy.
pub fn policy(kind: FabricPolicyKind) -> &'static [PolicyParameter] {
    match kind {
        FabricPolicyKind::None | FabricPolicyKind::Spq => &[],
        FabricPolicyKind::Aequitas => AEQUITAS,
        FabricPolicyKind::Pfabric => PFABRIC,
        FabricPolicyKind::Qjump => QJUMP,
        FabricPolicyKind::D3 => D3,
        FabricPolicyKind::Pdq => PDQ,
        FabricPolicyKind::Homa => HOMA,
    }
}

/// The lists of every congestion control.
pub(crate) fn every_congestion() -> impl Iterator<Item = &'static [PolicyParameter]> {
    [WINDOW, SWIFT, DCQCN, DCTCP, TIMELY, HPCC].into_iter()
}

/// The lists of every policy.
pub(crate) fn every_policy() -> impl Iterator<Item = &'static [PolicyParameter]> {
    [AEQUITAS, PFABRIC, QJUMP, D3, PDQ, HOMA].into_iter()
}

/// The parameter that `word` names in the scenario's policy or transport.
pub fn describe(list: &'static [PolicyParameter], word: &str) -> Option<&'static PolicyParameter> {
    list.iter().find(|parameter| parameter.name == word)
}

const PACKETS: (f64, f64) = (0.001, 1e6);
const MICROSECONDS: (f64, f64) = (0.001, 1e6);
const PART: (f64, f64) = (0.0, 1.0);

const RTO: PolicyParameter = parameter(
    "rto_us",
    MICROSECONDS,
    "silence after which unacknowledged packets are sent again",
);

const WINDOW: &[PolicyParameter] = &[
    parameter(
        "window_packets",
        (1.0, 1e6),
        "packets in flight per channel",
    ),
    RTO,
];

const SWIFT: &[PolicyParameter] = &[
    parameter("target_us", MICROSECONDS, "round-trip time aimed at (10)"),
    parameter(
        "increase_packets",
        PACKETS,
        "what a round trip under the target adds (1)",
    ),
    parameter(
        "decrease",
        PART,
        "how hard a delay over the target is answered (0.8)",
    ),
    parameter(
        "decrease_max",
        PART,
        "most that one answer takes off the window (0.5)",
    ),
    parameter("window_start_packets", PACKETS, "window at the start (2)"),
    parameter("window_max_packets", PACKETS, "largest window (30)"),
    parameter("window_min_packets", PACKETS, "smallest window (1)"),
    RTO,
];

const DCQCN: &[PolicyParameter] = &[
    parameter(
        "cnp_interval_us",
        MICROSECONDS,
        "least time between notifications (50)",
    ),
    parameter(
        "alpha_timer_us",
        MICROSECONDS,
        "time after which alpha decays (55)",
    ),
    parameter(
        "alpha_gain",
        PART,
        "weight of a new observation in alpha (1/256)",
    ),
    parameter(
        "increase_timer_us",
        MICROSECONDS,
        "time between increases (55)",
    ),
    parameter(
        "increase_bytes",
        (1.0, 1e12),
        "bytes between increases (10 MB)",
    ),
    parameter(
        "fast_recovery_steps",
        (1.0, 100.0),
        "increases that only halve the distance (5)",
    ),
    parameter("additive_mbps", (0.001, 1e6), "additive increase (40)"),
    parameter("hyper_mbps", (0.001, 1e6), "hyper increase (400)"),
    parameter("rate_min_mbps", (0.001, 1e6), "least rate (100)"),
    RTO,
];

const DCTCP: &[PolicyParameter] = &[
    parameter(
        "gain",
        PART,
        "weight of a new observation in the fraction of marks (1/16)",
    ),
    parameter("window_start_packets", PACKETS, "window at the start (10)"),
    parameter("window_max_packets", PACKETS, "largest window"),
    RTO,
];

const TIMELY: &[PolicyParameter] = &[
    parameter(
        "low_us",
        MICROSECONDS,
        "round-trip time below which the rate always rises (50)",
    ),
    parameter(
        "high_us",
        MICROSECONDS,
        "round-trip time above which it always falls (500)",
    ),
    parameter("additive_mbps", (0.001, 1e6), "additive increase (10)"),
    parameter("decrease", PART, "multiplicative decrease (0.8)"),
    parameter("gain", PART, "weight of a new gradient (0.875)"),
    RTO,
];

const HPCC: &[PolicyParameter] = &[
    parameter("utilisation", PART, "utilisation of links aimed at (0.95)"),
    parameter(
        "stages",
        (0.0, 100.0),
        "additive increases between multiplicative ones (5)",
    ),
    parameter(
        "additive_bytes",
        (0.0, 1e6),
        "what an additive increase adds to the window",
    ),
    RTO,
];

const AEQUITAS: &[PolicyParameter] = &[
    parameter(
        "increment",
        (1e-9, 1.0),
        "what a window without a miss adds to the admit probability (0.01)",
    ),
    parameter(
        "decrement_per_mtu",
        (1e-9, 1.0),
        "what each MTU of a missed call takes (0.01)",
    ),
    parameter("floor", (1e-9, 1.0), "least admit probability (0.1)"),
    parameter(
        "idle_after_us",
        (1.0, 1e9),
        "silence after which what was learned is forgotten (60000000)",
    ),
];

const PFABRIC: &[PolicyParameter] = &[
    parameter("window_packets", (1.0, 1e6), "packets in flight per flow"),
    RTO,
];

const QJUMP: &[PolicyParameter] = &[];

const D3: &[PolicyParameter] = &[RTO];

const PDQ: &[PolicyParameter] = &[RTO];

const HOMA: &[PolicyParameter] = &[RTO];

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::DeserializeOwned;

    #[test]
    fn every_name_spells_its_kind() {
        fn spelled<T: serde::Serialize>(kind: T) -> String {
            serde_json::to_value(kind)
                .unwrap()
                .as_str()
                .unwrap()
                .to_owned()
        }
        fn reads<T: DeserializeOwned>(name: &str) -> T {
            serde_json::from_value(name.into()).unwrap()
        }
        for name in CONGESTION {
            assert_eq!(spelled(reads::<Congestion>(name)), *name);
        }
        for name in POLICY {
            assert_eq!(spelled(reads::<FabricPolicyKind>(name)), *name);
        }
        assert_eq!(POLICY.len(), POLICY_ABOUT.len());
    }

    #[test]
    fn no_parameter_is_listed_twice() {
        let lists = CONGESTION
            .iter()
            .map(|name| congestion(serde_json::from_value((*name).into()).unwrap()))
            .chain(
                POLICY
                    .iter()
                    .map(|name| policy(serde_json::from_value((*name).into()).unwrap())),
            );
        for list in lists {
            let mut names: Vec<_> = list.iter().map(|parameter| parameter.name).collect();
            names.sort_unstable();
            assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        }
    }
}

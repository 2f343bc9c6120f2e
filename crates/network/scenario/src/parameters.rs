//! Parameters of a network's transports and policies, in one place for the parser, the schema and the manual.
//!
//! Each is a number whose unit ends its name; the value in brackets is the default. The simulator reads every one that
//! is listed: one that nothing reads must not be here, for it would be accepted and do nothing.

use super::model::{Congestion, FabricPolicyKind};
use isolane_common_toml_input::policy_parameter::{PolicyParameter, parameter};
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, IntoDeserializer};

/// Spelling of every congestion control, in the order of [`Congestion`].
pub const CONGESTION: &[&str] = &[
    "none", "window", "swift", "dcqcn", "dctcp", "timely", "hpcc",
];

/// Spelling of every policy, in the order of [`FabricPolicyKind`].
#[rustfmt::skip]
pub const POLICY: &[&str] = &["none", "aequitas", "aequitas-2", "spq", "pfabric", "qjump", "d3", "pdq", "homa"];

/// What each policy does, in the order of [`POLICY`].
pub const POLICY_ABOUT: &[&str] = &[
    "calls run in the class that they request",
    "admission by measured latency: calls beyond what a class can carry run in the lowest class",
    "admission at an equal rate for each caller of a port, by the misses of all callers; calls above this rate run in the lowest class",
    "strict priority between the classes instead of the ports' scheduler",
    "shortest remaining first in the network, small buffers, hosts at line rate",
    "the higher the level, the lower the rate at which a host may send in it",
    "rates reserved at switches for deadlines, first come first served",
    "flows pre-empt each other by deadline, decided at switches",
    "receivers grant packets and choose priorities by the remaining size",
];

/// Parameters of a congestion control.
pub fn congestion(kind: Congestion) -> &'static [PolicyParameter] {
    match kind {
        Congestion::None => LINE_RATE,
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
        FabricPolicyKind::Aequitas2 => AEQUITAS_2,
        FabricPolicyKind::Pfabric => PFABRIC,
        FabricPolicyKind::Qjump => QJUMP,
        FabricPolicyKind::D3 => D3,
        FabricPolicyKind::Pdq => PDQ,
        FabricPolicyKind::Homa => HOMA,
    }
}

/// The policy that `name` spells.
pub fn policy_named(name: &str) -> Option<FabricPolicyKind> {
    spelled(name)
}

/// The kind that `name` spells, if any.
pub(crate) fn spelled<T: DeserializeOwned>(name: &str) -> Option<T> {
    let deserializer: StrDeserializer<'_, serde::de::value::Error> = name.into_deserializer();
    T::deserialize(deserializer).ok()
}

/// Every congestion control with its parameters, in the order of [`CONGESTION`].
pub fn every_congestion() -> impl Iterator<Item = (&'static str, &'static [PolicyParameter])> {
    let lists = [LINE_RATE, WINDOW, SWIFT, DCQCN, DCTCP, TIMELY, HPCC];
    CONGESTION.iter().copied().zip(lists)
}

pub(crate) fn every_policy() -> impl Iterator<Item = &'static [PolicyParameter]> {
    [AEQUITAS, AEQUITAS_2, PFABRIC, QJUMP, D3, PDQ, HOMA].into_iter()
}

/// The parameter that `word` names in the scenario's policy or transport.
pub fn describe(list: &'static [PolicyParameter], word: &str) -> Option<&'static PolicyParameter> {
    list.iter().find(|parameter| parameter.name == word)
}

const TIMEOUT: PolicyParameter = parameter(
    "timeout_us",
    (0.0, 1e7),
    "silence after which everything unacknowledged is sent again; 0 for never (450, never without congestion control)",
);
const FAST_REPEAT: PolicyParameter = parameter(
    "fast_repeat",
    (0.0, 1.0),
    "1 repairs gaps that the receiver sees at once, 0 only by timeouts (1)",
);

const LINE_RATE: &[PolicyParameter] = &[TIMEOUT, FAST_REPEAT];

const WINDOW: &[PolicyParameter] = &[
    parameter(
        "window_packets",
        (1.0, 1e6),
        "packets of a channel that may be unacknowledged (16)",
    ),
    TIMEOUT,
    FAST_REPEAT,
];

#[rustfmt::skip]
const SWIFT: &[PolicyParameter] = &[
    parameter("target_us", (0.1, 1e5), "target of the round-trip time (10)"),
    parameter("hop_target_us", (0.0, 1e4), "added to the target for each hop; 0 for none (0)"),
    parameter("flow_target_us", (0.0, 1e5), "most that is added to the target of small windows; 0 for none (0)"),
    parameter("flow_window_min_packets", (1e-6, 1e6), "window at and below which flow scaling adds all of it (0.1)"),
    parameter("flow_window_max_packets", (1e-6, 1e6), "window from which flow scaling adds nothing (100)"),
    parameter("window_start_packets", (0.001, 1e6), "first window (2)"),
    parameter("window_min_packets", (0.001, 1e6), "least window; below 1, packets are spaced (1)"),
    parameter("window_max_packets", (1.0, 1e6), "greatest window (30)"),
    parameter("increase_packets", (0.0, 1e3), "added per round trip below the target (1)"),
    parameter("decrease_gain", (0.0, 1.0), "part of the relative excess that is cut (0.8)"),
    parameter("decrease_max", (0.0, 0.99), "greatest cut at once (0.5)"),
    parameter("reset_after_timeouts", (1.0, 1e3), "timeouts in a row after which the window is the least (5)"),
    TIMEOUT,
    FAST_REPEAT,
];

#[rustfmt::skip]
const DCQCN: &[PolicyParameter] = &[
    parameter("notification_interval_us", (0.0, 1e5), "least time between two notifications of a receiver for one channel (50)"),
    parameter("alpha_interval_us", (0.1, 1e5), "time without a notification after which alpha falls (55)"),
    parameter("increase_interval_us", (0.1, 1e5), "ticks of the increase timer (55)"),
    parameter("byte_counter_bytes", (1e3, 1e12), "ticks of the byte counter (10000000)"),
    parameter("fast_steps", (0.0, 1e3), "ticks of fast recovery (5)"),
    parameter("gain", (1e-5, 1.0), "weight of a notification in alpha (1/256)"),
    parameter("additive_mbps", (0.0, 1e6), "rise of the target per tick after fast recovery (40)"),
    parameter("hyper_mbps", (0.0, 1e6), "rise once both clocks are past fast recovery (ten additive steps) (400)"),
    parameter("rate_min_mbps", (0.1, 1e6), "least rate (10)"),
    TIMEOUT,
    FAST_REPEAT,
];

#[rustfmt::skip]
const DCTCP: &[PolicyParameter] = &[
    parameter("gain", (1e-4, 1.0), "weight of the newest window in alpha (1/16)"),
    parameter("window_start_packets", (1.0, 1e6), "first window (10)"),
    parameter("window_max_packets", (1.0, 1e6), "greatest window, as the receiver's buffer would set it (1000)"),
    parameter("alpha_start", (0.0, 1.0), "first estimate of the marked part (1)"),
    TIMEOUT,
    FAST_REPEAT,
];

#[rustfmt::skip]
const TIMELY: &[PolicyParameter] = &[
    parameter("low_us", (0.0, 1e6), "round-trip time below which the rate rises at any gradient (50)"),
    parameter("high_us", (0.1, 1e6), "round-trip time above which the rate falls at any gradient (500)"),
    parameter("round_trip_min_us", (0.1, 1e6), "round-trip time by which gradients are divided (20)"),
    parameter("segment_bytes", (1.0, 1e9), "bytes per decision (16384)"),
    parameter("additive_mbps", (0.0, 1e6), "rise per segment (10)"),
    parameter("hyper_after", (1.0, 1e6), "segments in a row after which rises are five-fold (5)"),
    parameter("weight", (0.0, 1.0), "weight of the newest difference in the gradient (0.875)"),
    parameter("decrease_gain", (0.0, 1.0), "strength of cuts (0.8)"),
    parameter("rate_min_mbps", (0.1, 1e6), "least rate; the paper gives none (10)"),
    parameter("rate_start_share", (1e-6, 1.0), "first rate, part of the line's; the paper leaves it to the number of flows of the host (1)"),
    TIMEOUT,
    FAST_REPEAT,
];

#[rustfmt::skip]
const HPCC: &[PolicyParameter] = &[
    parameter("utilisation", (0.1, 1.0), "target of the utilisation of the fullest link (0.95)"),
    parameter("stages", (0.0, 1e3), "additive steps before a multiplicative one (5)"),
    parameter("flows", (1.0, 1e6), "flows at one link for which additive steps fit in the head room (20)"),
    TIMEOUT,
    FAST_REPEAT,
];

#[rustfmt::skip]
const AEQUITAS: &[PolicyParameter] = &[
    parameter("increment", (1e-9, 1.0), "increase of the admit probability in a window without a miss (0.01)"),
    parameter("decrement_per_mtu", (1e-9, 1.0), "decrease of the admit probability for each MTU of a missed call (0.01)"),
    parameter("floor", (1e-9, 1.0), "least admit probability (0.1)"),
    parameter("idle_after_us", (1.0, 1e9), "time without calls to a destination after which its state is forgotten (60000000)"),
    parameter("window_us", (0.0, 1e9), "time between two increases (target / (1 - percentile / 100))"),
    parameter("window_restarts_on_miss", (0.0, 1.0), "1 restarts the window at a miss, as the public simulator does (0)"),
    parameter("processes", (1.0, 256.0), "processes of a calling host, each with admit probabilities of its own (1)"),
];

#[rustfmt::skip]
const AEQUITAS_2: &[PolicyParameter] = &[
    parameter("cut", (1e-9, 1.0), "relative change of the time between two packets of a channel at a cut (0.0625)"),
    parameter("floor", (1e-9, 1.0), "least level: a part of one packet in each objective (0.01)"),
    parameter("idle_after_us", (1.0, 1e9), "time without calls to a destination after which its state is forgotten (60000000)"),
    parameter("shared", (0.0, 2.0), "callers that share evidence: 1 all callers of a host, 2 the processes of a calling host, 0 none (1)"),
    parameter("exchange_us", (0.0, 1e9), "with shared = 2: time between two exchanges of evidence (10000)"),
    parameter("processes", (1.0, 256.0), "processes of a calling host, each a caller with equal parts (1)"),
    parameter("grants", (0.0, 1e6), "calls of a class that a called host grants on request at once; callers then do not learn; 0 no requests (0)"),
    parameter("ask_us", (0.0, 1e6), "with grants: time from a request to its answer (1)"),
];

#[rustfmt::skip]
const PFABRIC: &[PolicyParameter] = &[
    parameter("buffer_bytes", (1.0, 1e9), "buffer of a port (2 bandwidth-delay products)"),
    parameter("window_packets", (1.0, 1e6), "largest window of a flow (1 bandwidth-delay product)"),
    parameter("timeout_us", (0.001, 1e6), "silence after which packets are sent again (3 round trips)"),
    parameter("probe_after_timeouts", (1.0, 1e6), "timeouts in a row after which headers are sent instead (5)"),
];

#[rustfmt::skip]
const QJUMP: &[PolicyParameter] = &[
    parameter("throughput_factor_0", (1.0, 65_535.0), "packets of maximum size that a host may send per epoch in level 0, the highest (32)"),
    parameter("throughput_factor_1", (1.0, 65_535.0), "the same for level 1 (16)"),
    parameter("throughput_factor_2", (1.0, 65_535.0), "the same for level 2 (1)"),
    parameter("throughput_factor_3", (1.0, 65_535.0), "the same for level 3 (1)"),
    parameter("throughput_factor_4", (1.0, 65_535.0), "the same for level 4 (1)"),
    parameter("throughput_factor_5", (1.0, 65_535.0), "the same for level 5 (1)"),
    parameter("throughput_factor_6", (1.0, 65_535.0), "the same for level 6 (1)"),
    parameter("throughput_factor_7", (1.0, 65_535.0), "the same for level 7 (1)"),
    parameter("overhead_us", (0.0, 1e6), "part of an epoch for processing on the whole path (1)"),
    parameter("unlimited_levels", (0.0, 8.0), "lowest levels without a limit (1)"),
    parameter("initial_window_packets", (1.0, 1e6), "first window of a message (10)"),
    parameter("timeout_us", (0.001, 1e6), "silence after which packets are sent again (450)"),
];

#[rustfmt::skip]
const D3: &[PolicyParameter] = &[
    parameter("request_interval_us", (0.01, 1e6), "time between a flow's requests (4 round trips)"),
    parameter("queue_gain", (0.0, 100.0), "part of a waiting byte that an interval's capacity is lowered by (1)"),
    parameter("retry_us", (0.1, 1e6), "silence after which requests and packets are repeated (100)"),
];

#[rustfmt::skip]
const PDQ: &[PolicyParameter] = &[
    parameter("early_start_rtts", (0.0, 1e3), "flows with less left do not count, up to that sum (2)"),
    parameter("probe_rtts_per_place", (0.0, 1e3), "round trips between probes per place in the list (0.2)"),
    parameter("dampening_rtts", (0.0, 1e3), "round trips after an accepted flow without another one (1)"),
    parameter("retry_us", (0.1, 1e6), "silence after which packets are repeated (100)"),
];

#[rustfmt::skip]
const HOMA: &[PolicyParameter] = &[
    parameter("rtt_packets", (1.0, 65_535.0), "packets sent without a grant, and granted ahead (10)"),
    parameter("priorities", (2.0, 8.0), "levels of the network (8)"),
    parameter("sample_messages", (1.0, 1e6), "messages after which a receiver divides the levels again (500)"),
    parameter("resend_us", (0.1, 1e6), "silence after which packets are requested again (1000)"),
];

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

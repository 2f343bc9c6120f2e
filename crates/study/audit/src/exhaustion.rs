//! Which resource ran out, read off the counters of both NICs.
//!
//! Every ratio is a fraction of the measured time or of a capacity, 0 to 1. A ratio counts when it passes the threshold
//! of its kind. Kinds are ranked by how direct a proof they are. A stalled unit does nothing at all. A cache with busy
//! miss slots delays all tenants. A unit that works all the time may only be shared. Pauses are the effect of the other
//! kinds on the link. Within a kind the largest ratio wins, compared in whole percent. Of equal ones the first in
//! `KINDS` wins, and then host A: a link that one host fills is as busy at its receiver, but messages wait at the
//! sender. A violation without any such sign says that nothing was saturated, with the ratio that rose most over the
//! solo run as a hint.
//!
//! Limits: names what was busy, not who made it busy; that is the attacker's definition.

use crate::cell::Exhausted;
use isolane_rdma_scenario::model::Host;
use isolane_study_results::rdma::HostCounters;
use std::collections::BTreeMap;

/// Ratios by name, of one host's NIC.
pub type Ratios = BTreeMap<String, f64>;

/// Ratios of each host of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pressure {
    /// The hosts that a workload has an end on, A and B always.
    pub hosts: BTreeMap<Host, Ratios>,
}

impl From<&[HostCounters]> for Pressure {
    fn from(counters: &[HostCounters]) -> Self {
        let counters = counters.iter();
        Self {
            hosts: counters
                .map(|counters| (counters.host, counters.ratios.clone()))
                .collect(),
        }
    }
}

/// What a ratio says.
struct Sign {
    /// The ratio's name.
    counter: &'static str,
    resource: &'static str,
    /// The least value that counts.
    threshold: f64,
    /// What follows "host B's NIC" in the evidence; `{}` is the percentage.
    sentence: &'static str,
}

const fn sign(
    counter: &'static str,
    threshold: f64,
    resource: &'static str,
    sentence: &'static str,
) -> Sign {
    Sign {
        counter,
        resource,
        threshold,
        sentence,
    }
}

/// Part of the time above which a stall matters: a tenth is already more than every isolation bound tolerates
/// once the lost time is shared unevenly.
const STALL: f64 = 0.1;
/// Part of the miss slots that are busy on average when misses no longer hide behind each other.
const MISS_SLOTS: f64 = 0.6;
/// Utilisation of a queueing resource that counts as saturated: at four fifths a request that arrives at random
/// waits four times as long as it is served, and the wait grows without bound from there.
const BUSY: f64 = 0.8;
/// Part of the time a link is paused.
const PAUSED: f64 = 0.1;

/// Begins the resource and the evidence where no ratio passes its threshold.
pub const NOT_SATURATED: &str = "no resource saturated";

/// All signs, by kind, strongest kind first.
#[rustfmt::skip]
const KINDS: [&[Sign]; 4] = [
    &[
        sign(
            "rnr_stall_ratio",
            STALL,
            "receive units, stalled by receiver-not-ready errors",
            "receive units were stalled {} of the time by receiver-not-ready errors",
        ),
        sign(
            "unreliable_stall_ratio",
            STALL,
            "receive units, stalled by unreliable messages without a receive",
            "receive units were stalled {} of the time by UC or UD messages that found no receive posted",
        ),
        sign(
            "translation_stall_ratio",
            STALL,
            "address translation, stalled by deregistrations",
            "address translation was blocked {} of the time by memory deregistrations",
        ),
    ],
    &[
        sign("context_miss_busy", MISS_SLOTS, "queue-pair context cache (ICM)", "slots for queue-pair context misses were {} busy"),
        sign("translation_miss_busy", MISS_SLOTS, "address translation cache (MTT/MPT)", "slots for address translation misses were {} busy"),
    ],
    &[
        sign("responder_unit_utilisation", BUSY, "responder processing units", "responder processing units were {} busy"),
        sign("requester_unit_utilisation", BUSY, "requester processing units", "requester processing units were {} busy"),
        sign("pcie_to_nic_utilisation", BUSY, "PCIe bandwidth towards the NIC", "PCIe direction towards the NIC was {} busy"),
        sign("pcie_to_host_utilisation", BUSY, "PCIe bandwidth towards the host", "PCIe direction towards the host was {} busy"),
        sign("link_tx_utilisation", BUSY, "link bandwidth, sending", "link was {} busy sending"),
        sign("link_rx_utilisation", BUSY, "link bandwidth, receiving", "link was {} busy receiving"),
    ],
    &[
        sign(
            "tx_pause_ratio",
            PAUSED,
            "receive buffer, pausing the link partner",
            "link partner was paused {} of the time because the receive buffer was full",
        ),
        sign("rx_pause_ratio", PAUSED, "link, paused by the other end", "sending was paused {} of the time by the other end"),
    ],
];

/// Ratios that say which cache a busy miss slot belongs to, with the cache's name.
#[rustfmt::skip]
const MISS_RATIOS: [(&str, &str, &str); 4] = [
    ("context_miss_busy", "icm_miss_ratio", "context lookups"),
    ("translation_miss_busy", "mtt_miss_ratio", "address translations"),
    ("translation_miss_busy", "mpt_miss_ratio", "protection lookups"),
    ("context_miss_busy", "receive_wqe_miss_ratio", "receive work request lookups"),
];

/// The resource under most pressure in `contended`, compared with the victim alone. With `violation` there is an answer
/// even when no ratio passes its threshold.
pub fn exhausted(solo: &Pressure, contended: &Pressure, violation: bool) -> Option<Exhausted> {
    KINDS
        .iter()
        .find_map(|kind| strongest(kind, solo, contended))
        .or_else(|| violation.then(|| risen_most(solo, contended)).flatten())
}

/// Of a host that one of the runs does not use.
static EMPTY: Ratios = Ratios::new();

/// The ratios of `host`, solo and contended.
fn of_host<'a>(
    host: Host,
    solo: &'a Pressure,
    contended: &'a Pressure,
) -> (&'a Ratios, &'a Ratios) {
    let of = |pressure: &'a Pressure| pressure.hosts.get(&host).unwrap_or(&EMPTY);
    (of(solo), of(contended))
}

fn ratio(ratios: &Ratios, name: &str) -> f64 {
    ratios.get(name).copied().unwrap_or(0.0)
}

fn strongest(kind: &[Sign], solo: &Pressure, contended: &Pressure) -> Option<Exhausted> {
    let mut best: Option<(i64, &Sign, Host)> = None;
    for sign in kind {
        for &host in contended.hosts.keys() {
            let value = ratio(of_host(host, solo, contended).1, sign.counter);
            let whole = (value * 100.0).round() as i64;
            if value >= sign.threshold && best.is_none_or(|(most, ..)| whole > most) {
                best = Some((whole, sign, host));
            }
        }
    }
    best.map(|(_, sign, host)| describe(sign, host, solo, contended))
}

/// The sign whose ratio rose most, when no ratio passes its threshold.
fn risen_most(solo: &Pressure, contended: &Pressure) -> Option<Exhausted> {
    let mut best: Option<(f64, &Sign, Host)> = None;
    for sign in KINDS.into_iter().flatten() {
        for &host in contended.hosts.keys() {
            let (alone, attacked) = of_host(host, solo, contended);
            let rise = ratio(attacked, sign.counter) - ratio(alone, sign.counter);
            if rise > RISE_MIN && best.is_none_or(|(most, ..)| rise > most) {
                best = Some((rise, sign, host));
            }
        }
    }
    best.map(|(_, sign, host)| {
        let largest = describe(sign, host, solo, contended);
        Exhausted {
            resource: format!("{NOT_SATURATED}; largest change: {}", largest.resource),
            evidence: format!("{NOT_SATURATED}; largest change: {}", largest.evidence),
            ..largest
        }
    })
}

/// A rise below this is noise between two runs, not a cause.
const RISE_MIN: f64 = 0.05;

fn describe(sign: &Sign, host: Host, solo: &Pressure, contended: &Pressure) -> Exhausted {
    let (alone, attacked) = of_host(host, solo, contended);
    let (before, after) = (ratio(alone, sign.counter), ratio(attacked, sign.counter));
    let letter = host.letter();
    let sentence = sign.sentence.replace("{}", &percent(after));
    let mut evidence = format!(
        "host {letter}'s {sentence} (victim alone: {})",
        percent(before)
    );
    let miss = MISS_RATIOS
        .iter()
        .filter(|(of, ..)| *of == sign.counter)
        .map(|(_, name, what)| (ratio(attacked, name), what))
        .max_by(|left, right| left.0.total_cmp(&right.0));
    if let Some((missed, what)) = miss.filter(|(missed, _)| *missed > 0.0) {
        evidence.push_str(&format!(", {} of its {what} missed", percent(missed)));
    }
    Exhausted {
        resource: sign.resource.to_owned(),
        host,
        counter: sign.counter.to_owned(),
        solo: before,
        contended: after,
        evidence,
    }
}

fn percent(ratio: f64) -> String {
    match ratio * 100.0 {
        p if p > 0.0 && p < 0.1 => "below 0.1 %".to_owned(),
        p if p > 0.0 && p < 10.0 => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn ratios(pairs: &[(&str, f64)]) -> Ratios {
        pairs
            .iter()
            .map(|&(name, value)| (name.to_owned(), value))
            .collect()
    }

    fn check(a: &[(&str, f64)], b: &[(&str, f64)], want: Expect) {
        let contended = Pressure {
            hosts: BTreeMap::from([(Host::A, ratios(a)), (Host::B, ratios(b))]),
        };
        let found = exhausted(&Pressure::default(), &contended, true);
        want.assert_eq(&found.map_or("nothing".to_owned(), |found| found.evidence));
    }

    #[test]
    fn a_stall_outranks_a_busy_link() {
        check(
            &[("link_tx_utilisation", 1.0)],
            &[("rnr_stall_ratio", 0.99)],
            expect![
                "host B's receive units were stalled 99 % of the time by receiver-not-ready errors (victim alone: 0 %)"
            ],
        );
    }

    #[test]
    fn a_busy_miss_slot_names_the_cache_that_missed() {
        check(
            &[
                ("requester_unit_utilisation", 0.95),
                ("translation_miss_busy", 0.98),
                ("mtt_miss_ratio", 0.4),
                ("mpt_miss_ratio", 0.7),
            ],
            &[],
            expect![
                "host A's slots for address translation misses were 98 % busy (victim alone: 0 %), 70 % of its protection lookups missed"
            ],
        );
    }

    #[test]
    fn the_busiest_unit_wins_within_a_kind() {
        check(
            &[
                ("link_tx_utilisation", 0.93),
                ("pcie_to_nic_utilisation", 0.99),
            ],
            &[("rx_pause_ratio", 0.5)],
            expect!["host A's PCIe direction towards the NIC was 99 % busy (victim alone: 0 %)"],
        );
    }

    #[test]
    fn a_full_link_is_named_at_its_sender() {
        check(
            &[("link_tx_utilisation", 0.9981)],
            &[("link_rx_utilisation", 0.9984)],
            expect!["host A's link was 100 % busy sending (victim alone: 0 %)"],
        );
    }

    #[test]
    fn without_a_clear_sign_nothing_is_called_saturated() {
        check(
            &[("link_tx_utilisation", 0.7)],
            &[("responder_unit_utilisation", 0.4)],
            expect![
                "no resource saturated; largest change: host A's link was 70 % busy sending (victim alone: 0 %)"
            ],
        );
        check(&[("link_tx_utilisation", 0.01)], &[], expect!["nothing"]);
        assert_eq!(
            exhausted(&Pressure::default(), &Pressure::default(), false),
            None
        );
    }

    #[test]
    fn percentages_keep_one_digit_when_small() {
        assert_eq!(
            [0.0, 0.0004, 0.0123, 0.5, 0.996].map(percent).join(" "),
            "0 % below 0.1 % 1.2 % 50 % 100 %"
        );
    }
}

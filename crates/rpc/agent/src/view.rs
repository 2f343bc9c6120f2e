//! The messages of an interval, by destination and class.
//!
//! Units: microseconds and bytes; a packet is `mtu_bytes` of payload. Limits: the ROWS_MAX first destinations and classes of
//! an interval have a row; messages of others are counted. Quantiles are those of a histogram with an error of 3 %, of the
//! *longest* possible time of each message.

use crate::histogram::Histogram;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// Rows of an interval; two histograms each, 8 KiB.
const ROWS_MAX: usize = 1_024;

/// The messages that ended in an interval.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct View {
    /// Length of the interval.
    pub seconds: f64,
    /// `enforce`, `shadow` or `off`.
    pub mode: &'static str,
    /// Destinations and classes, the one with most bytes first.
    pub rows: Vec<Row>,
    /// Messages without a row.
    pub messages_without_row: u64,
    /// Since the start: connections that are measured.
    pub connections: u64,
    /// Since the start: connections left alone, because their program had marked them.
    pub connections_marked_by_program: u64,
    /// Since the start: connections left alone, because their port has no class.
    pub connections_without_class: u64,
    /// Since the start: connections left alone, because they are of IPv4 and their socket is one of IPv6.
    pub connections_ipv4_over_ipv6: u64,
    /// Since the start: measured connections with the congestion control BBR, which carries its estimate of one class to the other.
    pub connections_by_bbr: u64,
    /// Since the start: messages lost because this program was late, or whose end was not seen.
    pub messages_lost: u64,
    /// Since the start: messages whose first packet had the chosen code point behind the kernel's filters.
    pub packets_marked: u64,
    /// Since the start: messages whose first packet had another one.
    pub packets_with_other_code_point: u64,
}

/// The messages to one destination in one class.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Row {
    /// Address and port; the address alone for peers of a port of this host.
    pub destination: String,
    /// Class of the connections.
    pub class: String,
    /// Messages that ended.
    pub messages: u64,
    /// Acknowledged bytes; all written bytes of messages that were given up.
    pub bytes: u64,
    /// Messages that ran in the lowest class.
    pub downgraded: u64,
    /// Messages in the class that met its objective; `null` for the lowest class.
    pub met: Option<u64>,
    /// Messages in the class that missed its objective, also before they were given up; `null` for the lowest class.
    pub missed: Option<u64>,
    /// Messages in the class whose time is not known well enough to judge.
    pub unclear: u64,
    /// Messages whose connection closed before they were acknowledged.
    pub given_up: u64,
    /// Median network time of a message in its class; `null` without one.
    pub median_us: Option<f64>,
    /// Its 99th percentile.
    pub p99_us: Option<f64>,
    /// Median network time for each packet of a message.
    pub median_us_per_packet: Option<f64>,
    /// Its 99th percentile.
    pub p99_us_per_packet: Option<f64>,
    /// The objective; `null` for the lowest class.
    pub target_us_per_packet: Option<f64>,
    /// Admit probability at the end of the interval; `null` if the table has none.
    pub admit_probability: Option<f64>,
}

/// A message that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
    /// Longest possible network time; `None` if the connection closed first.
    pub(crate) longest_ns: Option<u64>,
    pub(crate) downgraded: bool,
    /// Whether it met the objective, if that is known.
    pub(crate) met: Option<bool>,
}

/// The sums of one row.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    messages: u64,
    bytes: u64,
    downgraded: u64,
    met: u64,
    missed: u64,
    unclear: u64,
    given_up: u64,
    nanoseconds: Histogram,
    per_packet: Histogram,
}

impl Sums {
    fn add(&mut self, ended: Ended) {
        self.messages += 1;
        self.bytes += ended.bytes;
        let Some(longest_ns) = ended.longest_ns else {
            self.given_up += 1;
            self.missed += u64::from(ended.met == Some(false));
            return;
        };
        if ended.downgraded {
            self.downgraded += 1;
            return;
        }
        match ended.met {
            Some(true) => self.met += 1,
            Some(false) => self.missed += 1,
            None => self.unclear += 1,
        }
        self.nanoseconds.record(longest_ns);
        self.per_packet.record(longest_ns / ended.packets.max(1));
    }
}

/// The names and numbers of a row that are not sums.
#[derive(Clone, Debug)]
pub(crate) struct Labels {
    pub(crate) destination: String,
    pub(crate) class: String,
    pub(crate) target_us_per_packet: Option<f64>,
    pub(crate) admit_probability: Option<f64>,
}

/// Rows in the making.
#[derive(Debug, Default)]
pub(crate) struct Rows<K> {
    rows: BTreeMap<K, Sums>,
    without: u64,
}

impl<K: Ord + Copy> Rows<K> {
    pub(crate) fn new() -> Self {
        Self {
            rows: BTreeMap::new(),
            without: 0,
        }
    }

    pub(crate) fn add(&mut self, key: K, ended: Ended) {
        if self.rows.len() >= ROWS_MAX && !self.rows.contains_key(&key) {
            self.without += 1;
            return;
        }
        self.rows.entry(key).or_default().add(ended);
    }

    /// The rows, the one with most bytes first, and the number of messages without one. Empties them.
    pub(crate) fn take(&mut self, labels: impl Fn(K) -> Labels) -> (Vec<Row>, u64) {
        let rows = std::mem::take(&mut self.rows);
        let mut rows: Vec<Row> = rows
            .into_iter()
            .map(|(key, sums)| row(labels(key), &sums))
            .collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
        (rows, std::mem::take(&mut self.without))
    }
}

fn row(labels: Labels, sums: &Sums) -> Row {
    let quantile = |histogram: &Histogram, q: f64| Some(histogram.quantile(q)? as f64 / 1_000.0);
    let judged = |count: u64| labels.target_us_per_packet.map(|_| count);
    Row {
        messages: sums.messages,
        bytes: sums.bytes,
        downgraded: sums.downgraded,
        met: judged(sums.met),
        missed: judged(sums.missed),
        unclear: sums.unclear,
        given_up: sums.given_up,
        median_us: quantile(&sums.nanoseconds, 0.5),
        p99_us: quantile(&sums.nanoseconds, 0.99),
        median_us_per_packet: quantile(&sums.per_packet, 0.5),
        p99_us_per_packet: quantile(&sums.per_packet, 0.99),
        target_us_per_packet: labels.target_us_per_packet,
        admit_probability: labels.admit_probability,
        destination: labels.destination,
        class: labels.class,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(longest_ns: Option<u64>, downgraded: bool, met: Option<bool>) -> Ended {
        Ended {
            bytes: 3_000,
            packets: 3,
            longest_ns,
            downgraded,
            met,
        }
    }

    fn labels(key: usize) -> Labels {
        Labels {
            destination: format!("host{key}"),
            class: "high".to_owned(),
            target_us_per_packet: Some(15.0),
            admit_probability: Some(0.5),
        }
    }

    #[test]
    fn a_downgraded_message_has_no_part_in_the_times_of_its_class() {
        let mut rows = Rows::new();
        rows.add(0, ended(Some(30_000), false, Some(true)));
        rows.add(0, ended(Some(9_000_000), true, Some(true)));
        rows.add(0, ended(None, false, Some(false)));
        rows.add(0, ended(Some(30_000), false, None));
        let (rows, without) = rows.take(labels);
        assert_eq!(without, 0);
        let [row] = &rows[..] else { panic!("one row") };
        assert_eq!((row.messages, row.downgraded, row.given_up), (4, 1, 1));
        assert_eq!((row.met, row.missed, row.unclear), (Some(1), Some(1), 1));
        let close = |value: Option<f64>, want: f64| (value.unwrap() - want).abs() < 0.04 * want;
        assert!(
            close(row.p99_us, 30.0) && close(row.p99_us_per_packet, 10.0),
            "{row:?}"
        );
    }

    #[test]
    fn rows_are_bounded() {
        let mut rows = Rows::new();
        for key in 0..ROWS_MAX + 5 {
            rows.add(key, ended(Some(1), false, None));
        }
        rows.add(3, ended(Some(1), false, None));
        let (shown, without) = rows.take(labels);
        assert_eq!((shown.len(), without), (ROWS_MAX, 5));
        assert_eq!(shown[0].messages, 2, "most bytes first");
        assert!(rows.take(labels).0.is_empty());
    }
}

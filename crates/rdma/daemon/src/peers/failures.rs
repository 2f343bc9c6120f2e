//! Lines about calls that failed, limited for each address of a caller.
//!
//! Problem: every host can make calls that fail, and must not fill the log; one host's calls must not hide those of another. Method: after a
//! line about an address the next line about the same address comes [`EVERY`] later at the earliest, with the number of calls between. Units:
//! calls. Limits: at most [`ADDRESSES_MAX`] addresses have lines within [`EVERY`], and [`NEIGHBOURS_MAX`] of those with the same first 64 bits of
//! IPv6, because one host can have all of these; calls from further addresses are counted, and the next line has their number.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Shortest time between two lines about one address.
const EVERY: Duration = Duration::from_secs(10);
/// Largest number of addresses that are known, and so of lines within [`EVERY`].
const ADDRESSES_MAX: usize = 32;
/// Largest number of them in one IPv6 network.
const NEIGHBOURS_MAX: usize = 8;

/// Failed calls of which no line was printed.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// Those with a line within [`EVERY`], and, until the next line, earlier ones.
    by_address: BTreeMap<IpAddr, Known>,
    /// Calls from addresses without a line.
    omitted: u64,
}

#[derive(Debug)]
struct Known {
    printed: Instant,
    omitted: u64,
}

impl Failures {
    /// The line to print for a call from `from` that failed at `now` for the reason `text`.
    pub(super) fn line(&mut self, now: Instant, from: IpAddr, text: &str) -> Option<String> {
        let is_recent = |printed| now.saturating_duration_since(printed) < EVERY;
        let host = from.to_canonical();
        if let Some(known) = self.by_address.get_mut(&host)
            && is_recent(known.printed)
        {
            known.omitted += 1;
            return None;
        }
        let same = self
            .by_address
            .remove(&host)
            .map_or(0, |known| known.omitted);
        let old = self
            .by_address
            .extract_if(.., |_, known| !is_recent(known.printed));
        self.omitted += old.map(|(_, known)| known.omitted).sum::<u64>();
        let is_near =
            |other: &&IpAddr| network(**other).is_some_and(|of| Some(of) == network(host));
        let near = self.by_address.keys().filter(is_near).count();
        if near >= NEIGHBOURS_MAX || self.by_address.len() >= ADDRESSES_MAX {
            self.omitted += same + 1;
            return None;
        }
        let fresh = Known {
            printed: now,
            omitted: 0,
        };
        self.by_address.insert(host, fresh);
        let others = std::mem::take(&mut self.omitted);
        Some(match (same, others) {
            (0, 0) => text.to_owned(),
            (same, 0) => {
                format!("{text} ({same} failed calls from there before it are not listed)")
            }
            (same, others) => format!(
                "{text} ({} failed calls before it, also from other addresses, are not listed)",
                same.saturating_add(others)
            ),
        })
    }
}

/// The part of an IPv6 address behind which one host can choose.
fn network(address: IpAddr) -> Option<[u16; 4]> {
    match address {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Some([a, b, c, d])
        }
        IpAddr::V4(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of calls; each has its time in seconds and its address.
    fn lines(calls: impl IntoIterator<Item = (u64, IpAddr)>) -> Vec<String> {
        let (begun, mut failures) = (Instant::now(), Failures::default());
        let mut line = |(after_s, from): (u64, IpAddr)| {
            let text = format!("{from} at {after_s} s");
            failures.line(begun + Duration::from_secs(after_s), from, &text)
        };
        calls.into_iter().filter_map(&mut line).collect()
    }

    fn address(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    #[test]
    fn an_address_has_one_line_in_ten_seconds() {
        let calls = [0, 3, 9, 10, 20].map(|after_s| (after_s, address(1)));
        let expected = [
            "10.0.0.1 at 0 s",
            "10.0.0.1 at 10 s (2 failed calls from there before it are not listed)",
            "10.0.0.1 at 20 s",
        ];
        assert_eq!(lines(calls), expected);
    }

    #[test]
    fn a_busy_stranger_hides_no_call_of_another_address() {
        let busy = (0..10).flat_map(|after_s| [(after_s, address(1)); 100]);
        let calls = busy.chain([(9, address(2))]);
        assert_eq!(lines(calls), ["10.0.0.1 at 0 s", "10.0.0.2 at 9 s"]);
    }

    /// Goal: neither the log nor the table grows with the number of addresses, and every call is counted.
    #[test]
    fn many_addresses_have_a_bounded_number_of_lines() {
        let many = (0..=255).flat_map(|number| [(0, address(number)); 2]);
        let found = lines(many.chain([(10, address(200)), (10, address(201))]));
        assert_eq!(found.len(), ADDRESSES_MAX + 2);
        let before = 2 * 256 - ADDRESSES_MAX;
        let last = format!(
            "10.0.0.200 at 10 s ({before} failed calls before it, also from other addresses, are not listed)"
        );
        assert_eq!(found[ADDRESSES_MAX], last);
    }

    /// Goal: a host with a network of its own fills neither the table nor its log; hosts of one network hide none of each other's calls.
    #[test]
    fn a_network_has_a_part_of_the_table() {
        let address = |text: String| (0, text.parse().unwrap());
        let many = (0..100).map(|number| format!("2001:db8::{number:x}"));
        let other = ["2001:db8:0:1::1", "::ffff:10.0.0.1", "10.0.0.1"].map(str::to_owned);
        let found = lines(many.chain(other).map(address));
        assert_eq!(found.len(), NEIGHBOURS_MAX + 2);
        assert_eq!(found[1], "2001:db8::1 at 0 s");
        let (last, before) = (NEIGHBOURS_MAX, 100 - NEIGHBOURS_MAX);
        let expected = format!(
            "2001:db8:0:1::1 at 0 s ({before} failed calls before it, also from other addresses, are not listed)"
        );
        assert_eq!(found[last..], [expected.as_str(), "::ffff:10.0.0.1 at 0 s"]);
    }

    /// Goal: a network that calls from other addresses each time has no more of the table later.
    #[test]
    fn a_network_that_changes_its_addresses_hides_no_other_host() {
        let address = |number: u64| format!("2001:db8::{number:x}").parse().unwrap();
        let slowly = (0..32).map(|number| (number / 8 * 10, address(number)));
        let all = (0..32).map(|number| (40, address(number)));
        let other = (41, "10.0.0.1".parse().unwrap());
        let found = lines(slowly.chain(all).chain([other]));
        assert_eq!(found.len(), 32 + NEIGHBOURS_MAX + 1);
        assert!(found[32 + NEIGHBOURS_MAX].starts_with("10.0.0.1 at 41 s"));
    }
}

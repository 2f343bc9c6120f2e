//! Lines about calls that failed, limited for each address of a caller.
//!
//! Problem: every host can make calls that fail, and must not fill the log; one host's calls must not hide those of another. Method: after a
//! line about an address the next line about the same address comes [`EVERY`] later at the earliest, with the number of calls between. Units:
//! calls. Limits: at most [`ADDRESSES_MAX`] addresses have lines within [`EVERY`]; calls from further addresses are counted, and the next line
//! has their number. An IPv6 address counts by its first 64 bits, because one host has all addresses with them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Shortest time between two lines about one address.
const EVERY: Duration = Duration::from_secs(10);
/// Largest number of addresses that are known, and so of lines within [`EVERY`].
const ADDRESSES_MAX: usize = 32;

/// Failed calls of which no line was printed.
#[derive(Debug, Default)]
pub(super) struct Failures {
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
        let host = host(from);
        if let Some(known) = self.by_address.get_mut(&host)
            && is_recent(known.printed)
        {
            known.omitted += 1;
            return None;
        }
        if self.by_address.len() >= ADDRESSES_MAX && !self.by_address.contains_key(&host) {
            let oldest = self
                .by_address
                .iter()
                .min_by_key(|(_, known)| known.printed);
            let (oldest, printed) = oldest.map(|(host, known)| (*host, known.printed))?;
            if is_recent(printed) {
                self.omitted += 1;
                return None;
            }
            let forgotten = self.by_address.remove(&oldest);
            self.omitted += forgotten.map_or(0, |known| known.omitted);
        }
        let fresh = Known {
            printed: now,
            omitted: 0,
        };
        let earlier = self.by_address.insert(host, fresh);
        let same = earlier.map_or(0, |known| known.omitted);
        let others = std::mem::take(&mut self.omitted);
        Some(match (same, others) {
            (0, 0) => text.to_owned(),
            (same, 0) => {
                format!("{text} ({same} failed calls from there before it are not listed)")
            }
            (same, others) => format!(
                "{text} ({same} failed calls from there and {others} from other addresses before it are not listed)"
            ),
        })
    }
}

/// The part of an address that one host cannot choose.
fn host(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        four => four,
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
        let others = 2 * (256 - ADDRESSES_MAX) + 1;
        let last = format!(
            "10.0.0.200 at 10 s (0 failed calls from there and {others} from other addresses before it are not listed)"
        );
        assert_eq!(found[ADDRESSES_MAX], last);
    }

    #[test]
    fn a_host_with_a_network_of_addresses_counts_as_one() {
        let six = |text: &str| (0, text.parse().unwrap());
        let calls = [
            "2001:db8::1",
            "2001:db8::2",
            "::ffff:10.0.0.1",
            "10.0.0.1",
            "2001:db8:0:1::1",
        ];
        let found = lines(calls.map(six));
        let expected = [
            "2001:db8::1 at 0 s",
            "::ffff:10.0.0.1 at 0 s",
            "2001:db8:0:1::1 at 0 s",
        ];
        assert_eq!(found, expected);
    }
}

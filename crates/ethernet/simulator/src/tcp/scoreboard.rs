//! What the receiver has out of order, what is lost, what was sent again.
//!
//! Method: as in RFC 6675 with forward acknowledgement: the network keeps a flow's order, so data three packets below
//! the highest byte that arrived is lost. Lost ranges are sent again in order. A range that was sent again is lost
//! again when data that was first sent after it has arrived and it has not. Units: bytes. Limits: a queue change inside
//! the host could reorder and would look like a loss.

use std::collections::VecDeque;

/// Packets above a hole that make it a loss.
const REORDERING: u64 = 3;

/// Repair of losses at the sender.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scoreboard {
    /// Arrived out of order: ascending, apart.
    arrived: Vec<(u64, u64)>,
    /// Everything below that has not arrived is lost.
    lost_below: u64,
    /// Lost ranges below were sent again.
    again_below: u64,
    /// Sent again, in order: range, and the first new byte at that time.
    again: VecDeque<(u64, u64, u64)>,
    /// Lost a second time.
    twice: VecDeque<(u64, u64)>,
    /// The repair ends when everything before is acknowledged.
    until: Option<u64>,
}

impl Scoreboard {
    pub(crate) fn is_repairing(&self) -> bool {
        self.until.is_some()
    }

    /// Bytes between `una` and the newest that are not in flight.
    #[inline]
    pub(crate) fn gone(&self, una: u64) -> u64 {
        if self.arrived.is_empty() && self.lost_below <= una {
            return 0;
        }
        let arrived: u64 = self.arrived.iter().map(|(start, end)| end - start).sum();
        let from = self.again_below.max(una);
        let waiting = self.lost_below.saturating_sub(from);
        let arrived_of_those: u64 = self
            .arrived
            .iter()
            .map(|&(start, end)| end.min(self.lost_below).saturating_sub(start.max(from)))
            .sum();
        let twice: u64 = self.twice.iter().map(|(start, end)| end - start).sum();
        arrived + waiting - arrived_of_those + twice
    }

    /// Data that arrived out of order.
    pub(crate) fn add(&mut self, start: u64, end: u64) {
        insert(&mut self.arrived, start, end);
    }

    /// Everything before `una` arrived; looks for losses. True when a repair begins.
    pub(crate) fn update(&mut self, una: u64, nxt: u64, mss: u32) -> bool {
        let below = self.arrived.partition_point(|&(_, end)| end <= una);
        self.arrived.drain(..below);
        while self.twice.front().is_some_and(|&(_, end)| end <= una) {
            self.twice.pop_front();
        }
        if self.until.is_some_and(|until| una >= until) {
            self.until = None;
            self.again.clear();
            self.twice.clear();
        }
        let margin = REORDERING * u64::from(mss);
        let highest = self.arrived.last().map_or(una, |&(_, end)| end);
        self.lost_below = self.lost_below.max(highest.saturating_sub(margin)).max(una);
        self.again_below = self.again_below.max(una);
        while let Some(&(start, end, mark)) = self.again.front() {
            if end <= una || self.covers(start, end) {
                self.again.pop_front();
            } else if highest > mark + margin {
                self.again.pop_front();
                self.twice.push_back((start.max(una), end));
            } else {
                break;
            }
        }
        let begins = self.until.is_none() && self.next_hole(una).is_some();
        if begins {
            self.until = Some(nxt);
        }
        begins
    }

    /// The next range to send again, at most `most` bytes; it counts as sent at `nxt`.
    pub(crate) fn take(&mut self, una: u64, nxt: u64, most: u64) -> Option<(u64, u64)> {
        if let Some((start, end)) = self.twice.pop_front() {
            let cut = end.min(start + most);
            if cut < end {
                self.twice.push_front((cut, end));
            }
            self.again.push_back((start, cut, nxt));
            return Some((start, cut));
        }
        let (start, end) = self.next_hole(una)?;
        let end = end.min(start + most);
        self.again_below = end;
        self.again.push_back((start, end, nxt));
        Some((start, end))
    }

    /// Whether there is anything to send again.
    pub(crate) fn has_lost(&self, una: u64) -> bool {
        !self.twice.is_empty() || self.next_hole(una).is_some()
    }

    /// The next range that [`Scoreboard::take`] gives is this one, although nothing says that it is lost.
    pub(crate) fn probe(&mut self, start: u64, end: u64) {
        self.twice.push_front((start, end));
    }

    /// Everything in flight is lost.
    pub(crate) fn timed_out(&mut self, una: u64, nxt: u64) {
        self.lost_below = nxt;
        self.again_below = una;
        self.again.clear();
        self.twice.clear();
        self.until = Some(nxt);
    }

    fn next_hole(&self, una: u64) -> Option<(u64, u64)> {
        let mut from = self.again_below.max(una);
        for &(start, end) in &self.arrived {
            if from < start {
                let to = start.min(self.lost_below);
                return (from < to).then_some((from, to));
            }
            from = from.max(end);
        }
        (from < self.lost_below).then_some((from, self.lost_below))
    }

    fn covers(&self, start: u64, end: u64) -> bool {
        self.arrived
            .iter()
            .any(|&(from, to)| from <= start && end <= to)
    }
}

/// Adds a range to ranges that are ascending and apart.
pub(crate) fn insert(ranges: &mut Vec<(u64, u64)>, start: u64, end: u64) {
    let first = ranges.partition_point(|range| range.1 < start);
    let after = ranges.partition_point(|range| range.0 <= end);
    let mut joined = (start, end);
    for range in &ranges[first..after] {
        joined = (joined.0.min(range.0), joined.1.max(range.1));
    }
    ranges.splice(first..after, [joined]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MSS: u32 = 1_000;

    #[test]
    fn a_hole_below_three_packets_is_sent_again_once() {
        let mut board = Scoreboard::default();
        board.add(1_000, 3_000);
        assert!(!board.update(0, 10_000, MSS));
        board.add(3_000, 4_000);
        assert!(board.update(0, 10_000, MSS));
        assert_eq!(board.gone(0), 4_000);
        assert_eq!(board.take(0, 10_000, 64_000), Some((0, 1_000)));
        assert_eq!(board.take(0, 10_000, 64_000), None);
        assert_eq!(board.gone(0), 3_000);
        board.update(4_000, 10_000, MSS);
        assert!(board.is_repairing());
        board.update(10_000, 10_000, MSS);
        assert!(!board.is_repairing());
        assert_eq!(board.gone(10_000), 0);
    }

    #[test]
    fn a_repair_that_is_lost_is_sent_again_when_later_data_arrives() {
        let mut board = Scoreboard::default();
        board.add(1_000, 5_000);
        board.update(0, 5_000, MSS);
        assert_eq!(board.take(0, 5_000, 1_000), Some((0, 1_000)));
        board.add(5_000, 8_000);
        board.update(0, 9_000, MSS);
        assert!(!board.has_lost(0));
        board.add(8_000, 9_000);
        board.update(0, 9_000, MSS);
        assert_eq!(board.take(0, 9_000, 1_000), Some((0, 1_000)));
    }

    proptest! {
        #[test]
        fn ranges_equal_a_set_of_bytes(ranges in prop::collection::vec((0_u64..60, 1_u64..12), 0..12)) {
            let mut set = std::collections::BTreeSet::new();
            let mut joined = Vec::new();
            for (start, length) in ranges {
                set.extend(start..start + length);
                insert(&mut joined, start, start + length);
            }
            let bytes: Vec<u64> = joined.iter().flat_map(|&(start, end)| start..end).collect();
            prop_assert_eq!(bytes, set.into_iter().collect::<Vec<_>>());
            prop_assert!(joined.windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
    }
}

//! The measurements of a run.
//!
//! Bytes of flows are counted where the paper's monitor saw them: as packets leave the first host's card.
//! Unfairness over a duration is the worst over all intervals of that length (titan 3), wherever they begin. Intervals begin every
//! [`SLOT`] here, so the worst one is missed by what leaves in one slot at most.

use crate::frame::Frame;
use crate::host::Arrival;
use crate::segment::Kind;
use crate::tcp::flow::Flow;
use isolane_common_quantities::stats::fairness::{FairShare, SentTable};
use isolane_common_quantities::units::{Bytes, Duration, Instant};

/// Intervals of the fairness metrics begin this far apart. With 10 us instead results differ by less than 0.02; 24 hosts that send
/// 1 GB to each other need 170 MB for the table.
const SLOT: Duration = Duration::from_us(20);
/// Slots of a millisecond.
const SLOTS_PER_MS: usize = 50;

/// Counters of a run.
#[derive(Debug)]
pub(crate) struct Measure {
    /// Measuring begins and ends.
    pub(crate) from: Instant,
    pub(crate) until: Instant,
    /// Frames of the first host's flows, by [`SLOT`].
    pub(crate) table: SentTable,
    /// Those flows come first.
    pub(crate) table_flows: u32,
    /// Payload on the wire in the measured time, by flow.
    pub(crate) sent: Vec<u64>,
    /// Processor time of the first host before measuring.
    pub(crate) busy_before: Duration,
    pub(crate) unfinished: usize,
    pub(crate) drops: u64,
    pub(crate) retransmissions: u64,
    pub(crate) timeouts: u64,
    pub(crate) reordered: u64,
    pub(crate) moves: u64,
    pub(crate) weight_writes: u64,
    pub(crate) interrupts: u64,
    pub(crate) segments: u64,
    pub(crate) packets: u64,
    /// Most that a flow had in its host.
    pub(crate) memory_most: u64,
    /// Flows with a merge in the running poll.
    pub(crate) merging: Vec<u32>,
}

impl Measure {
    pub(crate) fn new(flows: usize, table_flows: u32, from: Instant, until: Instant) -> Self {
        Self {
            from,
            until,
            table: SentTable::new(&vec![1; table_flows.max(1) as usize], SLOT),
            table_flows,
            sent: vec![0; flows],
            busy_before: Duration::ZERO,
            unfinished: 0,
            drops: 0,
            retransmissions: 0,
            timeouts: 0,
            reordered: 0,
            moves: 0,
            weight_writes: 0,
            interrupts: 0,
            segments: 0,
            packets: 0,
            memory_most: 0,
            merging: Vec::new(),
        }
    }

    /// A packet of `flow` left a card.
    #[inline]
    pub(crate) fn sent(&mut self, now: Instant, host: u16, frame: &Frame, flow: &mut Flow) {
        self.packets += 1;
        if frame.kind != Kind::Data {
            return;
        }
        flow.tally.wire += u64::from(frame.payload);
        if now < self.from || now >= self.until {
            return;
        }
        self.sent[frame.flow as usize] += u64::from(frame.payload);
        if host == 0 && frame.flow < self.table_flows {
            let at = Instant::ZERO + now.saturating_since(self.from);
            let bytes = Bytes::new(u64::from(frame.bytes));
            self.table.add(at, frame.flow as usize, bytes);
        }
    }

    /// Counts the whole milliseconds of `measured`, one at least, as intervals, those without bytes too.
    pub(crate) fn extend_to(&mut self, measured: Duration) {
        let ms = (measured.as_ps() / Duration::from_ms(1).as_ps()) as usize;
        self.table.extend_to(ms.max(1) * SLOTS_PER_MS);
    }

    /// The worst NFM over an interval of `ms` milliseconds, or over the whole time if it is shorter.
    pub(crate) fn nfm(&self, ms: usize, link: FairShare) -> f64 {
        let window = (ms * SLOTS_PER_MS).min(self.table.slots());
        self.table.nfm(window, link).unwrap_or(0.0)
    }

    /// NFM of a millisecond, the mean over all intervals, in thousandths: the paper does not say how it sums up intervals.
    pub(crate) fn mean_nfm_1ms(&self, link: FairShare) -> u64 {
        let each = self.table.nfm_of_each_window(SLOTS_PER_MS, link);
        (each.iter().sum::<f64>() / each.len().max(1) as f64 * 1e3).round() as u64
    }

    /// A data packet of `flow` reached its host's stack.
    #[inline]
    pub(crate) fn received(&mut self, arrival: &Arrival, flow: &mut Flow) {
        flow.tally.received += u64::from(arrival.payload);
        if arrival.again {
            return;
        }
        if arrival.seq < flow.newest {
            self.reordered += 1;
        }
        flow.newest = flow.newest.max(arrival.seq + u64::from(arrival.payload));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_common_quantities::units::BitRate;

    /// One flow sends in the second half of the first millisecond and in the first half of the next, the other one in the other
    /// halves: each whole millisecond is even, and the one in between is all the first flow's.
    #[test]
    fn an_interval_may_begin_within_a_millisecond() {
        let mut measure = Measure::new(2, 2, Instant::ZERO, Instant::MAX);
        let half = Bytes::new(625_000);
        for (flow, at_us) in [(1, 0), (0, 500), (0, 1_000), (1, 1_500)] {
            let at = Instant::ZERO + Duration::from_us(at_us);
            measure.table.add(at, flow, half);
        }
        measure.extend_to(Duration::from_ms(2));
        let link = FairShare::OfLink(BitRate::from_gbps(10));
        assert_eq!(measure.nfm(1, link), 2.0);
        assert_eq!(measure.nfm(2, link), 0.0);
    }
}

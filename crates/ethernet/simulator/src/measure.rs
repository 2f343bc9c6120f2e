//! The measurements of a run.
//!
//! Bytes of flows are counted where the paper's monitor saw them: as packets leave the first host's card.

use crate::card::Frame;
use crate::host::Arrival;
use crate::segment::Kind;
use crate::tcp::flow::Flow;
use isolane_common_quantities::stats::fairness::SentTable;
use isolane_common_quantities::units::{Bytes, Duration, Instant};

/// Counters of a run.
#[derive(Debug)]
pub(crate) struct Measure {
    /// Measuring begins and ends.
    pub(crate) from: Instant,
    pub(crate) until: Instant,
    /// Frames of the first host's flows, by millisecond.
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
            table: SentTable::new(&vec![1; table_flows.max(1) as usize], Duration::from_ms(1)),
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

//! What each flow sent, read off the wire: bytes in slots of a millisecond, as a mirror port sees them.
//!
//! Problem: fairness over a millisecond needs every packet with its time, of flows that are not known beforehand.
//! Method: a flow gets a number when its first packet is seen and a row of slots that grows as it sends; only what leaves
//! between start and end of the measurement counts. Afterwards the flows that count as competing become a [`SentTable`].
//! Goodput counts each byte of TCP's sequence once.
//! Units: bytes on the wire, payload bytes for goodput. Limits: [`FLOWS_MAX`] flows, later ones are not recorded (and
//! counted); sequence numbers may wrap, half of their space apart at most.
//! Source: titan 6 (measurement at a mirror port).

use crate::frame::FlowKey;
use isolane_common_quantities::stats::fairness::{FairShare, SentTable};
use isolane_common_quantities::units::{BitRate, Bytes, Duration, Instant};
use isolane_study_results::ethernet::Quantiles;

/// Flows that are recorded at most.
pub(crate) const FLOWS_MAX: usize = 4_096;

/// Length of a slot.
pub(crate) const SLOT: Duration = Duration::from_ms(1);

/// One flow.
#[derive(Clone, Debug)]
pub struct FlowRecord {
    /// Who.
    pub key: FlowKey,
    /// Bytes on the wire.
    pub bytes: u64,
    /// Payload, each byte once.
    pub goodput_bytes: u64,
    /// Payload bytes sent before already.
    pub repeated_bytes: u64,
    /// Queue changes.
    pub moves: u64,
    slots: Vec<u64>,
    highest: Option<u32>,
    queue: Option<usize>,
}

/// A packet, as the record needs it.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// When it had left.
    pub at: Instant,
    /// Bytes on the wire.
    pub bytes: u32,
    /// From this queue.
    pub queue: usize,
    /// TCP's first sequence number and payload, if it is TCP with data.
    pub data: Option<(u32, u32)>,
}

/// All flows of one measurement.
#[derive(Clone, Debug)]
pub struct WireRecord {
    from: Instant,
    flows: Vec<FlowRecord>,
}

impl WireRecord {
    /// Begins to count at `from`.
    pub fn new(from: Instant) -> Self {
        Self {
            from,
            flows: Vec::new(),
        }
    }

    /// Counts a packet of flow number `flow` with this `key`; numbers are given by the caller, without gaps.
    pub fn see(&mut self, flow: usize, key: FlowKey, seen: Seen) {
        if seen.at < self.from || flow >= FLOWS_MAX {
            return;
        }
        while self.flows.len() <= flow {
            self.flows.push(FlowRecord::new(key));
        }
        let slot = (seen.at.saturating_since(self.from).as_ps() / SLOT.as_ps()) as usize;
        let record = &mut self.flows[flow];
        record.key = key;
        record.count(slot, seen);
    }

    /// The TCP flows that sent most, at most `count`, by number.
    pub fn bulk(&self, count: usize) -> Vec<&FlowRecord> {
        let mut tcp: Vec<(usize, &FlowRecord)> = self
            .flows
            .iter()
            .enumerate()
            .filter(|(_, flow)| flow.key.is_tcp() && flow.goodput_bytes > 0)
            .collect();
        tcp.sort_by_key(|(_, flow)| std::cmp::Reverse(flow.bytes));
        tcp.truncate(count);
        tcp.sort_by_key(|(index, _)| *index);
        tcp.into_iter().map(|(_, flow)| flow).collect()
    }
}

/// What the bulk flows of a recording sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    /// Of all flows, on the wire.
    pub wire_gbps: f64,
    /// Payload of each bulk flow.
    pub flow_gbps: Vec<f64>,
    /// The worst over a millisecond, and over a second (or the whole time, if it was shorter).
    pub nfm_1ms: f64,
    pub nfm_1s: f64,
    /// Queue changes.
    pub moves: u64,
}

/// What the `flows` largest flows sent in `length`, over a wire of `rate`.
pub(crate) fn sent(record: &WireRecord, flows: u32, length: Duration, rate: BitRate) -> Sent {
    let bulk = record.bulk(flows as usize);
    let slots = (length.as_ps() / SLOT.as_ps()) as usize;
    let table = table(&bulk, slots);
    let nfm = |window: usize| {
        let table = table.as_ref();
        let worst = table.and_then(|table| table.nfm(window.min(slots), FairShare::OfLink(rate)));
        worst.unwrap_or(0.0)
    };
    let gbps = |bytes: u64| bytes as f64 * 8.0 / length.as_secs_f64() / 1e9;
    Sent {
        wire_gbps: gbps(record.flows.iter().map(|flow| flow.bytes).sum()),
        flow_gbps: bulk.iter().map(|flow| gbps(flow.goodput_bytes)).collect(),
        nfm_1ms: nfm(1),
        nfm_1s: nfm(1_000),
        moves: bulk.iter().map(|flow| flow.moves).sum(),
    }
}

/// Quantiles of a sample; none of an empty one.
pub(crate) fn quantiles(sample: &[f64]) -> Option<Quantiles> {
    let mut sorted = sample.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let at = |part: f64| sorted[(last as f64 * part).round() as usize];
    Some(Quantiles {
        count: sorted.len() as u64,
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
    })
}

/// What these flows sent, in `slots` whole slots; `None` of no flows.
fn table(flows: &[&FlowRecord], slots: usize) -> Option<SentTable> {
    if flows.is_empty() {
        return None;
    }
    let mut table = SentTable::new(&vec![1; flows.len()], SLOT);
    table.extend_to(slots);
    for (index, flow) in flows.iter().enumerate() {
        for (slot, bytes) in flow.slots.iter().enumerate().take(slots) {
            table.add(
                Instant::ZERO + SLOT * slot as u64,
                index,
                Bytes::new(*bytes),
            );
        }
    }
    Some(table)
}

impl FlowRecord {
    fn new(key: FlowKey) -> Self {
        Self {
            key,
            bytes: 0,
            goodput_bytes: 0,
            repeated_bytes: 0,
            moves: 0,
            slots: Vec::new(),
            highest: None,
            queue: None,
        }
    }

    fn count(&mut self, slot: usize, seen: Seen) {
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, 0);
        }
        self.slots[slot] += u64::from(seen.bytes);
        self.bytes += u64::from(seen.bytes);
        if self
            .queue
            .replace(seen.queue)
            .is_some_and(|old| old != seen.queue)
        {
            self.moves += 1;
        }
        if let Some((sequence, payload)) = seen.data {
            self.count_data(sequence, payload);
        }
    }

    fn count_data(&mut self, sequence: u32, payload: u32) {
        let end = sequence.wrapping_add(payload);
        let new = match self.highest {
            None => payload,
            Some(highest) => {
                let ahead = end.wrapping_sub(highest) as i32;
                ahead.clamp(0, payload as i32) as u32
            }
        };
        if new > 0 {
            self.highest = Some(end);
        }
        self.goodput_bytes += u64::from(new);
        self.repeated_bytes += u64::from(payload - new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(port: u16) -> FlowKey {
        FlowKey {
            source: [0; 16],
            destination: [0; 16],
            ports: [port, 1],
            protocol: 6,
        }
    }

    fn seen(us: u64, queue: usize, sequence: u32) -> Seen {
        Seen {
            at: Instant::ZERO + Duration::from_us(us),
            bytes: 1_000,
            queue,
            data: Some((sequence, 900)),
        }
    }

    #[test]
    fn bytes_fall_into_their_millisecond_and_repeats_are_no_goodput() {
        let mut record = WireRecord::new(Instant::ZERO + Duration::from_us(1_000));
        record.see(0, key(7), seen(500, 0, 0));
        record.see(0, key(7), seen(1_500, 0, 900));
        record.see(0, key(7), seen(2_500, 1, 900));
        record.see(1, key(8), seen(1_600, 2, u32::MAX - 100));
        record.see(1, key(8), seen(1_700, 2, 799));
        let flows = record.bulk(9);
        assert_eq!(flows.len(), 2);
        assert_eq!(
            (
                flows[0].goodput_bytes,
                flows[0].repeated_bytes,
                flows[0].moves
            ),
            (900, 900, 1)
        );
        assert_eq!(flows[1].goodput_bytes, 1_800);
        let table = table(&flows, 2).unwrap();
        // First slot 1,000 against 2,000; second 1,000 against nothing.
        assert_eq!(
            table.nfm_of_each_window(1, FairShare::OfSent),
            [2.0 / 3.0, 2.0]
        );
    }

    #[test]
    fn only_the_largest_flows_compete() {
        let mut record = WireRecord::new(Instant::ZERO);
        for flow in 0..3 {
            for packet in 0..=flow as u64 {
                record.see(flow, key(flow as u16), seen(packet, 0, packet as u32 * 900));
            }
        }
        let ports: Vec<u16> = record
            .bulk(2)
            .iter()
            .map(|flow| flow.key.ports[0])
            .collect();
        assert_eq!(ports, [1, 2]);
        assert!(table(&[], 3).is_none());
    }
}

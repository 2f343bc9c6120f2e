//! What hops tell packets (in-band telemetry of HPCC): queue, bytes sent, time, rate, at each port that they leave.
//!
//! It travels beside the packets, in a slab of its own, so that packets that do not ask for it stay small.

use super::port::Port;
use crate::packet::{HopTelemetry, TELEMETRY_HOPS};
use isolane_core::units::Instant;

#[derive(Clone, Copy, Debug, Default)]
struct Record {
    hops: [HopTelemetry; TELEMETRY_HOPS],
    count: usize,
}

/// The telemetry of all packets in flight.
#[derive(Clone, Debug, Default)]
pub(super) struct Telemetry {
    records: Vec<Record>,
    free: Vec<u32>,
}

impl Telemetry {
    /// An empty record.
    pub(super) fn open(&mut self) -> u64 {
        let Some(index) = self.free.pop() else {
            self.records.push(Record::default());
            return self.records.len() as u64 - 1;
        };
        self.records[index as usize].count = 0;
        u64::from(index)
    }

    pub(super) fn close(&mut self, record: u64) {
        self.free.push(record as u32);
    }

    /// Records open.
    pub(super) fn live(&self) -> usize {
        self.records.len() - self.free.len()
    }

    pub(super) fn hops(&self, record: u64) -> &[HopTelemetry] {
        let record = &self.records[record as usize];
        &record.hops[..record.count]
    }

    /// A packet leaves through `port`. Hops beyond the last that fits are not told.
    pub(super) fn note(&mut self, record: u64, port: &Port, now: Instant) {
        let record = &mut self.records[record as usize];
        if record.count < TELEMETRY_HOPS {
            record.hops[record.count] = HopTelemetry {
                queue_bytes: port.queued,
                sent_bytes: port.sent,
                at: now,
                ps_per_byte: port.ps_per_byte(),
            };
            record.count += 1;
        }
    }
}

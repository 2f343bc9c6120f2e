//! What hops write into packets (in-band telemetry of HPCC): queue, bytes sent, time, rate, at each port that they
//! leave.
//!
//! It travels beside the packets, in a slab with the same numbers, so that packets stay small and runs without
//! telemetry have no cost.

use super::port::Port;
use crate::packet::{HopTelemetry, PacketId, TELEMETRY_HOPS};
use isolane_common_quantities::units::Instant;

#[derive(Clone, Copy, Debug, Default)]
struct Record {
    hops: [HopTelemetry; TELEMETRY_HOPS],
    count: usize,
}

/// The telemetry of all packets in flight.
#[derive(Clone, Debug, Default)]
pub(super) struct Telemetry {
    records: Vec<Record>,
}

impl Telemetry {
    /// `packet` sets out.
    pub(super) fn open(&mut self, packet: PacketId) {
        let index = packet.0 as usize;
        if index >= self.records.len() {
            self.records.resize(index + 1, Record::default());
        }
        self.records[index].count = 0;
    }

    pub(super) fn hops(&self, packet: PacketId) -> &[HopTelemetry] {
        let record = self.records.get(packet.0 as usize);
        record.map_or(&[], |record| &record.hops[..record.count])
    }

    /// A packet leaves through `port`. Hops beyond the last that fits are not recorded.
    pub(super) fn note(&mut self, packet: PacketId, port: &Port, now: Instant) {
        let Some(record) = self.records.get_mut(packet.0 as usize) else {
            return;
        };
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

//! Echo requests beside the flows.
//!
//! Method: a process on one processor sends a request every interval; the other host's kernel answers at once, in its
//! receive poll. Request and reply take the way of any packet: queue, software queue (where `prio` prefers them), ring,
//! round robin. The queue: a raw socket keeps none, so the kernel hashes each packet again, but over the same two
//! addresses, so a run's pings share one queue; where processors have queues of their own it is the one of the
//! processor that the process is on, drawn for each run. Times of processes and sleeping cores are a constant. Units:
//! nanoseconds of a round trip. Source: titan 3 (1 KB pings; 90th percentile).

use crate::segment::{Kind, NIL, Segment};
use crate::settings::{PING_HEADERS, Settings};
use isolane_common_quantities::units::{Duration, Instant};

#[derive(Debug, Default)]
pub(crate) struct Pings {
    /// The flow entry that holds their ways; the last.
    pub(crate) flow: u32,
    pub(crate) payload: u32,
    pub(crate) interval: Duration,
    pub(crate) processor: u16,
    pub(crate) sent: Vec<Instant>,
    /// Round trips of those sent after the warm-up.
    pub(crate) round_trips: Vec<Duration>,
}

impl Pings {
    /// The next request is sent at `now`: its number.
    pub(crate) fn begin(&mut self, now: Instant) -> u32 {
        let number = self.sent.len() as u32;
        self.sent.push(now);
        number
    }

    /// The reply to request `number` was received at `at`. Those sent before `from` do not count; `extra` is what processes take.
    pub(crate) fn returned(&mut self, number: u64, from: Instant, at: Instant, extra: Duration) {
        let sent = self.sent[number as usize];
        if sent >= from {
            self.round_trips.push(at - sent + extra);
        }
    }

    /// A request or reply.
    pub(crate) fn segment(
        &self,
        settings: &Settings,
        now: Instant,
        kind: Kind,
        number: u32,
    ) -> Segment {
        let header = PING_HEADERS + settings.ethernet;
        Segment {
            seq: 0,
            entered: now,
            rate: u64::MAX,
            flow: self.flow,
            next: NIL,
            payload: self.payload,
            taken: 0,
            memory: 0,
            info: number,
            bytes: self.payload + header,
            descriptors: 1,
            header: header as u16,
            kind,
            again: false,
        }
    }
}

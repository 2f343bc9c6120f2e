//! Echo requests beside the flows.
//!
//! Method: a process on one processor sends a request every interval; the other host's kernel answers at once, in its
//! receive poll. Request and reply take the way of any packet: queue, software queue (where `prio` prefers them), ring,
//! round robin. The queue: a raw socket keeps none, so the kernel hashes each packet anew, but over the same two
//! addresses, so a run's pings share one queue; where processors have queues of their own it is the one of the
//! processor that the process is on, drawn for each run. Times of processes and sleeping cores are a constant.
//! Units: nanoseconds of a round trip. Source: titan 3 (1 KB pings; 90th percentile).

use crate::host::Arrival;
use crate::processor::Job;
use crate::segment::{Kind, NIL, Segment};
use crate::settings::PING_HEADERS;
use crate::world::{Event, World};
use isolane_common_quantities::units::{Duration, Instant};

/// The pings of a run.
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

impl World {
    pub(crate) fn ping_due(&mut self) {
        let source = self.flows[self.pings.flow as usize].source;
        self.plan(source, self.pings.processor, Job::Ping);
        self.events
            .schedule(self.now + self.pings.interval, Event::Ping);
    }

    pub(crate) fn send_ping(&mut self, host: u16, processor: u16) {
        let number = self.pings.sent.len() as u32;
        self.pings.sent.push(self.now);
        let segment = self.echo(Kind::Ping, number);
        self.transmit(host, segment, processor);
    }

    pub(crate) fn answer_ping(&mut self, host: u16, arrival: &Arrival, processor: u16) {
        let segment = self.echo(Kind::Pong, arrival.seq as u32);
        self.transmit(host, segment, processor);
    }

    pub(crate) fn ping_returned(&mut self, arrival: &Arrival) {
        let sent = self.pings.sent[arrival.seq as usize];
        if sent >= self.measure.from {
            let round_trip = self.job_end() - sent + self.settings.cost.ping;
            self.pings.round_trips.push(round_trip);
        }
    }

    fn echo(&self, kind: Kind, number: u32) -> Segment {
        let header = PING_HEADERS + self.settings.ethernet;
        Segment {
            seq: 0,
            entered: self.now,
            rate: u64::MAX,
            flow: self.pings.flow,
            next: NIL,
            payload: self.pings.payload,
            taken: 0,
            memory: 0,
            info: number,
            bytes: self.pings.payload + header,
            descriptors: 1,
            header: header as u16,
            kind,
            again: false,
        }
    }
}

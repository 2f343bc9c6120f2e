//! One message on its way: a cursor that only moves forward, and what it passed.

use super::record::Place;
use super::{FollowedMessage, Part, Resource, Span, Stage};

/// Where a followed message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Not wholly sent by its requester.
    Sending,
    /// Its last packet is on the way to the responder or waits there.
    Travelling,
    /// A READ that the responder is to answer.
    Answering,
    /// The last packet of a READ's answer is on the way back.
    Returning,
    /// The responder is done; an acknowledgement (or, unreliable, nothing) is on the way.
    Answered,
    /// A ping-pong message on its way into the receiver's memory.
    Delivering,
    /// Its completion is on the way to the application.
    Completing,
}

/// A wait that was known when it began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) part: Part,
    /// When it ends, ps; it began where the one before ended.
    pub(crate) end: u64,
}

/// A followed message.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    pub(crate) message: u64,
    pub(crate) phase: Phase,
    /// Its last work request, once sent.
    pub(crate) position: u64,
    /// Which of the pair's last packets it is, in its direction, once sent.
    pub(crate) ticket: u64,
    posted: u64,
    cursor: u64,
    spans: Vec<Span>,
}

impl Probe {
    pub(crate) fn new(message: u64, posted: u64) -> Self {
        Self {
            message,
            phase: Phase::Sending,
            position: u64::MAX,
            ticket: u64::MAX,
            posted,
            cursor: posted,
            spans: Vec::with_capacity(32),
        }
    }

    pub(crate) fn cursor(&self) -> u64 {
        self.cursor
    }

    /// The time up to `end` that no part has yet belongs to `part`.
    pub(crate) fn until(&mut self, end: u64, part: Part) {
        if end > self.cursor {
            self.add(part, end - self.cursor);
        }
    }

    /// The next `ps` belong to `part`.
    pub(crate) fn add(&mut self, part: Part, ps: u64) {
        if ps == 0 {
            return;
        }
        self.cursor += ps;
        match self.spans.last_mut() {
            Some(last) if last.part == part => last.ps += ps,
            _ => self.spans.push(Span { part, ps }),
        }
    }

    /// Forgets what would be after `end`.
    pub(crate) fn trim(&mut self, end: u64) {
        while self.cursor > end {
            let Some(last) = self.spans.last_mut() else {
                return;
            };
            let excess = last.ps.min(self.cursor - end);
            last.ps -= excess;
            self.cursor -= excess;
            if last.ps == 0 {
                self.spans.pop();
            }
        }
    }

    pub(crate) fn finish(self) -> FollowedMessage {
        FollowedMessage {
            posted: self.posted,
            latency: self.cursor - self.posted,
            spans: self.spans,
        }
    }
}

/// Waits for metadata at the requester; the index of its timeline too.
pub(crate) const REQUEST: usize = 0;
/// Waits for metadata at the responder; the index of its timeline too.
pub(crate) const RESPOND: usize = 1;
/// Waits for work requests.
pub(crate) const FETCH: usize = 2;

/// What is known of one queue pair of the victim.
#[derive(Clone, Debug, Default)]
pub(crate) struct Story {
    pub(crate) probe: Option<Probe>,
    /// Metadata under way at the requester ([`REQUEST`]) and at the responder ([`RESPOND`]), and the work request
    /// fetch under way ([`FETCH`]).
    pub(crate) known: [Vec<Known>; 3],
    /// The host and the place at whose transmitter it waits, and what had held that transmitter when it began to wait.
    pub(crate) place: (usize, Place),
    pub(crate) held: Vec<u64>,
    /// Last packets of requests that were sent, and that arrived.
    pub(crate) requests: [u64; 2],
    pub(crate) responses: [u64; 2],
}

impl Story {
    /// Gives the probe what is known of the time before `end`, if the waits were its own.
    pub(crate) fn pass(&mut self, which: usize, end: u64, own: bool) {
        if let Some(probe) = self.probe.as_mut().filter(|_| own) {
            for wait in &self.known[which] {
                probe.until(wait.end.min(end), wait.part);
            }
        }
        self.known[which].clear();
    }
}

impl Part {
    /// Time in which the message was served or on its way.
    pub(crate) fn served(stage: Stage, host: usize, resource: Resource, tenant: u16) -> Self {
        Self {
            stage,
            host: host as u8,
            resource,
            tenant,
            service: true,
        }
    }

    pub(crate) fn waited(stage: Stage, host: usize, resource: Resource, tenant: u16) -> Self {
        Self {
            service: false,
            ..Self::served(stage, host, resource, tenant)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_message_add_up_to_its_latency() {
        let wire = Part::served(Stage::Wire, 0, Resource::Wire, 0);
        let queue = Part::waited(Stage::Schedule, 0, Resource::Wire, 1);
        let mut probe = Probe::new(3, 100);
        probe.until(150, queue);
        probe.until(140, wire);
        probe.until(180, wire);
        probe.add(wire, 5);
        let message = probe.finish();
        assert_eq!((message.posted, message.latency), (100, 85));
        assert_eq!(
            message.spans,
            [
                Span {
                    part: queue,
                    ps: 50
                },
                Span { part: wire, ps: 35 }
            ]
        );
    }
}

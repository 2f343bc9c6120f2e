//! The card's packet buffer, which the wire empties.
//!
//! Method: the card fetches one packet at a time from the host's memory, and another one while the buffer holds no more than a
//! threshold. The wire sends what is in the buffer in the order of arrival. Units: bytes of frames. Source: Linux,
//! `ixgbe_set_rxpba_generic` (160 KB, a threshold 10 KB below). Limits: a fetch takes time by its bytes; its latency is in the link's
//! delay.

use crate::frame::Frame;
use isolane_common_quantities::units::Instant;
use std::collections::VecDeque;

/// The packets that a card has fetched and not sent.
#[derive(Debug)]
pub(crate) struct Buffer {
    /// Each with the time at which it is fetched. The first one is on the wire.
    packets: VecDeque<(Instant, Frame)>,
    bytes: u32,
    /// Bytes above which nothing is fetched.
    threshold: u32,
    /// When the last packet is fetched.
    fetched_at: Instant,
    /// An event at that time is planned.
    planned: bool,
}

/// When to fetch the next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetch {
    Now,
    /// When the last one is fetched: an event is to be planned.
    At(Instant),
    /// After a packet has left, or in a planned event.
    Waits,
}

impl Buffer {
    pub(crate) fn new(threshold: u32) -> Self {
        Self {
            packets: VecDeque::new(),
            bytes: 0,
            threshold,
            fetched_at: Instant::ZERO,
            planned: false,
        }
    }

    /// When to fetch the next packet. After [`Fetch::At`] that event ends with [`Buffer::planned_is_due`].
    #[inline]
    pub(crate) fn next_fetch(&mut self, now: Instant) -> Fetch {
        if self.bytes > self.threshold || self.planned {
            return Fetch::Waits;
        }
        if now >= self.fetched_at {
            return Fetch::Now;
        }
        self.planned = true;
        Fetch::At(self.fetched_at)
    }

    pub(crate) fn planned_is_due(&mut self) {
        self.planned = false;
    }

    /// Fetches `frame` until `until`. Whether it is alone, so the wire sends it then.
    #[inline]
    pub(crate) fn fetch(&mut self, frame: Frame, until: Instant) -> bool {
        self.fetched_at = until;
        self.bytes += u32::from(frame.bytes);
        self.packets.push_back((until, frame));
        self.packets.len() == 1
    }

    /// The packet on the wire has left. With it the next one's bytes and the time at which it is fetched.
    #[inline]
    pub(crate) fn left(&mut self) -> Option<(Frame, Option<(Instant, u32)>)> {
        let (_, frame) = self.packets.pop_front()?;
        self.bytes -= u32::from(frame.bytes);
        let next = self.packets.front();
        Some((
            frame,
            next.map(|(fetched_at, next)| (*fetched_at, u32::from(next.bytes))),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Kind;
    use isolane_common_quantities::units::Duration;

    fn frame(seq: u64, bytes: u16) -> Frame {
        Frame {
            seq,
            flow: 0,
            info: 0,
            payload: 0,
            bytes,
            queue: 0,
            kind: Kind::Data,
            again: false,
            marked: false,
        }
    }

    /// 450 ns for a fetch: the buffer takes packets until it holds more than its threshold, and goes on after one has left.
    #[test]
    fn it_fetches_one_at_a_time_until_it_is_full() {
        let mut buffer = Buffer::new(3_000);
        let at = |ns| Instant::ZERO + Duration::from_ns(ns);
        assert_eq!(buffer.next_fetch(at(0)), Fetch::Now);
        assert!(buffer.fetch(frame(1, 1_514), at(450)));
        assert_eq!(buffer.next_fetch(at(100)), Fetch::At(at(450)));
        assert_eq!(buffer.next_fetch(at(200)), Fetch::Waits);
        buffer.planned_is_due();
        assert_eq!(buffer.next_fetch(at(450)), Fetch::Now);
        assert!(!buffer.fetch(frame(2, 1_514), at(900)));
        assert_eq!(buffer.next_fetch(at(900)), Fetch::Waits);
        let (left, next) = buffer.left().expect("a packet was on the wire");
        assert_eq!((left.seq, next), (1, Some((at(900), 1_514))));
        assert_eq!(buffer.next_fetch(at(900)), Fetch::Now);
        let (left, next) = buffer.left().expect("a packet was on the wire");
        assert_eq!((left.seq, next), (2, None));
        assert!(buffer.left().is_none());
    }
}

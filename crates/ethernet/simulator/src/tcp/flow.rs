//! The state of one flow: its sender, its receiver, and its way through each host.

use super::scoreboard::Scoreboard;
use super::window::Window;
use crate::segment::Kind;
use crate::settings::Settings;
use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::units::{Duration, Instant};
use isolane_ethernet_policy::titan::assign::Place;
use std::collections::VecDeque;

/// One direction of a connection in the host that sends there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) place: Place,
    /// Segments in the host.
    pub(crate) outstanding: u32,
    /// The queue of the last one; `u16::MAX` before.
    pub(crate) queue: u16,
    /// Chooses a transmit queue.
    pub(crate) hash: u32,
    /// Chooses the receive queue of what comes back (of data: at its receiver).
    pub(crate) receive_hash: u32,
}

/// Packets that one poll merges.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Merge {
    pub(crate) active: bool,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) marked: u32,
}

/// What became of a flow's bytes. On the wire = received + dropped + on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) wire: u64,
    pub(crate) received: u64,
    pub(crate) dropped: u64,
}

#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) source: u16,
    pub(crate) destination: u16,
    /// Where its application runs.
    pub(crate) processor: u16,
    /// Bytes to send in all.
    pub(crate) size: u64,
    pub(crate) data: Way,
    pub(crate) back: Way,

    /// First byte not acknowledged.
    pub(crate) una: u64,
    /// Next new byte.
    pub(crate) nxt: u64,
    /// Bytes that the application wrote.
    pub(crate) written: u64,
    /// A write is planned.
    pub(crate) writing: bool,
    /// What the socket is charged for segments in the host.
    pub(crate) memory: u64,
    /// TCP Small Queues hold it back.
    pub(crate) throttled: bool,
    /// A completion has planned its next turn.
    pub(crate) waking: bool,
    pub(crate) window: Window,
    pub(crate) scoreboard: Scoreboard,
    /// End of each segment sent for the first time, and when.
    pub(crate) sent: VecDeque<(u64, Instant)>,
    pub(crate) rtt: Option<RoundTrip>,
    /// Bytes a second, from window and round trip.
    pub(crate) rate: u64,
    /// Retransmission timer.
    pub(crate) deadline: Option<Instant>,
    pub(crate) timer_planned: bool,
    pub(crate) backoff: u32,
    /// A probe for a lost tail was sent, and nothing came back since.
    pub(crate) probed: bool,

    pub(crate) received: u64,
    /// Out-of-order data, ascending and apart.
    pub(crate) islands: Vec<(u64, u64)>,
    pub(crate) unacknowledged: u64,
    pub(crate) marked: u32,
    pub(crate) ack_at: Option<Instant>,
    pub(crate) ack_planned: bool,
    pub(crate) merge: Merge,
    /// End of the newest packet seen, to detect reordering.
    pub(crate) newest: u64,

    pub(crate) tally: Tally,
    pub(crate) finished: Option<Instant>,
}

/// Smoothed round-trip time (RFC 6298).
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrip {
    pub(crate) smoothed: Duration,
    pub(crate) variation: Duration,
    pub(crate) least: Duration,
}

impl RoundTrip {
    pub(crate) fn first(sample: Duration) -> Self {
        Self {
            smoothed: sample,
            variation: sample / 2,
            least: sample,
        }
    }

    pub(crate) fn add(&mut self, sample: Duration) {
        let difference = self
            .smoothed
            .saturating_sub(sample)
            .max(sample.saturating_sub(self.smoothed));
        self.variation = (self.variation * 3 + difference) / 4;
        self.smoothed = (self.smoothed * 7 + sample) / 8;
        self.least = self.least.min(sample);
    }
}

impl Way {
    fn new(random: &mut Stream) -> Self {
        Self {
            place: Place::default(),
            outstanding: 0,
            queue: u16::MAX,
            hash: (random.next_u64() >> 33) as u32,
            receive_hash: (random.next_u64() >> 33) as u32,
        }
    }
}

impl Flow {
    /// Flow number `index` of a run with `seed`.
    pub(crate) fn new(settings: &Settings, seed: u64, index: u32) -> Self {
        let mut random = Stream::indexed(seed, "flow hash", u64::from(index));
        Self {
            source: 0,
            destination: 1,
            processor: 0,
            size: u64::MAX,
            data: Way::new(&mut random),
            back: Way::new(&mut random),
            una: 0,
            nxt: 0,
            written: 0,
            writing: false,
            memory: 0,
            throttled: false,
            waking: false,
            window: Window::new(settings),
            scoreboard: Scoreboard::default(),
            sent: VecDeque::new(),
            rtt: None,
            rate: u64::MAX,
            deadline: None,
            timer_planned: false,
            backoff: 0,
            probed: false,
            received: 0,
            islands: Vec::new(),
            unacknowledged: 0,
            marked: 0,
            ack_at: None,
            ack_planned: false,
            merge: Merge::default(),
            newest: 0,
            tally: Tally::default(),
            finished: None,
        }
    }

    #[inline]
    pub(crate) fn way_mut(&mut self, kind: Kind) -> &mut Way {
        match kind {
            Kind::Data | Kind::Ping => &mut self.data,
            Kind::Ack | Kind::Pong => &mut self.back,
        }
    }

    /// Packets in flight, as RFC 6675 counts them.
    #[inline]
    pub(crate) fn in_flight(&self, mss: u32) -> u32 {
        let gone = self.scoreboard.gone(self.una);
        ((self.nxt - self.una).saturating_sub(gone)).div_ceil(u64::from(mss)) as u32
    }

    pub(crate) fn timeout_after(&self, least: Duration) -> Duration {
        let base = self.rtt.map_or(least * 5, |rtt| {
            rtt.smoothed + (rtt.variation * 4).max(least)
        });
        base * (1 << self.backoff.min(8))
    }
}

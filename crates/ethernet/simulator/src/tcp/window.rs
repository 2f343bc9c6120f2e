//! Congestion windows: CUBIC (RFC 9438) with HyStart, and DCTCP (RFC 8257).
//!
//! Method: the window grows by acknowledged packets, but only while it is what limits the flow. CUBIC's slow start ends
//! when a train of acknowledgements of one round has become longer than half of the least round trip, by a clock of
//! milliseconds, or when the round's least time exceeds the least ever by 4 ms or more. Before the first loss the window
//! then grows by 5 % in a round trip at least. Losses multiply the window by 0.7. DCTCP keeps the part
//! of marked bytes of each window and takes half of that part off, once in a window; it grows like Reno.
//! Units: packets, as floats: only sums, products and one cube root of fixed precision, so the same on every machine.
//! Source beside the RFCs: Linux 4.4, `tcp_cubic.c`. Limits: no spurious-loss undo.

use crate::settings::Settings;
use isolane_common_quantities::units::{Duration, Instant};
use isolane_ethernet_scenario::model::TcpCongestion;

const CUBIC_C: f64 = 0.4;
const CUBIC_BETA: f64 = 0.7;
/// Reno's growth that is as fast as CUBIC's decrease allows (RFC 9438, 4.3).
const CUBIC_ALPHA: f64 = 3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA);
const DCTCP_GAIN: f64 = 1.0 / 16.0;
/// HyStart: least window, gap that ends a train, bounds of a rise in delay, samples of a round.
const START_LEAST: f64 = 16.0;
const TRAIN_GAP: Duration = Duration::from_ms(2);
const RISE: (Duration, Duration) = (Duration::from_ms(4), Duration::from_ms(16));
const SAMPLES: u32 = 8;
/// Picoseconds.
const MS: u64 = 1_000_000_000;
/// Least growth in a round trip before the first loss.
const GROWTH_LEAST: f64 = 1.05;
/// Packets of the least window.
const LEAST: f64 = 2.0;

#[derive(Clone, Debug)]
pub(crate) struct Window {
    algorithm: TcpCongestion,
    /// Packets.
    pub(crate) size: f64,
    pub(crate) threshold: f64,
    /// The window held something back since the flow was last measured.
    limited: bool,
    /// Most packets in flight in the current measurement, which ends at that byte.
    flight_most: u32,
    flight_until: u64,
    cubic: Cubic,
    start: Start,
    marks: Marks,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cubic {
    epoch: Option<Instant>,
    most: f64,
    last_most: f64,
    k: f64,
    reno: f64,
    has_lost: bool,
}

#[derive(Clone, Copy, Debug)]
struct Start {
    round_end: u64,
    round_from: Instant,
    last_ack: Instant,
    least: Duration,
    samples: u32,
}

#[derive(Clone, Copy, Debug)]
struct Marks {
    alpha: f64,
    acked: u64,
    marked: u64,
    window_end: u64,
    /// The window was cut; not again before this byte.
    cut_until: u64,
}

/// The input of the window from an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledged {
    pub(crate) now: Instant,
    pub(crate) bytes: u64,
    pub(crate) marked: u64,
    /// Everything before it is acknowledged.
    pub(crate) una: u64,
    pub(crate) nxt: u64,
    pub(crate) packets: f64,
    pub(crate) sample: Option<Duration>,
    pub(crate) smoothed: Duration,
    pub(crate) least: Duration,
    /// No loss is being repaired.
    pub(crate) may_grow: bool,
}

impl Window {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            algorithm: settings.congestion,
            size: f64::from(settings.initial_window),
            threshold: f64::INFINITY,
            limited: false,
            flight_most: 0,
            flight_until: 0,
            cubic: Cubic::default(),
            start: Start {
                round_end: 0,
                round_from: Instant::ZERO,
                last_ack: Instant::ZERO,
                least: Duration::MAX,
                samples: 0,
            },
            marks: Marks {
                alpha: 1.0,
                acked: 0,
                marked: 0,
                window_end: 0,
                cut_until: 0,
            },
        }
    }

    pub(crate) fn in_slow_start(&self) -> bool {
        self.size < self.threshold
    }

    /// After something was sent: what is in flight, and whether the window held something back.
    pub(crate) fn measure(&mut self, una: u64, nxt: u64, in_flight: u32, limited: bool) {
        if una >= self.flight_until || in_flight > self.flight_most {
            self.flight_most = in_flight;
            self.flight_until = nxt;
            self.limited = limited;
        }
    }

    fn is_limit(&self) -> bool {
        match self.in_slow_start() {
            true => self.size < 2.0 * f64::from(self.flight_most),
            false => self.limited,
        }
    }

    pub(crate) fn acknowledged(&mut self, ack: &Acknowledged) {
        if self.algorithm == TcpCongestion::Dctcp {
            self.count_marks(ack);
        } else if self.in_slow_start() {
            self.look_for_the_end_of_slow_start(ack);
        }
        if !ack.may_grow || !self.is_limit() {
            return;
        }
        let mut packets = ack.packets;
        if self.in_slow_start() {
            let room = (self.threshold - self.size).max(0.0);
            let taken = packets.min(room);
            self.size += taken;
            packets -= taken;
        }
        if packets > 0.0 {
            match self.algorithm {
                TcpCongestion::Cubic => self.grow_cubic(packets, ack),
                TcpCongestion::Dctcp => self.size += packets / self.size,
            }
        }
    }

    /// A loss, or a local drop: the window shrinks.
    pub(crate) fn lost(&mut self) {
        let factor = match self.algorithm {
            TcpCongestion::Cubic => CUBIC_BETA,
            TcpCongestion::Dctcp => 0.5,
        };
        self.cubic.last_most = self.cubic.most;
        self.cubic.most = match self.size < self.cubic.last_most {
            true => self.size * (1.0 + CUBIC_BETA) / 2.0,
            false => self.size,
        };
        self.cubic.epoch = None;
        self.cubic.has_lost = true;
        self.threshold = (self.size * factor).max(LEAST);
        self.size = self.threshold;
    }

    /// A retransmission timeout: one packet.
    pub(crate) fn timed_out(&mut self) {
        self.lost();
        self.size = 1.0;
    }

    fn grow_cubic(&mut self, packets: f64, ack: &Acknowledged) {
        let epoch = match self.cubic.epoch {
            Some(epoch) => epoch,
            None => {
                self.cubic.epoch = Some(ack.now);
                self.cubic.most = self.cubic.most.max(self.size);
                self.cubic.k = libm::cbrt((self.cubic.most - self.size) / CUBIC_C);
                self.cubic.reno = self.size;
                ack.now
            }
        };
        let cubic = &mut self.cubic;
        let after = (ack.now.saturating_since(epoch) + ack.smoothed).as_secs_f64();
        let distance = after - cubic.k;
        let target = cubic.most + CUBIC_C * distance * distance * distance;
        let alpha = if cubic.reno < cubic.most {
            CUBIC_ALPHA
        } else {
            1.0
        };
        cubic.reno += alpha * packets / self.size;
        let least = match cubic.has_lost {
            true => self.size,
            false => GROWTH_LEAST * self.size,
        };
        let target = target.clamp(least, 1.5 * self.size);
        self.size += (target - self.size) / self.size * packets;
        self.size = self.size.max(cubic.reno.min(1.5 * self.size));
    }

    fn look_for_the_end_of_slow_start(&mut self, ack: &Acknowledged) {
        let start = &mut self.start;
        if ack.una > start.round_end || start.round_end == 0 {
            *start = Start {
                round_end: ack.nxt,
                round_from: ack.now,
                last_ack: ack.now,
                least: Duration::MAX,
                samples: 0,
            };
        }
        if self.size < START_LEAST {
            return;
        }
        let mut over = false;
        if ack.now.saturating_since(start.last_ack) <= TRAIN_GAP {
            start.last_ack = ack.now;
            // The kernel's clock and its half of the least round trip are whole milliseconds.
            let half = (ack.least.as_ps() * 8 / MS).max(1) / 16;
            over |= ack.now.as_ps() / MS - start.round_from.as_ps() / MS > half;
        }
        if let Some(sample) = ack.sample {
            start.least = start.least.min(sample);
            start.samples += 1;
            let rise = (ack.least / 8).clamp(RISE.0, RISE.1);
            over |= start.samples >= SAMPLES && start.least > ack.least + rise;
        }
        if over {
            self.threshold = self.size;
        }
    }

    fn count_marks(&mut self, ack: &Acknowledged) {
        let marks = &mut self.marks;
        marks.acked += ack.bytes;
        marks.marked += ack.marked;
        if ack.una >= marks.window_end && marks.acked > 0 {
            let part = marks.marked as f64 / marks.acked as f64;
            marks.alpha += DCTCP_GAIN * (part - marks.alpha);
            marks.acked = 0;
            marks.marked = 0;
            marks.window_end = ack.nxt;
        }
        if ack.marked > 0 && ack.una > marks.cut_until {
            marks.cut_until = ack.nxt;
            self.size = (self.size * (1.0 - marks.alpha / 2.0)).max(LEAST);
            self.threshold = self.size;
        }
    }
}

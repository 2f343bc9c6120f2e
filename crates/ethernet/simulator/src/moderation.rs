//! Interrupt moderation of one vector.
//!
//! Method: the driver looks at what a poll sent and received once nothing is left to do. Bytes of each direction over
//! the present interval give a rate, the rate moves that direction by at most one of three classes, and the slower of
//! both classes gives the next interval. A new interval is approached by a tenth at a time, in rates. A fixed rate is
//! three equal classes. Units: bytes, bytes a microsecond. Source: ixgbe 4.4.6, `ixgbe_update_itr`, `ixgbe_set_itr`.

use isolane_common_quantities::units::Duration;

/// The driver's classes, from quiet to busy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    /// Time between two interrupts: quiet, some traffic, busy.
    pub(crate) pauses: [Duration; 3],
    /// Bytes in a microsecond between the first two and the last two.
    pub(crate) bounds: [f64; 2],
}

/// What one vector does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moderation {
    pub(crate) pause: Duration,
    sent: Direction,
    received: Direction,
}

#[derive(Clone, Copy, Debug, Default)]
struct Direction {
    bytes: u64,
    class: usize,
}

impl Moderation {
    pub(crate) fn new(rates: &Rates) -> Self {
        Self {
            pause: rates.pauses[1],
            sent: Direction::default(),
            received: Direction::default(),
        }
    }

    #[inline]
    pub(crate) fn sent(&mut self, bytes: u64) {
        self.sent.bytes += bytes;
    }

    #[inline]
    pub(crate) fn received(&mut self, bytes: u64) {
        self.received.bytes += bytes;
    }

    /// A poll found nothing more to do.
    pub(crate) fn polled(&mut self, rates: &Rates) {
        let interval = self.pause.as_us_f64();
        self.sent.classify(interval, rates.bounds);
        self.received.classify(interval, rates.bounds);
        let wanted = rates.pauses[self.sent.class.max(self.received.class)];
        if wanted != self.pause {
            let (new, old) = (u128::from(wanted.as_ps()), u128::from(self.pause.as_ps()));
            self.pause = Duration::from_ps((10 * new * old / (9 * new + old)) as u64);
        }
    }
}

impl Direction {
    fn classify(&mut self, interval_us: f64, [low, bulk]: [f64; 2]) {
        if self.bytes == 0 {
            return;
        }
        let rate = self.bytes as f64 / interval_us;
        self.class = match self.class {
            0 if rate > low => 1,
            1 if rate > bulk => 2,
            1 if rate <= low => 0,
            2 if rate <= bulk => 1,
            class => class,
        };
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: Rates = Rates {
        pauses: [
            Duration::from_us(10),
            Duration::from_us(50),
            Duration::from_us(83),
        ],
        bounds: [10.0, 20.0],
    };

    #[test]
    fn a_busy_vector_slows_down_step_by_step_and_a_quiet_one_speeds_up() {
        let mut moderation = Moderation::new(&RATES);
        for _ in 0..100 {
            moderation.sent(100_000);
            moderation.polled(&RATES);
        }
        let busy = moderation.pause.as_us_f64();
        assert!((82.0..=83.0).contains(&busy), "{busy}");
        moderation.sent(60);
        moderation.polled(&RATES);
        let first = moderation.pause.as_us_f64();
        assert!(
            first > 75.0,
            "one class at a time, a tenth of the way: {first}"
        );
        for _ in 0..100 {
            moderation.received(60);
            moderation.sent(60);
            moderation.polled(&RATES);
        }
        assert!(moderation.pause.as_us_f64() < 11.0);
    }

    #[test]
    fn a_fixed_rate_stays() {
        let fixed = Rates {
            pauses: [Duration::from_us(50); 3],
            ..RATES
        };
        let mut moderation = Moderation::new(&fixed);
        moderation.received(1_000_000);
        moderation.polled(&fixed);
        assert_eq!(moderation.pause, Duration::from_us(50));
    }
}

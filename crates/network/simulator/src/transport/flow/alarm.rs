//! One alarm over timers that cannot be taken back.
//!
//! Problem: a timeout moves with every acknowledgement, but a timer of the network stays where it was set. Method: an
//! alarm remembers when it is due and when its earliest useful timer fires. Moving it later costs nothing: the old timer
//! fires, finds the alarm not due, and is set again. Moving it earlier sets another one; the old one is not recognised
//! when it fires. An alarm outlives the flow of its slot, so timers of the previous owner do no harm either.

use crate::network::{Network, Owner};
use crate::packet::Timer;
use isolane_common_quantities::units::Instant;

/// An alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alarm {
    due: Instant,
    filed: Instant,
}

impl Default for Alarm {
    fn default() -> Self {
        Self {
            due: Instant::MAX,
            filed: Instant::MAX,
        }
    }
}

impl Alarm {
    /// Rings at `at`, instead of when it would have.
    #[inline]
    pub fn set(&mut self, network: &mut Network, at: Instant, timer: Timer) {
        self.due = at;
        if at < self.filed {
            self.filed = at;
            network.set_timer(at, Owner::Transport, timer);
        }
    }

    /// Does not ring.
    #[inline]
    pub fn clear(&mut self) {
        self.due = Instant::MAX;
    }

    /// Whether it is set.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.due != Instant::MAX
    }

    /// Its timer fired: whether it rings now. It is clear then.
    #[inline]
    pub fn rings(&mut self, network: &mut Network, timer: Timer) -> bool {
        let now = network.now();
        if now != self.filed {
            return false;
        }
        self.filed = Instant::MAX;
        if self.due > now {
            if self.due != Instant::MAX {
                self.set(network, self.due, timer);
            }
            return false;
        }
        self.due = Instant::MAX;
        true
    }
}

//! The receiving end of a channel: the packets that arrived, and the reports about them.

use super::bits::Bits;
use isolane_common_quantities::units::Instant;

#[derive(Clone, Debug, Default)]
pub(crate) struct Receiver {
    /// All packets before this one have come.
    pub(crate) expected: u32,
    /// The gap at `expected` was reported (go-back-N).
    pub(crate) notified: bool,
    /// No notification before this time.
    pub(crate) notify_after: Instant,
    /// Packets beyond `expected` that have come (selective).
    early: Bits,
}

/// What a packet was to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// New, in order or kept, or a repeat of an old one: acknowledge.
    Known,
    /// Dropped, because one before it misses.
    Gap,
}

impl Receiver {
    #[inline]
    pub(crate) fn take(&mut self, sequence: u32, selective: bool) -> Taken {
        if sequence == self.expected {
            self.notified = false;
            self.expected += 1;
            while self.early.len() > 0 && self.early.clear(self.expected, self.expected) {
                self.expected += 1;
            }
            return Taken::Known;
        }
        if sequence < self.expected {
            return Taken::Known;
        }
        if !selective {
            return Taken::Gap;
        }
        self.early.set(self.expected, sequence);
        Taken::Known
    }
}

//! The limiter of one host and level: so many bytes per epoch.
//!
//! A host's epoch begins with the first packet that it sends after the last epoch, so an idle host has no debt, and
//! packets of factor 1 are at least an epoch apart.

use isolane_common_quantities::units::{Bytes, Duration, Instant};

/// What is left of the epoch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limiter {
    ends: Instant,
    left: Bytes,
}

impl Limiter {
    /// Takes `bytes` for a packet that leaves `now`, or says when that may be.
    pub(super) fn take(
        &mut self,
        now: Instant,
        epoch: Duration,
        limit: Bytes,
        bytes: Bytes,
    ) -> Result<(), Instant> {
        if now >= self.ends {
            self.ends = now + epoch;
            self.left = limit;
        }
        if bytes > self.left {
            return Err(self.ends);
        }
        self.left = self.left.saturating_sub(bytes);
        Ok(())
    }
}

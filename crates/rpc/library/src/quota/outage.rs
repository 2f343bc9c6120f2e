//! Lines about a store that fails, for the server's log: one when an outage begins, one when it ends.
//!
//! Problem: each client learns why its promise was not stored, but an operator reads the log. Clients choose how often the store is written, so
//! a line per failure would fill the log. Method: further failures of an outage that was said print nothing. An outage that begins within
//! [`SAY_EVERY`] of the last one's line is said if it lasts until then. The end of an outage is said only if its beginning was.

use isolane_common_quantities::units::{Duration, Instant};

/// Shortest time between two lines that say the beginning of an outage.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// What one task of a store last did.
#[derive(Debug)]
pub(super) struct Outage {
    /// What the server says when the task works again.
    again: &'static str,
    said: Option<Instant>,
    is_said: bool,
}

impl Outage {
    pub(super) fn new(again: &'static str) -> Self {
        Self {
            again,
            said: None,
            is_said: false,
        }
    }

    /// The line to print after the task ended at `now`; `failed` is the line of a failure.
    pub(super) fn ended(&mut self, now: Instant, failed: Option<String>) -> Option<String> {
        let Some(line) = failed else {
            return std::mem::take(&mut self.is_said).then(|| self.again.to_owned());
        };
        let is_soon = |said| now.saturating_since(said) < SAY_EVERY;
        if self.is_said || self.said.is_some_and(is_soon) {
            return None;
        }
        (self.said, self.is_said) = (Some(now), true);
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_has_two_lines_and_a_flapping_store_fills_no_log() {
        let mut outage = Outage::new("again");
        let mut line = |after_s: u64, failed: Option<&str>| {
            let now = Instant::ZERO + Duration::from_secs(after_s);
            outage.ended(now, failed.map(str::to_owned))
        };
        assert_eq!(line(0, None), None);
        assert_eq!(line(1, Some("a")).as_deref(), Some("a"));
        assert_eq!(line(200, Some("b")), None, "the same outage");
        assert_eq!(line(201, None).as_deref(), Some("again"));
        assert_eq!(line(202, None), None);
        assert_eq!(line(203, Some("c")).as_deref(), Some("c"));
        assert_eq!(line(204, None).as_deref(), Some("again"));
        for at in 205..262 {
            assert_eq!(line(at, Some("d")), None);
            assert_eq!(line(at, None), None, "its beginning was not said");
        }
        assert_eq!(line(262, Some("e")), None);
        assert_eq!(line(263, Some("e")).as_deref(), Some("e"));
    }
}

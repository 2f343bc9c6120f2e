//! Limits on bytes in a hardware queue: none, or dynamic queue limits (DQL), with a maximum if one is set.
//!
//! Problem: packets in a hardware queue cannot be reordered any more, so there should be few. With too few, the NIC has
//! nothing to send between two completions. Method: bytes are counted when a segment is posted and again when its
//! completion is processed. The queue is closed when more than the limit is posted and not completed, so one segment
//! may exceed it. The dynamic limit grows when the card ran dry although the queue had been closed: by what was
//! completed beyond what had been posted at the last completion. It shrinks when for one second every completion found
//! bytes to spare, by the least that was spare. What an administrator sets is the largest limit (the kernel's
//! `limit_max`), so a queue may get by with less. Units: bytes. Source: titan 2.2; the rule is that of Linux's dynamic
//! queue limits.

use isolane_common_quantities::units::{Duration, Instant};
use isolane_ethernet_scenario::config::ByteLimit;

/// How long bytes must be to spare before the limit shrinks.
const HOLD: Duration = Duration::from_secs(1);

/// The limit of one hardware queue, and what is in it.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    dynamic: bool,
    limit: u64,
    most: u64,
    posted: u64,
    completed: u64,
    /// Bytes of the segment that was posted last.
    last: u64,
    before: Before,
    spare: u64,
    spare_since: Instant,
}

/// The state when the last completions had been processed.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    posted: u64,
    /// How far the limit was exceeded.
    over: u64,
    last: u64,
}

impl Limit {
    pub(crate) fn new(kind: ByteLimit) -> Self {
        let (dynamic, most) = match kind {
            ByteLimit::None => (false, u64::MAX / 2),
            ByteLimit::Fixed(bytes) => (true, bytes.get()),
            ByteLimit::Dynamic => (true, u64::MAX / 2),
        };
        Self {
            dynamic,
            limit: if dynamic { 0 } else { most },
            most,
            posted: 0,
            completed: 0,
            last: 0,
            before: Before::default(),
            spare: u64::MAX,
            spare_since: Instant::ZERO,
        }
    }

    /// Posted and not completed.
    #[inline]
    pub(crate) fn outstanding(&self) -> u64 {
        self.posted - self.completed
    }

    /// What may be posted still; `None` when the queue is closed.
    #[inline]
    pub(crate) fn room(&self) -> Option<u64> {
        self.limit.checked_sub(self.outstanding())
    }

    #[cfg(test)]
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    #[inline]
    pub(crate) fn post(&mut self, bytes: u32) {
        self.posted += u64::from(bytes);
        self.last = u64::from(bytes);
    }

    /// Completions of `bytes` are processed.
    pub(crate) fn complete(&mut self, bytes: u64, now: Instant) {
        debug_assert!(bytes <= self.outstanding(), "more completed than posted");
        if self.dynamic {
            self.adapt(bytes, now);
        }
        self.completed += bytes;
    }

    fn adapt(&mut self, bytes: u64, now: Instant) {
        let was_outstanding = self.outstanding();
        let outstanding = was_outstanding - bytes;
        let completed = self.completed + bytes;
        let mut over = was_outstanding.saturating_sub(self.limit);
        let before = self.before;
        let all_of_before = completed >= before.posted;
        let ran_dry = over > 0 && outstanding == 0;
        let mut limit = self.limit;
        if ran_dry || (before.over > 0 && all_of_before) {
            limit += completed.saturating_sub(before.posted) + before.over;
            self.spare = u64::MAX;
            self.spare_since = now;
        } else if outstanding > 0 && before.posted > self.completed && !all_of_before {
            let unused = (self.limit + before.over).saturating_sub(2 * bytes);
            let tail = match before.over {
                0 => 0,
                over => before.last.saturating_sub(over),
            };
            self.spare = self.spare.min(unused.max(tail));
            if now > self.spare_since + HOLD {
                limit = limit.saturating_sub(self.spare);
                self.spare = u64::MAX;
                self.spare_since = now;
            }
        }
        limit = limit.min(self.most);
        if limit != self.limit {
            self.limit = limit;
            over = 0;
        }
        self.before = Before {
            posted: self.posted,
            over,
            last: self.last,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_common_quantities::units::Bytes;

    #[test]
    fn a_set_limit_is_a_maximum_that_is_exceeded_by_at_most_one_segment() {
        let mut limit = Limit::new(ByteLimit::Fixed(Bytes::new(100)));
        for _ in 0..10 {
            while limit.room().is_some() {
                limit.post(80);
            }
            assert!(limit.outstanding() <= 180, "{}", limit.outstanding());
            limit.complete(limit.outstanding(), Instant::ZERO);
        }
        assert_eq!(
            limit.limit(),
            100,
            "it starved each time, so it grew as far as it may"
        );
        limit.post(80);
        assert_eq!(limit.room(), Some(20));
    }

    /// A card that drains 1,000 bytes between completions needs no more than about that.
    #[test]
    fn the_dynamic_limit_grows_until_the_card_no_longer_runs_dry_and_shrinks_after_a_second() {
        let mut limit = Limit::new(ByteLimit::Dynamic);
        let mut now = Instant::ZERO;
        let mut run = |limit: &mut Limit, drain: u64, rounds: u32| {
            let mut dry = 0;
            for _ in 0..rounds {
                while limit.room().is_some() {
                    limit.post(100);
                }
                let bytes = limit.outstanding().min(drain);
                dry += u32::from(bytes < drain);
                now += Duration::from_ms(1);
                limit.complete(bytes, now);
            }
            dry
        };
        assert!(run(&mut limit, 1_000, 100) > 0);
        assert_eq!(run(&mut limit, 1_000, 3_000), 0);
        let large = limit.limit();
        assert!((900..4_000).contains(&large), "{large}");
        run(&mut limit, 100, 10_000);
        assert!(limit.limit() < large / 2, "{} {large}", limit.limit());
    }
}

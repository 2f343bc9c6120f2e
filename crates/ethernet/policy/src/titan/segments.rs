//! Dynamic segmentation offload sizing: small segments while flows share a queue, large ones otherwise.
//!
//! Problem: in a shared queue a segment is the least unit of fairness and the longest wait; small segments cost
//! processor time for nothing where every flow has a queue of its own (titan 4.3).
//! Method: the limit drops to `reduced` as soon as flows share queues, and returns to `normal` after `hold` without any
//! sharing, so that a set of flows that flickers about the number of queues does not make it flap: changing it is not
//! free on a real host, where every socket must look up its route again.
//! Units: bytes of a segment with its headers, as the kernel's GSO limit counts.
//! Source: titan 4.3; the hold time is ours.

use isolane_common_quantities::units::{Bytes, Duration, Instant};

/// How large segments may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentOptions {
    /// Where no queue is shared.
    pub normal: Bytes,
    /// Where one is.
    pub reduced: Bytes,
    /// How long nothing must have been shared before segments grow again.
    pub hold: Duration,
}

/// Decides the segment size.
#[derive(Clone, Copy, Debug)]
pub struct SegmentSize {
    options: SegmentOptions,
    current: Bytes,
    shared_at: Option<Instant>,
}

impl SegmentSize {
    /// Starts with large segments. Panics if the reduced size is zero or larger than the normal one.
    pub fn new(options: SegmentOptions) -> Self {
        assert!(
            0 < options.reduced.get() && options.reduced <= options.normal,
            "the reduced size is at most the normal one"
        );
        Self {
            options,
            current: options.normal,
            shared_at: None,
        }
    }

    /// The new size, if it changes now.
    pub fn update(&mut self, now: Instant, oversubscribed: bool) -> Option<Bytes> {
        let wanted = match oversubscribed {
            true => {
                self.shared_at = Some(now);
                self.options.reduced
            }
            false if self.is_held(now) => self.current,
            false => self.options.normal,
        };
        let changed = wanted != self.current;
        self.current = wanted;
        changed.then_some(wanted)
    }

    /// What holds now.
    pub fn current(&self) -> Bytes {
        self.current
    }

    fn is_held(&self, now: Instant) -> bool {
        self.shared_at
            .is_some_and(|shared| now.saturating_since(shared) < self.options.hold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_shrink_at_once_and_grow_after_the_hold() {
        let (large, small) = (Bytes::from_kib(64), Bytes::from_kib(16));
        let at = |ms: u64| Instant::from_ps(ms * 1_000_000_000);
        let mut size = SegmentSize::new(SegmentOptions {
            normal: large,
            reduced: small,
            hold: Duration::from_ms(10),
        });
        assert_eq!(size.update(at(0), false), None);
        assert_eq!(size.update(at(1), true), Some(small));
        assert_eq!(size.update(at(5), true), None);
        assert_eq!(size.update(at(14), false), None);
        assert_eq!(size.update(at(15), false), Some(large));
        assert_eq!(size.current(), large);
    }
}

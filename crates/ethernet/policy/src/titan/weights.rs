//! Dynamic queue weight assignment: the weights of the NIC's scheduler, set only when they changed enough.
//!
//! Problem: a card that serves its queues in turn gives a flow that shares its queue less than one that does not. A NIC
//! with weights can take the number of flows of a queue into account (titan 4.2), but each write crosses the bus, and
//! the sets of backlogged flows change thousands of times a second. Method: weights are compared with those set last at
//! most every `interval`. They are set when any queue's *share* of the NIC is off by more than `dead_band` of itself.
//! Weights are scaled to the device's range so that the heaviest queue gets the largest value; a queue with any flow
//! gets at least the least value, an idle one exactly the least, so that a flow that appears there before the next
//! write is served. Units: flow weights in parts of [`WEIGHT_ONE`](super::WEIGHT_ONE) in, the device's own units out.
//! Rounding: to the nearest, halves up. Source: titan 4.2; the rate limit is mentioned there, its rule is ours.

use isolane_common_quantities::units::{Duration, Instant, Ratio};

/// What the device takes, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightOptions {
    /// The least weight that the device takes.
    pub least: u32,
    /// The largest.
    pub most: u32,
    /// Shortest time between two writes.
    pub interval: Duration,
    /// How far a queue's share may be off before it is worth a write.
    pub dead_band: Ratio,
}

impl Default for WeightOptions {
    /// Weights 1 to 127 (a byte's worth, as devlink and net-shaper drivers take at least), a millisecond, 5 %.
    fn default() -> Self {
        Self {
            least: 1,
            most: 127,
            interval: Duration::from_ms(1),
            dead_band: Ratio::new(1, 20),
        }
    }
}

/// Decides when queue weights are written to the device, and which.
#[derive(Clone, Debug)]
pub struct QueueWeights {
    options: WeightOptions,
    sent: Vec<u32>,
    written_at: Option<Instant>,
    writes: u64,
}

impl QueueWeights {
    /// For `queues` queues that the device serves equally until weights are set. Panics if the device's range is empty
    /// or holds zero.
    pub fn new(queues: u16, options: WeightOptions) -> Self {
        assert!(
            0 < options.least && options.least <= options.most,
            "a range of weights from 1 on"
        );
        Self {
            sent: vec![options.least; usize::from(queues)],
            options,
            written_at: None,
            writes: 0,
        }
    }

    /// The weights to write now, one for each queue, if it is time and worth it. The caller writes them. Panics if
    /// `loads` is not one flow weight for each queue.
    pub fn poll(&mut self, now: Instant, loads: &[u64]) -> Option<&[u32]> {
        assert_eq!(loads.len(), self.sent.len(), "one load for each queue");
        if self
            .written_at
            .is_some_and(|sent| now.saturating_since(sent) < self.options.interval)
        {
            return None;
        }
        let wanted = scaled(loads, self.options);
        if !self.is_worth_it(loads, &wanted) {
            return None;
        }
        self.sent = wanted;
        self.written_at = Some(now);
        self.writes += 1;
        Some(&self.sent)
    }

    /// The weights that were set last.
    pub fn sent(&self) -> &[u32] {
        &self.sent
    }

    /// How often weights were set.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Whether the share of any queue with flows, among those queues, is off by more than the dead band.
    fn is_worth_it(&self, loads: &[u64], wanted: &[u32]) -> bool {
        let busy = || {
            loads
                .iter()
                .zip(&self.sent)
                .zip(wanted)
                .filter(|((load, _), _)| **load > 0)
        };
        let sent: u64 = busy().map(|((_, sent), _)| u64::from(*sent)).sum();
        let want: u64 = busy().map(|(_, wanted)| u64::from(*wanted)).sum();
        busy().any(|((_, is), wanted)| {
            let is = u128::from(*is) * u128::from(want);
            let wanted = u128::from(*wanted) * u128::from(sent);
            let limit = wanted as f64 * self.options.dead_band.as_f64();
            is.abs_diff(wanted) as f64 > limit
        })
    }
}

/// Loads as weights of the device: the largest gets `most`, the others their part of it, none less than `least`.
///
/// ```
/// use isolane_ethernet_policy::titan::weights::{WeightOptions, scaled};
/// assert_eq!(scaled(&[1024, 2048, 0], WeightOptions::default()), [64, 127, 1]);
/// ```
pub fn scaled(loads: &[u64], options: WeightOptions) -> Vec<u32> {
    let largest = loads.iter().copied().max().unwrap_or(0);
    let part = |load: u64| {
        if largest == 0 {
            return options.least;
        }
        let scaled = (u128::from(load) * u128::from(options.most) * 2 + u128::from(largest))
            / (2 * u128::from(largest));
        (scaled as u32).clamp(options.least, options.most)
    };
    loads.iter().map(|load| part(*load)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Instant {
        Instant::from_ps(ms * 1_000_000_000)
    }

    #[test]
    fn equal_queues_are_not_worth_a_write() {
        let mut weights = QueueWeights::new(3, WeightOptions::default());
        assert_eq!(weights.poll(at(0), &[1024, 1024, 1024]), None);
        assert_eq!(
            weights.poll(at(1), &[1024, 1024, 0]),
            None,
            "an idle queue takes nothing"
        );
        assert_eq!(
            weights.poll(at(2), &[2048, 1024, 1024]),
            Some(&[127, 64, 64][..])
        );
    }

    #[test]
    fn writes_keep_their_distance() {
        let mut weights = QueueWeights::new(2, WeightOptions::default());
        assert!(weights.poll(at(5), &[2048, 1024]).is_some());
        assert_eq!(weights.poll(at(5), &[1024, 2048]), None);
        assert!(weights.poll(at(6), &[1024, 2048]).is_some());
        assert_eq!(weights.writes(), 2);
    }

    #[test]
    fn small_changes_stay_within_the_dead_band() {
        let mut weights = QueueWeights::new(2, WeightOptions::default());
        assert!(weights.poll(at(0), &[60_000, 30_000]).is_some());
        assert_eq!(weights.poll(at(2), &[60_000, 31_000]), None);
        assert!(weights.poll(at(2), &[60_000, 34_000]).is_some());
    }

    proptest! {
        /// With 127 steps the share that the device gives a queue is off by no more than what rounding and the least
        /// weight explain.
        #[test]
        fn shares_follow_the_loads(loads in prop::collection::vec(1_u64..100_000, 2..16)) {
            let options = WeightOptions::default();
            let sent = scaled(&loads, options);
            let largest = *loads.iter().max().expect("not empty") as f64;
            for (load, sent) in loads.iter().zip(&sent) {
                let exact = *load as f64 / largest * f64::from(options.most);
                prop_assert!((f64::from(*sent) - exact).abs() <= 0.5 || (*sent == options.least && exact < 1.0), "{load} {sent} {exact}");
            }
        }
    }
}

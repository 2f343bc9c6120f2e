//! How evenly flows share: the Jain index, and the fairness metrics FM and NFM (titan 3).
//!
//! * Jain: (sum x)^2 / (n sum x^2) of the normalised shares x; 1 is even, 1/n is one flow taking all.
//! * FM over an interval: the largest difference between any two flows of sent bytes divided by the flow's
//!   fair-share quantity f. Here f is the weight, so FM is in bytes per unit of weight, and in bytes when all
//!   weights are one. It equals the largest minus the smallest normalised share.
//! * NFM over a duration tau: FM over every interval that long, divided by the fair share of one unit of
//!   weight in it. It has no unit; 0 is fair, and it exceeds 1 when a flow gets far more than its share. Its
//!   figure is the worst interval, as in the paper's worked example; [`SentTable::nfm_of_each_window`] gives
//!   all of them.
//!
//! Intervals: bytes are counted in slots of a fixed length. An interval is a whole number of slots and starts
//! at any slot, so intervals overlap when they are longer than a slot.
//! Exactness: counts are integers and comparisons cross-multiply; only the final division is floating point.
//! Limits: all flows of a table count as competing. Leave out flows with nothing to send in the interval: an
//! idle flow is no sign of unfairness.

use crate::units::{BitRate, Bytes, Duration, Instant};
use std::ops::Range;

/// What a flow sent, and how much it may weigh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightedBytes {
    /// Bytes sent in the interval.
    pub sent: Bytes,
    /// Fair-share quantity of the flow, at least 1.
    pub weight: u32,
}

/// The Jain index of sent bytes per unit of weight, above 0 and at most 1; 1 if no flow sent; `None` without flows.
pub fn jain_index(flows: &[WeightedBytes]) -> Option<f64> {
    if flows.is_empty() {
        return None;
    }
    let shares = flows
        .iter()
        .map(|flow| flow.sent.get() as f64 / f64::from(flow.weight));
    let (sum, squares) = shares.fold((0.0, 0.0), |(sum, squares), share| {
        (sum + share, squares + share * share)
    });
    if squares == 0.0 {
        return Some(1.0);
    }
    Some(sum * sum / (flows.len() as f64 * squares))
}

/// FM in bytes per unit of weight: the largest difference of normalised bytes between two flows; zero for
/// fewer than two flows.
///
/// ```
/// use isolane_common_quantities::{stats::fairness::{WeightedBytes, fm}, units::Bytes};
/// let flow = |sent, weight| WeightedBytes { sent: Bytes::new(sent), weight };
/// assert_eq!(fm(&[flow(3_000, 1), flow(4_000, 2), flow(2_500, 1)]), 1_000.0);
/// ```
pub fn fm(flows: &[WeightedBytes]) -> f64 {
    let by_share = |a: &&WeightedBytes, b: &&WeightedBytes| cross(a, b).cmp(&cross(b, a));
    let most = flows.iter().max_by(by_share);
    let least = flows.iter().min_by(by_share);
    let (Some(most), Some(least)) = (most, least) else {
        return 0.0;
    };
    let difference = cross(most, least) - cross(least, most);
    difference as f64 / (f64::from(most.weight) * f64::from(least.weight))
}

/// The link or the traffic whose even division is the fair share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FairShare {
    /// The flows' weighted parts of a link of this rate (the paper's choice).
    OfLink(BitRate),
    /// The flows' weighted parts of their total in the interval, if the link's rate is unknown. An interval without
    /// bytes counts as fair.
    OfSent,
}

/// Bytes sent per flow and slot.
///
/// ```
/// use isolane_common_quantities::stats::fairness::{FairShare, SentTable};
/// use isolane_common_quantities::units::{BitRate, Bytes, Duration, Instant};
/// let mut table = SentTable::new(&[1, 1], Duration::from_ms(1));
/// table.add(Instant::ZERO, 0, Bytes::new(750_000));
/// table.add(Instant::ZERO, 1, Bytes::new(500_000));
/// // A fair share of 10 Gb/s is 625,000 bytes in a millisecond, the difference is 250,000.
/// let link = FairShare::OfLink(BitRate::from_gbps(10));
/// assert_eq!(table.nfm(1, link), Some(0.4));
/// ```
#[derive(Clone, Debug)]
pub struct SentTable {
    weights: Vec<u32>,
    slot: Duration,
    /// What flow `f` sent in slot `s`, at `s * flows + f`.
    sent: Vec<u64>,
}

impl SentTable {
    /// An empty table of flows with these weights, counted in slots of this length. Panics if a weight is zero, there
    /// are no flows, or the slot has no length.
    pub fn new(weights: &[u32], slot: Duration) -> Self {
        assert!(!slot.is_zero(), "a slot needs a length");
        assert!(!weights.is_empty(), "a table needs flows");
        assert!(
            weights.iter().all(|&weight| weight > 0),
            "weights start at 1"
        );
        Self {
            weights: weights.to_vec(),
            slot,
            sent: Vec::new(),
        }
    }

    /// Counts `bytes` that flow number `flow` sent at `at`; the table grows to the slot of `at`. Panics if there is no
    /// such flow.
    pub fn add(&mut self, at: Instant, flow: usize, bytes: Bytes) {
        assert!(flow < self.weights.len(), "flow {flow} is not in the table");
        let slot = (at.as_ps() / self.slot.as_ps()) as usize;
        self.extend_to(slot + 1);
        self.sent[slot * self.weights.len() + flow] += bytes.get();
    }

    /// Makes the table at least `slots` long: slots without bytes count as intervals too.
    pub fn extend_to(&mut self, slots: usize) {
        let cells = slots * self.weights.len();
        if self.sent.len() < cells {
            self.sent.resize(cells, 0);
        }
    }

    /// Slots so far.
    pub fn slots(&self) -> usize {
        self.sent.len() / self.weights.len()
    }

    /// What each flow sent in a range of slots. Panics if the range ends after the table.
    pub fn sent_in(&self, slots: Range<usize>) -> Vec<WeightedBytes> {
        let flows = self.weights.len();
        let mut sums = self.empty_window();
        for row in self.sent[slots.start * flows..slots.end * flows].chunks_exact(flows) {
            for (sum, &bytes) in sums.iter_mut().zip(row) {
                sum.sent += Bytes::new(bytes);
            }
        }
        sums
    }

    /// NFM over intervals of `window` slots: the worst one; `None` when the table is shorter or `window` is
    /// zero.
    pub fn nfm(&self, window: usize, share: FairShare) -> Option<f64> {
        self.nfm_of_each_window(window, share)
            .into_iter()
            .max_by(f64::total_cmp)
    }

    /// FM divided by the fair share for each interval of `window` slots, by start.
    pub fn nfm_of_each_window(&self, window: usize, share: FairShare) -> Vec<f64> {
        let (flows, slots) = (self.weights.len(), self.slots());
        if window == 0 || window > slots {
            return Vec::new();
        }
        let mut sums = self.sent_in(0..window);
        let mut worst = Vec::with_capacity(slots - window + 1);
        worst.push(self.normalised(&sums, window, share));
        for start in 1..=slots - window {
            let leaving = &self.sent[(start - 1) * flows..];
            let entering = &self.sent[(start + window - 1) * flows..];
            for (sum, (&old, &new)) in sums.iter_mut().zip(leaving.iter().zip(entering)) {
                sum.sent = sum.sent + Bytes::new(new) - Bytes::new(old);
            }
            worst.push(self.normalised(&sums, window, share));
        }
        worst
    }

    fn empty_window(&self) -> Vec<WeightedBytes> {
        let weights = self.weights.iter();
        weights
            .map(|&weight| WeightedBytes {
                sent: Bytes::ZERO,
                weight,
            })
            .collect()
    }

    fn normalised(&self, sums: &[WeightedBytes], window: usize, share: FairShare) -> f64 {
        let whole = match share {
            FairShare::OfLink(rate) => {
                rate.as_bps() as f64 / 8.0 * (self.slot * window as u64).as_secs_f64()
            }
            FairShare::OfSent => {
                let total: u128 = sums.iter().map(|flow| u128::from(flow.sent.get())).sum();
                total as f64
            }
        };
        let weights: u64 = self.weights.iter().map(|&weight| u64::from(weight)).sum();
        let difference = fm(sums);
        if difference == 0.0 {
            return 0.0;
        }
        difference * weights as f64 / whole
    }
}

/// The share of `a` in units of 1 / (weight of `a` times weight of `b`): comparable with the share of `b`.
fn cross(a: &WeightedBytes, b: &WeightedBytes) -> u128 {
    u128::from(a.sent.get()) * u128::from(b.weight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn flows(sent_and_weight: &[(u64, u32)]) -> Vec<WeightedBytes> {
        let flows = sent_and_weight.iter();
        flows
            .map(|&(sent, weight)| WeightedBytes {
                sent: Bytes::new(sent),
                weight,
            })
            .collect()
    }

    fn table(weights: &[u32], rows: &[&[u64]]) -> SentTable {
        let mut table = SentTable::new(weights, Duration::from_ms(1));
        for (slot, row) in rows.iter().enumerate() {
            for (flow, &bytes) in row.iter().enumerate() {
                let at = Instant::ZERO + Duration::from_ms(1) * slot as u64;
                table.add(at, flow, Bytes::new(bytes));
            }
        }
        table
    }

    #[test]
    fn jain_of_one_to_three_is_six_sevenths() {
        let jain = jain_index(&flows(&[(1, 1), (2, 1), (3, 1)])).expect("three flows");
        assert!((jain - 36.0 / (3.0 * 14.0)).abs() < 1e-12);
    }

    #[test]
    fn jain_ends_are_even_and_one_takes_all() {
        assert_eq!(jain_index(&flows(&[(10, 1), (20, 2), (30, 3)])), Some(1.0));
        assert_eq!(
            jain_index(&flows(&[(0, 1), (9, 1), (0, 1), (0, 1)])),
            Some(0.25)
        );
        assert_eq!(jain_index(&flows(&[(0, 1), (0, 1)])), Some(1.0));
        assert_eq!(jain_index(&[]), None);
    }

    #[test]
    fn fm_is_the_difference_between_most_and_least() {
        assert_eq!(fm(&[]), 0.0);
        assert_eq!(fm(&flows(&[(5, 1)])), 0.0);
        assert_eq!(fm(&flows(&[(100, 1), (40, 1), (70, 1)])), 60.0);
        // Normalised: 25, 40 and 70/3.
        assert!((fm(&flows(&[(100, 4), (40, 1), (70, 3)])) - (40.0 - 70.0 / 3.0)).abs() < 1e-12);
        // A difference of one byte survives at the largest counts.
        assert_eq!(fm(&flows(&[(u64::MAX, 1), (u64::MAX - 1, 1)])), 1.0);
    }

    #[test]
    fn half_a_fair_share_between_ten_flows_is_an_nfm_of_one_half() {
        // As in titan 3, with decimal megabytes: ten flows, 10 Gb/s, one second, 125 MB each.
        let mut table = SentTable::new(&[1; 10], Duration::from_secs(1));
        for flow in 0..10 {
            let bytes = if flow == 0 { 62_500_000 } else { 125_000_000 };
            table.add(Instant::ZERO, flow, Bytes::new(bytes));
        }
        let link = FairShare::OfLink(BitRate::from_gbps(10));
        assert_eq!(fm(&table.sent_in(0..1)), 62_500_000.0);
        assert_eq!(table.nfm(1, link), Some(0.5));
    }

    #[test]
    fn taking_turns_is_unfair_in_a_slot_and_fair_in_two() {
        let table = table(&[1, 1], &[&[100, 0], &[0, 100], &[100, 0], &[0, 100]]);
        assert_eq!(table.nfm(1, FairShare::OfSent), Some(2.0));
        assert_eq!(table.nfm(2, FairShare::OfSent), Some(0.0));
        // 200 to 100 of 300 sent: the difference of 100 over a share of 150.
        assert_eq!(table.nfm(3, FairShare::OfSent), Some(100.0 / 150.0));
        assert_eq!(table.nfm(5, FairShare::OfSent), None);
        assert_eq!(table.nfm(0, FairShare::OfSent), None);
    }

    #[test]
    fn silence_is_fair_and_weights_scale_shares() {
        let mut table = table(&[1, 3], &[&[100, 300], &[0, 0], &[100, 100]]);
        table.extend_to(4);
        // Last row: 100 against 33.3 per unit of weight; the share of one unit is 200 / 4.
        let each = table.nfm_of_each_window(1, FairShare::OfSent);
        assert_eq!(&each[..2], &[0.0, 0.0]);
        assert!((each[2] - (200.0 / 3.0) / 50.0).abs() < 1e-12);
        assert_eq!(each[3], 0.0);
    }

    proptest! {
        #[test]
        fn fm_equals_the_worst_of_all_pairs(pairs in prop::collection::vec((0u64..1_000_000, 1u32..9), 0..12)) {
            let flows = flows(&pairs);
            let share = |flow: &WeightedBytes| flow.sent.get() as f64 / f64::from(flow.weight);
            let mut worst = 0.0f64;
            for a in &flows {
                for b in &flows {
                    worst = worst.max(share(a) - share(b));
                }
            }
            prop_assert!((fm(&flows) - worst).abs() < 1e-6);
        }

        #[test]
        fn sliding_sums_equal_sums_from_scratch(
            cells in prop::collection::vec((0u64..1_000, 0u64..1_000, 0u64..1_000), 1..40),
            window in 1usize..10,
        ) {
            let rows: Vec<Vec<u64>> = cells.iter().map(|&(a, b, c)| vec![a, b, c]).collect();
            let rows: Vec<&[u64]> = rows.iter().map(Vec::as_slice).collect();
            let table = table(&[1, 2, 3], &rows);
            let link = FairShare::OfLink(BitRate::from_bps(8_000_000));
            let each = table.nfm_of_each_window(window, link);
            prop_assert_eq!(each.len(), (rows.len() + 1).saturating_sub(window));
            for (start, &nfm) in each.iter().enumerate() {
                // The link carries 1,000 bytes in a slot, for a weight of six.
                let share = 1_000.0 * window as f64 / 6.0;
                prop_assert!((nfm - fm(&table.sent_in(start..start + window)) / share).abs() < 1e-9);
            }
        }
    }
}

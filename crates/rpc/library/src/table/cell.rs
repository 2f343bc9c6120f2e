//! One destination and class: learned state and counters.
//!
//! Method: two cache lines. Decisions use the first, only completions write the second. Every field is a separate
//! atomic. The rules of [`isolane_rpc_policy::aequitas`] are applied in an order that stays correct with several
//! threads: an increase first takes its window (one thread can), then raises the probability. Units: times in
//! nanoseconds of the caller's clock, probabilities in parts of 2^32. Limits: latencies are counted in [`BUCKETS`]
//! steps of four; a bucket counts to 2^37 and stays there.

use isolane_rpc_policy::aequitas::Probability;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Buckets of a latency histogram; the last one has no upper end.
pub const BUCKETS: usize = 12;

/// Upper ends of all buckets except the last, nanoseconds: 4 us, and four times more each.
pub const BUCKET_ENDS_NS: [u64; BUCKETS - 1] = {
    let mut ends = [0; BUCKETS - 1];
    let mut index = 0;
    while index < ends.len() {
        ends[index] = 4_000 << (2 * index);
        index += 1;
    }
    ends
};

/// Bits of a bucket's overflow count, and its largest value.
const CARRY_BITS: usize = 5;
const CARRY_MAX: u64 = (1 << CARRY_BITS) - 1;

/// One destination and class.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Cell {
    probability: AtomicU64,
    last_increase_ns: AtomicU64,
    last_call_ns: AtomicU64,
    admitted: AtomicU64,
    downgraded: AtomicU64,
    leased: AtomicU64,
    missed: AtomicU64,
    /// The place's destination (generation, upper half) and its group (lower half).
    owner: AtomicU64,
    histogram: [AtomicU32; BUCKETS],
    latency_sum_ns: AtomicU64,
    carries: AtomicU64,
}

/// Counters of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that requested the class and got it.
    pub admitted: u64,
    /// Calls that requested the class and were sent in the lowest one (in shadow mode: would have been).
    pub downgraded: u64,
    /// Admitted calls that used a lease.
    pub leased: u64,
    /// Calls that ran in the class and missed its objective.
    pub missed: u64,
    /// Calls that ran in the class, by latency; the buckets end at [`BUCKET_ENDS_NS`].
    pub histogram: [u64; BUCKETS],
    /// Sum of their latencies, nanoseconds.
    pub latency_sum_ns: u64,
}

impl Counts {
    /// Calls that requested the class.
    pub fn issued(&self) -> u64 {
        self.admitted + self.downgraded
    }

    /// Calls that ran in the class and ended.
    pub fn ended(&self) -> u64 {
        self.histogram.iter().sum()
    }

    /// Calls that ran in the class and met its objective.
    pub fn met(&self) -> u64 {
        // Counters are read one by one while calls end.
        self.ended().saturating_sub(self.missed)
    }

    /// Adds another cell's counters.
    pub fn add(&mut self, other: &Self) {
        self.admitted += other.admitted;
        self.downgraded += other.downgraded;
        self.leased += other.leased;
        self.missed += other.missed;
        self.latency_sum_ns = self.latency_sum_ns.wrapping_add(other.latency_sum_ns);
        for (sum, count) in self.histogram.iter_mut().zip(other.histogram) {
            *sum += count;
        }
    }
}

impl Cell {
    /// Gives the cell to a new destination: clears all state and admits everything.
    pub(crate) fn renew(&self, generation: u16, group: u16, now_ns: u64) {
        self.probability.store(Probability::ONE.parts(), Relaxed);
        self.last_increase_ns.store(now_ns, Relaxed);
        self.last_call_ns.store(now_ns, Relaxed);
        for counter in [
            &self.admitted,
            &self.downgraded,
            &self.leased,
            &self.missed,
            &self.latency_sum_ns,
            &self.carries,
        ] {
            counter.store(0, Relaxed);
        }
        for bucket in &self.histogram {
            bucket.store(0, Relaxed);
        }
        let owner = u64::from(generation) << 32 | u64::from(group);
        self.owner.store(owner, Relaxed);
    }

    pub(crate) fn generation(&self) -> u16 {
        (self.owner.load(Relaxed) >> 32) as u16
    }

    #[inline]
    pub(crate) fn group(&self) -> u16 {
        self.owner.load(Relaxed) as u16
    }

    pub(crate) fn probability(&self) -> Probability {
        Probability::from_parts(self.probability.load(Relaxed))
    }

    pub(crate) fn last_call_ns(&self) -> u64 {
        self.last_call_ns.load(Relaxed)
    }

    /// Records a call at `now_ns`; clears the learned state after a long pause. Returns the admit probability.
    #[inline]
    pub(crate) fn touch(&self, now_ns: u64, idle_after_ns: u64) -> Probability {
        let last = self.last_call_ns.load(Relaxed);
        if now_ns > last {
            self.last_call_ns.store(now_ns, Relaxed);
            if now_ns - last > idle_after_ns {
                self.probability.store(Probability::ONE.parts(), Relaxed);
                self.last_increase_ns.store(now_ns, Relaxed);
            }
        }
        self.probability()
    }

    #[inline]
    pub(crate) fn count_admitted(&self) {
        self.admitted.fetch_add(1, Relaxed);
    }

    #[inline]
    pub(crate) fn count_leased(&self) {
        self.admitted.fetch_add(1, Relaxed);
        self.leased.fetch_add(1, Relaxed);
    }

    #[inline]
    pub(crate) fn count_downgraded(&self) {
        self.downgraded.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_latency(&self, latency_ns: u64) {
        self.latency_sum_ns.fetch_add(latency_ns, Relaxed);
        let bucket = bucket(latency_ns);
        if self.histogram[bucket].fetch_add(1, Relaxed) == u32::MAX {
            self.carry(bucket);
        }
    }

    /// Carries a bucket's overflow: once in four billion calls.
    fn carry(&self, bucket: usize) {
        let shift = bucket * CARRY_BITS;
        let add = |carries: u64| {
            let room = (carries >> shift) & CARRY_MAX < CARRY_MAX;
            room.then(|| carries + (1 << shift))
        };
        // An error means that the count is at its maximum.
        let _ = self.carries.fetch_update(Relaxed, Relaxed, add);
    }

    pub(crate) fn count_missed(&self) {
        self.missed.fetch_add(1, Relaxed);
    }

    /// Lowers the probability after a miss.
    pub(crate) fn lower(&self, decrement_per_mtu: Probability, mtus: u32, floor: Probability) {
        self.update(|probability| probability.lowered(decrement_per_mtu, mtus, floor));
    }

    /// Raises the probability, if it was not raised within the window.
    pub(crate) fn raise(&self, increment: Probability, window_ns: u64, now_ns: u64) {
        let last = self.last_increase_ns.load(Relaxed);
        if now_ns.saturating_sub(last) <= window_ns {
            return;
        }
        let taken = self
            .last_increase_ns
            .compare_exchange(last, now_ns, Relaxed, Relaxed);
        if taken.is_ok() {
            self.update(|probability| probability.raised(increment));
        }
    }

    /// Keeps a probability that was computed elsewhere, for reports.
    pub(crate) fn show(&self, probability: Probability) {
        self.probability.store(probability.parts(), Relaxed);
    }

    fn update(&self, change: impl Fn(Probability) -> Probability) {
        let next = |parts| Some(change(Probability::from_parts(parts)).parts());
        self.probability
            .fetch_update(Relaxed, Relaxed, next)
            .expect("the change always gives a value");
    }

    /// The counters so far.
    pub(crate) fn counts(&self) -> Counts {
        let carries = self.carries.load(Relaxed);
        let mut histogram = [0; BUCKETS];
        for (index, count) in histogram.iter_mut().enumerate() {
            let carried = (carries >> (index * CARRY_BITS)) & CARRY_MAX;
            *count = (carried << 32) + u64::from(self.histogram[index].load(Relaxed));
        }
        Counts {
            admitted: self.admitted.load(Relaxed),
            downgraded: self.downgraded.load(Relaxed),
            leased: self.leased.load(Relaxed),
            missed: self.missed.load(Relaxed),
            histogram,
            latency_sum_ns: self.latency_sum_ns.load(Relaxed),
        }
    }
}

/// The bucket of a latency; a bucket includes its upper end.
fn bucket(latency_ns: u64) -> usize {
    BUCKET_ENDS_NS
        .iter()
        .position(|&end| latency_ns <= end)
        .unwrap_or(BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_two_cache_lines() {
        assert_eq!(std::mem::size_of::<Cell>(), 128);
    }

    #[test]
    fn an_end_belongs_to_its_bucket() {
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(4_000), 0);
        assert_eq!(bucket(4_001), 1);
        assert_eq!(bucket(BUCKET_ENDS_NS[10]), 10);
        assert_eq!(BUCKET_ENDS_NS[10], 4_194_304_000);
        assert_eq!(bucket(u64::MAX), 11);
    }

    #[test]
    fn a_bucket_counts_beyond_32_bits_and_leaves_its_neighbours_alone() {
        let cell = Cell::default();
        for bucket in [0, 5, 11] {
            cell.histogram[bucket].store(u32::MAX, Relaxed);
        }
        cell.count_latency(1);
        cell.count_latency(u64::MAX);
        let counts = cell.counts();
        assert_eq!(counts.histogram[0], 1 << 32);
        assert_eq!(counts.histogram[5], (1 << 32) - 1);
        assert_eq!(counts.histogram[11], 1 << 32);
        for _ in 0..40 {
            cell.histogram[0].store(u32::MAX, Relaxed);
            cell.count_latency(1);
        }
        assert_eq!(cell.counts().histogram[0] >> 32, 31);
        assert_eq!(cell.counts().histogram[1], 0);
    }
}

//! What Palos costs in clock cycles: stages of the data path, updates of the control path.
//!
//! Problem: a scheduler in front of the protocol engine adds its own delay, and a naive table of chunk sizes takes
//! long to rewrite. Method: cycles per step, times the clock. Stages work like a pipeline: a decision takes the sum
//! of its stages, and the next one can follow after the longest of them.
//!
//! Source: one table entry per cycle and the example of 22,000 queue pairs at 100 MHz are published (palos IV-B).
//! The paper gives no cycles per stage; ours are counts of what a stage does: one access to a table, one operation
//! on a queue, one multiplication, each a cycle.

use isolane_common_quantities::units::Duration;

/// Cycles of each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cycles {
    /// Doorbell: compare head and tail, write the tail, append to the schedule queue.
    pub doorbell: u32,
    /// Work request fetch: take a number off the schedule queue, read the queue pair's state.
    pub fetch: u32,
    /// Slicing: read weight and granularity, multiply, compare, write the new work request, write the header.
    pub slice: u32,
    /// Each further work request that joins a chunk: add, compare.
    pub combine: u32,
    /// A number taken off the schedule queue and put back, or dropped, without a chunk.
    pub skip: u32,
    /// One entry of a control path table.
    pub table_entry: u32,
}

impl Cycles {
    /// The counts named above.
    pub const COUNTED: Self = Self {
        doorbell: 3,
        fetch: 2,
        slice: 5,
        combine: 1,
        skip: 1,
        table_entry: 1,
    };
}

/// [`Cycles`] at a clock.
///
/// ```
/// use isolane_rdma_policy::palos::{Clock, Cycles};
/// use isolane_common_quantities::units::Duration;
/// let clock = Clock::new(Cycles::COUNTED, 100_000_000);
/// assert_eq!(clock.naive_update(22_000), Duration::from_us(220)); // palos IV-B
/// assert_eq!(clock.two_table_update(16), Duration::from_ns(170));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    cycles: Cycles,
    hz: u64,
}

impl Clock {
    /// Steps of `cycles` at `hz`. Panics if `hz` is zero.
    pub const fn new(cycles: Cycles, hz: u64) -> Self {
        assert!(hz > 0, "a clock needs a frequency");
        Self { cycles, hz }
    }

    /// `cycles` at this clock, rounded up to a picosecond.
    pub fn time(&self, cycles: u64) -> Duration {
        let ps = (u128::from(cycles) * 1_000_000_000_000).div_ceil(u128::from(self.hz));
        Duration::from_ps(u64::try_from(ps).unwrap_or(u64::MAX))
    }

    /// A doorbell's way into the schedule queue.
    pub fn doorbell(&self) -> Duration {
        self.time(u64::from(self.cycles.doorbell))
    }

    /// From the schedule queue to the first new work request, after `skipped` numbers without a chunk.
    pub fn decision(&self, skipped: u32) -> Duration {
        let skips = u64::from(self.cycles.skip) * u64::from(skipped);
        self.time(skips + u64::from(self.cycles.fetch) + u64::from(self.cycles.slice))
    }

    /// Least time between two decisions: the longest stage.
    pub fn interval(&self, skipped: u32) -> Duration {
        let fetch = self.cycles.fetch + self.cycles.skip * skipped;
        self.time(u64::from(fetch.max(self.cycles.slice)))
    }

    /// One more work request in the same chunk.
    pub fn combine(&self) -> Duration {
        self.time(u64::from(self.cycles.combine))
    }

    /// Rewriting a table of chunk sizes for so many queue pairs: what any change costs without the two tables.
    pub fn naive_update(&self, queue_pairs: u64) -> Duration {
        self.time(u64::from(self.cycles.table_entry) * queue_pairs)
    }

    /// The same change with two tables: one weight, and at most one granularity for each group.
    pub fn two_table_update(&self, groups: u64) -> Duration {
        self.time(u64::from(self.cycles.table_entry) * (1 + groups))
    }
}

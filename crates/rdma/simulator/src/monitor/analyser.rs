//! The analyser: the rate at which a monitor looks up headers, and the headers that it misses.
//!
//! The switch forwards every packet at once and puts a copy of its header into a queue; search engines take headers
//! from there. A search takes 7 cycles of 250 MHz when the first slot it reads is the right one, interconnect and
//! counting included (harmonic 5.4.4), and [`HOP_CYCLES`] more for each further slot of a list. An engine does one
//! search at a time. A header that finds the queue full counts for no tenant: forwarding never waits.
//!
//! Units: picoseconds and cycles. The source gives no number of engines and no length of the queue, and says that
//! inspection keeps up with the line. So each direction of the bus has an analyser, with as many engines as full
//! packets need, and a queue of one block memory. Small packets can still come faster than they are looked up.
//!
//! Limits: the backlog is a sum of work, not a list of headers.

use isolane_common_quantities::units::BitRate;

/// Cycles of a search that finds its entry in level one (harmonic 5.4.4).
pub const SEARCH_CYCLES: u64 = 7;
/// Cycles for each slot of level two: one read of block memory with its output register (ours).
pub const HOP_CYCLES: u64 = 2;
/// Clock of the prototype (harmonic 5.6.5): 250 MHz, in ps.
pub const CYCLE_PS: u64 = 4_000;
/// Headers that may wait: 512 of 64 bits are one block memory (ours).
pub const QUEUE_HEADERS: u64 = 512;

/// Engines of one direction and their backlog.
#[derive(Clone, Debug)]
pub struct Analyser {
    engines: u64,
    /// Latest time seen, ps.
    now: u64,
    /// Work in the queue at that time, cycles of one engine.
    backlog: u64,
    /// What remains of the time since the last cycle ended, ps times engines.
    remainder: u64,
    /// Searches made.
    pub searches: u64,
    /// Cycles they took.
    pub cycles: u64,
    /// Headers that found the queue full.
    pub overflowed: u64,
}

impl Analyser {
    /// An idle analyser with so many engines (at least one).
    pub fn new(engines: u64) -> Self {
        Self {
            engines: engines.max(1),
            now: 0,
            backlog: 0,
            remainder: 0,
            searches: 0,
            cycles: 0,
            overflowed: 0,
        }
    }

    /// Engines that keep up with full packets of `packet_bytes`, headers included, in one direction of a bus.
    pub fn engines_for(bus: BitRate, packet_bytes: u64) -> u64 {
        let per_search_ps = SEARCH_CYCLES * CYCLE_PS;
        let bits = packet_bytes.max(1) * 8;
        let packets = u128::from(bus.as_bps()) * u128::from(per_search_ps);
        (packets.div_ceil(u128::from(bits) * 1_000_000_000_000) as u64).max(1)
    }

    /// `headers` arrive at `at`, ps, no earlier than those before; each costs a search over `hops` slots of level two: how many are looked up.
    #[inline]
    pub fn take(&mut self, at: u64, headers: u64, hops: u32) -> u64 {
        if at > self.now {
            let time = (at - self.now).saturating_mul(self.engines) + self.remainder;
            self.now = at;
            self.backlog = self.backlog.saturating_sub(time / CYCLE_PS);
            self.remainder = if self.backlog == 0 {
                0
            } else {
                time % CYCLE_PS
            };
        }
        let each = SEARCH_CYCLES + HOP_CYCLES * u64::from(hops);
        let room = (QUEUE_HEADERS * SEARCH_CYCLES).saturating_sub(self.backlog);
        let taken = headers.min(room.div_ceil(each));
        self.backlog += taken * each;
        self.searches += taken;
        self.cycles += taken * each;
        self.overflowed += headers - taken;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_engine_looks_up_a_header_every_28_ns() {
        // Twice as many as it can do, for a millisecond: half of them, and what the queue holds.
        let mut analyser = Analyser::new(1);
        let taken: u64 = (0..71_428).map(|n| analyser.take(n * 14_000, 1, 0)).sum();
        assert_eq!(taken, 35_714 + QUEUE_HEADERS);
        assert_eq!(analyser.overflowed, 71_428 - taken);
        assert_eq!(analyser.cycles, taken * SEARCH_CYCLES);
    }

    #[test]
    fn an_engine_that_keeps_up_misses_nothing() {
        let mut analyser = Analyser::new(1);
        for n in 0..100_000 {
            assert_eq!(analyser.take(n * 28_000, 1, 0), 1);
        }
        assert_eq!(analyser.overflowed, 0);
    }

    #[test]
    fn long_lists_cost_throughput() {
        let served = |hops| {
            let mut analyser = Analyser::new(1);
            (0..100_000u64)
                .map(|n| analyser.take(n * 28_000, 1, hops))
                .sum::<u64>()
        };
        // Three more slots of two cycles: 13 cycles instead of 7.
        assert_eq!(served(0), 100_000);
        let expected = 100_000 * 7 / 13;
        assert!(
            served(3).abs_diff(expected) <= QUEUE_HEADERS,
            "{}",
            served(3)
        );
    }

    #[test]
    fn a_burst_counts_as_its_headers_one_by_one() {
        let (mut whole, mut single) = (Analyser::new(2), Analyser::new(2));
        for n in 0..1_000 {
            let at = n * 300_000;
            let one_by_one: u64 = (0..32).map(|_| single.take(at, 1, 1)).sum();
            assert_eq!(whole.take(at, 32, 1), one_by_one);
        }
        assert_eq!(whole.cycles, single.cycles);
    }

    #[test]
    fn engines_follow_the_bus() {
        let engines = |gbps| Analyser::engines_for(BitRate::from_gbps(gbps), 148);
        // 32 Gb/s are 27 million packets of 148 B a second, an engine does 35.7 million.
        assert_eq!(engines(32), 1);
        assert_eq!(engines(128), 4);
        assert_eq!(engines(1), 1);
    }
}

//! Whose turn it is: weighted round robin among the flows that wait.
//!
//! Problem: hand out equal tokens so that each waiting flow's count follows its weight, smoothly (weights 1:2:4
//! give neither bursts nor gaps), without looking at flows that do not wait, for thousands of flows.
//! Method: worst-case fair queueing (Bennett and Zhang's WF2Q+) of unit jobs. A flow's next token has a start
//! and a finish in virtual time, one stride (`SCALE / weight`) apart; virtual time moves by `SCALE / sum of
//! waiting weights` per token. Of the tokens that have started, the earliest finish goes first: a flow gets
//! neither more than one token ahead of its share nor more than one behind. With equal weights this is plain
//! round robin. Two heaps hold the waiting flows, so a turn costs O(log waiting).
//!
//! Units: virtual time is an integer; remainders of both divisions are carried, so shares do not drift.
//! Limits: weights up to [`Turns::WEIGHT_MAX`]; memory grows only in [`Turns::join`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Virtual time of one token of a flow of weight one. 2^40 keeps the remainder of any stride below 2^-20 of a
/// token; after at least 2^22 tokens virtual time starts again (see [`EPOCH_END`]).
const SCALE: u64 = 1 << 40;

/// Virtual time beyond which a new epoch starts.
const EPOCH_END: u64 = u64::MAX / 4;

#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    weight: u64,
    start: u64,
    finish: u64,
    /// Remainder of the stride, in units of 1 / weight.
    rest: u64,
    waiting: bool,
    /// True while either heap holds an entry of this flow; at most one does.
    queued: bool,
}

/// The turns of flows numbered from zero.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    flows: Vec<Turn>,
    /// Waiting flows whose next token has started, by finish.
    started: BinaryHeap<Reverse<(u64, u32)>>,
    /// The others, by start.
    future: BinaryHeap<Reverse<(u64, u32)>>,
    virtual_time: u64,
    /// Remainder of virtual time, in units of 1 / `waiting_weight`.
    virtual_rest: u64,
    waiting_weight: u64,
    waiting: u32,
}

impl Turns {
    /// The largest weight: a stride keeps 20 bits.
    pub(crate) const WEIGHT_MAX: u32 = 1 << 20;

    /// The next flow has this weight; it does not wait yet. Panics if `weight` is zero or above [`Self::WEIGHT_MAX`].
    pub(crate) fn join(&mut self, weight: u32) {
        assert!(
            (1..=Self::WEIGHT_MAX).contains(&weight),
            "weight {weight} is outside 1..={}",
            Self::WEIGHT_MAX
        );
        self.flows.push(Turn {
            weight: u64::from(weight),
            ..Turn::default()
        });
        let flows = self.flows.len();
        self.started.reserve(flows - self.started.len());
        self.future.reserve(flows - self.future.len());
    }

    pub(crate) fn waiting(&self) -> u32 {
        self.waiting
    }

    /// `flow` wants tokens from now on. A flow that paused takes no credit from the pause.
    #[inline]
    pub(crate) fn start(&mut self, flow: u32) {
        let turn = &mut self.flows[flow as usize];
        if turn.waiting {
            return;
        }
        turn.waiting = true;
        self.waiting += 1;
        self.waiting_weight += turn.weight;
        if turn.queued {
            return; // Its entry has not been dropped yet: it never left.
        }
        turn.queued = true;
        if turn.finish <= self.virtual_time {
            (turn.start, turn.rest) = (self.virtual_time, 0);
        } else {
            turn.start = turn.finish;
        }
        turn.advance();
        self.future.push(Reverse((turn.start, flow)));
    }

    /// `flow` wants none. Its entry goes when it comes up.
    #[inline]
    pub(crate) fn stop(&mut self, flow: u32) {
        let turn = &mut self.flows[flow as usize];
        if turn.waiting {
            turn.waiting = false;
            self.waiting -= 1;
            self.waiting_weight -= turn.weight;
        }
    }

    /// Gives the flow whose turn it is a token's worth of its share, and names it. It goes on waiting until [`Self::stop`].
    #[inline]
    pub(crate) fn serve(&mut self) -> Option<u32> {
        if self.waiting == 0 {
            return None;
        }
        self.release_started();
        let flow = loop {
            match self.started.pop() {
                Some(Reverse((_, flow))) if self.flows[flow as usize].waiting => break flow,
                Some(Reverse((_, flow))) => self.flows[flow as usize].queued = false,
                None => self.jump(),
            }
        };
        let turn = &mut self.flows[flow as usize];
        turn.start = turn.finish;
        turn.advance();
        self.virtual_rest += SCALE % self.waiting_weight;
        self.virtual_time += SCALE / self.waiting_weight;
        if self.virtual_rest >= self.waiting_weight {
            self.virtual_rest %= self.waiting_weight;
            self.virtual_time += 1;
        }
        self.future.push(Reverse((turn.start, flow)));
        if self.virtual_time > EPOCH_END {
            self.new_epoch();
        }
        Some(flow)
    }

    /// Moves the flows whose token has started to the heap of finishes.
    #[inline]
    fn release_started(&mut self) {
        while let Some(&Reverse((start, flow))) = self.future.peek() {
            let turn = &mut self.flows[flow as usize];
            if turn.waiting && start > self.virtual_time {
                return;
            }
            self.future.pop();
            if turn.waiting {
                self.started.push(Reverse((turn.finish, flow)));
            } else {
                turn.queued = false;
            }
        }
    }

    /// No flow's token has started: virtual time jumps to the first that will.
    fn jump(&mut self) {
        let &Reverse((start, _)) = self
            .future
            .peek()
            .expect("a flow waits, so one heap holds it");
        self.virtual_time = self.virtual_time.max(start);
        self.release_started();
    }

    /// Moves virtual time back to zero and every flow with it, once in 2^62 units: exact for
    /// all that waits, and O(flows).
    fn new_epoch(&mut self) {
        let origin = self.virtual_time;
        let shift = |time: u64| time.saturating_sub(origin);
        for turn in &mut self.flows {
            (turn.start, turn.finish) = (shift(turn.start), shift(turn.finish));
        }
        self.virtual_time = 0;
        for heap in [&mut self.started, &mut self.future] {
            let mut entries = std::mem::take(heap).into_vec();
            for Reverse((time, _)) in &mut entries {
                *time = shift(*time);
            }
            *heap = BinaryHeap::from(entries);
        }
    }
}

impl Turn {
    /// Sets the finish one stride after the start.
    #[inline]
    fn advance(&mut self) {
        self.rest += SCALE % self.weight;
        self.finish = self.start + SCALE / self.weight;
        if self.rest >= self.weight {
            self.rest -= self.weight;
            self.finish += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    fn turns(weights: &[u32]) -> Turns {
        let mut turns = Turns::default();
        for (flow, &weight) in weights.iter().enumerate() {
            turns.join(weight);
            turns.start(flow as u32);
        }
        turns
    }

    fn check(weights: &[u32], count: usize, order: Expect) {
        let mut turns = turns(weights);
        let text: Vec<String> = (0..count)
            .map(|_| turns.serve().unwrap().to_string())
            .collect();
        order.assert_eq(&text.join(" "));
    }

    #[test]
    fn equal_weights_take_turns() {
        check(&[1, 1, 1], 7, expect!["0 1 2 0 1 2 0"]);
    }

    #[test]
    fn weights_one_two_four_interleave() {
        check(&[1, 2, 4], 14, expect!["2 1 2 0 2 1 2 2 1 2 0 2 1 2"]);
    }

    #[test]
    fn a_flow_that_stops_costs_no_other_a_turn() {
        let mut turns = turns(&[1, 1, 1]);
        turns.stop(1);
        let order: Vec<_> = (0..4).map(|_| turns.serve().unwrap()).collect();
        assert_eq!(order, [0, 2, 0, 2]);
        turns.stop(0);
        turns.stop(2);
        assert_eq!(turns.serve(), None);
    }

    #[test]
    fn a_pause_earns_no_credit() {
        let mut turns = turns(&[1, 1]);
        turns.stop(1);
        for _ in 0..100 {
            turns.serve();
        }
        turns.start(1);
        let ones = (0..10).filter(|_| turns.serve() == Some(1)).count();
        assert_eq!(ones, 5);
    }

    #[test]
    fn a_new_epoch_changes_no_order() {
        let mut old = turns(&[3, 5, 7]);
        let mut new = old.clone();
        for _ in 0..50 {
            assert_eq!(old.serve(), new.serve());
            new.new_epoch();
        }
    }

    proptest! {
        #[test]
        fn shares_follow_weights_within_one_token(weights in prop::collection::vec(1u32..50, 1..12)) {
            let mut turns = turns(&weights);
            let sum: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
            let mut counts = vec![0u64; weights.len()];
            for total in 1..=1_000u64 {
                counts[turns.serve().unwrap() as usize] += 1;
                for (count, &weight) in counts.iter().zip(&weights) {
                    let lead = (count * sum).abs_diff(total * u64::from(weight));
                    prop_assert!(lead <= sum, "{counts:?} of {weights:?}");
                }
            }
        }

        /// Goal: for any starts and stops, only waiting flows are served, and a stop never blocks the others.
        #[test]
        fn only_waiting_flows_are_served(steps in prop::collection::vec((0u32..6, 0u8..4), 1..300)) {
            let mut turns = turns(&[1, 2, 3, 4, 5, 6]);
            let mut waiting = [true; 6];
            let memory = |turns: &Turns| (turns.started.capacity(), turns.future.capacity());
            let joined = memory(&turns);
            for (flow, step) in steps {
                match step {
                    0 => { turns.stop(flow); waiting[flow as usize] = false; }
                    1 => { turns.start(flow); waiting[flow as usize] = true; }
                    _ => match turns.serve() {
                        Some(served) => prop_assert!(waiting[served as usize]),
                        None => prop_assert!(waiting.iter().all(|&waits| !waits)),
                    },
                }
                prop_assert!(turns.started.len() + turns.future.len() <= 6);
                prop_assert_eq!(memory(&turns), joined);
            }
        }
    }
}

//! The event queue against an ordered map.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The slow, obvious queue: ordered by time, then by scheduling number.
#[derive(Default)]
struct Model {
    events: BTreeMap<(u64, u64), u64>,
    scheduled: u64,
}

impl Model {
    fn schedule(&mut self, time: u64, event: u64) {
        self.events.insert((time, self.scheduled), event);
        self.scheduled += 1;
    }

    fn pop(&mut self) -> Option<(u64, u64)> {
        self.events
            .pop_first()
            .map(|((time, _), event)| (time, event))
    }
}

proptest! {
    #[test]
    fn agrees_with_an_ordered_map(steps in prop::collection::vec((0u8..3, 0u32..40, 0u64..1000), 1..400)) {
        let (mut queue, mut model) = (EventQueue::new(), Model::default());
        for (number, (kind, shift, delta)) in steps.into_iter().enumerate() {
            if kind > 0 {
                if kind == 1 {
                    // An end before the earliest event takes nothing.
                    let before = model.events.keys().next().map_or(1 << shift, |key| key.0);
                    if let Some(end) = before.checked_sub(1 + delta) {
                        prop_assert!(queue.pop_until(Instant::from_ps(end)).is_none());
                    }
                }
                // Deltas from 0 to 2^49 ps reach every part, small ones make ties.
                let time = queue.now().as_ps() + ((delta << shift) >> 10);
                queue.schedule(Instant::from_ps(time), number as u64);
                model.schedule(time, number as u64);
            } else {
                prop_assert_eq!(queue.peek_time().map(Instant::as_ps), model.events.keys().next().map(|key| key.0));
                prop_assert_eq!(queue.pop().map(|(time, event)| (time.as_ps(), event)), model.pop());
            }
            prop_assert_eq!(queue.len(), model.events.len());
        }
        while let Some(expected) = model.pop() {
            prop_assert_eq!(queue.pop().map(|(time, event)| (time.as_ps(), event)), Some(expected));
        }
        prop_assert!(queue.is_empty() && queue.pop().is_none());
    }
}

#[test]
fn equal_times_keep_scheduling_order_across_moves() {
    let mut queue = EventQueue::new();
    let target = Instant::from_ps(0x0102_0304);
    queue.schedule(target, 1);
    queue.schedule(Instant::from_ps(0x0102_0000), 0);
    queue.schedule(target, 2);
    assert_eq!(queue.pop().map(|(_, event)| event), Some(0));
    queue.schedule(target, 3);
    let rest: Vec<i32> = std::iter::from_fn(|| queue.pop().map(|(_, event)| event)).collect();
    assert_eq!(rest, [1, 2, 3]);
}

#[test]
fn the_last_moment_comes_too() {
    let mut queue = EventQueue::new();
    for time in [u64::MAX, u64::MAX - 1, u64::MAX - (1 << 30), 1 << 40] {
        queue.schedule(Instant::from_ps(time), time);
        queue.schedule(Instant::from_ps(time), time - 1);
    }
    let taken = std::iter::from_fn(|| queue.pop().map(|(_, event)| event));
    let last = [u64::MAX - 1, u64::MAX - 2, u64::MAX, u64::MAX - 1];
    assert_eq!(taken.skip(4).collect::<Vec<_>>(), last);
    assert!(queue.is_empty());
}

#[test]
#[should_panic(expected = "before now")]
fn the_past_is_refused() {
    let mut queue = EventQueue::new();
    queue.schedule(Instant::from_ps(10), ());
    queue.pop();
    queue.schedule(Instant::from_ps(9), ());
}

#[test]
fn what_is_upcoming_in_the_open_slot_waits_there() {
    let mut queue = EventQueue::new();
    for (time, event) in [(7, 'c'), (5, 'a'), (5, 'b'), (600, 'd')] {
        queue.schedule(Instant::from_ps(time), event);
    }
    assert_eq!(queue.upcoming(0), None, "no slot is open");
    assert_eq!(queue.pop(), Some((Instant::from_ps(5), 'a')));
    let upcoming = [0, 1, 2].map(|ahead| queue.upcoming(ahead).copied());
    assert_eq!(upcoming, [Some('b'), Some('c'), None]);
}

#[test]
fn what_is_upcoming_in_the_next_slot_waits_there() {
    let mut queue = EventQueue::new();
    assert_eq!(queue.upcoming_slot(), None);
    for (time, event) in [(90_000, 'd'), (20_000, 'b'), (20_001, 'c'), (5, 'a')] {
        queue.schedule(Instant::from_ps(time), event);
    }
    let mut seen = Vec::new();
    while let Some(&upcoming) = queue.upcoming_slot() {
        seen.push((upcoming, queue.pop().map(|(_, event)| event)));
    }
    // Of a slot with two events, the last one is reported first.
    let taken = |event| Some(event);
    assert_eq!(
        seen,
        [
            ('a', taken('a')),
            ('c', taken('b')),
            ('c', taken('c')),
            ('d', taken('d'))
        ]
    );
}

//! A slot: queue pairs of one process take it one after the other, the daemon reads it. Property: a reading is of one
//! queue pair, and its counters are of that queue pair.

use super::{Checked, NO_ACQUIRE, NO_FENCE, NO_RELEASE, NONE, Own, broken, holds};
use isolane_rdma_session::region::{SLOT_FREE, Slot};
use isolane_rdma_session::slot::{Occupant, SlotReading};
use isolane_rdma_session::words::{Atomics, Word};
use loom::sync::Arc;
use loom::thread;
use std::sync::atomic::{AtomicU64, Ordering};

type Read<const DEFECT: u8> = fn(&Slot<Checked<DEFECT>>) -> Option<SlotReading>;

/// Words of a slot that belong to one queue pair, apart from its number.
const WORDS: usize = 7;

fn counters<const DEFECT: u8>(slot: &mut Slot<Checked<DEFECT>>) -> [&mut Counter<DEFECT>; 6] {
    [
        &mut slot.posted_messages,
        &mut slot.posted_bytes,
        &mut slot.completed_messages,
        &mut slot.completed_bytes,
        &mut slot.chunks,
        &mut slot.waited_ns,
    ]
}

type Counter<const DEFECT: u8> = <Checked<DEFECT> as Atomics>::U64;

/// Queue pair 1 leaves, and queue pair 2 takes the slot, while the daemon reads. Every word of a queue pair that has
/// worked is ten times its number. Loom sees the mark, the number and one of the words: each multiplies the runs.
fn program<const DEFECT: u8>(read: Read<DEFECT>, word: usize) {
    let mut slot = Slot::<Checked<DEFECT>>::default();
    let left = counters(&mut slot).into_iter().enumerate();
    for (_, counter) in left.filter(|(at, _)| *at != word) {
        *counter = Own::Left(AtomicU64::new(0));
    }
    if word < WORDS - 1 {
        slot.meters = Own::Left(AtomicU64::new(0));
    }
    let slot = Arc::new(slot);
    work(&slot, 1);
    let daemon = Arc::clone(&slot);
    let daemon = thread::spawn(move || {
        let Some(seen) = read(&daemon) else { return };
        let words: [u64; WORDS] = [
            seen.posted_messages,
            seen.posted_bytes,
            seen.completed_messages,
            seen.completed_bytes,
            seen.chunks,
            seen.waited_ns,
            seen.meters.into(),
        ];
        let full = u64::from(seen.queue_pair) * 10;
        // The counters of the second queue pair may be zero still.
        let is_new = seen.queue_pair == 2 && word < WORDS - 1 && words[word] == 0;
        assert!(is_new || words[word] == full, "words of two queue pairs");
    });
    slot.leave();
    work(&slot, 2);
    daemon.join().expect("no panic");
}

fn work<const DEFECT: u8>(slot: &Slot<Checked<DEFECT>>, number: u32) {
    slot.occupy(&Occupant {
        queue_pair: number,
        meters: number * 10,
        ..Occupant::default()
    });
    for counter in [
        &slot.posted_messages,
        &slot.posted_bytes,
        &slot.completed_messages,
        &slot.completed_bytes,
        &slot.chunks,
        &slot.waited_ns,
    ] {
        counter.store(u64::from(number) * 10, Ordering::Relaxed);
    }
}

/// A reader that does not read mark and number again.
fn once<const DEFECT: u8>(slot: &Slot<Checked<DEFECT>>) -> Option<SlotReading> {
    let state = slot.state.load(Ordering::Acquire);
    (state != SLOT_FREE).then(|| SlotReading {
        is_shared: false,
        queue_pair: slot.queue_pair.load(Ordering::Acquire),
        meters: slot.meters.load(Ordering::Relaxed),
        has_read: false,
        posted_messages: slot.posted_messages.load(Ordering::Relaxed),
        posted_bytes: slot.posted_bytes.load(Ordering::Relaxed),
        completed_messages: slot.completed_messages.load(Ordering::Relaxed),
        completed_bytes: slot.completed_bytes.load(Ordering::Relaxed),
        chunks: slot.chunks.load(Ordering::Relaxed),
        waited_ns: slot.waited_ns.load(Ordering::Relaxed),
    })
}

#[test]
fn a_reading_is_of_one_queue_pair() {
    for word in 0..WORDS {
        assert!(holds(move || program::<NONE>(Slot::read, word)) > 100);
    }
}

#[test]
fn a_slot_without_an_ordering_or_a_check_is_found() {
    for word in 0..WORDS {
        let found = [
            broken(move || program::<NO_RELEASE>(Slot::read, word)),
            broken(move || program::<NO_ACQUIRE>(Slot::read, word)),
            broken(move || program::<NO_FENCE>(Slot::read, word)),
            broken(move || program::<NONE>(once, word)),
        ];
        for found in found {
            assert!(found.unwrap().contains("words of two queue pairs"));
        }
    }
}

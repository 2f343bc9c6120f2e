//! A slot: queue pairs of one process take it one after the other, the daemon reads it. Property: a reading is of one
//! queue pair, and its counters are of that queue pair.

use super::{Checked, NO_ACQUIRE, NO_FENCE, NO_RELEASE, NONE, Own, broken, holds};
use isolane_rdma_session::region::{SLOT_FREE, Slot};
use isolane_rdma_session::slot::{Occupant, SlotReading};
use isolane_rdma_session::words::Word;
use loom::sync::Arc;
use loom::thread;
use std::sync::atomic::{AtomicU64, Ordering};

type Read<const DEFECT: u8> = fn(&Slot<Checked<DEFECT>>) -> Option<SlotReading>;

/// Queue pair 1 has posted a message of 10 bytes. It leaves, and queue pair 2 takes the slot and posts one of 20 bytes,
/// while the daemon reads.
fn program<const DEFECT: u8>(read: Read<DEFECT>) {
    let mut slot = Slot::<Checked<DEFECT>>::default();
    // Each counter multiplies the runs; the others are written and read beside the bytes.
    for counter in [
        &mut slot.posted_messages,
        &mut slot.completed_messages,
        &mut slot.completed_bytes,
        &mut slot.chunks,
        &mut slot.waited_ns,
    ] {
        *counter = Own::Left(AtomicU64::new(0));
    }
    let slot = Arc::new(slot);
    take(&slot, 1);
    let daemon = Arc::clone(&slot);
    let daemon = thread::spawn(move || {
        let Some(seen) = read(&daemon) else { return };
        assert_eq!(seen.meters, seen.queue_pair, "words of two queue pairs");
        // The second queue pair may have posted nothing yet.
        let own = match seen.queue_pair {
            1 => [10, 10],
            _ => [0, 20],
        };
        assert!(own.contains(&seen.posted_bytes), "words of two queue pairs");
    });
    slot.leave();
    take(&slot, 2);
    daemon.join().expect("no panic");
}

fn take<const DEFECT: u8>(slot: &Slot<Checked<DEFECT>>, number: u32) {
    slot.occupy(&Occupant {
        queue_pair: number,
        meters: number,
        ..Occupant::default()
    });
    slot.posted_bytes
        .store(u64::from(number) * 10, Ordering::Relaxed);
}

/// A reader that does not read mark and number again.
fn once<const DEFECT: u8>(slot: &Slot<Checked<DEFECT>>) -> Option<SlotReading> {
    let state = slot.state.load(Ordering::Acquire);
    (state != SLOT_FREE).then(|| SlotReading {
        queue_pair: slot.queue_pair.load(Ordering::Relaxed),
        meters: slot.meters.load(Ordering::Relaxed),
        posted_bytes: slot.posted_bytes.load(Ordering::Relaxed),
        ..SlotReading::default()
    })
}

#[test]
fn a_reading_is_of_one_queue_pair() {
    assert!(holds(|| program::<NONE>(Slot::read)) > 100);
}

#[test]
fn a_slot_without_an_ordering_or_a_check_is_found() {
    let found = [
        broken(|| program::<NO_RELEASE>(Slot::read)),
        broken(|| program::<NO_ACQUIRE>(Slot::read)),
        broken(|| program::<NO_FENCE>(Slot::read)),
        broken(|| program::<NONE>(once)),
    ];
    for found in found {
        assert!(found.unwrap().contains("words of two queue pairs"));
    }
}

//! The oldest and the latest number of trapped calls: the enforcer writes them, and who answers after its end reads
//! them. Property: every call that was received and not answered is in the range that is checked.

use super::{Checked, NO_ACQUIRE, NO_RELEASE, NONE, broken, holds};
use isolane_rdma_enforcer::guardian::table::Row;
use loom::sync::{Arc, Mutex};
use loom::thread;
use std::collections::BTreeSet;
use std::ops::Range;

/// The kernel's side: calls that were received and not answered, and whether the enforcer was killed.
#[derive(Default)]
struct Kernel {
    open: BTreeSet<u64>,
    is_killed: bool,
}

/// A step of the enforcer.
#[derive(Clone, Copy)]
enum Step {
    Receive(u64),
    Answer(u64),
}

/// Number of the first call; the kernel begins anywhere.
const FIRST: u64 = 500;
const STEPS: [Step; 4] = [
    Step::Receive(FIRST + 1),
    Step::Answer(FIRST),
    Step::Answer(FIRST + 1),
    Step::Receive(FIRST + 2),
];

/// The enforcer, which has recorded its first call, receives and answers calls; it is killed after any of its system
/// calls or stores. Stores that come after the kill are a kill that came later.
fn program<const DEFECT: u8>(record: Record<DEFECT>, range: Read<DEFECT>) {
    let row = Arc::new(Row::<Checked<DEFECT>>::empty());
    let kernel = Arc::new(Mutex::new(Kernel::default()));
    kernel.lock().expect("no panic").open.insert(FIRST);
    record(&row, Some(FIRST), Some(FIRST));
    let (of_row, of_kernel) = (Arc::clone(&row), Arc::clone(&kernel));
    let successor = thread::spawn(move || {
        let mut kernel = of_kernel.lock().expect("no panic");
        kernel.is_killed = true;
        let open = std::mem::take(&mut kernel.open);
        drop(kernel);
        let checked = range(&of_row);
        for call in open {
            assert!(checked.contains(&call), "a received call is forgotten");
        }
    });
    let mut taken = BTreeSet::from([FIRST]);
    for step in STEPS {
        let mut kernel = kernel.lock().expect("no panic");
        if kernel.is_killed {
            break;
        }
        match step {
            Step::Receive(call) => kernel.open.insert(call) && taken.insert(call),
            Step::Answer(call) => kernel.open.remove(&call) && taken.remove(&call),
        };
        drop(kernel);
        record(&row, taken.first().copied(), taken.last().copied());
    }
    successor.join().expect("no panic");
}

type Record<const DEFECT: u8> = fn(&Row<Checked<DEFECT>>, Option<u64>, Option<u64>);
type Read<const DEFECT: u8> = fn(&Row<Checked<DEFECT>>) -> Range<u64>;

#[test]
fn every_received_call_is_checked_after_a_kill() {
    assert!(holds(|| program::<NONE>(Row::set, Row::perhaps_taken)) > 100);
}

#[test]
fn a_row_without_an_ordering_is_found() {
    let found = [
        broken(|| program::<NO_RELEASE>(Row::set, Row::perhaps_taken)),
        broken(|| program::<NO_ACQUIRE>(Row::set, Row::perhaps_taken)),
    ];
    for found in found {
        assert!(found.unwrap().contains("a received call is forgotten"));
    }
}

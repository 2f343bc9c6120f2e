//! The preload library's table of objects: one thread creates and destroys, another one looks an object up. Properties:
//! an object that was there before is found in every interleaving, also while the table grows and while others leave;
//! what is found was written before.

use super::{Checked, NO_ACQUIRE, NO_MARK, NO_RELEASE, NONE, broken, holds};
use isolane_rdma_session::words::{Atomics, Word};
use isolane_shim::table::Table;
use loom::sync::Arc;
use loom::thread;
use std::sync::atomic::Ordering;

/// The state of an object.
type Value<const DEFECT: u8> = <Checked<DEFECT> as Atomics>::U64;

/// Two cells: the second object makes the table grow.
fn table<const DEFECT: u8>() -> Arc<Table<Value<DEFECT>, Checked<DEFECT>>> {
    Arc::new(Table::with_cells(2))
}

fn value<const DEFECT: u8>(number: u64) -> &'static Value<DEFECT> {
    let value = Box::leak(Box::new(Value::<DEFECT>::new(0)));
    value.store(number, Ordering::Relaxed);
    value
}

const FIRST: usize = 64;
const SECOND: usize = 128;

/// Object 1 is there; object 2 comes and leaves.
fn program<const DEFECT: u8>() {
    let table = table::<DEFECT>();
    table.insert(FIRST, value::<DEFECT>(11));
    let other = Arc::clone(&table);
    let other = thread::spawn(move || {
        let found = other.find(FIRST).map(|found| found.load(Ordering::Relaxed));
        assert_eq!(found, Some(11), "an object is lost or not written");
    });
    table.insert(SECOND, value::<DEFECT>(12));
    table.remove(SECOND);
    other.join().expect("no panic");
}

/// Three objects whose searches begin at one cell of eight. The one before the sought object leaves and returns, the one
/// behind it comes and leaves.
fn neighbours<const DEFECT: u8>() {
    let table = Arc::new(Table::<Value<DEFECT>, Checked<DEFECT>>::with_cells(8));
    let sought = FIRST;
    table.insert(3 * FIRST, value::<DEFECT>(12));
    table.insert(sought, value::<DEFECT>(11));
    let other = Arc::clone(&table);
    let other = thread::spawn(move || {
        let found = other
            .find(sought)
            .map(|found| found.load(Ordering::Relaxed));
        assert_eq!(found, Some(11), "an object is lost or not written");
    });
    table.remove(3 * FIRST);
    table.insert(5 * FIRST, value::<DEFECT>(13));
    table.remove(5 * FIRST);
    table.insert(3 * FIRST, value::<DEFECT>(12));
    other.join().expect("no panic");
}

/// Another thread may look an object up as soon as it has its address.
fn newcomer<const DEFECT: u8>() {
    let table = table::<DEFECT>();
    let other = Arc::clone(&table);
    let other = thread::spawn(move || {
        let found = other.find(FIRST).map(|found| found.load(Ordering::Relaxed));
        assert_ne!(found, Some(0), "an object is lost or not written");
    });
    table.insert(FIRST, value::<DEFECT>(11));
    other.join().expect("no panic");
}

#[test]
fn an_object_is_found_while_others_come_and_go() {
    assert!(holds(program::<NONE>) > 1);
    assert!(holds(newcomer::<NONE>) > 1);
    assert!(holds(neighbours::<NONE>) > 1);
}

#[test]
fn a_table_without_an_ordering_is_found() {
    let found = [
        broken(program::<NO_RELEASE>),
        broken(program::<NO_ACQUIRE>),
        broken(newcomer::<NO_RELEASE>),
        broken(newcomer::<NO_ACQUIRE>),
    ];
    for found in found {
        // Loom itself reports an access to words of which the thread does not know that they were made.
        assert!(found.unwrap().contains("Causality violation"));
    }
    let found = broken(neighbours::<NO_MARK>);
    assert!(found.unwrap().contains("an object is lost or not written"));
}

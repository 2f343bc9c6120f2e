//! Maps the address of a C object to its state; read without a lock.
//!
//! Problem: every post and every poll has to find the state of its queue pair or completion queue from the pointer that
//! the application passes. Method: an open hash table of addresses. Readers follow atomic words; writers (creation and
//! destruction of objects) take a mutex. A half-full table is copied into one of twice the size. The old one stays for
//! its current readers and is never freed. A removed object leaves its cell empty unless the search for another object
//! passes the cell, so objects that come and go fill no table. Limits: an object must not be removed while another
//! thread looks it up; the verbs rules also forbid destroying an object in use.

use isolane_rdma_session::words::{Atomics, Processor, Word};
use std::sync::Mutex;
use std::sync::atomic::Ordering;

const EMPTY: usize = 0;
/// A cell whose object was removed; no object has this address.
const GONE: usize = 1;
const FIRST_CELLS: usize = 64;

struct Cell<T: 'static, A: Atomics> {
    address: A::Usize,
    value: A::Pointer<T>,
}

struct Cells<T: 'static, A: Atomics> {
    mask: usize,
    cells: Box<[Cell<T, A>]>,
}

impl<T, A: Atomics> Cells<T, A> {
    fn new(count: usize) -> Self {
        let cell = || Cell {
            address: A::Usize::new(EMPTY),
            value: A::Pointer::new(std::ptr::null_mut()),
        };
        Self {
            mask: count - 1,
            cells: std::iter::repeat_with(cell).take(count).collect(),
        }
    }

    /// Start of the search for `address`; objects are at multiples of at least eight bytes.
    #[inline]
    fn start(&self, address: usize) -> usize {
        let spread = (address >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (spread >> 32) & self.mask
    }

    /// Empties the cells of removed objects that no search needs, from `at` back to an empty cell. Returns their number.
    fn clear(&self, mut at: usize) -> usize {
        let mut cleared = 0;
        loop {
            let cell = &self.cells[at];
            match cell.address.load(Ordering::Relaxed) {
                EMPTY => return cleared,
                GONE if !self.is_passed(at) => {
                    cell.address.store(EMPTY, Ordering::Release);
                    cleared += 1;
                }
                _ => {}
            }
            at = at.wrapping_sub(1) & self.mask;
        }
    }

    /// Whether the search for an object passes the cell `at`.
    fn is_passed(&self, at: usize) -> bool {
        let mut next = at;
        loop {
            next = (next + 1) & self.mask;
            let address = self.cells[next].address.load(Ordering::Relaxed);
            let after = |cell: usize| next.wrapping_sub(cell) & self.mask;
            match address {
                EMPTY => return false,
                GONE => {}
                _ if after(self.start(address)) >= after(at) => return true,
                _ => {}
            }
        }
    }
}

/// The table. Values are never freed; their owners recycle them.
pub struct Table<T: 'static, A: Atomics = Processor> {
    current: A::Pointer<Cells<T, A>>,
    /// Number of cells of the current table that are not empty.
    used: Mutex<usize>,
    /// The fewest cells of a table.
    least: usize,
}

impl<T, A: Atomics> std::fmt::Debug for Table<T, A> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Table").finish_non_exhaustive()
    }
}

impl<T: Sync, A: Atomics> Default for Table<T, A> {
    fn default() -> Self {
        Self::with_cells(FIRST_CELLS)
    }
}

impl<T: Sync, A: Atomics> Table<T, A> {
    /// An empty table of `count` cells, a power of two.
    pub fn with_cells(count: usize) -> Self {
        Self {
            current: A::Pointer::new(Box::into_raw(Box::new(Cells::new(count)))),
            used: Mutex::new(0),
            least: count,
        }
    }

    /// The state of the object at `address`.
    #[inline]
    pub fn find(&self, address: usize) -> Option<&'static T> {
        // SAFETY: tables are never freed.
        let cells = unsafe { &*self.current.load(Ordering::Acquire) };
        let mut at = cells.start(address);
        loop {
            let cell = &cells.cells[at];
            let found = cell.address.load(Ordering::Acquire);
            if found == address {
                // SAFETY: values live for ever; the value was stored before the address.
                return unsafe { cell.value.load(Ordering::Relaxed).as_ref() };
            }
            if found == EMPTY {
                return None;
            }
            at = (at + 1) & cells.mask;
        }
    }

    /// Stores `value` for the object at `address`, replacing the value of an earlier object there.
    pub fn insert(&self, address: usize, value: &'static T) {
        assert!(address > GONE, "an address of an object");
        let mut used = lock(&self.used);
        // SAFETY: tables are never freed.
        let mut cells = unsafe { &*self.current.load(Ordering::Acquire) };
        if (*used + 1) * 2 > cells.cells.len() {
            cells = self.grow(cells, &mut used);
        }
        *used += usize::from(put(cells, address, std::ptr::from_ref(value).cast_mut()));
    }

    /// Removes the object at `address`.
    pub fn remove(&self, address: usize) {
        let mut used = lock(&self.used);
        // SAFETY: tables are never freed.
        let cells = unsafe { &*self.current.load(Ordering::Acquire) };
        let mut at = cells.start(address);
        loop {
            let cell = &cells.cells[at];
            match cell.address.load(Ordering::Relaxed) {
                EMPTY => return,
                found if found == address => {
                    cell.address.store(GONE, Ordering::Release);
                    *used -= cells.clear(at);
                    return;
                }
                _ => at = (at + 1) & cells.mask,
            }
        }
    }

    /// Makes a larger table without the cells of removed objects.
    fn grow(&self, old: &Cells<T, A>, used: &mut usize) -> &'static Cells<T, A> {
        let live = |cell: &&Cell<T, A>| cell.address.load(Ordering::Relaxed) > GONE;
        let count = old.cells.iter().filter(live).count();
        let new = Box::leak(Box::new(Cells::new(
            ((count + 1) * 4).next_power_of_two().max(self.least),
        )));
        for cell in old.cells.iter().filter(live) {
            put(
                new,
                cell.address.load(Ordering::Relaxed),
                cell.value.load(Ordering::Relaxed),
            );
        }
        *used = count;
        self.current
            .store(std::ptr::from_ref(new).cast_mut(), Ordering::Release);
        new
    }
}

/// Returns whether a fresh cell was needed.
fn put<T, A: Atomics>(cells: &Cells<T, A>, address: usize, value: *mut T) -> bool {
    let mut at = cells.start(address);
    let mut free = None;
    loop {
        let cell = &cells.cells[at];
        let found = cell.address.load(Ordering::Relaxed);
        if found == address {
            cell.value.store(value, Ordering::Release);
            return false;
        }
        if found == GONE && free.is_none() {
            free = Some(at);
        }
        if found == EMPTY {
            let cell = &cells.cells[free.unwrap_or(at)];
            cell.value.store(value, Ordering::Relaxed);
            cell.address.store(address, Ordering::Release);
            return free.is_none();
        }
        at = (at + 1) & cells.mask;
    }
}

/// Locks a mutex even if a holder panicked: its sections leave consistent data.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    static VALUES: [u32; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

    proptest! {
        #[test]
        fn it_answers_like_a_map(steps in proptest::collection::vec((1usize..200, 0usize..9), 0..600)) {
            let table = <Table<u32>>::default();
            let mut model = BTreeMap::new();
            for (object, what) in steps {
                let address = object * 16;
                match VALUES.get(what) {
                    Some(value) => {
                        table.insert(address, value);
                        model.insert(address, *value);
                    }
                    None => {
                        table.remove(address);
                        model.remove(&address);
                    }
                }
                for object in 1usize..200 {
                    let found = table.find(object * 16).copied();
                    prop_assert_eq!(found, model.get(&(object * 16)).copied());
                }
            }
        }
    }

    #[test]
    fn objects_that_come_and_go_do_not_fill_it() {
        let table = <Table<u32>>::default();
        table.insert(8, &VALUES[0]);
        let first = table.current.load(Ordering::Acquire);
        for object in 1..100_000usize {
            table.insert(object * 64, &VALUES[object % 8]);
            table.remove(object * 64);
        }
        assert_eq!(table.current.load(Ordering::Acquire), first);
    }
}

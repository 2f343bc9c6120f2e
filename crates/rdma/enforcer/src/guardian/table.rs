//! The trapped calls that an enforcer has received and not answered, in memory that its successor can read.
//!
//! Problem: a received call can be answered only by its number. If an enforcer is killed, the numbers are lost and the
//! callers wait forever. Method: a row of two words per listener in memory that the guardian keeps: the oldest
//! unanswered number and the latest number. The kernel numbers the calls of a listener upwards, so every open call is
//! between the two, or right after the latest one if the enforcer was killed before it recorded a call. The successor
//! checks with the kernel which numbers in that range are open. The oldest number is written before the latest one and
//! read after it: a kill between the two leaves a range that is too long, never one that is too short.
//!
//! Units: call numbers. Limits: [`SLOTS`] listeners have a row. If an enforcer is killed between receiving the very
//! first call of a listener and recording it, that call waits until its caller is killed.

use isolane_rdma_session::words::{Atomics, Maximum, Processor, Word};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// Number of rows: process trees and containers under supervision at one time.
pub const SLOTS: usize = 8_192;
/// Numbers after the latest one that are checked.
const AHEAD: u64 = 64;
/// Numbers before the latest one that are checked: far more than one tenant's waiting calls.
const SPAN_MAX: u64 = 1 << 16;
const BYTES: usize = SLOTS * size_of::<Row<Processor>>();

/// The two words of a listener.
#[repr(C)]
#[derive(Debug)]
pub struct Row<A: Atomics = Processor> {
    /// Oldest unanswered number plus one; 0 for none.
    oldest: A::U64,
    /// Latest number plus one; 0 for none.
    latest: A::U64,
}

impl<A: Atomics> Row<A> {
    /// The row of a listener without calls.
    pub fn empty() -> Self {
        Self {
            oldest: A::U64::new(0),
            latest: A::U64::new(0),
        }
    }

    /// Records the unanswered numbers of the listener. With `None` the row keeps its latest number.
    pub fn set(&self, oldest: Option<u64>, latest: Option<u64>) {
        let stored = |number: u64| number.wrapping_add(1);
        self.oldest
            .store(oldest.map_or(0, stored), Ordering::Release);
        if let Some(latest) = latest {
            self.latest.fetch_max(stored(latest), Ordering::Release);
        }
    }

    /// Empties the row for its next listener.
    fn clear(&self) {
        self.oldest.store(0, Ordering::Release);
        self.latest.store(0, Ordering::Release);
    }

    /// The numbers of calls that may be unanswered.
    pub fn perhaps_taken(&self) -> std::ops::Range<u64> {
        let latest = self.latest.load(Ordering::Acquire);
        open_calls(self.oldest.load(Ordering::Acquire), latest)
    }
}

/// The numbers of calls that may be unanswered, by the two words of a row: the oldest unanswered number and the latest
/// one, each plus one, and 0 for none.
pub fn open_calls(oldest: u64, latest: u64) -> std::ops::Range<u64> {
    if latest == 0 {
        return 0..0;
    }
    let oldest = match oldest {
        0 => latest,
        oldest => oldest - 1,
    };
    oldest.max(latest.saturating_sub(SPAN_MAX)).min(latest)..latest.saturating_add(AHEAD)
}

/// The rows, shared by guardian and enforcer.
#[derive(Debug)]
pub struct Table {
    memory: OwnedFd,
    rows: NonNull<Row>,
}

// SAFETY: the mapping stays where it is until the table is dropped, and rows are atomics.
unsafe impl Send for Table {}

impl Table {
    /// Makes a table of empty rows. Fails when the kernel has no memory left.
    pub fn create() -> io::Result<Self> {
        let memory = memfd_create("isolane-calls", MemfdFlags::CLOEXEC)?;
        ftruncate(&memory, BYTES as u64)?;
        Self::open(memory)
    }

    /// Maps the table behind a descriptor from the guardian. Fails with `InvalidData` when the memory is too short.
    pub fn open(memory: OwnedFd) -> io::Result<Self> {
        let length = rustix::fs::fstat(&memory)?.st_size;
        if u64::try_from(length).unwrap_or(0) < BYTES as u64 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the table of taken calls has {length} of {BYTES} bytes"),
            ));
        }
        // SAFETY: a new mapping at an address of the kernel's choice; it overlaps nothing of ours. The file is long
        // enough, and only the two of us, both of this program, have it.
        let rows = unsafe {
            mmap(
                std::ptr::null_mut(),
                BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &memory,
                0,
            )?
        };
        let rows = NonNull::new(rows.cast()).expect("the kernel maps nothing at zero unasked");
        Ok(Self { memory, rows })
    }

    /// Records the unanswered numbers of a listener; see [`Row::set`].
    pub fn set(&self, slot: usize, oldest: Option<u64>, latest: Option<u64>) {
        if let Some(row) = self.row(slot) {
            row.set(oldest, latest);
        }
    }

    /// Empties a row for its next listener.
    pub fn clear(&self, slot: usize) {
        if let Some(row) = self.row(slot) {
            row.clear();
        }
    }

    /// The numbers of calls that may be unanswered.
    pub fn perhaps_taken(&self, slot: usize) -> std::ops::Range<u64> {
        self.row(slot).map_or(0..0, Row::perhaps_taken)
    }

    fn row(&self, slot: usize) -> Option<&Row> {
        if slot >= SLOTS {
            return None;
        }
        // SAFETY: the mapping holds `SLOTS` rows, zeros are valid rows, and the borrow ends before it is unmapped.
        Some(unsafe { self.rows.add(slot).as_ref() })
    }
}

impl AsFd for Table {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: the mapping of `open`; no borrow of it is left.
        let _ = unsafe { munmap(self.rows.as_ptr().cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_open_call_is_in_the_range() {
        let table = Table::create().unwrap();
        assert!(table.perhaps_taken(3).is_empty());
        table.set(3, Some(100), Some(120));
        let range = table.perhaps_taken(3);
        assert!(range.contains(&100) && range.contains(&120) && range.contains(&121));
        // All answered: only calls received after the last record can be open.
        table.set(3, None, None);
        assert_eq!(table.perhaps_taken(3).start, 121);
        table.clear(3);
        assert!(table.perhaps_taken(3).is_empty());
    }

    #[test]
    fn two_maps_of_one_table_agree() {
        let table = Table::create().unwrap();
        let other = Table::open(table.as_fd().try_clone_to_owned().unwrap()).unwrap();
        table.set(SLOTS - 1, Some(5), Some(9));
        assert_eq!(other.perhaps_taken(SLOTS - 1), 5..10 + AHEAD);
        // Slots beyond the table are ignored.
        table.set(SLOTS, Some(1), Some(1));
        assert!(other.perhaps_taken(SLOTS).is_empty());
    }

    #[test]
    fn a_range_is_never_longer_than_the_span() {
        let table = Table::create().unwrap();
        table.set(0, Some(0), Some(u64::MAX - 2));
        let range = table.perhaps_taken(0);
        assert!(range.end - range.start <= SPAN_MAX + AHEAD);
    }
}

//! The library's file descriptors, which a child of `fork` closes.
//!
//! Problem: a session ends when the last copy of its socket is closed, so a child that keeps one keeps the session of a
//! parent that has ended. At the fork any other thread may hold any lock, and the child may call async-signal-safe
//! functions only. Method: a table of numbers without a lock. A number is in the table only while the descriptor is open:
//! it enters after the opening and leaves before the closing. Limits: a fork between the kernel's answer and the entry
//! leaves this one descriptor open in the child, and so does a table that is full.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// A session has two descriptors and the pump one; queue pairs keep those of the previous session until they reconnect.
const ROOM: usize = 16;
const NONE: RawFd = -1;

static OPEN: [AtomicI32; ROOM] = [const { AtomicI32::new(NONE) }; ROOM];

/// A descriptor of the library.
#[derive(Debug)]
pub(crate) struct Descriptor {
    /// Present until it is dropped.
    fd: Option<OwnedFd>,
    place: Option<usize>,
}

impl Descriptor {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        let number = fd.as_raw_fd();
        let enter = |place: &AtomicI32| {
            let (free, relaxed) = (NONE, Ordering::Relaxed);
            let entered = place.compare_exchange(free, number, Ordering::Release, relaxed);
            entered.is_ok()
        };
        let place = OPEN.iter().position(enter);
        Self {
            fd: Some(fd),
            place,
        }
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("present until the drop").as_fd()
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        let (Some(fd), Some(place)) = (self.fd.take(), self.place) else {
            return;
        };
        if OPEN[place].swap(NONE, Ordering::AcqRel) == NONE {
            // A child has closed it, and its number may be the application's by now.
            let _ = fd.into_raw_fd();
        }
    }
}

/// Closes all descriptors of the library in a child of `fork`. Async-signal-safe.
pub(crate) fn close_all() {
    for place in &OPEN {
        let number = place.swap(NONE, Ordering::AcqRel);
        if number != NONE {
            // SAFETY: it was open at the fork and is the library's, which uses it no more: its owner in the copy of the
            // parent's memory either is never dropped or finds it closed.
            unsafe { libc::close(number) };
        }
    }
}

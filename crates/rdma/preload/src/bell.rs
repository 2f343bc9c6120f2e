//! The pump's bell: an event counter that wakes the pump. It is rung only while the pump sleeps.

use crate::descriptor::Descriptor;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The event counter of one process's pump.
#[derive(Debug, Default)]
pub struct Bell {
    asleep: AtomicBool,
    calls: AtomicU64,
    counter: OnceLock<Descriptor>,
}

impl Bell {
    /// Wakes the pump if it sleeps. Costs one system call then, none otherwise.
    pub fn ring(&self) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::SeqCst)
            && let Some(counter) = self.counter.get()
        {
            let _ = rustix::io::write(counter, &1u64.to_ne_bytes());
        }
    }

    /// Makes the event counter; false if the kernel has none left.
    pub fn open(&self) -> bool {
        let Ok(counter) = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) else {
            return false;
        };
        let _ = self.counter.set(Descriptor::new(counter));
        true
    }

    /// The event counter to wait for.
    pub fn counter(&self) -> Option<BorrowedFd<'_>> {
        self.counter.get().map(AsFd::as_fd)
    }

    /// Number of calls of [`Self::ring`].
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Records whether the pump sleeps.
    pub fn set_asleep(&self, asleep: bool) {
        self.asleep.store(asleep, Ordering::SeqCst);
    }

    /// Resets the counter after the pump has woken.
    pub fn silence(&self) {
        if let Some(counter) = self.counter.get() {
            let mut count = [0u8; 8];
            let _ = rustix::io::read(counter, &mut count);
        }
    }
}

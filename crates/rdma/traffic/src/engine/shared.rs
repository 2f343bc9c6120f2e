//! State shared by the threads of a worker: clock, stop flag, progress.

use crate::worker::{Progress, Window};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// State shared by the threads of one run.
#[derive(Debug)]
pub(crate) struct Shared {
    start: Instant,
    stop: AtomicBool,
    snapshot: AtomicBool,
    posted_window: Mutex<Option<Window>>,
    messages: AtomicU64,
    bytes: AtomicU64,
}

impl Shared {
    /// State of a run that begins at `start`.
    pub(crate) fn new(start: Instant) -> Self {
        Self {
            start,
            stop: AtomicBool::new(false),
            snapshot: AtomicBool::new(false),
            posted_window: Mutex::new(None),
            messages: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Nanoseconds since the start; 0 before it.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        let elapsed = Instant::now().saturating_duration_since(self.start);
        u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Sleeps until the start, in steps that check the stop flag.
    pub(crate) fn await_start(&self) {
        while !self.stopped() {
            let left = self.start.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(Duration::from_millis(20)));
        }
    }

    /// Whether the run should end.
    #[inline]
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Ends the run.
    pub(crate) fn stop(&self, window: Option<Window>) {
        *self
            .posted_window
            .lock()
            .unwrap_or_else(|broken| broken.into_inner()) = window;
        self.stop.store(true, Ordering::Release);
    }

    /// The posting side's window, if it sent one.
    pub(crate) fn posted_window(&self) -> Option<Window> {
        *self
            .posted_window
            .lock()
            .unwrap_or_else(|broken| broken.into_inner())
    }

    /// Whether passive ends should report now and go on.
    pub(crate) fn snapshot(&self) -> bool {
        self.snapshot.load(Ordering::Relaxed)
    }

    /// Makes passive ends report now and go on.
    pub(crate) fn request_snapshot(&self) {
        self.snapshot.store(true, Ordering::Relaxed);
    }

    /// Adds an end's progress.
    pub(crate) fn add_progress(&self, messages: u64, bytes: u64) {
        self.messages.fetch_add(messages, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn progress(&self) -> Progress {
        Progress {
            elapsed_ns: self.now(),
            messages: self.messages.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}

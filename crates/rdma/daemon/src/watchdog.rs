//! The service manager's watchdog: the event loop itself sends the message, so the manager detects a hanging loop.

use crate::attachment::Attachment;
use crate::governor::Governor;
use isolane_common_linux::notify::Notify;
use std::os::fd::BorrowedFd;

/// Sends watchdog messages at twice the required frequency.
#[derive(Debug)]
pub struct Watchdog {
    notify: Notify,
    every_ns: u64,
    due_ns: u64,
}

impl Watchdog {
    /// Makes a watchdog if the service manager requires one.
    pub fn new(notify: Notify, now_ns: u64) -> Option<Self> {
        let every_ns = notify.watchdog_ns()? / 2;
        Some(Self {
            notify,
            every_ns,
            due_ns: now_ns,
        })
    }
}

impl Attachment for Watchdog {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn deadline_ns(&self) -> Option<u64> {
        Some(self.due_ns)
    }

    fn ready(&mut self, now_ns: u64, _governor: &mut Governor) {
        if now_ns >= self.due_ns {
            self.notify.alive();
            self.due_ns = now_ns + self.every_ns;
        }
    }

    fn close(&mut self) {
        self.notify.stopping();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_speaks_twice_as_often_as_asked() {
        let watchdog = Watchdog::new(Notify::to("", Some(10_000)), 7).unwrap();
        assert_eq!(
            (watchdog.every_ns, watchdog.deadline_ns()),
            (5_000_000, Some(7))
        );
        assert!(Watchdog::new(Notify::to("", None), 0).is_none());
    }
}

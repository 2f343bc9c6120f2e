//! What the event loop waits for beside sessions: reference flows, peers, metrics, a reload of the configuration.
//!
//! An attachment is one file descriptor (an epoll of its own where it has several) and one point in time. When
//! either is due the loop calls it with the [`Governor`], which it may tell things or ask things. It never blocks.

use crate::governor::Governor;
use isolane_rdma_policy::RemoteState;
use std::os::fd::BorrowedFd;

/// What the governor wants done outside this host's sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Send one message of the device's reference flow; report by [`Governor::reference_latency`].
    SendReference,
    /// Tell the other hosts' daemons; their words come in by [`Governor::remote`].
    Tell(RemoteState),
}

/// One of them.
pub trait Attachment {
    /// Its name, for messages.
    fn name(&self) -> &str;
    /// Readable when [`Self::ready`] has something to do. Asked once.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
    /// When [`Self::ready`] is to be called at the latest, CLOCK_MONOTONIC.
    fn deadline_ns(&self) -> Option<u64> {
        None
    }
    /// The descriptor is readable, or the time has come.
    fn ready(&mut self, now_ns: u64, governor: &mut Governor);
    /// An order for `device`, by its place in the configuration. Those it is not meant for ignore it.
    fn order(&mut self, _now_ns: u64, _device: usize, _order: Order) {}
    /// The daemon ends.
    fn close(&mut self) {}
}

//! What the event loop waits for beside sessions: reference flows, peers, metrics, reload.
//!
//! An attachment has one file descriptor (an epoll if it has several) and one deadline. When either is due, the loop
//! calls the attachment with the [`Governor`]. An attachment never blocks.

use crate::governor::Governor;
use crate::order::Order;
use std::os::fd::BorrowedFd;

/// A component that the event loop serves.
pub trait Attachment {
    /// Readable when [`Self::ready`] has work. The loop reads it once, at the start.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
    /// Latest time of the next call of [`Self::ready`], CLOCK_MONOTONIC, ns.
    fn deadline_ns(&self) -> Option<u64> {
        None
    }
    /// Called when the descriptor is readable or the deadline has passed.
    fn ready(&mut self, now_ns: u64, governor: &mut Governor);
    /// An order for the device at place `device` of the configuration. Attachments ignore orders of other kinds.
    fn order(&mut self, _now_ns: u64, _device: usize, _order: &Order) {}
    /// The daemon ends.
    fn close(&mut self) {}
}

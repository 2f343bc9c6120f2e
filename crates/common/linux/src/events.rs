//! Waits for events of descriptors.

use rustix::event::epoll::{self, Event};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// Waits until `epoll` has events, and puts them into `events`, at most as many as its capacity. A signal ends the wait
/// without events.
pub fn wait(epoll: impl AsFd, events: &mut Vec<Event>) -> rustix::io::Result<()> {
    events.clear();
    match epoll::wait(epoll, rustix::buffer::spare_capacity(events), None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error),
    }
}

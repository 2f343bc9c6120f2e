//! Completion queues and the channels that announce completions.

use super::{Context, VerbsError};
use crate::*;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// Announces completions by a file descriptor.
#[derive(Debug)]
pub struct CompletionChannel {
    context: Arc<Context>,
    raw: *mut ibv_comp_channel,
}

// SAFETY: libibverbs' objects may be used by several threads.
unsafe impl Send for CompletionChannel {}
// SAFETY: as above.
unsafe impl Sync for CompletionChannel {}

impl CompletionChannel {
    /// A new channel, whose descriptor does not block. Fails if no descriptor is left.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: an open context.
        let raw = unsafe { (context.library.create_comp_channel)(context.raw) };
        if raw.is_null() {
            return Err(VerbsError::last("ibv_create_comp_channel", &context.device));
        }
        let channel = Self {
            context: Arc::clone(context),
            raw,
        };
        let descriptor = channel.as_fd().as_raw_fd();
        // SAFETY: an open descriptor of ours.
        let code = unsafe {
            let flags = libc::fcntl(descriptor, libc::F_GETFL);
            libc::fcntl(descriptor, libc::F_SETFL, flags | libc::O_NONBLOCK)
        };
        match code {
            -1 => Err(VerbsError::last("fcntl", &context.device)),
            _ => Ok(Arc::new(channel)),
        }
    }

    /// Waits at most `timeout` for events and takes them. True when there was one: poll the queues then. Fails if the
    /// device has gone.
    pub fn wait(&self, timeout: Duration) -> Result<bool, VerbsError> {
        let mut wanted = libc::pollfd {
            fd: self.as_fd().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let timeout = libc::timespec {
            tv_sec: timeout.as_secs().cast_signed(),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // SAFETY: one descriptor, a whole timespec, no signal mask.
        let ready = unsafe { libc::ppoll(&mut wanted, 1, &timeout, std::ptr::null()) };
        if ready <= 0 {
            return Ok(false);
        }
        let mut seen = false;
        loop {
            let (mut queue, mut user) = (std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: a live channel and two writable pointers. The queue of an event is alive: destroying a queue
            // removes its unread events from the channel, and read ones are acknowledged here at once.
            unsafe {
                if (self.context.library.get_cq_event)(self.raw, &mut queue, &mut user) != 0 {
                    break;
                }
                (self.context.library.ack_cq_events)(queue, 1);
            }
            seen = true;
        }
        Ok(seen)
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel lives.
        unsafe { BorrowedFd::borrow_raw((*self.raw).fd) }
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        // SAFETY: every queue on it held it and is gone.
        unsafe { (self.context.library.destroy_comp_channel)(self.raw) };
    }
}

/// A completion queue.
#[derive(Debug)]
pub struct CompletionQueue {
    pub(crate) context: Arc<Context>,
    pub(crate) raw: *mut ibv_cq,
    _channel: Option<Arc<CompletionChannel>>,
}

// SAFETY: libibverbs' objects may be used by several threads.
unsafe impl Send for CompletionQueue {}
// SAFETY: as above.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// A queue of at least `entries` entries, at most what the device has, that announces completions on `channel`.
    /// Fails if the device has no more, or not so large ones.
    pub fn new(
        context: &Arc<Context>,
        entries: u32,
        channel: Option<&Arc<CompletionChannel>>,
    ) -> Result<Arc<Self>, VerbsError> {
        let entries = i32::try_from(entries.max(1)).unwrap_or(i32::MAX);
        let raw_channel = channel.map_or(std::ptr::null_mut(), |channel| channel.raw);
        // SAFETY: an open context and a live or no channel.
        let raw = unsafe {
            (context.library.create_cq)(context.raw, entries, std::ptr::null_mut(), raw_channel, 0)
        };
        if raw.is_null() {
            return Err(VerbsError::last("ibv_create_cq", &context.device));
        }
        Ok(Arc::new(Self {
            context: Arc::clone(context),
            raw,
            _channel: channel.cloned(),
        }))
    }

    /// Takes completions into `completions`; how many. Fails if the queue overran or the device has gone.
    #[inline]
    pub fn poll(&self, completions: &mut [ibv_wc]) -> Result<usize, VerbsError> {
        let room = i32::try_from(completions.len()).unwrap_or(i32::MAX);
        // SAFETY: a live queue and so many writable entries.
        let count = unsafe { ibv_poll_cq(self.raw, room, completions.as_mut_ptr()) };
        match usize::try_from(count) {
            Ok(count) => Ok(count),
            Err(_) => Err(VerbsError::code("ibv_poll_cq", &self.context.device, count)),
        }
    }

    /// Requests an event at the next completion. Poll once more after this: a completion may have arrived before. Fails
    /// if the device has gone.
    pub fn request_event(&self) -> Result<(), VerbsError> {
        // SAFETY: a live queue.
        let code = unsafe { ibv_req_notify_cq(self.raw, 0) };
        self.context.answer("ibv_req_notify_cq", code)
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: every queue pair on it held it and is gone; every event that was taken was acknowledged in `wait`,
        // so this does not block.
        unsafe { (self.context.library.destroy_cq)(self.raw) };
    }
}

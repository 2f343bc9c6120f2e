//! The pump: the shim's only thread in the process.
//!
//! Problem: `ibv_post_send` never blocks, so another thread must post waiting messages when credit arrives, also while
//! the application sleeps. Method: the thread gives turns (`meter::Meter::drive`) and sleeps in `ppoll` on the
//! session's socket and an event counter until credit is due, and for at least a quarter of a burst's time. The bucket
//! keeps the credit that grows meanwhile, so a lease with a burst of some 100 us needs few wake-ups. A wait shorter
//! than the spin bound is spun, but never longer than the bound in a row without work; the kernel's timer slack is set
//! to its minimum. When a message waits for a full provider queue and the application does not poll, the pump moves
//! completions into the store. It also detects the end of the daemon and reconnects when the daemon is back. Units:
//! nanoseconds.

use crate::base::Base;
use crate::meter::Left;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// First and longest sleep while the provider's queue is full, ns.
const BLOCKED_NS: (u64, u64) = (20_000, 1_000_000);
/// Longest sleep with a session and no work; the socket and the counter end it.
const IDLE_NS: u64 = 1_000_000_000;
/// Pause between attempts to reconnect to the daemon.
const RETURN_NS: u64 = 1_000_000_000;

/// The process, as the pump sees it.
pub trait Driven: Sync {
    /// Parts that all objects share.
    fn base(&self) -> &Base;
    /// Gives turns to all waiting queue pairs.
    fn drive(&self) -> Left;
    /// Whether a work request waits for its turn.
    fn has_waiting(&self) -> bool;
    /// Moves completions out of the queues in which messages wait for room. Returns whether there were any.
    fn drain_blocked(&self) -> bool;
    /// The session's socket.
    fn socket(&self) -> Option<RawFd>;
    /// Reads the daemon's messages; false when the daemon has ended.
    fn listen(&self) -> bool;
    /// Reconnects to a daemon and opens the known devices again.
    fn find_daemon_again(&self);
}

/// Starts the thread once, recorded in `started`. False means that no thread could be started, so nothing may be paced.
pub fn start(process: &'static impl Driven, started: &AtomicBool) -> bool {
    let base = process.base();
    if !base.settings.pump || started.swap(true, Ordering::AcqRel) {
        return true;
    }
    if !base.bell.open() {
        return false;
    }
    let before = block_signals();
    let thread = std::thread::Builder::new()
        .name("isolane-pump".to_owned())
        .stack_size(256 << 10)
        .spawn(move || run(process));
    restore_signals(&before);
    if thread.is_err() {
        started.store(false, Ordering::Release);
    }
    thread.is_ok()
}

/// Blocks all signals for the thread to inherit: the application's signals are for its own threads.
fn block_signals() -> libc::sigset_t {
    // SAFETY: plain data, filled by the calls; changing this thread's mask has no other precondition.
    unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    }
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: a mask that this thread had.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut());
    }
}

fn run(process: &impl Driven) {
    let base = process.base();
    // SAFETY: sets the calling thread's timer slack to one nanosecond; cannot fail.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0);
    }
    let mut blocked_ns = BLOCKED_NS.0;
    let mut spun_since = None;
    let mut returned_at_ns = 0;
    loop {
        let calls = base.bell.calls();
        let left = process.drive();
        if left.more {
            continue;
        }
        let moved = left.blocked && process.drain_blocked();
        if moved {
            blocked_ns = BLOCKED_NS.0;
            continue;
        }
        let now_ns = base.now_ns();
        let mut wait_ns = IDLE_NS;
        if let Some(at_ns) = left.ready_at_ns {
            let due_ns = at_ns.saturating_sub(now_ns);
            wait_ns = wait_ns.min(due_ns.max(left.patience_ns));
        }
        if left.blocked {
            wait_ns = wait_ns.min(blocked_ns);
            blocked_ns = (blocked_ns * 2).min(BLOCKED_NS.1);
        }
        let since = *spun_since.get_or_insert(now_ns);
        if wait_ns <= base.settings.spin_ns
            && left.ready_at_ns.is_some()
            && now_ns.saturating_sub(since) < base.settings.spin_ns
        {
            std::hint::spin_loop();
            continue;
        }
        spun_since = None;
        let heard = sleep(process, &left, calls, wait_ns.max(1_000));
        let served = match (process.socket(), heard) {
            (Some(_), false) => true,
            _ => process.listen(),
        };
        if !served && base.now_ns().saturating_sub(returned_at_ns) >= RETURN_NS {
            returned_at_ns = base.now_ns();
            process.find_daemon_again();
        }
    }
}

/// Returns whether the daemon sent something.
fn sleep(process: &impl Driven, left: &Left, calls: u64, wait_ns: u64) -> bool {
    let base = process.base();
    let Some(counter) = base.bell.counter() else {
        return false;
    };
    let mut heard = false;
    base.bell.set_asleep(true);
    base.show_asleep(true);
    // A message that came before the flag was set did not ring, and turns given meanwhile are unknown here: check
    // again.
    let called = base.bell.calls() != calls;
    let nothing_known = left.ready_at_ns.is_none() && !left.blocked;
    let look_again = called || (nothing_known && process.has_waiting());
    if !look_again {
        let socket = process.socket();
        // SAFETY: the session, and with it the descriptor, is dropped by this thread only.
        let socket = socket.map(|socket| unsafe { BorrowedFd::borrow_raw(socket) });
        let mut files = [
            PollFd::from_borrowed_fd(counter, PollFlags::IN),
            PollFd::from_borrowed_fd(socket.unwrap_or(counter), PollFlags::IN),
        ];
        let timeout = Timespec {
            tv_sec: (wait_ns / 1_000_000_000) as i64,
            tv_nsec: (wait_ns % 1_000_000_000) as i64,
        };
        let _ = poll(&mut files, Some(&timeout));
        heard = socket.is_some() && !files[1].revents().is_empty();
    }
    base.bell.set_asleep(false);
    base.show_asleep(false);
    base.bell.silence();
    heard
}

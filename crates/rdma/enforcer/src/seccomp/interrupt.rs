//! A timer that ends this thread's blocking system calls with EINTR.
//!
//! Problem: `SECCOMP_IOCTL_NOTIF_RECV` blocks when no call is pending, even right after poll(2) reported one: another
//! process with a copy of the listener can take that call first. The kernel has no non-blocking receive. Method: a
//! timer signals this thread every millisecond while an [`Armed`] exists. If a signal arrives just before the system
//! call, the next one ends it, so a receive blocks for about one period at most. The handler does nothing.
//!
//! The kernel checks signals only when a receive has to wait, so EINTR means that no call was pending. Cost: two system
//! calls per armed stretch, none per receive. Source: timer_create(2), seccomp_unotify(2).

use std::io;
use std::marker::PhantomData;
use std::sync::Once;
use std::time::Duration;

/// Period of the timer.
pub const PERIOD: Duration = Duration::from_millis(1);
/// Programs ignore this signal by default, so a stray one does no harm.
const SIGNAL: libc::c_int = libc::SIGURG;

/// The timer of the thread that created it.
#[derive(Debug)]
pub struct Interrupter {
    timer: libc::timer_t,
    _on_this_thread: PhantomData<*const ()>,
}

/// Runs the timer until dropped.
#[derive(Debug)]
pub struct Armed<'a>(&'a Interrupter);

extern "C" fn do_nothing(_: libc::c_int) {}

/// Installs the handler once per process.
fn handle_signal() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: `sigaction` is plain data, for which zeros are valid: no flags, so that system calls end with EINTR, and
        // an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(libc::c_int) = do_nothing;
        action.sa_sigaction = handler as libc::sighandler_t;
        // SAFETY: the handler does nothing, which is safe in any signal context; the old action is not wanted.
        let done = unsafe { libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut()) };
        assert_eq!(done, 0, "a handler for a signal that exists");
    });
}

/// Unblocks the signal in this thread.
fn unblock_signal() {
    // SAFETY: `sigset_t` is plain data that `sigemptyset` initialises; all pointers are to locals that outlive the calls.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, SIGNAL);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
    }
}

impl Interrupter {
    /// Makes a timer for the calling thread. Fails if the kernel has no timer left.
    pub fn of_this_thread() -> io::Result<Self> {
        handle_signal();
        unblock_signal();
        // SAFETY: `sigevent` is plain data, for which zeros are valid.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = SIGNAL;
        event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_nonzero().get();
        let mut timer: libc::timer_t = std::ptr::null_mut();
        // SAFETY: both pointers are to locals that outlive the call; the kernel writes one `timer_t`.
        let done =
            unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) };
        match done {
            0 => Ok(Self {
                timer,
                _on_this_thread: PhantomData,
            }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Starts the timer.
    pub fn arm(&self) -> Armed<'_> {
        self.set(PERIOD);
        Armed(self)
    }

    fn set(&self, period: Duration) {
        let period = libc::timespec {
            tv_sec: 0,
            tv_nsec: libc::c_long::from(period.subsec_nanos()),
        };
        let setting = libc::itimerspec {
            it_interval: period,
            it_value: period,
        };
        // SAFETY: the timer is ours until `drop`; the setting is a local and the old one is not wanted.
        let done =
            unsafe { libc::timer_settime(self.timer, 0, &raw const setting, std::ptr::null_mut()) };
        assert_eq!(done, 0, "a valid time for a timer of ours");
    }
}

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        self.0.set(Duration::ZERO);
    }
}

impl Drop for Interrupter {
    fn drop(&mut self) {
        // SAFETY: the timer of `timer_create`, deleted once.
        unsafe { libc::timer_delete(self.timer) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_would_wait_for_ever_ends() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let interrupter = Interrupter::of_this_thread().unwrap();
        let armed = interrupter.arm();
        let waited = rustix::io::read(&one, &mut [0; 1]);
        assert_eq!(waited.unwrap_err(), rustix::io::Errno::INTR);
        drop(armed);
    }
}

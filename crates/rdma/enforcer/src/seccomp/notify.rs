//! The kernel's side of trapped calls: install a filter, receive a call, let it go on.
//!
//! Method: seccomp(2) with `SECCOMP_FILTER_FLAG_NEW_LISTENER` gives a file descriptor, the [`Listener`]; a trapped
//! call makes it readable and waits. Every answer this crate gives is "go on" (`CONTINUE`): the kernel then runs the
//! call as if there were no filter. There is no function here that makes a call fail.
//!
//! A caller may end, or its number pass to another process, while its call waits: [`Listener::is_waiting`] returns
//! whether the notification is still open, and a read of its memory counts only when that holds afterwards.
//!
//! Limits: the kernel itself fails trapped calls with ENOSYS when the last listener descriptor is closed. Source:
//! seccomp(2), seccomp_unotify(2), process_vm_readv(2).

use super::filter::Instruction;
use super::interrupt::Armed;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A call that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Id of the call, unique per listener.
    pub id: u64,
    /// Thread that called, in this process's PID namespace; 0 where it is not visible.
    pub thread: u32,
    /// Third argument of the call: the address of the header in the caller's memory.
    pub header: u64,
}

/// Result of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A pending call.
    Call(Notification),
    /// The thread of the pending call has ended or left the call.
    Gone,
    /// No call was pending although the listener was readable: another process receives from a copy of it.
    Taken,
}

/// Result of resuming a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumed {
    /// The call goes on.
    Continues,
    /// The thread has ended, or a signal interrupted the call.
    Gone,
}

/// The descriptor that receives the trapped calls of a filter.
#[derive(Debug)]
pub struct Listener(OwnedFd);

/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`: the answered thread runs on this core at once (Linux 6.6).
const SYNCHRONOUS_WAKE_UP: u64 = 1;

impl Listener {
    /// Takes a descriptor from a launcher or a container runtime if it is a seccomp listener. Fails with EINVAL or
    /// ENOTTY for any other descriptor.
    pub fn adopt(descriptor: OwnedFd) -> io::Result<Self> {
        let listener = Self(descriptor);
        // An id that cannot exist: a listener returns ENOENT, other descriptors reject the ioctl.
        match listener.identifier_valid(0) {
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
            _ => {
                listener.wake_synchronously();
                Ok(listener)
            }
        }
    }

    /// Older kernels lack this option; enforcement works without it.
    fn wake_synchronously(&self) {
        // SAFETY: the argument is passed by value; the kernel reads no memory of ours.
        let _ = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS,
                SYNCHRONOUS_WAKE_UP,
            )
        };
    }

    /// Receives the next waiting call. Call it once each time the descriptor is readable; it returns within about
    /// [`super::interrupt::PERIOD`], even if other processes hold the listener.
    pub fn receive(&self, _bounded: &Armed<'_>) -> io::Result<Received> {
        // SAFETY: `seccomp_notif` is plain data, for which zeros are valid, and the kernel demands zeros.
        let mut notification: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one `seccomp_notif`, whose size is part of the request number, into ours.
        let done = unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_RECV,
                &raw mut notification,
            )
        };
        if done < 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::ENOENT) => Ok(Received::Gone),
                Some(libc::EINTR) => Ok(Received::Taken),
                _ => Err(error),
            };
        }
        let arguments = notification.data.args;
        Ok(Received::Call(Notification {
            id: notification.id,
            thread: notification.pid,
            header: arguments[2],
        }))
    }

    /// Lets a call go on. A caller that has ended is not an error.
    pub fn resume(&self, id: u64) -> io::Result<Resumed> {
        let mut answer = libc::seccomp_notif_resp {
            id,
            val: 0,
            error: 0,
            flags: libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
        };
        // SAFETY: the kernel reads one `seccomp_notif_resp`, whose size is part of the request number, from ours.
        let sent = retry(|| unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_SEND,
                &raw mut answer,
            )
        });
        match sent {
            Ok(()) => Ok(Resumed::Continues),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(Resumed::Gone),
            Err(error) => Err(error),
        }
    }

    /// Whether a received call still waits for its answer.
    pub fn is_waiting(&self, id: u64) -> bool {
        self.identifier_valid(id).is_ok()
    }

    fn identifier_valid(&self, id: u64) -> io::Result<()> {
        // SAFETY: the kernel reads 8 bytes from `id`, which outlives the call.
        retry(|| unsafe {
            libc::ioctl(
                self.0.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_ID_VALID,
                &raw const id,
            )
        })
    }

    /// Duplicates the descriptor of the listener. Fails with the kernel's error, for example for too many open files.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<Listener> for OwnedFd {
    fn from(listener: Listener) -> Self {
        listener.0
    }
}

/// Repeats a system call that a signal interrupted; an [`Armed`] timer may run.
fn retry(mut call: impl FnMut() -> libc::c_int) -> io::Result<()> {
    loop {
        if call() == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Reads the memory of a thread at `address` and returns the number of bytes read. Blocks until the thread's pages are
/// present. The bytes belong to a call only if [`Listener::is_waiting`] is true afterwards.
pub fn read_memory(thread: u32, address: u64, buffer: &mut [u8]) -> usize {
    let Ok(thread) = libc::pid_t::try_from(thread) else {
        return 0;
    };
    let Ok(address) = usize::try_from(address) else {
        return 0;
    };
    if thread == 0 || address == 0 {
        return 0;
    }
    let local = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let remote = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address),
        iov_len: buffer.len(),
    };
    // SAFETY: the kernel writes at most `buffer.len()` bytes into `buffer`, which is borrowed exclusively; the remote
    // address is never dereferenced here, the kernel checks it.
    let read =
        unsafe { libc::process_vm_readv(thread, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(read).unwrap_or(0)
}

/// Installs `program` for the calling thread and everything it starts; the listener of its notifications.
///
/// A waiting call can then be interrupted by nothing but a fatal signal, where the kernel knows that option (Linux
/// 5.19); before, a signal whose handler does not restart calls can make the caller see EINTR.
///
/// Fails with EBUSY when a listener is already installed above this process, and with EACCES without privilege and
/// without `no_new_privs`.
pub fn install(program: &[Instruction]) -> io::Result<Listener> {
    let killable =
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    match install_with(program, killable) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            install_with(program, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER)
        }
        other => other,
    }
}

fn install_with(program: &[Instruction], flags: libc::c_ulong) -> io::Result<Listener> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len())
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?,
        // `Instruction` has the layout of `sock_filter`; the kernel only reads.
        filter: program.as_ptr().cast_mut().cast(),
    };
    // SAFETY: the kernel reads `len` instructions behind `filter`, which the borrowed slice holds; on success it
    // returns a new descriptor without another owner.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const program,
        )
    };
    let descriptor = i32::try_from(descriptor).unwrap_or(-1);
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: see above: a new descriptor, without another owner. The kernel sets close-on-exec.
    Ok(Listener(unsafe { OwnedFd::from_raw_fd(descriptor) }))
}

const _: () = assert!(size_of::<Instruction>() == size_of::<libc::sock_filter>());
const _: () = assert!(align_of::<Instruction>() >= align_of::<libc::sock_filter>());

//! A verbs call that must go on.

use std::fs::File;
use std::os::fd::AsRawFd;

/// Makes call `number` of verbs at `null`, which is `/dev/null`: the kernel traps a call before it looks at the descriptor, and a
/// call that goes on fails with ENOTTY.
pub(crate) fn goes_on(null: &File, verbs: u32, bytes: &[u8], number: usize) {
    // SAFETY: `/dev/null` knows no ioctl and reads nothing; a supervisor reads the bytes, which outlive the call.
    let done = unsafe { libc::ioctl(null.as_raw_fd(), libc::Ioctl::from(verbs), bytes.as_ptr()) };
    let error = std::io::Error::last_os_error().raw_os_error();
    assert_eq!((done, error), (-1, Some(libc::ENOTTY)), "call {number}");
}

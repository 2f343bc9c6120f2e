//! What requests are answered with: words after an error code, and a descriptor.

use isolane_rdma_emulated_verbs::wire::Writer;
use rustix::fd::{AsFd, OwnedFd};
use rustix::pipe::{PipeFlags, pipe_with};

/// An answer: words after the error code, and a descriptor that goes along.
pub(crate) type Answered = Result<(Writer, Option<OwnedFd>), i32>;

/// An answer of these words.
pub(crate) fn words(words: &[u64]) -> Answered {
    let mut writer = Writer::of(&[0]);
    for &word in words {
        writer.word(word);
    }
    Ok((writer, None))
}

/// An `errno` value for what a client may not name.
pub(crate) fn known<T>(found: Option<T>) -> Result<T, i32> {
    found.ok_or(libc::EINVAL)
}

/// A pipe whose end for the client blocks and whose own end does not.
pub(crate) fn event_pipe() -> Result<(OwnedFd, OwnedFd), i32> {
    let errno = |error: rustix::io::Errno| error.raw_os_error();
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(errno)?;
    let flags = rustix::fs::fcntl_getfl(writer.as_fd()).map_err(errno)?;
    rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK).map_err(errno)?;
    Ok((reader, writer))
}

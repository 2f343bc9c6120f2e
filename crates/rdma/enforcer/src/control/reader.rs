//! Reads the headers of calls from their callers' memory, and never waits long for it.
//!
//! Problem: a page of a caller may be delivered by the caller's own handler (FUSE, userfaultfd). A read of such a page waits for
//! as long as the handler likes, and no signal but a fatal one ends the wait. Method: a helper thread reads. A read that takes
//! longer than [`PATIENCE`] is given up and its helper is left behind; the next read gets another helper. The caller of
//! [`Reader::read`] leaves the tenant's memory alone until the helper that was left behind has ended, and for [`REST`] at least.
//! So a tenant holds one helper at most, and the loop for [`PATIENCE`] in each [`REST`].
//! Cost: two switches of threads for each call.

use crate::seccomp::call::CALL_MAX;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How long a read may take.
pub(super) const PATIENCE: Duration = Duration::from_millis(20);
/// How long a tenant's memory is left alone after a read that took longer.
pub(super) const REST: Duration = Duration::from_secs(2);

/// Reads a thread's memory at an address; how many bytes could be read.
pub(super) type ReadMemory = fn(u32, u64, &mut [u8]) -> usize;

/// The first bytes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    bytes: [u8; CALL_MAX],
    length: usize,
}

impl Header {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// What came of a read.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly every read is a header, and none is stored"
)]
pub(super) enum Read {
    /// Bytes, perhaps none.
    Header(Header),
    /// It takes too long; true once the helper has ended.
    LeftBehind(Arc<AtomicBool>),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Reader {
    read: ReadMemory,
    helper: Option<Helper>,
}

#[derive(Debug)]
struct Helper {
    requests: Sender<(u32, u64)>,
    headers: Receiver<Header>,
    has_ended: Arc<AtomicBool>,
}

impl Reader {
    pub(super) fn new(read: ReadMemory) -> Self {
        Self { read, helper: None }
    }

    /// The first bytes at `address` of `thread`.
    ///
    /// # Errors
    /// When no helper can be started.
    pub(super) fn read(&mut self, thread: u32, address: u64) -> io::Result<Read> {
        let helper = match self.helper.take() {
            Some(helper) => helper,
            None => Helper::start(self.read)?,
        };
        // A helper ends only when both channels are closed.
        let _ = helper.requests.send((thread, address));
        match helper.headers.recv_timeout(PATIENCE) {
            Ok(header) => {
                self.helper = Some(helper);
                Ok(Read::Header(header))
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                Ok(Read::LeftBehind(helper.has_ended))
            }
        }
    }
}

impl Helper {
    fn start(read: ReadMemory) -> io::Result<Self> {
        let (requests, requested) = channel();
        let (sender, headers) = channel();
        let has_ended = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&has_ended);
        let run = move || {
            while let Ok((thread, address)) = requested.recv() {
                let mut bytes = [0; CALL_MAX];
                let length = read(thread, address, &mut bytes).min(CALL_MAX);
                if sender.send(Header { bytes, length }).is_err() {
                    break;
                }
            }
            ended.store(true, Ordering::Release);
        };
        std::thread::Builder::new()
            .name("isolane-headers".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(run)?;
        Ok(Self {
            requests,
            headers,
            has_ended,
        })
    }
}

/// A helper needs room for one header.
const STACK_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::wait_until;

    /// Thread 1 never gets its page until `PAGE` says so; others do at once.
    static PAGE: AtomicBool = AtomicBool::new(false);

    fn read(thread: u32, address: u64, bytes: &mut [u8]) -> usize {
        while thread == 1 && !PAGE.load(Ordering::Acquire) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        bytes[0] = u8::try_from(address).expect("a small one");
        1
    }

    #[test]
    fn a_page_that_never_comes_holds_a_helper_and_not_the_reader() {
        let mut reader = Reader::new(read);
        let first = |read: Read| match read {
            Read::Header(header) => header.bytes().to_vec(),
            Read::LeftBehind(_) => panic!("it was there"),
        };
        assert_eq!(first(reader.read(2, 7).unwrap()), [7]);
        let Read::LeftBehind(has_ended) = reader.read(1, 8).unwrap() else {
            panic!("the page never comes");
        };
        assert!(!has_ended.load(Ordering::Acquire));
        assert_eq!(first(reader.read(2, 9).unwrap()), [9], "not the late one");
        PAGE.store(true, Ordering::Release);
        wait_until("the helper ends", || has_ended.load(Ordering::Acquire));
    }
}

//! Reads the headers of calls from their callers' memory, with a bounded wait.
//!
//! Problem: a caller can deliver a page of its memory through its own handler (FUSE, userfaultfd). A read of such a
//! page waits as long as the handler wants, and only a fatal signal ends the wait. Method: a helper thread reads. After
//! [`PATIENCE`] the read is abandoned with its helper thread; the next read starts another helper. The caller of
//! [`Reader::read`] must not read the tenant's memory again until the abandoned helper has ended, and for at least
//! [`REST`]. A tenant therefore blocks one helper at most, and delays the loop by [`PATIENCE`] per [`REST`]. Cost: two
//! thread switches per call.

use crate::seccomp::call::CALL_MAX;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Longest time of a read.
pub(super) const PATIENCE: Duration = Duration::from_millis(20);
/// Shortest pause after an abandoned read of a tenant's memory.
pub(super) const REST: Duration = Duration::from_secs(2);

/// Reads a thread's memory at an address. Returns the number of bytes read.
pub(super) type ReadMemory = fn(u32, u64, &mut [u8]) -> usize;

/// The first bytes of a call's arguments.
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

/// Result of a read.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly every read is a header, and none is stored"
)]
pub(super) enum Read {
    /// The bytes read, perhaps none.
    Header(Header),
    /// The read took too long; the flag becomes true when the helper has ended.
    LeftBehind(Arc<AtomicBool>),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Reader {
    read: ReadMemory,
    helper: Option<Helper>,
    /// [`PATIENCE`], except in tests.
    patience: Duration,
}

#[derive(Debug)]
struct Helper {
    requests: Sender<(u32, u64)>,
    headers: Receiver<Header>,
    has_ended: Arc<AtomicBool>,
}

impl Reader {
    pub(super) fn new(read: ReadMemory) -> Self {
        Self {
            read,
            helper: None,
            patience: PATIENCE,
        }
    }

    /// Reads the first bytes at `address` of `thread`. Fails if no helper thread can be started.
    pub(super) fn read(&mut self, thread: u32, address: u64) -> io::Result<Read> {
        let helper = match self.helper.take() {
            Some(helper) => helper,
            None => Helper::start(self.read)?,
        };
        // A helper ends only when both channels are closed.
        let _ = helper.requests.send((thread, address));
        match helper.headers.recv_timeout(self.patience) {
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

/// Stack of a helper thread, bytes: room for one header.
const STACK_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::wait_until;

    /// Thread 1's page arrives when `PAGE` is true; pages of other threads arrive at once.
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
        // Far longer than a busy machine needs.
        let long = Duration::from_secs(600);
        let mut reader = Reader::new(read);
        reader.patience = long;
        let first = |read: Read| match read {
            Read::Header(header) => header.bytes().to_vec(),
            Read::LeftBehind(_) => panic!("it was there"),
        };
        assert_eq!(first(reader.read(2, 7).unwrap()), [7]);
        reader.patience = PATIENCE;
        let Read::LeftBehind(has_ended) = reader.read(1, 8).unwrap() else {
            panic!("the page never comes");
        };
        reader.patience = long;
        assert!(!has_ended.load(Ordering::Acquire));
        assert_eq!(first(reader.read(2, 9).unwrap()), [9], "not the late one");
        PAGE.store(true, Ordering::Release);
        wait_until("the helper ends", || has_ended.load(Ordering::Acquire));
    }
}

//! RPC network latency: from the hand-over of a call to the transport until its last byte is acknowledged.
//!
//! Problem: an application sees the response, which includes the server's own time; only the kernel sees acknowledgements,
//! and it counts bytes, not calls.
//! Method: two measurements, each of them an upper bound, and the lesser counts:
//! * *acknowledged*: [`Wire`] counts what was written to the connection; the call's last byte is at most at the
//!   position that was written when its body had ended and everything was flushed; the call ended at the first look
//!   after which the kernel's count of acknowledged bytes (TCP_INFO, `tcpi_bytes_acked`) had passed that position. Late
//!   by the time between two looks. Bytes of other calls that were flushed together make it later, never earlier.
//! * *answered*: the response came, less the time that the server says it had the request for
//!   ([`SERVER_TIME`], microseconds in the response's metadata). Includes the way back of the response's first byte.
//!
//! Units: bytes of the connection's stream, including what HTTP/2 adds; `std::time`.
//! Limits: Linux has the count since 4.1; where it does not tell, only the second measurement is left, and without the
//! server's word that is the whole response time. Over TLS the positions are those of the encrypted stream.

mod tcp_info;

pub use tcp_info::{TcpInfo, tcp_info};

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Metadata of a response: how long the server had the request, in microseconds, from its last byte to the response's
/// first.
pub const SERVER_TIME: &str = "isolane-server-us";

/// What acknowledges: the kernel behind a connection, or a test.
pub trait Acknowledges: Send + Sync {
    /// Bytes of the stream that the other side has acknowledged; `None` where nobody tells.
    fn acknowledged(&self) -> Option<u64>;
}

/// What the kernel says of a TCP connection.
#[derive(Debug)]
pub struct Kernel {
    socket: OwnedFd,
    /// What counted as acknowledged before the first byte: the SYN does.
    base: u64,
}

impl Kernel {
    /// Watches a connection to which nothing was written yet. The descriptor is a copy and keeps the connection open.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn new(socket: impl AsFd) -> std::io::Result<Self> {
        let socket = socket.as_fd().try_clone_to_owned()?;
        let base = tcp_info(&socket).and_then(|info| info.bytes_acked);
        Ok(Self {
            base: base.unwrap_or(0),
            socket,
        })
    }

    /// The descriptor.
    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }
}

impl Acknowledges for Kernel {
    fn acknowledged(&self) -> Option<u64> {
        let acked = tcp_info(&self.socket)?.bytes_acked?;
        Some(acked.saturating_sub(self.base))
    }
}

/// One connection: what was written to it, and what of it arrived.
#[derive(Debug)]
pub struct Wire<A> {
    written: AtomicU64,
    /// What was written when the last flush ended.
    flushed: AtomicU64,
    kernel: A,
}

impl<A: Acknowledges> Wire<A> {
    /// A new connection.
    pub fn new(kernel: A) -> Self {
        Self {
            written: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            kernel,
        }
    }

    /// What acknowledges.
    pub fn kernel(&self) -> &A {
        &self.kernel
    }

    /// Bytes were taken by the socket.
    pub fn on_written(&self, bytes: usize) {
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Everything that was to be written has been.
    pub fn on_flushed(&self) {
        let written = self.written.load(Ordering::Relaxed);
        self.flushed.store(written, Ordering::Relaxed);
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }
}

/// Where one call is on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Its body has not ended, or is not flushed.
    Sending,
    /// Its last byte is at most at this position, and not acknowledged yet.
    OnTheWay(u64),
    /// Its last byte is there.
    Arrived,
    /// Nobody tells.
    Unknown,
}

/// One call's way.
#[derive(Clone, Copy, Debug)]
pub struct Passage {
    /// Written before the call was handed over.
    begin: u64,
    progress: Progress,
}

impl Passage {
    /// A call that is handed to the transport now.
    pub fn new<A: Acknowledges>(wire: &Wire<A>) -> Self {
        Self {
            begin: wire.written(),
            progress: Progress::Sending,
        }
    }

    /// A call that is the first on its connection.
    pub fn from_start() -> Self {
        Self {
            begin: 0,
            progress: Progress::Sending,
        }
    }

    /// Looks. `body` is the size of the call's body, once it has ended.
    pub fn look<A: Acknowledges>(&mut self, wire: &Wire<A>, body: Option<u64>) -> Progress {
        if let (Progress::Sending, Some(body)) = (self.progress, body) {
            // A flush from before the body was written does not count; one that left much of it out neither.
            let flushed = wire.flushed.load(Ordering::Relaxed);
            if flushed > self.begin && flushed - self.begin >= body {
                self.progress = Progress::OnTheWay(flushed);
            }
        }
        if let Progress::OnTheWay(end) = self.progress {
            match wire.kernel.acknowledged() {
                Some(acknowledged) if acknowledged >= end => self.progress = Progress::Arrived,
                Some(_) => {}
                None => self.progress = Progress::Unknown,
            }
        }
        self.progress
    }
}

#[cfg(test)]
mod tests;

//! RPC network latency: from passing a call to the transport until its last byte is acknowledged.
//!
//! Problem: an application sees the response, which includes the server's own time. Only the kernel sees
//! acknowledgements, and it counts bytes, not calls. Method: two measurements, each of them an upper bound; the lower
//! one counts:
//!
//! * *acknowledged*: [`Wire`] counts the bytes written to the connection. The call's last byte is at most at the
//!   position that was written when its body had ended and everything was flushed. The call ended at the first reading
//!   after which the kernel's count of acknowledged bytes (TCP_INFO, `tcpi_bytes_acked`) had passed that position. The
//!   result is late by the interval of readings. Bytes of other calls in the same flush make it later, never earlier.
//! * *answered*: the time of the response, less the time that the server had the request ([`SERVER_TIME`], microseconds
//!   in the response's metadata). Includes the way back of the response's first byte.
//!
//! Units: bytes of the connection's stream, including HTTP/2 framing; `std::time`. Limits: Linux has the count since
//! 4.1. Without it only the second measurement is left, and without the server's time that is the whole response time.
//! Over TLS the positions are those of the encrypted stream.

mod tcp_info;

use tcp_info::tcp_info;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Metadata of a response: the time that the server had the request, in microseconds, from its last byte to the
/// response's first.
pub(crate) const SERVER_TIME: &str = "isolane-server-us";

/// Source of acknowledgements: the kernel, or a test.
pub trait Acknowledges: Send + Sync {
    /// Bytes of the stream that the peer has acknowledged; `None` if unknown.
    fn acknowledged(&self) -> Option<u64>;
}

/// The kernel's view of a TCP connection.
#[derive(Debug)]
pub struct Kernel {
    socket: OwnedFd,
    /// The count before the first byte: it includes the SYN.
    base: u64,
}

impl Kernel {
    /// Watches a connection to which nothing has been written. The descriptor is a copy and keeps the connection open.
    /// Fails if no descriptor is left.
    pub fn new(socket: impl AsFd) -> std::io::Result<Self> {
        let socket = socket.as_fd().try_clone_to_owned()?;
        let base = tcp_info(&socket).and_then(|info| info.bytes_acked);
        Ok(Self {
            base: base.unwrap_or(0),
            socket,
        })
    }

    /// The copied descriptor.
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

/// One connection: written and acknowledged bytes.
#[derive(Debug)]
pub struct Wire<A> {
    written: AtomicU64,
    /// Written bytes at the end of the last flush.
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

    /// The source of acknowledgements.
    pub fn kernel(&self) -> &A {
        &self.kernel
    }

    /// Records bytes that the socket accepted.
    pub fn on_written(&self, bytes: usize) {
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Records that all pending bytes have been written.
    pub fn on_flushed(&self) {
        let written = self.written.load(Ordering::Relaxed);
        self.flushed.store(written, Ordering::Relaxed);
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }
}

/// Progress of a call on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Its body has not ended or is not flushed.
    Sending,
    /// Its last byte is at most at this position and not acknowledged.
    OnTheWay(u64),
    /// Its last byte is acknowledged.
    Arrived,
    /// The kernel reports no acknowledgements.
    Unknown,
}

/// The measurement of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passage {
    /// Bytes written before the call.
    begin: u64,
    progress: Progress,
}

impl Passage {
    /// Starts a call that is passed to the transport now.
    pub(crate) fn new<A: Acknowledges>(wire: &Wire<A>) -> Self {
        Self {
            begin: wire.written(),
            progress: Progress::Sending,
        }
    }

    /// A call that is the first on its connection.
    pub(crate) fn from_start() -> Self {
        Self {
            begin: 0,
            progress: Progress::Sending,
        }
    }

    /// Reads the progress. `body` is the size of the call's body, once it has ended.
    pub(crate) fn look<A: Acknowledges>(&mut self, wire: &Wire<A>, body: Option<u64>) -> Progress {
        if let (Progress::Sending, Some(body)) = (self.progress, body) {
            // A flush from before the body was written does not count, nor does one that left much of it out.
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

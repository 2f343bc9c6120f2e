//! A response's body: the size of its first message, and its transfer time.
//!
//! Method: the call is complete when the first message of the response has arrived (of a unary call, that is all of
//! it). Its time counts from the first byte of the body, because a stream's first message may wait for the application.
//! A response below one packet adds neither bytes nor time: its call is a write, which ended when its request had
//! arrived. Limits: if a server does not report its own time, the time before the first byte of a large response is
//! that of the request alone.

use crate::admission::Admission;
use crate::table::Ticket;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// A flag and the length, big endian, precede a message.
const PREFIX: usize = 5;

/// Data of a call when the head of its response arrives.
#[derive(Debug)]
pub(super) struct Receipt {
    pub(super) admission: Arc<Admission>,
    pub(super) ticket: Ticket,
    /// Network latency of the request.
    pub(super) request: Duration,
    /// Time until the head, less the server's own time, if the server reported it.
    pub(super) answered: Option<Duration>,
}

impl Receipt {
    /// Records that `bytes` of the response came within `transfer` after its first byte.
    fn complete(self, bytes: u64, transfer: Duration) {
        let mtu = u64::from(self.admission.settings().mtu_bytes);
        let latency = match bytes < mtu {
            true => self.request,
            false => self.answered.unwrap_or(self.request) + transfer,
        };
        // Its destination may have left the table; then nothing is learned.
        let _ = self.admission.complete_read(self.ticket, bytes, latency);
    }
}

/// The body, unchanged for the caller.
#[derive(Debug)]
pub struct Received<B> {
    body: B,
    receipt: Option<Receipt>,
    begin: Option<Instant>,
    bytes: u64,
    prefix: [u8; PREFIX],
}

impl<B> Received<B> {
    pub(super) fn new(body: B, receipt: Option<Receipt>) -> Self {
        Self {
            body,
            receipt,
            begin: None,
            bytes: 0,
            prefix: [0; PREFIX],
        }
    }

    fn take(&mut self, data: &Bytes) {
        self.begin.get_or_insert_with(Instant::now);
        let known = self.bytes.min(PREFIX as u64) as usize;
        let more = data.len().min(PREFIX - known);
        self.prefix[known..known + more].copy_from_slice(&data[..more]);
        self.bytes += data.len() as u64;
        let [_, length @ ..] = self.prefix;
        let message = PREFIX as u64 + u64::from(u32::from_be_bytes(length));
        if known + more == PREFIX && self.bytes >= message {
            self.bytes = message;
            self.end();
        }
    }

    fn end(&mut self) {
        if let Some(receipt) = self.receipt.take() {
            let transfer = self.begin.map(|begin| begin.elapsed());
            receipt.complete(self.bytes, transfer.unwrap_or_default());
        }
    }
}

/// A response that its caller drops half way counts with the received bytes and their time.
impl<B> Drop for Received<B> {
    fn drop(&mut self) {
        self.end();
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Received<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let (Some(data), true) = (frame.data_ref(), self.receipt.is_some()) {
                    self.take(data);
                }
            }
            Some(Err(_)) | None => self.end(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Ask;

    const CLASSES: &str = include_str!("../../tests/data/two-classes.toml");

    /// Reads `chunks` of a response. The request took 2 s for its one packet; the head of the response came 10 s after
    /// the call.
    fn read(chunks: &[&[u8]]) -> (u64, u64) {
        let text = format!("mtu_bytes = 1000\n{}", CLASSES.replace("15us", "1s"));
        let admission = Arc::new(Admission::from_text("t", &text).expect("settings"));
        let ask = Ask {
            destination: b"host:1",
            class: 0,
            bytes: 1,
        };
        let receipt = Receipt {
            ticket: admission.decide(ask).ticket,
            admission: Arc::clone(&admission),
            request: Duration::from_secs(2),
            answered: Some(Duration::from_secs(10)),
        };
        let mut body = Received::new((), Some(receipt));
        for chunk in chunks {
            body.take(&Bytes::copy_from_slice(chunk));
        }
        drop(body);
        let counts = admission.table().counts(b"host:1", 0).expect("known");
        (counts.ended(), counts.missed)
    }

    #[test]
    fn a_small_response_leaves_the_call_a_write() {
        assert_eq!(
            read(&[&[0, 0, 0, 0, 1], &[7]]),
            (1, 1),
            "2 s for one packet"
        );
        assert_eq!(read(&[]), (1, 1), "a body without a reader");
    }

    #[test]
    fn a_read_has_the_time_of_its_packets() {
        let message = |length: u32| {
            let mut bytes = vec![0];
            bytes.extend(length.to_be_bytes());
            bytes.resize(PREFIX + length as usize, 7);
            bytes
        };
        assert_eq!(read(&[&message(8_000)]), (1, 1), "10 s for 9 packets");
        assert_eq!(read(&[&message(12_000)]), (1, 0), "10 s for 13 packets");
        let (whole, mut split) = (message(12_000), Vec::new());
        split.extend(whole.chunks(3));
        assert_eq!(read(&split), (1, 0));
        // Of a stream, the first message.
        assert_eq!(read(&[&message(8_000), &message(12_000)]), (1, 1));
    }
}

//! A request's body: its size before it is sent, and the time when its last byte was taken.
//!
//! Method: available data is taken out (an encoded unary request is always available) and given to the transport later,
//! unchanged and in order. Limits: at most [`READY_MAX`] bytes are taken ahead; the rest counts by its declared size.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use tonic::Status;

/// Most bytes of a body that are taken out before the decision: above gRPC's usual limit of a message.
pub const READY_MAX: u64 = 8 << 20;

const NOT_ENDED: u64 = u64::MAX;

/// The next frame of a body.
pub(super) type NextFrame = Poll<Option<Result<Frame<Bytes>, Status>>>;

/// The size of a body, shared with the measurement.
#[derive(Debug)]
pub(super) struct Extent(AtomicU64);

impl Extent {
    /// The whole size, once the transport has taken the last byte.
    pub(super) fn ended(&self) -> Option<u64> {
        match self.0.load(Ordering::Acquire) {
            NOT_ENDED => None,
            bytes => Some(bytes),
        }
    }
}

/// A body with a part taken out.
pub(super) struct Gathered {
    ready: VecDeque<Frame<Bytes>>,
    rest: Option<tonic::body::Body>,
    failed: Option<Status>,
    taken: u64,
    pub(super) extent: Arc<Extent>,
}

impl Gathered {
    pub(super) fn new(body: tonic::body::Body) -> Self {
        Self {
            ready: VecDeque::new(),
            rest: Some(body),
            failed: None,
            taken: 0,
            extent: Arc::new(Extent(AtomicU64::new(NOT_ENDED))),
        }
    }

    /// Takes out the available data. Never waits.
    pub(super) fn gather(&mut self, context: &mut Context<'_>) {
        let mut bytes = 0;
        while let Some(rest) = &mut self.rest {
            if bytes >= READY_MAX {
                return;
            }
            match Pin::new(rest).poll_frame(context) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(frame))) => {
                    bytes += frame.data_ref().map_or(0, Bytes::len) as u64;
                    self.ready.push_back(frame);
                }
                Poll::Ready(Some(Err(error))) => {
                    self.failed = Some(error);
                    self.rest = None;
                }
                Poll::Ready(None) => self.rest = None,
            }
        }
    }

    /// Number of available bytes.
    pub(super) fn ready_bytes(&self) -> u64 {
        let data = self.ready.iter().filter_map(|frame| frame.data_ref());
        data.map(|data| data.len() as u64).sum()
    }

    /// Whether these are the whole body.
    pub(super) fn is_whole(&self) -> bool {
        self.rest.is_none()
    }

    fn note_end(&self) {
        if self.ready.is_empty() && self.rest.is_none() {
            self.extent.0.store(self.taken, Ordering::Release);
        }
    }
}

impl Body for Gathered {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> NextFrame {
        let this = &mut *self;
        let frame = match this.ready.pop_front() {
            Some(frame) => Some(Ok(frame)),
            None => match (&mut this.rest, this.failed.take()) {
                (_, Some(error)) => Some(Err(error)),
                (None, None) => None,
                (Some(rest), None) => match Pin::new(rest).poll_frame(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(None) => {
                        this.rest = None;
                        None
                    }
                    Poll::Ready(frame) => frame,
                },
            },
        };
        if let Some(Ok(frame)) = &frame {
            this.taken += frame.data_ref().map_or(0, Bytes::len) as u64;
        }
        this.note_end();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.ready.is_empty() && self.rest.is_none() && self.failed.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let ready = self.ready_bytes();
        match &self.rest {
            None => SizeHint::with_exact(ready),
            Some(rest) => {
                let mut hint = SizeHint::new();
                hint.set_lower(ready + rest.size_hint().lower());
                hint
            }
        }
    }
}

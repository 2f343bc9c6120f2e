//! Reports in each response how long the server had the request.
//!
//! Method: the clock starts when the handler's decoder has read the request's last byte (or when the request arrived,
//! if its body is never read to the end), and stops with the response's head. Units: microseconds, rounded down.

use super::body::NextFrame;
use crate::meter::SERVER_TIME;
use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body::SizeHint;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Instant;
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, Service};

/// Makes [`ServerTime`] services.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerTimeLayer;

impl<S> Layer<S> for ServerTimeLayer {
    type Service = ServerTime<S>;

    fn layer(&self, inner: S) -> ServerTime<S> {
        ServerTime { inner }
    }
}

/// A service whose responses report how long it had the request.
#[derive(Clone, Debug)]
pub struct ServerTime<S> {
    inner: S,
}

impl<S> tonic::server::NamedService for ServerTime<S>
where
    S: tonic::server::NamedService,
{
    const NAME: &'static str = S::NAME;
}

impl<S, B> Service<Request<Body>> for ServerTime<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let came = Instant::now();
        let ended = Arc::new(OnceLock::new());
        let body_end = Arc::clone(&ended);
        let request = request.map(|inner| {
            Body::new(Timed {
                inner,
                ended: body_end,
            })
        });
        let response = self.inner.call(request);
        Box::pin(async move {
            let mut response = response.await?;
            let begin = ended.get().copied().unwrap_or(came);
            let us = begin.elapsed().as_micros();
            let value = HeaderValue::from_str(&us.to_string()).expect("digits");
            response.headers_mut().insert(SERVER_TIME, value);
            Ok(response)
        })
    }
}

/// A body that records its end.
struct Timed {
    inner: Body,
    ended: Arc<OnceLock<Instant>>,
}

impl http_body::Body for Timed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> NextFrame {
        let frame = http_body::Body::poll_frame(Pin::new(&mut self.inner), context);
        if matches!(frame, Poll::Ready(None)) || http_body::Body::is_end_stream(&self.inner) {
            self.ended.get_or_init(Instant::now);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        http_body::Body::is_end_stream(&self.inner)
    }

    fn size_hint(&self) -> SizeHint {
        http_body::Body::size_hint(&self.inner)
    }
}

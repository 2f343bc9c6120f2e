//! The server in Rust: answers every call with nothing, and counts what the calls said of themselves.

use super::{failed, read, ready, write};
use crate::error::LabError;
use crate::job::{ServerJob, ServerResult};
use bytes::Bytes;
use isolane_rpc::tonic::DOWNGRADED;
use isolane_rpc::tonic::Raw;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tonic::body::Body;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// Room for the requests of a connection on their way: a receiver must not be what holds a sender back.
pub(super) const WINDOW_BYTES: u32 = 4 << 20;

/// Counts that all connections share.
#[derive(Debug, Default)]
struct Counts {
    calls: AtomicU64,
    bytes: AtomicU64,
    downgraded: AtomicU64,
}

/// The one method.
#[derive(Clone, Debug)]
struct Write(Arc<Counts>);

impl tower::Service<Request<Bytes>> for Write {
    type Response = Response<Bytes>;
    type Error = Status;
    type Future = std::future::Ready<Result<Response<Bytes>, Status>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let bytes = request.get_ref().len() as u64;
        // A call of nothing only opens its connection.
        if bytes == 0 {
            return std::future::ready(Ok(Response::new(Bytes::new())));
        }
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
        if request.metadata().contains_key(DOWNGRADED) {
            self.0.downgraded.fetch_add(1, Ordering::Relaxed);
        }
        std::future::ready(Ok(Response::new(Bytes::new())))
    }
}

/// Every path leads to the one method: the lab has no other.
#[derive(Clone, Debug)]
struct Lab(Write);

impl tower::Service<http::Request<Body>> for Lab {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let method = self.0.clone();
        Box::pin(async move { Ok(tonic::server::Grpc::new(Raw).unary(method, request).await) })
    }
}

/// Serves until stdin ends.
pub(super) fn run(runtime: &Runtime) -> Result<(), LabError> {
    let job: ServerJob = read("server")?;
    let counts = Arc::new(Counts::default());
    runtime.block_on(serve(&job, &counts))?;
    write(
        "server",
        &ServerResult {
            calls: counts.calls.load(Ordering::Relaxed),
            bytes: counts.bytes.load(Ordering::Relaxed),
            downgraded: counts.downgraded.load(Ordering::Relaxed),
        },
    )
}

async fn serve(job: &ServerJob, counts: &Arc<Counts>) -> Result<(), LabError> {
    let wrong = |error: &dyn std::fmt::Display| {
        failed(
            "server",
            &format!("cannot listen at {}: {error}", job.listen),
        )
    };
    let address: SocketAddr = job.listen.parse().map_err(|error| wrong(&error))?;
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| wrong(&error))?;
    ready("server")?;
    Server::builder()
        .initial_connection_window_size(WINDOW_BYTES)
        .initial_stream_window_size(WINDOW_BYTES)
        .serve_with_incoming_shutdown(
            Lab(Write(counts.clone())),
            // An answer is several small writes, which must not wait for acknowledgements.
            TcpIncoming::from(listener).with_nodelay(Some(true)),
            stdin_ends(),
        )
        .await
        .map_err(|error| wrong(&error))
}

/// Resolves when the controller closes our stdin, or is gone.
pub(super) async fn stdin_ends() {
    let mut stdin = tokio::io::stdin();
    let mut buffer = [0; 64];
    while !matches!(stdin.read(&mut buffer).await, Ok(0) | Err(_)) {}
}

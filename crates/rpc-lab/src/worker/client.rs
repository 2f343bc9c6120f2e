//! The client in Rust: tonic over one connection for each class, each with its code point on the socket.
//!
//! Method: calls are issued when they are due, whether earlier ones were answered or not. A call's latency begins when it
//! is handed to its connection, and ends with its answer.

use super::arrivals::Arrivals;
use super::codec::Raw;
use super::server::{WINDOW_BYTES, stdin_ends};
use super::{DOWNGRADED, failed, read, ready, write};
use crate::error::LabError;
use crate::job::{Call, ClientJob, ClientResult, METHOD, Start};
use bytes::Bytes;
use hyper_util::rt::TokioIo;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Status};

/// Issues the calls of one job.
pub(super) fn run(runtime: &Runtime) -> Result<(), LabError> {
    let job: ClientJob = read("client")?;
    let result = runtime.block_on(async {
        let channels = connect(&job).await?;
        ready("client")?;
        let start: Start = read("client")?;
        tokio::select! {
            result = issue(&job, &channels, start.start_unix_us) => Ok(result),
            () = stdin_ends() => Err(failed("client", "lost its controller")),
        }
    })?;
    write("client", &result)
}

/// One channel for each class.
async fn connect(job: &ClientJob) -> Result<Vec<Channel>, LabError> {
    let wrong = |error: &dyn std::fmt::Display| {
        failed("client", &format!("cannot reach {}: {error}", job.server))
    };
    let address: SocketAddr = job.server.parse().map_err(|error| wrong(&error))?;
    let mut channels = Vec::new();
    for dscp in job.dscp {
        let endpoint = Endpoint::from_shared(format!("http://{}", job.server))
            .map_err(|error| wrong(&error))?
            .initial_connection_window_size(WINDOW_BYTES)
            .initial_stream_window_size(WINDOW_BYTES);
        let connector = tower::service_fn(move |_: Uri| async move {
            Ok::<_, io::Error>(TokioIo::new(open(address, dscp).await?))
        });
        let channel = endpoint.connect_with_connector(connector).await;
        channels.push(channel.map_err(|error| wrong(&error))?);
    }
    Ok(channels)
}

/// A connection whose packets carry `dscp`, from the first one on.
async fn open(address: SocketAddr, dscp: u8) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    rustix::net::sockopt::set_ip_tos(&socket, dscp << 2)?;
    socket.set_nodelay(true)?;
    socket.connect(address).await
}

/// What a call became.
struct Answer {
    call: Call,
    result: Result<(), Status>,
}

async fn issue(job: &ClientJob, channels: &[Channel], start_unix_us: u64) -> ClientResult {
    let begin = Instant::now() + until(start_unix_us);
    let payload = Bytes::from(vec![0x5a; job.call_bytes as usize]);
    let admission = Arc::new(super::admission::Gate::new(job));
    let (answers, mut answered) = mpsc::unbounded_channel();
    let mut result = ClientResult::default();
    for (at_us, asked) in Arrivals::new(job) {
        let due = begin + Duration::from_micros(at_us);
        tokio::time::sleep_until(due.into()).await;
        let late = due.elapsed().as_micros() as u64;
        result.late_us_max = result.late_us_max.max(late);
        result.issued += 1;
        let verdict = admission.decide(asked);
        let mut request = Request::new(payload.clone());
        if verdict.downgraded {
            let class = asked.to_string().parse().expect("a digit is ASCII");
            request.metadata_mut().insert(DOWNGRADED, class);
        }
        let channel = channels[usize::from(verdict.class)].clone();
        let (answers, admission) = (answers.clone(), admission.clone());
        tokio::spawn(async move {
            let issued = Instant::now();
            let result = one(channel, request).await;
            let latency = issued.elapsed();
            if result.is_ok() {
                admission.completed(verdict, latency);
            }
            let _ = answers.send(Answer {
                call: (
                    asked,
                    verdict.class,
                    u8::from(verdict.downgraded || verdict.would_downgrade),
                    at_us + late,
                    latency.as_micros() as u64,
                ),
                result,
            });
        });
    }
    drop(answers);
    let end = begin + Duration::from_micros(job.issue_us + job.drain_us);
    while let Ok(Some(answer)) = tokio::time::timeout_at(end.into(), answered.recv()).await {
        match answer.result {
            Ok(()) => result.calls.push(answer.call),
            Err(status) => {
                result.failed += 1;
                result.first_error.get_or_insert(status.to_string());
            }
        }
    }
    result.unanswered = result.issued - result.failed - result.calls.len() as u64;
    result.probability = admission.probabilities();
    result
}

async fn one(channel: Channel, request: Request<Bytes>) -> Result<(), Status> {
    let mut client = tonic::client::Grpc::new(channel);
    client
        .ready()
        .await
        .map_err(|error| Status::unavailable(error.to_string()))?;
    let path = http::uri::PathAndQuery::from_static(METHOD);
    let response = client.unary(request, path, Raw).await;
    response.map(|_| ())
}

/// Time from now to the start.
fn until(start_unix_us: u64) -> Duration {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Duration::from_micros(start_unix_us).saturating_sub(now)
}

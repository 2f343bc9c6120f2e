//! The client in Rust: tonic through the library's layer ([`Admitted`]), as an application uses it.
//!
//! Method: calls are issued when they are due, whether earlier ones were answered or not. A call's latency begins when it
//! is handed to the layer, and ends with its answer; the layer learns from its own measurement.

use super::admission::Gate;
use super::arrivals::Arrivals;
use super::server::{WINDOW_BYTES, stdin_ends};
use super::{failed, read, ready, write};
use crate::error::LabError;
use crate::job::{Call, ClientJob, ClientResult, METHOD, Start};
use bytes::Bytes;
use isolane_rpc::tonic::Raw;
use isolane_rpc::tonic::{Admitted, AdmittedLayer, Channels, Class, Outcome};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};
use tower::Layer;

/// Issues the calls of one job.
pub(super) fn run(runtime: &Runtime) -> Result<(), LabError> {
    let job: ClientJob = read("client")?;
    let result = runtime.block_on(async {
        let gate = Gate::new(&job);
        let service = connect(&job, &gate).await?;
        ready("client")?;
        let start: Start = read("client")?;
        tokio::select! {
            result = issue(&job, &gate, &service, start.start_unix_us) => Ok(result),
            () = stdin_ends() => Err(failed("client", "lost its controller")),
        }
    })?;
    write("client", &result)
}

/// The layer over one channel for each class, all of them connected.
async fn connect(job: &ClientJob, gate: &Gate) -> Result<Admitted<Channel>, LabError> {
    let wrong = |error: &dyn std::fmt::Display| {
        failed("client", &format!("cannot reach {}: {error}", job.server))
    };
    let endpoint = Endpoint::from_shared(format!("http://{}", job.server))
        .map_err(|error| wrong(&error))?
        .initial_connection_window_size(WINDOW_BYTES)
        .initial_stream_window_size(WINDOW_BYTES);
    let channels = Channels::connect(gate.admission(), &endpoint);
    for (channel, _) in channels.classes.iter() {
        // A method that no server counts, and most do not know: what matters is that one answers.
        let opened = one(channel.clone(), Request::new(Bytes::new()), OPEN).await;
        match opened {
            Err(status) if status.code() != Code::Unimplemented => return Err(wrong(&status)),
            _ => {}
        }
    }
    Ok(AdmittedLayer::new(gate.shared()).layer(channels))
}

/// What a call became.
fn answer(
    asked: u8,
    issued_us: u64,
    latency: Duration,
    result: Result<Response<Bytes>, Status>,
) -> Result<Call, Status> {
    let response = result?;
    let outcome = response.extensions().get::<Outcome>();
    let outcome = outcome.ok_or_else(|| Status::internal("the layer said nothing of the call"))?;
    let class = super::admission::class_named(&outcome.class);
    let lower = u8::from(outcome.downgraded || outcome.would_downgrade);
    let class = class.ok_or_else(|| Status::internal("the layer named an unknown class"))?;
    Ok((asked, class, lower, issued_us, latency.as_micros() as u64))
}

async fn issue(
    job: &ClientJob,
    gate: &Gate,
    service: &Admitted<Channel>,
    start_unix_us: u64,
) -> ClientResult {
    let begin = Instant::now() + until(start_unix_us);
    let payload = Bytes::from(vec![0x5a; job.call_bytes as usize]);
    let (answers, mut answered) = mpsc::unbounded_channel();
    let mut result = ClientResult::default();
    for (at_us, asked) in Arrivals::new(job) {
        let due = begin + Duration::from_micros(at_us);
        tokio::time::sleep_until(due.into()).await;
        let late = due.elapsed().as_micros() as u64;
        result.late_us_max = result.late_us_max.max(late);
        result.issued += 1;
        let mut request = Request::new(payload.clone());
        request.extensions_mut().insert(Class(asked));
        let (service, answers) = (service.clone(), answers.clone());
        tokio::spawn(async move {
            let issued = Instant::now();
            let result = one(service, request, METHOD).await;
            let latency = issued.elapsed();
            let _ = answers.send(answer(asked, at_us + late, latency, result));
        });
    }
    drop(answers);
    let end = begin + Duration::from_micros(job.issue_us + job.drain_us);
    while let Ok(Some(answer)) = tokio::time::timeout_at(end.into(), answered.recv()).await {
        match answer {
            Ok(call) => result.calls.push(call),
            Err(status) => {
                result.failed += 1;
                result.first_error.get_or_insert(status.to_string());
            }
        }
    }
    result.unanswered = result.issued - result.failed - result.calls.len() as u64;
    result.probability = gate.probabilities();
    result
}

async fn one<S>(
    service: S,
    request: Request<Bytes>,
    method: &'static str,
) -> Result<Response<Bytes>, Status>
where
    S: tonic::client::GrpcService<tonic::body::Body>,
    S::ResponseBody: tonic::transport::Body<Data = Bytes> + Send + 'static,
    <S::ResponseBody as tonic::transport::Body>::Error: Into<tonic::codegen::StdError> + Send,
{
    let mut client = tonic::client::Grpc::new(service);
    client
        .ready()
        .await
        .map_err(|error| Status::unavailable(error.into().to_string()))?;
    let path = http::uri::PathAndQuery::from_static(method);
    client.unary(request, path, Raw).await
}

/// What a channel is opened with.
const OPEN: &str = "/isolane.lab.Lab/Open";

/// Time from now to the start.
fn until(start_unix_us: u64) -> Duration {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Duration::from_micros(start_unix_us).saturating_sub(now)
}

//! The client's service: decides, sends in the class's channel, measures, reports.

use super::body::{Extent, Gathered};
use super::connector::{Connection, connect};
use super::received::{Receipt, Received};
use super::{Class, ClassName, Outcome, Size};
use crate::admission::Admission;
use crate::meter::{Kernel, Passage, Progress, SERVER_TIME, Wire};
use crate::table::{Ask, Ticket};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tonic::transport::{Channel, Endpoint};
use tower::{Layer, Service, ServiceExt};

/// Shortest interval of readings of acknowledged bytes: the timer's own step.
const LOOK_LEAST: Duration = Duration::from_millis(1);
/// The interval grows with the call's time: a reading is late by at most 1/16 of it.
const LOOK_PART: u32 = 16;

/// One channel per class of a destination, the highest first.
#[derive(Clone, Debug)]
pub struct Channels<S> {
    /// The destination's name in the table until its class has a connection; then the backend's address is the name.
    pub destination: Arc<[u8]>,
    /// A channel per class, with its connection for measurement.
    pub classes: Arc<[(S, Connection)]>,
}

impl Channels<Channel> {
    /// Channels to `endpoint`, with the marks of `admission`, connected when first used.
    pub fn connect(admission: &Admission, endpoint: &Endpoint) -> Self {
        let uri = endpoint.uri();
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let settings = admission.settings();
        let classes = settings.classes.iter();
        Self {
            destination: authority.as_bytes().into(),
            classes: classes.map(|class| connect(endpoint, class.dscp)).collect(),
        }
    }
}

/// Makes [`Admitted`] services.
#[derive(Clone, Debug)]
pub struct AdmittedLayer {
    admission: Arc<Admission>,
}

impl AdmittedLayer {
    /// Makes a layer whose services share `admission`.
    pub fn new(admission: Arc<Admission>) -> Self {
        Self { admission }
    }
}

impl<S> Layer<Channels<S>> for AdmittedLayer {
    type Service = Admitted<S>;

    fn layer(&self, channels: Channels<S>) -> Admitted<S> {
        let settings = self.admission.settings();
        assert_eq!(
            channels.classes.len(),
            settings.classes.len(),
            "one channel for each class"
        );
        let names = settings.classes.iter();
        Admitted {
            admission: Arc::clone(&self.admission),
            channels,
            names: names.map(|class| class.name.clone()).collect(),
        }
    }
}

/// A client's connection under admission: pass it to a generated client in place of a channel.
#[derive(Clone, Debug)]
pub struct Admitted<S> {
    admission: Arc<Admission>,
    channels: Channels<S>,
    names: Arc<[String]>,
}

impl Admitted<Channel> {
    /// Channels to `endpoint` under `admission`, connected when first used.
    pub fn connect(admission: Arc<Admission>, endpoint: &Endpoint) -> Self {
        let channels = Channels::connect(&admission, endpoint);
        AdmittedLayer::new(admission).layer(channels)
    }
}

impl<S> Admitted<S> {
    /// The connections, the highest class first.
    pub fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.channels
            .classes
            .iter()
            .map(|(_, connection)| connection)
    }
}

impl<S, B> Service<Request<tonic::body::Body>> for Admitted<S>
where
    S: Service<Request<tonic::body::Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
{
    type Response = Response<Received<B>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Received<B>>, S::Error>> + Send>>;

    /// Always ready: the call decides which channel must be ready.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        Box::pin(self.clone().run(request))
    }
}

impl<S, B> Admitted<S>
where
    S: Service<Request<tonic::body::Body>, Response = Response<B>> + Clone,
    B: Body<Data = Bytes> + Unpin,
{
    async fn run(
        self,
        request: Request<tonic::body::Body>,
    ) -> Result<Response<Received<B>>, S::Error> {
        let (mut parts, body) = request.into_parts();
        let asked = self.asked(&parts.extensions);
        let declared = parts.extensions.get::<Size>().map_or(0, |size| size.0);
        let mut body = Gathered::new(body);
        let Ok(()) = poll_fn(|context| {
            body.gather(context);
            Poll::Ready(Ok::<(), Infallible>(()))
        })
        .await;
        let peer = self.channels.classes[asked].1.peer();
        let verdict = self.admission.decide(Ask {
            destination: peer.as_deref().unwrap_or(&self.channels.destination),
            class: asked as u8,
            bytes: declared.max(body.ready_bytes()),
        });
        let class = usize::from(verdict.class);
        let outcome = Outcome {
            requested: self.names[asked].clone(),
            class: self.names[class].clone(),
            downgraded: verdict.downgraded,
            would_downgrade: verdict.would_downgrade,
        };
        outcome.write(asked, &mut parts.headers);
        let (channel, connection) = &self.channels.classes[class];
        let call = Call {
            admission: Arc::clone(&self.admission),
            ticket: verdict.ticket,
            // The application's own time is not network latency.
            learns: body.is_whole(),
            extent: Arc::clone(&body.extent),
        };
        let request = Request::from_parts(parts, tonic::body::Body::new(body));
        let mut response = call.measured(channel.clone(), connection, request).await?;
        outcome.write(asked, response.headers_mut());
        response.extensions_mut().insert(outcome);
        Ok(response)
    }

    /// The requested class. An unknown class is served as best effort.
    fn asked(&self, extensions: &http::Extensions) -> usize {
        let lowest = self.names.len() - 1;
        if let Some(ClassName(name)) = extensions.get() {
            let known = self.names.iter().position(|known| **known == **name);
            return known.unwrap_or(lowest);
        }
        let class = extensions.get::<Class>();
        class.map_or(lowest, |class| usize::from(class.0).min(lowest))
    }
}

struct Call {
    admission: Arc<Admission>,
    ticket: Ticket,
    learns: bool,
    extent: Arc<Extent>,
}

impl Call {
    async fn measured<S, B>(
        self,
        mut channel: S,
        connection: &Connection,
        request: Request<tonic::body::Body>,
    ) -> Result<Response<Received<B>>, S::Error>
    where
        S: Service<Request<tonic::body::Body>, Response = Response<B>>,
        B: Body<Data = Bytes> + Unpin,
    {
        let begin = Instant::now();
        let channel = channel.ready().await?;
        let mut watch = Watch::new(&self, connection, begin);
        let mut response = std::pin::pin!(channel.call(request));
        let response = loop {
            let pause = LOOK_LEAST.max(begin.elapsed() / LOOK_PART);
            tokio::select! {
                biased;
                response = &mut response => break response?,
                () = tokio::time::sleep(pause), if watch.arrived.is_none() => { watch.look(); }
            }
        };
        let failed = response.headers().get("grpc-status");
        let failed = failed.filter(|status| *status != "0");
        // A server enforces the call's deadline too, and may answer before our clock does.
        watch.answered = failed.is_none_or(|status| *status != DEADLINE_EXCEEDED);
        let reported = server_time(&response);
        let answered = begin.elapsed().saturating_sub(reported.unwrap_or_default());
        let receipt = (self.learns && failed.is_none()).then(|| Receipt {
            admission: Arc::clone(&self.admission),
            ticket: self.ticket,
            request: watch.arrived.map_or(answered, |time| time.min(answered)),
            answered: reported.map(|_| answered),
        });
        Ok(response.map(|body| Received::new(body, receipt)))
    }
}

/// Measures a call on its connection until it is answered. A call that ends earlier (dropped future, deadline, reset
/// connection) has its elapsed time as a lower bound, unless the kernel reported the arrival of its last byte. A call
/// without a connection says nothing about the network's latency.
struct Watch<'a> {
    call: &'a Call,
    connection: &'a Connection,
    begin: Instant,
    wire: Option<Arc<Wire<Kernel>>>,
    passage: Option<Passage>,
    /// Number of connections before the call.
    made: u64,
    /// When the last byte was seen to have arrived.
    arrived: Option<Duration>,
    answered: bool,
}

impl<'a> Watch<'a> {
    fn new(call: &'a Call, connection: &'a Connection, begin: Instant) -> Self {
        let wire = connection.wire();
        Self {
            call,
            connection,
            begin,
            passage: wire.as_ref().map(|wire| Passage::new(wire)),
            wire,
            made: connection.made(),
            arrived: None,
            answered: false,
        }
    }

    /// The call's progress, if its connection reports it.
    fn look(&mut self) -> Option<Progress> {
        if self.wire.is_none() {
            // The channel connects with its first call.
            self.wire = self.connection.wire();
            self.passage = self.wire.as_ref().map(|_| Passage::from_start());
        }
        let (wire, passage) = (self.wire.as_ref()?, self.passage.as_mut()?);
        let progress = passage.look(wire, self.call.extent.ended());
        if progress == Progress::Arrived {
            self.arrived.get_or_insert_with(|| self.begin.elapsed());
        }
        Some(progress)
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if self.answered || !self.call.learns {
            return;
        }
        let known = self.look().is_some();
        // A connection may have been made and lost since the call began.
        if !known && self.connection.made() == self.made {
            return;
        }
        let (admission, ticket) = (&self.call.admission, self.call.ticket);
        // Its destination may have left the table; then nothing is learned.
        let _ = match self.arrived {
            Some(arrived) => admission.complete(ticket, arrived),
            None => admission.give_up(ticket, self.begin.elapsed()).map(drop),
        };
    }
}

/// The status of a call whose deadline has come.
const DEADLINE_EXCEEDED: &str = "4";

fn server_time<B>(response: &Response<B>) -> Option<Duration> {
    let reported = response.headers().get(SERVER_TIME)?;
    let us = reported.to_str().ok()?.parse::<u64>().ok()?;
    Some(Duration::from_micros(us))
}

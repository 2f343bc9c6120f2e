//! The layer between a real client and a real server of tonic, on loopback.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use http::uri::PathAndQuery;
use isolane_rpc::admission::Admission;
use isolane_rpc::table::Ask;
use isolane_rpc::tonic::{Admitted, Class, ClassName, Outcome, Raw, ServerTimeLayer, Size};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tonic::body::Body;
use tonic::codegen::tokio_stream::{self, StreamExt};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};

/// Three classes with targets of 1 s.
fn settings() -> String {
    let classes = include_str!("../data/three-classes.toml")
        .replace("15us", "1s")
        .replace("25us", "1s");
    format!("mtu_bytes = 1000\n{classes}[[group]]\nname = \"all\"\ndestinations = \"*\"\n")
}

/// Answers with the request's metadata, after as many milliseconds as the first byte says.
#[derive(Clone)]
struct Echo;

impl NamedService for Echo {
    const NAME: &'static str = "test.Echo";
}

type BoxFuture<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

impl UnaryService<Bytes> for Echo {
    type Response = Bytes;
    type Future = BoxFuture<Response<Bytes>, Status>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        Box::pin(async move {
            let ms = request.get_ref().first().copied().unwrap_or(0);
            tokio::time::sleep(Duration::from_millis(ms.into())).await;
            Ok(Response::new(seen_by_server(&request)))
        })
    }
}

impl tonic::server::StreamingService<Bytes> for Echo {
    type Response = Bytes;
    type ResponseStream = Pin<Box<dyn tokio_stream::Stream<Item = Result<Bytes, Status>> + Send>>;
    type Future = BoxFuture<Response<Self::ResponseStream>, Status>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        Box::pin(async move {
            let seen_by_server = tokio_stream::once(Ok(seen_by_server(&request)));
            let stream: Self::ResponseStream = Box::pin(seen_by_server.chain(request.into_inner()));
            Ok(Response::new(stream))
        })
    }
}

fn seen_by_server<T>(request: &Request<T>) -> Bytes {
    let outcome = Outcome::of(&request.metadata().clone().into_headers());
    format!("{outcome:?}").into()
}

impl tower::Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<http::Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(Raw);
            Ok(match request.uri().path() {
                "/test.Echo/Unary" => grpc.unary(Echo, request).await,
                _ => grpc.streaming(Echo, request).await,
            })
        })
    }
}

/// A server, and a client under an admission with `settings`.
async fn pair(settings: &str) -> (Arc<Admission>, Admitted<Channel>, String) {
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap().to_string();
    let server = Server::builder().layer(ServerTimeLayer).add_service(Echo);
    tokio::spawn(server.serve_with_incoming(incoming));
    let admission = Arc::new(Admission::from_text("test", settings).unwrap());
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let client = Admitted::connect(Arc::clone(&admission), &endpoint);
    (admission, client, address)
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(test)
}

async fn unary(client: &Admitted<Channel>, class: Option<u8>, message: Bytes) -> (Outcome, String) {
    let mut grpc = tonic::client::Grpc::new(client.clone());
    let mut request = Request::new(message);
    if let Some(class) = class {
        request.extensions_mut().insert(Class(class));
    }
    let path = PathAndQuery::from_static("/test.Echo/Unary");
    grpc.ready().await.unwrap();
    let response = grpc.unary(request, path, Raw).await.unwrap();
    let outcome = Outcome::of(&response.metadata().clone().into_headers()).unwrap();
    (
        outcome,
        String::from_utf8(response.into_inner().to_vec()).unwrap(),
    )
}

/// Lowers the admit probability of class 0 to its floor.
fn distrust(admission: &Admission, destination: &str) {
    let ask = Ask {
        destination: destination.as_bytes(),
        class: 0,
        bytes: 1_000_000,
    };
    // Beyond what a random number admits: each miss takes the whole probability.
    while admission
        .table()
        .probability(ask.destination, 0)
        .is_none_or(|p| p.as_f64() > 0.11)
    {
        let verdict = admission.decide(ask);
        admission
            .complete(verdict.ticket, Duration::from_secs(1_000_000))
            .unwrap();
    }
}

fn marks(client: &Admitted<Channel>) -> Vec<Option<u8>> {
    let connections = client.connections();
    connections
        .map(|connection| {
            let wire = connection.wire()?;
            Some(rustix::net::sockopt::ip_tos(wire.kernel().socket()).unwrap() >> 2)
        })
        .collect()
}

#[test]
fn a_unary_call_runs_in_its_class_and_is_measured() {
    run(async {
        let (admission, client, address) = pair(&settings()).await;
        let begin = Instant::now();
        let (outcome, server_saw) = unary(&client, Some(0), Bytes::from(vec![200; 40_000])).await;
        let whole = begin.elapsed();
        assert_eq!(outcome.requested, "high");
        assert_eq!(outcome.class, "high");
        assert!(!outcome.downgraded);
        assert_eq!(server_saw, format!("{:?}", Some(outcome)));
        assert_eq!(
            marks(&client),
            [Some(46), None, None],
            "only this class is connected"
        );
        let name = address.as_bytes();
        // gRPC puts 5 bytes before a message.
        assert_eq!(admission.table().asked_bytes(0, 0), 40_005);
        let counts = admission.table().counts(name, 0).unwrap();
        assert_eq!((counts.admitted, counts.ended(), counts.missed), (1, 1, 0));
        // The server's 200 ms do not count as network latency.
        let measured = Duration::from_nanos(counts.latency_sum_ns);
        assert!(
            measured + Duration::from_millis(199) <= whole,
            "{measured:?} of {whole:?}"
        );

        let (outcome, _) = unary(&client, None, Bytes::from_static(b"\0")).await;
        assert_eq!(
            (outcome.requested.as_str(), outcome.downgraded),
            ("low", false)
        );
        let (outcome, _) = unary(&client, Some(9), Bytes::from_static(b"\0")).await;
        assert_eq!(outcome.requested, "low", "an unknown class");
        assert_eq!(marks(&client), [Some(46), None, Some(8)]);
    });
}

#[test]
fn a_downgraded_call_runs_in_the_lowest_class_and_both_ends_are_notified() {
    run(async {
        let (admission, client, address) = pair(&settings()).await;
        distrust(&admission, &address);
        let mut downgraded = 0;
        // Each is admitted with a probability of 0.1: all 40 are admitted with 10^-40.
        for _ in 0..40 {
            let (outcome, server_saw) = unary(&client, Some(0), Bytes::from_static(b"\0")).await;
            assert_eq!(outcome.requested, "high");
            assert_eq!(
                outcome.class,
                if outcome.downgraded { "low" } else { "high" }
            );
            downgraded += u64::from(outcome.downgraded);
            assert_eq!(server_saw, format!("{:?}", Some(outcome)));
        }
        assert!(downgraded > 0);
        let low = admission.table().counts(address.as_bytes(), 2).unwrap();
        assert_eq!(low.ended(), downgraded);
        assert_eq!(marks(&client)[2], Some(8));
    });
}

/// Programs in other languages use the same metadata (python/isolane/rpc.py, go/isolane/grpc.go).
#[test]
fn a_downgrade_is_said_as_other_languages_say_it() {
    let mut metadata = http::HeaderMap::new();
    for (name, value) in [
        ("isolane-requested-class", "high"),
        ("isolane-class", "low"),
        ("isolane-downgraded", "0"),
    ] {
        metadata.insert(name, value.parse().unwrap());
    }
    let outcome = Outcome::of(&metadata).unwrap();
    assert_eq!((outcome.class.as_str(), outcome.downgraded), ("low", true));
    metadata.remove("isolane-downgraded");
    assert!(!Outcome::of(&metadata).unwrap().downgraded);
    run(async {
        let (admission, client, address) = pair(&settings()).await;
        distrust(&admission, &address);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..40 {
            let mut grpc = tonic::client::Grpc::new(client.clone());
            let mut request = Request::new(Bytes::from_static(b"\0"));
            request.extensions_mut().insert(Class(0));
            let path = PathAndQuery::from_static("/test.Echo/Unary");
            grpc.ready().await.unwrap();
            let response = grpc.unary(request, path, Raw).await.unwrap();
            let said = response.metadata().get("isolane-downgraded");
            seen.insert(said.map(|value| value.to_str().unwrap().to_owned()));
        }
        assert!(seen.remove(&Some("0".to_owned())));
        assert!(seen.is_empty() || seen.remove(&None), "{seen:?}");
    });
}

#[test]
fn shadow_mode_sends_as_asked() {
    run(async {
        let (admission, client, address) =
            pair(&format!("mode = \"shadow\"\n{}", settings())).await;
        distrust(&admission, &address);
        let before = admission.table().counts(address.as_bytes(), 0).unwrap();
        for _ in 0..40 {
            let (outcome, _) = unary(&client, Some(0), Bytes::from_static(b"\0")).await;
            assert_eq!(
                (outcome.class.as_str(), outcome.downgraded),
                ("high", false)
            );
        }
        let after = admission.table().counts(address.as_bytes(), 0).unwrap();
        assert!(
            after.downgraded > before.downgraded,
            "it says what it would do"
        );
        assert_eq!(after.issued(), before.issued() + 40);
    });
}

#[test]
fn a_stream_is_decided_on_and_passes_unchanged() {
    run(async {
        let (admission, client, address) = pair(&settings()).await;
        let mut grpc = tonic::client::Grpc::new(client.clone());
        let (send, receive) = tokio::sync::mpsc::channel::<Bytes>(1);
        let stream = futures_of(receive);
        let mut request = Request::new(stream);
        request.extensions_mut().insert(Class(1));
        request.extensions_mut().insert(Size(7_777));
        let path = PathAndQuery::from_static("/test.Echo/Stream");
        grpc.ready().await.unwrap();
        let response = grpc.streaming(request, path, Raw).await.unwrap();
        let outcome = Outcome::of(&response.metadata().clone().into_headers()).unwrap();
        assert_eq!(
            (outcome.requested.as_str(), outcome.class.as_str()),
            ("middle", "middle")
        );
        let mut answers = response.into_inner();
        let seen_by_server = answers.next().await.unwrap().unwrap();
        assert_eq!(seen_by_server, format!("{:?}", Some(outcome)));
        for number in 0..50u8 {
            let message = Bytes::from(vec![number; 1_000 * usize::from(number)]);
            send.send(message.clone()).await.unwrap();
            assert_eq!(answers.next().await.unwrap().unwrap(), message);
        }
        drop(send);
        assert!(answers.next().await.is_none());
        assert_eq!(admission.table().asked_bytes(0, 1), 7_777);
        let counts = admission.table().counts(address.as_bytes(), 1).unwrap();
        assert_eq!(
            (counts.admitted, counts.ended()),
            (1, 0),
            "its time is the application's"
        );
        assert_eq!(marks(&client), [None, Some(26), None]);
    });
}

/// What a channel receives, as a stream.
fn futures_of(
    mut receive: tokio::sync::mpsc::Receiver<Bytes>,
) -> impl tokio_stream::Stream<Item = Bytes> {
    struct Stream<F>(F);
    impl<F: FnMut(&mut Context<'_>) -> Poll<Option<Bytes>> + Unpin> tokio_stream::Stream for Stream<F> {
        type Item = Bytes;

        fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
            (self.0)(context)
        }
    }
    Stream(move |context: &mut Context<'_>| receive.poll_recv(context))
}

/// Goal: calls that applications cancel in an overloaded network do not count as fast. Method: a peer that accepts
/// connections and reads nothing, so the end of a large call never arrives.
#[test]
fn a_call_that_is_given_up_on_its_way_is_a_miss_beyond_its_objective() {
    run(async {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = silent.local_addr().unwrap().to_string();
        let settings = settings().replacen("1s", "10us", 1);
        let admission = Arc::new(Admission::from_text("test", &settings).unwrap());
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let client = Admitted::connect(Arc::clone(&admission), &endpoint);
        // 4 MB are 4,000 MTUs: 40 ms in class 0, more than an hour in class 1.
        for class in [0, 1] {
            let mut grpc = tonic::client::Grpc::new(client.clone());
            let mut request = Request::new(Bytes::from(vec![0; 4_000_000]));
            request.extensions_mut().insert(Class(class));
            grpc.ready().await.unwrap();
            let path = PathAndQuery::from_static("/test.Echo/Unary");
            let call = grpc.unary(request, path, Raw);
            let ended = tokio::time::timeout(Duration::from_millis(200), call).await;
            assert!(ended.is_err(), "no server answers");
        }
        let missed = |class| {
            let counts = admission.table().counts(address.as_bytes(), class).unwrap();
            (counts.admitted, counts.ended(), counts.missed)
        };
        assert_eq!((missed(0), missed(1)), ((1, 1, 1), (1, 0, 0)));
        assert!(
            admission
                .table()
                .probability(address.as_bytes(), 0)
                .unwrap()
                .as_f64()
                < 0.11
        );
    });
}

#[test]
fn a_server_that_is_not_there_teaches_nothing() {
    run(async {
        let admission = Arc::new(Admission::from_text("test", &settings()).unwrap());
        let endpoint = Endpoint::from_static("http://127.0.0.1:1");
        let client = Admitted::connect(Arc::clone(&admission), &endpoint);
        let mut grpc = tonic::client::Grpc::new(client);
        let mut request = Request::new(Bytes::from_static(b"x"));
        request.extensions_mut().insert(Class(0));
        grpc.ready().await.unwrap();
        let path = PathAndQuery::from_static("/test.Echo/Unary");
        assert!(grpc.unary(request, path, Raw).await.is_err());
        let counts = admission.table().counts(b"127.0.0.1:1", 0).unwrap();
        assert_eq!((counts.admitted, counts.ended()), (1, 0));
    });
}

/// Goal: an overload that resets connections is visible. Method: a peer that accepts a connection, reads a little and
/// closes it while most of the call is in flight.
#[test]
fn a_call_whose_connection_is_reset_is_as_slow_as_it_lasted() {
    run(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut some = [0; 100];
            tokio::io::AsyncReadExt::read(&mut stream, &mut some)
                .await
                .unwrap();
        });
        let settings = settings().replacen("1s", "1ns", 1);
        let admission = Arc::new(Admission::from_text("test", &settings).unwrap());
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let client = Admitted::connect(Arc::clone(&admission), &endpoint);
        let mut grpc = tonic::client::Grpc::new(client);
        let mut request = Request::new(Bytes::from(vec![0; 4_000_000]));
        request.extensions_mut().insert(ClassName("high".into()));
        grpc.ready().await.unwrap();
        let path = PathAndQuery::from_static("/test.Echo/Unary");
        assert!(grpc.unary(request, path, Raw).await.is_err());
        let counts = admission.table().counts(address.as_bytes(), 0).unwrap();
        assert_eq!((counts.admitted, counts.ended(), counts.missed), (1, 1, 1));
    });
}

/// The kernel reports when the bytes of a call had arrived, so the server's time does not count even then.
#[test]
fn a_call_that_its_deadline_ends_is_measured_by_its_acknowledgement() {
    run(async {
        // The largest target: no machine is so busy that a call misses it.
        let settings = settings().replace("1s", "10s");
        let (admission, client, address) = pair(&settings).await;
        // Connects: on a busy machine the deadline would else end the call before it was sent.
        unary(&client, Some(0), Bytes::from_static(b"\0")).await;
        let mut grpc = tonic::client::Grpc::new(client);
        let mut request = Request::new(Bytes::from_static(&[200]));
        request.extensions_mut().insert(Class(0));
        request.set_timeout(Duration::from_millis(50));
        grpc.ready().await.unwrap();
        let path = PathAndQuery::from_static("/test.Echo/Unary");
        assert!(grpc.unary(request, path, Raw).await.is_err());
        let counts = admission.table().counts(address.as_bytes(), 0).unwrap();
        assert_eq!((counts.admitted, counts.ended(), counts.missed), (2, 2, 0));
    });
}

#[test]
fn the_destination_is_the_backend_that_the_name_leads_to() {
    run(async {
        let (_, _, address) = pair(&settings()).await;
        let port = address.rsplit_once(':').unwrap().1;
        let admission = Arc::new(Admission::from_text("test", &settings()).unwrap());
        // As many names as one backend may have.
        for name in ["localhost", "127.0.0.1"] {
            let endpoint = Endpoint::from_shared(format!("http://{name}:{port}")).unwrap();
            let client = Admitted::connect(Arc::clone(&admission), &endpoint);
            for _ in 0..2 {
                unary(&client, Some(0), Bytes::from_static(b"\0")).await;
            }
        }
        let counts = admission.table().counts(address.as_bytes(), 0).unwrap();
        // The first call through a name precedes its connection.
        assert_eq!(counts.admitted, 3);
    });
}

//! Agents as strangers meet them: over TLS, with nonsense, for too long.

use crate::{Place, message, run};
use isolane_common_linux::Root;
use isolane_study_testbed_verbs::agent::{AgentOptions, serve};
use isolane_study_testbed_verbs::identity;
use isolane_study_testbed_verbs::listen::{ListenOptions, Listener};
use isolane_study_testbed_verbs::message::{Event, Message, Request, VERSION};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

/// An agent on a port of the loopback interface, and its certificates' parent.
fn listening(place: &Place, directory: &Path) -> u16 {
    let names = ["127.0.0.1", "controller", "elsewhere"].map(str::to_owned);
    identity::create(directory, &names).unwrap();
    let listener = Listener::bind(ListenOptions {
        address: "127.0.0.1:0".to_owned(),
        identity: directory.join("127.0.0.1"),
        // Those of controllers that were just refused may still be ending.
        sessions: 8,
        program: place.program(),
        arguments: ["rdma", "agent", "--stdio"].map(str::to_owned).to_vec(),
    })
    .unwrap();
    let port = listener.address().port();
    // It serves until the program ends.
    thread::spawn(move || listener.serve(&|_| {}));
    port
}

pub(crate) fn agents_over_tls_run_scenarios(place: &Place) {
    let directory = place.root.join("certificates");
    let port = listening(place, &directory);
    let target = format!("verbs:127.0.0.1:{port}:fake0,127.0.0.1:{port}:fake1");
    let (testbed, _) = place.testbed(&target, |reach| {
        reach.identity = Some(directory.join("controller"));
    });
    let result = run(&testbed, "quick", "none").unwrap();
    assert_eq!(result.tenants.len(), 2);
    assert_eq!(place.processes("agent"), (1, 1));
    drop(testbed);
    place.all_gone();
}

pub(crate) fn strangers_are_refused(place: &Place) {
    let directory = place.root.join("certificates");
    let port = listening(place, &directory);
    let target = format!("verbs:127.0.0.1:{port}:fake0,127.0.0.1:{port}:fake1");
    let foreign = place.root.join("foreign");
    identity::create(&foreign, &["controller".to_owned()]).unwrap();
    // A stranger's certificate: neither side trusts the other.
    let (testbed, _) = place.testbed(&target, |reach| {
        reach.identity = Some(foreign.join("controller"));
    });
    message(
        &run(&testbed, "quick", "none").unwrap_err(),
        &["127.0.0.1", "ertificate"],
    );
    // Certificates of the authority with a stranger's key in between: the agent refuses.
    let forged = place.root.join("forged");
    fs::create_dir(&forged).unwrap();
    fs::copy(
        directory.join("controller/authority.pem"),
        forged.join("authority.pem"),
    )
    .unwrap();
    for file in ["certificate.pem", "key.pem"] {
        fs::copy(foreign.join("controller").join(file), forged.join(file)).unwrap();
    }
    let (testbed, _) = place.testbed(&target, |reach| reach.identity = Some(forged));
    message(
        &run(&testbed, "quick", "none").unwrap_err(),
        &["127.0.0.1", "another authority signed"],
    );
    // The certificate of a machine does not control another one.
    let (testbed, _) = place.testbed(&target, |reach| {
        reach.identity = Some(directory.join("elsewhere"));
    });
    message(
        &run(&testbed, "quick", "none").unwrap_err(),
        &["127.0.0.1", "not for the name \"controller\""],
    );
    // A controller's certificate that was made 400 days ago.
    let expired = directory.join("expired");
    fs::create_dir(&expired).unwrap();
    fs::rename(directory.join("controller"), expired.join("kept")).unwrap();
    let then = SystemTime::now() - Duration::from_secs(400 * 24 * 3_600);
    identity::create_at(&directory, &["controller".to_owned()], then).unwrap();
    fs::rename(directory.join("controller"), expired.join("controller")).unwrap();
    fs::rename(expired.join("kept"), directory.join("controller")).unwrap();
    let (testbed, _) = place.testbed(&target, |reach| {
        reach.identity = Some(expired.join("controller"));
    });
    message(
        &run(&testbed, "quick", "none").unwrap_err(),
        &["127.0.0.1", "xpired"],
    );
    // An agent that shows another machine's certificate.
    let listener = Listener::bind(ListenOptions {
        address: "127.0.0.1:0".to_owned(),
        identity: directory.join("elsewhere"),
        sessions: 1,
        program: place.program(),
        arguments: ["rdma", "agent", "--stdio"].map(str::to_owned).to_vec(),
    })
    .unwrap();
    let other = listener.address().port();
    thread::spawn(move || listener.serve(&|_| {}));
    let target = format!("verbs:127.0.0.1:{other}:fake0,127.0.0.1:{other}:fake1");
    let (testbed, _) = place.testbed(&target, |reach| {
        reach.identity = Some(directory.join("controller"));
    });
    message(
        &run(&testbed, "quick", "none").unwrap_err(),
        &["127.0.0.1", "ertificate"],
    );
    // Plain bytes are no handshake, and no session begins.
    let mut plain = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let hello = Request::Hello {
        version: VERSION,
        program: "x".to_owned(),
    };
    plain.write_all(hello.encode().as_bytes()).unwrap();
    let mut answer = Vec::new();
    // Reset or closed: either is a refusal.
    let _ = plain.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("welcome"));
    assert_eq!(place.processes("agent"), (0, 0));
}

/// A session within this process; returns what the agent says and how it ended.
fn session(
    place: &Place,
    lines: &[String],
    lifetime: Duration,
) -> (Vec<Event>, Result<(), String>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut options = AgentOptions::of(place.program());
    options.root = Root::at(place.root.join("tree"));
    options.lifetime = lifetime;
    let served = thread::spawn(move || {
        let output = theirs.try_clone().unwrap();
        let result = serve(theirs.try_clone().unwrap(), output, &options);
        let _ = theirs.shutdown(std::net::Shutdown::Both);
        result.map_err(|error| error.to_string())
    });
    let mut writer = ours.try_clone().unwrap();
    for line in lines {
        // It may have closed the stream at an earlier line.
        let _ = writer.write_all(line.as_bytes());
    }
    let events = BufReader::new(ours).lines().map_while(Result::ok);
    let events = events.map(|line| Event::decode(&line).unwrap()).collect();
    (events, served.join().unwrap())
}

pub(crate) fn an_agent_ends_on_nonsense(place: &Place) {
    let hello = |version| {
        Request::Hello {
            version,
            program: "x".to_owned(),
        }
        .encode()
    };
    let lifetime = Duration::from_secs(60);
    for (lines, part) in [
        (vec!["\u{0}\u{1}garbage\n".to_owned()], "no message"),
        (vec![Request::Clear.encode()], "hello"),
        (vec![hello(VERSION + 1)], "version"),
        (
            vec![
                hello(VERSION),
                "{\"kind\":\"run\",\"command\":\"sh\"}\n".to_owned(),
            ],
            "no message",
        ),
    ] {
        let (events, result) = session(place, &lines, lifetime);
        let reason = result.unwrap_err();
        assert!(reason.contains(part), "{reason}");
        assert!(
            matches!(events.last(), Some(Event::Failed { .. })),
            "{events:?}"
        );
    }
    // One number for two workers is a failed request, not the end.
    let spawn = Request::Spawn {
        worker: 5,
        pacing: None,
    }
    .encode();
    let lines = [
        hello(VERSION),
        spawn.clone(),
        spawn,
        "nonsense\n".to_owned(),
    ];
    let (events, _) = session(place, &lines, lifetime);
    let twice = events
        .iter()
        .any(|event| matches!(event, Event::Failed { reason } if reason.contains("runs already")));
    assert!(twice, "{events:?}");
    assert_eq!(place.processes("worker").1, 0);
}

pub(crate) fn an_agent_ends_with_its_lifetime(place: &Place) {
    let hello = Request::Hello {
        version: VERSION,
        program: "x".to_owned(),
    };
    let lines = [
        hello.encode(),
        Request::Spawn {
            worker: 1,
            pacing: None,
        }
        .encode(),
    ];
    let (events, result) = session(place, &lines, Duration::from_secs(3));
    assert!(result.unwrap_err().contains("--lifetime"));
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::Ended { worker: 1, .. }))
    );
    assert_eq!(place.processes("worker").1, 0);
}

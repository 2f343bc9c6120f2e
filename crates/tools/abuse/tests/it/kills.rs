//! Every long-running program under random kills: `make kills KILLS=n PROGRAM=name`; a few in each test run.
//!
//! The programs are those of [`crate::services`] and [`crate::limits`]. `isolaned` has kills of its own
//! (`crates/rdma/daemon/tests/it/kills.rs`), which need the preload library.

mod network;
pub(crate) mod tiers;
mod verbs;

use crate::clients::{agent_echoes, device_opens, peer_is_answered, session_begins, shown};
use crate::planted::REQUEST;
use crate::{has, over_tcp, over_unix};
use isolane_common_linux::key::Key;
use isolane_common_linux::skip::skip;
use isolane_rpc::quota::client::ask_once;
use isolane_rpc::quota::protocol::{Answer, PoolState, Request, Terms};
use isolane_tools_abuse::kills::{Case, Client, Kills, PATIENCE};
use isolane_tools_abuse::process::started_for;
use network::{marks_under, nic_under};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tiers::memory_under;
use verbs::{enforcer_under, guardian_under, has_seccomp};

/// Longest time for which a program without a cost of its own serves.
pub(crate) const SHORT: Duration = Duration::from_millis(20);
/// How long a test waits for what a planted defect never lets come.
const SOON: Duration = Duration::from_secs(2);

fn nothing() -> Result<(), String> {
    Ok(())
}

/// A client that makes requests until one fails.
fn asks(request: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static) -> Client {
    Arc::new(move |said| while request(said).is_ok() {})
}

/// The state of the quota server's pools. Not by the product's client, whose deadline is short for a busy machine.
fn pools(said: &str) -> Result<Vec<PoolState>, String> {
    let path = said.strip_prefix("unix:").unwrap();
    let answer = over_unix(Path::new(path), b"{\"ask\":\"show\"}\n")?;
    match serde_json::from_str(&answer) {
        Ok(Answer::Pools(pools)) => Ok(pools),
        _ => Err(answer),
    }
}

/// Kills a program whose clients lose nothing but their connection. Panics with what did not hold.
fn stateless(
    program: &'static str,
    role: &str,
    request: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static,
) {
    let folder = tempfile::tempdir().unwrap();
    stateless_in(Kills::of(program, 12), role, folder.path(), request).unwrap();
}

fn stateless_in(
    kills: Kills,
    role: &str,
    folder: &Path,
    request: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static,
) -> Result<(), String> {
    let request = Arc::new(request);
    let asked = Arc::clone(&request);
    let case = Case {
        role,
        serves: SHORT,
        client: asks(move |said| asked(said)),
        leaves_processes: false,
        dead: &nothing,
        alive: &|running| request(running.said()),
    };
    kills.run(&case, folder).map(drop)
}

#[test]
fn extender() {
    let body = r#"{"Pod":{"metadata":{}},"Nodes":{"items":[{"metadata":{"name":"n"}}]}}"#;
    let length = body.len();
    let head = format!("POST /prioritize HTTP/1.1\r\nContent-Length: {length}\r\n\r\n");
    let request = format!("{head}{body}").into_bytes();
    stateless("extender", "extender", move |said| {
        has(over_tcp(said.parse().unwrap(), &request), "200 OK")
    });
}

#[test]
fn traffic() {
    stateless("traffic", "traffic", |said| {
        has(shown(said.parse().unwrap()), "failed")
    });
}

#[test]
fn emulator() {
    stateless("emulator", "emulator", |said| device_opens(Path::new(said)));
}

/// Its sessions' processes end with it.
#[test]
fn agent() {
    let folder = tempfile::tempdir().unwrap();
    let identity = folder.path().join("certificates/controller");
    let kills = Kills::of("agent", 12);
    stateless_in(kills, "agent", folder.path(), move |said| {
        agent_echoes(said.parse().unwrap(), &identity)
    })
    .unwrap();
}

/// The port for peers and the sessions of `isolaned`.
#[test]
fn peers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    stateless_in(
        Kills::of("peers", 12),
        "peers",
        folder.path(),
        move |said| {
            let key = Key::read(&path.join("key")).map_err(|error| error.to_string())?;
            peer_is_answered(said.parse().unwrap(), &key)?;
            session_begins(&path.join("run/isolaned.sock"))
        },
    )
    .unwrap();
}

/// Goal: no acknowledged change of terms is lost. Method: the client raises a guarantee by one byte per second each time; the
/// next server must have the last acknowledged one, or the one after it.
#[test]
fn quota() {
    let folder = tempfile::tempdir().unwrap();
    let acknowledged = Arc::new(AtomicU64::new(0));
    let last = Arc::clone(&acknowledged);
    let case = Case {
        role: "quota",
        serves: SHORT,
        client: asks(move |said| {
            let terms = Terms {
                tenant: "search".to_owned(),
                group: "all".to_owned(),
                class: "high".to_owned(),
                weight: 1,
                guarantee_bytes_per_s: last.load(Ordering::Relaxed) + 1,
            };
            let guarantee = terms.guarantee_bytes_per_s;
            match ask_once(&said.parse().unwrap(), None, &Request::Set(terms)) {
                Ok(Answer::Done) => last.store(guarantee, Ordering::Relaxed),
                other => return Err(format!("{other:?}")),
            }
            Ok(())
        }),
        leaves_processes: false,
        dead: &nothing,
        alive: &|running| {
            let pools = pools(running.said())?;
            let high = pools.iter().find(|pool| pool.class == "high").unwrap();
            let found = high.tenants[0].guarantee_bytes_per_s;
            let before = acknowledged.swap(found, Ordering::Relaxed);
            // The file of settings has the first guarantee.
            match before == 0 || (before..=before + 1).contains(&found) {
                true => Ok(()),
                false => Err(format!(
                    "a guarantee of {found} bytes/s after {before} was acknowledged"
                )),
            }
        },
    };
    Kills::of("quota", 12).run(&case, folder.path()).unwrap();
}

#[test]
fn memory() {
    memory_under(Kills::of("memory", 12), "memory").unwrap();
}

#[test]
fn enforcer() {
    if !has_seccomp() {
        skip("no seccomp listener here");
        return;
    }
    enforcer_under(Kills::of("enforcer", 8), "enforcer", "open").unwrap();
    enforcer_under(Kills::of("enforcer", 8), "enforcer", "closed").unwrap();
}

#[test]
fn guardian() {
    if !has_seccomp() {
        skip("no seccomp listener here");
        return;
    }
    guardian_under(Kills::of("guardian", 6)).unwrap();
}

#[test]
fn nic() {
    nic_under(Kills::of("nic", 4));
}

#[test]
fn marks() {
    marks_under(Kills::of("marks", 4));
}

/// The kills find each planted defect, and none in the service without one.
#[test]
fn planted_defects_of_any_service_are_found() {
    let verdict = |defect: &str, patience: Duration| {
        let folder = tempfile::tempdir().unwrap();
        let found = stateless_in(Kills::planted(8, patience), defect, folder.path(), |said| {
            has(over_tcp(said.parse().unwrap(), REQUEST), "yes")
        });
        for process in started_for(folder.path()) {
            let process = rustix::process::Pid::from_raw(process as i32).unwrap();
            let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
        }
        found
    };
    assert_eq!(verdict("none", PATIENCE), Ok(()));
    let found = verdict("locks by a file", PATIENCE).unwrap_err();
    assert!(found.contains("the next start fails"), "{found}");
    let found = verdict("leaves connections to a child", SOON).unwrap_err();
    assert!(
        found.contains("still waits") || found.contains("processes of a killed program"),
        "{found}"
    );
}

/// A journal that the next service does not find.
#[test]
fn a_memory_service_that_forgets_is_found() {
    let kills = Kills::planted(8, PATIENCE);
    let found = memory_under(kills, "memory-that-forgets").unwrap_err();
    assert!(found.contains("applications under control: []"), "{found}");
}

/// Calls that a killed enforcer had received, and of which the next one does not know.
#[test]
fn an_enforcer_that_forgets_is_found() {
    if !has_seccomp() {
        skip("no seccomp listener here");
        return;
    }
    let kills = Kills::planted(100, SOON);
    let found = enforcer_under(kills, "enforcer-that-forgets", "open").unwrap_err();
    assert!(found.contains("threads that wait"), "{found}");
}

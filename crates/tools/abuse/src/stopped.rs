//! A peer process that stops (SIGSTOP) in the middle of its requests.
//!
//! Method: the test program runs again as the peer, as a service does ([`crate::process`]). It sends whole requests on
//! some connections and half a request on each of the others, and says so. The attack then stops the
//! process: its sockets stay open, it reads no answer, and services that look at their peer's process find one that
//! does not run. Limits: the kernel of the service's machine is that of the peer, so a TCP peer still acknowledges.

use crate::process::{Running, serve_until_killed};
use crate::socket::Place;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;

/// The role of the peer's process; its test `role` calls [`peer`] for it.
pub const ROLE: &str = "peer-that-stops";

/// Connections with a whole request; one on which a session begins takes more descriptors.
const WHOLE: usize = 32;

/// Starts a peer with `crowd` half requests to `place`, and stops it when it has sent its requests. It is killed on drop.
/// Panics if the process does not start.
pub(crate) fn start(place: &Place, request: &[u8], crowd: usize) -> (Running, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a directory");
    let write = |name: &str, bytes: &[u8]| {
        fs::write(folder.path().join(name), bytes).expect("a file in it");
    };
    write("place", place.to_text().as_bytes());
    write("request", request);
    write("crowd", crowd.to_string().as_bytes());
    let mut running = Running::spawn(ROLE, folder.path());
    if let Err(reason) = running.listens() {
        panic!("the peer: {reason}");
    }
    let process = Pid::from_raw(running.id().cast_signed()).expect("a process has a number");
    kill_process(process, Signal::STOP).expect("a process of our own");
    (running, folder)
}

/// Runs the peer until it is killed.
pub fn peer(folder: &Path) {
    let read = |name: &str| fs::read(folder.join(name)).expect("the attack wrote it");
    let text = |name: &str| String::from_utf8(read(name)).expect("it is text");
    let (place, request) = (Place::of_text(&text("place")), read("request"));
    let crowd: usize = text("crowd").parse().expect("a number");
    let mut held = Vec::new();
    for number in 0..WHOLE + crowd {
        // A full queue of a Unix socket takes no more.
        let Ok(connection) = place.connect() else {
            continue;
        };
        let length = match number < WHOLE {
            true => request.len(),
            false => request.len() / 2,
        };
        connection.push(&request[..length]);
        held.push(connection);
    }
    serve_until_killed(&held.len().to_string());
}

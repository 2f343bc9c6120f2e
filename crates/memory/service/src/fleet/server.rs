//! The extender over HTTP: one request per connection, bounded in size, time, number and memory.
//!
//! Problem: clients of the port may be slow, many or hostile, and the scheduler waits for its answer. Method: a thread
//! per connection, at most [`CONNECTIONS_MAX`]; one exchange takes `EXCHANGE` at most, however its bytes trickle in.
//! When all places are taken, the oldest exchange beyond `GRACE` loses its place to the next one. All requests together
//! hold [`HELD_MAX`] bytes at most, and their answers about as much, as nodes are not copied before they are written.
//! When the kernel refuses a connection or a thread, nothing is tried for a moment. Units: bytes. Limits: HTTP/1.0 and
//! 1.1 with `Content-Length`, no TLS: it belongs beside the scheduler, on this machine.

use super::extender::{Answer, answer};
use isolane_common_linux::timed::Timed;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant, SystemTime};

/// Connections at a time.
pub const CONNECTIONS_MAX: usize = 64;
/// Longest request: a list of 5,000 nodes of 10 KB each, and their summaries.
pub const REQUEST_MAX: u64 = 128 << 20;
/// What all requests together may hold: two of the largest.
pub const HELD_MAX: u64 = 2 * REQUEST_MAX;
/// Longest head of a request.
const HEAD_MAX: u64 = 16 << 10;
/// How long one exchange may take, from the connection to the last byte: schedulers wait five seconds.
const EXCHANGE: Duration = Duration::from_secs(5);
/// How long an exchange keeps its place while others wait.
const GRACE: Duration = Duration::from_millis(500);
/// How often `stop` is looked at: every 50 ms.
const GLANCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};
/// Pause before a full server looks for a place again; twice this when the kernel refused a connection.
const REST: Duration = Duration::from_millis(50);

/// An exchange under way.
struct Open {
    since: Instant,
    stream: TcpStream,
    is_over: Arc<AtomicBool>,
}

/// What all exchanges share.
struct Shared<'a> {
    held: AtomicU64,
    log: &'a (dyn Fn(&str) + Sync),
}

/// Serves until `stop` is set; failed exchanges go to `log`. Fails if the listener cannot be used at all.
pub fn serve(
    listener: &TcpListener,
    stop: &AtomicBool,
    log: &(dyn Fn(&str) + Sync),
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let shared = Shared {
        held: AtomicU64::new(0),
        log,
    };
    let mut open: Vec<Open> = Vec::new();
    let mut is_short = false;
    std::thread::scope(|scope| {
        while !stop.load(Ordering::Relaxed) {
            open.retain(|one| !one.is_over.load(Ordering::Relaxed));
            if open.len() >= CONNECTIONS_MAX {
                make_room(&open);
                std::thread::sleep(REST);
                continue;
            }
            match listener.accept() {
                Ok((stream, _)) => match begin(scope, stream, &shared) {
                    Ok(one) => {
                        open.push(one);
                        is_short = false;
                    }
                    Err(error) => rest(&error, &mut is_short, log),
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut arrivals = [PollFd::new(listener, PollFlags::IN)];
                    // An error is one of the listener, which the next `accept` returns.
                    let _ = poll(&mut arrivals, Some(&GLANCE));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => rest(&error, &mut is_short, log),
            }
        }
        // Their threads end with their connections.
        for one in &open {
            let _ = one.stream.shutdown(Shutdown::Both);
        }
    });
    Ok(())
}

/// No descriptors, no memory or no threads: said once, and nothing is tried for a moment, as what waits stays waiting.
fn rest(error: &io::Error, is_short: &mut bool, log: &(dyn Fn(&str) + Sync)) {
    if !*is_short {
        log(&format!(
            "no more connections for now: {error}; raise the limit of open files (ulimit -n) if that lasts"
        ));
    }
    *is_short = true;
    std::thread::sleep(2 * REST);
}

/// The oldest exchange that had its time loses its place.
fn make_room(open: &[Open]) {
    let oldest = open.iter().min_by_key(|one| one.since);
    if let Some(oldest) = oldest.filter(|one| one.since.elapsed() > GRACE) {
        // One that has ended meanwhile is no loss.
        let _ = oldest.stream.shutdown(Shutdown::Both);
    }
}

/// Starts an exchange on a thread of its own.
fn begin<'scope, 'env: 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    stream: TcpStream,
    shared: &'env Shared<'env>,
) -> io::Result<Open> {
    let since = Instant::now();
    let one = Open {
        since,
        stream: stream.try_clone()?,
        is_over: Arc::default(),
    };
    let is_over = Arc::clone(&one.is_over);
    Builder::new().spawn_scoped(scope, move || {
        if let Err(error) = exchange(&stream, since, shared) {
            (shared.log)(&format!("an exchange failed: {error}"));
        }
        // The loop holds the connection for a moment; the client need not wait for it. The client may be gone.
        let _ = stream.shutdown(Shutdown::Write);
        is_over.store(true, Ordering::Relaxed);
    })?;
    Ok(one)
}

/// Bytes of one request, counted among those of all.
struct Held<'a> {
    all: &'a AtomicU64,
    own: u64,
}

impl Held<'_> {
    /// Counts more; false where that is too much.
    fn add(&mut self, bytes: u64) -> bool {
        self.own += bytes;
        self.all.fetch_add(bytes, Ordering::Relaxed) + bytes <= HELD_MAX
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Ordering::Relaxed);
    }
}

/// One request and its answer.
fn exchange(stream: &TcpStream, since: Instant, shared: &Shared<'_>) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let mut timed = Timed::new(stream, since, EXCHANGE);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_secs());
    let reply = respond(&mut timed, &shared.held, now)?;
    write(timed, &reply)
}

/// Reads one request from `stream` and makes its answer; `held` counts the bytes of all requests at this moment, and
/// `now_unix_s` judges how old summaries are.
pub fn respond(stream: impl Read, held: &AtomicU64, now_unix_s: u64) -> io::Result<Answer> {
    let mut held = Held { all: held, own: 0 };
    Ok(match read(stream, &mut held)? {
        Ok(request) => answer(&request.method, &request.path, &request.body, now_unix_s),
        Err(refused) => refused,
    })
}

#[derive(Debug)]
struct Request {
    method: String,
    path: String,
    body: Vec<u8>,
}

/// Reads a request, or says what is wrong with it.
fn read(stream: impl Read, held: &mut Held<'_>) -> io::Result<Result<Request, Answer>> {
    let mut reader = BufReader::new(stream);
    let mut head = (&mut reader).take(HEAD_MAX);
    let first = line(&mut head)?.unwrap_or_default();
    let mut length = 0u64;
    loop {
        let Some(line) = line(&mut head)? else {
            return Ok(Err(refused(
                431,
                "the head of the request is too long or cut off",
            )));
        };
        if line.is_empty() {
            break;
        }
        let (key, value) = line.split_once(':').unwrap_or((&line, ""));
        if key.eq_ignore_ascii_case("content-length") {
            match value.trim().parse() {
                Ok(bytes) => length = bytes,
                Err(_) => return Ok(Err(refused(400, "Content-Length is no number"))),
            }
        }
        if key.eq_ignore_ascii_case("transfer-encoding") {
            return Ok(Err(refused(411, "send Content-Length, not chunks")));
        }
    }
    if length > REQUEST_MAX {
        return Ok(Err(refused(413, "the request is larger than 128 MiB")));
    }
    let mut words = first.split_whitespace();
    let (Some(method), Some(path)) = (words.next(), words.next()) else {
        return Ok(Err(refused(400, "no request line")));
    };
    let (method, path) = (method.to_owned(), path.to_owned());
    let mut body = Vec::new();
    let mut piece = [0; 64 << 10];
    let mut rest = reader.take(length);
    loop {
        match rest.read(&mut piece) {
            Ok(0) => break,
            // What has come is counted, not what is announced: announcing costs nothing.
            Ok(count) if held.add(count as u64) => {
                grow(&mut body, count, length);
                body.extend_from_slice(&piece[..count]);
            }
            Ok(_) => {
                return Ok(Err(refused(
                    503,
                    "too many large requests at a time: try again",
                )));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    if (body.len() as u64) < length {
        return Ok(Err(refused(400, "the request is cut off")));
    }
    Ok(Ok(Request { method, path, body }))
}

/// Makes room for `more` bytes: twice what there is, and never more than was announced.
fn grow(body: &mut Vec<u8>, more: usize, announced: u64) {
    if body.capacity() - body.len() < more {
        let announced = usize::try_from(announced).unwrap_or(usize::MAX);
        let room = (2 * body.capacity()).min(announced).max(body.len() + more);
        body.reserve_exact(room - body.len());
    }
}

/// The next line of a head without its end; none where the head ends before it. What is no text is replaced.
fn line(head: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    head.read_until(b'\n', &mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(bytes
        .ends_with(b"\n")
        .then(|| text.trim_end_matches(['\r', '\n']).to_owned()))
}

fn refused(status: u16, why: &str) -> Answer {
    Answer::error(status, why)
}

fn write(mut stream: impl Write, answer: &Answer) -> io::Result<()> {
    let body = &answer.body;
    let reason = if answer.status == 200 {
        "OK"
    } else {
        "Refused"
    };
    let head = format!(
        "HTTP/1.1 {} {reason}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        answer.status,
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    stream.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ask(text: &[u8]) -> Result<(String, String, usize), u16> {
        let all = AtomicU64::new(0);
        let mut held = Held { all: &all, own: 0 };
        match read(text, &mut held).unwrap() {
            Ok(request) => Ok((request.method, request.path, request.body.len())),
            Err(refused) => Err(refused.status),
        }
    }

    #[test]
    fn requests_are_read_within_bounds() {
        let good = b"POST /filter HTTP/1.1\r\nHost: a\r\ncontent-length: 3\r\n\r\nabcd";
        assert_eq!(ask(good), Ok(("POST".to_owned(), "/filter".to_owned(), 3)));
        assert_eq!(
            ask(b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab"),
            Err(400)
        );
        assert_eq!(
            ask(b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n"),
            Err(400)
        );
        assert_eq!(
            ask(b"POST / HTTP/1.1\r\nContent-Length: 999999999999\r\n\r\n"),
            Err(413)
        );
        assert_eq!(
            ask(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"),
            Err(411)
        );
        let long = [b"GET / HTTP/1.1\r\nA: ".to_vec(), vec![b'x'; 20_000]].concat();
        assert_eq!(ask(&long), Err(431));
        assert_eq!(ask(b"\r\n\r\n"), Err(400));
    }

    #[test]
    fn what_all_requests_hold_is_bounded_and_given_back() {
        let all = AtomicU64::new(HELD_MAX - 2);
        let text = b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc";
        let mut held = Held { all: &all, own: 0 };
        let status = read(&text[..], &mut held).unwrap().unwrap_err().status;
        assert_eq!(status, 503);
        drop(held);
        assert_eq!(all.load(Ordering::Relaxed), HELD_MAX - 2);
    }

    proptest! {
        #[test]
        fn no_request_panics(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            at in 0usize..60,
            cut in any::<bool>(),
        ) {
            let _ = ask(&bytes);
            // Nearly right ones reach deeper.
            let mut text = b"POST /filter HTTP/1.1\r\nContent-Length: 12\r\n\r\n{\"Pod\":null}".to_vec();
            match cut {
                true => text.truncate(at),
                false => text.splice(at.min(50)..at.min(50), bytes).for_each(drop),
            }
            let _ = ask(&text);
        }
    }
}

//! The extender over HTTP: one request per connection, bounded in size, time, number and memory.
//!
//! Problem: clients of the port may be slow, many or hostile, and the scheduler waits for its answer. Method: a thread
//! per connection behind a bounded listener ([`isolane_common_linux::listener`]) with [`CONNECTIONS_MAX`] places; one
//! exchange takes `EXCHANGE` at most, however its bytes trickle in. When all places are taken, the oldest exchange
//! beyond `GRACE` loses its place to the next one, first one without a whole request. All requests together hold
//! [`HELD_MAX`] bytes at most, and their answers about as much, as nodes are not copied before they are written. A
//! request without memory gets that of the connection that holds most. Units: bytes. Limits: HTTP/1.0 and 1.1 with
//! `Content-Length`, no TLS: it belongs beside the scheduler, on this machine.

use super::extender::{Answer, answer};
use isolane_common_linux::listener::{Connection, Listener, STACK_BYTES};
use isolane_common_linux::pool::{GRACE, Pool, PoolLimits};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::atomic::AtomicBool;
use std::thread::Builder;
use std::time::{Duration, SystemTime};

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
/// How long a client whose request was refused may take to read why.
const DRAINING: Duration = Duration::from_secs(1);

/// Serves until `stop` is set; failed exchanges go to `log`. Fails if the listener cannot be used at all.
pub fn serve(
    listener: TcpListener,
    stop: &AtomicBool,
    log: &(dyn Fn(&str) + Sync),
) -> io::Result<()> {
    let limits = PoolLimits {
        strangers: PoolLimits::shared(CONNECTIONS_MAX),
        grace: GRACE,
        // An exchange never needs a session.
        sessions: PoolLimits::shared(1),
        memory_bytes: HELD_MAX,
    };
    let listener = Listener::new(listener, Pool::new("extender", limits))?;
    std::thread::scope(|scope| {
        let begin = |connection| {
            let thread = Builder::new().stack_size(STACK_BYTES);
            let thread = thread.spawn_scoped(scope, move || {
                if let Err(error) = exchange(connection) {
                    log(&format!("an exchange failed: {error}"));
                }
            });
            thread.map(drop)
        };
        listener.serve(Some(stop), begin, log);
    });
    Ok(())
}

/// One request and its answer.
fn exchange(mut connection: Connection) -> io::Result<()> {
    let mut timed = connection.timed(EXCHANGE);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_secs());
    let until = connection.since() + EXCHANGE;
    let place = &mut connection.place;
    let request = read(&mut timed, |bytes| {
        place.hold(bytes, until).map_err(|full| full.to_string())
    })?;
    place.served();
    let answer = judge(request, now);
    write(timed, &answer)?;
    if answer.status != 200 {
        connection.drain(DRAINING);
    }
    Ok(())
}

/// Reads one request from `stream` and makes its answer. `hold` is called before memory for a part of the body is
/// taken, with its bytes; its error is the reason against it. `now_unix_s` judges how old summaries are.
pub fn respond(
    stream: impl Read,
    hold: impl FnMut(u64) -> Result<(), String>,
    now_unix_s: u64,
) -> io::Result<Answer> {
    Ok(judge(read(stream, hold)?, now_unix_s))
}

fn judge(request: Result<Request, Answer>, now_unix_s: u64) -> Answer {
    match request {
        Ok(request) => answer(&request.method, &request.path, &request.body, now_unix_s),
        Err(refused) => refused,
    }
}

#[derive(Debug)]
struct Request {
    method: String,
    path: String,
    body: Vec<u8>,
}

/// Reads a request, or says what is wrong with it.
fn read(
    stream: impl Read,
    mut hold: impl FnMut(u64) -> Result<(), String>,
) -> io::Result<Result<Request, Answer>> {
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
            // Memory grows with what has come, not with what is announced: announcing costs nothing.
            Ok(count) => {
                let more = growth(&body, count, length);
                if more > 0
                    && let Err(full) = hold(more as u64)
                {
                    return Ok(Err(refused(503, &full)));
                }
                body.reserve_exact(body.capacity() - body.len() + more);
                body.extend_from_slice(&piece[..count]);
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

/// Bytes by which the body's memory grows for `more` bytes, 0 if they fit: to twice its size, and never beyond what
/// was announced.
fn growth(body: &Vec<u8>, more: usize, announced: u64) -> usize {
    if body.capacity() - body.len() >= more {
        return 0;
    }
    let announced = usize::try_from(announced).unwrap_or(usize::MAX);
    let room = (2 * body.capacity()).min(announced).max(body.len() + more);
    room - body.capacity()
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
        match read(text, |_| Ok(())).unwrap() {
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
    fn memory_is_counted_before_it_is_taken_and_follows_what_comes() {
        let text = |announced: usize, sent: usize| {
            let head = format!("POST / HTTP/1.1\r\nContent-Length: {announced}\r\n\r\n");
            [head.into_bytes(), vec![b'x'; sent]].concat()
        };
        let mut held = 0;
        let count = |bytes| {
            held += bytes;
            Ok(())
        };
        let request = read(&text(1 << 20, 1 << 20)[..], count).unwrap().unwrap();
        assert_eq!((held, request.body.len()), (1 << 20, 1 << 20));
        let mut held = 0;
        let count = |bytes| {
            held += bytes;
            Ok(())
        };
        read(&text(1 << 20, 3)[..], count).unwrap().unwrap_err();
        assert_eq!(held, 3);
        let none = |_| Err("none is left".to_owned());
        let refused = read(&text(3, 3)[..], none).unwrap().unwrap_err();
        assert_eq!(refused.status, 503);
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

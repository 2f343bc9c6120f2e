//! The extender over HTTP: one request per connection, bounded in size, time and number.
//!
//! Method: a thread per connection, at most [`CONNECTIONS_MAX`] of them; further ones wait in the kernel. Units: bytes.
//! Limits: HTTP/1.0 and 1.1 with `Content-Length`, no TLS: it belongs beside the scheduler, on this machine.

use super::extender::{Answer, answer};
use serde_json::json;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

/// Connections at a time.
pub const CONNECTIONS_MAX: usize = 16;
/// Longest request: a list of 5,000 nodes of 10 KB each, and their summaries.
pub const REQUEST_MAX: u64 = 128 << 20;
/// Longest head of a request.
const HEAD_MAX: u64 = 16 << 10;
/// How long one read or write may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often `stop` is looked at.
const GLANCE: Duration = Duration::from_millis(50);

/// Serves until `stop` is set; `log` hears of failed exchanges.
///
/// # Errors
/// What the listener refuses.
pub fn serve(
    listener: &TcpListener,
    stop: &AtomicBool,
    log: &(dyn Fn(&str) + Sync),
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let open = Arc::new(AtomicUsize::new(0));
    std::thread::scope(|scope| {
        while !stop.load(Ordering::Relaxed) {
            if open.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
                std::thread::sleep(GLANCE);
                continue;
            }
            match listener.accept() {
                Ok((stream, _)) => {
                    open.fetch_add(1, Ordering::Relaxed);
                    let open = Arc::clone(&open);
                    scope.spawn(move || {
                        if let Err(error) = exchange(&stream) {
                            log(&format!("an exchange failed: {error}"));
                        }
                        open.fetch_sub(1, Ordering::Relaxed);
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(GLANCE)
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    })
}

/// One request and its answer.
fn exchange(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let reply = match read(stream)? {
        Ok(request) => {
            let now = now.map_or(0, |since| since.as_secs());
            answer(&request.method, &request.path, &request.body, now)
        }
        Err(refused) => refused,
    };
    write(stream, &reply)
}

struct Request {
    method: String,
    path: String,
    body: Vec<u8>,
}

/// Reads a request, or says what is wrong with it.
fn read(stream: impl Read) -> io::Result<Result<Request, Answer>> {
    let mut reader = BufReader::new(stream);
    let mut head = (&mut reader).take(HEAD_MAX);
    let mut first = String::new();
    head.read_line(&mut first)?;
    let mut length = 0u64;
    loop {
        let mut line = String::new();
        if head.read_line(&mut line)? == 0 {
            return Ok(Err(refused(
                431,
                "the head of the request is too long or cut off",
            )));
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (key, value) = line.split_once(':').unwrap_or((line, ""));
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
    let mut body = Vec::new();
    reader.take(length).read_to_end(&mut body)?;
    if (body.len() as u64) < length {
        return Ok(Err(refused(400, "the request is cut off")));
    }
    Ok(Ok(Request {
        method: method.to_owned(),
        path: path.to_owned(),
        body,
    }))
}

fn refused(status: u16, why: &str) -> Answer {
    Answer {
        status,
        body: json!({ "Error": why }),
    }
}

fn write(mut stream: impl Write, answer: &Answer) -> io::Result<()> {
    let body = answer.body.to_string();
    let reason = if answer.status == 200 {
        "OK"
    } else {
        "Refused"
    };
    write!(
        stream,
        "HTTP/1.1 {} {reason}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        answer.status,
        body.len()
    )?;
    stream.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(text: &[u8]) -> Result<(String, String, usize), u16> {
        match read(text).unwrap() {
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
    fn a_scheduler_is_answered_over_the_loopback() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| serve(&listener, &stop, &|_| {}).unwrap());
            let mut stream = TcpStream::connect(address).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_secs(30)))
                .unwrap();
            let body = "{\"Pod\":{\"metadata\":{\"name\":\"p\"}},\"Nodes\":{\"items\":[{\"metadata\":{\"name\":\"n\"}}]}}";
            let length = body.len();
            write!(
                stream,
                "POST /prioritize HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}"
            )
            .unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            stop.store(true, Ordering::Relaxed);
            assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
            assert!(text.ends_with("[{\"Host\":\"n\",\"Score\":0}]"), "{text}");
        });
    }
}

//! Workers over a TCP connection, and workers inside this process.
//!
//! A server runs jobs of every client that can connect. It uses its own device and rejects jobs beyond its memory
//! limit, but it sends what a job requires. Run it where you would run perftest's server. A connection has no place
//! among the clients until its job has arrived ([`isolane_common_linux::pool`]), so silent connections block no client.
//! A connection that loses its place to a newcomer is closed, unless a whole job of at most 16 KiB waits in its
//! socket: on a busy machine connections may come faster than their threads start.

use crate::coordinator::Link;
use crate::engine::{Outcome, Overrides, serve};
use crate::worker::{Failure, FailureKind, FromWorker, ToWorker, write_line};
use isolane_common_linux::pool::{Pool, PoolLimits};
use isolane_common_linux::timed::Timed;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Default port of servers.
pub const PORT: u16 = 18_520;
/// Time limit of connecting.
const CONNECT: Duration = Duration::from_secs(5);
/// A vanished machine is detected after about this time, a dead process at once.
const VANISHED: Duration = Duration::from_secs(5);

/// Longest time until a client's job has arrived.
const JOB: Duration = Duration::from_secs(10);
/// How far the end of a job is looked for in a socket, bytes.
const PEEK: usize = 16 << 10;
/// Pause after a failed accept: a descriptor may become free.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest job, bytes. An end takes about 1 KiB, and each message of its pattern some 30 bytes.
const JOB_MAX: u64 = 1 << 20;
/// Places of a server: each client may use the server's memory limit, and each connection without a job holds at most
/// [`JOB_MAX`] bytes of it.
const PLACES: PoolLimits = PoolLimits {
    strangers: 64,
    sessions: 16,
};

/// Connects to the server at `host` and `port`. Fails if no server listens there, or the name is unknown.
pub fn dial(host: &str, port: u16) -> io::Result<Link> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => {
                tune(&stream)?;
                let reader = BufReader::new(stream.try_clone()?);
                return Ok(Link::new(&format!("server {host}:{port}"), reader, stream));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Serves one connection to its end.
pub fn answer(stream: TcpStream, overrides: &Overrides) -> io::Result<Outcome> {
    tune(&stream)?;
    let reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    let outcome = serve(reader, &mut writer, overrides);
    // Also ends the reading thread.
    let _ = writer.shutdown(Shutdown::Both);
    Ok(outcome)
}

/// Serves every client that connects, each on its own thread, until the process ends; `say` gets one line for each
/// client that fails.
pub fn serve_clients(
    listener: &TcpListener,
    overrides: &Overrides,
    say: impl Fn(&str) + Send + Sync + 'static,
) {
    let pool = Pool::new(PLACES);
    let say = Arc::new(say);
    loop {
        let begun = listener.accept().and_then(|(stream, from)| {
            let stream = Arc::new(stream);
            let other = Arc::clone(&stream);
            let mut entry = pool.enter(Some(from.ip()), move || hang_up(&other));
            let (overrides, say) = (overrides.clone(), Arc::clone(&say));
            let thread = std::thread::Builder::new().name("client".to_owned());
            thread.spawn(move || {
                // A connection without a job is not reported, because such connections could fill the log.
                let Ok(first) = line(&stream) else { return };
                // Its place among the strangers ends before the line is parsed, which takes long.
                let place = entry.authenticated();
                if !is_job(&first) {
                    return;
                }
                let served = place
                    .map_err(|full| refuse(&stream, FailureKind::Machine, &full))
                    .and_then(|()| client(&stream, first, &overrides));
                match served {
                    Ok(Outcome::Done) => {}
                    Ok(Outcome::Abandoned) => say(&format!("client {from} left early")),
                    Ok(Outcome::Failed(failure)) => {
                        say(&format!("client {from}: {}", failure.message));
                    }
                    Err(error) => say(&format!("client {from}: {error}")),
                }
            })
        });
        if let Err(error) = begun {
            say(&format!("cannot serve a client: {error}; retrying"));
            std::thread::sleep(PAUSE);
        }
    }
}

/// Closes a connection for which its thread would have to wait. Where a line is in the socket, the thread reads it and
/// decides without waiting.
fn hang_up(stream: &TcpStream) {
    let mut bytes = [0; PEEK];
    let peeked = recv(stream, &mut bytes, RecvFlags::PEEK | RecvFlags::DONTWAIT);
    let count = peeked.map_or(0, |(count, _)| count);
    if !bytes[..count].contains(&b'\n') {
        // It may have ended meanwhile.
        let _ = stream.shutdown(Shutdown::Both);
    }
}

/// Serves a connection whose job has arrived: `first` is what was read of it.
fn client(mut stream: &TcpStream, first: Vec<u8>, overrides: &Overrides) -> io::Result<Outcome> {
    stream.set_read_timeout(None)?;
    tune(stream)?;
    let reader = BufReader::new(stream.try_clone()?);
    let outcome = serve(Cursor::new(first).chain(reader), &mut stream, overrides);
    // Also ends the reading thread.
    let _ = stream.shutdown(Shutdown::Both);
    Ok(outcome)
}

/// The bytes up to the end of the first line, and those that came with it. A longer line than a job may have is
/// answered.
fn line(stream: &TcpStream) -> io::Result<Vec<u8>> {
    let mut reader = BufReader::new(Timed::new(stream, Instant::now(), JOB));
    let mut line = Vec::new();
    (&mut reader).take(JOB_MAX).read_until(b'\n', &mut line)?;
    if line.len() as u64 == JOB_MAX && !line.ends_with(b"\n") {
        let why = "a job of more than 1 MiB; use fewer processes or shorter patterns";
        return Err(refuse(stream, FailureKind::Job, &why));
    }
    if !line.ends_with(b"\n") {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    line.extend_from_slice(reader.buffer());
    Ok(line)
}

/// Whether the first of these lines is a job of this release.
fn is_job(lines: &[u8]) -> bool {
    let mut jobs = serde_json::Deserializer::from_slice(lines).into_iter();
    matches!(jobs.next(), Some(Ok(ToWorker::Job(_))))
}

/// Answers with the reason, and returns it. A client that reads nothing is not waited for.
fn refuse(stream: &TcpStream, kind: FailureKind, why: &dyn Display) -> io::Error {
    let failure = Failure {
        kind,
        message: why.to_string(),
    };
    let mut answer = Vec::new();
    let written = write_line(&mut answer, &FromWorker::Failed(failure)).and_then(|()| {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        Ok(send(stream, &answer, flags)?)
    });
    match written {
        Ok(_) => io::Error::other(why.to_string()),
        Err(error) => error,
    }
}

/// Opens a listening socket. Fails if the port is taken.
pub fn listen(address: &str, port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((address, port))
}

/// Starts a worker in a thread of this process. Fails if no descriptors are left.
pub fn inside(name: &str) -> io::Result<Link> {
    let (their_input, our_output) = io::pipe()?;
    let (our_input, mut their_output) = io::pipe()?;
    std::thread::spawn(move || {
        serve(
            BufReader::new(their_input),
            &mut their_output,
            &Overrides::default(),
        )
    });
    Ok(Link::new(name, BufReader::new(our_input), our_output))
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, VANISHED / 2)?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(sockopt::set_tcp_user_timeout(
        stream,
        VANISHED.as_millis() as u32,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Both ends of a connection, the server's first, after the client has sent `bytes`.
    fn connection(bytes: &[u8]) -> (TcpStream, TcpStream) {
        let listener = listen("127.0.0.1", 0).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(bytes).unwrap();
        let (server, _) = listener.accept().unwrap();
        if !bytes.is_empty() {
            server.peek(&mut [0]).unwrap();
        }
        (server, client)
    }

    #[test]
    fn a_connection_that_loses_its_place_is_closed_unless_a_line_waits() {
        for sent in ["", "{\"job"] {
            let (server, mut client) = connection(sent.as_bytes());
            hang_up(&server);
            client
                .set_read_timeout(Some(Duration::from_secs(60)))
                .unwrap();
            assert_eq!(client.read(&mut [0]).unwrap(), 0, "{sent:?}");
        }
        let (server, _client) = connection(b"{\"job\n");
        hang_up(&server);
        assert_eq!(server.peek(&mut [0; 8]).unwrap(), 6);
        assert!((&server).write_all(b"answer").is_ok());
    }
}

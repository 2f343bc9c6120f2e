//! Workers over a TCP connection, and workers inside this process.
//!
//! A server runs jobs of every client that can connect. It uses its own device and rejects jobs beyond its memory
//! limit, but it sends what a job requires. Run it where you would run perftest's server. A connection has no place
//! among the clients until its job has arrived ([`isolane_common_linux::pool`]), so silent connections block no client.

use crate::coordinator::Link;
use crate::engine::{Outcome, Overrides, serve};
use crate::worker::{Failure, FailureKind, FromWorker, LINE_MAX, ToWorker, write_line};
use isolane_common_linux::pool::{Entry, Pool, PoolLimits};
use isolane_common_linux::timed::Timed;
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
/// Pause after a failed accept: a descriptor may become free.
const PAUSE: Duration = Duration::from_millis(100);
/// Places of a server: each client may use the server's memory limit, and each connection without a job holds a line of
/// at most [`LINE_MAX`] bytes.
const PLACES: PoolLimits = PoolLimits {
    strangers: 32,
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
            let other = stream.try_clone()?;
            let entry = pool.enter(Some(from.ip()), move || {
                // It may have ended meanwhile.
                let _ = other.shutdown(Shutdown::Both);
            });
            let (overrides, say) = (overrides.clone(), Arc::clone(&say));
            let thread = std::thread::Builder::new().name("client".to_owned());
            thread.spawn(move || {
                // A connection without a job is not reported, because such connections could fill the log.
                let Ok(first) = job(&stream) else { return };
                match client(stream, first, entry, &overrides) {
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

/// Serves a connection whose job has arrived: `first` is what was read of it.
fn client(
    mut stream: TcpStream,
    first: Vec<u8>,
    mut entry: Entry,
    overrides: &Overrides,
) -> io::Result<Outcome> {
    stream.set_read_timeout(None)?;
    if let Err(full) = entry.authenticated() {
        let failure = Failure {
            kind: FailureKind::Machine,
            message: full.to_string(),
        };
        write_line(&mut stream, &FromWorker::Failed(failure))?;
        return Err(io::Error::other(full));
    }
    tune(&stream)?;
    let reader = BufReader::new(stream.try_clone()?);
    let outcome = serve(Cursor::new(first).chain(reader), &mut stream, overrides);
    // Also ends the reading thread.
    let _ = stream.shutdown(Shutdown::Both);
    Ok(outcome)
}

/// The bytes up to the end of the first line, which is a job, and those that came with it.
fn job(stream: &TcpStream) -> io::Result<Vec<u8>> {
    let mut reader = BufReader::new(Timed::new(stream, Instant::now(), JOB));
    let mut line = Vec::new();
    (&mut reader)
        .take(LINE_MAX as u64)
        .read_until(b'\n', &mut line)?;
    match serde_json::from_slice(&line) {
        Ok(ToWorker::Job(_)) if line.ends_with(b"\n") => {
            line.extend_from_slice(reader.buffer());
            Ok(line)
        }
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "its first line is no job of this release",
        )),
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

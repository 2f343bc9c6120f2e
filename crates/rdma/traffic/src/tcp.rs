//! Workers over a TCP connection, and workers inside this process.
//!
//! A server runs jobs of every client that can connect. It uses its own device and rejects jobs beyond its memory
//! limit, but it sends what a job requires. Run it where you would run perftest's server. A connection has no place
//! among the clients until its job has arrived ([`isolane_common_linux::listener`]), so silent connections block no client.
//! A connection that loses its place to a newcomer is closed, unless a whole job of at most 16 KiB waits in its
//! socket: on a busy machine connections may come faster than their threads start.

use crate::coordinator::Link;
use crate::engine::{Outcome, Overrides, serve};
use crate::worker::{Failure, FailureKind, FromWorker, ToWorker, write_line};
use isolane_common_linux::listener::{Connection, Listener, STACK_BYTES};
use isolane_common_linux::pool::{Pool, PoolLimits};
use isolane_common_linux::stream::Stream;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

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
/// Longest job, bytes. An end takes about 1 KiB, and each message of its pattern some 30 bytes.
const JOB_MAX: u64 = 1 << 20;
/// Clients at a time.
const CLIENTS_MAX: usize = 16;
/// Connections without a job.
const STRANGERS_MAX: usize = 64;
/// Places of a server: each client may use the server's memory limit, and each connection holds a job of at
/// most [`JOB_MAX`].
const PLACES: PoolLimits = PoolLimits {
    strangers: PoolLimits::shared(STRANGERS_MAX),
    grace: Duration::ZERO,
    // Every host may send jobs, and a job may last for hours.
    sessions: PoolLimits::reserved(CLIENTS_MAX),
    memory_bytes: (STRANGERS_MAX + CLIENTS_MAX) as u64 * JOB_MAX,
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

/// Serves one connection to its end; `first` is what was read of it already.
fn answer(stream: &Stream, first: Vec<u8>, overrides: &Overrides) -> io::Result<Outcome> {
    let mut writer = TcpStream::from(stream.as_fd().try_clone_to_owned()?);
    tune(&writer)?;
    let reader = BufReader::new(writer.try_clone()?);
    let outcome = serve(Cursor::new(first).chain(reader), &mut writer, overrides);
    // Also ends the reading thread.
    let _ = writer.shutdown(Shutdown::Both);
    Ok(outcome)
}

/// Serves the next client that connects, without a limit of its time.
pub fn serve_one(listener: &Listener, overrides: &Overrides) -> io::Result<Outcome> {
    answer(&listener.accept()?.stream, Vec::new(), overrides)
}

/// Serves every client that connects, each on its own thread, until the process ends; `say` gets one line for each
/// client that fails.
pub fn serve_clients(
    listener: &Listener,
    overrides: &Overrides,
    say: impl Fn(&str) + Send + Sync + 'static,
) {
    let say = Arc::new(say);
    let begin = |connection| {
        let (overrides, say) = (overrides.clone(), Arc::clone(&say));
        let thread = std::thread::Builder::new().name("client".to_owned());
        let serve = move || client(connection, &overrides, &*say);
        thread.stack_size(4 * STACK_BYTES).spawn(serve).map(drop)
    };
    listener.serve(None, begin, &*say);
}

fn client(mut connection: Connection, overrides: &Overrides, say: &dyn Fn(&str)) {
    // A connection without a job is not reported, because such connections could fill the log.
    let Ok(first) = line(&mut connection) else {
        return;
    };
    // Its place among the strangers ends before the line is parsed, which takes long.
    let place = connection.place.authenticated();
    if !is_job(&first) {
        return;
    }
    let stream = &connection.stream;
    let served = place
        .map_err(|full| refuse(stream, FailureKind::Machine, &full))
        .and_then(|()| answer(stream, first, overrides));
    let from = connection
        .from
        .map_or_else(String::new, |from| from.to_string());
    match served {
        Ok(Outcome::Done) => {}
        Ok(Outcome::Abandoned) => say(&format!("client {from} left early")),
        Ok(Outcome::Failed(failure)) => say(&format!("client {from}: {}", failure.message)),
        Err(error) => say(&format!("client {from}: {error}")),
    }
}

/// Closes a connection for which its thread would have to wait. Where a line is in the socket, the thread reads it and
/// decides without waiting.
fn hang_up(stream: &Stream) {
    let mut bytes = [0; PEEK];
    let peeked = recv(stream, &mut bytes, RecvFlags::PEEK | RecvFlags::DONTWAIT);
    let count = peeked.map_or(0, |(count, _)| count);
    if !bytes[..count].contains(&b'\n') {
        stream.hang_up();
    }
}

/// The bytes up to the end of the first line, and those that came with it. A longer line than a job may have is
/// answered.
fn line(connection: &mut Connection) -> io::Result<Vec<u8>> {
    let mut reader = BufReader::new(connection.timed(JOB));
    let (mut line, until) = (Vec::new(), connection.since() + JOB);
    while !line.ends_with(b"\n") {
        let here = reader.fill_buf()?;
        if here.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let end = here.iter().position(|&byte| byte == b'\n');
        let count = end.map_or(here.len(), |end| end + 1);
        if (line.len() + count) as u64 > JOB_MAX {
            let why = "a job of more than 1 MiB; use fewer processes or shorter patterns";
            return Err(refuse(&connection.stream, FailureKind::Job, &why));
        }
        let held = connection.place.hold(count as u64, until);
        held.map_err(|full| refuse(&connection.stream, FailureKind::Machine, &full))?;
        line.extend_from_slice(&here[..count]);
        reader.consume(count);
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
fn refuse(stream: &Stream, kind: FailureKind, why: &dyn Display) -> io::Error {
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
pub fn listen(address: &str, port: u16) -> io::Result<Listener> {
    let pool = Pool::with_hang_up("traffic", PLACES, hang_up);
    Listener::new(TcpListener::bind((address, port))?, pool)
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
    use isolane_common_linux::account::Account;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    /// Both ends of a connection, the server's first, after the client has sent `bytes`.
    fn connection(bytes: &[u8]) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(bytes).unwrap();
        let (server, _) = listener.accept().unwrap();
        if !bytes.is_empty() {
            server.peek(&mut [0]).unwrap();
        }
        (server, client)
    }

    #[test]
    fn one_host_leaves_places_to_another() {
        let pool = Pool::new("traffic-test", PLACES);
        let enter = |host| {
            let (near, _) = UnixStream::pair().unwrap();
            let account = Account::of_address([10, 0, 0, host].into());
            let mut entry = pool.enter(account, Arc::new(Stream::new(near)));
            entry.authenticated().is_ok().then_some(entry)
        };
        let greedy: Vec<_> = (0..CLIENTS_MAX).map(|_| enter(1)).collect();
        assert!(enter(2).is_some());
        assert_eq!(greedy.iter().flatten().count(), 12);
    }

    #[test]
    fn a_connection_that_loses_its_place_is_closed_unless_a_line_waits() {
        for sent in ["", "{\"job"] {
            let (server, mut client) = connection(sent.as_bytes());
            hang_up(&Stream::new(server));
            client
                .set_read_timeout(Some(Duration::from_secs(60)))
                .unwrap();
            assert_eq!(client.read(&mut [0]).unwrap(), 0, "{sent:?}");
        }
        let (server, _client) = connection(b"{\"job\n");
        hang_up(&Stream::new(server.try_clone().unwrap()));
        assert_eq!(server.peek(&mut [0; 8]).unwrap(), 6);
        assert!((&server).write_all(b"answer").is_ok());
    }
}

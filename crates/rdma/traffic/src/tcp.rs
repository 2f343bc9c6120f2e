//! Workers over a TCP connection, and workers inside this process.
//!
//! A server runs jobs of every client that can connect. It uses its own device and rejects jobs beyond its memory
//! limit, but it sends what a job requires. Run it where you would run perftest's server.

use crate::coordinator::Link;
use crate::engine::{Outcome, Overrides, serve};
use std::io::{self, BufReader};
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Default port of servers.
pub const PORT: u16 = 18_520;
/// Time limit of connecting.
const CONNECT: Duration = Duration::from_secs(5);
/// A vanished machine is detected after about this time, a dead process at once.
const VANISHED: Duration = Duration::from_secs(5);

/// Connects to the server at `host` and `port`.
///
/// # Errors
/// No server listens there, or the name is unknown.
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

/// Opens a listening socket.
///
/// # Errors
/// The port is taken.
pub fn listen(address: &str, port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((address, port))
}

/// Starts a worker in a thread of this process.
///
/// # Errors
/// No descriptors are left.
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

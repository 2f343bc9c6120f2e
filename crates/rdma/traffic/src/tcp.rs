//! Workers at the end of a TCP connection, and workers inside this process.
//!
//! A server is a worker that anybody who can connect may steer: it uses its own device and refuses jobs beyond its
//! memory limit, but it does send what it is asked to send. Run it where perftest's server would be run.

use crate::coordinator::Link;
use crate::engine::{Outcome, Overrides, serve};
use std::io::{self, BufReader};
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Where servers listen unless told otherwise.
pub const PORT: u16 = 18_520;
/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(5);
/// A machine that vanished is noticed after about this long (a process that died, at once).
const VANISHED: Duration = Duration::from_secs(5);

/// Connects to the server at `host` and `port`.
///
/// # Errors
/// Nobody listens there, or the name is unknown.
pub fn dial(host: &str, port: u16) -> io::Result<Link> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
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
    // Ends the thread that reads, too.
    let _ = writer.shutdown(Shutdown::Both);
    Ok(outcome)
}

/// A listening socket.
///
/// # Errors
/// The port is taken.
pub fn listen(address: &str, port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((address, port))
}

/// A worker in a thread of this process.
///
/// # Errors
/// No more descriptors.
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

//! Addresses, and the exchange of lines between clients and server.
//!
//! Method: a request is one line of JSON and so is its answer; both are sealed if there is a shared key
//! ([`super::seal`]). Every wait has a limit ([`PATIENCE`]).

use super::protocol::{Answer, Request};
use super::seal::{self, End, Seals};
use isolane_common_linux::key::Key;
use isolane_common_linux::listener::Connection;
use isolane_common_linux::pool::{Entry, Refused};
use isolane_common_linux::socket::listen_at;
use isolane_common_linux::stream::{Stream, Timed};
use rustix::net::sockopt::set_tcp_nodelay;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for the peer.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Longest request, bytes: a renewal of all groups and classes that a table can have.
pub const LINE_MAX: u64 = 1 << 20;

/// Longest first line of a client that must prove its key, bytes.
const HELLO_MAX: u64 = 256;

/// Longest time from a line's first byte to its last.
const EXCHANGE: Duration = PATIENCE;

/// Longest time in which the peer must read an answer, however long it is.
const ANSWERING: Duration = Duration::from_secs(10);

/// Longest answer, bytes: the state of some hundred thousand tenants.
pub const ANSWER_MAX: u64 = 64 << 20;

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// A TCP address.
    Tcp(SocketAddr),
}

impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.starts_with('/') && path.len() > 1 {
                true => Ok(Self::Unix(path.into())),
                false => Err("must have an absolute path behind unix:".to_owned()),
            };
        }
        if text.starts_with('/') {
            return Err(format!("a Unix socket is written \"unix:{text}\""));
        }
        let expected =
            "must be \"unix:/absolute/path\" or an address and a port, like \"127.0.0.1:7480\"";
        text.parse().map(Self::Tcp).map_err(|_| expected.to_owned())
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

impl Address {
    /// Whether other machines can reach it.
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::Tcp(address) if !address.ip().is_loopback())
    }
}

/// A connection that is read line by line.
pub struct Line {
    stream: BufReader<Timed<Arc<Stream>>>,
    seals: Option<Seals>,
    /// The place of a server's connection.
    place: Option<Entry>,
}

impl Line {
    fn new(stream: Timed<Arc<Stream>>, place: Option<Entry>) -> Self {
        Self {
            stream: BufReader::new(stream),
            seals: None,
            place,
        }
    }

    /// The server's end of a connection.
    pub fn of(connection: Connection) -> io::Result<Self> {
        if connection.from.is_some() {
            set_tcp_nodelay(&connection.stream, true)?;
        }
        let stream = connection.timed(PATIENCE);
        Ok(Self::new(stream, Some(connection.place)))
    }

    /// Makes the server's connection a session. Fails if all sessions are taken.
    pub fn authenticated(&mut self) -> Result<(), Refused> {
        self.place.as_mut().map_or(Ok(()), Entry::authenticated)
    }

    /// Counts memory of a server before it is taken.
    fn hold(&mut self, bytes: usize) -> io::Result<()> {
        let until = Instant::now() + PATIENCE;
        let held = self
            .place
            .as_mut()
            .map(|place| place.hold(bytes as u64, until));
        held.unwrap_or(Ok(())).map_err(io::Error::other)
    }

    /// Connects. With a key, connects only to a server that proves the same key. Fails if no server answers in time, or
    /// it violates the protocol. A rejection by the server is an answer, not an error.
    pub fn connect(address: &Address, key: Option<&Key>) -> io::Result<Result<Self, Answer>> {
        let socket: OwnedFd = match address {
            Address::Unix(path) => UnixStream::connect(path)?.into(),
            Address::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, PATIENCE)?;
                stream.set_nodelay(true)?;
                stream.into()
            }
        };
        let stream = Arc::new(Stream::new(socket));
        let mut line = Self::new(Timed::new(stream, Instant::now(), PATIENCE), None);
        let Some(key) = key else {
            return Ok(Ok(line));
        };
        let nonce = seal::nonce()?;
        let hello = Request::Hello {
            nonce: nonce.clone(),
        };
        match line.ask(&hello)? {
            Answer::Challenge(theirs) if seal::is_nonce(&theirs) => {
                line.seals = Some(Seals::new(key, End::Client, &nonce, &theirs));
                Ok(Ok(line))
            }
            refused @ Answer::Error(_) => Ok(Err(refused)),
            _ => Err(io::Error::other("an answer to another question")),
        }
    }

    /// The server's side of the exchange of nonces: reads and answers only the client's first line. Later lines are
    /// sealed. Fails if the client's first line is invalid. The client gets the reason.
    pub fn challenge(&mut self, key: &Key) -> io::Result<()> {
        let hello = self.read_in_time(HELLO_MAX, PATIENCE)?;
        let hello = hello.map(|text| serde_json::from_str::<Request>(&text));
        let Some(Ok(Request::Hello { nonce: theirs })) = hello else {
            let refused = "this server needs a key: give the client the server's key_file (isolane rpc quota: --key-file)";
            self.write(&Answer::Error(refused.to_owned()))?;
            return Err(io::Error::other("it has no key"));
        };
        if !seal::is_nonce(&theirs) {
            self.write(&Answer::Error("a nonce is 64 digits of 0-9a-f".to_owned()))?;
            return Err(io::Error::other("its nonce is none"));
        }
        let nonce = seal::nonce()?;
        self.write(&Answer::Challenge(nonce.clone()))?;
        self.seals = Some(Seals::new(key, End::Server, &theirs, &nonce));
        Ok(())
    }

    /// Reads the next request, sealed if there is a key; `None` at the end. The client gets the reason if the line is
    /// not a request. Fails if the line is longer than [`LINE_MAX`], not text, not sealed, does not begin within
    /// `idle`, or takes more than [`PATIENCE`] from then on.
    pub fn read(&mut self, idle: Duration) -> io::Result<Option<Result<Request, String>>> {
        let Some(line) = self.read_in_time(LINE_MAX, idle)? else {
            return Ok(None);
        };
        let text = match &mut self.seals {
            None => line.as_str(),
            Some(seals) => match seals.open(line.trim_end_matches('\n')) {
                Some(text) => text,
                None => {
                    self.seals = None;
                    let refused =
                        "the key is another one than this server's: give both the same key_file";
                    self.write(&Answer::Error(refused.to_owned()))?;
                    return Err(io::Error::new(
                        io::ErrorKind::PermissionDenied,
                        "its key is another one",
                    ));
                }
            },
        };
        Ok(Some(
            serde_json::from_str(text).map_err(|error| format!("not a request: {error}")),
        ))
    }

    /// Reads a line that begins within `idle` and then ends within [`EXCHANGE`], even if its bytes arrive slowly. A client
    /// that may be silent for longer than [`PATIENCE`] is not counted as late.
    /// Memory grows with the received bytes.
    fn read_in_time(&mut self, max: u64, idle: Duration) -> io::Result<Option<String>> {
        match idle > PATIENCE {
            true => self.stream.get_mut().pause(idle),
            false => self.stream.get_mut().allow(idle),
        }
        let mut line = Vec::new();
        loop {
            let here = self.stream.fill_buf()?;
            if here.is_empty() {
                return match line.is_empty() {
                    true => Ok(None),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
            let end = here.iter().position(|&byte| byte == b'\n');
            let count = end.map_or(here.len(), |end| end + 1);
            if (line.len() + count) as u64 > max {
                return Err(io::Error::other(format!("a line of more than {max} bytes")));
            }
            if line.is_empty() {
                self.stream.get_mut().allow(EXCHANGE);
            }
            self.hold(count)?;
            line.extend_from_slice(&self.stream.buffer()[..count]);
            self.stream.consume(count);
            if end.is_some() {
                let text = String::from_utf8(line);
                return text.map(Some).map_err(io::Error::other);
            }
        }
    }

    fn read_up_to(&mut self, max: u64) -> io::Result<Option<String>> {
        let mut line = String::new();
        let mut limited = (&mut self.stream).take(max);
        let bytes = limited.read_line(&mut line)?;
        match (bytes, line.ends_with('\n')) {
            (0, _) => Ok(None),
            (_, true) => Ok(Some(line)),
            (_, false) if bytes as u64 == max => {
                Err(io::Error::other(format!("a line of more than {max} bytes")))
            }
            (_, false) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Writes a message, sealed if there is a key. Fails if the peer does not accept it in time.
    pub fn write(&mut self, said: &impl serde::Serialize) -> io::Result<()> {
        let mut line = serde_json::to_string(said)?;
        if let Some(seals) = &mut self.seals {
            line = seals.seal(&line);
        }
        line.push('\n');
        self.hold(line.len())?;
        let stream = self.stream.get_mut();
        stream.allow(ANSWERING);
        stream.write_all(line.as_bytes())?;
        if let Some(place) = &mut self.place {
            place.release(u64::MAX);
        }
        Ok(())
    }

    /// Sends a request and waits for the answer. A rejection needs no seal, because a server without the key cannot
    /// make one. Fails if no answer comes in time, or its seal is wrong.
    pub fn ask(&mut self, request: &Request) -> io::Result<Answer> {
        self.write(request)?;
        self.stream.get_mut().allow(PATIENCE);
        self.stream.fill_buf()?;
        self.stream.get_mut().allow(ANSWERING);
        let end = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let line = self.read_up_to(ANSWER_MAX)?.ok_or_else(end)?;
        let line = line.trim_end_matches('\n');
        let Some(seals) = &mut self.seals else {
            return Ok(serde_json::from_str(line)?);
        };
        match (seals.open(line), serde_json::from_str(line)) {
            (Some(text), _) => Ok(serde_json::from_str(text)?),
            (None, Ok(refused @ Answer::Error(_))) => Ok(refused),
            (None, _) => Err(io::Error::other(
                "an answer without a valid seal of the shared key",
            )),
        }
    }
}

/// Connections that wait to be accepted: as many as the standard library allows.
const BACKLOG: i32 = 128;

fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket())
}

/// Listens at `address`. Replaces a Unix socket without a server, and no other file. The socket has the permissions
/// `mode` before it has its name. Fails if another server or a file that is not a socket has the address, or the
/// permissions cannot be set.
pub fn listen(address: &Address, mode: Option<u32>) -> io::Result<OwnedFd> {
    match address {
        Address::Tcp(address) => Ok(TcpListener::bind(address)?.into()),
        Address::Unix(path) => {
            if is_socket(path)
                && UnixStream::connect(path)
                    .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
            {
                std::fs::remove_file(path)?;
            }
            let Some(mode) = mode else {
                return Ok(UnixListener::bind(path)?.into());
            };
            let flags = SocketFlags::CLOEXEC;
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            listen_at(&socket, path, mode, BACKLOG)?;
            Ok(socket)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_common_linux::listener::Listener;
    use isolane_common_linux::pool::{Pool, PoolLimits};
    use rustix::fs::inotify;
    use std::os::unix::fs::PermissionsExt;

    fn serving(socket: OwnedFd) -> Listener {
        let limits = PoolLimits {
            strangers: PoolLimits::shared(1),
            grace: Duration::ZERO,
            sessions: PoolLimits::shared(1),
            memory_bytes: 4 * LINE_MAX,
        };
        Listener::new(socket, Pool::new("line-test", limits)).unwrap()
    }

    /// A server at a free port.
    fn at_a_port() -> (Listener, Address) {
        let any = "127.0.0.1:0".parse().unwrap();
        let listener = serving(listen(&any, None).unwrap());
        let address = Address::Tcp(listener.address().unwrap());
        (listener, address)
    }

    fn accept(listener: &Listener) -> io::Result<Line> {
        Line::of(listener.accept()?)
    }

    #[test]
    fn only_a_socket_without_a_server_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("precious");
        std::fs::write(&file, "data").unwrap();
        assert!(listen(&Address::Unix(file.clone()), None).is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "data");
        let socket = Address::Unix(folder.path().join("socket"));
        let first = listen(&socket, None).unwrap();
        assert!(listen(&socket, None).is_err(), "it is served");
        drop(first);
        let second = listen(&socket, Some(0o640));
        assert!(second.is_ok(), "left over");
        let path = folder.path().join("socket");
        let mode = std::fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
    }

    /// Another user of the directory may put a link at the name; its target must keep its mode. Method: the kernel reports
    /// what happened to the name.
    #[test]
    fn a_socket_that_has_its_name_gets_no_other_mode() {
        let folder = tempfile::tempdir().unwrap();
        let events = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        let watched = inotify::WatchFlags::ATTRIB
            | inotify::WatchFlags::CREATE
            | inotify::WatchFlags::MOVED_TO;
        inotify::add_watch(&events, folder.path(), watched).unwrap();
        let path = folder.path().join("socket");
        let _socket = listen(&Address::Unix(path.clone()), Some(0o640)).unwrap();
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&events, &mut buffer);
        let mut seen = Vec::new();
        while let Ok(event) = reader.next() {
            if event.file_name() == Some(c"socket") {
                seen.push(event.events());
            }
        }
        assert_eq!(seen, [inotify::ReadFlags::MOVED_TO]);
        let mode = std::fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
    }

    #[test]
    fn answers_may_be_longer_than_requests() {
        let folder = tempfile::tempdir().unwrap();
        let address = Address::Unix(folder.path().join("socket"));
        let listener = serving(listen(&address, None).unwrap());
        let long = "x".repeat(2 * LINE_MAX as usize);
        let answer = Answer::Error(long.clone());
        let server = std::thread::spawn(move || {
            let mut line = accept(&listener).unwrap();
            assert_eq!(line.read(PATIENCE).unwrap().unwrap(), Ok(Request::Show));
            line.write(&answer).unwrap();
            line.read(PATIENCE).unwrap_err().to_string()
        });
        let mut line = connect(&address, None).unwrap();
        assert_eq!(
            line.ask(&Request::Show).unwrap(),
            Answer::Error(long.clone())
        );
        // The server reads only a part of it and closes.
        let _ = line.write(&long);
        let refused = server.join().unwrap();
        assert_eq!(refused, "a line of more than 1048576 bytes");
    }

    fn connect(address: &Address, key: Option<&Key>) -> Result<Line, Answer> {
        Line::connect(address, key).unwrap()
    }

    fn reason(answer: Answer) -> String {
        match answer {
            Answer::Error(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    /// Goal: each end rejects a peer without its key, with a reason. Method: a server for each pair of keys that
    /// answers one request with "done".
    #[test]
    fn only_ends_with_the_same_key_talk() {
        let ask = |server: Option<u8>, client: Option<u8>| {
            let key = |byte: u8| Key::new(vec![byte; 32]);
            let (listener, address) = at_a_port();
            let serve = std::thread::spawn(move || -> io::Result<()> {
                let mut line = accept(&listener)?;
                if let Some(byte) = server {
                    line.challenge(&key(byte))?;
                }
                match line.read(PATIENCE)? {
                    Some(Ok(Request::Show)) => line.write(&Answer::Done),
                    other => line.write(&Answer::Error(format!("{other:?}"))),
                }
            });
            let answer = match connect(&address, client.map(key).as_ref()) {
                Ok(mut line) => line.ask(&Request::Show).unwrap(),
                Err(refused) => refused,
            };
            (answer, serve.join().unwrap().is_ok())
        };
        assert_eq!(ask(None, None), (Answer::Done, true));
        assert_eq!(ask(Some(7), Some(7)), (Answer::Done, true));
        let (answer, served) = ask(Some(7), Some(8));
        assert!(reason(answer).starts_with("the key is another one than this server's") && !served);
        let (answer, served) = ask(Some(7), None);
        assert!(reason(answer).starts_with("this server needs a key") && !served);
        let (answer, _) = ask(None, Some(7));
        assert!(reason(answer).contains("Hello"), "the book refuses it");
    }

    /// Goal: an answer without proof of the key is rejected. Method: a server that repeats the client's nonce and
    /// answers without a seal, or with the client's own.
    #[test]
    fn a_false_server_is_not_believed() {
        for echo in [false, true] {
            let (listener, address) = at_a_port();
            let serve = std::thread::spawn(move || {
                let mut line = accept(&listener).unwrap();
                let Some(Ok(Request::Hello { nonce })) = line.read(PATIENCE).unwrap() else {
                    panic!("no greeting");
                };
                line.write(&Answer::Challenge(nonce)).unwrap();
                let asked = line.read_up_to(LINE_MAX).unwrap().unwrap();
                let answer = if echo { asked } else { "\"done\"\n".to_owned() };
                line.stream.get_mut().write_all(answer.as_bytes()).unwrap();
            });
            let mut line = connect(&address, Some(&Key::new(vec![7; 32]))).unwrap();
            let error = line.ask(&Request::Show).unwrap_err().to_string();
            assert_eq!(error, "an answer without a valid seal of the shared key");
            serve.join().unwrap();
        }
    }

    #[test]
    fn addresses_that_others_reach_are_known() {
        let remote = |text: &str| text.parse::<Address>().unwrap().is_remote();
        assert!(!remote("127.0.0.1:7480") && !remote("[::1]:7480") && !remote("unix:/run/q"));
        assert!(remote("0.0.0.0:7480") && remote("10.0.0.1:7480") && remote("[::]:7480"));
    }
}

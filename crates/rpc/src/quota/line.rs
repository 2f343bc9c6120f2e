//! Addresses, and one line each way: how everybody here talks.
//!
//! Method: a request is one line of JSON, its answer another. Every wait has an end ([`PATIENCE`]).

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

/// Longest wait for the other side.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Longest line that is read, bytes: some hundred groups and classes.
pub const LINE_MAX: u64 = 1 << 20;

/// Where a server is.
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

/// Bytes both ways.
pub trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// A connection, read line by line.
pub struct Line(BufReader<Box<dyn Stream>>);

impl Line {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens there in time.
    pub fn connect(address: &Address) -> io::Result<Self> {
        let stream: Box<dyn Stream> = match address {
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Box::new(stream)
            }
            Address::Tcp(address) => {
                Box::new(patient(TcpStream::connect_timeout(address, PATIENCE)?)?)
            }
        };
        Ok(Self(BufReader::new(stream)))
    }

    /// The next line; `None` at the end.
    ///
    /// # Errors
    /// When the line is too long, no text, or does not come in time.
    pub fn read(&mut self) -> io::Result<Option<String>> {
        let mut line = String::new();
        let mut limited = (&mut self.0).take(LINE_MAX);
        let bytes = limited.read_line(&mut line)?;
        match (bytes, line.ends_with('\n')) {
            (0, _) => Ok(None),
            (_, true) => Ok(Some(line)),
            (_, false) => Err(io::Error::other("a line that does not end")),
        }
    }

    /// Writes a line.
    ///
    /// # Errors
    /// When it is not taken in time.
    pub fn write(&mut self, line: &str) -> io::Result<()> {
        let stream = self.0.get_mut();
        stream.write_all(format!("{line}\n").as_bytes())?;
        stream.flush()
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// When no answer comes in time.
    pub fn ask(&mut self, line: &str) -> io::Result<String> {
        self.write(line)?;
        let end = || io::Error::from(io::ErrorKind::UnexpectedEof);
        self.read()?.ok_or_else(end)
    }
}

fn patient(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Who waits for connections.
#[derive(Debug)]
pub enum Listener {
    /// On a Unix socket.
    Unix(UnixListener),
    /// On a TCP address.
    Tcp(TcpListener),
}

impl Listener {
    /// Listens; a Unix socket that nobody serves any more is replaced.
    ///
    /// # Errors
    /// When the address is taken.
    pub fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => TcpListener::bind(address).map(Self::Tcp),
            Address::Unix(path) => {
                if path.exists() && UnixStream::connect(path).is_err() {
                    std::fs::remove_file(path)?;
                }
                UnixListener::bind(path).map(Self::Unix)
            }
        }
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn address(&self) -> io::Result<Address> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Address::Tcp),
            Self::Unix(listener) => {
                let address = listener.local_addr()?;
                let path = address
                    .as_pathname()
                    .ok_or_else(|| io::Error::other("no path"))?;
                Ok(Address::Unix(path.to_owned()))
            }
        }
    }

    /// The next connection. Its reader waits for as long as the client likes, up to `idle`.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn accept(&self, idle: Duration) -> io::Result<Line> {
        let stream: Box<dyn Stream> = match self {
            Self::Tcp(listener) => {
                let stream = patient(listener.accept()?.0)?;
                stream.set_read_timeout(Some(idle))?;
                Box::new(stream)
            }
            Self::Unix(listener) => {
                let stream = listener.accept()?.0;
                stream.set_write_timeout(Some(PATIENCE))?;
                stream.set_read_timeout(Some(idle))?;
                Box::new(stream)
            }
        };
        Ok(Line(BufReader::new(stream)))
    }
}

//! Addresses, and one line each way: how everybody here talks.
//!
//! Method: a request is one line of JSON, its answer another. Every wait has an end ([`PATIENCE`]).

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest wait for the other side.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Longest request that is read, bytes: a renewal of all groups and classes that a table can have.
pub const LINE_MAX: u64 = 1 << 20;

/// Longest answer that is read, bytes: a look at some hundred thousand tenants.
pub const ANSWER_MAX: u64 = 64 << 20;

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

impl Address {
    /// Whether other machines may reach it.
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::Tcp(address) if !address.ip().is_loopback())
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

    /// The next request; `None` at the end.
    ///
    /// # Errors
    /// When the line is longer than [`LINE_MAX`], no text, or does not come in time.
    pub fn read(&mut self) -> io::Result<Option<String>> {
        self.read_up_to(LINE_MAX)
    }

    fn read_up_to(&mut self, max: u64) -> io::Result<Option<String>> {
        let mut line = String::new();
        let mut limited = (&mut self.0).take(max);
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
        self.read_up_to(ANSWER_MAX)?.ok_or_else(end)
    }
}

fn patient(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket())
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
    /// Listens; a Unix socket that nobody serves any more is replaced, and nothing else. Its permissions become `mode`.
    ///
    /// # Errors
    /// When the address is taken, by another server or by a file that is no socket, or its permissions cannot be set.
    pub fn bind(address: &Address, mode: Option<u32>) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => TcpListener::bind(address).map(Self::Tcp),
            Address::Unix(path) => {
                if is_socket(path)
                    && UnixStream::connect(path)
                        .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
                {
                    std::fs::remove_file(path)?;
                }
                let listener = UnixListener::bind(path)?;
                if let Some(mode) = mode {
                    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
                }
                Ok(Self::Unix(listener))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_socket_that_nobody_serves_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("precious");
        std::fs::write(&file, "data").unwrap();
        assert!(Listener::bind(&Address::Unix(file.clone()), None).is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "data");
        let socket = Address::Unix(folder.path().join("socket"));
        let first = Listener::bind(&socket, None).unwrap();
        assert!(Listener::bind(&socket, None).is_err(), "it is served");
        drop(first);
        let second = Listener::bind(&socket, Some(0o640));
        assert!(second.is_ok(), "left over");
        let path = folder.path().join("socket");
        let mode = std::fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
    }

    #[test]
    fn answers_may_be_longer_than_requests() {
        let folder = tempfile::tempdir().unwrap();
        let address = Address::Unix(folder.path().join("socket"));
        let listener = Listener::bind(&address, None).unwrap();
        let long = "x".repeat(2 * LINE_MAX as usize);
        let answer = long.clone();
        let server = std::thread::spawn(move || {
            let mut line = listener.accept(PATIENCE).unwrap();
            assert_eq!(line.read().unwrap().unwrap(), "show\n");
            line.write(&answer).unwrap();
            line.read().unwrap_err().to_string()
        });
        let mut line = Line::connect(&address).unwrap();
        assert_eq!(line.ask("show").unwrap().trim_end(), long);
        // The server takes only a part of it, and goes.
        let _ = line.write(&long);
        let refused = server.join().unwrap();
        assert_eq!(refused, "a line of more than 1048576 bytes");
    }

    #[test]
    fn addresses_that_others_reach_are_known() {
        let remote = |text: &str| text.parse::<Address>().unwrap().is_remote();
        assert!(!remote("127.0.0.1:7480") && !remote("[::1]:7480") && !remote("unix:/run/q"));
        assert!(remote("0.0.0.0:7480") && remote("10.0.0.1:7480") && remote("[::]:7480"));
    }
}

//! The asking side: one connection, a request and its answer at a time.
//!
//! Limits: blocks for at most [`PATIENCE`] each way; an answer is at most [`super::ANSWER_MAX`] bytes.

use super::line::Lines;
use super::{ANSWER_MAX, Answer, Request, decode, encode};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the service may take to answer: it answers between two periods.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum ClientError {
    #[error("no memory service answers at {} ({error}); start one with isolaned --mem, or name its socket with --socket", path.display())]
    Absent {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("{} may not be opened: run as root, or join the service's group", path.display())]
    NotPermitted { path: PathBuf },
    /// It listens, but its answer is none.
    #[error("the service at {} {detail}", path.display())]
    Broken { path: PathBuf, detail: String },
}

/// A connection to the service.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    lines: Lines,
    path: PathBuf,
}

impl Client {
    /// Connects. Fails if no service listens, or permission is missing.
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let stream = UnixStream::connect(path).map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => ClientError::NotPermitted {
                path: path.to_owned(),
            },
            _ => ClientError::Absent {
                path: path.to_owned(),
                error,
            },
        })?;
        let bounded = stream
            .set_read_timeout(Some(PATIENCE))
            .and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
        let client = Self {
            stream,
            lines: Lines::new(ANSWER_MAX),
            path: path.to_owned(),
        };
        bounded.map_err(|error| client.broken(error.to_string()))?;
        Ok(client)
    }

    /// Asks, and waits for the answer. Fails if there is none.
    pub fn ask(&mut self, request: &Request) -> Result<Answer, ClientError> {
        let io = |this: &Self, error: std::io::Error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                this.broken(format!("did not answer within {} s", PATIENCE.as_secs()))
            }
            _ => this.broken(format!("broke off: {error}")),
        };
        self.stream
            .write_all(&encode(request))
            .map_err(|error| io(self, error))?;
        let mut bytes = vec![0; 64 << 10];
        loop {
            match self.lines.next_line() {
                Ok(Some(line)) => {
                    return decode(&line).map_err(|failure| {
                        self.broken(format!("answered something else: {failure}"))
                    });
                }
                Ok(None) => {}
                Err(error) => return Err(self.broken(format!("answered with {error}"))),
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(self.broken("closed the connection".to_owned())),
                Ok(count) => self.lines.push(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(io(self, error)),
            }
        }
    }

    fn broken(&self, detail: String) -> ClientError {
        ClientError::Broken {
            path: self.path.clone(),
            detail,
        }
    }
}

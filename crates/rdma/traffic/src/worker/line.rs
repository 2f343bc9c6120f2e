//! One JSON document per line, from an untrusted writer.
//!
//! A line is cut off at [`LINE_MAX`] bytes. Bytes that are not text and text that is not a message are errors, which
//! quote at most a hundred characters.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, Write};

/// Longest line, bytes: a report of 10,000 points fits several times, and so do 4,096 queue pairs.
pub const LINE_MAX: usize = 4 << 20;

/// Why no message was read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum LineError {
    #[error("cannot read from the peer: {0}")]
    Read(#[from] io::Error),
    #[error("a line of more than {LINE_MAX} bytes; check that the peer is isolane rdma traffic")]
    Long,
    #[error("not a message of this version: {reason}; the line begins `{start}`")]
    Message { reason: String, start: String },
}

/// Reads messages from a reader.
#[derive(Debug)]
pub struct Lines<R> {
    reader: R,
    line: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    /// Messages from `reader`.
    pub fn new(reader: R) -> Self {
        Self {
            reader,
            line: Vec::new(),
        }
    }

    /// Returns the next message; `None` when the peer has closed. Skips empty lines. After an error the position in the
    /// stream is undefined; close it.
    pub fn next_message<T: DeserializeOwned>(&mut self) -> Result<Option<T>, LineError> {
        loop {
            self.line.clear();
            if !self.fill()? {
                return Ok(None);
            }
            if !self.line.iter().all(u8::is_ascii_whitespace) {
                return parse(&self.line).map(Some);
            }
        }
    }

    /// Reads up to and including a newline; false at the end of the stream.
    fn fill(&mut self) -> Result<bool, LineError> {
        loop {
            let available = match self.reader.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            if available.is_empty() {
                // A last line without a newline was cut off by a dying writer: it is not a message.
                return Ok(false);
            }
            let newline = available.iter().position(|&byte| byte == b'\n');
            let taken = newline.unwrap_or(available.len());
            if self.line.len() + taken > LINE_MAX {
                return Err(LineError::Long);
            }
            self.line.extend_from_slice(&available[..taken]);
            self.reader.consume(taken + usize::from(newline.is_some()));
            if newline.is_some() {
                return Ok(true);
            }
        }
    }
}

fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T, LineError> {
    serde_json::from_slice(line).map_err(|error| LineError::Message {
        reason: error.to_string(),
        start: String::from_utf8_lossy(line)
            .chars()
            .filter(|character| !character.is_control())
            .take(100)
            .collect(),
    })
}

/// Writes `message` as one line and flushes. Fails if the peer has closed.
pub fn write_line(writer: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    writer.write_all(&line)?;
    writer.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::{FromWorker, ToWorker};
    use proptest::prelude::*;

    #[test]
    fn a_line_that_never_ends_is_cut_off() {
        let endless = vec![b'x'; LINE_MAX + 2];
        let error = Lines::new(&endless[..]).next_message::<ToWorker>();
        assert!(matches!(error, Err(LineError::Long)), "{error:?}");
    }

    #[test]
    fn a_line_cut_by_death_is_the_end() {
        let message = Lines::new(&b"{\"type\":\"stop\""[..]).next_message::<ToWorker>();
        assert!(matches!(message, Ok(None)), "{message:?}");
    }

    #[test]
    fn empty_lines_do_not_count() {
        let mut lines = Lines::new(&b"\n \r\n{\"type\":\"connected\"}\n"[..]);
        let message = lines.next_message::<FromWorker>().expect("a message");
        assert_eq!(message, Some(FromWorker::Connected));
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_read_and_never_panic(bytes: Vec<u8>) {
            let mut lines = Lines::new(&bytes[..]);
            while let Ok(Some(message)) = lines.next_message::<ToWorker>() {
                if let ToWorker::Job(job) = message {
                    let _ = job.check();
                }
            }
        }

        #[test]
        fn json_with_wild_values_is_refused_or_read_and_never_panics(
            kind in "(job|connect|start|stop|x)",
            key in "(version|ends|after_ns|device|peers|window)",
            number: i64,
        ) {
            let text = format!("{{\"type\":\"{kind}\",\"{key}\":{number}}}\n");
            let _ = Lines::new(text.as_bytes()).next_message::<ToWorker>();
        }
    }
}

//! Lines of bounded length from a byte stream.
//!
//! A peer that never ends its line must not fill our memory, and one that ends it with garbage must not stop us with
//! a panic: bytes that are no UTF-8 are replaced.

use crate::message::LINE_MAX;
use std::io::{self, BufRead, BufReader, Read};

/// Reads lines of at most [`LINE_MAX`] bytes.
pub(crate) struct Lines<R> {
    input: BufReader<R>,
    limit: usize,
}

impl<R: Read> Lines<R> {
    /// Of `input`.
    pub(crate) fn new(input: R) -> Self {
        Self {
            input: BufReader::new(input),
            limit: LINE_MAX,
        }
    }

    /// The next line without its end, or none at the end of the stream; text after the last line's end is a line.
    pub(crate) fn next(&mut self) -> io::Result<Option<String>> {
        let mut bytes = Vec::new();
        let most = self.limit as u64 + 1;
        let read = (&mut self.input).take(most).read_until(b'\n', &mut bytes)?;
        if read == 0 {
            return Ok(None);
        }
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        } else if bytes.len() > self.limit {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a line of more than {} bytes", self.limit),
            ));
        }
        Ok(Some(match String::from_utf8(bytes) {
            Ok(line) => line,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        }))
    }
}

/// The last part of a stream of lines, for a message to people: at most `lines` lines and some hundred bytes each.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    kept: std::collections::VecDeque<String>,
}

/// Lines that are kept of what a process says on stderr.
const TAIL_LINES: usize = 3;
/// Characters that are kept of each.
const TAIL_CHARACTERS: usize = 400;

impl Tail {
    /// Takes the next line.
    pub(crate) fn push(&mut self, line: &str) {
        let line: String = line
            .trim_end()
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .take(TAIL_CHARACTERS)
            .collect();
        if line.is_empty() {
            return;
        }
        if self.kept.len() == TAIL_LINES {
            self.kept.pop_front();
        }
        self.kept.push_back(line);
    }

    /// On one line.
    pub(crate) fn text(&self) -> String {
        let lines: Vec<&str> = self.kept.iter().map(String::as_str).collect();
        lines.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_at_their_ends_and_the_last_may_lack_it() {
        let mut lines = Lines::new(&b"one\n\ntwo\xff\nthree"[..]);
        let mut next = || lines.next().unwrap();
        assert_eq!(next().as_deref(), Some("one"));
        assert_eq!(next().as_deref(), Some(""));
        assert_eq!(next().as_deref(), Some("two\u{fffd}"));
        assert_eq!(next().as_deref(), Some("three"));
        assert_eq!(next(), None);
    }

    #[test]
    fn an_endless_line_is_an_error_and_not_a_full_memory() {
        let mut lines = Lines::new(io::repeat(b'x'));
        lines.limit = 100;
        assert!(lines.next().is_err());
        let mut exact = Lines::new(&b"12345\n"[..]);
        exact.limit = 5;
        assert_eq!(exact.next().unwrap().as_deref(), Some("12345"));
    }

    #[test]
    fn a_tail_keeps_the_last_lines_as_plain_text() {
        let mut tail = Tail::default();
        for line in ["a", "b", "", "c\x1b[31m", "d"] {
            tail.push(line);
        }
        assert_eq!(tail.text(), "b; c [31m; d");
    }
}

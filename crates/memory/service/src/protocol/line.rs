//! Bytes to lines, within bounds.
//!
//! Method: bytes are kept until their line ends; a line that grows beyond the bound is an error, after which nothing
//! more is read, so a writer without line ends costs at most the bound.

/// Lines of at most so many bytes.
#[derive(Debug)]
pub struct Lines {
    bytes: Vec<u8>,
    /// Bytes at the front that are searched and hold no line end.
    searched: usize,
    most: usize,
}

/// A line that does not end in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line of more than {most} bytes")]
pub struct TooLong {
    /// The bound.
    pub most: usize,
}

impl Lines {
    /// Lines of at most `most` bytes, without their ends.
    pub fn new(most: usize) -> Self {
        Self {
            bytes: Vec::new(),
            searched: 0,
            most,
        }
    }

    /// Takes bytes as they come.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole line, without its end. Fails if the line is too long; the connection is to be closed.
    pub fn next_line(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        let found = self.bytes[self.searched..]
            .iter()
            .position(|&byte| byte == b'\n');
        let Some(found) = found else {
            self.searched = self.bytes.len();
            return match self.bytes.len() > self.most {
                true => Err(TooLong { most: self.most }),
                false => Ok(None),
            };
        };
        let end = self.searched + found;
        if end > self.most {
            return Err(TooLong { most: self.most });
        }
        let mut line: Vec<u8> = self.bytes.drain(..=end).collect();
        line.pop();
        self.searched = 0;
        Ok(Some(line))
    }

    /// Whether part of a line is waiting for the rest.
    pub fn is_partial(&self) -> bool {
        !self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_without_an_end_is_given_up() {
        let mut lines = Lines::new(4);
        lines.push(b"abcd");
        assert_eq!(lines.next_line(), Ok(None));
        lines.push(b"\nabcde");
        assert_eq!(lines.next_line(), Ok(Some(b"abcd".to_vec())));
        assert_eq!(lines.next_line(), Err(TooLong { most: 4 }));
        let mut at_once = Lines::new(4);
        at_once.push(b"abcde\n");
        assert_eq!(at_once.next_line(), Err(TooLong { most: 4 }));
    }

    proptest! {
        /// However the bytes are cut, the lines are those of `split`.
        #[test]
        fn lines_do_not_depend_on_how_bytes_arrive(
            parts in prop::collection::vec(prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..9), 0..20)
        ) {
            let mut lines = Lines::new(1_000);
            let mut got = Vec::new();
            for part in &parts {
                lines.push(part);
                while let Some(line) = lines.next_line().unwrap() {
                    got.push(line);
                }
            }
            let whole = parts.concat();
            let mut wanted: Vec<Vec<u8>> = whole.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
            let rest = wanted.pop().unwrap();
            prop_assert_eq!(got, wanted);
            prop_assert_eq!(lines.is_partial(), !rest.is_empty());
        }
    }
}

//! A TCP stream with a deadline for all reads and writes together, however slowly bytes arrive.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A stream with a deadline. Its timeouts stay set on the socket afterwards.
#[derive(Debug)]
pub struct Timed<'a> {
    stream: &'a TcpStream,
    since: Instant,
    patience: Duration,
}

impl<'a> Timed<'a> {
    /// A stream whose operations must end within `patience` after `since`.
    pub fn new(stream: &'a TcpStream, since: Instant, patience: Duration) -> Self {
        Self {
            stream,
            since,
            patience,
        }
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.patience.saturating_sub(self.since.elapsed());
        match left.is_zero() {
            true => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("not done within {} s", self.patience.as_secs_f64()),
            )),
            false => Ok(left),
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(bytes)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn bytes_that_trickle_in_do_not_move_the_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let trickle = std::thread::spawn(move || while sender.write_all(b"x").is_ok() {});
        let patience = Duration::from_millis(20);
        let mut timed = Timed::new(&stream, Instant::now(), patience);
        let error = io::copy(&mut timed, &mut io::sink()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "not done within 0.02 s");
        drop(stream);
        trickle.join().unwrap();
    }
}

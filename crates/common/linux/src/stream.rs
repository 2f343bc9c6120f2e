//! Streams of sockets, and a deadline for all reads and writes together, however slowly bytes arrive.

use crate::tally::Tally;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// A connected TCP or Unix stream. Its reads and writes never wait: they return [`ErrorKind::WouldBlock`].
#[derive(Debug)]
pub struct Stream(OwnedFd);

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Stream {
    /// The stream of a connected socket.
    pub fn new(socket: impl Into<OwnedFd>) -> Self {
        Self(socket.into())
    }

    /// Ends both directions: the peer and each thread that waits for the stream see its end.
    pub fn hang_up(&self) {
        // It may have ended already.
        let _ = shutdown(&self.0, Shutdown::Both);
    }

    /// Ends the direction to the peer, who may be gone.
    pub fn finish(&self) {
        let _ = shutdown(&self.0, Shutdown::Write);
    }
}

impl Read for &Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let (count, _) = recv(&self.0, bytes, RecvFlags::DONTWAIT)?;
        Ok(count)
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(send(&self.0, bytes, flags)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket whose reads and writes wait, all together until a deadline.
#[derive(Debug)]
pub struct Timed<S> {
    socket: S,
    until: Instant,
    patience: Duration,
    /// Whether this is a pause between exchanges, whose end is nobody's delay.
    is_pause: bool,
    tally: Option<Tally>,
}

impl<S: AsFd> Timed<S> {
    /// The operations on `socket` must end within `patience` after `since`.
    pub fn new(socket: S, since: Instant, patience: Duration) -> Self {
        Self {
            socket,
            until: since + patience,
            patience,
            is_pause: false,
            tally: None,
        }
    }

    /// Counts a missed deadline in `tally`, once.
    pub fn counted(self, tally: Tally) -> Self {
        Self {
            tally: Some(tally),
            ..self
        }
    }

    /// Allows this much time from now on.
    pub fn allow(&mut self, patience: Duration) {
        self.until = Instant::now() + patience;
        self.patience = patience;
        self.is_pause = false;
    }

    /// As [`Timed::allow`], for a peer that need not begin an exchange: its end is not counted.
    pub fn pause(&mut self, longest: Duration) {
        self.allow(longest);
        self.is_pause = true;
    }

    /// The socket.
    pub fn socket(&self) -> &S {
        &self.socket
    }

    /// Repeats `act` until it need not wait.
    fn wait_for<T>(
        &mut self,
        flags: PollFlags,
        mut act: impl FnMut(&S) -> rustix::io::Result<T>,
    ) -> io::Result<T> {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                if !self.is_pause
                    && let Some(tally) = self.tally.take()
                {
                    tally.count(|figures| figures.late_total += 1);
                }
                let patience = self.patience.as_secs_f64();
                let text = format!("not done within {patience} s");
                return Err(io::Error::new(ErrorKind::TimedOut, text));
            }
            match act(&self.socket) {
                Err(Errno::AGAIN) => {}
                Err(Errno::INTR) => continue,
                done => return Ok(done?),
            }
            let mut polled = [PollFd::new(&self.socket, flags)];
            match poll(&mut polled, Some(&timespec(left))) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl<S: AsFd> Read for Timed<S> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.wait_for(PollFlags::IN, |socket| {
            recv(socket, &mut *bytes, RecvFlags::DONTWAIT).map(|(count, _)| count)
        })
    }
}

impl<S: AsFd> Write for Timed<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        self.wait_for(PollFlags::OUT, |socket| send(socket, bytes, flags))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A wait for poll(2), longer by a millisecond, so that what is due is due after it.
pub fn timespec(wait: Duration) -> Timespec {
    let wait = wait + Duration::from_millis(1);
    Timespec {
        tv_sec: wait.as_secs().cast_signed(),
        tv_nsec: wait.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn bytes_that_trickle_in_do_not_move_the_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let trickle = std::thread::spawn(move || while sender.write_all(b"x").is_ok() {});
        let patience = Duration::from_millis(20);
        let tally = Tally::default();
        let timed = Timed::new(&stream, Instant::now(), patience);
        let mut timed = timed.counted(tally.clone());
        let error = io::copy(&mut timed, &mut io::sink()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "not done within 0.02 s");
        assert_eq!(tally.figures().late_total, 1);
        assert!(timed.write(b"too late").is_err());
        assert_eq!(tally.figures().late_total, 1, "one for each connection");
        drop(stream);
        trickle.join().unwrap();
    }

    #[test]
    fn a_peer_that_begins_no_exchange_is_not_late() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _silent = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let tally = Tally::default();
        let patience = Duration::from_millis(1);
        let timed = Timed::new(&stream, Instant::now(), patience);
        let mut timed = timed.counted(tally.clone());
        timed.pause(patience);
        let error = timed.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(tally.figures().late_total, 0);
        timed.allow(Duration::ZERO);
        assert!(timed.read(&mut [0]).is_err());
        assert_eq!(tally.figures().late_total, 1);
    }
}

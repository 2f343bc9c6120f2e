//! A child by fork keeps no session of its parent, whatever another thread does at the fork.
//!
//! Method: one thread opens a device and waits for the daemon's answer, with the session's lock held. The daemon's thread
//! forks meanwhile and then rejects the process, which closes the session's socket. The daemon sees the end of the
//! connection although the child lives. One test, because a process has one state.
#![allow(unsafe_code, missing_docs)]
#![allow(clippy::unwrap_used, clippy::undocumented_unsafe_blocks)]

mod null;

use isolane_rdma_session::message::{MESSAGE_MAX, ToShim};
use isolane_shim::exports;
use isolane_shim::process::{Process, install};
use isolane_shim::settings::{Settings, Talk};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind,
    listen, recv, send, socket_with,
};

/// A child by fork that lives until `stop` is closed.
struct Child {
    number: libc::pid_t,
    stop: Option<OwnedFd>,
}

impl Child {
    /// Returns when the child has run the handlers of `fork`. The child calls async-signal-safe functions only.
    fn new() -> Self {
        let (ready, is_ready) = rustix::pipe::pipe().unwrap();
        let (stopped, stop) = rustix::pipe::pipe().unwrap();
        let number = unsafe { libc::fork() };
        if number == 0 {
            let mut byte = [0u8];
            unsafe {
                libc::close(stop.as_raw_fd());
                libc::write(is_ready.as_raw_fd(), byte.as_ptr().cast(), 1);
                libc::read(stopped.as_raw_fd(), byte.as_mut_ptr().cast(), 1);
                libc::_exit(0);
            }
        }
        assert!(number > 0);
        drop(is_ready);
        let mut byte = [0u8];
        assert_eq!(rustix::io::read(&ready, &mut byte).unwrap(), 1);
        Self {
            number,
            stop: Some(stop),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.stop.take();
        let mut status = 0;
        unsafe { libc::waitpid(self.number, &raw mut status, 0) };
    }
}

fn clock() -> u64 {
    1
}

#[test]
fn a_child_forked_during_the_hello_keeps_no_socket() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        socket: folder.path().join("s"),
        talk: Talk::Off,
        answer_ms: 600_000,
        ..Settings::default()
    };
    let kind = SocketType::SEQPACKET;
    let listener = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(&settings.socket).unwrap()).unwrap();
    listen(&listener, 1).unwrap();
    install(Process::new(null::originals(), settings, clock));
    let (client, child) = std::thread::scope(|scope| {
        let daemon = scope.spawn(|| {
            let client = accept(&listener).unwrap();
            let mut bytes = [0u8; MESSAGE_MAX];
            recv(&client, &mut bytes[..], RecvFlags::empty()).unwrap();
            let child = Child::new();
            let reason = "not today".to_owned();
            let refused = ToShim::Refused { reason }.encode();
            send(&client, &refused, SendFlags::NOSIGNAL).unwrap();
            (client, child)
        });
        let context = unsafe { exports::ibv_open_device(null::device("null0")) };
        assert!(!context.is_null(), "it runs unpaced");
        daemon.join().unwrap()
    });
    let mut byte = [0u8];
    let end = recv(&client, &mut byte[..], RecvFlags::DONTWAIT);
    assert_eq!(end.map(|(count, _)| count), Ok(0), "the connection ended");
    drop(child);
}

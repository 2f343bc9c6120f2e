//! A daemon on a thread, and clients that behave like the shim or violate the protocol.
#![allow(dead_code, unreachable_pub, reason = "each test program uses its part")]

use isolane_common_quantities::units::BitRate;
use isolane_rdma_session::message::{Class, MESSAGE_MAX, ToDaemon, ToShim};
use isolane_rdma_session::region::{METER_ACTIVE, Region};
use isolaned::attachment::Attachment;
use isolaned::config::{Config, DeviceConfig};
use isolaned::governor::Governor;
use isolaned::server::{Server, now_ns};
use isolaned::snapshot::Snapshot;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recvmsg, send, socket_with, sockopt,
};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Upper bound of all waits, so a failed test ends.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// A closure that runs on the governor's thread.
type Question = Box<dyn FnOnce(u64, &mut Governor) + Send>;

/// Runs closures of the test on the governor's thread.
struct Probe {
    bell: OwnedFd,
    questions: Receiver<Question>,
}

impl Attachment for Probe {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }

    fn ready(&mut self, now_ns: u64, governor: &mut Governor) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.bell, &mut count);
        for question in self.questions.try_iter() {
            question(now_ns, governor);
        }
    }
}

/// A daemon.
pub struct Daemon {
    pub socket: PathBuf,
    _folder: tempfile::TempDir,
    stop: OwnedFd,
    bell: OwnedFd,
    questions: Sender<Question>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// One device of 8 Gb/s.
pub fn config() -> Config {
    Config {
        devices: vec![DeviceConfig {
            name: "rxe0".to_owned(),
            rate: Some(BitRate::from_gbps(8)),
            ..DeviceConfig::default()
        }],
        ..Config::default()
    }
}

impl Daemon {
    pub fn start(mut config: Config) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let socket = folder.path().join("run/isolaned.sock");
        config.socket.clone_from(&socket);
        let counter = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let (stop, bell) = (counter().expect("a counter"), counter().expect("a counter"));
        let copy = |file: &OwnedFd| file.try_clone().expect("a descriptor");
        let (stopped, rung) = (copy(&stop), copy(&bell));
        let (questions, answers) = channel();
        let (started, start) = channel();
        let thread = std::thread::spawn(move || {
            let rates = vec![BitRate::from_gbps(10); config.devices.len()];
            let governor = Governor::new(config, rates, now_ns()).expect("sensible options");
            let mut server = Server::new(governor, stopped).expect("a socket");
            let probe = Probe {
                bell: rung,
                questions: answers,
            };
            server
                .attach(Box::new(probe))
                .expect("a descriptor to watch");
            started.send(()).expect("the receiver waits");
            server.run().expect("it runs until the stop signal");
        });
        start.recv_timeout(PATIENCE).expect("it starts");
        Self {
            socket,
            _folder: folder,
            stop,
            bell,
            questions,
            thread: Some(thread),
        }
    }

    /// Runs a closure on the governor between two batches of events.
    pub fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(u64, &mut Governor) -> T + Send + 'static,
    ) -> T {
        let (sender, receiver) = channel();
        let question = move |now_ns: u64, governor: &mut Governor| {
            sender
                .send(question(now_ns, governor))
                .expect("the receiver waits");
        };
        self.questions
            .send(Box::new(question))
            .expect("the daemon runs");
        rustix::io::write(&self.bell, &1u64.to_ne_bytes()).expect("a bell");
        receiver.recv_timeout(PATIENCE).expect("the daemon answers")
    }

    pub fn snapshot(&self) -> Snapshot {
        self.ask(|now_ns, governor| governor.snapshot(now_ns))
    }

    pub fn sessions(&self) -> u64 {
        self.ask(|_, governor| governor.figures().sessions)
    }

    /// Waits until `count` sessions exist.
    pub fn wait_for_sessions(&self, count: u64) {
        wait_for(&format!("{count} sessions"), || self.sessions() == count);
    }

    pub fn stop(&mut self) {
        if let Some(thread) = self.thread.take() {
            rustix::io::write(&self.stop, &1u64.to_ne_bytes()).expect("a counter");
            thread.join().expect("it did not panic");
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "no {what} in {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether a daemon accepts connections at the socket.
pub fn listens(path: &Path) -> bool {
    let kind = SocketType::SEQPACKET;
    let socket =
        socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).expect("a socket");
    connect(&socket, &SocketAddrUnix::new(path).expect("a path")).is_ok()
}

/// A connection that can send any message.
pub struct Caller {
    pub socket: OwnedFd,
}

impl Caller {
    pub fn connect(path: &Path) -> Self {
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .expect("a socket");
        for which in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
            sockopt::set_socket_timeout(&socket, which, Some(PATIENCE)).expect("a timeout");
        }
        connect(&socket, &SocketAddrUnix::new(path).expect("a path")).expect("a daemon");
        Self { socket }
    }

    pub fn say(&self, bytes: &[u8]) {
        // The daemon may have closed the connection already.
        let _ = rustix::io::retry_on_intr(|| send(&self.socket, bytes, SendFlags::NOSIGNAL));
    }

    /// The next message with its descriptors; `None` at the end.
    pub fn hear(&self) -> Option<(ToShim, Vec<OwnedFd>)> {
        let mut buffer = [0u8; MESSAGE_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut was_reset = false;
        let length = loop {
            // Signals, such as a child's end in another test, interrupt a socket with a timeout.
            let message = rustix::io::retry_on_intr(|| {
                recvmsg(
                    &self.socket,
                    &mut [IoSliceMut::new(&mut buffer)],
                    &mut control,
                    RecvFlags::CMSG_CLOEXEC,
                )
            });
            match message {
                Ok(message) => break message.bytes,
                // If the daemon closes with unread messages of ours, the kernel reports a reset once, before the
                // daemon's last message.
                Err(rustix::io::Errno::CONNRESET) if !was_reset => was_reset = true,
                Err(rustix::io::Errno::CONNRESET) => break 0,
                Err(error) => panic!("the daemon does not answer: {error}"),
            }
        };
        if length == 0 {
            return None;
        }
        let files = control.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => files.collect::<Vec<_>>(),
            _ => Vec::new(),
        });
        let files = files.collect();
        let message = ToShim::decode(&buffer[..length]).expect("a message of ours");
        Some((message, files))
    }
}

/// The `Hello` message of a process.
pub fn hello(tenant: &str, class: Class, weight: u32) -> ToDaemon {
    ToDaemon::Hello {
        class,
        weight,
        tenant: tenant.to_owned(),
        program: "test".to_owned(),
    }
}

/// A process with a session.
pub struct Client {
    pub caller: Caller,
    pub region: Region,
    pub signal_counter: OwnedFd,
    pub session: u64,
    pub meters: [u16; 2],
}

impl Client {
    pub fn start(path: &Path, tenant: &str, class: Class) -> Self {
        Self::try_start(path, tenant, class, 1).unwrap_or_else(|reason| panic!("{reason}"))
    }

    pub fn try_start(path: &Path, tenant: &str, class: Class, weight: u32) -> Result<Self, String> {
        let caller = Caller::connect(path);
        caller.say(&hello(tenant, class, weight).encode());
        let (answer, files) = caller.hear().ok_or("closed without a word")?;
        let session = match answer {
            ToShim::Welcome { session, .. } => session,
            ToShim::Refused { reason } => return Err(reason),
            other => panic!("{other:?} to a greeting"),
        };
        let mut files = files.into_iter();
        let memory = files.next().expect("memory");
        let region = Region::map(&memory).expect("a region");
        let signal_counter = files.next().expect("a counter");
        let device = "rxe0".to_owned();
        caller.say(&ToDaemon::Open { device }.encode());
        let meters = loop {
            match caller.hear().ok_or("closed after the greeting")?.0 {
                ToShim::Opened {
                    outgoing,
                    remote_read,
                } => break [outgoing, remote_read],
                ToShim::Look => {}
                other => panic!("{other:?} to an open"),
            }
        };
        Ok(Self {
            caller,
            region,
            signal_counter,
            session,
            meters,
        })
    }

    pub fn meter(&self) -> &isolane_rdma_session::region::Meter {
        &self.region.meters[self.meters[0] as usize]
    }

    /// Sends until it has a sender's lease. One message would do, but a silent sender becomes idle again.
    pub fn send_until_active(&self) {
        wait_for("a lease", || {
            self.meter().passed_bytes.fetch_add(1, Ordering::Relaxed);
            self.signal();
            self.meter().lease().flags & METER_ACTIVE != 0
        });
    }

    pub fn signal(&self) {
        let _ = rustix::io::write(&self.signal_counter, &1u64.to_ne_bytes());
    }
}

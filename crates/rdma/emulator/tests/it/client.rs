//! A client that writes the protocol word by word, so that it can also write it wrongly.

use isolane_rdma_emulated_verbs::attributes::{Element, PairAttributes, Route, SendRequest};
use isolane_rdma_emulated_verbs::ring::{Entry, Ring};
use isolane_rdma_emulated_verbs::wire::{
    MESSAGE_MAX, PROBE, Reader, VERSION, Writer, op, pack, receive, send,
};
use isolane_rdma_emulator::faults::Chances;
use isolane_rdma_emulator::server::OPEN_TIME;
use isolane_rdma_emulator::{Broker, Settings};
use isolane_rdma_scenario::library::Library;
use isolane_rdma_verbs_sys::*;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// The device of all tests here: it has atomics, GIDs and short times.
pub(crate) const PROFILE: &str = "cx5-100g-roce";

static PROBE_WORD: u64 = PROBE;

/// A broker of two hosts in a directory of its own.
pub(crate) struct Place {
    broker: Option<Broker>,
    pub(crate) directory: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::with(OPEN_TIME, Chances::default())
    }

    pub(crate) fn with(open_time: Duration, chances: Chances) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let broker = Broker::start(Settings {
            profile: Library::embedded().profile(PROFILE).unwrap().clone(),
            hosts: 2,
            dilation: 1.0,
            seed: 1,
            paces: true,
            chances,
            socket: directory.path().join("s"),
            tree: directory.path().join("t"),
            open_time,
        });
        Self {
            broker: Some(broker.unwrap()),
            directory,
        }
    }

    pub(crate) fn socket(&self) -> &Path {
        self.broker.as_ref().unwrap().socket()
    }

    pub(crate) fn connect(&self) -> Client {
        let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        connect(&socket, &SocketAddrUnix::new(self.socket()).unwrap()).unwrap();
        Client { socket }
    }

    /// A client with the device of `host` open.
    pub(crate) fn open(&self, host: u64) -> Client {
        let client = self.connect();
        client.call(&open(host)).unwrap();
        client
    }

    pub(crate) fn stop(mut self) -> isolane_rdma_emulator::Summary {
        self.broker.take().unwrap().stop()
    }
}

/// The words that open a device.
pub(crate) fn open(host: u64) -> [u64; 4] {
    let probe = (&raw const PROBE_WORD).expose_provenance() as u64;
    [op::OPEN, VERSION, host, probe]
}

pub(crate) struct Client {
    pub(crate) socket: OwnedFd,
}

/// Why a call has no words: an `errno` value of the answer, or the connection's end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Errno(u64),
    Closed,
}

impl Client {
    pub(crate) fn send(&self, message: &Writer) {
        // The broker may have closed the connection; then reading the answer fails.
        let _ = send(&self.socket, message.bytes(), None, true);
    }

    /// The words of the answer without its error code, and the descriptor that came with it.
    pub(crate) fn answer(&self) -> Result<(Vec<u64>, Option<OwnedFd>), Refused> {
        let mut buffer = vec![0; MESSAGE_MAX];
        let (length, fd) = match receive(&self.socket, &mut buffer, true) {
            Ok((0, _)) | Err(Errno::CONNRESET) => return Err(Refused::Closed),
            other => other.unwrap(),
        };
        let mut reader = Reader::new(&buffer[..length]);
        let words: Vec<u64> = std::iter::from_fn(|| reader.word()).collect();
        match words[0] {
            0 => Ok((words[1..].to_vec(), fd)),
            errno => Err(Refused::Errno(errno)),
        }
    }

    pub(crate) fn call_with(
        &self,
        message: &Writer,
    ) -> Result<(Vec<u64>, Option<OwnedFd>), Refused> {
        self.send(message);
        self.answer()
    }

    pub(crate) fn call(&self, words: &[u64]) -> Result<Vec<u64>, Refused> {
        self.call_with(&Writer::of(words)).map(|(words, _)| words)
    }

    /// Whether the broker still answers this client. The request makes no object, so a test may wait by it.
    pub(crate) fn is_served(&self) -> bool {
        let answer = self.call(&[op::QUERY_SRQ, u64::from(u32::MAX)]);
        answer.unwrap_err() != Refused::Closed
    }
}

/// What a program has that uses one queue pair.
pub(crate) struct End {
    pub(crate) client: Client,
    pub(crate) host: u64,
    pub(crate) domain: u32,
    pub(crate) queue: u32,
    pub(crate) ring: Ring,
    pub(crate) pair: u32,
}

/// Entries of a completion queue, places of each queue of a pair.
const DEPTH: u32 = 16;

pub(crate) const ACCESS: u32 = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC;

impl End {
    /// A queue pair in the state RESET.
    pub(crate) fn new(place: &Place, host: u64, kind: u32) -> Self {
        let client = place.open(host);
        let domain = client.call(&[op::ALLOC_PD]).unwrap()[0] as u32;
        let words = [op::CREATE_CQ, pack(DEPTH, u32::MAX)];
        let (queue, file) = client.call_with(&Writer::of(&words)).unwrap();
        let queue = queue[0] as u32;
        let words = [
            op::CREATE_QP,
            pack(domain, kind),
            pack(queue, queue),
            pack(u32::MAX, 0),
            pack(DEPTH, DEPTH),
        ];
        let pair = client.call(&words).unwrap()[0] as u32;
        Self {
            client,
            host,
            domain,
            queue,
            ring: Ring::map(file.unwrap(), DEPTH).unwrap(),
            pair,
        }
    }

    fn modify(&self, mask: u32, wanted: &PairAttributes) {
        let mut message = Writer::of(&[op::MODIFY_QP, pack(self.pair, mask), 0]);
        wanted.write(&mut message);
        self.client.call_with(&message).unwrap();
    }

    /// Leads a reliable pair to the state RTS.
    pub(crate) fn connect(&self, other: &Self, rnr_retry: u32) {
        let wanted = PairAttributes {
            port: 1,
            access: ACCESS,
            path_mtu: 3,
            dest_qp_num: other.pair,
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 1,
            timeout: 1,
            retry_count: 1,
            rnr_retry,
            route: Route {
                is_global: true,
                dgid: gid(other.host),
                ..Route::default()
            },
            ..PairAttributes::default()
        };
        let steps = [
            (
                IBV_QPS_INIT,
                IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
            ),
            (
                IBV_QPS_RTR,
                IBV_QP_AV
                    | IBV_QP_PATH_MTU
                    | IBV_QP_DEST_QPN
                    | IBV_QP_RQ_PSN
                    | IBV_QP_MAX_DEST_RD_ATOMIC
                    | IBV_QP_MIN_RNR_TIMER,
            ),
            (
                IBV_QPS_RTS,
                IBV_QP_TIMEOUT
                    | IBV_QP_RETRY_CNT
                    | IBV_QP_RNR_RETRY
                    | IBV_QP_SQ_PSN
                    | IBV_QP_MAX_QP_RD_ATOMIC,
            ),
        ];
        for (state, mask) in steps {
            self.modify(IBV_QP_STATE | mask, &PairAttributes { state, ..wanted });
        }
    }

    /// Registers memory; its key.
    pub(crate) fn register(&self, memory: &[u64], access: u32) -> u32 {
        let addr = address(memory);
        let words = [
            op::REG_MR,
            pack(self.domain, access),
            addr,
            size_of_val(memory) as u64,
            addr,
        ];
        self.client.call(&words).unwrap()[0] as u32
    }

    pub(crate) fn post(&self, request: &SendRequest) {
        let mut message = Writer::of(&[op::POST_SEND, u64::from(self.pair), 1]);
        request.write(&mut message);
        self.client.send(&message);
    }

    pub(crate) fn post_receive(&self, wr_id: u64, element: Element) {
        let words = [
            op::POST_RECV,
            u64::from(self.pair),
            1,
            wr_id,
            1,
            element.addr,
            pack(element.length, element.lkey),
        ];
        self.client.send(&Writer::of(&words));
    }

    /// The next completion.
    pub(crate) fn completion(&self) -> Entry {
        loop {
            if let Some(entry) = self.ring.pop() {
                return entry;
            }
            // The broker answers in its next round, and a broker that has gone fails the test.
            assert!(self.client.is_served(), "the connection has ended");
        }
    }
}

/// Two ends of one connection on two hosts.
pub(crate) fn connected(place: &Place, rnr_retry: u32) -> (End, End) {
    connected_by(place, IBV_QPT_RC, rnr_retry)
}

/// The same by another transport.
pub(crate) fn connected_by(place: &Place, kind: u32, rnr_retry: u32) -> (End, End) {
    let ends = (End::new(place, 0, kind), End::new(place, 1, kind));
    ends.0.connect(&ends.1, rnr_retry);
    ends.1.connect(&ends.0, rnr_retry);
    ends
}

pub(crate) fn address(memory: &[u64]) -> u64 {
    memory.as_ptr().expose_provenance() as u64
}

/// The element that is all of `memory`.
pub(crate) fn element(memory: &[u64], lkey: u32) -> Element {
    Element {
        addr: address(memory),
        length: size_of_val(memory) as u32,
        lkey,
    }
}

/// The first GID of a host.
fn gid(host: u64) -> [u64; 2] {
    let profile = Library::embedded().profile(PROFILE).unwrap().clone();
    isolane_rdma_emulator::facts::of(&profile, host as u32).gids[0]
}

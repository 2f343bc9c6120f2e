//! Distributed applications by the traffic they make.
//!
//! Units: bytes, picoseconds.

use crate::model::{Host, Message, Transport, Verb};
use isolane_common_quantities::units::{BitRate, Bytes, Duration};
use serde::Serialize;

/// A distributed application.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ApplicationTraffic {
    /// Where it runs, at least two and each once; of a store the first is the server.
    pub hosts: Vec<Host>,
    /// What its processes do.
    pub program: Program,
    /// Verb of every message, WRITE or SEND.
    pub verb: Verb,
    /// Transport of every queue pair, RC or UD.
    pub transport: Transport,
    /// Largest payload inside a work request, bytes.
    pub inline_bytes: u32,
    /// Path MTU, bytes.
    pub mtu: u32,
}

impl ApplicationTraffic {
    /// The largest of its datagrams, bytes, if that is more than the MTU.
    pub(crate) fn datagram_too_large(&self) -> Option<u64> {
        let Program::KeyValue {
            request, response, ..
        } = &self.program
        else {
            return None;
        };
        let sizes = request.iter().chain(response);
        let largest = sizes.map(|message| message.bytes().get()).max()?;
        (self.transport == Transport::Ud && largest > u64::from(self.mtu)).then_some(largest)
    }
}

/// What an application's processes do.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Program {
    /// Workers add up a vector and all get the sum, again and again.
    Allreduce {
        /// Who sends to whom.
        algorithm: Algorithm,
        /// Workers on each host, at least 1.
        workers: u32,
        /// The vector of each worker.
        buffer: Bytes,
        /// How fast a core adds a received vector to its own.
        reduce_rate: BitRate,
        /// How fast a core hands a vector to a worker on its own host.
        copy_rate: BitRate,
    },
    /// Client threads send requests to servers, which answer each.
    KeyValue {
        /// Which hosts serve.
        servers: Servers,
        /// Threads on each client host.
        threads: u32,
        /// Threads of each server; client threads are dealt out to them in turn.
        server_threads: u32,
        /// Requests that one client thread has under way.
        window: u32,
        /// Requests that a client sends together; the next batch follows when all of them are answered. Divides `window`.
        batch: u32,
        /// Requests that a client may have on their way to one server thread; others wait at the client. `None`: no limit.
        credits: Option<u32>,
        /// Sizes of requests, in turn.
        request: Vec<Message>,
        /// Sizes of the answers to them.
        response: Vec<Message>,
        /// What one request costs a server thread, beyond taking and posting messages.
        service: Duration,
    },
}

/// The hosts that serve a store's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Servers {
    /// The first; clients run on the others.
    First,
    /// All, and clients run on all: a client's thread asks the hosts in turn, its own too, through the RNIC.
    All,
    /// All threads: each calls every other thread in turn, those of its own host too, through the RNIC.
    Others,
}

/// How an allreduce passes vectors on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// Parts of the vector go around a ring of all workers, twice.
    Ring,
    /// Whole vectors go up a binomial tree and back down.
    Tree,
}

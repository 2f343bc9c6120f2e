//! What every policy offers: events in, actions out, time as an argument.
//!
//! The simulator and the daemon drive a policy the same way:
//!
//! 1. report events to it: [`Policy::on_signal`], [`Policy::on_sent`], [`Policy::on_completion`];
//! 2. when the time [`Policy::poll_timeout`] named has come, call [`Policy::handle_timeout`];
//! 3. after either, take actions with [`Policy::poll_action`] until there are none, and perform them.
//!
//! A policy never performs anything itself. It holds no clock, and it allocates only when a flow joins.
//!
//! One policy instance serves one host. A *flow* is the unit that the operator isolates: a queue pair, an application
//! or a tenant (justitia 4, "granularity of control"); the caller maps queue pairs to flows.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![forbid(unsafe_code)]

pub mod chunking;
pub mod classify;
pub mod granularity;
pub mod hardware_priority;
pub mod harmonic;
pub mod isolane;
pub mod justitia;
pub mod leases;
pub mod lite;
mod pacing;
pub mod palos;

use isolane_common_quantities::units::{BitRate, Bytes, Duration, Instant};
use std::collections::BTreeMap;

/// A flow under control, dense from zero in order of joining.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u32);

/// What a flow needs (justitia 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlowClass {
    /// Few small messages; never paced.
    Latency,
    /// Many small messages; paced in batches of operations.
    Throughput,
    /// Large messages; split and paced in bytes.
    Bandwidth,
}

/// Which way a flow's payload goes, seen from this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// This host sends it (WRITE, SEND, atomics).
    Outgoing,
    /// This host requests it with READ: the data leaves the other host's NIC (justitia 4.5).
    RemoteRead,
}

/// How a flow joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSpec {
    /// The declared class; with `None` the policy classifies the flow.
    pub class: Option<FlowClass>,
    /// Relative weight, at least 1 and at most `pacing::Turns::WEIGHT_MAX`.
    pub weight: u32,
    /// Which way its payload goes.
    pub direction: Direction,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Signal {
    /// A flow appeared. Its id is the next unused one.
    Joined(FlowSpec),
    /// A flow or its process ended.
    Left(FlowId),
    /// What now waits for permission: everything ever posted less everything ever granted (or let go by a
    /// [`Action::Release`]). Work that a grant already covers does not count, whether or not it has been sent; after a grant the policy subtracts it
    /// by itself, so the caller reports only what the application changes.
    Backlog {
        /// Whose.
        flow: FlowId,
        /// Payload bytes waiting.
        bytes: Bytes,
        /// Messages waiting (after splitting, chunks do not count), or what they cost in a unit of the caller's.
        operations: u64,
    },
    /// A reference flow's message took this long (justitia 4.3.2).
    ReferenceLatency(Duration),
    /// The daemon at the other end reports how many flows share its NIC (justitia 4.5).
    Remote(RemoteState),
}

/// The report between daemons when an application arrives, leaves or becomes idle (justitia 4.5).
///
/// With several peers the caller hands over one sum of their latest reports (for `receiving_*`, the report of the
/// receiver with the most senders); with one peer, its report as it is. Weights are plain sums: the receiver counts
/// latency flows as one if so configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteState {
    /// Weight of the reporting host's resource-hungry flows that send.
    pub sending_hungry_weight: u64,
    /// Weight of the reporting host's latency flows that send.
    pub sending_latency_weight: u64,
    /// Weight of the reporting host's resource-hungry READs, whose data leaves the receiving host's NIC.
    pub reading_hungry_weight: u64,
    /// Weight of the reporting host's latency READs.
    pub reading_latency_weight: u64,
    /// Weight of resource-hungry flows that send to the reporting host, from all its peers: the fan-in.
    pub receiving_hungry_weight: u64,
    /// Weight of latency flows that send to the reporting host, from all its peers.
    pub receiving_latency_weight: u64,
    /// Rate that the reporting host grants to the READs of the report's receiver; zero while it knows of no READs.
    pub read_rate: BitRate,
}

impl RemoteState {
    /// A report with these weights, in the order of the fields.
    pub fn of(weights: [u64; 6], read_rate: BitRate) -> Self {
        Self {
            sending_hungry_weight: weights[0],
            sending_latency_weight: weights[1],
            reading_hungry_weight: weights[2],
            reading_latency_weight: weights[3],
            receiving_hungry_weight: weights[4],
            receiving_latency_weight: weights[5],
            read_rate,
        }
    }
}

/// Something the policy wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The flow may send this much more than granted before. Grants add up: where one ends inside a chunk, the
    /// chunk waits for the next.
    Grant {
        /// Who.
        flow: FlowId,
        /// Payload bytes.
        bytes: Bytes,
        /// Messages.
        operations: u64,
    },
    /// Split messages of bandwidth flows into chunks of this size from now on.
    ChunkSize(Bytes),
    /// From now on split messages of flows that are not paced too, and keep at most so many chunks of a queue pair
    /// in the NIC; messages that are not split are not counted.
    ChunksOutstanding(u32),
    /// The flow is not paced: post its work as it comes, beginning with what waits.
    Release(FlowId),
    /// The flow is paced from now on: hold its work until granted.
    Hold(FlowId),
    /// Send one message of the reference flow and report its latency.
    SendReference,
    /// Send a report to the other host's daemon.
    Tell(RemoteState),
    /// Let only so many of the flow's queue pairs have work in the NIC at a time, and each for at least one slice
    /// when it has its turn; the others wait.
    WorkingSet {
        /// Who.
        flow: FlowId,
        /// Queue pairs at a time.
        queue_pairs: u32,
        /// How long a queue pair keeps its place at least.
        slice: Duration,
    },
    /// Map the flow's queue pairs to this hardware priority queue (0 is the highest).
    UseQueue {
        /// Who.
        flow: FlowId,
        /// Queue number.
        queue: u8,
    },
}

/// One completed message, as the host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Whose.
    pub flow: FlowId,
    /// Its payload.
    pub bytes: Bytes,
    /// What it counted for in [`Signal::Backlog`]: one, or its cost.
    pub operations: u64,
    /// From post to completion.
    pub latency: Duration,
}

#[cfg(test)]
impl Completion {
    /// One message of `bytes` that took so many microseconds.
    fn one(flow: FlowId, bytes: u64, latency_us: u64) -> Self {
        Self {
            flow,
            bytes: Bytes::new(bytes),
            operations: 1,
            latency: Duration::from_us(latency_us),
        }
    }
}

/// A policy: pure, deterministic, driven by its caller.
pub trait Policy: Send {
    /// `flow` posted a message of `bytes` (before any splitting): food for classification.
    fn on_sent(&mut self, now: Instant, flow: FlowId, bytes: Bytes);
    /// A message of `flow` completed. Every message of [`Policy::on_sent`] completes once here, unsignalled
    /// ones with the signalled one that covers them.
    fn on_completion(&mut self, now: Instant, completion: &Completion);
    /// Something else happened.
    fn on_signal(&mut self, now: Instant, signal: &Signal);
    /// The time named by [`Policy::poll_timeout`] has come.
    fn handle_timeout(&mut self, now: Instant);
    /// When to call [`Policy::handle_timeout`] next, if ever.
    fn poll_timeout(&self) -> Option<Instant>;
    /// The next thing to do, until `None`.
    fn poll_action(&mut self) -> Option<Action>;
    /// Figures for metrics, reports and golden files; units end the names.
    fn snapshot(&self) -> BTreeMap<&'static str, f64>;
    /// The class the policy treats `flow` as now.
    fn class_of(&self, flow: FlowId) -> Option<FlowClass>;
}

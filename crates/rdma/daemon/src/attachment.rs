//! What the event loop waits for beside sessions: reference flows, peers, metrics, reload.
//!
//! An attachment has one file descriptor (an epoll if it has several) and one deadline. When either is due, the loop
//! calls the attachment with the [`Governor`]. An attachment never blocks.

use crate::governor::Governor;
use isolane_common_quantities::units::BitRate;
use isolane_rdma_policy::RemoteState;
use isolane_rdma_session::message::PortAddress;
use isolane_rdma_session::region::Service;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

/// Size of a reference message (justitia 4.3.2).
pub const REFERENCE_BYTES: u32 = 10;

/// A device of another daemon, or another device of this one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerId {
    /// Random number of its daemon.
    pub daemon: [u8; 16],
    /// Device name.
    pub device: String,
}

/// What a peer grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Who.
    pub peer: PeerId,
    /// Addresses of its port.
    pub ports: Vec<PortAddress>,
    /// The rate at which this host may READ from it; zero while it knows of no READs.
    pub rate: BitRate,
}

/// Weights of this host's READs, hungry ones and latency flows, by the peer that is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// READs that may be from any peer.
    pub unknown: [u64; 2],
    /// READs from each peer, including those that may be from any.
    pub by_peer: BTreeMap<PeerId, [u64; 2]>,
}

/// An action of the governor outside this host's sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Send one message of the device's reference flow; [`Governor::reference_latency`] takes the result.
    SendReference,
    /// Send the device's reference messages in this class: that of the latency flows.
    Serve(Service),
    /// Send this state to the other hosts' daemons; [`Governor::remote`] takes their states.
    Tell(RemoteState),
    /// Report these weights of READs, each to the peer that is read.
    TellReads(Reads),
}

/// A component that the event loop serves.
pub trait Attachment {
    /// Readable when [`Self::ready`] has work. The loop reads it once, at the start.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
    /// Latest time of the next call of [`Self::ready`], CLOCK_MONOTONIC, ns.
    fn deadline_ns(&self) -> Option<u64> {
        None
    }
    /// Called when the descriptor is readable or the deadline has passed.
    fn ready(&mut self, now_ns: u64, governor: &mut Governor);
    /// An order for the device at place `device` of the configuration. Attachments ignore orders of other kinds.
    fn order(&mut self, _now_ns: u64, _device: usize, _order: &Order) {}
    /// The daemon ends.
    fn close(&mut self) {}
}

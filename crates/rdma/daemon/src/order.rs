//! What the governor wants done outside this host's sessions, and what peers' daemons grant it.

use isolane_common_quantities::units::BitRate;
use isolane_rdma_policy::RemoteState;
use isolane_rdma_session::message::PortAddress;
use isolane_rdma_session::region::Service;
use std::collections::BTreeMap;

/// Size of a reference message (justitia 4.3.2).
pub const REFERENCE_BYTES: u32 = 10;

/// A device of another daemon, or another device of this one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerId {
    /// Random number of its daemon.
    pub daemon: [u8; 16],
    /// Name of the device in that daemon's configuration.
    pub device: String,
}

/// What a peer grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The device that grants.
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
    /// Send one message of the device's reference flow; `Governor::reference_latency` takes the result.
    SendReference,
    /// Send the device's reference messages in this class: that of the latency flows.
    Serve(Service),
    /// Send this state to the other hosts' daemons; `Governor::remote` takes their states.
    Tell(RemoteState),
    /// Report these weights of READs, each to the peer that is read.
    TellReads(Reads),
}

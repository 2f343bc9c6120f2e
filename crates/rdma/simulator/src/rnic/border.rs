//! The model's hosts behind an external network: their frames leave and return here.
//!
//! With a border the world has no cable and no switch of its own. A frame that has left its NIC's wire is handed out
//! ([`Leaf::leaving`]) with the time at which its last bit left; the owner of the network returns it when its last bit
//! has reached the other host ([`Leaf::arrive`]), marked or not. Pauses cross in both directions: a full receive buffer
//! pauses the network's port, and a full switch pauses the NIC. What the model does inside a host is untouched: the
//! same posts, fetches, caches, buses, buffers, rate limiters and policies.
//!
//! Both clocks advance in lock step: the owner takes the earlier of [`Leaf::next_time`] and its own next event. A frame
//! leaves no earlier than the event that sent it, so neither side ever gets an event in its past.
//!
//! Units: picoseconds, bytes on the wire. Limits: messages between daemons take the empty network's time and are never
//! delayed by traffic; a frame that the network loses is gone, and the model repeats nothing, so the network must be
//! lossless; all classes of the NIC's port are paused together.

mod leaf;

pub use leaf::Leaf;

use super::event::Event;
use isolane_common_quantities::units::Instant;
use std::collections::VecDeque;

/// A frame between two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Names it until it arrives.
    pub id: u32,
    /// The host it left.
    pub from: u8,
    /// The host it is for.
    pub to: u8,
    /// Bytes on the wire, headers included.
    pub bytes: u32,
    /// When its last bit left.
    pub leaves: Instant,
    /// Whether a switch may mark it: payload, and congestion control is on.
    pub marks: bool,
}

/// A host's NIC pauses or releases the network's port towards it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The host.
    pub host: u8,
    /// Stop, or go on.
    pub stop: bool,
    /// The time of the request.
    pub at: Instant,
}

/// What waits between the world and the network.
#[derive(Clone, Debug)]
pub(crate) struct Border {
    /// One-way time through the empty network, ps.
    way: u64,
    /// What each frame under way does when it arrives.
    events: Vec<Event>,
    free: Vec<u32>,
    leaving: VecDeque<Frame>,
    asks: VecDeque<Ask>,
}

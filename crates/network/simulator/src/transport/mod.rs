//! Transports: how a host turns messages into packets and back.
//!
//! A transport is one value for all hosts of a run, driven by the event loop ([`crate::run`]); it keeps the state of
//! sender and receiver apart by convention and exchanges packets only through the [`Network`]. It decides nothing about
//! classes: `rpc` has done that when it hands a message over.
//!
//! A message is complete for the caller when its last packet has been acknowledged (that is the end of its network
//! latency, thesis appendix B.1), and its latency begins when it was handed over.

pub mod channel;
pub mod congestion;
#[cfg(test)]
mod convergence;
pub mod d3;
#[cfg(test)]
mod deadline_tests;
pub mod flow;
#[cfg(test)]
mod harness;
pub mod homa;
pub mod parameters;
pub mod pdq;
pub mod pfabric;
pub mod qjump;

use crate::network::Network;
use crate::packet::{HostId, PacketId, Timer};
use isolane_common_quantities::units::{Bytes, Instant};

/// A message handed to a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The caller's number for it, given back in [`Ended`].
    pub token: u32,
    /// Sending host.
    pub from: HostId,
    /// Receiving host.
    pub to: HostId,
    /// Class in which it runs, 0 the highest.
    pub class: u8,
    /// Payload, at least 1.
    pub size: Bytes,
    /// Time by which it should be complete, for transports that know deadlines.
    pub deadline: Option<Instant>,
}

/// A message that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// [`Message::token`].
    pub token: u32,
    /// How.
    pub how: How,
}

/// How a message ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// All of it was acknowledged.
    Acknowledged,
    /// The transport gave it up (a deadline that cannot be met).
    Terminated,
}

/// A transport.
pub trait Transport {
    /// Takes a message. It may send packets at once.
    fn send(&mut self, network: &mut Network, message: Message);

    /// A packet reached the host it is for. The transport frees it ([`Network::free`]) or turns it into an answer.
    fn on_packet(&mut self, network: &mut Network, packet: PacketId, ended: &mut Vec<Ended>);

    /// A timer set with [`Network::set_timer`] by the transport is due. Timers cannot be taken back: a transport
    /// remembers what it waits for and ignores the others.
    fn on_timer(&mut self, network: &mut Network, timer: Timer, ended: &mut Vec<Ended>);

    /// The host's own port has nothing more to send, and the transport subscribed to this event
    /// ([`Network::tell_when_idle`]).
    fn on_idle(&mut self, _network: &mut Network, _host: HostId) {}

    /// Own figures of the run, by name with unit.
    fn figures(&self) -> Vec<(String, f64)> {
        Vec::new()
    }
}

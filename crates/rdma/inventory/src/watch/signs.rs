//! Counters whose rise shows congestion, loss or a slow host, and what the rise says.

use super::Sign;
use crate::counters::{Counter, Window};

/// The counters, the most serious first.
#[rustfmt::skip]
pub(super) const SIGNS: &[(Counter, &str)] = &[
    (Counter::WireErrors, "bad cable or transceiver"),
    (Counter::RxDrops, "the receive buffer overflowed: packets to this port were lost"),
    (Counter::TxDrops, "packets were dropped before they were sent"),
    (Counter::Timeouts, "acknowledgements did not arrive in time"),
    (Counter::Retransmits, "packets were sent again"),
    (Counter::SequenceNaks, "packets from this port were lost"),
    (Counter::OutOfSequence, "packets to this port were lost or reordered"),
    (Counter::DuplicateRequests, "peers sent requests again"),
    (Counter::RnrNaksSent, "a program here posts receives too slowly"),
    (Counter::RnrNaksReceived, "a peer posts receives too slowly"),
    (Counter::PcieReadStalls, "memory supplies data more slowly than the device reads it"),
    (Counter::PcieWriteStalls, "memory takes data more slowly than the device writes it"),
    (Counter::PausesSent, "this host receives more slowly than the link delivers"),
    (Counter::PriorityPausesSent, "this host receives more slowly than the link delivers"),
    (Counter::PausesReceived, "the switch or a peer slows this port"),
    (Counter::PriorityPausesReceived, "the switch or a peer slows this port"),
    (Counter::PauseSentUs, "this host receives more slowly than the link delivers"),
    (Counter::PauseReceivedUs, "the switch or a peer slows this port"),
    (Counter::TxWaitTicks, "data waited for credits of the link"),
    (Counter::CnpHandled, "the network is congested: flows of this port were slowed"),
    (Counter::CnpSent, "the network is congested: this port slows its senders"),
    (Counter::EcnMarked, "a switch queue on the way to this port was long"),
];

/// The signs in a port's window, the most serious first.
pub(super) fn found(device: &str, port: u32, window: Option<&Window>) -> Vec<Sign> {
    let Some(window) = window else {
        return Vec::new();
    };
    let rises = SIGNS.iter().filter_map(|(counter, meaning)| {
        let per_s = window.per_second(*counter).filter(|per_s| *per_s > 0.0)?;
        Some(Sign {
            device: device.to_owned(),
            port,
            counter: *counter,
            per_s,
            meaning,
        })
    });
    rises.collect()
}

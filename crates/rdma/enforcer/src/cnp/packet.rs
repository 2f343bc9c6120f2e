//! One congestion notification packet, byte for byte.
//!
//! Method: Ethernet, IPv4 or IPv6, UDP to port 4791, a base transport header with opcode 0x81 and the BECN bit, 16 bytes
//! of zeros, the invariant checksum. Everything that is not named is zero: sequence number, partition key's membership
//! aside. Building is pure and allocates nothing.
//!
//! Units: bytes in network order. Source: InfiniBand specification, annex 17, 17.9.3 (CNP format); RFC 791, 8200, 768.

use super::icrc;
use std::net::{Ipv4Addr, Ipv6Addr};

/// UDP port of RoCEv2.
pub(crate) const PORT: u16 = 4791;
/// Opcode of a congestion notification.
pub(crate) const OPCODE: u8 = 0x81;
/// Partition every port is a full member of.
const PARTITION: u16 = 0xffff;
/// BECN, second bit of the byte after the partition key.
const BECN: u8 = 0x40;
/// Explicit congestion notification, lower two bits of the type of service: not capable, as NICs send it.
const NOT_CAPABLE: u8 = 0;
const HOPS: u8 = 64;
const UDP_PROTOCOL: u8 = 17;

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
const TRANSPORT: usize = 12;
const RESERVED: usize = 16;
const CHECKSUM: usize = 4;
/// Bytes of a notification over IPv6, the longer one.
pub(crate) const LENGTH_MAX: usize = ETHERNET + IPV6 + UDP + TRANSPORT + RESERVED + CHECKSUM;

/// IP addresses of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Addresses {
    /// Over IPv4.
    V4 {
        /// Source: the peer of the flow.
        source: Ipv4Addr,
        /// Destination: the sender that has to slow down.
        destination: Ipv4Addr,
    },
    /// Over IPv6.
    V6 {
        /// Source: the peer of the flow.
        source: Ipv6Addr,
        /// Destination: the sender that has to slow down.
        destination: Ipv6Addr,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Notification {
    /// Source Ethernet address.
    pub source_hardware: [u8; 6],
    /// Destination Ethernet address: the RNIC.
    pub destination_hardware: [u8; 6],
    pub addresses: Addresses,
    /// UDP source port; constant per flow, otherwise arbitrary.
    pub source_port: u16,
    /// Queue pair that has to slow down; 24 bits.
    pub queue_pair: u32,
    /// Differentiated services code point of notifications on this network, 6 bits.
    pub code_point: u8,
}

/// The bytes of a notification's Ethernet frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    bytes: [u8; LENGTH_MAX],
    length: usize,
}

impl Frame {
    /// All bytes from the Ethernet header to the invariant checksum.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

struct Writer {
    bytes: [u8; LENGTH_MAX],
    at: usize,
}

impl Writer {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
}

impl Notification {
    /// The frame. Panics if the queue pair does not fit 24 bits or the code point 6: the caller has them from the
    /// kernel.
    pub(crate) fn frame(&self) -> Frame {
        assert!(self.queue_pair < 1 << 24, "queue pair {}", self.queue_pair);
        assert!(self.code_point < 1 << 6, "code point {}", self.code_point);
        let mut writer = Writer {
            bytes: [0; LENGTH_MAX],
            at: 0,
        };
        writer.put(&self.destination_hardware);
        writer.put(&self.source_hardware);
        let service = self.code_point << 2 | NOT_CAPABLE;
        let payload = (UDP + TRANSPORT + RESERVED + CHECKSUM) as u16;
        match self.addresses {
            Addresses::V4 {
                source,
                destination,
            } => {
                writer.put(&0x0800_u16.to_be_bytes());
                let start = writer.at;
                writer.put(&[0x45, service]);
                writer.put(&(IPV4 as u16 + payload).to_be_bytes());
                // No identification; do not fragment.
                writer.put(&[0, 0, 0x40, 0]);
                writer.put(&[HOPS, UDP_PROTOCOL, 0, 0]);
                writer.put(&source.octets());
                writer.put(&destination.octets());
                let sum = internet_checksum(&writer.bytes[start..start + IPV4]);
                writer.bytes[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
            }
            Addresses::V6 {
                source,
                destination,
            } => {
                writer.put(&0x86dd_u16.to_be_bytes());
                writer.put(&[0x60 | service >> 4, service << 4, 0, 0]);
                writer.put(&payload.to_be_bytes());
                writer.put(&[UDP_PROTOCOL, HOPS]);
                writer.put(&source.octets());
                writer.put(&destination.octets());
            }
        }
        writer.put(&self.source_port.to_be_bytes());
        writer.put(&PORT.to_be_bytes());
        // The UDP checksum is zero in RoCEv2, also over IPv6.
        writer.put(&payload.to_be_bytes());
        writer.put(&[0, 0]);
        writer.put(&[OPCODE, 0]);
        writer.put(&PARTITION.to_be_bytes());
        writer.put(&[BECN]);
        writer.put(&self.queue_pair.to_be_bytes()[1..]);
        writer.put(&[0; 4]);
        writer.put(&[0; RESERVED]);
        let sum = icrc::checksum(&writer.bytes[ETHERNET..writer.at])
            .expect("an IP header of ours in front");
        writer.put(&sum);
        Frame {
            bytes: writer.bytes,
            length: writer.at,
        }
    }
}

/// The ones' complement sum of RFC 1071.
fn internet_checksum(header: &[u8]) -> u16 {
    let sum: u32 = header
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests;

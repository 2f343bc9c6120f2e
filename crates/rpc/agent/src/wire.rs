//! What the BPF programs and this crate share, as bytes: the layout of `bpf/messages.h`.
//!
//! Limits: a record of another length is none of ours and is `None`.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Classes of the settings.
pub(crate) const CLASSES_MAX: usize = 8;
/// The class of ports without one.
pub(crate) const NO_CLASS: u8 = 255;
/// Destinations with probabilities in the kernel.
pub(crate) const DESTINATIONS_MAX: usize = 16_384;
/// Ports with a class of their own.
pub(crate) const PORTS_MAX: usize = 1_024;

/// `struct destination`.
pub(crate) type Destination = [u8; 20];
/// `struct probabilities`.
pub(crate) type Probabilities = [u64; CLASSES_MAX];

const AF_INET6: u8 = 10;
const MESSAGE_BYTES: usize = 56;
const ADMITTED: u8 = 1;
const GIVEN_UP: u8 = 2;
const DOWNGRADED: u8 = 4;
const TO_UNKNOWN: u8 = 8;

/// `struct settings`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KernelSettings {
    pub(crate) mode: u8,
    pub(crate) classes: u8,
    pub(crate) other_ports: u8,
    pub(crate) code_points: [u8; CLASSES_MAX],
}

impl KernelSettings {
    pub(crate) fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[0] = self.mode;
        bytes[1] = self.classes;
        bytes[2] = self.other_ports;
        bytes[8..].copy_from_slice(&self.code_points);
        bytes
    }
}

/// `struct message`: the end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) to: Destination,
    /// Class of the connection.
    pub(crate) class: u8,
    /// Whether the draw admitted it.
    pub(crate) admitted: bool,
    /// Whether it ran in the lowest class.
    pub(crate) downgraded: bool,
    /// Whether the kernel had no probabilities of its destination.
    pub(crate) to_unknown: bool,
    /// Whether the connection closed before every byte was acknowledged.
    pub(crate) given_up: bool,
    pub(crate) bytes: u64,
    /// A lower bound of the time until the last byte arrived; 0 without one.
    pub(crate) at_least_ns: u64,
    /// From the first packet to the acknowledgement of the last byte.
    pub(crate) whole_ns: u64,
    pub(crate) ended_ns: u64,
}

impl Message {
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; MESSAGE_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| {
            bytes
                .get(at..at + 8)?
                .try_into()
                .ok()
                .map(u64::from_ne_bytes)
        };
        let flags = bytes[21];
        Some(Self {
            to: *bytes.first_chunk()?,
            class: bytes[20],
            admitted: flags & ADMITTED != 0,
            downgraded: flags & DOWNGRADED != 0,
            to_unknown: flags & TO_UNKNOWN != 0,
            given_up: flags & GIVEN_UP != 0,
            bytes: word(24)?,
            at_least_ns: word(32)?,
            whole_ns: word(40)?,
            ended_ns: word(48)?,
        })
    }
}

/// `struct counts`, summed over processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Connections that are measured.
    pub(crate) connections: u64,
    /// Connections left alone, because their program had marked them.
    pub(crate) marked_by_program: u64,
    /// Connections left alone, because their port has no class.
    pub(crate) without_class: u64,
    /// Connections left alone, because they are of IPv4 and their socket is one of IPv6.
    pub(crate) mapped: u64,
    /// Measured connections with the congestion control BBR.
    pub(crate) bbr: u64,
    /// Messages lost because this program was late, or whose end was not seen.
    pub(crate) lost: u64,
    /// Code points that the kernel did not set.
    pub(crate) refused: u64,
    /// Messages whose first packet had the code point of its class behind the kernel's filters.
    pub(crate) packets_marked: u64,
    /// Messages whose first packet had another one.
    pub(crate) packets_other: u64,
}

/// The words of `struct counts`.
pub(crate) type CountWords = [u64; 9];

impl Counts {
    /// Adds the words of one processor.
    pub(crate) fn add(&mut self, words: &CountWords) {
        let fields = [
            &mut self.connections,
            &mut self.marked_by_program,
            &mut self.without_class,
            &mut self.mapped,
            &mut self.bbr,
            &mut self.lost,
            &mut self.refused,
            &mut self.packets_marked,
            &mut self.packets_other,
        ];
        for (field, word) in fields.into_iter().zip(words) {
            *field += word;
        }
    }
}

/// Writes the name of a destination into `name`: address and port, or the address alone for peers of a port of this host.
pub(crate) fn write_name(to: &Destination, name: &mut String) {
    name.clear();
    let port = u16::from_ne_bytes([to[16], to[17]]);
    let four = [to[0], to[1], to[2], to[3]];
    let address: IpAddr = match to[18] {
        AF_INET6 => {
            let (address, _) = to.split_first_chunk().expect("a destination has 20 bytes");
            Ipv6Addr::from(*address).to_canonical()
        }
        _ => Ipv4Addr::from(four).into(),
    };
    let written = match (address, port) {
        (address, 0) => write!(name, "{address}"),
        (IpAddr::V4(address), port) => write!(name, "{address}:{port}"),
        (IpAddr::V6(address), port) => write!(name, "[{address}]:{port}"),
    };
    written.expect("a string grows");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADER: &str = include_str!("../bpf/messages.h");

    proptest! {
        #[test]
        fn any_record_is_read_or_not_ours(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let message = Message::read(&bytes);
            prop_assert_eq!(message.is_some(), bytes.len() == MESSAGE_BYTES);
            if let Some(message) = message {
                let mut name = String::new();
                write_name(&message.to, &mut name);
                prop_assert!(!name.is_empty());
            }
        }
    }

    #[test]
    fn limits_are_those_of_the_programs() {
        let has = |text: String| assert!(HEADER.contains(&text), "{text}");
        has(format!("#define CLASSES_MAX {CLASSES_MAX}\n"));
        has(format!("#define NO_CLASS {NO_CLASS}\n"));
        has(format!("#define DESTINATIONS_MAX {DESTINATIONS_MAX}\n"));
        has(format!("#define PORTS_MAX {PORTS_MAX}\n"));
        has(format!(
            "MESSAGE_ADMITTED = {ADMITTED}, MESSAGE_GIVEN_UP = {GIVEN_UP}, MESSAGE_DOWNGRADED = {DOWNGRADED}, MESSAGE_TO_UNKNOWN = {TO_UNKNOWN} "
        ));
    }

    #[test]
    fn a_destination_is_named_as_the_libraries_name_it() {
        let name = |address: &[u8], port: u16, family: u8| {
            let mut to = [0; 20];
            to[..address.len()].copy_from_slice(address);
            to[16..18].copy_from_slice(&port.to_ne_bytes());
            to[18] = family;
            let mut name = "old".to_owned();
            write_name(&to, &mut name);
            name
        };
        assert_eq!(name(&[10, 0, 0, 2], 443, 2), "10.0.0.2:443");
        assert_eq!(name(&[10, 0, 0, 2], 0, 2), "10.0.0.2");
        let mut six = [0; 16];
        six[15] = 1;
        assert_eq!(name(&six, 443, AF_INET6), "[::1]:443");
        // A socket of IPv6 that talks IPv4.
        six[10..].copy_from_slice(&[255, 255, 10, 0, 0, 2]);
        assert_eq!(name(&six, 443, AF_INET6), "10.0.0.2:443");
    }
}

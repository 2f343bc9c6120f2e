//! The packets of a run as a pcap file that Wireshark and tshark open.
//!
//! Problem: network engineers examine packets with packet tools such as Wireshark. Method: as each packet begins to
//! leave a host's port (or the one selected port), its headers are written with simulated time in nanoseconds:
//! Ethernet, IPv4 and UDP made up from the simulator's fields, then twelve bytes of its own: kind (0 data, 1
//! acknowledgement, 2 negative acknowledgement, 3 congestion notification, 4 request, 5 grant), class, flags, hops,
//! flow (4 bytes), sequence number (4 bytes), big-endian. DSCP is the traffic class, ECN shows marks, host h is
//! 10.x.y.z with x.y.z = h + 1, the UDP source port follows the flow. Payload is not written: the recorded length is
//! short of the real one, as in any capture with a snap length. Limits: times are cut to nanoseconds; after a number of
//! packets the rest is only counted. A packet shorter than these headers is shown with their length.

use crate::inputs::bad;
use crate::output;
use crate::text::counted;
use anyhow::{Context, Result, bail};
use isolane_common_quantities::units::Instant;
use isolane_network_scenario::model::FabricScenario;
use isolane_network_simulator::network::{Tap, TapMoment};
use isolane_network_simulator::packet::{Packet, PacketKind, flags};
use isolane_network_simulator::topology::{PortId, Topology};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const UDP: usize = 8;
const OWN: usize = 12;
/// Bytes written of each packet.
const CAPTURED: usize = ETHERNET + IPV4 + UDP + OWN;
/// pcap with nanoseconds, version 2.4, Ethernet.
const MAGIC: u32 = 0xa1b2_3c4d;
/// Port that packets go to: of no assigned protocol, so that no tool guesses at their payload.
const UDP_PORT: u16 = 47_900;
const PS_PER_NS: u64 = 1_000;
const NS_PER_S: u64 = 1_000_000_000;

/// A trace under way.
#[derive(Debug)]
pub(crate) struct Trace {
    path: PathBuf,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    out: BufWriter<File>,
    /// Hosts, whose ports come first.
    hosts: u32,
    port: Option<PortId>,
    most: u64,
    written: u64,
    seen: u64,
    failed: Option<io::Error>,
}

/// The end of the trace that the network holds.
#[derive(Debug)]
struct Eye(Arc<Mutex<State>>);

/// Begins a trace of `scenario` in `path`: of what all hosts send, or of the port called `port`.
pub(crate) fn open(
    path: &Path,
    scenario: &FabricScenario,
    port: Option<&str>,
    most: u64,
) -> Result<Trace> {
    let topology = Topology::new(&scenario.topology);
    let port = match port {
        None => None,
        Some(name) => Some(port_named(&topology, name)?),
    };
    if let Some(directory) = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        output::make_directory(directory)?;
    }
    output::check_file(path)?;
    let file = File::create(path).with_context(|| {
        format!(
            "cannot write {}; free space or choose another place",
            path.display()
        )
    })?;
    let mut out = BufWriter::new(file);
    out.write_all(&file_header())
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Trace {
        path: path.to_owned(),
        state: Arc::new(Mutex::new(State {
            out,
            hosts: topology.hosts,
            port,
            most,
            written: 0,
            seen: 0,
            failed: None,
        })),
    })
}

fn port_named(topology: &Topology, name: &str) -> Result<PortId> {
    let ports = || (0..topology.ports.len() as u32).map(PortId);
    if let Some(port) = ports().find(|&port| topology.port_name(port) == name) {
        return Ok(port);
    }
    let near = ports()
        .map(|port| topology.port_name(port))
        .max_by(|a, b| strsim::jaro_winkler(a, name).total_cmp(&strsim::jaro_winkler(b, name)))
        .unwrap_or_default();
    bail!(bad(format!(
        "--trace-port {name}: the network has no such port; did you mean {near}?"
    )))
}

impl Trace {
    pub(crate) fn tap(&self) -> Box<dyn Tap> {
        Box::new(Eye(Arc::clone(&self.state)))
    }

    /// Ends the file; says what is in it.
    pub(crate) fn finish(self) -> Result<String> {
        let mut state = self.state.lock().expect("no run panics with the lock");
        let path = self.path.display();
        if let Some(error) = state.failed.take() {
            return Err(error).with_context(|| format!("cannot write {path}; free space"));
        }
        state
            .out
            .flush()
            .with_context(|| format!("cannot write {path}; free space"))?;
        Ok(match state.seen - state.written {
            0 => format!("wrote {path}: {}", counted(state.written, "packet")),
            more => format!(
                "wrote {path}: the first {}; {more} more not written (--trace-packets sets how many)",
                counted(state.written, "packet")
            ),
        })
    }
}

impl Tap for Eye {
    fn saw(&mut self, at: Instant, port: PortId, moment: TapMoment, packet: &Packet) {
        let mut state = self.0.lock().expect("no run panics with the lock");
        let wanted = match state.port {
            Some(wanted) => port == wanted,
            None => port.0 < state.hosts,
        };
        if !wanted || !matches!(moment, TapMoment::Left) {
            return;
        }
        state.seen += 1;
        if state.written == state.most || state.failed.is_some() {
            return;
        }
        state.written += 1;
        let written = state.out.write_all(&record(at, packet));
        state.failed = written.err();
    }
}

fn file_header() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(24);
    bytes.extend(MAGIC.to_le_bytes());
    bytes.extend(2u16.to_le_bytes());
    bytes.extend(4u16.to_le_bytes());
    bytes.extend([0; 8]);
    bytes.extend((CAPTURED as u32).to_le_bytes());
    bytes.extend(1u32.to_le_bytes());
    bytes
}

/// One packet with its pcap header.
fn record(at: Instant, packet: &Packet) -> Vec<u8> {
    let least = (IPV4 + UDP + OWN) as u16;
    let length = packet.bytes.max(least);
    let ns = at.as_ps() / PS_PER_NS;
    let mut bytes = Vec::with_capacity(16 + CAPTURED);
    bytes.extend(((ns / NS_PER_S) as u32).to_le_bytes());
    bytes.extend(((ns % NS_PER_S) as u32).to_le_bytes());
    bytes.extend((CAPTURED as u32).to_le_bytes());
    bytes.extend((ETHERNET as u32 + u32::from(length)).to_le_bytes());
    // Locally administered addresses, the host's number at their end.
    for host in [packet.to.0, packet.from.0] {
        bytes.extend([2, 0, 0, 0]);
        bytes.extend(host.to_be_bytes());
    }
    bytes.extend([0x08, 0x00]);
    bytes.extend(ipv4(packet, length));
    let source = 49_152 + (packet.flow % 16_384) as u16;
    bytes.extend(source.to_be_bytes());
    bytes.extend(UDP_PORT.to_be_bytes());
    bytes.extend((length - IPV4 as u16).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend([
        kind_number(packet.kind),
        packet.class,
        packet.flags,
        packet.hops,
    ]);
    bytes.extend(packet.flow.to_be_bytes());
    bytes.extend(packet.sequence.to_be_bytes());
    bytes
}

fn ipv4(packet: &Packet, length: u16) -> [u8; IPV4] {
    let mut header = [0u8; IPV4];
    header[0] = 0x45;
    header[1] = packet.class << 2 | ecn(packet.flags);
    header[2..4].copy_from_slice(&length.to_be_bytes());
    header[4..6].copy_from_slice(&(packet.sequence as u16).to_be_bytes());
    header[6] = 0x40;
    header[8] = 64u8.saturating_sub(packet.hops);
    header[9] = 17;
    header[12..16].copy_from_slice(&address(packet.from.0));
    header[16..20].copy_from_slice(&address(packet.to.0));
    let mut sum: u32 = header
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    header[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    header
}

/// Not capable, ECT(0), or congestion experienced.
fn ecn(bits: u8) -> u8 {
    match (bits & flags::MARKED != 0, bits & flags::ECN_CAPABLE != 0) {
        (true, _) => 3,
        (false, true) => 2,
        (false, false) => 0,
    }
}

fn address(host: u16) -> [u8; 4] {
    let [_, high, middle, low] = (u32::from(host) + 1).to_be_bytes();
    [10, high, middle, low]
}

fn kind_number(kind: PacketKind) -> u8 {
    match kind {
        PacketKind::Data => 0,
        PacketKind::Ack => 1,
        PacketKind::Nack => 2,
        PacketKind::Cnp => 3,
        PacketKind::Request => 4,
        PacketKind::Grant => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_network_simulator::packet::{HostId, NIL};

    fn packet() -> Packet {
        Packet {
            sent_at: Instant::ZERO,
            key: 0,
            extra: 0,
            tag: 0,
            sequence: 7,
            expected: 0,
            flow: 3,
            next: NIL,
            to: HostId(300),
            from: HostId(0),
            ingress: 0,
            path: 0,
            bytes: 5_120,
            payload: 5_080,
            class: 2,
            kind: PacketKind::Data,
            flags: flags::ECN_CAPABLE | flags::MARKED,
            hops: 1,
        }
    }

    #[test]
    fn a_record_has_the_headers_that_tools_read() {
        let bytes = record(Instant::from_ps(3_000_000_456_789), &packet());
        assert_eq!(bytes.len(), 16 + CAPTURED);
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((word(0), word(4)), (3, 456));
        assert_eq!((word(8), word(12)), (CAPTURED as u32, 14 + 5_120));
        let ip = &bytes[30..50];
        assert_eq!((ip[0], ip[1] >> 2, ip[1] & 3), (0x45, 2, 3));
        assert_eq!(&ip[12..20], [10, 0, 0, 1, 10, 0, 1, 45]);
        // A header whose checksum is right sums to ones.
        let sum: u32 = ip
            .chunks(2)
            .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
            .sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        let udp = &bytes[50..58];
        assert_eq!(u16::from_be_bytes([udp[4], udp[5]]), 5_100);
        assert_eq!(&bytes[58..], [0, 2, 3, 1, 0, 0, 0, 3, 0, 0, 0, 7]);
    }

    #[test]
    fn a_packet_shorter_than_the_headers_has_their_length() {
        let short = Packet {
            bytes: 20,
            ..packet()
        };
        let bytes = record(Instant::ZERO, &short);
        assert_eq!(u16::from_be_bytes([bytes[32], bytes[33]]), 40);
        assert_eq!(file_header().len(), 24);
    }
}

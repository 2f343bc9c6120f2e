//! A captured frame as a TCP segment with its DSCP.
//!
//! Method: `etherparse` reads the headers with lax lengths, because captures may cut packets. Link types: Ethernet with
//! VLAN tags, raw IP, Linux "any" (SLL, SLL2) and loopback.
//! Limits: fragments of IP, tunnels and UDP are no segments.

use core::net::{IpAddr, SocketAddr};
use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_parser::Linktype;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'a> {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) dscp: u8,
    /// Number of the payload's first byte.
    pub(crate) sequence: u32,
    pub(crate) syn: bool,
    pub(crate) ack: bool,
    pub(crate) finish: bool,
    pub(crate) reset: bool,
    pub(crate) payload: &'a [u8],
    /// Payload on the wire that was not captured, bytes.
    pub(crate) missing: usize,
}

/// The segment in a frame of link type `link`; `wire` is the frame's length on the wire.
pub(crate) fn segment(link: Linktype, frame: &[u8], wire: usize) -> Option<Segment<'_>> {
    let packet = sliced(link, frame)?;
    let (source, target, dscp, claimed) = match packet.net.as_ref()? {
        LaxNetSlice::Ipv4(ip) => {
            let header = ip.header();
            if header.is_fragmenting_payload() {
                return None;
            }
            let claimed =
                usize::from(header.total_len()).checked_sub(usize::from(header.ihl()) * 4);
            let from = IpAddr::V4(header.source_addr());
            let to = IpAddr::V4(header.destination_addr());
            (from, to, header.dcp().value(), claimed)
        }
        LaxNetSlice::Ipv6(ip) => {
            let header = ip.header();
            let claimed = usize::from(header.payload_length());
            let from = IpAddr::V6(header.source_addr());
            let to = IpAddr::V6(header.destination_addr());
            (from, to, header.dscp().value(), Some(claimed))
        }
        LaxNetSlice::Arp(_) => return None,
    };
    let Some(TransportSlice::Tcp(tcp)) = packet.transport.as_ref() else {
        return None;
    };
    let payload = tcp.payload();
    // Packets of segmentation offload may have no length in their header; then all that is on the wire counts.
    let cut = wire.saturating_sub(frame.len());
    let header = usize::from(tcp.data_offset()) * 4;
    let missing = match claimed {
        Some(claimed) if claimed > header && cut > 0 => {
            (claimed - header).saturating_sub(payload.len()).min(cut)
        }
        Some(0) | None => cut,
        Some(_) => 0,
    };
    Some(Segment {
        from: SocketAddr::new(source, tcp.source_port()),
        to: SocketAddr::new(target, tcp.destination_port()),
        dscp,
        sequence: tcp.sequence_number(),
        syn: tcp.syn(),
        ack: tcp.ack(),
        finish: tcp.fin(),
        reset: tcp.rst(),
        payload,
        missing,
    })
}

fn sliced(link: Linktype, frame: &[u8]) -> Option<LaxSlicedPacket<'_>> {
    let typed = |at: usize, header: usize| {
        let kind = u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?);
        let rest = frame.get(header..)?;
        Some(LaxSlicedPacket::from_ether_type(EtherType(kind), rest))
    };
    match link {
        Linktype::ETHERNET => LaxSlicedPacket::from_ethernet(frame).ok(),
        Linktype::RAW | Linktype::IPV4 | Linktype::IPV6 | RAW_ELSEWHERE => {
            LaxSlicedPacket::from_ip(frame).ok()
        }
        Linktype::LINUX_SLL => typed(14, 16),
        Linktype::LINUX_SLL2 => typed(0, 20),
        Linktype::NULL | Linktype::LOOP => LaxSlicedPacket::from_ip(frame.get(4..)?).ok(),
        _ => None,
    }
}

/// Raw IP as some systems number it.
const RAW_ELSEWHERE: Linktype = Linktype(12);

//! Performing what the policy of segment sizes decides: the device's limit, and the sockets' knowledge of it.
//!
//! Problem: a TCP socket copies the device's limit when it takes a route, so a new limit means nothing to sockets that
//! have one; the device then cuts their segments in software, packet by packet, which costs more than it helps.
//! Method: after the limit is set, every cached route of the namespace is made stale, and each socket looks up its
//! route again with its next segment. IPv4 has a switch for that (`net.ipv4.route.flush`). IPv6 has none: there the
//! limit reaches a socket when its route changes, so a host route to an address that nobody has is added below each of
//! the device's routes and removed again, which renews the serial numbers that cached routes are compared with.
//! Units: bytes with headers. Limits: sockets of other namespaces that send through the device (veth into a container)
//! have routes of their own and keep their size; the device cuts theirs.
//! Source: titan 4.3; the kernel's `sk_setup_caps`, `ip6_dst_check`.

use crate::error::NicError;
use crate::link::{Route, Sizes};
use crate::system::System;
use isolane_core::units::Bytes;
use isolane_host::HostError;
use isolane_host::netlink::{Attributes, AttributesBuilder, Request};

const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_PRIORITY: u16 = 6;
const AF_INET6: u8 = 10;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_STATIC: u8 = 4;
const RTN_UNICAST: u8 = 1;
const RTN_UNREACHABLE: u8 = 7;
/// `struct rtmsg`: family, lengths of destination and source, TOS, table, protocol, scope, type, flags.
const HEADER_BYTES: usize = 12;
const HOST_BITS: u8 = 128;
/// Last among routes to the same place.
const PRIORITY: u32 = 0x7fff_ffff;

/// What a size means for both address families: no family gets more than it had.
pub fn sizes(before: Sizes, size: Bytes) -> Sizes {
    let size = u32::try_from(size.get()).unwrap_or(u32::MAX);
    Sizes {
        general: before.general.min(size),
        ipv4: before.ipv4.map(|ipv4| ipv4.min(size)),
    }
}

/// Sets the limit of device `index` and lets sockets know.
///
/// # Errors
/// The kernel's.
pub fn set(system: &System, route: &mut Route, index: u32, sizes: Sizes) -> Result<(), NicError> {
    route.set_sizes(index, sizes)?;
    forget_routes(system, route, index)
}

/// Makes sockets look up their routes again.
///
/// # Errors
/// The kernel's.
pub fn forget_routes(system: &System, route: &mut Route, index: u32) -> Result<(), NicError> {
    system.proc().write("sys/net/ipv4/route/flush", "1")?;
    for (destination, length) in routes(route, index)? {
        let host = unused(destination, length);
        let action = "renew the IPv6 routes of the device";
        match route.ask(action, &host_route(RTM_NEWROUTE, host), |_, _| {}) {
            Ok(()) => route.ask(action, &host_route(RTM_DELROUTE, host), |_, _| {})?,
            // Somebody has that address after all, or IPv6 is off.
            Err(NicError::Host(HostError::Kernel { .. } | HostError::NotOffered { .. })) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Destinations of the device's unicast routes in the main table, with their length.
fn routes(route: &mut Route, index: u32) -> Result<Vec<([u8; 16], u8)>, NicError> {
    let mut payload = vec![0; HEADER_BYTES];
    payload[0] = AF_INET6;
    let request = Request {
        kind: RTM_GETROUTE,
        dump: true,
        create: false,
        payload,
    };
    let mut found = Vec::new();
    let asked = route.ask("list IPv6 routes", &request, |kind, payload| {
        found.extend(
            (kind == RTM_NEWROUTE)
                .then(|| parse(payload, index))
                .flatten(),
        );
    });
    match asked {
        Ok(()) | Err(NicError::Host(HostError::NotOffered { .. })) => Ok(found),
        Err(error) => Err(error),
    }
}

fn parse(payload: &[u8], index: u32) -> Option<([u8; 16], u8)> {
    let header = payload.get(..HEADER_BYTES)?;
    let attributes = Attributes::new(&payload[HEADER_BYTES..]);
    let ours = header[0] == AF_INET6
        && header[4] == RT_TABLE_MAIN
        && header[7] == RTN_UNICAST
        && attributes.u32(RTA_OIF) == Some(index);
    let destination = match attributes.bytes(RTA_DST) {
        Some(bytes) => bytes.try_into().ok()?,
        None => [0; 16],
    };
    // A host route has no room below it.
    (ours && header[1] < HOST_BITS).then_some((destination, header[1]))
}

/// An address below `destination` that no host is given: the discard prefix for the default route, else all ones, which
/// is a reserved anycast address in subnets.
fn unused(destination: [u8; 16], length: u8) -> [u8; 16] {
    const DISCARD: [u8; 16] = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x15];
    if length == 0 {
        return DISCARD;
    }
    let mut host = destination;
    for bit in usize::from(length)..usize::from(HOST_BITS) {
        host[bit / 8] |= 0x80 >> (bit % 8);
    }
    host
}

fn host_route(kind: u16, host: [u8; 16]) -> Request {
    let attributes = AttributesBuilder::new()
        .with(RTA_DST, &host)
        .with_u32(RTA_PRIORITY, PRIORITY);
    let mut payload = vec![
        AF_INET6,
        HOST_BITS,
        0,
        0,
        RT_TABLE_MAIN,
        RTPROT_STATIC,
        0,
        RTN_UNREACHABLE,
    ];
    payload.extend([0; 4]);
    payload.extend(attributes.bytes());
    Request {
        kind,
        dump: false,
        create: kind == RTM_NEWROUTE,
        payload,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    #[test]
    fn nobody_gets_larger_segments_than_before() {
        let before = Sizes {
            general: 65_536,
            ipv4: Some(8_192),
        };
        assert_eq!(
            sizes(before, Bytes::from_kib(16)),
            Sizes {
                general: 16_384,
                ipv4: Some(8_192)
            }
        );
    }

    #[test]
    fn the_unused_address_lies_below_its_route() {
        let below = |text: &str, length| {
            Ipv6Addr::from(unused(text.parse::<Ipv6Addr>().unwrap().octets(), length)).to_string()
        };
        assert_eq!(
            below("2001:db8:1::", 64),
            "2001:db8:1:0:ffff:ffff:ffff:ffff"
        );
        assert_eq!(
            below("fe80::", 10),
            "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
        );
        assert_eq!(below("2001:db8::4", 127), "2001:db8::5");
        assert_eq!(below("::", 0), "100::15");
    }
}

//! Applies segment sizes: sets the device's limit, and makes sockets use it.
//!
//! Problem: a TCP socket copies the device's limit when it takes a route, so a new limit does not affect existing
//! sockets. The device then splits their segments in software, packet by packet, which costs more than it helps.
//! Method: after the limit is set, every cached route of the namespace is invalidated, and each socket looks up its
//! route again with its next segment. IPv4 has a switch for that (`net.ipv4.route.flush`). IPv6 has none: there a
//! socket sees the limit when its route changes. Beside each of the device's routes, a route of the same prefix with
//! the worst metric is added and removed again; no packet uses it. This renews the serial number that cached routes of
//! that prefix, and of the prefixes above it, are compared with. It does not reach other prefixes, so one route is not
//! enough. Our routes have their own protocol number; the next change of sizes, or undo, removes a route that a kill
//! left behind. Units: bytes with headers. Limits: sockets of other namespaces that send through the device (veth into
//! a container) have their own routes and keep their size; the device splits their segments. The same holds for IPv6
//! prefixes beyond the `PREFIXES_MAX` widest, until their sockets look up their routes. Source: titan 4.3; the kernel's
//! `sk_setup_caps`, `ip6_dst_check`, `fib6_add`.

use crate::error::NicError;
use crate::link::{Route, Sizes};
use crate::system::System;
use isolane_common_linux::HostError;
use isolane_common_linux::netlink::{Attributes, AttributesBuilder, Request};
use isolane_common_quantities::units::Bytes;

const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_PRIORITY: u16 = 6;
const AF_INET6: u8 = 10;
const RT_TABLE_MAIN: u8 = 254;
/// Protocol number of our routes; no routing program uses it.
const PROTOCOL: u8 = 219;
const RTN_UNICAST: u8 = 1;
const RTN_UNREACHABLE: u8 = 7;
/// `struct rtmsg`: family, lengths of destination and source, TOS, table, protocol, scope, type, flags.
const HEADER_BYTES: usize = 12;
/// Metric that sorts last among routes to the same place.
const PRIORITY: u32 = u32::MAX - 1;
/// Most prefixes whose routes are renewed: a router may have a million, and each takes two requests.
const PREFIXES_MAX: usize = 64;

/// A destination and its length in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Prefix {
    length: u8,
    destination: [u8; 16],
}

/// A relevant route of the main table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Device(Prefix),
    /// A route of ours, left by a kill.
    Left(Prefix),
}

/// A size for both address families; no family gets more than it had.
pub fn sizes(before: Sizes, size: Bytes) -> Sizes {
    let size = u32::try_from(size.get()).unwrap_or(u32::MAX);
    Sizes {
        general: before.general.min(size),
        ipv4: before.ipv4.map(|ipv4| ipv4.min(size)),
    }
}

/// Sets the limit of the device with that index and invalidates cached routes.
pub fn set(system: &System, route: &mut Route, index: u32, sizes: Sizes) -> Result<(), NicError> {
    route.set_sizes(index, sizes)?;
    forget_routes(system, route, index)
}

/// Makes sockets look up their routes again.
pub fn forget_routes(system: &System, route: &mut Route, index: u32) -> Result<(), NicError> {
    system.proc().write("sys/net/ipv4/route/flush", "1")?;
    let found = routes(route, index)?;
    for prefix in &found {
        if let Found::Left(prefix) = prefix {
            remove(route, *prefix)?;
        }
    }
    for prefix in chosen(&found) {
        match route.ask(ACTION, &worst_route(RTM_NEWROUTE, prefix), |_, _| {}) {
            Ok(()) => remove(route, prefix)?,
            // The route exists, just left by another attachment, or IPv6 is off.
            Err(NicError::Host(HostError::Kernel { .. } | HostError::NotOffered { .. })) => {
                // The route is already gone.
                let _ = remove(route, prefix);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

const ACTION: &str = "renew the IPv6 routes of the device";

fn remove(route: &mut Route, prefix: Prefix) -> Result<(), NicError> {
    route.ask(ACTION, &worst_route(RTM_DELROUTE, prefix), |_, _| {})
}

/// The device's prefixes, each once, widest first, because these serve most sockets.
fn chosen(found: &[Found]) -> Vec<Prefix> {
    let device = |found: &Found| match found {
        Found::Device(prefix) => Some(*prefix),
        Found::Left(_) => None,
    };
    let mut prefixes: Vec<Prefix> = found.iter().filter_map(device).collect();
    prefixes.sort_unstable();
    prefixes.dedup();
    prefixes.truncate(PREFIXES_MAX);
    prefixes
}

/// The device's unicast routes in the main table, and our routes.
fn routes(route: &mut Route, index: u32) -> Result<Vec<Found>, NicError> {
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

fn parse(payload: &[u8], index: u32) -> Option<Found> {
    let header = payload.get(..HEADER_BYTES)?;
    let attributes = Attributes::new(&payload[HEADER_BYTES..]);
    let destination = match attributes.bytes(RTA_DST) {
        Some(bytes) => bytes.try_into().ok()?,
        None => [0; 16],
    };
    let prefix = Prefix {
        length: header[1],
        destination,
    };
    if header[0] != AF_INET6 || header[4] != RT_TABLE_MAIN {
        return None;
    }
    match (header[5], header[7]) {
        (PROTOCOL, RTN_UNREACHABLE) => Some(Found::Left(prefix)),
        (_, RTN_UNICAST) if attributes.u32(RTA_OIF) == Some(index) => Some(Found::Device(prefix)),
        _ => None,
    }
}

/// An unreachable route to a prefix with the worst metric.
fn worst_route(kind: u16, prefix: Prefix) -> Request {
    let attributes = AttributesBuilder::new()
        .with(RTA_DST, &prefix.destination)
        .with_u32(RTA_PRIORITY, PRIORITY);
    let mut payload = vec![
        AF_INET6,
        prefix.length,
        0,
        0,
        RT_TABLE_MAIN,
        PROTOCOL,
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

    #[test]
    fn no_flow_gets_larger_segments_than_before() {
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

    fn prefix(destination: [u8; 16], length: u8) -> Prefix {
        Prefix {
            length,
            destination,
        }
    }

    #[test]
    fn routes_are_the_devices_or_left_behind() {
        let to = prefix([0x20; 16], 127);
        let mut ours = worst_route(RTM_NEWROUTE, to).payload;
        assert_eq!(parse(&ours, 7), Some(Found::Left(to)));
        ours[5] = 3;
        assert_eq!(parse(&ours, 7), None, "an administrator's");
        ours[7] = RTN_UNICAST;
        ours.extend(AttributesBuilder::new().with_u32(RTA_OIF, 7).bytes());
        assert_eq!(parse(&ours, 7), Some(Found::Device(to)));
        assert_eq!(parse(&ours, 8), None);
        assert_eq!(parse(&ours[..8], 7), None);
    }

    #[test]
    fn the_widest_prefixes_are_renewed_each_once_and_not_too_many() {
        let routes = |count: u8| (0..count).map(|byte| Found::Device(prefix([byte; 16], 127)));
        let default = [Found::Device(prefix([0; 16], 0)); 2];
        let found: Vec<Found> = routes(200).chain(default).collect();
        let chosen = chosen(&found);
        assert_eq!((chosen.len(), chosen[0].length), (PREFIXES_MAX, 0));
        assert_eq!(chosen[1], prefix([0; 16], 127));
    }
}

//! Socket addresses: which emulated host one means, and which address a host has.

use crate::attributes::DeviceFacts;
use libc::{AF_INET, AF_INET6, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The IPv4 address of host `host`.
pub fn of_host(host: u32) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, host as u8 + 1)
}

/// What an address means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Every host.
    Any,
    /// The host that connects.
    Loopback,
    /// The members of a multicast group, which the emulator does not have.
    Group,
    /// This host.
    Host(u32),
    /// None of the emulated hosts.
    Unknown,
}

/// What `address` means among these devices.
pub fn meaning(address: IpAddr, devices: &[DeviceFacts]) -> Meaning {
    let address = address.to_canonical();
    if address.is_unspecified() {
        return Meaning::Any;
    }
    if address.is_loopback() {
        return Meaning::Loopback;
    }
    if address.is_multicast() {
        return Meaning::Group;
    }
    let is_at = |device: &&DeviceFacts| match address {
        IpAddr::V4(address) => address == of_host(device.host),
        IpAddr::V6(address) => device
            .gids
            .iter()
            .any(|gid| octets(gid) == address.octets()),
    };
    let found = devices.iter().find(is_at);
    found.map_or(Meaning::Unknown, |device| Meaning::Host(device.host))
}

fn octets(gid: &[u64; 2]) -> [u8; 16] {
    let mut octets = [0; 16];
    octets[..8].copy_from_slice(&gid[0].to_ne_bytes());
    octets[8..].copy_from_slice(&gid[1].to_ne_bytes());
    octets
}

/// The address and port at `address`; `None` for a null pointer or another family.
///
/// # Safety
/// `address` is null or a socket address of the length that its family has.
pub unsafe fn read(address: *const sockaddr) -> Option<(IpAddr, u16)> {
    if address.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe {
        match c_int_of((*address).sa_family) {
            AF_INET => {
                let found = address.cast::<sockaddr_in>().read_unaligned();
                let octets = found.sin_addr.s_addr.to_ne_bytes();
                Some((Ipv4Addr::from(octets).into(), u16::from_be(found.sin_port)))
            }
            AF_INET6 => {
                let found = address.cast::<sockaddr_in6>().read_unaligned();
                let octets = found.sin6_addr.s6_addr;
                Some((Ipv6Addr::from(octets).into(), u16::from_be(found.sin6_port)))
            }
            _ => None,
        }
    }
}

fn c_int_of(family: libc::sa_family_t) -> libc::c_int {
    libc::c_int::from(family)
}

/// Writes an address and a port.
pub fn write(target: &mut sockaddr_storage, address: IpAddr, port: u16) {
    let place: *mut sockaddr_storage = target;
    // SAFETY: zero is a value of each of these structures, and the storage has room and alignment for both.
    unsafe {
        match address {
            IpAddr::V4(address) => {
                let mut found: sockaddr_in = std::mem::zeroed();
                found.sin_family = AF_INET as libc::sa_family_t;
                found.sin_port = port.to_be();
                found.sin_addr.s_addr = u32::from_ne_bytes(address.octets());
                place.cast::<sockaddr_in>().write(found);
            }
            IpAddr::V6(address) => {
                let mut found: sockaddr_in6 = std::mem::zeroed();
                found.sin6_family = AF_INET6 as libc::sa_family_t;
                found.sin6_port = port.to_be();
                found.sin6_addr.s6_addr = address.octets();
                place.cast::<sockaddr_in6>().write(found);
            }
        }
    }
}

/// Bytes of a socket address of `address`'s family.
pub const fn length(address: IpAddr) -> usize {
    match address {
        IpAddr::V4(_) => size_of::<sockaddr_in>(),
        IpAddr::V6(_) => size_of::<sockaddr_in6>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_reads_back_as_written() {
        // SAFETY: zero is a value of the structure.
        let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
        for text in ["10.77.0.2", "fe80::1"] {
            let address: IpAddr = text.parse().unwrap();
            write(&mut storage, address, 7471);
            // SAFETY: a whole address is there.
            let found = unsafe { read((&raw const storage).cast()) };
            assert_eq!(found, Some((address, 7471)));
        }
        // SAFETY: a null pointer is permitted.
        assert_eq!(unsafe { read(std::ptr::null()) }, None);
    }

    #[test]
    fn an_address_means_a_host() {
        let device = |host: u32| DeviceFacts {
            host,
            gids: [[
                u64::from_ne_bytes([0xfe, 0x80, 0, 0, 0, 0, 0, 0]),
                u64::from_be(host.into()),
            ]; 4],
            ..DeviceFacts::default()
        };
        let devices = [device(0), device(1)];
        for (text, want) in [
            ("10.77.0.2", Meaning::Host(1)),
            ("::ffff:10.77.0.1", Meaning::Host(0)),
            ("fe80::1", Meaning::Host(1)),
            ("127.0.0.1", Meaning::Loopback),
            ("::1", Meaning::Loopback),
            ("0.0.0.0", Meaning::Any),
            ("::", Meaning::Any),
            ("224.1.1.1", Meaning::Group),
            ("10.77.0.3", Meaning::Unknown),
        ] {
            assert_eq!(meaning(text.parse().unwrap(), &devices), want, "{text}");
        }
    }
}

//! The invariant checksum of InfiniBand packets over Ethernet.
//!
//! Method: the CRC of Ethernet (polynomial 0x04C11DB7, reflected, all ones before and inverted after) over eight bytes of
//! ones where an InfiniBand route header would be, the IP header, the UDP header, and everything up to the checksum
//! itself; with ones in place of every field that a router may change: IPv4 type of service, time to live and header
//! checksum; IPv6 traffic class, flow label and hop limit; the UDP checksum; and the byte of the transport header with
//! the congestion bits. It goes onto the wire least significant byte first.
//!
//! Source: InfiniBand specification, 7.8.1 and annex 17, 17.7. Limits: IPv4 without options, as RoCE sends it.

/// The CRC of Ethernet, a byte at a time.
const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 {
                value >> 1 ^ POLYNOMIAL
            } else {
                value >> 1
            };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
}

#[derive(Clone, Copy, Debug)]
struct Crc(u32);

impl Crc {
    const fn byte(&mut self, byte: u8) {
        self.0 = self.0 >> 8 ^ TABLE[(self.0 as u8 ^ byte) as usize];
    }
}

/// Bytes of the headers before the transport's.
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
/// Bytes of ones where a route header would be.
const ROUTE: usize = 8;
/// Byte of the transport header with FECN and BECN.
const CONGESTION: usize = 4;

/// The checksum of `packet`, in wire byte order. The packet begins with its IP header and ends before the checksum.
/// Returns `None` for any other bytes.
pub(crate) fn checksum(packet: &[u8]) -> Option<[u8; 4]> {
    let internet = match packet.first()? >> 4 {
        4 if packet[0] & 15 == 5 => IPV4,
        6 => IPV6,
        _ => return None,
    };
    if packet.len() < internet + UDP + CONGESTION + 1 {
        return None;
    }
    let mut crc = Crc(u32::MAX);
    for _ in 0..ROUTE {
        crc.byte(0xff);
    }
    for (at, &byte) in packet.iter().enumerate() {
        crc.byte(byte | masked(internet, at));
    }
    Some((!crc.0).to_le_bytes())
}

/// Returns the header with ones in the bits that routers may change.
const fn masked(internet: usize, at: usize) -> u8 {
    let changes = if at >= internet {
        let transport = internet + UDP;
        at == internet + 6 || at == internet + 7 || at == transport + CONGESTION
    } else if internet == IPV4 {
        matches!(at, 1 | 8 | 10 | 11)
    } else {
        matches!(at, 1..=3 | 7)
    };
    match (internet, at) {
        // The upper half of the first byte is the version, the lower half the start of the traffic class.
        (IPV6, 0) => 0x0f,
        _ if changes => 0xff,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The standard check value of this CRC.
    #[test]
    fn the_table_is_that_of_ethernet() {
        let mut crc = Crc(u32::MAX);
        b"123456789".iter().for_each(|&byte| crc.byte(byte));
        assert_eq!(!crc.0, 0xcbf4_3926);
    }

    /// Packets captured from Linux's rdma_rxe: `tests/data/README.md`.
    #[test]
    fn packets_of_another_sender_have_this_checksum() {
        let mut checked = 0;
        for line in include_str!("../../tests/data/rxe.hex").lines() {
            let bytes: Vec<u8> = (0..line.len() / 2)
                .map(|index| u8::from_str_radix(&line[2 * index..2 * index + 2], 16).unwrap())
                .collect();
            let (packet, sum) = bytes.split_at(bytes.len() - 4);
            assert_eq!(checksum(packet).unwrap(), sum, "{line}");
            checked += 1;
        }
        assert!(checked >= 6, "{checked} packets");
    }

    #[test]
    fn what_a_router_changes_does_not_matter() {
        let mut packet = [7; 60];
        packet[0] = 0x45;
        let before = checksum(&packet);
        for at in [1, 8, 10, 11, 26, 27, 32] {
            packet[at] ^= 0x5a;
            assert_eq!(checksum(&packet), before, "byte {at}");
        }
        packet[12] ^= 1;
        assert_ne!(checksum(&packet), before);
    }

    #[test]
    fn no_length_reads_beyond_its_end() {
        for length in 0..80 {
            for first in [0x45, 0x46, 0x60, 0x00] {
                let mut packet = vec![0; length];
                if let Some(byte) = packet.first_mut() {
                    *byte = first;
                }
                let _ = checksum(&packet);
            }
        }
    }
}

//! In which order the TCP packets of a device leave it.
//!
//! Problem: a receiver's counters of packets out of order also count reordering that the receiver itself causes. Behind
//! veth each processor receives what it has sent itself, so two packets of one queue that two processors sent one after
//! the other may change places there, with or without our programs. Method: a packet socket sees each packet when its
//! handing over begins. TCP sends new bytes without a gap, so a packet that begins behind the end of what a connection
//! has sent has overtaken another; bytes seen before are sent again. Limits: what the socket missed is an error; IPv4
//! and IPv6 without extension headers, Ethernet without tags.

use super::{check, ifindex, packet_socket};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Room for what waits to be looked at, in bytes of kernel memory.
const ROOM: i32 = 512 << 20;
/// Link, network and transport headers.
const HEADERS: usize = 14 + 60 + 20;

/// What left, until now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Departures {
    /// Packets of TCP.
    packets: u64,
    /// Packets that overtook an earlier one of their connection.
    overtaken: u64,
    ends: BTreeMap<Vec<u8>, u32>,
}

impl Departures {
    /// Runs `work` and looks at what leaves `device` meanwhile.
    pub(crate) fn during(device: &str, work: impl FnOnce()) -> Self {
        let socket = packet_socket();
        bind(&socket, device).expect("bind to the device");
        set_room(&socket).expect("room for packets");
        let mut seen = Self::default();
        // Connections that began before are judged from their first packet on.
        while receive(&socket).is_some() {}
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let looking = scope.spawn(|| {
                loop {
                    let last = stop.load(Relaxed);
                    while let Some((packet, outgoing)) = receive(&socket) {
                        if outgoing {
                            seen.look(&packet);
                        }
                    }
                    if last {
                        return;
                    }
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            });
            work();
            stop.store(true, Relaxed);
            looking.join().expect("it only looks");
        });
        assert_eq!(missed(&socket).expect("its counters"), 0, "packets missed");
        seen
    }

    /// Fails where a packet overtook another.
    pub(crate) fn check_order(&self) {
        let connections = self.ends.len();
        assert!(connections > 0 && self.packets > 100, "{self:?}");
        assert_eq!(self.overtaken, 0, "of {} packets", self.packets);
    }

    fn look(&mut self, frame: &[u8]) {
        let Some(packet) = Segment::of(frame) else {
            return;
        };
        self.packets += 1;
        let after = packet.sequence.wrapping_add(packet.length);
        let end = self
            .ends
            .entry(packet.connection)
            .or_insert(packet.sequence);
        // Half of the numbers are ahead.
        if packet.sequence.wrapping_sub(*end).cast_signed() > 0 {
            self.overtaken += 1;
        }
        if after.wrapping_sub(*end).cast_signed() > 0 {
            *end = after;
        }
    }
}

/// A packet of a TCP connection: which, and what of its numbers it takes.
struct Segment {
    connection: Vec<u8>,
    sequence: u32,
    length: u32,
}

impl Segment {
    fn of(frame: &[u8]) -> Option<Self> {
        let network = frame.get(14..)?;
        let word = |bytes: &[u8], at: usize| {
            let pair = bytes.get(at..at + 2)?;
            Some(usize::from(u16::from_be_bytes([pair[0], pair[1]])))
        };
        let (header, length, protocol, addresses) = match network.first()? >> 4 {
            4 => {
                let header = usize::from(network[0] & 15) * 4;
                (header, word(network, 2)?, *network.get(9)?, 12..20)
            }
            6 => (40, word(network, 4)? + 40, *network.get(6)?, 8..40),
            _ => return None,
        };
        if protocol != 6 {
            return None;
        }
        let transport = network.get(header..)?;
        let mut connection = network.get(addresses)?.to_vec();
        connection.extend(transport.get(..4)?);
        let sequence = u32::from_be_bytes(transport.get(4..8)?.try_into().ok()?);
        let flags = transport.get(13)?;
        // The first and the last packet count for one byte more: SYN is bit 1, FIN bit 0.
        let marks = u32::from(flags & 1) + u32::from(flags >> 1 & 1);
        let data = length.checked_sub(header + usize::from(transport.get(12)? >> 4) * 4)?;
        Some(Self {
            connection,
            sequence,
            length: data as u32 + marks,
        })
    }
}

fn bind(socket: &OwnedFd, device: &str) -> io::Result<()> {
    // SAFETY: all zero is a valid address; filled below.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = ifindex(device) as i32;
    let bytes = size_of::<libc::sockaddr_ll>() as u32;
    // SAFETY: pointer and length belong together.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), bytes) })
}

fn set_room(socket: &OwnedFd) -> io::Result<()> {
    let (level, option) = (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE);
    let room = ROOM;
    let value: *const i32 = &raw const room;
    // SAFETY: pointer and length belong together.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value.cast(), 4) })
}

/// The next packet's headers and whether it goes out.
fn receive(socket: &OwnedFd) -> Option<(Vec<u8>, bool)> {
    let mut packet = vec![0; HEADERS];
    // SAFETY: all zero is a valid address; the kernel fills it.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<libc::sockaddr_ll>() as u32;
    // SAFETY: pointers and lengths belong together.
    let received = unsafe {
        libc::recvfrom(
            socket.as_raw_fd(),
            packet.as_mut_ptr().cast(),
            packet.len(),
            libc::MSG_DONTWAIT,
            (&raw mut address).cast(),
            &raw mut bytes,
        )
    };
    packet.truncate(usize::try_from(received).ok()?);
    Some((packet, address.sll_pkttype == libc::PACKET_OUTGOING))
}

/// Packets for which there was no room.
fn missed(socket: &OwnedFd) -> io::Result<u32> {
    let mut counts = [0_u32; 2];
    let mut bytes = size_of_val(&counts) as u32;
    // SAFETY: pointer and length belong together.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            counts.as_mut_ptr().cast(),
            &raw mut bytes,
        )
    })?;
    Ok(counts[1])
}

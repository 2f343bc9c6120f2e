//! Frames as the kernel hands them to a card: an IP packet with a note on segmentation and checksum before it.
//!
//! Problem: a TSO frame of up to 64 KiB is one TCP segment to the stack and many packets on the wire. The card has to know
//! how many and how long, and to make each of them, or any run of them as one smaller TSO frame.
//! Method: the note (the "vnet header" of virtio, native byte order) is trusted only as far as the packet bears it out:
//! everything is checked against the bytes once, in [`Frame::parse`]; afterwards nothing can be out of bounds.
//! A run of packets has the sequence number, length and IP identification of its first packet; FIN and PSH stay with the
//! last packet of the frame, CWR with its first. Its TCP checksum is left to the receiver (the sum over the pseudo header
//! only, as the kernel does between machines of one host) or completed.
//! Units: bytes from the start of the IP header.
//! Limits: TCP over IPv4 or IPv6 is segmented, without IPv6 extension headers; what is no such frame passes as it is.
//! Source: virtio 1.2, 5.1.6; RFC 791, 8200, 9293, 1071; RFC 3168 6.1.2 for CWR.

use crate::checksum::{Sum, store};
use std::ops::Range;

/// Bytes of the note before each packet.
pub const NOTE_BYTES: usize = 10;

/// The checksum is left to do.
const NEEDS_CHECKSUM: u8 = 1;
const SEGMENT_NONE: u8 = 0;
const SEGMENT_TCP4: u8 = 1;
const SEGMENT_TCP6: u8 = 4;
/// The first packet carries CWR.
const SEGMENT_ECN: u8 = 0x80;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;
/// Flags that only the last packet of a frame carries.
const LAST_FLAGS: u8 = FIN | PSH;

/// The note before a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// What is known of the checksum.
    pub flags: u8,
    /// What kind of segment it is.
    pub segmentation: u8,
    /// Length of all headers; a hint.
    pub header_bytes: u16,
    /// Payload of each packet but the last.
    pub segment_bytes: u16,
    /// Where the bytes to sum begin.
    pub checksum_start: u16,
    /// Where the sum goes, from there.
    pub checksum_offset: u16,
}

impl Note {
    /// Reads it.
    pub fn parse(bytes: [u8; NOTE_BYTES]) -> Self {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Self {
            flags: bytes[0],
            segmentation: bytes[1],
            header_bytes: word(2),
            segment_bytes: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
        }
    }

    /// Writes it.
    pub fn bytes(self) -> [u8; NOTE_BYTES] {
        let mut bytes = [self.flags, self.segmentation, 0, 0, 0, 0, 0, 0, 0, 0];
        let words = [
            self.header_bytes,
            self.segment_bytes,
            self.checksum_start,
            self.checksum_offset,
        ];
        for (index, word) in words.into_iter().enumerate() {
            bytes[2 + 2 * index..4 + 2 * index].copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Whether the checksum is left to do.
    pub fn needs_checksum(self) -> bool {
        self.flags & NEEDS_CHECKSUM != 0
    }
}

/// Sender and receiver. IPv4 addresses fill the first four bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// Sender.
    pub source: [u8; 16],
    /// Receiver.
    pub destination: [u8; 16],
    /// Ports of sender and receiver; the identifier twice of an ICMP echo; zero where there are none.
    pub ports: [u16; 2],
    /// IP protocol.
    pub protocol: u8,
}

impl FlowKey {
    /// The same conversation in the other direction.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            ports: [self.ports[1], self.ports[0]],
            protocol: self.protocol,
        }
    }

    /// Whether it is TCP.
    pub fn is_tcp(self) -> bool {
        self.protocol == TCP
    }
}

/// Why a frame was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum Malformed {
    #[error("truncated: the headers state more bytes than there are")]
    Short,
    /// Neither IPv4 nor IPv6, or a header length below the least.
    #[error("no IP header")]
    NoIp,
    #[error("the note on segmentation or checksum does not fit the packet")]
    Note,
}

/// A frame that was checked against its bytes; the default is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Its flow.
    pub key: FlowKey,
    /// All bytes.
    pub length: usize,
    /// IP and transport headers; zero where it is passed as it is.
    pub header: usize,
    /// Payload of each packet but the last; zero where it is passed as it is.
    segment: usize,
    transport: usize,
    is_v6: bool,
    /// Of TCP.
    sequence: u32,
    note: Note,
}

impl Frame {
    /// Checks `bytes` and its `note`. Fails if the bytes are no IP packet, or the note does not fit them.
    pub fn parse(note: Note, bytes: &[u8]) -> Result<Self, Malformed> {
        let network = Network::parse(bytes)?;
        let bytes = &bytes[..network.length];
        let transport = network.transport;
        let mut frame = Self {
            key: network.key,
            length: network.length,
            header: 0,
            segment: 0,
            transport,
            is_v6: network.is_v6,
            sequence: 0,
            note,
        };
        let rest = &bytes[transport..];
        match frame.key.protocol {
            TCP if !network.is_fragment => frame.parse_tcp(rest)?,
            UDP if !network.is_fragment && rest.len() >= 8 => frame.key.ports = ports(rest),
            ICMP | ICMP6 if !network.is_fragment && rest.len() >= 8 => {
                let identifier = u16::from_be_bytes([rest[4], rest[5]]);
                frame.key.ports = [identifier; 2];
            }
            _ => {}
        }
        frame.check_note()?;
        Ok(frame)
    }

    fn parse_tcp(&mut self, rest: &[u8]) -> Result<(), Malformed> {
        let offset = *rest.get(12).ok_or(Malformed::Short)?;
        let header = usize::from(offset >> 4) * 4;
        if header < 20 || header > rest.len() {
            return Err(Malformed::Short);
        }
        self.key.ports = ports(rest);
        self.sequence = u32::from_be_bytes([rest[4], rest[5], rest[6], rest[7]]);
        self.header = self.transport + header;
        let kind = self.note.segmentation & !SEGMENT_ECN;
        self.segment = match kind {
            SEGMENT_NONE => self.payload(),
            _ => usize::from(self.note.segment_bytes),
        };
        Ok(())
    }

    fn check_note(&self) -> Result<(), Malformed> {
        if self.note.needs_checksum() {
            let at = usize::from(self.note.checksum_start) + usize::from(self.note.checksum_offset);
            if at + 2 > self.length {
                return Err(Malformed::Note);
            }
        }
        let is_tcp = self.header > 0;
        let sums_tcp = usize::from(self.note.checksum_start) == self.transport
            && self.note.checksum_offset == 16;
        if is_tcp && self.note.needs_checksum() && !sums_tcp {
            return Err(Malformed::Note);
        }
        let kind = self.note.segmentation & !SEGMENT_ECN;
        if kind != SEGMENT_NONE && !self.note.needs_checksum() {
            return Err(Malformed::Note);
        }
        let fits = match kind {
            SEGMENT_NONE => true,
            SEGMENT_TCP4 => is_tcp && !self.is_v6,
            SEGMENT_TCP6 => is_tcp && self.is_v6,
            _ => false,
        };
        if !fits || (kind != SEGMENT_NONE && (self.segment == 0 || self.payload() == 0)) {
            return Err(Malformed::Note);
        }
        Ok(())
    }

    /// Bytes after the headers.
    pub fn payload(&self) -> usize {
        match self.header {
            0 => 0,
            header => self.length - header,
        }
    }

    /// Packets on the wire.
    pub fn packets(&self) -> usize {
        match self.segment {
            0 => 1,
            segment => self.payload().div_ceil(segment).max(1),
        }
    }

    /// Length of the packet number `index`.
    pub fn packet_bytes(&self, index: usize) -> usize {
        if self.segment == 0 {
            return self.length;
        }
        let payload = self.payload_of(index..index + 1);
        self.header + payload.len()
    }

    /// The place of the payload of a run of packets. Panics if the frame has no such packets.
    pub fn payload_of(&self, packets: Range<usize>) -> Range<usize> {
        assert!(
            packets.start < packets.end && packets.end <= self.packets(),
            "a run within the frame"
        );
        if self.header == 0 {
            return self.length..self.length;
        }
        let begin = self.header + packets.start * self.segment;
        let end = (self.header + packets.end * self.segment).min(self.length);
        begin..end
    }

    /// Whether another run may be merged with this frame's: TCP with data, whose checksum its sender left to do.
    pub fn may_merge(&self) -> bool {
        self.segment > 0 && self.note.needs_checksum()
    }

    /// Whether the last packet of a run that ends before `end` says that what follows must not be merged behind it.
    pub fn stops_merge(&self, bytes: &[u8], end: usize) -> bool {
        self.flags_at_end(bytes, end) & LAST_FLAGS != 0
    }

    /// TCP's sequence number at the packet number `index`.
    pub fn sequence_at(&self, index: usize) -> u32 {
        self.sequence.wrapping_add((index * self.segment) as u32)
    }

    /// First sequence number and bytes of payload of the packet number `index`, of TCP with data.
    pub fn packet_data(&self, index: usize) -> Option<(u32, u32)> {
        let payload = self.payload_of(index..index + 1).len();
        (payload > 0).then(|| (self.sequence_at(index), payload as u32))
    }

    /// Payload of each packet but the last.
    pub fn segment(&self) -> usize {
        self.segment
    }

    /// Whether `other`, of the same flow, differs from this frame only in sequence, length, identification, checksum, FIN
    /// and PSH. A frame that carries CWR is like none.
    pub fn is_like(&self, bytes: &[u8], other: &Self, other_bytes: &[u8]) -> bool {
        let is_data = self.segment > 0 && other.segment > 0;
        if !is_data || self.header != other.header || self.is_v6 != other.is_v6 {
            return false;
        }
        let network = match self.is_v6 {
            false => &[0..2, 6..10, 12..self.transport][..],
            true => &[0..4, 6..self.transport][..],
        };
        let same = |range: Range<usize>| bytes[range.clone()] == other_bytes[range];
        let at = self.transport;
        let flags = |bytes: &[u8]| bytes[at + 13] & !LAST_FLAGS;
        network.iter().cloned().all(same)
            && same(at + 8..at + 13)
            && flags(bytes) & !CWR == flags(other_bytes)
            && same(at + 14..at + 16)
            && same(at + 18..self.header)
    }

    /// The note and the headers of a run of packets; its checksum is left to do. `out` is replaced. What is merged behind
    /// must be [like](Self::is_like) this frame and continue its sequence.
    pub fn head_of_run(&self, bytes: &[u8], run: &Run, out: &mut Vec<u8>) {
        out.clear();
        if self.segment == 0 {
            out.extend_from_slice(&self.note.bytes());
            out.extend_from_slice(&bytes[..self.length]);
            return;
        }
        let own = self.payload_of(run.packets.clone());
        let payload = own.len() + run.more;
        let begins = run.packets.start == 0;
        let note = self.note_of_run(bytes, payload, begins);
        out.extend_from_slice(&note.bytes());
        let at = out.len();
        out.extend_from_slice(&bytes[..self.header]);
        self.patch(&mut out[at..], run, payload, own.end == self.length);
    }

    fn note_of_run(&self, bytes: &[u8], payload: usize, begins: bool) -> Note {
        if payload <= self.segment {
            let mut note = self.note;
            note.segmentation = SEGMENT_NONE;
            note.segment_bytes = 0;
            return note;
        }
        let kind = match self.is_v6 {
            false => SEGMENT_TCP4,
            true => SEGMENT_TCP6,
        };
        let is_reduced = begins && bytes[self.transport + 13] & CWR != 0;
        Note {
            flags: NEEDS_CHECKSUM,
            segmentation: kind | if is_reduced { SEGMENT_ECN } else { 0 },
            header_bytes: self.header as u16,
            segment_bytes: self.segment as u16,
            checksum_start: self.transport as u16,
            checksum_offset: 16,
        }
    }

    /// Makes the frame's headers in `head` those of a run.
    fn patch(&self, head: &mut [u8], run: &Run, payload: usize, own_end: bool) {
        let at = self.transport;
        let total = self.header + payload;
        let first = run.packets.start;
        let whole = first == 0 && own_end && run.more == 0;
        if whole && !self.note.needs_checksum() {
            return;
        }
        let sequence = self.sequence_at(first);
        head[at + 4..at + 8].copy_from_slice(&sequence.to_be_bytes());
        if first > 0 {
            head[at + 13] &= !CWR;
        }
        match run.more {
            0 if own_end => {}
            0 => head[at + 13] &= !LAST_FLAGS,
            _ => head[at + 13] = (head[at + 13] & !LAST_FLAGS) | (run.last_flags & LAST_FLAGS),
        }
        if self.is_v6 {
            store(head, 4, (total - 40) as u16);
        } else {
            store(head, 2, total as u16);
            let identification = u16::from_be_bytes([head[4], head[5]]);
            store(head, 4, identification.wrapping_add(first as u16));
            store(head, 10, 0);
            let sum = Sum::of(&head[..at]).complement();
            store(head, 10, sum);
        }
        let pseudo = self.pseudo(head, total - at);
        store(head, at + 16, pseudo.fold());
    }

    fn pseudo(&self, head: &[u8], transport_bytes: usize) -> Sum {
        let addresses = match self.is_v6 {
            false => 12..20,
            true => 8..40,
        };
        Sum::of(&head[addresses])
            .plus(u32::from(self.key.protocol))
            .plus((transport_bytes >> 16) as u32)
            .plus((transport_bytes & 0xffff) as u32)
    }

    /// TCP's flags of the last packet of a run that ends before `end`; a run ends a merge where it has FIN or PSH.
    pub fn flags_at_end(&self, bytes: &[u8], end: usize) -> u8 {
        let flags = bytes.get(self.transport + 13).copied().unwrap_or(0);
        match end == self.packets() {
            true => flags,
            false => flags & !LAST_FLAGS,
        }
    }

    /// The packet number `index` as it goes on a wire: whole, its checksum complete. Panics if the frame has no such
    /// packet.
    pub fn packet(&self, bytes: &[u8], index: usize) -> Vec<u8> {
        let packets = index..index + 1;
        let mut out = Vec::new();
        let run = Run::alone(packets.clone());
        self.head_of_run(bytes, &run, &mut out);
        out.drain(..NOTE_BYTES);
        if self.segment > 0 {
            out.extend_from_slice(&bytes[self.payload_of(packets)]);
        }
        if self.note.needs_checksum() {
            let (start, offset) = match self.segment {
                0 => (
                    usize::from(self.note.checksum_start),
                    usize::from(self.note.checksum_offset),
                ),
                _ => (self.transport, 16),
            };
            let mut sum = Sum::of(&out[start..]).complement();
            if sum == 0 && self.key.protocol == UDP {
                sum = 0xffff;
            }
            store(&mut out, start + offset, sum);
        }
        out
    }
}

/// A run of packets of a frame, and what is merged behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Packets of the frame.
    pub packets: Range<usize>,
    /// Payload from further frames behind them.
    pub more: usize,
    /// TCP's flags of the last packet, if there is such payload.
    pub last_flags: u8,
}

impl Run {
    /// Packets of one frame.
    pub fn alone(packets: Range<usize>) -> Self {
        Self {
            packets,
            more: 0,
            last_flags: 0,
        }
    }
}

/// What the IP header says.
struct Network {
    key: FlowKey,
    length: usize,
    transport: usize,
    is_v6: bool,
    is_fragment: bool,
}

impl Network {
    fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        match bytes.first().map(|byte| byte >> 4) {
            Some(4) => Self::parse_v4(bytes),
            Some(6) => Self::parse_v6(bytes),
            _ => Err(Malformed::NoIp),
        }
    }

    fn parse_v4(bytes: &[u8]) -> Result<Self, Malformed> {
        if bytes.len() < 20 {
            return Err(Malformed::Short);
        }
        let transport = usize::from(bytes[0] & 0xf) * 4;
        let length = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
        if transport < 20 {
            return Err(Malformed::NoIp);
        }
        if length < transport || length > bytes.len() {
            return Err(Malformed::Short);
        }
        let fragment = u16::from_be_bytes([bytes[6], bytes[7]]);
        Ok(Self {
            key: key(&bytes[12..16], &bytes[16..20], bytes[9]),
            length,
            transport,
            is_v6: false,
            is_fragment: fragment & 0x3fff != 0,
        })
    }

    fn parse_v6(bytes: &[u8]) -> Result<Self, Malformed> {
        if bytes.len() < 40 {
            return Err(Malformed::Short);
        }
        let length = 40 + usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
        if length > bytes.len() {
            return Err(Malformed::Short);
        }
        Ok(Self {
            key: key(&bytes[8..24], &bytes[24..40], bytes[6]),
            length,
            transport: 40,
            is_v6: true,
            is_fragment: false,
        })
    }
}

fn key(source: &[u8], destination: &[u8], protocol: u8) -> FlowKey {
    let padded = |address: &[u8]| {
        let mut padded = [0; 16];
        padded[..address.len()].copy_from_slice(address);
        padded
    };
    FlowKey {
        source: padded(source),
        destination: padded(destination),
        ports: [0; 2],
        protocol,
    }
}

fn ports(transport: &[u8]) -> [u16; 2] {
    [
        u16::from_be_bytes([transport[0], transport[1]]),
        u16::from_be_bytes([transport[2], transport[3]]),
    ]
}

#[cfg(test)]
mod tests;

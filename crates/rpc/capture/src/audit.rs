//! Reads a capture and follows its connections.
//!
//! Limits: a block has at most [`BLOCK_MAX`] bytes; at most [`CONNECTIONS_MAX`] connections are open at a time, of which
//! at most [`READABLE_MAX`] are read as HTTP/2; at most [`WAITING_MAX`] bytes wait behind holes.

use crate::http2::{Event, Frames, Streams};
use crate::packet::{Segment, segment};
use crate::stream::{Order, Piece};
use crate::tally::{Direction, Key, Report, Tally};
use crate::{CaptureError, Options};
use core::net::SocketAddr;
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};
use std::collections::BTreeMap;
use std::io::Read;

/// Longest block of a capture, bytes: four packets of segmentation offload with jumbo frames.
pub(crate) const BLOCK_MAX: usize = 1 << 20;
const CONNECTIONS_MAX: usize = 65_536;
const READABLE_MAX: usize = 4_096;
const WAITING_MAX: usize = 64 << 20;
/// Most interfaces of a section.
const INTERFACES_MAX: usize = 4_096;

/// Compares calls and packets of the capture `input`. Fails if the capture is not one or is damaged. A capture whose
/// last packet is cut is read up to there.
pub fn audit(input: impl Read + Send, options: &Options) -> Result<Report, CaptureError> {
    let mut audit = Audit {
        options,
        tally: Tally::default(),
        open: BTreeMap::new(),
        readable: 0,
        waiting: 0,
    };
    audit.read(input)?;
    audit.finish();
    Ok(audit.tally.report(options))
}

struct Audit<'o> {
    options: &'o Options,
    tally: Tally,
    open: BTreeMap<(SocketAddr, SocketAddr), Connection>,
    readable: usize,
    waiting: usize,
}

#[derive(Debug, Default)]
struct Connection {
    /// The client, if the handshake or the first bytes show it.
    client: Option<SocketAddr>,
    /// By direction: from the lower address, from the higher one.
    orders: [Order; 2],
    ended: [bool; 2],
    kind: Kind,
}

#[derive(Debug, Default)]
enum Kind {
    /// No byte of the client yet; bytes of the server by DSCP, and the server's frames if they are frames.
    #[default]
    Unknown,
    Early(BTreeMap<u8, u64>, Frames),
    Http2(Box<Http2>),
    /// Not readable; the class of the table.
    Opaque(Option<u8>),
}

#[derive(Debug)]
struct Http2 {
    client: Frames,
    server: Frames,
    streams: Streams,
    /// Class of calls that declare none.
    class: Option<u8>,
    broken: bool,
}

impl Audit<'_> {
    fn read(&mut self, input: impl Read + Send) -> Result<(), CaptureError> {
        let mut reader = create_reader(BLOCK_MAX, input).map_err(|error| match error {
            PcapError::ReadError => CaptureError::Read { packets: 0 },
            _ => CaptureError::Unknown,
        })?;
        let mut links: Vec<Linktype> = Vec::new();
        loop {
            let (size, block) = match reader.next() {
                Ok(read) => read,
                Err(PcapError::Eof) => return Ok(()),
                Err(PcapError::Incomplete(_)) => {
                    if reader.reader_exhausted() {
                        self.tally.cut_off = true;
                        return Ok(());
                    }
                    let packets = self.tally.packets;
                    reader.refill().map_err(|error| match error {
                        PcapError::BufferTooSmall => CaptureError::Long { packets },
                        _ => CaptureError::Read { packets },
                    })?;
                    continue;
                }
                Err(PcapError::UnexpectedEof) => {
                    self.tally.cut_off = true;
                    return Ok(());
                }
                Err(error) => return Err(self.failed(&error)),
            };
            self.block(&mut links, &block);
            reader.consume(size);
        }
    }

    fn failed(&self, error: &PcapError<&[u8]>) -> CaptureError {
        let packets = self.tally.packets;
        match error {
            PcapError::BufferTooSmall => CaptureError::Long { packets },
            PcapError::ReadError => CaptureError::Read { packets },
            PcapError::NomError(_, kind) | PcapError::OwnedNomError(_, kind) => {
                CaptureError::Damaged {
                    packets,
                    what: format!("{kind:?}"),
                }
            }
            other => CaptureError::Damaged {
                packets,
                what: other.to_string(),
            },
        }
    }

    fn block(&mut self, links: &mut Vec<Linktype>, block: &PcapBlockOwned<'_>) {
        let (interface, data, captured, wire) = match block {
            PcapBlockOwned::LegacyHeader(header) => {
                *links = vec![header.network];
                return;
            }
            PcapBlockOwned::NG(Block::SectionHeader(_)) => {
                links.clear();
                return;
            }
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                if links.len() < INTERFACES_MAX {
                    links.push(interface.linktype);
                }
                return;
            }
            PcapBlockOwned::Legacy(packet) => (0, packet.data, packet.caplen, packet.origlen),
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                let interface = packet.if_id as usize;
                (interface, packet.data, packet.caplen, packet.origlen)
            }
            PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
                (0, packet.data, packet.origlen, packet.origlen)
            }
            PcapBlockOwned::NG(_) => return,
        };
        self.tally.packets += 1;
        let Some(&link) = links.get(interface) else {
            return;
        };
        let frame = &data[..data.len().min(captured as usize)];
        if let Some(segment) = segment(link, frame, wire as usize) {
            self.tally.segments += 1;
            self.segment(&segment);
        }
    }

    fn segment(&mut self, segment: &Segment<'_>) {
        let key = (segment.from.min(segment.to), segment.from.max(segment.to));
        let opens = segment.syn && !segment.ack;
        if opens && let Some(old) = self.open.remove(&key) {
            self.close(key, old);
        }
        let bytes = segment.payload.len() + segment.missing;
        if !self.open.contains_key(&key) {
            if !segment.syn && bytes == 0 {
                return;
            }
            if self.open.len() >= CONNECTIONS_MAX {
                self.tally.unlisted_bytes += bytes as u64;
                return;
            }
            self.open.insert(key, Connection::default());
        }
        let mut connection = self.open.remove(&key).expect("it was inserted above");
        let side = usize::from(segment.from > segment.to);
        if segment.syn {
            connection.client = Some(if segment.ack {
                segment.to
            } else {
                segment.from
            });
            let order = &mut connection.orders[side];
            let before = order.bytes();
            order.begin(segment.sequence.wrapping_add(1));
            // Another number begins the side anew: what waited there belongs to no call.
            let dropped = before - order.bytes();
            self.waiting -= dropped;
            self.tally.unread_bytes += dropped as u64;
            self.tally.unjudged_bytes += dropped as u64;
        } else if bytes > 0 {
            self.bytes(&mut connection, side, segment);
        }
        connection.ended[side] |= segment.finish;
        if segment.reset || connection.ended == [true; 2] {
            self.close(key, connection);
        } else {
            self.open.insert(key, connection);
        }
    }

    fn bytes(&mut self, connection: &mut Connection, side: usize, segment: &Segment<'_>) {
        let piece = Piece {
            lost: 0,
            dscp: segment.dscp,
            payload: segment.payload,
            missing: segment.missing,
        };
        let mut order = std::mem::take(&mut connection.orders[side]);
        let before = order.bytes();
        let ends = (segment.from, segment.to);
        let mut out = |piece: Piece<'_>| self.piece(connection, ends, &piece);
        order.take(segment.sequence, piece, &mut out);
        let others = self.waiting - before;
        while others + order.bytes() > WAITING_MAX && order.is_waiting() {
            order.skip(&mut |piece| self.piece(connection, ends, &piece));
        }
        self.waiting = others + order.bytes();
        connection.orders[side] = order;
    }

    fn piece(
        &mut self,
        connection: &mut Connection,
        (from, to): (SocketAddr, SocketAddr),
        piece: &Piece<'_>,
    ) {
        if matches!(connection.kind, Kind::Unknown) {
            self.tally.connections.seen += 1;
            connection.kind = Kind::Early(BTreeMap::new(), Frames::server());
        }
        let bytes = (piece.payload.len() + piece.missing) as u64;
        if let Kind::Early(..) = connection.kind {
            let preface = Frames::opens(piece.payload);
            if !preface && connection.client == Some(to) {
                let Kind::Early(early, frames) = &mut connection.kind else {
                    return;
                };
                *early.entry(piece.dscp).or_default() += bytes;
                frames.read(&[], piece.lost, &mut |_| ());
                frames.read(piece.payload, piece.missing, &mut |_| ());
                return;
            }
            self.settle(connection, (from, to), preface);
        }
        let client = connection.client.unwrap_or(from);
        let server = if client == from { to } else { from };
        let direction = match client == from {
            true => Direction::Request,
            false => Direction::Response,
        };
        let key = |class| Key {
            client: client.ip(),
            server,
            class,
            direction,
        };
        match &mut connection.kind {
            Kind::Opaque(class) => self.tally.add(key(*class), piece.dscp, 0, bytes),
            Kind::Http2(http2) => http2.piece(&mut self.tally, self.options, key, piece),
            Kind::Unknown | Kind::Early(..) => {}
        }
    }

    /// Decides what the connection is, when the client's first bytes come.
    fn settle(
        &mut self,
        connection: &mut Connection,
        (from, to): (SocketAddr, SocketAddr),
        preface: bool,
    ) {
        let declared = &self.options.declared;
        let either = |a, b| declared.class(a, b).map(|class| (a, Some(class)));
        let (client, class) = match connection.client {
            _ if preface => (from, declared.class(from, to)),
            Some(client) => {
                let server = if client == from { to } else { from };
                (client, declared.class(client, server))
            }
            // Without a handshake: as the table has it, or else servers have the lower port.
            None => either(from, to)
                .or_else(|| either(to, from))
                .unwrap_or((if from.port() > to.port() { from } else { to }, None)),
        };
        connection.client = Some(client);
        let server = if client == from { to } else { from };
        let kind = std::mem::take(&mut connection.kind);
        let Kind::Early(early, frames) = kind else {
            return;
        };
        if preface && self.readable < READABLE_MAX {
            self.readable += 1;
            self.tally.connections.readable += 1;
            self.tally.control_bytes += early.values().sum::<u64>();
            connection.kind = Kind::Http2(Box::new(Http2 {
                client: Frames::client(&self.options.header),
                server: frames,
                streams: Streams::default(),
                class,
                broken: false,
            }));
            return;
        }
        match class {
            Some(_) => self.tally.connections.in_table += 1,
            None => self.tally.connections.undeclared += 1,
        }
        let key = Key {
            client: client.ip(),
            server,
            class,
            direction: Direction::Response,
        };
        for (dscp, bytes) in early {
            self.tally.add(key, dscp, 0, bytes);
        }
        connection.kind = Kind::Opaque(class);
    }

    fn close(&mut self, key: (SocketAddr, SocketAddr), mut connection: Connection) {
        for side in 0..2 {
            let ends = if side == 0 { key } else { (key.1, key.0) };
            let mut order = std::mem::take(&mut connection.orders[side]);
            self.waiting -= order.bytes();
            while order.is_waiting() {
                order.skip(&mut |piece| self.piece(&mut connection, ends, &piece));
            }
        }
        match connection.kind {
            Kind::Http2(http2) => {
                self.readable -= 1;
                self.tally.connections.broken += u64::from(http2.broken);
            }
            // Only the server has spoken.
            Kind::Early(early, _) => {
                self.tally.connections.undeclared += 1;
                self.tally.unread_bytes += early.values().sum::<u64>();
            }
            Kind::Unknown | Kind::Opaque(_) => {}
        }
    }

    fn finish(&mut self) {
        for (key, connection) in std::mem::take(&mut self.open) {
            self.close(key, connection);
        }
    }
}

impl Http2 {
    fn piece(
        &mut self,
        tally: &mut Tally,
        options: &Options,
        key: impl Fn(Option<u8>) -> Key,
        piece: &Piece<'_>,
    ) {
        let request = key(None).direction == Direction::Request;
        let Self {
            client,
            server,
            streams,
            class: of_table,
            broken,
        } = self;
        let frames = if request { client } else { server };
        // Header bytes come before the block that names the class is whole.
        let mut early: BTreeMap<u32, u64> = BTreeMap::new();
        let mut heard = |event: Event<'_>| match event {
            Event::Bytes { stream: 0, bytes } => tally.control_bytes += bytes,
            Event::Bytes { stream, bytes } => match streams.class(stream) {
                Some(class) => tally.add(key(class), piece.dscp, 0, bytes),
                None if request => *early.entry(stream).or_default() += bytes,
                None => {
                    tally.unread_bytes += bytes;
                    tally.unjudged_bytes += if options.responses { bytes } else { 0 };
                }
            },
            Event::Call { stream, class } => {
                let found = class.and_then(|name| {
                    let known = options.classes.iter().position(|one| one.name == name);
                    if known.is_none() {
                        tally.unknown(name);
                    }
                    known
                });
                // A name that no class has is not replaced by the table's class.
                let class = match class {
                    Some(_) => found.map(|class| class as u8),
                    None => *of_table,
                };
                if streams.begin(stream, class) {
                    let bytes = early.remove(&stream).unwrap_or(0);
                    tally.add(key(class), piece.dscp, 1, bytes);
                }
            }
            Event::End { stream } => streams.end(stream),
        };
        frames.read(&[], piece.lost, &mut heard);
        let unread = frames.read(piece.payload, piece.missing, &mut heard);
        let unread = unread + early.values().sum::<u64>();
        tally.unread_bytes += unread;
        tally.unjudged_bytes += if request || options.responses {
            unread
        } else {
            0
        };
        *broken |= frames.is_lost();
    }
}

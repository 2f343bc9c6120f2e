//! The sender's device as a virtio network card of a virtual machine (vhost-user).
//!
//! Problem: over TUN the kernel never waits, so neither byte limits nor queueing disciplines act. A virtual machine's own
//! driver waits for a card that returns a frame only when the frame's last packet has left. Method: the emulator (QEMU)
//! shares the machine's memory and the rings of the card; the card takes one frame of a queue at a time and gives its
//! descriptors back when it has left the wire. So at most one frame of a queue is in the card, and the rest stays in the
//! ring, whose bytes the driver limits (BQL). Frames of Ethernet become those of TUN: an IP packet with a note.
//! A thread answers the emulator; rings and memory are behind a lock.
//! Units: bytes. Limits: the return path has packets of one MTU with complete checksums; other frames than IP are dropped,
//! so neighbours are set by hand; a driver without `VIRTIO_F_VERSION_1` is misread; a frame that is in the card while its ring
//! is stopped is sent twice. Source: virtio 1.2, 5.1; QEMU's `docs/interop/vhost-user.rst`.

mod memory;
mod messages;
mod ring;
#[cfg(test)]
mod tests;

use crate::error::SoftNicError;
use crate::frame::{NOTE_BYTES, Note};
pub use crate::lane::Port;
use isolane_common_linux::socket::listen_for_streams;
use memory::GuestMemory;
use messages::{Message, Request};
use ring::{Piece, Ring};
use rustix::event::{PollFd, PollFlags, epoll, poll};
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Hardware addresses of the machine's card and behind the wire, as `lab/vm` and `lab/card_study.py` set them.
const MACHINE_BYTES: [u8; 6] = [0x52, 0x54, 0, 0x98, 0, 1];
const PEER_BYTES: [u8; 6] = [0x52, 0x54, 0, 0x98, 0, 2];

/// `struct virtio_net_hdr_v1`: the note and the number of buffers.
const HEADER_BYTES: usize = NOTE_BYTES + 2;
const ETHERNET_BYTES: usize = 14;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];

/// Checksums and TCP segmentation of frames from the machine, several queues.
const NET_CSUM: u64 = 1 << 0;
const NET_HOST_TSO4: u64 = 1 << 11;
const NET_HOST_TSO6: u64 = 1 << 12;
const NET_HOST_ECN: u64 = 1 << 13;
const NET_MQ: u64 = 1 << 22;
const RING_INDIRECT: u64 = 1 << 28;
const PROTOCOL_FEATURES: u64 = 1 << 30;
const VERSION_1: u64 = 1 << 32;
const FEATURES: u64 = NET_CSUM
    | NET_HOST_TSO4
    | NET_HOST_TSO6
    | NET_HOST_ECN
    | NET_MQ
    | RING_INDIRECT
    | PROTOCOL_FEATURES
    | VERSION_1;
/// Of the protocol: several queues, replies to every request.
const PROTOCOL_MQ: u64 = 1 << 0;
const PROTOCOL_REPLY: u64 = 1 << 3;

/// Emulators that wait for the one that is served.
const BACKLOG: i32 = 8;
/// Pause after a connection could not be taken.
const REST: std::time::Duration = std::time::Duration::from_millis(100);

/// A card that a virtual machine uses.
#[derive(Debug)]
pub struct Vhost {
    queues: usize,
    rings: Arc<Mutex<Rings>>,
    /// Readable when a ring has a signal.
    signals: OwnedFd,
}

#[derive(Debug)]
struct Rings {
    memory: GuestMemory,
    /// To the machine and from it, for each queue.
    rings: Vec<Ring>,
    /// Why the last connection ended, if by an error.
    failure: Option<SoftNicError>,
}

impl Vhost {
    /// A card with so many queues, and what serves the emulators. Fails without descriptors.
    pub fn new(queues: u16) -> Result<(Self, Server), SoftNicError> {
        let signals = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| SoftNicError::Machine(format!("making an epoll file: {error}")))?;
        let queues = usize::from(queues);
        let rings = Arc::new(Mutex::new(Rings {
            memory: GuestMemory::default(),
            rings: (0..2 * queues).map(|_| Ring::default()).collect(),
            failure: None,
        }));
        let server = Server {
            rings: Arc::clone(&rings),
            signals: signals
                .try_clone()
                .map_err(|error| SoftNicError::Machine(format!("an epoll file: {error}")))?,
            queues,
        };
        let card = Self {
            queues,
            rings,
            signals,
        };
        Ok((card, server))
    }

    /// The same at a new socket of this user. Emulators connect one after the other. Fails if the socket cannot be made.
    pub(crate) fn listen(socket: &Path, queues: u16) -> Result<Self, SoftNicError> {
        let machine = |error: std::io::Error| {
            SoftNicError::Machine(format!("the socket {}: {error}", socket.display()))
        };
        let listener = listen_for_streams(socket, 0o600, BACKLOG).map_err(machine)?;
        listener.set_nonblocking(false).map_err(machine)?;
        let (card, server) = Self::new(queues)?;
        std::thread::Builder::new()
            .name("soft-nic-vhost".to_owned())
            .spawn(move || server.run(&listener))
            .map_err(machine)?;
        Ok(card)
    }
}

fn lock(rings: &Mutex<Rings>) -> MutexGuard<'_, Rings> {
    // A panic of the other thread leaves rings that are checked at each use.
    rings.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Port for Vhost {
    fn queues(&self) -> usize {
        self.queues
    }

    fn files(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.signals.as_fd()]
    }

    fn read(&self, queue: usize, into: &mut [u8]) -> Result<Option<usize>, SoftNicError> {
        let mut rings = lock(&self.rings);
        let rings = &mut *rings;
        if let Some(failure) = rings.failure.take() {
            return Err(failure);
        }
        let ring = &mut rings.rings[2 * queue + 1];
        let mut pieces = Vec::new();
        while ring.take(&rings.memory, false, &mut pieces).is_some() {
            if let Some(bytes) = frame_of(&pieces, into) {
                return Ok(Some(bytes));
            }
            ring.give_back(&rings.memory, 0);
        }
        Ok(None)
    }

    fn left(&self, queue: usize, _bytes: usize) {
        let mut rings = lock(&self.rings);
        let rings = &mut *rings;
        rings.rings[2 * queue + 1].give_back(&rings.memory, 0);
    }

    fn takes_segments(&self) -> bool {
        false
    }

    fn write(&self, queue: usize, parts: &[IoSlice<'_>]) -> bool {
        let mut rings = lock(&self.rings);
        let rings = &mut *rings;
        let ring = &mut rings.rings[2 * queue];
        let mut pieces = Vec::new();
        if ring.take(&rings.memory, true, &mut pieces).is_none() {
            return false;
        }
        let written = write_frame(parts, &pieces);
        ring.give_back(&rings.memory, written.unwrap_or(0));
        written.is_some()
    }
}

/// Makes a note and an IP packet of the bytes in `pieces`; none if they are no IP.
fn frame_of(pieces: &[Piece], into: &mut [u8]) -> Option<usize> {
    let mut front = [0; HEADER_BYTES + ETHERNET_BYTES];
    let mut got = 0;
    let mut length = NOTE_BYTES;
    for piece in pieces {
        let first = piece.bytes.min(front.len() - got);
        copy_from(*piece, 0, &mut front[got..got + first]);
        got += first;
        let rest = piece.bytes - first;
        copy_from(*piece, first, into.get_mut(length..length + rest)?);
        length += rest;
    }
    let kind = [front[HEADER_BYTES + 12], front[HEADER_BYTES + 13]];
    if got < front.len() || (kind != IPV4 && kind != IPV6) {
        return None;
    }
    let (note, _) = front.split_first_chunk::<NOTE_BYTES>()?;
    let mut note = Note::parse(*note);
    let without = |at: u16| at.saturating_sub(ETHERNET_BYTES as u16);
    note.header_bytes = without(note.header_bytes);
    note.checksum_start = without(note.checksum_start);
    into.get_mut(..NOTE_BYTES)?.copy_from_slice(&note.bytes());
    Some(length)
}

/// Writes a frame of Ethernet for the packet behind the note in `parts`; its length with the header, none if it does not fit.
fn write_frame(parts: &[IoSlice<'_>], pieces: &[Piece]) -> Option<u32> {
    let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
    let packet = bytes.get(NOTE_BYTES..)?;
    let mut frame = vec![0; HEADER_BYTES];
    frame[NOTE_BYTES] = 1;
    frame.extend_from_slice(&MACHINE_BYTES);
    frame.extend_from_slice(&PEER_BYTES);
    frame.extend_from_slice(match packet.first()? >> 4 {
        6 => &IPV6,
        _ => &IPV4,
    });
    frame.extend_from_slice(packet);
    let mut left: &[u8] = &frame;
    for piece in pieces {
        let (now, later) = left.split_at(left.len().min(piece.bytes));
        // SAFETY: the ring proved that `piece.bytes` bytes are mapped at `piece.at`, and `now` has no more.
        unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), piece.at, now.len()) };
        left = later;
    }
    left.is_empty().then_some(frame.len() as u32)
}

/// Fills `into` with the bytes of a piece from `at` on. Panics if the piece has fewer.
fn copy_from(piece: Piece, at: usize, into: &mut [u8]) {
    assert!(at + into.len() <= piece.bytes, "within the piece");
    // SAFETY: the ring proved that `piece.bytes` bytes are mapped at `piece.at`. The machine may write them meanwhile; bytes
    // are bytes, and the frame is checked after the copy.
    unsafe { std::ptr::copy_nonoverlapping(piece.at.add(at), into.as_mut_ptr(), into.len()) };
}

/// Whether the emulator sends something (or ends) before another one connects. A silent connection keeps none out.
fn speaks_before_the_next(emulator: &UnixStream, listener: &UnixListener) -> bool {
    let mut wanted = [
        PollFd::new(emulator, PollFlags::IN),
        PollFd::new(listener, PollFlags::IN),
    ];
    // A signal interrupts the wait; then the emulator counts as one that speaks, and is read.
    let _ = poll(&mut wanted, None);
    !wanted[0].revents().is_empty() || wanted[1].revents().is_empty()
}

/// Serves the emulators of a card's virtual machine.
#[derive(Debug)]
pub struct Server {
    rings: Arc<Mutex<Rings>>,
    signals: OwnedFd,
    queues: usize,
}

impl Server {
    /// Serves one emulator after the other, until the listener's process ends.
    fn run(&self, listener: &UnixListener) {
        loop {
            let Ok((mut emulator, _)) = listener.accept() else {
                // Without descriptors or memory: the connection waits.
                std::thread::sleep(REST);
                continue;
            };
            if !speaks_before_the_next(&emulator, listener) {
                continue;
            }
            let served = self.serve(&mut emulator);
            // The emulator sees the end of its connection after this: the reason is there by then.
            let mut rings = lock(&self.rings);
            rings.failure = served.err();
            rings.rings.iter().for_each(|ring| self.forget(ring));
            rings
                .rings
                .iter_mut()
                .for_each(|ring| *ring = Ring::default());
            rings.memory = GuestMemory::default();
        }
    }

    /// Waits for the ring's signal no longer: the emulator may keep its file open.
    fn forget(&self, ring: &Ring) {
        if let Some(kick) = ring.kick() {
            // A ring of the return path was never added.
            let _ = epoll::delete(&self.signals, kick);
        }
    }

    /// Obeys an emulator until it ends. Fails on what is no message, and on what a card cannot do.
    pub fn serve(&self, emulator: &mut UnixStream) -> Result<(), SoftNicError> {
        while let Some(mut message) = Message::receive(emulator)? {
            let answer = match message.request {
                Request::Features => Some(FEATURES),
                Request::ProtocolFeatures => Some(PROTOCOL_MQ | PROTOCOL_REPLY),
                Request::Queues => Some(self.queues as u64),
                _ => None,
            };
            if let Some(answer) = answer {
                message.reply(emulator, &answer.to_ne_bytes())?;
                continue;
            }
            if message.request == Request::StopRing {
                let (ring, _) = message.ring_and_value()?;
                let next = lock(&self.rings).rings.get_mut(ring).map_or(0, |ring| {
                    self.forget(ring);
                    ring.stop()
                });
                let answer = ring as u64 | u64::from(next) << 32;
                message.reply(emulator, &answer.to_ne_bytes())?;
                continue;
            }
            self.obey(&mut message)?;
            if message.needs_reply {
                message.reply(emulator, &0_u64.to_ne_bytes())?;
            }
        }
        Ok(())
    }

    fn obey(&self, message: &mut Message) -> Result<(), SoftNicError> {
        let mut rings = lock(&self.rings);
        match message.request {
            Request::Memory => {
                rings.memory = GuestMemory::map(&message.regions()?, &message.files)?;
            }
            Request::RingSize => {
                let (ring, size) = message.ring_and_value()?;
                let mut is_set = true;
                rings.set(ring, |ring| is_set = ring.set_size(size));
                if !is_set {
                    return Err(SoftNicError::Machine(format!(
                        "the virtual machine's emulator makes ring {ring} of {size} entries: a power of two up to 32,768 is possible, and none while a frame is in the NIC"
                    )));
                }
            }
            Request::RingBase => {
                let (ring, next) = message.ring_and_value()?;
                rings.set(ring, |ring| ring.next = next as u16);
            }
            Request::EnableRing => {
                let (ring, value) = message.ring_and_value()?;
                rings.set(ring, |ring| ring.is_enabled = value != 0);
            }
            Request::RingPlaces => {
                let (ring, [descriptors, used, avail]) = message.ring_places()?;
                rings.set(ring, |ring| {
                    (ring.descriptors, ring.used, ring.avail) = (descriptors, used, avail);
                });
            }
            Request::Call => {
                let (ring, file) = message.ring_and_file()?;
                rings.set(ring, |ring| ring.set_call(file));
            }
            Request::Kick => {
                let (ring, file) = message.ring_and_file()?;
                rings.set(ring, |ring| {
                    self.forget(ring);
                    ring.set_kick(file);
                });
                // The card does not wait for buffers of the return path, so it needs no signals of those rings.
                if let Some(kick) = rings.rings.get(ring).and_then(Ring::kick)
                    && ring % 2 == 1
                {
                    let data = epoll::EventData::new_u64(ring as u64);
                    epoll::add(&self.signals, kick, data, epoll::EventFlags::IN)
                        .map_err(|error| SoftNicError::Machine(format!("epoll: {error}")))?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Rings {
    /// A ring that the card does not have is no ring.
    fn set(&mut self, ring: usize, change: impl FnOnce(&mut Ring)) {
        if let Some(ring) = self.rings.get_mut(ring) {
            change(ring);
        }
    }
}

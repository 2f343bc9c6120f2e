//! The messages of vhost-user, as far as a network card needs them.
//!
//! Method: a header of twelve bytes, whose files come with its first byte, then the payload. Units: bytes, native order.
//! Limits: a payload of more than [`PAYLOAD_MAX`] bytes ends the connection. Source: QEMU's
//! `docs/interop/vhost-user.rst`.

use super::memory::RegionEntry;
use crate::error::SoftNicError;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

const HEADER_BYTES: usize = 12;
/// The largest message is the table of memory, with 8 bytes and 32 for each of 8 regions.
const PAYLOAD_MAX: usize = 512;
/// Files that come with one message: a region each.
const FILES_MAX: usize = 8;
const VERSION: u32 = 1;
const IS_REPLY: u32 = 4;
const NEEDS_REPLY: u32 = 8;
/// In a message about a ring's file: none comes with it.
const NO_FILE: u64 = 0x100;

/// Requests, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Features,
    SetFeatures,
    Memory,
    RingSize,
    RingPlaces,
    RingBase,
    StopRing,
    Kick,
    Call,
    ProtocolFeatures,
    Queues,
    EnableRing,
    /// What a card need not do anything for.
    Other,
}

impl Request {
    fn of(number: u32) -> Self {
        match number {
            1 => Self::Features,
            2 => Self::SetFeatures,
            5 => Self::Memory,
            8 => Self::RingSize,
            9 => Self::RingPlaces,
            10 => Self::RingBase,
            11 => Self::StopRing,
            12 => Self::Kick,
            13 => Self::Call,
            15 => Self::ProtocolFeatures,
            17 => Self::Queues,
            18 => Self::EnableRing,
            _ => Self::Other,
        }
    }
}

/// A message of the emulator.
#[derive(Debug)]
pub(super) struct Message {
    pub request: Request,
    number: u32,
    /// The emulator waits for a reply though the request has none of its own.
    pub needs_reply: bool,
    payload: Vec<u8>,
    pub files: Vec<OwnedFd>,
}

impl Message {
    /// Waits for the next one; none if the emulator has ended. Fails on what is no message.
    pub(super) fn receive(from: &mut UnixStream) -> Result<Option<Self>, SoftNicError> {
        let mut header = [0; HEADER_BYTES];
        let mut files = Vec::new();
        let mut space = [MaybeUninit::<u8>::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut header)];
        let got = match recvmsg(&*from, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(got) if got.bytes > 0 => got,
            // A killed emulator resets the connection.
            Ok(_) | Err(Errno::CONNRESET) => return Ok(None),
            Err(error) => return Err(broken(&error.to_string())),
        };
        if got.flags.contains(ReturnFlags::CTRUNC) {
            return Err(broken("a message has more than eight files"));
        }
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                files.extend(rights);
            }
        }
        let failed = |error: std::io::Error| broken(&error.to_string());
        from.read_exact(&mut header[got.bytes..]).map_err(failed)?;
        let word = |at: usize| {
            u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let (number, flags, bytes) = (word(0), word(4), word(8) as usize);
        if bytes > PAYLOAD_MAX {
            return Err(broken(&format!("message {number} has {bytes} bytes")));
        }
        let mut payload = vec![0; bytes];
        from.read_exact(&mut payload).map_err(failed)?;
        Ok(Some(Self {
            request: Request::of(number),
            number,
            needs_reply: flags & NEEDS_REPLY != 0,
            payload,
            files,
        }))
    }

    /// Answers the message. Fails if the emulator has ended.
    pub(super) fn reply(&self, to: &mut UnixStream, payload: &[u8]) -> Result<(), SoftNicError> {
        let words = [self.number, VERSION | IS_REPLY, payload.len() as u32];
        let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
        for word in words {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        bytes.extend_from_slice(payload);
        to.write_all(&bytes)
            .map_err(|error| broken(&error.to_string()))
    }

    /// Number of a ring, and a value for it.
    pub(super) fn ring_and_value(&self) -> Result<(usize, u32), SoftNicError> {
        let number = self.long(0)?;
        let bytes = number.to_ne_bytes();
        let (ring, value) = bytes.split_at(4);
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_ne_bytes);
        Ok((word(ring) as usize, word(value)))
    }

    /// Number of a ring, and the file that came for it.
    pub(super) fn ring_and_file(&mut self) -> Result<(usize, Option<OwnedFd>), SoftNicError> {
        let number = self.long(0)?;
        let file = (number & NO_FILE == 0).then(|| self.files.pop()).flatten();
        Ok(((number & 0xff) as usize, file))
    }

    /// Number of a ring, and the places of its descriptors, `used` and `avail`.
    pub(super) fn ring_places(&self) -> Result<(usize, [u64; 3]), SoftNicError> {
        let places = [self.long(8)?, self.long(16)?, self.long(24)?];
        Ok((self.ring_and_value()?.0, places))
    }

    /// The regions of the machine's memory, one for each file.
    pub(super) fn regions(&self) -> Result<Vec<RegionEntry>, SoftNicError> {
        (0..self.files.len())
            .map(|region| {
                let at = 8 + 32 * region;
                Ok(RegionEntry {
                    guest: self.long(at)?,
                    bytes: self.long(at + 8)?,
                    emulator: self.long(at + 16)?,
                    offset: self.long(at + 24)?,
                })
            })
            .collect()
    }

    fn long(&self, at: usize) -> Result<u64, SoftNicError> {
        self.payload
            .get(at..at + 8)
            .and_then(|bytes| bytes.try_into().ok())
            .map(u64::from_ne_bytes)
            .ok_or_else(|| broken(&format!("message {} is too short", self.number)))
    }
}

fn broken(problem: &str) -> SoftNicError {
    SoftNicError::Machine(format!(
        "the connection to the virtual machine (vhost-user): {problem}"
    ))
}

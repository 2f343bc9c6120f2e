//! Messages between the emulated libibverbs and the broker: words of 64 bits on a sequenced Unix socket.
//!
//! A request begins with an operation of [`op`]; the answer with an `errno` value, 0 for success. Posts have no answer.
//! Every integer is native: both ends are on one machine. A reader that runs out of words returns an error, and the
//! broker drops the connection of a client that sends such a message.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};

/// Version of this protocol: both ends compare it.
pub const VERSION: u64 = 6;
/// Longest message, bytes.
pub const MESSAGE_MAX: usize = 32 << 10;
/// Most scatter-gather elements of one work request.
pub const ELEMENTS_MAX: usize = 30;
/// Most inline bytes of one work request.
pub const INLINE_MAX: usize = 1024;
/// Words of a send work request before its elements or inline bytes.
pub const SEND_WORDS: usize = 12;
/// Word that a client holds in its memory, so that the broker can try whether it may read there.
pub const PROBE: u64 = 0x6973_6f6c_616e_6521;
/// The environment variable with the path of the broker's socket.
pub const SOCKET_VARIABLE: &str = "ISOLANE_EMULATE";
/// The environment variable with the number of the host whose device alone is shown.
pub const HOST_VARIABLE: &str = "ISOLANE_EMULATE_HOST";

/// Operations.
pub mod op {
    #![allow(missing_docs, reason = "the names are those of the verbs")]
    pub const LIST: u64 = 1;
    pub const OPEN: u64 = 2;
    pub const ALLOC_PD: u64 = 3;
    pub const DEALLOC_PD: u64 = 4;
    pub const REG_MR: u64 = 5;
    pub const DEREG_MR: u64 = 6;
    pub const CREATE_CHANNEL: u64 = 7;
    pub const DESTROY_CHANNEL: u64 = 8;
    pub const CREATE_CQ: u64 = 9;
    pub const DESTROY_CQ: u64 = 10;
    pub const CREATE_QP: u64 = 11;
    pub const MODIFY_QP: u64 = 12;
    pub const QUERY_QP: u64 = 13;
    pub const DESTROY_QP: u64 = 14;
    pub const CREATE_SRQ: u64 = 15;
    pub const MODIFY_SRQ: u64 = 16;
    pub const QUERY_SRQ: u64 = 17;
    pub const DESTROY_SRQ: u64 = 18;
    pub const ALLOC_MW: u64 = 19;
    pub const DEALLOC_MW: u64 = 20;
    pub const REREG_MR: u64 = 21;
    pub const RESIZE_CQ: u64 = 23;
    /// The rate of a queue pair, kbit/s of real time; 0 lifts the limit.
    pub const LIMIT_QP: u64 = 24;
    /// First message of a connection for connection management ([`crate::cm`]): such a connection has no device.
    pub const CM_OPEN: u64 = 40;
    pub const CM_CREATE_CHANNEL: u64 = 41;
    pub const CM_DESTROY_CHANNEL: u64 = 42;
    pub const CM_CREATE_ID: u64 = 43;
    pub const CM_DESTROY_ID: u64 = 44;
    pub const CM_MIGRATE: u64 = 45;
    pub const CM_BIND: u64 = 46;
    pub const CM_LISTEN: u64 = 47;
    pub const CM_RESOLVE_ADDR: u64 = 48;
    pub const CM_RESOLVE_ROUTE: u64 = 49;
    pub const CM_CONNECT: u64 = 50;
    pub const CM_ACCEPT: u64 = 51;
    pub const CM_ESTABLISH: u64 = 52;
    pub const CM_REJECT: u64 = 53;
    pub const CM_DISCONNECT: u64 = 54;
    /// The answer is the channel's next event, or `ENOENT`.
    pub const CM_EVENT: u64 = 55;
    /// Whether a program listens at a port of a host: 0, or `ENOENT`. It needs no open connection management.
    pub const CM_LISTENS: u64 = 56;
    /// Without an answer.
    pub const POST_SEND: u64 = 30;
    pub const POST_RECV: u64 = 31;
    pub const POST_SRQ_RECV: u64 = 32;
}

/// Two numbers of 32 bits as one word, the first one low.
pub const fn pack(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// The reverse of [`pack`].
pub const fn unpack(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// A message being written.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// A message of these words.
    pub fn of(words: &[u64]) -> Self {
        let mut writer = Self::default();
        for &word in words {
            writer.word(word);
        }
        writer
    }

    /// Appends a word.
    pub fn word(&mut self, word: u64) -> &mut Self {
        self.bytes.extend_from_slice(&word.to_ne_bytes());
        self
    }

    /// Appends bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Overwrites the word at `index`.
    pub fn set(&mut self, index: usize, word: u64) {
        self.bytes[8 * index..8 * index + 8].copy_from_slice(&word.to_ne_bytes());
    }

    /// What was written.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// A message being read.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `bytes` from the beginning.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next word.
    pub fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.rest.split_first_chunk::<8>()?;
        self.rest = rest;
        Some(u64::from_ne_bytes(*word))
    }

    /// The next word, as two numbers.
    pub fn halves(&mut self) -> Option<(u32, u32)> {
        self.word().map(unpack)
    }

    /// The next word, if it is a number of 32 bits.
    pub fn number(&mut self) -> Option<u32> {
        self.word().and_then(|word| u32::try_from(word).ok())
    }

    /// The next `count` bytes.
    pub fn raw(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(bytes)
    }
}

/// Sends one message, with a file descriptor or without. Fails with the error of `sendmsg(2)`; `EAGAIN` when there is
/// no room and it is not to `wait`.
pub fn send(
    socket: impl AsFd,
    bytes: &[u8],
    fd: Option<BorrowedFd<'_>>,
    wait: bool,
) -> Result<(), Errno> {
    let flags = match wait {
        true => SendFlags::NOSIGNAL,
        false => SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
    };
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = fd.map(|fd| [fd]);
    if let Some(fds) = &fds {
        let pushed = ancillary.push(SendAncillaryMessage::ScmRights(fds));
        assert!(pushed, "the buffer has room for one descriptor");
    }
    loop {
        match sendmsg(&socket, &[IoSlice::new(bytes)], &mut ancillary, flags) {
            Err(Errno::INTR) => {}
            sent => return sent.map(|_| ()),
        }
    }
}

/// Receives one message into `buffer`: its length, 0 at the end of the connection, and a file descriptor that came
/// along. Fails with the error of `recvmsg(2)`; `EMSGSIZE` for a message longer than the buffer.
pub fn receive(
    socket: impl AsFd,
    buffer: &mut [u8],
    wait: bool,
) -> Result<(usize, Option<OwnedFd>), Errno> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = match wait {
        true => RecvFlags::CMSG_CLOEXEC,
        false => RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
    };
    let message = loop {
        match recvmsg(
            &socket,
            &mut [IoSliceMut::new(buffer)],
            &mut ancillary,
            flags,
        ) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    let mut descriptor = None;
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = part {
            descriptor = fds.into_iter().next();
        }
    }
    if message.flags.contains(ReturnFlags::TRUNC) {
        return Err(Errno::MSGSIZE);
    }
    Ok((message.bytes, descriptor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_runs_out_returns_an_error() {
        let mut writer = Writer::of(&[1, pack(2, 3)]);
        writer.raw(b"abc");
        let mut reader = Reader::new(writer.bytes());
        assert_eq!(reader.word(), Some(1));
        assert_eq!(reader.halves(), Some((2, 3)));
        assert_eq!(reader.raw(4), None);
        assert_eq!(reader.word(), None);
        assert_eq!(reader.raw(3), Some(&b"abc"[..]));
    }
}

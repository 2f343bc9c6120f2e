//! Sends bytes and file descriptors over a Unix socket.
//!
//! Method: one message carries at most [`DESCRIPTORS_MAX`] descriptors (SCM_RIGHTS). The receiver sets close-on-exec on
//! all of them.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Largest number of descriptors in one message.
pub const DESCRIPTORS_MAX: usize = 4;

/// Sends `bytes` with `descriptors` in one message. Fails with `InvalidInput` for too many descriptors, and with
/// `WriteZero` when the kernel takes only a part of the bytes.
pub fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[&dyn AsFd]) -> io::Result<()> {
    if descriptors.len() > DESCRIPTORS_MAX {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let mut borrowed: [BorrowedFd<'_>; DESCRIPTORS_MAX] = [socket.as_fd(); DESCRIPTORS_MAX];
    for (place, descriptor) in borrowed.iter_mut().zip(descriptors) {
        *place = descriptor.as_fd();
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        let rights = SendAncillaryMessage::ScmRights(&borrowed[..descriptors.len()]);
        assert!(control.push(rights), "the buffer holds {DESCRIPTORS_MAX}");
    }
    let sent = sendmsg(
        &socket,
        &[IoSlice::new(bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    match sent == bytes.len() {
        true => Ok(()),
        false => Err(io::Error::from(io::ErrorKind::WriteZero)),
    }
}

/// Receives one message. Returns the number of bytes and the descriptors; zero bytes mean that the peer has closed.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        &socket,
        &mut [IoSliceMut::new(buffer)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    Ok((received.bytes, descriptors))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::io::{Read, Write};

    #[test]
    fn a_descriptor_arrives_as_the_same_file() {
        let (one, other) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"same").unwrap();
        send(&one, b"hello", &[&file]).unwrap();
        let mut buffer = [0; 16];
        let (bytes, mut descriptors) = receive(&other, &mut buffer).unwrap();
        assert_eq!((&buffer[..bytes], descriptors.len()), (&b"hello"[..], 1));
        let mut arrived = std::fs::File::from(descriptors.remove(0));
        std::io::Seek::rewind(&mut arrived).unwrap();
        let mut text = String::new();
        arrived.read_to_string(&mut text).unwrap();
        assert_eq!(text, "same");
        drop(one);
        assert_eq!(receive(&other, &mut buffer).unwrap().0, 0);
    }
}

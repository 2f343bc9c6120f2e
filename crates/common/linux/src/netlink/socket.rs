//! A netlink socket: one request and all of its replies, in bounded time.

use super::message::{self, Message, Request};
use crate::error::HostError;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size, set_socket_timeout};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Longest wait for a reply; the kernel answers within the call.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// Size of the receive buffer: the kernel fills at most 32 KiB per datagram of a dump; a message of a device with
/// hundreds of counters is smaller.
const DATAGRAM_BYTES: usize = 64 << 10;
/// Buffer of the socket for waiting replies, bytes.
const RECEIVE_BUFFER_BYTES: usize = 1 << 20;

/// The netlink families in use here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// NETLINK_RDMA: devices, resources, statistics.
    Rdma,
    /// NETLINK_ROUTE: DCB among much else.
    Route,
    /// NETLINK_GENERIC: ethtool among much else.
    Generic,
}

/// An open socket.
#[derive(Debug)]
pub struct Socket {
    descriptor: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Socket {
    /// Opens a socket. Fails with [`HostError::NoRdmaSubsystem`] for [`Family::Rdma`] on a kernel without it, and with
    /// [`HostError::Kernel`] otherwise.
    pub fn open(family: Family) -> Result<Self, HostError> {
        let protocol = match family {
            Family::Rdma => Some(netlink::RDMA),
            Family::Route => None,
            Family::Generic => Some(netlink::GENERIC),
        };
        let opened = net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            protocol,
        );
        let descriptor = opened.map_err(|error| match (family, error) {
            (Family::Rdma, rustix::io::Errno::PROTONOSUPPORT | rustix::io::Errno::AFNOSUPPORT) => {
                HostError::NoRdmaSubsystem(error.into())
            }
            _ => HostError::kernel(&format!("open a netlink socket ({family:?})"), error.into()),
        })?;
        let set_up = || -> rustix::io::Result<()> {
            set_socket_timeout(&descriptor, Timeout::Recv, Some(REPLY_TIMEOUT))?;
            set_socket_recv_buffer_size(&descriptor, RECEIVE_BUFFER_BYTES)?;
            net::bind(&descriptor, &SocketAddrNetlink::new(0, 0))
        };
        set_up().map_err(|error| {
            HostError::kernel(
                &format!("set up a netlink socket ({family:?})"),
                error.into(),
            )
        })?;
        Ok(Self {
            descriptor,
            sequence: 0,
            buffer: vec![0; DATAGRAM_BYTES],
        })
    }

    /// Sends `request` and calls `each` with type and payload of every object in the reply. `action` names the request
    /// in errors. Fails with the kernel's error, or with [`HostError::Malformed`].
    pub fn request(
        &mut self,
        action: &str,
        request: &Request,
        mut each: impl FnMut(u16, &[u8]),
    ) -> Result<(), HostError> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = request.bytes(self.sequence);
        let kernel = SocketAddrNetlink::new(0, 0);
        net::sendto(&self.descriptor, &bytes, SendFlags::empty(), &kernel)
            .map_err(|error| HostError::kernel(action, error.into()))?;
        loop {
            let length = self.receive(action)?;
            let messages = message::parse(&self.buffer[..length], self.sequence)
                .map_err(|detail| HostError::malformed(action, detail))?;
            for message in messages {
                match message {
                    Message::Data { kind, payload } => each(kind, payload),
                    Message::End => return Ok(()),
                    Message::Refused(error) => return Err(HostError::kernel(action, error)),
                }
            }
        }
    }

    fn receive(&mut self, action: &str) -> Result<usize, HostError> {
        loop {
            let received = net::recv(&self.descriptor, &mut self.buffer[..], RecvFlags::TRUNC);
            return match received {
                Ok((length, full)) if length == full && length > 0 => Ok(length),
                Ok((length, full)) => {
                    let detail = format!("datagram of {full} bytes cut to {length}");
                    Err(HostError::malformed(action, detail))
                }
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => {
                    let late = io::Error::new(io::ErrorKind::TimedOut, "no answer within 5 s");
                    Err(HostError::kernel(action, late))
                }
                Err(error) => Err(HostError::kernel(action, error.into())),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's own loopback link answers a route request on every Linux, also where RDMA is missing.
    #[test]
    fn the_kernel_answers_a_dump_of_links() {
        const RTM_NEWLINK: u16 = 16;
        const RTM_GETLINK: u16 = 18;
        let mut socket = Socket::open(Family::Route).unwrap();
        let request = Request {
            kind: RTM_GETLINK,
            dump: true,
            create: false,
            payload: vec![0; 16],
        };
        for _ in 0..2 {
            let mut kinds = Vec::new();
            socket
                .request("list links", &request, |kind, _| kinds.push(kind))
                .unwrap();
            assert!(!kinds.is_empty() && kinds.iter().all(|kind| *kind == RTM_NEWLINK));
        }
    }

    #[test]
    fn a_missing_subsystem_says_what_to_load() {
        match Socket::open(Family::Rdma) {
            Ok(_) => crate::skip::does_not_apply("this kernel has NETLINK_RDMA"),
            Err(error) => {
                assert!(matches!(error, HostError::NoRdmaSubsystem(_)), "{error}");
                assert!(error.to_string().contains("modprobe ib_core"), "{error}");
            }
        }
    }
}

//! Sends notifications as whole Ethernet frames through a packet socket, at a bounded rate.
//!
//! Method: AF_PACKET on an interface of this host that reaches the RNIC's own port. If the RNIC or its switch port
//! loops frames back, this is the port's own interface; for a veth pair, it is the peer interface. Frames above the
//! bound are dropped and counted, because a late notification has no use.
//!
//! Needs CAP_NET_RAW. Units: notifications per second. Limits: some RNICs may ignore a notification that they sent
//! themselves; `docs/internals/enforce.md` lists what is tested.

use super::target::{CODE_POINT, Target};
use crate::control::pace::Pace;
use crate::error::EnforceError;
use isolane_common_linux::Root;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Highest rate of one sender, notifications per second: four for each of 100 flows every 10 ms, far below 1 % of any
/// link.
pub(crate) const RATE_MAX: u64 = 40_000;
/// Largest burst: one batch for 256 flows.
const BURST: u64 = 1_024;

/// A packet socket on one interface.
#[derive(Debug)]
pub(crate) struct Sender {
    socket: OwnedFd,
    hardware: [u8; 6],
    code_point: u8,
    pace: Pace,
    sent: u64,
    dropped: u64,
}

impl Sender {
    /// Opens a sender on `interface` with [`RATE_MAX`] and the default code point. Fails if the interface does not
    /// exist, or CAP_NET_RAW is missing.
    pub(crate) fn open(root: &Root, interface: &str) -> Result<Self, EnforceError> {
        let failed = |source| EnforceError::System {
            action: "open a packet socket for congestion notifications (needs CAP_NET_RAW)",
            source,
        };
        let folder = format!("/sys/class/net/{interface}");
        let hardware = root
            .text(&format!("{folder}/address"))
            .and_then(|text| super::target::hardware_address(&text));
        let index = root.number(&format!("{folder}/ifindex"));
        let (Some(hardware), Some(index)) = (hardware, index) else {
            return Err(EnforceError::BadInput(format!(
                "no Ethernet interface is named `{interface}`; see /sys/class/net"
            )));
        };
        let index = i32::try_from(index)
            .map_err(|_| failed(io::Error::from(io::ErrorKind::InvalidData)))?;
        Ok(Self {
            socket: packet_socket(index).map_err(failed)?,
            hardware,
            code_point: CODE_POINT,
            pace: Pace::new(RATE_MAX, Some(BURST)),
            sent: 0,
            dropped: 0,
        })
    }

    /// Sends up to `count` notifications to a target at `now` (nanoseconds of a steady clock). Returns the number sent.
    /// Fails with the kernel's error, for example when the interface is down.
    pub(crate) fn send(&mut self, now: u64, target: &Target, count: u32) -> io::Result<u32> {
        let frame = target.notification(self.hardware, self.code_point).frame();
        let mut sent = 0;
        for _ in 0..count {
            // Drops the frame if its turn is later than now.
            let mut pace = self.pace;
            if pace.turn(now) > now {
                self.dropped += u64::from(count - sent);
                break;
            }
            self.pace = pace;
            let bytes = rustix::net::send(
                &self.socket,
                frame.bytes(),
                rustix::net::SendFlags::DONTWAIT,
            );
            bytes?;
            sent += 1;
        }
        self.sent += u64::from(sent);
        Ok(sent)
    }

    /// Notifications sent so far, and notifications dropped by the rate bound.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.sent, self.dropped)
    }
}

/// Opens a packet socket that sends on the interface `index` and receives nothing.
fn packet_socket(index: i32) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed; on success the descriptor is new and has no other owner.
    let socket = unsafe {
        let descriptor = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(descriptor)
    };
    // SAFETY: `sockaddr_ll` is plain data, for which zeros are valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_ifindex = index;
    // SAFETY: the kernel reads `size_of::<sockaddr_ll>()` bytes of ours.
    let bound = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    match bound {
        0 => Ok(socket),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cnp::target::tests::{port, queue_pair};

    /// Uses the loopback interface and an unused destination address, so the frames reach no host.
    #[test]
    fn no_more_than_the_bound_goes_out() {
        let mut sender = match Sender::open(&Root::machine(), "lo") {
            Ok(sender) => sender,
            Err(error) => {
                isolane_common_linux::skip::skip(error);
                return;
            }
        };
        let target = Target::of(&queue_pair(), port(), None).unwrap();
        assert_eq!(sender.send(1, &target, 2_000).unwrap(), BURST as u32);
        assert_eq!(sender.counts(), (BURST, 2_000 - BURST));
        // One millisecond later the rate admits more.
        assert_eq!(sender.send(1_000_001, &target, 2_000).unwrap(), 40);
    }

    #[test]
    fn an_interface_that_does_not_exist_is_named() {
        let error = Sender::open(&Root::machine(), "nosuch0").unwrap_err();
        assert!(error.to_string().contains("nosuch0"), "{error}");
    }
}

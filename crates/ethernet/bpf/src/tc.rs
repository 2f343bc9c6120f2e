//! Our filter at a device's egress, and the clsact queueing discipline that holds it, by rtnetlink.
//!
//! Problem: other programs may sit at the same hook; ours must come and go without touching theirs. Method: the filter
//! has a preference and a handle of its own, is replaced and removed by exactly these, and clsact is removed only if we
//! added it and it holds nothing else. Written by hand, because the loader library finds devices by name only and
//! cannot list filters or remove the queueing discipline.
//! Source: rtnetlink(7), tc-bpf(8).

use libc::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NLMSG_DONE,
    NLMSG_ERROR, RTM_DELQDISC, RTM_DELTFILTER, RTM_GETQDISC, RTM_GETTFILTER, RTM_NEWQDISC,
    RTM_NEWTFILTER, TCA_KIND, TCA_OPTIONS,
};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// Our places among the filters, in the order in which they are tried. We run first: a filter that accepts a packet ends
/// the list, and ours never does. A place is not ours to take if filters of another kind have it.
pub const PREFERENCES: std::ops::RangeInclusive<u16> = 1..=16;
/// Our handle there, which no other program is likely to have: "isol".
pub const HANDLE: u32 = 0x6973_6f6c;

const CLSACT_HANDLE: u32 = 0xffff_0000;
const CLSACT_PARENT: u32 = CLSACT_HANDLE | 0xfff1;
const INGRESS: u32 = CLSACT_HANDLE | 0xfff2;
const EGRESS: u32 = CLSACT_HANDLE | 0xfff3;

const BPF_FD: u16 = 6;
const BPF_NAME: u16 = 7;
const BPF_FLAGS: u16 = 8;
const DIRECT_ACTION: u32 = 1;

const HEADER_BYTES: usize = size_of::<libc::nlmsghdr>();
const TCMSG_BYTES: usize = 20;

/// A filter at the egress or ingress of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) egress: bool,
    pub(crate) preference: u16,
    pub(crate) handle: u32,
}

impl Filter {
    pub(crate) fn is_ours(self) -> bool {
        self.egress && PREFERENCES.contains(&self.preference) && self.handle == HANDLE
    }
}

/// Adds clsact where it is missing, and records in `added` that it is ours.
pub(crate) fn ensure_clsact(ifindex: u32, added: &AtomicU32) -> io::Result<()> {
    match has_clsact(ifindex)? {
        true => Ok(()),
        false => record_and_add(added, || add_clsact(ifindex)),
    }
}

/// Records before it adds. A kill between the two leaves a record without a clsact, which `detach` tolerates. In the other
/// order a kill would leave a clsact without a record, and it would stay.
fn record_and_add(added: &AtomicU32, add: impl FnOnce() -> io::Result<bool>) -> io::Result<()> {
    added.store(1, Relaxed);
    let outcome = add();
    if !matches!(outcome, Ok(true)) {
        // It failed, or another program added it meanwhile.
        added.store(0, Relaxed);
    }
    outcome.map(drop)
}

/// Whether the device has clsact, or the ingress discipline in its place.
fn has_clsact(ifindex: u32) -> io::Result<bool> {
    let mut message = Message::new(RTM_GETQDISC, 0, ifindex);
    message.tcmsg(CLSACT_HANDLE, CLSACT_PARENT, 0);
    match message.send() {
        Ok(()) => Ok(true),
        // The kernel's answer for a place that was never taken, and for one that is free again.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Adds clsact; false if the device has it already.
fn add_clsact(ifindex: u32) -> io::Result<bool> {
    let mut message = Message::new(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, ifindex);
    message.tcmsg(CLSACT_HANDLE, CLSACT_PARENT, 0);
    message.attribute(TCA_KIND, b"clsact\0");
    match message.send() {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes clsact with all it holds.
pub(crate) fn remove_clsact(ifindex: u32) -> io::Result<()> {
    let mut message = Message::new(RTM_DELQDISC, 0, ifindex);
    message.tcmsg(CLSACT_HANDLE, CLSACT_PARENT, 0);
    message.send()
}

/// Sets our filter, in one step if it exists, and returns its preference.
pub(crate) fn set_filter(ifindex: u32, program: BorrowedFd<'_>) -> io::Result<u16> {
    let there = filters(ifindex)?
        .into_iter()
        .find(|filter| filter.is_ours());
    if let Some(filter) = there {
        return set_filter_at(ifindex, program, filter.preference).map(|()| filter.preference);
    }
    let mut refused = None;
    for preference in PREFERENCES {
        match set_filter_at(ifindex, program, preference) {
            Ok(()) => return Ok(preference),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.expect("at least one place was tried"))
}

fn set_filter_at(ifindex: u32, program: BorrowedFd<'_>, preference: u16) -> io::Result<()> {
    let mut message = Message::new(RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_REPLACE, ifindex);
    message.tcmsg(HANDLE, EGRESS, place(preference));
    message.attribute(TCA_KIND, b"bpf\0");
    let options = message.begin(TCA_OPTIONS);
    message.attribute(BPF_FD, &(program.as_raw_fd() as u32).to_ne_bytes());
    message.attribute(BPF_NAME, b"isolane\0");
    message.attribute(BPF_FLAGS, &DIRECT_ACTION.to_ne_bytes());
    message.end(options);
    message.send()
}

/// Removes our filter and no other.
pub(crate) fn remove_filter(ifindex: u32) -> io::Result<()> {
    let there = filters(ifindex)?
        .into_iter()
        .find(|filter| filter.is_ours());
    let Some(filter) = there else {
        return Ok(());
    };
    let mut message = Message::new(RTM_DELTFILTER, 0, ifindex);
    message.tcmsg(HANDLE, EGRESS, place(filter.preference));
    message.attribute(TCA_KIND, b"bpf\0");
    message.send()
}

/// Every filter that clsact holds.
pub(crate) fn filters(ifindex: u32) -> io::Result<Vec<Filter>> {
    let mut all = Vec::new();
    for (parent, egress) in [(INGRESS, false), (EGRESS, true)] {
        let mut message = Message::new(RTM_GETTFILTER, NLM_F_DUMP, ifindex);
        message.tcmsg(0, parent, 0);
        let found = message.dump(RTM_NEWTFILTER)?;
        all.extend(found.into_iter().filter_map(|body| {
            let word = |at: usize| {
                body.get(at..at + 4)?
                    .try_into()
                    .ok()
                    .map(u32::from_ne_bytes)
            };
            let (handle, info) = (word(8)?, word(16)?);
            // Each preference is listed once for itself, with handle 0, besides its filters.
            (handle != 0).then_some(Filter {
                egress,
                preference: (info >> 16) as u16,
                handle,
            })
        }));
    }
    Ok(all)
}

fn place(preference: u16) -> u32 {
    u32::from(preference) << 16 | u32::from((libc::ETH_P_ALL as u16).to_be())
}

/// A request under construction.
struct Message {
    bytes: Vec<u8>,
    ifindex: u32,
}

impl Message {
    fn new(kind: u16, flags: i32, ifindex: u32) -> Self {
        let answer = if flags == NLM_F_DUMP { 0 } else { NLM_F_ACK };
        let flags = (NLM_F_REQUEST | flags | answer) as u16;
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        Self { bytes, ifindex }
    }

    fn tcmsg(&mut self, handle: u32, parent: u32, info: u32) {
        for word in [0, self.ifindex, handle, parent, info] {
            self.bytes.extend(word.to_ne_bytes());
        }
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        let at = self.begin(kind);
        self.bytes.extend(value);
        self.end(at);
    }

    fn begin(&mut self, kind: u16) -> usize {
        let at = self.bytes.len();
        self.bytes.extend([0; 2]);
        self.bytes.extend(kind.to_ne_bytes());
        at
    }

    fn end(&mut self, at: usize) {
        let length = (self.bytes.len() - at) as u16;
        self.bytes[at..at + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn open(&mut self) -> io::Result<OwnedFd> {
        let length = self.bytes.len() as u32;
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        let socket = rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
        let kernel = SocketAddrNetlink::new(0, 0);
        rustix::net::sendto(&socket, &self.bytes, SendFlags::empty(), &kernel)?;
        Ok(socket)
    }

    /// Sends it and waits for the kernel's yes or no.
    fn send(mut self) -> io::Result<()> {
        let socket = self.open()?;
        answers(&socket, |kind, body| match i32::from(kind) {
            NLMSG_ERROR => Some(outcome(body)),
            _ => None,
        })
    }

    /// Sends it and returns the bodies of all answers of this kind.
    fn dump(mut self, wanted: u16) -> io::Result<Vec<Vec<u8>>> {
        let socket = self.open()?;
        let mut found = Vec::new();
        answers(&socket, |kind, body| match i32::from(kind) {
            NLMSG_DONE => Some(Ok(())),
            NLMSG_ERROR => Some(outcome(body)),
            _ => {
                if kind == wanted && body.len() >= TCMSG_BYTES {
                    found.push(body.to_vec());
                }
                None
            }
        })?;
        Ok(found)
    }
}

/// Passes messages to `each` until it has seen the last one.
fn answers(
    socket: &OwnedFd,
    mut each: impl FnMut(u16, &[u8]) -> Option<io::Result<()>>,
) -> io::Result<()> {
    let mut buffer = vec![0_u8; 1 << 16];
    loop {
        let (_, read) = rustix::net::recv(socket, &mut buffer[..], RecvFlags::empty())?;
        let mut rest = &buffer[..read];
        if rest.len() < HEADER_BYTES {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while rest.len() >= HEADER_BYTES {
            let length = u32::from_ne_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
            let kind = u16::from_ne_bytes([rest[4], rest[5]]);
            if !(HEADER_BYTES..=rest.len()).contains(&length) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if let Some(end) = each(kind, &rest[HEADER_BYTES..length]) {
                return end;
            }
            rest = &rest[length.next_multiple_of(4).min(rest.len())..];
        }
    }
}

/// The error number of an acknowledgement, 0 for success.
fn outcome(body: &[u8]) -> io::Result<()> {
    let number = body
        .first_chunk::<4>()
        .map(|bytes| i32::from_ne_bytes(*bytes));
    match number {
        Some(0) => Ok(()),
        Some(number) => Err(io::Error::from_raw_os_error(-number)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kill may come while clsact is added.
    #[test]
    fn clsact_is_recorded_before_it_is_added_and_only_if_it_is_ours() {
        let added = AtomicU32::new(0);
        record_and_add(&added, || Ok(added.load(Relaxed) == 1)).expect("no error");
        assert_eq!(added.load(Relaxed), 1, "recorded before, and still");
        record_and_add(&added, || Ok(false)).expect("no error");
        assert_eq!(added.load(Relaxed), 0, "another program's");
        let refused = || Err(io::ErrorKind::PermissionDenied.into());
        assert!(record_and_add(&added, refused).is_err());
        assert_eq!(added.load(Relaxed), 0, "not there");
    }
}

//! A session over a real socket: hello, leases, the pump's thread, the daemon's end and return, a child by fork.
//!
//! The test uses real time but asserts no times, only events before a generous bound. One test, because a process has
//! one session.
#![allow(unsafe_code, missing_docs)]
#![allow(clippy::unwrap_used, clippy::undocumented_unsafe_blocks)]

mod null;

use isolane_rdma_session::message::{Class, MESSAGE_MAX, ToDaemon, ToShim};
use isolane_rdma_session::region::{Lease, METER_ACTIVE, REGION_BYTES, Region};
use isolane_rdma_verbs_sys::*;
use isolane_shim::process::{Process, install};
use isolane_shim::settings::{Settings, Talk};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept, bind, listen, recv, send, sendmsg, socket_with,
};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

fn clock() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn socket(path: &Path) -> OwnedFd {
    let _ = std::fs::remove_file(path);
    let kind = SocketType::SEQPACKET;
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
    bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    listen(&socket, 4).unwrap();
    socket
}

/// Accepts one process and answers its `Hello` and its first `Open`.
fn welcome(socket: &OwnedFd, lease: &Lease) -> (OwnedFd, Region) {
    let client = accept(socket).unwrap();
    let (region, file) = Region::create(5).unwrap();
    region.meters[2].grant(lease);
    region.meters[3].grant(lease);
    let wake = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let mut bytes = [0u8; MESSAGE_MAX];
    for _ in 0..2 {
        let (count, _) = recv(&client, &mut bytes[..], RecvFlags::empty()).unwrap();
        match ToDaemon::decode(&bytes[..count]).unwrap() {
            ToDaemon::Hello { weight, tenant, .. } => {
                assert_eq!((weight, tenant.as_str()), (3, "blue"));
                let packet = ToShim::Welcome {
                    session: 5,
                    region_bytes: REGION_BYTES as u64,
                    class: Class::Bandwidth,
                }
                .encode();
                let files = [file.as_fd(), wake.as_fd()];
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
                let mut ancillary = SendAncillaryBuffer::new(&mut space);
                ancillary.push(SendAncillaryMessage::ScmRights(&files));
                let packet = [IoSlice::new(&packet)];
                sendmsg(&client, &packet, &mut ancillary, SendFlags::NOSIGNAL).unwrap();
            }
            ToDaemon::Open { device } => {
                assert_eq!(device, "null0");
                let look = ToShim::Look.encode();
                send(&client, &look, SendFlags::NOSIGNAL).unwrap();
                let opened = ToShim::Opened {
                    outgoing: 2,
                    remote_read: 3,
                };
                send(&client, &opened.encode(), SendFlags::NOSIGNAL).unwrap();
            }
            other => panic!("{other:?} from a shim"),
        }
    }
    (client, region)
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn write(qp: *mut ibv_qp, from: &[u8], to: &[u8]) {
    null::through::write(qp, 3, from, to.as_ptr());
}

#[test]
fn a_session_from_hello_to_the_daemons_return() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let settings = Settings {
        socket: path.clone(),
        weight: 3,
        tenant: "blue".to_owned(),
        talk: Talk::Off,
        ..Settings::default()
    };
    install(Process::new(null::originals(), settings, clock));
    let listener = socket(&path);
    let lease = Lease {
        rate_bytes_per_s: 1_000_000,
        burst_bytes: 4_000,
        chunk_bytes: 1_000,
        valid_until_ns: u64::MAX / 2,
        flags: METER_ACTIVE,
        ..Lease::default()
    };
    let (client, region, qp, cq) = std::thread::scope(|scope| {
        let daemon = scope.spawn(|| welcome(&listener, &lease));
        let (qp, cq) = null::through::connected("null0", 8);
        let (client, region) = daemon.join().unwrap();
        (client, region, qp, cq)
    });
    // The pump's thread posts waiting messages while the application does nothing.
    let (from, to) = (vec![7u8; 20_000], vec![0u8; 20_000]);
    write(qp, &from, &to);
    until("the pump posts every chunk", || {
        null::provider_requests(qp) == 20
    });
    while null::step(qp) {}
    assert_eq!(from, to);
    let mut wc = ibv_wc::default();
    assert_eq!(unsafe { ibv_poll_cq(cq, 1, &raw mut wc) }, 1);
    assert_eq!(region.meters[2].counters().posted_bytes, 20_000);
    assert_eq!(region.slots[0].chunks.load(Ordering::Relaxed), 20);
    assert_eq!(
        region.slots[0].completed_bytes.load(Ordering::Relaxed),
        20_000
    );

    // A child by fork has no session: inherited objects pass.
    let passes = in_child(|| {
        let before = null::provider_requests(qp);
        write(qp, &from, &to);
        let whole = null::provider_requests(qp) == before + 1;
        // And so they do in its own child, when it has a state of its own.
        install(Process::new(null::originals(), Settings::default(), clock));
        whole
            && in_child(|| {
                write(qp, &from, &to);
                null::provider_requests(qp) == before + 2
            })
    });
    assert!(passes, "the children's work passed whole");

    // The death of the daemon releases everything.
    let mut slow = lease;
    slow.rate_bytes_per_s = 1;
    region.meters[2].grant(&slow);
    write(qp, &from, &to);
    assert!(null::provider_requests(qp) < 30);
    drop((client, listener));
    until("the rest passes", || !null_waits(qp, cq));
    let before = null::provider_requests(qp);
    write(qp, &from, &to);
    assert_eq!(null::provider_requests(qp), before + 1, "whole");

    // After the daemon's return the process is paced again.
    let listener = socket(&path);
    let (_client, region) = welcome(&listener, &lease);
    until("a slot of the new session", || {
        region.slots[0].queue_pair.load(Ordering::Relaxed) != 0
    });
    until("splitting", || {
        while null::step(qp) {}
        while unsafe { ibv_poll_cq(cq, 1, &raw mut wc) } > 0 {}
        write(qp, &from, &to);
        region.slots[0].chunks.load(Ordering::Relaxed) > 0
    });
}

/// Runs `check` in a child by fork and returns its result; false after a panic.
fn in_child(check: impl FnOnce() -> bool) -> bool {
    let child = unsafe { libc::fork() };
    if child == 0 {
        let passed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
        unsafe { libc::_exit(i32::from(!passed.unwrap_or(false))) };
    }
    let mut status = 0;
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status == 0
}

/// Executes the provider's work. Returns whether a completion is still missing.
fn null_waits(qp: *mut ibv_qp, cq: *mut ibv_cq) -> bool {
    while null::step(qp) {}
    let mut wc = ibv_wc::default();
    unsafe { ibv_poll_cq(cq, 1, &raw mut wc) == 0 }
}

//! A daemon for trying the shim alone: every process and device gets the same lease without end.
//!
//! `fixed_lease SOCKET RATE_BYTES_PER_S BURST_BYTES CHUNK_BYTES [OPERATIONS_PER_S]`: a rate of 0 does not limit, a
//! chunk of 0 does not split, and `released` in place of the rate releases everything. At the end of each session it
//! prints what the session posted and passed.
#![allow(clippy::unwrap_used, reason = "a tool for tests")]

use isolane_rdma_session::message::{Class, MESSAGE_MAX, ToDaemon, ToShim};
use isolane_rdma_session::region::{Lease, METER_ACTIVE, METER_RELEASED, REGION_BYTES, Region};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, accept, bind, listen, recv, send, sendmsg, socket_with,
};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, rate, burst, chunk, rest @ ..] = arguments.as_slice() else {
        eprintln!("fixed_lease SOCKET RATE_BYTES_PER_S BURST_BYTES CHUNK_BYTES [OPERATIONS_PER_S]");
        std::process::exit(2);
    };
    let released = if rate == "released" {
        METER_RELEASED
    } else {
        0
    };
    let operations = rest.first().map_or(0, |text| text.parse().unwrap());
    let lease = Lease {
        rate_bytes_per_s: rate.parse().unwrap_or(0),
        burst_bytes: burst.parse().unwrap(),
        rate_operations_per_s: operations,
        burst_operations: (operations / 1_000).max(8),
        chunk_bytes: chunk.parse().unwrap(),
        valid_until_ns: u64::MAX / 2,
        flags: METER_ACTIVE | released,
    };
    let _ = std::fs::remove_file(path);
    let kind = SocketType::SEQPACKET;
    let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
    bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    listen(&socket, 64).unwrap();
    for session in 1.. {
        let client = accept(&socket).unwrap();
        std::thread::spawn(move || serve(&client, session, &lease));
    }
}

fn serve(client: &OwnedFd, session: u64, lease: &Lease) {
    let (region, file) = Region::create(session).unwrap();
    for meter in &region.meters {
        meter.grant(lease);
    }
    let wake = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let mut bytes = [0u8; MESSAGE_MAX];
    let mut devices = 0;
    let mut who = String::new();
    while let Ok((count @ 1.., _)) = recv(client, &mut bytes[..], RecvFlags::empty()) {
        match ToDaemon::decode(&bytes[..count]) {
            Ok(ToDaemon::Hello { class, program, .. }) => {
                who = program;
                let welcome = ToShim::Welcome {
                    session,
                    region_bytes: REGION_BYTES as u64,
                    class,
                };
                for slot in &region.slots {
                    let class = if class == Class::Auto {
                        Class::Bandwidth
                    } else {
                        class
                    };
                    slot.class.store(class as u32, Ordering::Relaxed);
                }
                let files = [file.as_fd(), wake.as_fd()];
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
                let mut ancillary = SendAncillaryBuffer::new(&mut space);
                ancillary.push(SendAncillaryMessage::ScmRights(&files));
                let packet = welcome.encode();
                let packet = [IoSlice::new(&packet)];
                sendmsg(client, &packet, &mut ancillary, SendFlags::NOSIGNAL).unwrap();
            }
            Ok(ToDaemon::Open { device: _ }) => {
                let opened = ToShim::Opened {
                    outgoing: devices * 2,
                    remote_read: devices * 2 + 1,
                };
                devices += 1;
                send(client, &opened.encode(), SendFlags::NOSIGNAL).unwrap();
            }
            Ok(other) => eprintln!("{other:?} is not for a fixed lease"),
            Err(error) => eprintln!("{error}"),
        }
    }
    for (index, meter) in region.meters[..usize::from(devices) * 2].iter().enumerate() {
        println!("{who} meter {index}: {:?}", meter.counters());
    }
    let sum = |of: fn(&isolane_rdma_session::region::Slot) -> u64| {
        region.slots.iter().map(of).sum::<u64>()
    };
    println!(
        "{who}: posted {} completed {} messages, {} and {} bytes, {} chunks, waited {} us",
        sum(|slot| slot.posted_messages.load(Ordering::Relaxed)),
        sum(|slot| slot.completed_messages.load(Ordering::Relaxed)),
        sum(|slot| slot.posted_bytes.load(Ordering::Relaxed)),
        sum(|slot| slot.completed_bytes.load(Ordering::Relaxed)),
        sum(|slot| slot.chunks.load(Ordering::Relaxed)),
        sum(|slot| slot.waited_ns.load(Ordering::Relaxed)) / 1_000,
    );
}

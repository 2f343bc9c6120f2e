//! Memory that others write while a program reads it: pages of a session, a completion queue, a virtual machine's rings.
//!
//! Method: an input is a list of writes, and the program looks at the memory between them.

use crate::Target;
use isolane_common_linux::account::Account;
use isolane_common_quantities::units::BitRate;
use isolane_ethernet_software_card::vhost::{Port, Vhost};
use isolane_rdma_emulated_verbs::ring::{Entry, Ring};
use isolane_rdma_session::message::Class;
use isolane_rdma_session::region::{Layout, Meter, REGION_BYTES, Region, Slot};
use isolaned::config::{Config, DeviceConfig};
use isolaned::governor::{Governor, SessionKey};
use isolaned::identity::Who;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::fs::File;
use std::io::{IoSlice, Write};
use std::mem::{MaybeUninit, offset_of};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

/// Targets whose input is a list of writes or messages.
pub const TARGETS: &[Target] = &[
    Target {
        name: "session-pages",
        run: |bytes| _ = session_pages(bytes),
        seeds: pages,
    },
    Target {
        name: "completion-queue",
        run: completion_queue,
        seeds: || {
            let acts = [
                (0, 1),
                (0, 2),
                (8, u64::MAX),
                (1, 0),
                (16, 2),
                (2, 0),
                (0, 3),
            ];
            vec![
                acts.into_iter()
                    .flat_map(|(act, word)| write_of(act, word))
                    .collect(),
            ]
        },
    },
    Target {
        name: "vhost",
        run: |bytes| _ = frames(bytes),
        seeds: machines,
    },
];

/// A write of an input: where, and which word.
const WRITE_BYTES: usize = 10;
/// The daemon looks after so many writes, and this long after its last look.
const WRITES_PER_LOOK: usize = 8;
const LOOK_NS: u64 = 3_000_000;
/// Rate of the device, bytes per second.
const DEVICE_RATE: u64 = 10_000_000;

fn write_of(at: u16, word: u64) -> [u8; WRITE_BYTES] {
    let mut bytes = [0; WRITE_BYTES];
    bytes[..2].copy_from_slice(&at.to_le_bytes());
    bytes[2..].copy_from_slice(&word.to_le_bytes());
    bytes
}

fn writes(bytes: &[u8]) -> impl Iterator<Item = (u16, u64)> {
    let (writes, _) = bytes.as_chunks::<WRITE_BYTES>();
    writes.iter().map(|write| {
        let [low, high, word @ ..] = *write;
        (u16::from_le_bytes([low, high]), u64::from_le_bytes(word))
    })
}

/// The daemon with two tenants. One writes any words into the memory of its session; the other one sends what its lease
/// permits. The leases together fit the device. Returns the least lease of the honest one after the first looks, bytes per second.
fn session_pages(bytes: &[u8]) -> u64 {
    let mut now_ns = 77_000_000_000;
    let device = DeviceConfig {
        name: "d".to_owned(),
        rate: Some(BitRate::from_bps(8 * DEVICE_RATE)),
        ..DeviceConfig::default()
    };
    let config = Config {
        devices: vec![device],
        ..Config::default()
    };
    let ports = vec![BitRate::from_gbps(10)];
    let mut governor = Governor::new(config, ports, now_ns).expect("valid options");
    let (honest, region) = arrive(&mut governor, now_ns, 1_000);
    let (hostile, memory) = arrive(&mut governor, now_ns, 2_000);
    let (honest_region, hostile_region) = (map(&region), map(&memory));
    let memory = File::from(memory);
    let mut least = DEVICE_RATE;
    let all: Vec<(u16, u64)> = writes(bytes).collect();
    for (look, some) in all.chunks(WRITES_PER_LOOK).enumerate() {
        for (at, word) in some {
            let at = usize::from(*at) * 8 % REGION_BYTES;
            let written = memory.write_all_at(&word.to_le_bytes(), at as u64);
            written.expect("within the file");
        }
        now_ns += LOOK_NS;
        let lease = honest_region.meters[0].lease();
        let sent = lease.rate_bytes_per_s.min(DEVICE_RATE) * LOOK_NS / 1_000_000_000;
        let meter = &honest_region.meters[0];
        meter
            .passed_bytes
            .fetch_add(sent, std::sync::atomic::Ordering::Relaxed);
        meter
            .passed_operations
            .fetch_add(1 + sent / 4_096, std::sync::atomic::Ordering::Relaxed);
        meter
            .waiting_since_ns
            .store(now_ns, std::sync::atomic::Ordering::Relaxed);
        for key in [honest, hostile] {
            governor.signalled(now_ns, key);
        }
        governor.advance(now_ns);
        while governor.take_order().is_some() {}
        while governor.take_look().is_some() {}
        let rate = honest_region.meters[0].lease().rate_bytes_per_s;
        if look > 0 {
            least = least.min(rate);
        }
        // What the daemon wrote; the hostile process may have written over its own.
        assert!(rate <= DEVICE_RATE, "{rate}");
    }
    governor.depart(now_ns, hostile);
    governor.depart(now_ns, honest);
    drop(hostile_region);
    least
}

fn map(memory: &OwnedFd) -> Region {
    Region::map(memory).expect("what the daemon made")
}

fn arrive(governor: &mut Governor, now_ns: u64, user: u32) -> (SessionKey, OwnedFd) {
    let who = Who {
        pid: user,
        user,
        account: Account::of_user(user),
        cgroup: String::new(),
        claim: String::new(),
        program: "test".to_owned(),
        class: Class::Auto,
        weight: 1,
    };
    let begun = governor.arrive(now_ns, who).expect("room for it");
    governor.open(now_ns, begun.key, "d");
    (begun.key, begun.memory)
}

/// A process that sends, and queue pairs that come, post and go.
fn pages() -> Vec<Vec<u8>> {
    let meter = offset_of!(Layout, meters);
    let slot = offset_of!(Layout, slots);
    let write = |at: usize, word: u64| write_of((at / 8) as u16, word);
    let sends = (1..40).flat_map(|step: u64| {
        [
            write(meter + offset_of!(Meter, posted_bytes), step << 20),
            write(meter + offset_of!(Meter, passed_bytes), step << 15),
            write(meter + offset_of!(Meter, passed_operations), step),
            write(meter + offset_of!(Meter, waiting_since_ns), 77_000_000_000),
        ]
    });
    let queue_pairs = (0..40_usize).flat_map(|step| {
        let at = slot + (step % 4) * size_of::<Slot>();
        [
            write(offset_of!(Layout, header) + 128, 4),
            write(at + offset_of!(Slot, state), 1 | (step as u64) << 32),
            write(at + offset_of!(Slot, posted_messages), step as u64),
            write(at + offset_of!(Slot, posted_bytes), 64 * step as u64),
        ]
    });
    vec![sends.flatten().collect(), queue_pairs.flatten().collect()]
}

/// The broker's end of a completion queue whose client writes any words into it.
fn completion_queue(bytes: &[u8]) {
    const CAPACITY: u32 = 8;
    let (ring, memory) = Ring::create(CAPACITY).expect("memory");
    let memory = File::from(memory);
    for (act, word) in writes(bytes) {
        match act & 7 {
            0 => {
                let at = u64::from(act) % (4_096 + 64 * u64::from(CAPACITY) - 8);
                memory
                    .write_all_at(&word.to_le_bytes(), at)
                    .expect("within the file");
            }
            1 | 2 => _ = ring.push(&Entry::default()),
            3 => _ = ring.take_armed(word & 1 == 1),
            4 => _ = ring.pop(),
            _ => {
                let (new, _) = Ring::create(1 + word as u32 % 16).expect("memory");
                if let Some(waiting) = ring.continue_in(&new, word >> 32) {
                    assert!(waiting <= 16);
                    new.take_over(&ring, waiting);
                }
            }
        }
    }
}

/// Bytes of a machine's memory, and messages of an input; each message has a head of four bytes.
const MEMORY_BYTES: u64 = 1 << 16;
const MESSAGES_MAX: usize = 48;
/// Where the memory is in the emulator.
const EMULATOR: u64 = 0x7000_0000_0000;

/// Messages of a virtual machine's emulator, then its memory: the card obeys, reads frames and writes some. Returns how many
/// of each.
fn frames(bytes: &[u8]) -> (usize, usize) {
    let (card, server) = Vhost::new(2).expect("descriptors");
    let (mut emulator, mut end) = UnixStream::pair().expect("descriptors");
    let memory = File::from(memfd_create("machine", MemfdFlags::CLOEXEC).expect("a file"));
    memory.set_len(MEMORY_BYTES).expect("its length");
    let signal = eventfd(0, EventfdFlags::NONBLOCK).expect("a signal");
    let mut rest = bytes;
    for _ in 0..MESSAGES_MAX {
        let Some(([request, flags, length, file], after)) = rest.split_first_chunk() else {
            break;
        };
        let (payload, after) = after.split_at(usize::from(*length).min(after.len()));
        rest = after;
        let file = match file {
            1 => Some(memory.as_fd()),
            2 => Some(signal.as_fd()),
            _ => None,
        };
        let words = [u32::from(*request), u32::from(*flags), u32::from(*length)];
        let head = words.map(u32::to_ne_bytes);
        let parts = [IoSlice::new(head.as_flattened()), IoSlice::new(payload)];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let files: Vec<_> = file.into_iter().collect();
        if !files.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&files)));
        }
        sendmsg(&emulator, &parts, &mut ancillary, SendFlags::empty()).expect("room for it");
    }
    let kept = rest.len().min(MEMORY_BYTES as usize);
    memory
        .write_all_at(&rest[..kept], 0)
        .expect("within the file");
    emulator.flush().expect("a socket");
    emulator.shutdown(Shutdown::Write).expect("it is connected");
    let _ = server.serve(&mut end);
    let mut frame = vec![0; 70_000];
    let (mut read, mut written) = (0, 0);
    for queue in 0..card.queues() {
        for _ in 0..4 {
            if let Ok(Some(bytes)) = card.read(queue, &mut frame) {
                assert!(bytes <= frame.len());
                card.left(queue, bytes);
                read += 1;
            }
            let parts = [IoSlice::new(&[0; 10]), IoSlice::new(&[0x45; 60])];
            written += usize::from(card.write(queue, &parts));
        }
    }
    (read, written)
}

/// An emulator that introduces both rings of a queue, and memory with a frame in one and a buffer in the other.
fn machines() -> Vec<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut tell = |request: u8, payload: &[u64], file: u8| {
        bytes.extend([request, 9, payload.len() as u8 * 8, file]);
        bytes.extend(payload.iter().flat_map(|word| word.to_ne_bytes()));
    };
    tell(1, &[], 0);
    tell(5, &[1, 0, MEMORY_BYTES, EMULATOR, 0], 1);
    for ring in 0..2_u64 {
        let at = EMULATOR + 512 * ring;
        tell(8, &[ring | 8 << 32], 0);
        tell(9, &[ring, at, at + 256, at + 128, 0], 0);
        tell(10, &[ring], 0);
        tell(13, &[ring], 2);
        tell(12, &[ring], 2);
        tell(18, &[ring | 1 << 32], 0);
    }
    let mut memory = vec![0; 4_096];
    for (ring, address, writable) in [(0, 2_048_u64, 2), (1, 1_024, 0)] {
        let at = 512 * ring;
        memory[at..at + 8].copy_from_slice(&address.to_le_bytes());
        memory[at + 8..at + 12].copy_from_slice(&200_u32.to_le_bytes());
        memory[at + 12] = writable;
        memory[at + 128 + 2] = 1;
    }
    // Behind the headers of virtio and Ethernet.
    memory[1_024 + 24..1_024 + 27].copy_from_slice(&[8, 0, 0x45]);
    // The rest of the messages is left out: messages of no length and no effect.
    let told = 2 + 2 * 6;
    bytes.extend([99, 1, 0, 0].repeat(MESSAGES_MAX - told));
    bytes.extend(memory);
    vec![bytes]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::fuzz;

    /// Two tenants of weight 1: half of the device is the part of each.
    #[test]
    fn any_words_of_one_session_leave_another_one_its_share() {
        let target = Target {
            name: "session-share",
            run: |bytes| {
                let least = session_pages(bytes);
                assert!(10 * least >= 9 * DEVICE_RATE / 2, "{least}");
            },
            seeds: pages,
        };
        assert_eq!(fuzz(&target, 1, 1_000), Ok(1_002));
        let least = pages().iter().map(|seed| session_pages(seed)).min();
        println!("least lease beside the seeds: {least:?} of {DEVICE_RATE} bytes/s");
    }

    /// A seed whose frame the card does not read leaves the rings unchecked.
    #[test]
    fn the_card_reads_the_frame_of_its_seed_and_writes_one() {
        assert_eq!(frames(&machines()[0]), (1, 1));
    }
}

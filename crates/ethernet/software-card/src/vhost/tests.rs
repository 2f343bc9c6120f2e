//! An emulator and a driver in one, over memory in a file: when buffers come back, and rings of nonsense.

use super::*;
use crate::card::Discipline;
use crate::lane::{Lane, LaneOptions};
use isolane_common_quantities::units::{BitRate, Duration, Instant};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, OFlags, fcntl_setfl, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::fs::File;
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;

/// Rings of so many entries, each of its own page in the emulator's addresses.
const ENTRIES: u16 = 16;
const MEMORY_BYTES: u64 = 1 << 20;
/// Where the machine's memory is in the emulator.
const EMULATOR: u64 = 0x7000_0000_0000;
const RING_BYTES: u64 = 4_096;
const BUFFERS: u64 = 1 << 16;

/// An emulator and a driver in one: memory as a file, whose rings are written as a driver writes them.
struct Machine {
    socket: UnixStream,
    memory: File,
    card: Vhost,
    directory: PathBuf,
    published: [u16; 4],
}

impl Machine {
    /// A card with two queues, and a machine that uses both.
    fn start(name: &str) -> Self {
        let directory =
            std::env::temp_dir().join(format!("isolane-vhost-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let path = directory.join("socket");
        let card = Vhost::listen(&path, 2).expect("a card");
        let socket = UnixStream::connect(&path).expect("it listens");
        let memory = File::from(memfd_create("machine", MemfdFlags::CLOEXEC).expect("a file"));
        memory.set_len(MEMORY_BYTES).expect("its length");
        let mut machine = Self {
            socket,
            memory,
            card,
            directory,
            published: [0; 4],
        };
        machine.introduce();
        machine
    }

    fn introduce(&mut self) {
        assert_eq!(self.ask(1, &[]) & VERSION_1, VERSION_1);
        assert_eq!(self.ask(17, &[]), 2, "queues");
        let memory = self.memory.try_clone().expect("a file");
        let region = [1, 0, MEMORY_BYTES, EMULATOR, 0];
        self.tell(5, &region, Some(memory.as_fd()));
        for ring in 0..4_u64 {
            self.tell(8, &[ring | u64::from(ENTRIES) << 32], None);
            let at = EMULATOR + ring * RING_BYTES;
            self.tell(9, &[ring, at, at + 1_024, at + 512, 0], None);
            self.tell(10, &[ring], None);
            let signal = eventfd(0, EventfdFlags::NONBLOCK).expect("a signal");
            self.tell(12, &[ring], Some(signal.as_fd()));
            self.tell(18, &[ring | 1 << 32], None);
        }
    }

    /// Sends a request and waits until it is obeyed.
    fn tell(&mut self, request: u32, payload: &[u64], file: Option<BorrowedFd<'_>>) {
        let payload: Vec<u8> = payload.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.send(request, 1 | 8, &payload, file);
        assert_eq!(self.answer(), 0);
    }

    fn ask(&mut self, request: u32, payload: &[u8]) -> u64 {
        self.send(request, 1, payload, None);
        self.answer()
    }

    fn send(&mut self, request: u32, flags: u32, payload: &[u8], file: Option<BorrowedFd<'_>>) {
        let mut bytes: Vec<u8> = [request, flags, payload.len() as u32]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        bytes.extend_from_slice(payload);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let files: Vec<_> = file.into_iter().collect();
        if !files.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&files)));
        }
        let parts = [IoSlice::new(&bytes)];
        sendmsg(&self.socket, &parts, &mut ancillary, SendFlags::empty()).expect("sent");
    }

    fn answer(&mut self) -> u64 {
        let mut bytes = [0; 20];
        self.socket.read_exact(&mut bytes).expect("an answer");
        u64::from_ne_bytes(bytes[12..].try_into().expect("eight bytes"))
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, at).expect("written");
    }

    /// Publishes one buffer on a ring.
    fn publish(&mut self, ring: usize, address: u64, bytes: u32, is_written: bool) {
        let slot = u64::from(self.published[ring] % ENTRIES);
        let base = ring as u64 * RING_BYTES;
        let mut descriptor = address.to_le_bytes().to_vec();
        descriptor.extend_from_slice(&bytes.to_le_bytes());
        descriptor.extend_from_slice(&[2 * u8::from(is_written), 0, 0, 0]);
        self.write(base + 16 * slot, &descriptor);
        self.write(base + 512 + 4 + 2 * slot, &(slot as u16).to_le_bytes());
        self.published[ring] += 1;
        self.write(base + 512 + 2, &self.published[ring].to_le_bytes());
    }

    /// How many buffers of a ring came back.
    fn used(&self, ring: usize) -> u16 {
        let mut bytes = [0; 2];
        let at = ring as u64 * RING_BYTES + 1_024 + 2;
        self.memory.read_exact_at(&mut bytes, at).expect("read");
        u16::from_le_bytes(bytes)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A UDP packet of 1,000 bytes behind the headers of virtio and Ethernet.
fn frame(port: u16) -> Vec<u8> {
    let mut frame = vec![0; HEADER_BYTES];
    frame.extend_from_slice(&PEER_BYTES);
    frame.extend_from_slice(&MACHINE_BYTES);
    frame.extend_from_slice(&IPV4);
    frame.extend_from_slice(&packet(port));
    frame
}

fn packet(port: u16) -> Vec<u8> {
    let mut packet = vec![
        0x45, 0, 0x03, 0xe8, 0, 0, 0, 0, 64, 17, 0, 0, 10, 98, 0, 1, 10, 98, 0, 2,
    ];
    packet.extend_from_slice(&port.to_be_bytes());
    packet.extend_from_slice(&[0, 7, 0x03, 0xd4, 0, 0]);
    packet.resize(1_000, 7);
    packet
}

fn lane() -> Lane {
    let options = LaneOptions {
        rate: BitRate::from_gbps(1),
        discipline: Discipline::RoundRobin,
        interrupt: Duration::from_us(100),
        complete_checksums: false,
    };
    Lane::new(2, options)
}

#[test]
fn buffers_come_back_when_their_packet_has_left_the_wire() {
    let mut machine = Machine::start("back");
    for number in 0..8_u64 {
        let at = BUFFERS + 2_048 * number;
        let frame = frame(number as u16);
        machine.write(at, &frame);
        machine.publish(1, at, frame.len() as u32, false);
    }
    let mut lane = lane();
    // A packet with its framing takes 8.304 us. A packet that began is in the card.
    let mut sent = 0;
    for us in [0, 1, 9, 30, 31, 60, 61, 100] {
        let now = Instant::ZERO + Duration::from_us(us);
        lane.step(&machine.card, now, &mut |_| sent += 1)
            .expect("it runs");
        assert_eq!(machine.used(1), sent, "{us} us");
        assert!(u64::from(sent) <= us * 1_000 / 8_304 + 1, "{us} us: {sent}");
    }
    assert_eq!(sent, 8);
}

#[test]
fn packets_reach_the_machine_in_frames_of_ethernet() {
    let mut machine = Machine::start("reach");
    let packet = packet(9);
    let note = Note::default().bytes();
    let parts = [IoSlice::new(&note), IoSlice::new(&packet)];
    assert!(!machine.card.write(0, &parts), "there is no buffer");
    machine.publish(0, BUFFERS, 2_048, true);
    machine.publish(0, BUFFERS + 2_048, 100, true);
    assert!(machine.card.write(0, &parts));
    assert!(!machine.card.write(0, &parts), "the buffer is too small");
    assert_eq!(machine.used(0), 2);
    let mut got = vec![0; HEADER_BYTES + ETHERNET_BYTES + packet.len()];
    machine
        .memory
        .read_exact_at(&mut got, BUFFERS)
        .expect("read");
    let (header, frame) = got.split_at(HEADER_BYTES);
    assert_eq!(header, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0], "one buffer");
    assert_eq!(frame[..6], MACHINE_BYTES);
    assert_eq!(frame[12..14], IPV4);
    assert_eq!(frame[14..], packet);
}

#[test]
fn a_machine_that_ends_leaves_a_card_for_the_next_one() {
    let mut machine = Machine::start("next");
    let mut lane = lane();
    for at in [BUFFERS, BUFFERS + 2_048] {
        machine.write(at, &frame(1));
        machine.publish(1, at, frame(1).len() as u32, false);
    }
    // The second frame is in the card when the machine ends.
    lane.step(&machine.card, Instant::ZERO, &mut |_| {})
        .expect("it runs");
    assert_eq!(machine.used(1), 1);
    machine.write(RING_BYTES, &[0; RING_BYTES as usize]);
    machine.published = [0; 4];
    machine.socket = UnixStream::connect(machine.directory.join("socket")).expect("it listens");
    machine.introduce();
    machine.write(BUFFERS, &frame(1));
    machine.publish(1, BUFFERS, frame(1).len() as u32, false);
    let later = Instant::ZERO + Duration::from_us(20);
    lane.step(&machine.card, later, &mut |_| {})
        .expect("it runs");
    assert_eq!(machine.used(1), 1);
}

#[test]
fn a_ring_of_no_entries_ends_the_card_with_a_reason() {
    let mut machine = Machine::start("none");
    machine.send(8, 1, &1_u64.to_ne_bytes(), None);
    assert_eq!(machine.socket.read(&mut [0]).expect("it is closed"), 0);
    let error = machine
        .card
        .read(0, &mut [0; 100])
        .expect_err("it says why");
    assert!(error.to_string().contains("ring 1 of 0 entries"), "{error}");
}

#[test]
fn a_silent_connection_keeps_no_machine_out() {
    let mut machine = Machine::start("silent");
    let path = machine.directory.join("socket");
    let mode = std::fs::metadata(&path).expect("it is there").permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    let _silent = UnixStream::connect(&path).expect("it listens");
    machine.socket = UnixStream::connect(&path).expect("it listens");
    machine.introduce();
    assert_eq!(machine.ask(17, &[]), 2);
}

/// Goal: memory that is not there does not end the process (SIGBUS).
#[test]
fn a_region_beyond_the_end_of_its_file_is_rejected() {
    let mut machine = Machine::start("beyond");
    machine.memory.set_len(MEMORY_BYTES - 1).expect("shorter");
    let memory = machine.memory.try_clone().expect("a file");
    let region = [1, 0, MEMORY_BYTES, EMULATOR, 0].map(u64::to_ne_bytes);
    machine.send(5, 1 | 8, region.as_flattened(), Some(memory.as_fd()));
    assert_eq!(machine.socket.read(&mut [0]).expect("it is closed"), 0);
    let error = machine.card.read(0, &mut [0; 100]).expect_err("a reason");
    assert!(error.to_string().contains("a file of 1048575"), "{error}");
}

/// Goal: a machine's emulator that does not read its signals does not stop the card. Method: a pipe that is full.
#[test]
fn a_signal_that_nobody_reads_stops_no_card() {
    let mut machine = Machine::start("pipe");
    let (_reader, writer) = rustix::pipe::pipe().expect("a pipe");
    fcntl_setfl(&writer, OFlags::NONBLOCK).expect("a flag");
    while rustix::io::write(&writer, &[0; 4_096]).is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).expect("a flag");
    machine.tell(13, &[1], Some(writer.as_fd()));
    machine.write(BUFFERS, &frame(1));
    machine.publish(1, BUFFERS, frame(1).len() as u32, false);
    let mut into = [0; 4_096];
    assert!(machine.card.read(0, &mut into).expect("it runs").is_some());
    machine.card.left(0, 0);
    assert_eq!(machine.used(1), 1);
}

#[test]
fn rings_of_any_bytes_end_no_card() {
    let mut machine = Machine::start("any");
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let bytes = prop::collection::vec(any::<u8>(), 16 * usize::from(ENTRIES) + 600);
    for _ in 0..300 {
        let tree = bytes.new_tree(&mut runner).expect("bytes");
        let mut rings = tree.current();
        // Every other address is within the memory, so that chains are followed.
        for entry in rings.chunks_exact_mut(16).step_by(2) {
            entry[2] &= 0x0f;
            entry[3..8].fill(0);
            entry[10..12].fill(0);
        }
        machine.write(RING_BYTES, &rings);
        machine.write(0, &rings);
        let mut lane = lane();
        for us in 0..20 {
            let now = Instant::ZERO + Duration::from_us(us);
            lane.step(&machine.card, now, &mut |_| {}).expect("it runs");
            machine.card.write(0, &[IoSlice::new(&[0; 60])]);
        }
        for ring in 0..4_u64 {
            machine.tell(10, &[ring], None);
        }
    }
    machine.socket.flush().expect("it still answers");
    assert_eq!(machine.ask(17, &[]), 2);
}

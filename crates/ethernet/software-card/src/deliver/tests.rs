//! Merging: what goes in comes out, once, in order, in few writes.

use super::*;
use crate::frame::Note;
use proptest::prelude::*;

const SEGMENT: usize = 100;

/// A TCP frame of one flow at a sequence number, with its payload's bytes counting up from there.
fn held(sequence: u32, payload: usize, acknowledgement: u8, flags: u8) -> Held {
    let note = Note {
        flags: 1,
        segmentation: u8::from(payload > SEGMENT),
        header_bytes: 40,
        segment_bytes: if payload > SEGMENT { SEGMENT as u16 } else { 0 },
        checksum_start: 20,
        checksum_offset: 16,
    };
    let mut packet = vec![
        0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    packet[2..4].copy_from_slice(&((40 + payload) as u16).to_be_bytes());
    packet.extend_from_slice(&[0, 7, 0, 9]);
    packet.extend_from_slice(&sequence.to_be_bytes());
    packet.extend_from_slice(&[0, 0, 0, acknowledgement, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    packet.extend((0..payload).map(|at| (sequence as usize + at) as u8));
    let mut bytes = note.bytes().to_vec();
    bytes.extend_from_slice(&packet);
    Held {
        frame: Frame::parse(note, &packet).unwrap(),
        bytes: bytes.into_boxed_slice(),
    }
}

/// All packets of the groups: each group parsed again as in the receiving kernel.
fn packets(merger: &Merger, frames: &[Held]) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    for group in merger.groups() {
        let mut write = Vec::new();
        group.head(frames, &mut write);
        group
            .payload(frames)
            .for_each(|part| write.extend_from_slice(part));
        let (note, bytes) = write.split_first_chunk::<NOTE_BYTES>().unwrap();
        let frame = Frame::parse(Note::parse(*note), bytes).unwrap();
        packets.extend((0..frame.packets()).map(|index| frame.packet(bytes, index)));
    }
    packets
}

fn add_all(merger: &mut Merger, frames: &[Held]) {
    for (buffer, held) in frames.iter().enumerate() {
        for packet in 0..held.frame.packets() {
            merger.add(Some(0), buffer, packet, frames);
        }
    }
}

#[test]
fn frames_that_continue_each_other_become_one_write() {
    let frames = [
        held(0, 300, 1, 0x10),
        held(300, 200, 1, 0x10),
        held(500, 50, 1, 0x18),
    ];
    let mut merger = Merger::default();
    add_all(&mut merger, &frames);
    assert_eq!(merger.groups().len(), 1);
    let data: Vec<u8> = packets(&merger, &frames)
        .iter()
        .flat_map(|packet| packet[40..].to_vec())
        .collect();
    assert_eq!(data, (0..550).map(|at| at as u8).collect::<Vec<_>>());
}

#[test]
fn a_merge_ends_where_something_changes() {
    let check = |frames: &[Held], groups: usize| {
        let mut merger = Merger::default();
        add_all(&mut merger, frames);
        assert_eq!(merger.groups().len(), groups);
    };
    check(&[held(0, 300, 1, 0x10), held(300, 200, 1, 0x10)], 1);
    check(&[held(0, 300, 1, 0x18), held(300, 200, 1, 0x10)], 2); // PSH
    check(&[held(0, 300, 1, 0x10), held(300, 200, 2, 0x10)], 2); // acknowledgement
    check(&[held(0, 300, 1, 0x10), held(301, 200, 1, 0x10)], 2); // a gap
    check(&[held(0, 250, 1, 0x10), held(250, 200, 1, 0x10)], 2); // a short packet
    check(&[held(0, 300, 1, 0x10), held(300, 200, 1, 0x90)], 2); // CWR
    check(&[held(0, 300, 1, 0x10), held(300, 100, 1, 0x11)], 1); // FIN at the end
}

#[test]
fn other_flows_and_the_next_interrupt_start_again() {
    let frames = [held(0, 300, 1, 0x10)];
    let mut merger = Merger::default();
    merger.add(Some(0), 0, 0, &frames[..]);
    merger.add(Some(1), 0, 1, &frames[..]);
    merger.add(None, 0, 2, &frames[..]);
    assert_eq!(merger.groups().len(), 3);
    merger.clear();
    assert!(merger.groups().is_empty());
    merger.add(Some(0), 0, 1, &frames[..]);
    assert_eq!(merger.groups().len(), 1);
}

#[test]
fn no_write_exceeds_what_ip_holds() {
    let frames: Vec<Held> = (0..4)
        .map(|index| held(index * 30_000, 30_000, 1, 0x10))
        .collect();
    let mut merger = Merger::default();
    add_all(&mut merger, &frames);
    assert_eq!(merger.groups().len(), 2);
    assert_eq!(packets(&merger, &frames).len(), 1_200);
}

proptest! {
    /// For any frames and interrupts, the receiver gets exactly the packets of the frames, in order.
    #[test]
    fn packets_out_are_packets_in(
        frames in prop::collection::vec((1_usize..900, prop::bool::ANY, 0_u8..2, prop::sample::select(vec![0x10_u8, 0x18, 0x90])), 1..12),
        interrupts in prop::collection::vec(any::<bool>(), 120),
    ) {
        let mut sequence = 0_u32;
        let frames: Vec<Held> = frames
            .into_iter()
            .map(|(payload, is_whole, acknowledgement, flags)| {
                let payload = if is_whole { payload.next_multiple_of(SEGMENT) } else { payload };
                let held = held(sequence, payload, acknowledgement, flags);
                sequence += payload as u32;
                held
            })
            .collect();
        let mut merger = Merger::default();
        let (mut got, mut want) = (Vec::new(), Vec::new());
        let mut turn = 0;
        for (buffer, held) in frames.iter().enumerate() {
            for packet in 0..held.frame.packets() {
                merger.add(Some(0), buffer, packet, &frames[..]);
                want.push(held.frame.packet(held.packet(), packet));
                if interrupts[turn % interrupts.len()] {
                    got.extend(packets(&merger, &frames));
                    merger.clear();
                }
                turn += 1;
            }
        }
        got.extend(packets(&merger, &frames));
        // Identifications continue within a merged write, where the frames' own restart.
        for packet in got.iter_mut().chain(&mut want) {
            packet[4..6].fill(0);
            packet[10..12].fill(0);
        }
        prop_assert_eq!(got, want);
    }
}

//! Frames against a slow cutter written from the RFCs, and against garbage.

use super::*;
use proptest::prelude::*;

/// A TCP frame as the kernel hands it down: lengths, a checksum of the pseudo header only, the note.
fn tcp(is_v6: bool, options: usize, flags: u8, segment: u16, payload: &[u8]) -> (Note, Vec<u8>) {
    let header = 20 + options * 4;
    let mut bytes = match is_v6 {
        false => {
            let mut ip = vec![0x45, 0, 0, 0, 0xff, 0xfe, 0x40, 0, 64, TCP, 0, 0];
            ip.extend_from_slice(&[10, 98, 0, 1, 10, 98, 0, 2]);
            store(&mut ip, 2, (20 + header + payload.len()) as u16);
            ip
        }
        true => {
            let mut ip = vec![0x60, 0, 0, 0, 0, 0, TCP, 64];
            ip.extend((0..32).map(|byte| byte * 7));
            store(&mut ip, 4, (header + payload.len()) as u16);
            ip
        }
    };
    let at = bytes.len();
    bytes.extend_from_slice(&[0x9c, 0x40, 0x14, 0x51]);
    bytes.extend_from_slice(&(u32::MAX - 2_000).to_be_bytes());
    bytes.extend_from_slice(&[
        0,
        0,
        1,
        2,
        ((header / 4) as u8) << 4,
        flags,
        1,
        0,
        0,
        0,
        0,
        0,
    ]);
    bytes.extend((0..options * 4).map(|byte| byte as u8));
    bytes.extend_from_slice(payload);
    let is_one = payload.len() <= usize::from(segment);
    let note = Note {
        flags: NEEDS_CHECKSUM,
        segmentation: match (is_one, is_v6) {
            (true, _) => SEGMENT_NONE,
            (false, false) => SEGMENT_TCP4,
            (false, true) => SEGMENT_TCP6,
        },
        header_bytes: (at + header) as u16,
        segment_bytes: if is_one { 0 } else { segment },
        checksum_start: at as u16,
        checksum_offset: 16,
    };
    (note, bytes)
}

/// A TCP packet's checksum over pseudo header, header and data; zero when it is right.
fn tcp_check(packet: &[u8]) -> u16 {
    let (addresses, at) = match packet[0] >> 4 {
        4 => (&packet[12..20], 20),
        _ => (&packet[8..40], 40),
    };
    let mut all = addresses.to_vec();
    all.extend_from_slice(&((packet.len() - at) as u32).to_be_bytes());
    all.extend_from_slice(&[0, 0, 0, TCP]);
    all.extend_from_slice(&packet[at..]);
    let mut sum = 0_u32;
    for pair in all.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Cuts by the book, field by field, from the first packet to the last; checksums are left out (zero).
fn slow_cut(bytes: &[u8], is_v6: bool, options: usize, segment: usize) -> Vec<Vec<u8>> {
    let at = if is_v6 { 40 } else { 20 };
    let header = at + 20 + options * 4;
    let chunks: Vec<&[u8]> = bytes[header..].chunks(segment).collect();
    let mut sequence = u32::from_be_bytes(bytes[at + 4..at + 8].try_into().unwrap());
    let mut packets = Vec::new();
    for (index, chunk) in chunks.iter().enumerate() {
        let mut packet = bytes[..header].to_vec();
        packet.extend_from_slice(chunk);
        let total = packet.len();
        if is_v6 {
            store(&mut packet, 4, (total - 40) as u16);
        } else {
            store(&mut packet, 2, total as u16);
            let identification = u16::from_be_bytes([bytes[4], bytes[5]]);
            store(&mut packet, 4, identification.wrapping_add(index as u16));
        }
        packet[at + 4..at + 8].copy_from_slice(&sequence.to_be_bytes());
        let is_last = index + 1 == chunks.len();
        let mut flags = bytes[at + 13];
        if index > 0 {
            flags &= !CWR;
        }
        if !is_last {
            flags &= !(FIN | PSH);
        }
        packet[at + 13] = flags;
        sequence = sequence.wrapping_add(chunk.len() as u32);
        packets.push(packet);
    }
    packets
}

/// The packet with its checksums set to zero, after they were found right.
fn without_sums(mut packet: Vec<u8>) -> Vec<u8> {
    assert_eq!(tcp_check(&packet), 0, "TCP checksum");
    let at = match packet[0] >> 4 {
        4 => {
            assert_eq!(Sum::of(&packet[..20]).fold(), 0xffff, "IP checksum");
            store(&mut packet, 10, 0);
            20
        }
        _ => 40,
    };
    store(&mut packet, at + 16, 0);
    packet
}

proptest! {
    #[test]
    fn packets_are_those_of_the_slow_cutter(
        is_v6: bool,
        options in 0_usize..10,
        flags: u8,
        segment in 1_u16..2_000,
        payload in prop::collection::vec(any::<u8>(), 1..9_000),
    ) {
        let (note, bytes) = tcp(is_v6, options, flags, segment, &payload);
        let frame = Frame::parse(note, &bytes).unwrap();
        let slow = slow_cut(&bytes, is_v6, options, usize::from(segment));
        prop_assert_eq!(frame.packets(), slow.len());
        for (index, want) in slow.into_iter().enumerate() {
            let packet = frame.packet(&bytes, index);
            prop_assert_eq!(packet.len(), frame.packet_bytes(index));
            prop_assert_eq!(without_sums(packet), want);
        }
    }

    /// A run, parsed again as a frame of its own, has the packets of the whole frame.
    #[test]
    fn a_run_of_packets_has_the_same_packets(
        is_v6: bool,
        flags: u8,
        segment in 1_u16..500,
        payload in prop::collection::vec(any::<u8>(), 1..4_000),
        from in 0_usize..8,
        count in 1_usize..9,
    ) {
        let (note, bytes) = tcp(is_v6, 3, flags, segment, &payload);
        let frame = Frame::parse(note, &bytes).unwrap();
        let from = from.min(frame.packets() - 1);
        let packets = from..(from + count).min(frame.packets());
        let mut run = Vec::new();
        frame.head_of_run(&bytes, &Run::alone(packets.clone()), &mut run);
        run.extend_from_slice(&bytes[frame.payload_of(packets.clone())]);
        let (note, again) = run.split_first_chunk::<NOTE_BYTES>().unwrap();
        let part = Frame::parse(Note::parse(*note), again).unwrap();
        prop_assert_eq!(part.packets(), packets.len());
        for (index, of_whole) in packets.enumerate() {
            prop_assert_eq!(part.packet(again, index), frame.packet(&bytes, of_whole));
        }
    }

    #[test]
    fn garbage_is_refused_or_passed_but_never_a_panic(
        note: [u8; NOTE_BYTES],
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        version in prop::sample::select(vec![None, Some(0x45_u8), Some(0x4f), Some(0x60)]),
        protocol in prop::sample::select(vec![None, Some(TCP), Some(UDP)]),
    ) {
        if let (Some(version), Some(first)) = (version, bytes.first_mut()) {
            *first = version;
        }
        for at in [6, 9] {
            if let (Some(protocol), Some(byte)) = (protocol, bytes.get_mut(at)) {
                *byte = protocol;
            }
        }
        let length = bytes.len() as u16;
        if bytes.len() > 40 {
            store(&mut bytes, if version == Some(0x60) { 4 } else { 2 }, length - 40);
        }
        exercise(Note::parse(note), &bytes);
    }

    /// A right frame with a few wrong bytes.
    #[test]
    fn damaged_frames_never_panic(
        is_v6: bool,
        payload in prop::collection::vec(any::<u8>(), 1..3_000),
        damage in prop::collection::vec((0_usize..80, any::<u8>()), 1..4),
        length in 0_usize..3_100,
    ) {
        let (note, bytes) = tcp(is_v6, 3, 0x18, 700, &payload);
        let mut all = note.bytes().to_vec();
        all.extend_from_slice(&bytes);
        for (at, value) in damage {
            let at = at % all.len();
            all[at] = value;
        }
        all.truncate(NOTE_BYTES + length);
        if let Some((note, bytes)) = all.split_first_chunk::<NOTE_BYTES>() {
            exercise(Note::parse(*note), bytes);
        }
    }
}

fn exercise(note: Note, bytes: &[u8]) {
    let Ok(frame) = Frame::parse(note, bytes) else {
        return;
    };
    let mut total = 0;
    for index in 0..frame.packets() {
        let packet = frame.packet(bytes, index);
        assert_eq!(packet.len(), frame.packet_bytes(index));
        total += packet.len() - frame.header;
    }
    assert_eq!(total, frame.length - frame.header, "every byte once");
    let mut head = Vec::new();
    frame.head_of_run(bytes, &Run::alone(0..frame.packets()), &mut head);
    let is_data = frame.segment > 0 && bytes[frame.transport + 13] & CWR == 0;
    assert_eq!(frame.is_like(bytes, &frame, bytes), is_data);
}

#[test]
fn notes_are_written_as_they_are_read() {
    let bytes = [1, 4, 3, 0, 5, 0, 7, 0, 9, 0];
    assert_eq!(Note::parse(bytes).bytes(), bytes);
}

#[test]
fn a_false_note_is_refused() {
    let (note, bytes) = tcp(false, 0, 0x10, 500, &[0; 1_200]);
    let check = |change: fn(&mut Note)| {
        let mut wrong = note;
        change(&mut wrong);
        assert_eq!(
            Frame::parse(wrong, &bytes),
            Err(Malformed::Note),
            "{wrong:?}"
        );
    };
    check(|note| note.segment_bytes = 0);
    check(|note| note.segmentation = SEGMENT_TCP6);
    check(|note| note.segmentation = 3);
    check(|note| note.checksum_start = 60_000);
    check(|note| note.checksum_offset = 18);
    check(|note| note.flags = 0);
    assert!(Frame::parse(note, &bytes).is_ok());
    assert_eq!(
        Frame::parse(note, &bytes[..bytes.len() - 1]),
        Err(Malformed::Short)
    );
    assert_eq!(Frame::parse(note, &[]), Err(Malformed::NoIp));
}

#[test]
fn only_the_first_packet_has_cwr_and_only_the_last_fin_and_psh() {
    let (note, bytes) = tcp(false, 0, CWR | FIN | PSH | 0x10, 500, &[7; 1_200]);
    let frame = Frame::parse(note, &bytes).unwrap();
    let flags: Vec<u8> = (0..3)
        .map(|index| frame.packet(&bytes, index)[33])
        .collect();
    assert_eq!(flags, [CWR | 0x10, 0x10, FIN | PSH | 0x10]);
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_all_ones() {
    // An empty datagram whose words sum to 0xffff: the complement is zero, which would mean "no checksum".
    let mut bytes = vec![
        0x45, 0, 0, 28, 0, 0, 0, 0, 64, UDP, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    bytes.extend_from_slice(&[0xff, 0xf7, 0, 0, 0, 8, 0, 0]);
    let note = Note {
        flags: NEEDS_CHECKSUM,
        checksum_start: 20,
        checksum_offset: 6,
        ..Note::default()
    };
    let frame = Frame::parse(note, &bytes).unwrap();
    assert_eq!(frame.packet(&bytes, 0)[26..], [0xff, 0xff]);
}

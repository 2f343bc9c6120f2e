//! Captures written here: gRPC connections whose packets have chosen code points, whole, cut, reordered and hostile.

use crate::declared::{Declared, Rule};
use crate::tally::{Direction, Report, Row, Verdict};
use crate::{CaptureError, Class, Options, audit};
use etherparse::{IpFragOffset, Ipv4Header, PacketBuilder, TcpHeader};
use loona_hpack::Encoder;
use proptest::prelude::*;

const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [10, 0, 0, 2];
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

fn options() -> Options {
    let class = |(name, dscp): (&str, u8)| Class {
        name: name.to_owned(),
        dscp,
    };
    Options {
        classes: [("high", 46), ("low", 8)].map(class).to_vec(),
        header: "isolane-class".to_owned(),
        declared: Declared::default(),
        responses: false,
        tolerance: 0.0,
    }
}

/// A capture in the making: Ethernet frames in pcap's little-endian format.
struct Wire {
    file: Vec<u8>,
    port: u16,
    sent: [u32; 2],
    snap: usize,
}

impl Wire {
    fn new() -> Self {
        let mut file = Vec::new();
        file.extend(0xa1b2_c3d4u32.to_le_bytes());
        for part in [2u16, 4] {
            file.extend(part.to_le_bytes());
        }
        for word in [0u32, 0, 262_144, 1] {
            file.extend(word.to_le_bytes());
        }
        Self {
            file,
            port: 40_000,
            sent: [1_000, 9_000],
            snap: usize::MAX,
        }
    }

    fn frame(&mut self, frame: &[u8]) {
        let kept = frame.len().min(self.snap);
        for word in [0u32, 0, kept as u32, frame.len() as u32] {
            self.file.extend(word.to_le_bytes());
        }
        self.file.extend(&frame[..kept]);
    }

    fn segment(
        &self,
        from_client: bool,
        dscp: u8,
        sequence: u32,
        flags: &str,
        payload: &[u8],
    ) -> Vec<u8> {
        let (from, to) = if from_client {
            (CLIENT, SERVER)
        } else {
            (SERVER, CLIENT)
        };
        let (source, target) = if from_client {
            (self.port, 50_051)
        } else {
            (50_051, self.port)
        };
        let mut ip = Ipv4Header::new(0, 64, etherparse::IpNumber::TCP, from, to).unwrap();
        ip.dscp = dscp.try_into().unwrap();
        ip.fragment_offset = IpFragOffset::ZERO;
        let mut tcp = TcpHeader::new(source, target, sequence, 65_535);
        tcp.syn = flags.contains('S');
        tcp.ack = flags.contains('A');
        tcp.fin = flags.contains('F');
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6])
            .ip(etherparse::IpHeaders::Ipv4(ip, Default::default()))
            .tcp_header(tcp);
        let mut frame = Vec::new();
        builder.write(&mut frame, payload).unwrap();
        frame
    }

    fn put(&mut self, from_client: bool, dscp: u8, flags: &str, payload: &[u8]) {
        let side = usize::from(!from_client);
        let frame = self.segment(from_client, dscp, self.sent[side], flags, payload);
        let more = payload.len() as u32 + u32::from(flags.contains('S'));
        self.sent[side] += more;
        self.frame(&frame);
    }

    fn open(&mut self) {
        self.put(true, 0, "S", &[]);
        self.put(false, 0, "SA", &[]);
    }
}

fn http2_frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Request header and body of a call.
fn request(encoder: &mut Encoder<'_>, stream: u32, class: Option<&str>, body: usize) -> Vec<u8> {
    let mut headers: Vec<(&[u8], &[u8])> = vec![(b":path", b"/Storage/Write")];
    if let Some(class) = class {
        headers.push((b"isolane-class", class.as_bytes()));
    }
    let block = encoder.encode(headers);
    let mut bytes = http2_frame(1, 0x4, stream, &block);
    bytes.extend(http2_frame(0, 0x1, stream, &vec![7; body]));
    bytes
}

/// One connection with calls of (class, DSCP of the packets, bytes of the body).
fn connection(wire: &mut Wire, calls: &[(Option<&str>, u8, usize)]) {
    wire.open();
    wire.put(false, 0, "A", &http2_frame(4, 0, 0, &[]));
    wire.put(
        true,
        0,
        "A",
        &[PREFACE, &http2_frame(4, 0, 0, &[])].concat(),
    );
    let mut encoder = Encoder::new();
    for (index, (class, dscp, body)) in calls.iter().enumerate() {
        let stream = 1 + 2 * index as u32;
        let bytes = request(&mut encoder, stream, *class, *body);
        for part in bytes.chunks(1_400) {
            wire.put(true, *dscp, "A", part);
        }
        wire.put(false, 0, "A", &http2_frame(1, 0x4 | 0x1, stream, &[0x88]));
    }
}

fn report(wire: &Wire, options: &Options) -> Report {
    audit(&wire.file[..], options).unwrap()
}

fn row<'r>(report: &'r Report, class: Option<&str>, direction: Direction) -> &'r Row {
    let fits = |row: &&Row| row.class.as_deref() == class && row.direction == direction;
    report.rows.iter().find(fits).expect("a row of the class")
}

#[test]
fn calls_in_the_class_that_they_declare_are_aligned() {
    let mut wire = Wire::new();
    connection(
        &mut wire,
        &[(Some("high"), 46, 3_000), (Some("high"), 46, 100)],
    );
    wire.port += 1;
    connection(&mut wire, &[(Some("low"), 8, 5_000)]);
    let report = report(&wire, &options());
    assert_eq!(report.verdict, Verdict::Aligned, "{report:?}");
    let high = row(&report, Some("high"), Direction::Request);
    assert_eq!((high.calls, high.misaligned_bytes), (2, 0));
    assert!(high.bytes > 3_100 && high.bytes < 3_300, "{high:?}");
    assert_eq!(report.connections.readable, 2);
}

#[test]
fn a_call_in_another_class_is_misaligned_even_within_an_aligned_connection() {
    let mut wire = Wire::new();
    let calls = [
        (Some("high"), 46, 3_000),
        (Some("low"), 46, 100),
        (Some("high"), 46, 10),
    ];
    connection(&mut wire, &calls);
    let report = report(&wire, &options());
    assert_eq!(report.verdict, Verdict::Misaligned);
    let low = row(&report, Some("low"), Direction::Request);
    assert_eq!((low.calls, low.misaligned_calls), (1, 1));
    assert_eq!(low.misaligned_bytes, low.bytes);
    assert_eq!(
        row(&report, Some("high"), Direction::Request).misaligned_bytes,
        0
    );
}

#[test]
fn responses_count_on_request_only() {
    let mut wire = Wire::new();
    connection(&mut wire, &[(Some("high"), 46, 3_000)]);
    let mut options = options();
    assert_eq!(report(&wire, &options).verdict, Verdict::Aligned);
    options.responses = true;
    let report = report(&wire, &options);
    assert_eq!(
        report.verdict,
        Verdict::Misaligned,
        "the server does not mark"
    );
    assert_eq!(row(&report, Some("high"), Direction::Response).bytes, 10);
}

#[test]
fn a_tolerance_permits_its_part_of_the_bytes() {
    let mut wire = Wire::new();
    connection(
        &mut wire,
        &[(Some("high"), 46, 30_000), (Some("high"), 0, 100)],
    );
    let mut options = options();
    options.tolerance = 0.01;
    assert_eq!(report(&wire, &options).verdict, Verdict::Aligned);
    options.tolerance = 0.001;
    assert_eq!(report(&wire, &options).verdict, Verdict::Misaligned);
}

#[test]
fn segments_out_of_order_and_sent_twice_count_once() {
    let mut wire = Wire::new();
    wire.open();
    let bytes = [
        PREFACE.to_vec(),
        request(&mut Encoder::new(), 1, Some("high"), 5_000),
    ]
    .concat();
    let begin = wire.sent[0];
    let mut parts: Vec<(u32, &[u8])> = Vec::new();
    for (index, part) in bytes.chunks(700).enumerate() {
        parts.push((begin + 700 * index as u32, part));
    }
    parts.swap(0, 3);
    parts.swap(2, 5);
    parts.push(parts[4]);
    for (sequence, part) in parts {
        let frame = wire.segment(true, 46, sequence, "A", part);
        wire.frame(&frame);
    }
    let report = report(&wire, &options());
    let high = row(&report, Some("high"), Direction::Request);
    assert_eq!(
        high.bytes + report.control_bytes,
        (bytes.len() - PREFACE.len()) as u64
    );
    assert_eq!(report.verdict, Verdict::Aligned);
}

#[test]
fn packets_that_are_cut_within_a_body_stay_readable() {
    let mut wire = Wire::new();
    connection(&mut wire, &[(Some("high"), 46, 1)]);
    wire.snap = 200;
    let stream = 3;
    let mut encoder = Encoder::new();
    encoder.encode([(&b":path"[..], &b"/"[..])]);
    let head = http2_frame(
        1,
        0x4,
        stream,
        &Encoder::new().encode([(&b"isolane-class"[..], &b"high"[..])]),
    );
    wire.put(true, 46, "A", &head);
    wire.put(true, 46, "A", &http2_frame(0, 0x1, stream, &[0; 1_300]));
    let report = report(&wire, &options());
    let high = row(&report, Some("high"), Direction::Request);
    assert_eq!(high.calls, 2);
    assert!(high.bytes > 1_300, "{high:?}");
    assert_eq!(report.connections.broken, 0);
}

#[test]
fn a_table_gives_classes_to_connections_that_are_not_readable() {
    let mut wire = Wire::new();
    wire.open();
    wire.put(true, 8, "A", &[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]);
    wire.put(false, 8, "A", &[22, 3, 3]);
    let mut options = options();
    let undeclared = report(&wire, &options);
    assert_eq!(undeclared.verdict, Verdict::Undecided);
    assert_eq!(undeclared.connections.undeclared, 1);
    options.declared.push(Rule {
        server_port: Some(50_051),
        class: 0,
        ..Rule::default()
    });
    let report = report(&wire, &options);
    assert_eq!(report.verdict, Verdict::Misaligned);
    let high = row(&report, Some("high"), Direction::Request);
    assert_eq!((high.bytes, high.marked[0].dscp), (11, 8));
}

#[test]
fn a_call_without_a_class_and_one_with_an_unknown_class_are_named() {
    let mut wire = Wire::new();
    connection(&mut wire, &[(None, 46, 10), (Some("hihg"), 46, 10)]);
    let report = report(&wire, &options());
    assert_eq!(report.verdict, Verdict::Undecided);
    assert_eq!(report.unknown_classes, ["hihg"]);
    assert_eq!(row(&report, None, Direction::Request).calls, 2);
}

#[test]
fn a_file_that_is_no_capture_is_refused() {
    let error = audit(
        &b"GET / HTTP/1.1\r\n\r\n and more than a header"[..],
        &options(),
    );
    assert!(matches!(error, Err(CaptureError::Unknown)), "{error:?}");
}

#[test]
fn a_capture_that_ends_within_a_packet_is_read_up_to_there() {
    let mut wire = Wire::new();
    connection(&mut wire, &[(Some("high"), 46, 3_000)]);
    wire.file.truncate(wire.file.len() - 5);
    let report = report(&wire, &options());
    assert!(report.cut_off);
    assert_eq!(report.verdict, Verdict::Aligned);
}

#[test]
fn a_packet_longer_than_any_ends_the_reading_with_its_place() {
    let mut wire = Wire::new();
    wire.open();
    for word in [0u32, 0, 500_000_000, 500_000_000] {
        wire.file.extend(word.to_le_bytes());
    }
    wire.file.extend(vec![0; 3 << 20]);
    let error = audit(&wire.file[..], &options()).unwrap_err();
    assert!(error.to_string().contains("packet 2"), "{error}");
}

/// The block says that the table's size changes, and ends within the size.
#[test]
fn a_header_block_that_ends_within_a_number_is_not_readable() {
    let mut wire = Wire::new();
    wire.open();
    let block = http2_frame(1, 0x4, 1, &[0x3f, 0xff]);
    wire.put(true, 46, "A", &[PREFACE, &block].concat());
    let report = report(&wire, &options());
    assert_eq!(report.connections.broken, 1, "{report:?}");
    assert_eq!(report.verdict, Verdict::Undecided);
}

/// One bad header block hides all later calls of the connection.
#[test]
fn aligned_calls_before_calls_that_were_not_read_decide_nothing() {
    let mut wire = Wire::new();
    connection(&mut wire, &[(Some("high"), 46, 3_000)]);
    assert_eq!(report(&wire, &options()).verdict, Verdict::Aligned);
    let block = http2_frame(1, 0x4, 3, &[0x3f, 0xff]);
    wire.put(true, 46, "A", &block);
    wire.put(true, 0, "A", &http2_frame(0, 0x1, 3, &[0; 1_300]));
    let mut options = options();
    let hidden = report(&wire, &options);
    assert!(hidden.unread_bytes >= 1_300, "{hidden:?}");
    assert_eq!(hidden.verdict, Verdict::Undecided);
    options.tolerance = 0.9;
    assert_eq!(report(&wire, &options).verdict, Verdict::Aligned);
}

#[test]
fn a_call_of_an_unknown_class_beside_an_aligned_one_decides_nothing() {
    let mut wire = Wire::new();
    connection(&mut wire, &[(Some("high"), 46, 10), (Some("hihg"), 0, 10)]);
    assert_eq!(report(&wire, &options()).verdict, Verdict::Undecided);
}

/// A connection with one request; the server's bytes arrive behind a hole, then `handshakes`, then the hole's bytes.
fn response_around(handshakes: &[u32]) -> Report {
    let mut wire = Wire::new();
    wire.open();
    let call = request(&mut Encoder::new(), 1, Some("high"), 10);
    wire.put(true, 46, "A", &[PREFACE, &call].concat());
    let bytes = http2_frame(0, 0, 1, &[7; 5_000]);
    let begin = wire.sent[1];
    let (first, rest) = bytes.split_at(700);
    let mut frames = vec![wire.segment(false, 46, begin + 700, "A", rest)];
    for &number in handshakes {
        frames.push(wire.segment(false, 46, number, "SA", &[]));
    }
    frames.push(wire.segment(false, 46, begin, "A", first));
    for frame in frames {
        wire.frame(&frame);
    }
    let mut options = options();
    options.responses = true;
    report(&wire, &options)
}

#[test]
fn a_repeated_handshake_drops_no_waiting_bytes() {
    let as_it_was = response_around(&[]);
    assert_eq!(as_it_was.unread_bytes, 0, "{as_it_was:?}");
    let repeated = response_around(&[9_000]);
    assert_eq!(repeated.rows, as_it_was.rows);
    assert_eq!(
        (repeated.unread_bytes, repeated.verdict),
        (0, as_it_was.verdict)
    );
}

#[test]
fn bytes_that_another_handshake_drops_are_unread() {
    let dropped = response_around(&[77_000, 88_000]);
    assert!(dropped.unread_bytes >= 4_300, "{dropped:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any bytes behind a valid header, and any change of a valid capture, end in a report or an error.
    #[test]
    fn hostile_captures_end(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40),
        junk in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let mut wire = Wire::new();
        connection(&mut wire, &[(Some("high"), 46, 3_000), (Some("low"), 8, 10)]);
        for (at, value) in changes {
            let at = 24 + at.index(wire.file.len() - 24);
            wire.file[at] = value;
        }
        wire.file.extend(junk);
        let _ = audit(&wire.file[..], &options());
    }

    /// Any bytes on a connection are read without an end in memory or a panic.
    #[test]
    fn hostile_connections_end(
        frames in prop::collection::vec((0u8..12, any::<u8>(), 0u32..6, prop::collection::vec(any::<u8>(), 0..60)), 1..30),
    ) {
        let mut wire = Wire::new();
        wire.open();
        let mut bytes = PREFACE.to_vec();
        for (kind, flags, stream, payload) in &frames {
            bytes.extend(http2_frame(*kind, *flags, *stream, payload));
        }
        let sent = bytes.len() as u64;
        for part in bytes.chunks(37) {
            wire.put(true, 46, "A", part);
        }
        let report = report(&wire, &options());
        let rows: u64 = report.rows.iter().map(|row| row.bytes).sum();
        // No byte counts twice; the preface belongs to nothing.
        prop_assert!(rows + report.control_bytes + report.unread_bytes <= sent);
    }
}

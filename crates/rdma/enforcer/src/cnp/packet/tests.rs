//! Compares notifications with another program's view: `tshark` dissects a capture, and every field is compared.
//! Without tshark the test reports a skip and passes.

use super::*;
use proptest::prelude::*;
use std::process::Command;

fn over_v4() -> Notification {
    Notification {
        source_hardware: [0x02, 0, 0, 0, 0, 0x0a],
        destination_hardware: [0x02, 0, 0, 0, 0, 0x0b],
        addresses: Addresses::V4 {
            source: Ipv4Addr::new(10, 7, 0, 2),
            destination: Ipv4Addr::new(10, 7, 0, 1),
        },
        source_port: 0xc123,
        queue_pair: 0x0a_bc_de,
        code_point: 48,
    }
}

fn over_v6() -> Notification {
    Notification {
        addresses: Addresses::V6 {
            source: "fd00::2".parse().unwrap(),
            destination: "fd00::1".parse().unwrap(),
        },
        code_point: 26,
        ..over_v4()
    }
}

/// A capture file of Ethernet frames.
fn capture(frames: &[Frame]) -> Vec<u8> {
    let word = |value: u32| value.to_le_bytes();
    let mut file = Vec::new();
    // Magic, version 2.4, zone, accuracy, longest frame, Ethernet.
    file.extend(
        [
            word(0xa1b2_c3d4),
            word(4 << 16 | 2),
            word(0),
            word(0),
            word(65_535),
            word(1),
        ]
        .concat(),
    );
    for frame in frames {
        let length = word(frame.bytes().len() as u32);
        file.extend([word(0), word(0), length, length].concat());
        file.extend(frame.bytes());
    }
    file
}

/// Returns tshark's values of `fields` for every frame; `None` without tshark.
fn dissect(frames: &[Frame], fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notifications.pcap");
    std::fs::write(&path, capture(frames)).unwrap();
    let mut command = Command::new("tshark");
    command.arg("-r").arg(&path).args(["-T", "fields"]);
    command.args(["-o", "ip.check_checksum:TRUE", "-E", "separator=|"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            isolane_common_linux::skip::does_not_apply(format_args!(
                "tshark does not run here ({error})"
            ));
            return None;
        }
    };
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let rows = text
        .lines()
        .map(|line| line.split('|').map(str::to_owned).collect());
    Some(rows.collect())
}

/// The transport header, field by field, as tshark 4.0 names them.
const TRANSPORT_FIELDS: &[(&str, &str)] = &[
    ("infiniband.bth.opcode", "129"),
    ("infiniband.bth.se", "0"),
    ("infiniband.bth.m", "0"),
    ("infiniband.bth.padcnt", "0"),
    ("infiniband.bth.tver", "0"),
    ("infiniband.bth.p_key", "65535"),
    // tshark knows the byte with FECN, BECN and six reserved bits as reserved: BECN alone.
    ("infiniband.reserved", "40"),
    ("infiniband.bth.destqp", "0x0abcde"),
    ("infiniband.bth.a", "0"),
    ("infiniband.bth.reserved7", "0"),
    ("infiniband.bth.psn", "0"),
    ("udp.srcport", "49443"),
    ("udp.dstport", "4791"),
    ("udp.length", "40"),
    ("udp.checksum", "0x0000"),
    ("eth.dst", "02:00:00:00:00:0b"),
    ("eth.src", "02:00:00:00:00:0a"),
];

const V4_FIELDS: &[(&str, &str)] = &[
    ("frame.len", "74"),
    ("ip.version", "4"),
    ("ip.hdr_len", "20"),
    ("ip.dsfield.dscp", "48"),
    ("ip.dsfield.ecn", "0"),
    ("ip.len", "60"),
    ("ip.id", "0x0000"),
    ("ip.flags.df", "1"),
    ("ip.flags.mf", "0"),
    ("ip.frag_offset", "0"),
    ("ip.ttl", "64"),
    ("ip.proto", "17"),
    // 1: good.
    ("ip.checksum.status", "1"),
    ("ip.src", "10.7.0.2"),
    ("ip.dst", "10.7.0.1"),
];

const V6_FIELDS: &[(&str, &str)] = &[
    ("frame.len", "94"),
    ("ipv6.version", "6"),
    ("ipv6.tclass.dscp", "26"),
    ("ipv6.tclass.ecn", "0"),
    ("ipv6.flow", "0x000000"),
    ("ipv6.plen", "40"),
    ("ipv6.nxt", "17"),
    ("ipv6.hlim", "64"),
    ("ipv6.src", "fd00::2"),
    ("ipv6.dst", "fd00::1"),
];

#[test]
fn tshark_reads_every_field_as_it_was_meant() {
    for (notification, own) in [(over_v4(), V4_FIELDS), (over_v6(), V6_FIELDS)] {
        let fields: Vec<(&str, &str)> = own.iter().chain(TRANSPORT_FIELDS).copied().collect();
        let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
        let Some(rows) = dissect(&[notification.frame()], &names) else {
            return;
        };
        for ((name, meant), read) in fields.iter().zip(&rows[0]) {
            assert_eq!(read, meant, "{name}");
        }
    }
}

/// tshark 4.0 does not know the opcode and shows the bytes after the transport header as one run: 16 reserved bytes and
/// the checksum. The checksum itself is tested with captured packets ([`icrc`]).
#[test]
fn tshark_finds_the_checksum_behind_sixteen_zeros() {
    for notification in [over_v4(), over_v6()] {
        let frame = notification.frame();
        let Some(rows) = dissect(&[frame], &["infiniband.vendor", "infiniband.invariant.crc"])
        else {
            return;
        };
        let bytes = frame.bytes();
        let sum: String = bytes[bytes.len() - 4..]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        // The run is the last item; an earlier item repeats its first bytes.
        let run = rows[0][0].rsplit(',').next().unwrap_or_default();
        let (shown, crc) = (run.replace(':', ""), &rows[0][1]);
        match crc.is_empty() {
            true => assert_eq!(shown, format!("{}{sum}", "00".repeat(RESERVED))),
            // A later tshark version knows the opcode.
            false => assert_eq!(*crc, format!("0x{sum}")),
        }
    }
}

/// The layout of the specification, by offsets, for the bits that tshark does not name.
#[test]
fn the_congestion_bits_and_the_reserved_bytes_are_those_of_the_specification() {
    for (notification, transport) in [(over_v4(), 42), (over_v6(), 62)] {
        let frame = notification.frame();
        let header = &frame.bytes()[transport..];
        // FECN clear, BECN set, six reserved bits clear.
        assert_eq!(header[4], 0b0100_0000);
        assert_eq!(header[5..8], [0x0a, 0xbc, 0xde]);
        // No acknowledgement requested, sequence number 0, then 16 bytes of zeros.
        assert_eq!(header[8..28], [0; 20]);
        assert_eq!(header.len(), 32);
    }
}

proptest! {
    /// For all field values the IP header sums to zero, the lengths add up, and the checksum covers the bytes before
    /// it.
    #[test]
    fn any_notification_is_well_formed(
        queue_pair in 0_u32..1 << 24,
        code_point in 0_u8..64,
        source_port in any::<u16>(),
        source in any::<u32>(),
        destination in any::<u32>(),
    ) {
        let notification = Notification {
            addresses: Addresses::V4 { source: source.into(), destination: destination.into() },
            queue_pair,
            code_point,
            source_port,
            ..over_v4()
        };
        let frame = notification.frame();
        let packet = &frame.bytes()[ETHERNET..];
        prop_assert_eq!(internet_checksum(&packet[..IPV4]), 0);
        prop_assert_eq!(usize::from(u16::from_be_bytes([packet[2], packet[3]])), packet.len());
        prop_assert_eq!(packet[1] >> 2, code_point);
        let (body, sum) = packet.split_at(packet.len() - 4);
        let expected = icrc::checksum(body).unwrap();
        prop_assert_eq!(&expected[..], sum);
    }
}

//! Real answers of Linux 6.12 (Soft-RoCE and siw), and arbitrary bytes.

use super::*;
use expect_test::{Expect, expect};
use proptest::prelude::*;

fn check(actual: impl std::fmt::Debug, expected: Expect) {
    expected.assert_eq(&format!("{actual:?}"));
}

/// What `parse` reads of a message in hexadecimal digits.
fn check_read<T: std::fmt::Debug>(
    parse: fn(Attributes<'_>) -> T,
    hexadecimal: &str,
    expected: Expect,
) {
    check(parse(Attributes::new(&bytes(hexadecimal))), expected);
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digits: Vec<u8> = hexadecimal
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap() as u8;
    digits
        .chunks(2)
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}
const DEVICE: &str = "\
     0800010000000000070002007230000008000300010000000c000400763c2201c00100000c000600c82f1dfeff491f880c000700 \
     c82f1dfeff491f8805000e00010000000500540000000000050065000100000009004300726f636500000000";
const DEVICE_SIW: &str = "\
     0800010002000000070002007331000008000300010000000c00040000002000000000000c0006002f85c1fefff9bec00c000700 \
     2f85c1fefff9bec005000e0004000000050054000000000005006500010000000700430069770000";
const LINK: &str = "\
     08000100000000000700020072300000080003000100000005000c000400000005000d0005000000080032000300000007003300 \
     76300000";
const QUEUE_PAIRS: &str = "\
     08000100000000000700020072300000e4001300540014000800030001000000080015001100000008003c000100000008001c00 \
     c70000000800160011000000080017001b1474000800180000000000050019000000000005001a000200000005001b0002000000 \
     540014000800030001000000080015001200000008003c000100000008001c00c7000000080016001200000008001700f43b1500 \
     0800180000000000050019000000000005001a000200000005001b00020000003800140008000300010000000800150001000000 \
     0c001d0069625f636f726500080018000000000005001a000100000005001b0003000000";
const COMPLETION_QUEUES: &str = "\
     08000100000000000700020072300000780023003c00240008002500ff0300000c00260002000000000000000500270002000000 \
     050054000000000008003d00000000000c001d0069625f636f7265003800240008002500ff0100000c0026000400000000000000 \
     050054000000000008003d0001000000080040000000000008001c00c7000000";
const MEMORY_REGIONS: &str = "\
     080001000000000007000200723000003c0028003800290008002a00e702000008002b00e70200000c002d000000040000000000 \
     08003e000000000008003c000100000008001c00c7000000";
const PROTECTION_DOMAINS: &str = "\
     0800010000000000070002007230000060002e002c002f0008003000c50100000c002600010000000000000008003c0000000000 \
     0c001d0069625f636f72650030002f0008003000000000000c002600030000000000000008003c00010000000800400000000000 \
     08001c00c7000000";
const CONNECTIONS: &str = "\
     0800010002000000070002007331000038011e0034011f000800030001000000080020000601000005001b000800000084002100 \
     02001c060a0800010000000000000000000000000000000000000000000000000000000000000000000000000000000000000000 \
     00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000 \
     00000000000000000000000000000000000000000000000084002200020000000000000000000000000000000000000000000000 \
     00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000 \
     00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000 \
     08003f000000000008001c00ce000000";
const CONTEXTS: &str = "\
     080001000000000007000200723000001800560014005700080040000000000008001c00c7000000";
#[test]
fn devices_and_links_are_read() {
    check_read(
        device,
        DEVICE,
        expect![[
            r#"[Device { index: 0, name: "r0", port_count: 1, firmware: "", node_guid: 9808639877265043400, protocol: "roce" }]"#
        ]],
    );
    check_read(
        device,
        DEVICE_SIW,
        expect![[
            r#"[Device { index: 2, name: "s1", port_count: 1, firmware: "", node_guid: 13888813178743260463, protocol: "iw" }]"#
        ]],
    );
    check_read(
        link,
        LINK,
        expect![[
            r#"Some(Link { device: "r0", port: 1, state: Active, physical_state: LinkUp, network_device: Some("v0"), lid: None })"#
        ]],
    );
}

#[test]
fn queue_pairs_are_read() {
    let message = bytes(QUEUE_PAIRS);
    for (entry, expected) in queue_pairs(Attributes::new(&message)).into_iter().zip([
        expect![[r#"QueuePair { device: "r0", port: Some(1), number: 17, remote_number: Some(17), kind: ReliableConnection, state: ReadyToReceive, send_sequence: Some(0), receive_sequence: Some(7607323), path_migration: Some(Migrated), protection_domain: Some(1), holder: Process(199) }"#]],
        expect![[r#"QueuePair { device: "r0", port: Some(1), number: 18, remote_number: Some(18), kind: ReliableConnection, state: ReadyToReceive, send_sequence: Some(0), receive_sequence: Some(1391604), path_migration: Some(Migrated), protection_domain: Some(1), holder: Process(199) }"#]],
        expect![[r#"QueuePair { device: "r0", port: Some(1), number: 1, remote_number: None, kind: General, state: ReadyToSend, send_sequence: Some(0), receive_sequence: None, path_migration: None, protection_domain: None, holder: Kernel("ib_core") }"#]],
    ]) {
        check(entry, expected);
    }
    assert_eq!(queue_pairs(Attributes::new(&message)).len(), 3);
}

#[test]
fn other_resources_are_read() {
    check_read(
        completion_queues,
        COMPLETION_QUEUES,
        expect![[
            r#"[CompletionQueue { device: "r0", number: Some(0), entries: 1023, users: 2, context: None, holder: Kernel("ib_core") }, CompletionQueue { device: "r0", number: Some(1), entries: 511, users: 4, context: Some(0), holder: Process(199) }]"#
        ]],
    );
    check_read(
        memory_regions,
        MEMORY_REGIONS,
        expect![[
            r#"[MemoryRegion { device: "r0", number: Some(0), length_bytes: 262144, local_key: Some(743), remote_key: Some(743), protection_domain: Some(1), holder: Process(199) }]"#
        ]],
    );
    check_read(
        protection_domains,
        PROTECTION_DOMAINS,
        expect![[
            r#"[ProtectionDomain { device: "r0", number: Some(0), users: 1, context: None, holder: Kernel("ib_core") }, ProtectionDomain { device: "r0", number: Some(1), users: 3, context: Some(0), holder: Process(199) }]"#
        ]],
    );
    check_read(
        connection_identifiers,
        CONNECTIONS,
        expect![[
            r#"[ConnectionIdentifier { device: "s1", port: Some(1), number: Some(0), queue_pair: None, state: Listen, port_space: Some(262), source: Some(10.8.0.1:7174), destination: Some(0.0.0.0:0), holder: Process(206) }]"#
        ]],
    );
    check_read(
        contexts,
        CONTEXTS,
        expect![[r#"[Context { device: "r0", number: 0, holder: Process(199) }]"#]],
    );
}

fn everything(message: &[u8]) -> usize {
    let message = Attributes::new(message);
    device(message).len()
        + usize::from(link(message).is_some())
        + queue_pairs(message).len()
        + completion_queues(message).len()
        + memory_regions(message).len()
        + protection_domains(message).len()
        + connection_identifiers(message).len()
        + contexts(message).len()
        + shared_receive_queues(message).len()
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(message in proptest::collection::vec(any::<u8>(), 0..400)) {
        everything(&message);
    }

    #[test]
    fn damaged_answers_are_read_without_a_panic(which in 0usize..8, at in any::<proptest::sample::Index>(), value in any::<u8>(), cut in any::<proptest::sample::Index>()) {
        let texts = [DEVICE, LINK, QUEUE_PAIRS, COMPLETION_QUEUES, MEMORY_REGIONS, PROTECTION_DOMAINS, CONNECTIONS, CONTEXTS];
        let mut message = bytes(texts[which]);
        let length = message.len();
        message[at.index(length)] = value;
        message.truncate(cut.index(length + 1));
        everything(&message);
    }
}

#[test]
fn an_unknown_number_is_shown_as_such() {
    assert_eq!(QueuePairKind::from(77).to_string(), "unknown (77)");
    assert_eq!(QueuePairState::from(3).to_string(), "RTS");
}

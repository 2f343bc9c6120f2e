//! Offsets of every field, as the compiled object describes them, against those of the Rust types.

use super::*;
use std::collections::BTreeMap;
use std::mem::offset_of;

fn word(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
}

fn long(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")) as usize
}

fn string(bytes: &[u8]) -> &str {
    let end = bytes.iter().position(|byte| *byte == 0).expect("ends");
    std::str::from_utf8(&bytes[..end]).expect("a name")
}

/// A section of an ELF file of 64 bits.
fn section<'a>(elf: &'a [u8], wanted: &str) -> &'a [u8] {
    let table = long(elf, 40);
    let half = |at: usize| usize::from(u16::from_le_bytes([elf[at], elf[at + 1]]));
    let (size, count, names) = (half(58), half(60), half(62));
    let content = |index: usize| {
        let header = table + index * size;
        &elf[long(elf, header + 24)..][..long(elf, header + 32)]
    };
    let names = content(names);
    let index = (0..count)
        .find(|index| string(&names[word(elf, table + index * size)..]) == wanted)
        .expect("a section of this name");
    content(index)
}

/// Offsets in bytes of the fields of every struct, and its size, by the BTF type section.
fn structs(btf: &[u8]) -> BTreeMap<String, (usize, BTreeMap<String, usize>)> {
    const STRUCT: usize = 4;
    let header = word(btf, 4);
    let types = &btf[header + word(btf, 8)..][..word(btf, 12)];
    let names = &btf[header + word(btf, 16)..];
    let mut found = BTreeMap::new();
    let mut at = 0;
    while at < types.len() {
        let (name, info, size) = (word(types, at), word(types, at + 4), word(types, at + 8));
        let (kind, count) = (info >> 24 & 31, info & 0xffff);
        at += 12;
        if kind == STRUCT {
            let members = (0..count).map(|index| {
                let member = at + index * 12;
                let offset = word(types, member + 8) & 0xff_ffff;
                (string(&names[word(types, member)..]).to_owned(), offset / 8)
            });
            let fields = (size, members.collect());
            found.insert(string(&names[name..]).to_owned(), fields);
        }
        at += match kind {
            1 | 14 | 17 => 4,
            3 => 12,
            STRUCT | 5 | 15 | 19 => 12 * count,
            6 | 13 => 8 * count,
            _ => 0,
        };
    }
    found
}

macro_rules! check {
    ($found:expr, $name:literal, $rust:ty, $($field:ident),*) => {
        let (size, fields) = &$found[$name];
        assert_eq!(*size, size_of::<$rust>(), $name);
        let mut ours = 0;
        $(
            let there = fields.get(stringify!($field));
            let here = offset_of!($rust, $field);
            assert_eq!(there, Some(&here), concat!($name, ".", stringify!($field)));
            ours += 1;
        )*
        let theirs = fields.keys().filter(|name| !name.starts_with("reserved")).count();
        assert_eq!(ours, theirs, "fields of {}", $name);
    };
}

#[test]
fn both_languages_have_the_same_layout() {
    let found = structs(section(crate::object::DQA, ".BTF"));
    check!(
        found,
        "dqa_flow",
        Flow,
        key,
        moves,
        backlog,
        place,
        touched,
        sent_bytes,
        sent_packets,
        owner,
        container,
        last
    );
    check!(
        found,
        "dqa_state",
        State,
        load,
        bytes,
        completed,
        waiting,
        last_queue,
        sweep,
        hand
    );
    check!(
        found,
        "dqa_config",
        Config,
        enabled,
        queues,
        ifindex,
        sets_mask,
        net_cookie,
        completion,
        hardware_segmentation,
        gate_flow_bytes,
        gate_queue_bytes,
        weights,
        latency_queue,
        small_bytes,
        processor_pools,
        stale_ticks,
        fallback_ticks,
        dscp_weights,
        processor_queues,
        priority_queues,
        clsact_added,
        tick_ns,
        preference,
        untagged
    );
    check!(
        found,
        "dqa_container",
        Container,
        cgroup,
        queues,
        weight,
        flows
    );
    assert_eq!(found["dqa_set"].0, WAYS * size_of::<Flow>());
    let (size, counters) = &found["dqa_counters"];
    assert_eq!(*size, COUNTERS * 8);
    let mut names: Vec<(&usize, &String)> = counters.iter().map(|(name, at)| (at, name)).collect();
    names.sort_unstable();
    let names: Vec<&str> = names.iter().map(|(_, name)| name.as_str()).collect();
    expect_test::expect!["assigned kept full sparse healed untouched gated moved completed dropped recovered unknown evicted carried socket checked"]
        .assert_eq(&names.join(" "));
}

/// What the card says has left is the packet in hand and all before it; the rest stays, with its run and number.
#[test]
fn a_packet_that_left_takes_those_before_it_along() {
    let word = |sent: u64, bytes: u64, packets: u64| sent << 50 | 1 << 49 | bytes << 20 | packets;
    assert_eq!(
        backlog_after(word(7, 300, 3), 5, 100),
        Some((word(7, 200, 2), 100))
    );
    assert_eq!(
        backlog_after(word(7, 300, 3), 6, 100),
        Some((word(7, 200, 1), 100))
    );
    assert_eq!(
        backlog_after(word(7, 300, 3), 7, 100),
        Some((word(7, 0, 0), 300))
    );
    assert_eq!(
        backlog_after(word(2, 300, 3), (1 << 14) - 1, 100),
        Some((word(2, 200, 2), 100))
    );
    assert_eq!(backlog_after(word(7, 0, 0), 7, 100), None);
}

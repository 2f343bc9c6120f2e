//! Input from the kernel or in packets: netlink, verbs, frames, tables.
//!
//! The kernel is trusted, but its releases differ, a device's driver adds attributes, and a tenant writes the packets and
//! the memory that these decoders read.

use super::text;
use crate::Target;
use isolane_common_linux::cgroup;
use isolane_common_linux::netlink::attribute::{Attributes, AttributesBuilder};
use isolane_common_linux::netlink::message::{self, Message, Request};
use isolane_ethernet_attach::{link, qdisc};
use isolane_ethernet_software_card::frame::{Frame, NOTE_BYTES, Note};
use isolane_rdma_enforcer::seccomp::call::{CALL_MAX, classify};
use isolane_rdma_inventory::counters::parse_ethtool;
use isolane_rdma_inventory::dcb;
use isolane_rdma_inventory::doctor::live::parse_path_mtu;
use isolane_rpc_capture::declared::Declared;
use isolane_rpc_capture::{Class, Options, audit};

/// The targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "netlink",
        run: netlink,
        seeds: replies,
    },
    Target {
        name: "verb-call",
        run: verb_call,
        seeds: calls,
    },
    Target {
        name: "frame",
        run: frame,
        seeds: frames,
    },
    Target {
        name: "capture",
        run: capture,
        seeds: captures,
    },
    Target {
        name: "tables",
        run: tables,
        seeds: || {
            let texts = [
                "NIC statistics:\n     rx_packets: 12\n     tx_prio0_pause: 3\n",
                "192.0.2.1 dev eth0 src 192.0.2.2 uid 0\n    cache mtu 4200\n",
                "0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-0123456789abcdef.scope\n",
            ];
            texts.map(|text| text.as_bytes().to_vec()).to_vec()
        },
    },
];

/// One reply of netlink, and its payload as each of our families reads it.
fn netlink(bytes: &[u8]) {
    let payloads = message::parse(bytes, 1).unwrap_or_default();
    let payloads = payloads.iter().filter_map(|message| match message {
        Message::Data { payload, .. } => Some(*payload),
        _ => None,
    });
    for payload in payloads.chain([bytes]) {
        let _ = link::parse(payload);
        let _ = qdisc::parse(payload);
        let _ = dcb::parse(payload);
        walk(&Attributes::new(payload), 4);
    }
}

/// Reads every attribute in every form.
fn walk(attributes: &Attributes<'_>, depth: u32) {
    for (kind, value) in attributes.iter() {
        let _ = (attributes.u8(kind), attributes.u16(kind));
        let _ = (attributes.u32(kind), attributes.u64(kind));
        let _ = (attributes.text(kind), attributes.socket_address(kind));
        if depth > 0 {
            walk(&Attributes::new(value), depth - 1);
        }
    }
}

fn replies() -> Vec<Vec<u8>> {
    let inner = AttributesBuilder::new()
        .with_u32(1, 7)
        .with_text(2, "fq_codel");
    let payload = [
        vec![0; 16],
        AttributesBuilder::new()
            .with_text(3, "eth0")
            .with_u64(1, 9)
            .with_nested(18, &inner)
            .bytes()
            .to_vec(),
    ];
    let request = Request {
        kind: 16,
        dump: true,
        create: false,
        payload: payload.concat(),
    };
    vec![request.bytes(1), request.bytes(0)]
}

fn verb_call(bytes: &[u8]) {
    let verb = classify(&bytes[..bytes.len().min(CALL_MAX)]);
    assert!(!verb.name().is_empty());
}

fn calls() -> Vec<Vec<u8>> {
    // Object DEVICE, method INVOKE_WRITE, one attribute: command 9 (REG_MR). Then object MR, method 1.
    let header = |object: u16, method: u16, attributes: u16| {
        let words = [24 + 16 * attributes, object, method, attributes];
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u16::to_le_bytes).collect();
        bytes.resize(24, 0);
        bytes
    };
    let mut write = header(0, 0, 1);
    write.extend([2, 0, 4, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    vec![write, header(7, 1, 0), header(1 << 12, 0, 0)]
}

fn frame(bytes: &[u8]) {
    let Some((note, packet)) = bytes.split_first_chunk::<NOTE_BYTES>() else {
        return;
    };
    let _ = Frame::parse(Note::parse(*note), packet);
}

fn frames() -> Vec<Vec<u8>> {
    let note = vec![0; NOTE_BYTES];
    let addresses = [192, 0, 2, 1, 192, 0, 2, 2];
    // IPv4 with TCP and IPv6 with UDP; no sums, which are checked elsewhere.
    let mut tcp = vec![0x45, 0, 0, 44, 0, 1, 0, 0, 64, 6, 0, 0];
    tcp.extend(addresses);
    tcp.extend([
        0x13, 0x88, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0,
    ]);
    tcp.extend(b"data");
    let mut udp = vec![0x60, 0, 0, 0, 0, 12, 17, 64];
    udp.extend([1; 32]);
    udp.extend([0, 53, 0, 53, 0, 12, 0, 0]);
    udp.extend(b"data");
    vec![[note.clone(), tcp].concat(), [note, udp].concat()]
}

/// A capture of packets, with gRPC in plain text.
fn capture(bytes: &[u8]) {
    let class = |(name, dscp): (&str, u8)| Class {
        name: name.to_owned(),
        dscp,
    };
    let options = Options {
        classes: [("high", 46), ("low", 8)].map(class).to_vec(),
        header: "isolane-class".to_owned(),
        declared: Declared::default(),
        responses: true,
        tolerance: 0.0,
    };
    let _ = audit(bytes, &options);
}

/// Raw IP packets: both handshakes, the preface, and two calls, one of which declares its class.
fn captures() -> Vec<Vec<u8>> {
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let head = [0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream];
        [&head[..], payload].concat()
    };
    let class = b"\x40\x0disolane-class\x04high";
    let client = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(4, 0, 0, &[]),
        frame(1, 4, 1, class),
        frame(0, 1, 1, b"body"),
        frame(1, 0, 3, b"\xbe"),
        frame(9, 4, 3, b"\x83"),
    ];
    let server = [frame(4, 0, 0, &[]), frame(1, 5, 1, b"\x88")];
    let mut at = [1_000_u32, 9_000];
    let mut packet = |side: usize, flags: u8, payload: &[u8]| {
        let mut bytes = vec![
            0x45,
            46 << 2,
            0,
            40 + payload.len() as u8,
            0,
            1,
            0,
            0,
            64,
            6,
            0,
            0,
        ];
        bytes.extend([192, 0, 2, 1 + side as u8, 192, 0, 2, 2 - side as u8]);
        let ports = [[0x9c, 0x40], [0x13, 0x88]];
        bytes.extend([ports[side], ports[1 - side]].concat());
        bytes.extend(at[side].to_be_bytes());
        bytes.extend([0, 0, 0, 0, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        bytes.extend(payload);
        at[side] += payload.len() as u32 + u32::from(flags & 2 != 0);
        bytes
    };
    let mut packets = vec![packet(0, 2, &[]), packet(1, 0x12, &[])];
    packets.extend(client.iter().map(|part| packet(0, 0x10, part)));
    packets.extend(server.iter().map(|part| packet(1, 0x10, part)));
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
    // pcap 2.4, link type 101: raw IP.
    let mut file: Vec<u8> = words(&[0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 262_144, 101]);
    for packet in &packets {
        let length = packet.len() as u32;
        file.extend::<Vec<u8>>(words(&[0, 0, length, length]));
        file.extend(packet);
    }
    vec![file]
}

fn tables(bytes: &[u8]) {
    let text = text(bytes);
    parse_ethtool(&text);
    parse_path_mtu(&text);
    let path = cgroup::path(&text);
    assert!(path.starts_with(cgroup::responsible(path)));
    for line in text.lines() {
        cgroup::Workload::of(line);
    }
}

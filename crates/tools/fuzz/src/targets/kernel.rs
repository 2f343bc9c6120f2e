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

//! How many bytes one message costs on the wire and on PCIe (husky 4.10, exactly).
//!
//! The model charges these sums packet by packet and transaction by transaction; the closed forms here are for
//! claims, tests and people. RoCEv2: 38 B Ethernet with preamble and gap, 20 B IP, 8 B UDP, 12 B BTH, 4 B ICRC,
//! and 16 B RETH on a WRITE's or READ request's first packet.

use super::device::Device;
use isolane_rdma_scenario::model::{Transport, Verb};
use isolane_rdma_scenario::profile::Profile;

/// Bytes a message of `payload` bytes puts on the wire in the direction of its payload, headers included and
/// acknowledgements not, at a path MTU of `mtu` bytes.
pub fn network_bytes(profile: &Profile, verb: Verb, payload: u64, mtu: u64) -> u64 {
    let device = Device::of(profile);
    let packets = payload.div_ceil(mtu).max(1);
    let extended = if matches!(verb, Verb::Write) {
        device.extended_header
    } else {
        0
    };
    payload + packets * device.frame + extended
}

/// PCIe bytes towards the NIC that one message of `payload` bytes in one element costs the sender when
/// `post_list` work requests share a doorbell: doorbell, work request, payload, each with its TLP headers.
/// Payload up to the inline limit rides with a doorbell that posts one work request.
pub fn pcie_bytes(profile: &Profile, transport: Transport, payload: u64, post_list: u64) -> u64 {
    let device = Device::of(profile);
    let doorbell = (device.doorbell + device.tlp).div_ceil(post_list);
    if post_list == 1 && payload <= device.inline_max {
        return doorbell;
    }
    let list = device
        .pcie_bytes(device.wqe_bytes(transport, 1) * post_list)
        .div_ceil(post_list);
    let payload_bytes = if payload <= device.inline_max {
        payload
    } else {
        device.pcie_bytes(payload)
    };
    doorbell + list + payload_bytes
}

//! Parses attributes into types. Every function takes the attributes of one message, so any bytes can be tested.
//!
//! A message about resources has the device's name once and the objects in a nested table. An object without its
//! identifying number is left out.

use super::types::*;
use isolane_common_linux::netlink::Attributes;

/// RDMA_NLDEV_ATTR_* (part of the kernel's stable interface: numbers are never reused).
pub(crate) mod attribute {
    pub(crate) const DEV_INDEX: u16 = 1;
    pub(crate) const DEV_NAME: u16 = 2;
    pub(crate) const PORT_INDEX: u16 = 3;
    pub(crate) const FW_VERSION: u16 = 5;
    pub(crate) const NODE_GUID: u16 = 6;
    pub(crate) const LID: u16 = 9;
    pub(crate) const PORT_STATE: u16 = 12;
    pub(crate) const PORT_PHYS_STATE: u16 = 13;
    pub(crate) const RES_QP: u16 = 19;
    pub(crate) const RES_QP_ENTRY: u16 = 20;
    pub(crate) const RES_LQPN: u16 = 21;
    pub(crate) const RES_RQPN: u16 = 22;
    pub(crate) const RES_RQ_PSN: u16 = 23;
    pub(crate) const RES_SQ_PSN: u16 = 24;
    pub(crate) const RES_PATH_MIG_STATE: u16 = 25;
    pub(crate) const RES_TYPE: u16 = 26;
    pub(crate) const RES_STATE: u16 = 27;
    pub(crate) const RES_PID: u16 = 28;
    pub(crate) const RES_KERN_NAME: u16 = 29;
    pub(crate) const RES_CM_ID: u16 = 30;
    pub(crate) const RES_CM_ID_ENTRY: u16 = 31;
    pub(crate) const RES_PS: u16 = 32;
    pub(crate) const RES_SRC_ADDR: u16 = 33;
    pub(crate) const RES_DST_ADDR: u16 = 34;
    pub(crate) const RES_CQ: u16 = 35;
    pub(crate) const RES_CQ_ENTRY: u16 = 36;
    pub(crate) const RES_CQE: u16 = 37;
    pub(crate) const RES_USECNT: u16 = 38;
    pub(crate) const RES_MR: u16 = 40;
    pub(crate) const RES_MR_ENTRY: u16 = 41;
    pub(crate) const RES_RKEY: u16 = 42;
    pub(crate) const RES_LKEY: u16 = 43;
    pub(crate) const RES_MRLEN: u16 = 45;
    pub(crate) const RES_PD: u16 = 46;
    pub(crate) const RES_PD_ENTRY: u16 = 47;
    pub(crate) const NDEV_NAME: u16 = 51;
    pub(crate) const RES_PDN: u16 = 60;
    pub(crate) const RES_CQN: u16 = 61;
    pub(crate) const RES_MRN: u16 = 62;
    pub(crate) const RES_CM_IDN: u16 = 63;
    pub(crate) const RES_CTXN: u16 = 64;
    pub(crate) const DEV_PROTOCOL: u16 = 67;
    pub(crate) const RES_CTX: u16 = 86;
    pub(crate) const RES_CTX_ENTRY: u16 = 87;
    pub(crate) const RES_SRQ: u16 = 88;
    pub(crate) const RES_SRQ_ENTRY: u16 = 89;
    pub(crate) const RES_SRQN: u16 = 90;
}
use attribute as number;

/// The device of a message; empty when it does not name one.
pub fn device(message: Attributes<'_>) -> Vec<Device> {
    let device = || {
        Some(Device {
            index: message.u32(number::DEV_INDEX)?,
            name: message.text(number::DEV_NAME)?,
            port_count: message.u32(number::PORT_INDEX).unwrap_or(0),
            firmware: message.text(number::FW_VERSION).unwrap_or_default(),
            node_guid: message.u64(number::NODE_GUID).unwrap_or(0),
            protocol: message.text(number::DEV_PROTOCOL).unwrap_or_default(),
        })
    };
    device().into_iter().collect()
}

/// The link of a message; none when it does not name one.
pub fn link(message: Attributes<'_>) -> Option<Link> {
    Some(Link {
        device: message.text(number::DEV_NAME)?,
        port: message.u32(number::PORT_INDEX)?,
        state: message.u8(number::PORT_STATE).unwrap_or(0).into(),
        physical_state: message.u8(number::PORT_PHYS_STATE).unwrap_or(0).into(),
        network_device: message.text(number::NDEV_NAME),
        lid: message.u32(number::LID),
    })
}

/// The queue pairs of a message.
pub fn queue_pairs(message: Attributes<'_>) -> Vec<QueuePair> {
    entries(
        message,
        number::RES_QP,
        number::RES_QP_ENTRY,
        |device, entry| {
            Some(QueuePair {
                device,
                port: entry.u32(number::PORT_INDEX),
                number: entry.u32(number::RES_LQPN)?,
                remote_number: entry.u32(number::RES_RQPN),
                kind: entry.u8(number::RES_TYPE).unwrap_or(u8::MAX - 1).into(),
                state: entry.u8(number::RES_STATE).unwrap_or(u8::MAX).into(),
                send_sequence: entry.u32(number::RES_SQ_PSN),
                receive_sequence: entry.u32(number::RES_RQ_PSN),
                path_migration: entry.u8(number::RES_PATH_MIG_STATE).map(Into::into),
                protection_domain: entry.u32(number::RES_PDN),
                holder: holder(entry),
            })
        },
    )
}

/// The completion queues of a message.
pub fn completion_queues(message: Attributes<'_>) -> Vec<CompletionQueue> {
    entries(
        message,
        number::RES_CQ,
        number::RES_CQ_ENTRY,
        |device, entry| {
            Some(CompletionQueue {
                device,
                number: entry.u32(number::RES_CQN),
                entries: entry.u32(number::RES_CQE)?,
                users: entry.u64(number::RES_USECNT).unwrap_or(0),
                context: entry.u32(number::RES_CTXN),
                holder: holder(entry),
            })
        },
    )
}

/// The memory regions of a message.
pub fn memory_regions(message: Attributes<'_>) -> Vec<MemoryRegion> {
    entries(
        message,
        number::RES_MR,
        number::RES_MR_ENTRY,
        |device, entry| {
            Some(MemoryRegion {
                device,
                number: entry.u32(number::RES_MRN),
                length_bytes: entry.u64(number::RES_MRLEN)?,
                local_key: entry.u32(number::RES_LKEY),
                remote_key: entry.u32(number::RES_RKEY),
                protection_domain: entry.u32(number::RES_PDN),
                holder: holder(entry),
            })
        },
    )
}

/// The protection domains of a message.
pub fn protection_domains(message: Attributes<'_>) -> Vec<ProtectionDomain> {
    entries(
        message,
        number::RES_PD,
        number::RES_PD_ENTRY,
        |device, entry| {
            Some(ProtectionDomain {
                device,
                number: entry.u32(number::RES_PDN),
                users: entry.u64(number::RES_USECNT)?,
                context: entry.u32(number::RES_CTXN),
                holder: holder(entry),
            })
        },
    )
}

/// The connection identifiers of a message.
pub fn connection_identifiers(message: Attributes<'_>) -> Vec<ConnectionIdentifier> {
    entries(
        message,
        number::RES_CM_ID,
        number::RES_CM_ID_ENTRY,
        |device, entry| {
            Some(ConnectionIdentifier {
                device,
                port: entry.u32(number::PORT_INDEX),
                number: entry.u32(number::RES_CM_IDN),
                queue_pair: entry.u32(number::RES_LQPN),
                state: entry.u8(number::RES_STATE)?.into(),
                port_space: entry.u32(number::RES_PS),
                source: entry.socket_address(number::RES_SRC_ADDR),
                destination: entry.socket_address(number::RES_DST_ADDR),
                holder: holder(entry),
            })
        },
    )
}

/// The contexts of a message.
pub fn contexts(message: Attributes<'_>) -> Vec<Context> {
    entries(
        message,
        number::RES_CTX,
        number::RES_CTX_ENTRY,
        |device, entry| {
            Some(Context {
                device,
                number: entry.u32(number::RES_CTXN)?,
                holder: holder(entry),
            })
        },
    )
}

/// The shared receive queues of a message.
pub fn shared_receive_queues(message: Attributes<'_>) -> Vec<SharedReceiveQueue> {
    entries(
        message,
        number::RES_SRQ,
        number::RES_SRQ_ENTRY,
        |device, entry| {
            Some(SharedReceiveQueue {
                device,
                number: entry.u32(number::RES_SRQN)?,
                protection_domain: entry.u32(number::RES_PDN),
                context: entry.u32(number::RES_CTXN),
                holder: holder(entry),
            })
        },
    )
}

fn entries<T>(
    message: Attributes<'_>,
    table: u16,
    entry: u16,
    parse: impl Fn(String, Attributes<'_>) -> Option<T>,
) -> Vec<T> {
    let Some(device) = message.text(number::DEV_NAME) else {
        return Vec::new();
    };
    let entries = message.nested(table).each_nested(entry);
    entries
        .filter_map(|entry| parse(device.clone(), entry))
        .collect()
}

fn holder(entry: Attributes<'_>) -> Holder {
    match (
        entry.u32(number::RES_PID),
        entry.text(number::RES_KERN_NAME),
    ) {
        (Some(process), _) => Holder::Process(process),
        (None, Some(name)) => Holder::Kernel(name),
        (None, None) => Holder::Unknown,
    }
}

#[cfg(test)]
mod tests;

//! The kernel's RDMA objects as types. Numbers are the kernel's own identifiers; a missing value is one that the
//! kernel left out.

use serde::Serialize;
use std::fmt;
use std::net::SocketAddr;

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Device {
    /// The kernel's index, stable while the device exists.
    pub index: u32,
    /// Its name, as in `/sys/class/infiniband`.
    pub name: String,
    /// Number of ports, which count from 1.
    pub port_count: u32,
    /// Version of the firmware; empty for software devices.
    pub firmware: String,
    /// Node GUID.
    pub node_guid: u64,
    /// The wire protocol: `ib`, `roce`, `iw`, `opa`, `usnic`.
    pub protocol: String,
}

/// A link: one port of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Link {
    /// Name of the device.
    pub device: String,
    /// The port, from 1.
    pub port: u32,
    /// Logical state.
    pub state: PortState,
    /// Physical state, as the kernel names it.
    pub physical_state: PhysicalState,
    /// The network device below it; none for InfiniBand.
    pub network_device: Option<String>,
    /// Local identifier of an InfiniBand port.
    pub lid: Option<u32>,
}

/// The holder of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Holder {
    /// A process, by id. The kernel's own answers name the thread that made the object.
    Process(u32),
    /// A part of the kernel, by name.
    Kernel(String),
    /// The kernel did not report it.
    #[default]
    Unknown,
}

impl Holder {
    /// The process, if it is one.
    pub fn process(&self) -> Option<u32> {
        match self {
            Self::Process(id) => Some(*id),
            Self::Kernel(_) | Self::Unknown => None,
        }
    }
}

/// A queue pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QueuePair {
    /// Name of the device.
    pub device: String,
    /// The port it is bound to; none before INIT.
    pub port: Option<u32>,
    /// Its number.
    pub number: u32,
    /// The peer's number; connected types only.
    pub remote_number: Option<u32>,
    /// Transport type.
    pub kind: QueuePairKind,
    /// State.
    pub state: QueuePairState,
    /// Next packet sequence number to send.
    pub send_sequence: Option<u32>,
    /// Next packet sequence number expected; connected types only.
    pub receive_sequence: Option<u32>,
    /// Path migration state; connected types only.
    pub path_migration: Option<PathMigration>,
    /// Its protection domain.
    pub protection_domain: Option<u32>,
    /// Whose it is.
    pub holder: Holder,
}

impl QueuePair {
    /// A queue pair at port 1 of which nothing else is known.
    pub fn of(
        (device, number): (String, u32),
        kind: QueuePairKind,
        state: QueuePairState,
        holder: Holder,
    ) -> Self {
        Self {
            device,
            port: Some(1),
            number,
            remote_number: None,
            kind,
            state,
            send_sequence: None,
            receive_sequence: None,
            path_migration: None,
            protection_domain: None,
            holder,
        }
    }
}

/// A completion queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CompletionQueue {
    /// Name of the device.
    pub device: String,
    /// The kernel's number of the queue.
    pub number: Option<u32>,
    /// Number of entries.
    pub entries: u32,
    /// Number of queues that complete into it.
    pub users: u64,
    /// The context that made it.
    pub context: Option<u32>,
    /// Whose it is.
    pub holder: Holder,
}

/// A memory region.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryRegion {
    /// Name of the device.
    pub device: String,
    /// The kernel's number of the region.
    pub number: Option<u32>,
    /// Length, bytes.
    pub length_bytes: u64,
    /// Local key; with CAP_NET_ADMIN only.
    pub local_key: Option<u32>,
    /// Remote key; with CAP_NET_ADMIN only.
    pub remote_key: Option<u32>,
    /// Its protection domain.
    pub protection_domain: Option<u32>,
    /// Whose it is.
    pub holder: Holder,
}

/// A protection domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProtectionDomain {
    /// Name of the device.
    pub device: String,
    /// The kernel's number of the domain.
    pub number: Option<u32>,
    /// Number of objects in it.
    pub users: u64,
    /// The context that made it.
    pub context: Option<u32>,
    /// Whose it is.
    pub holder: Holder,
}

/// A connection identifier of rdma_cm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConnectionIdentifier {
    /// Name of the device.
    pub device: String,
    /// Port number; `None` while it listens on all ports.
    pub port: Option<u32>,
    /// The kernel's number of the identifier.
    pub number: Option<u32>,
    /// Its queue pair, once there is one.
    pub queue_pair: Option<u32>,
    /// State.
    pub state: ConnectionState,
    /// Port space (`RDMA_PS_TCP` is 0x106).
    pub port_space: Option<u32>,
    /// Own address.
    pub source: Option<SocketAddr>,
    /// The peer's address.
    pub destination: Option<SocketAddr>,
    /// Whose it is.
    pub holder: Holder,
}

/// A context: an open device file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Context {
    /// Name of the device.
    pub device: String,
    /// The kernel's number of the context.
    pub number: u32,
    /// Whose it is.
    pub holder: Holder,
}

/// A shared receive queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SharedReceiveQueue {
    /// Name of the device.
    pub device: String,
    /// The kernel's number of the queue.
    pub number: u32,
    /// Its protection domain.
    pub protection_domain: Option<u32>,
    /// The context that made it.
    pub context: Option<u32>,
    /// Whose it is.
    pub holder: Holder,
}

/// Defines an enum for a number of the kernel: a variant per known number, and `Other` with the number itself.
macro_rules! kernel_names {
    ($(#[$about:meta])* $name:ident($number:ty) { $($value:literal => $variant:ident $text:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $(
                #[doc = concat!("`", $text, "`")]
                $variant,
            )*
            /// A number that this program does not know.
            Other($number),
        }

        impl From<$number> for $name {
            fn from(number: $number) -> Self {
                match number {
                    $($value => Self::$variant,)*
                    other => Self::Other(other),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant => formatter.pad($text),)*
                    Self::Other(number) => write!(formatter, "unknown ({number})"),
                }
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::from(<$number>::default())
            }
        }
    };
}

kernel_names! {
    /// Transport type of a queue pair (`ib_qp_type`).
    QueuePairKind(u8) {
        0 => Management "SMI",
        1 => General "GSI",
        2 => ReliableConnection "RC",
        3 => UnreliableConnection "UC",
        4 => UnreliableDatagram "UD",
        5 => RawIpv6 "RAW_IPV6",
        6 => RawEthertype "RAW_ETHERTYPE",
        8 => RawPacket "RAW_PACKET",
        9 => ExtendedInitiator "XRC_INI",
        10 => ExtendedTarget "XRC_TGT",
        255 => Driver "DRIVER",
    }
}

kernel_names! {
    /// State of a queue pair (`ib_qp_state`).
    QueuePairState(u8) {
        0 => Reset "RESET",
        1 => Init "INIT",
        2 => ReadyToReceive "RTR",
        3 => ReadyToSend "RTS",
        4 => SendQueueDrained "SQD",
        5 => SendQueueError "SQE",
        6 => Error "ERR",
    }
}

kernel_names! {
    /// Path migration state (`ib_mig_state`).
    PathMigration(u8) {
        0 => Migrated "MIGRATED",
        1 => Rearm "REARM",
        2 => Armed "ARMED",
    }
}

kernel_names! {
    /// Logical state of a port (`ib_port_state`).
    PortState(u8) {
        0 => NoChange "NOP",
        1 => Down "DOWN",
        2 => Init "INIT",
        3 => Armed "ARMED",
        4 => Active "ACTIVE",
        5 => ActiveDefer "ACTIVE_DEFER",
    }
}

kernel_names! {
    /// Physical state of a port.
    PhysicalState(u8) {
        0 => NoChange "NOP",
        1 => Sleep "SLEEP",
        2 => Polling "POLLING",
        3 => Disabled "DISABLED",
        4 => Training "ARMED",
        5 => LinkUp "LINK_UP",
        6 => ErrorRecovery "LINK_ERROR_RECOVER",
        7 => PhyTest "PHY_TEST",
    }
}

kernel_names! {
    /// State of a connection identifier (`rdma_cm_state`).
    ConnectionState(u8) {
        0 => Idle "IDLE",
        1 => AddressQuery "ADDR_QUERY",
        2 => AddressResolved "ADDR_RESOLVED",
        3 => RouteQuery "ROUTE_QUERY",
        4 => RouteResolved "ROUTE_RESOLVED",
        5 => Connect "CONNECT",
        6 => Disconnect "DISCONNECT",
        7 => AddressBound "ADDR_BOUND",
        8 => Listen "LISTEN",
        9 => DeviceRemoval "DEVICE_REMOVAL",
        10 => Destroying "DESTROYING",
    }
}

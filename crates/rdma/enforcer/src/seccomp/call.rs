//! Which verb a trapped ioctl is, from bytes in the caller's memory.
//!
//! Problem: one ioctl number carries every control verb; a pointer leads to the request. Method: the header names an
//! object and a method; object DEVICE, method INVOKE_WRITE wraps a command of the older interface, whose number is an
//! inline attribute. Names follow the verbs manual.
//!
//! **The bytes are the tenant's.** Another of its threads may change them after we looked and before the kernel
//! does, so a class is good for accounts and for the tenant's own ordering, and never for security: the limit that
//! holds against a liar is the one over all calls together, which looks at no byte.
//!
//! Limits: drivers have methods of their own (DEVX, ...); they count as [`Verb::Driver`]. Source:
//! `rdma/rdma_user_ioctl_cmds.h`, `rdma/ib_user_ioctl_cmds.h`, `rdma/ib_user_verbs.h` of Linux.

use serde::{Serialize, Serializer};

/// Bytes of the header (`struct ib_uverbs_ioctl_hdr`).
pub const HEADER: usize = 24;
/// Bytes of one attribute (`struct ib_uverbs_attr`).
pub const ATTRIBUTE: usize = 16;
/// Attributes that are looked at; libibverbs puts the command number third.
pub const ATTRIBUTES_MAX: usize = 32;
/// Largest number of bytes read of a call.
pub const CALL_MAX: usize = HEADER + ATTRIBUTES_MAX * ATTRIBUTE;

/// Bit that marks objects, methods and attributes of a driver.
const DRIVER: u16 = 1 << 12;
/// Attribute of INVOKE_WRITE that holds the command.
const WRITE_COMMAND: u16 = 2;

/// What a control verb works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Queue pairs, their work queues and shared receive queues.
    QueuePairs,
    /// Completion queues and channels.
    CompletionQueues,
    /// Memory regions, windows and device memory.
    MemoryRegions,
    /// Address handles and multicast groups.
    AddressHandles,
    /// Contexts, protection domains, flows and the rest.
    Others,
    /// Queries that change nothing.
    Queries,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 6] = [
        Self::QueuePairs,
        Self::CompletionQueues,
        Self::MemoryRegions,
        Self::AddressHandles,
        Self::Others,
        Self::Queries,
    ];
}

macro_rules! verbs {
    ($($(#[doc = $about:literal])* $name:ident $text:literal $class:ident,)*) => {
        /// A control verb.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Verb { $($(#[doc = $about])* $name,)* }

        impl Verb {
            /// Every verb.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name in reports.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The class of the verb.
            pub const fn class(self) -> Class {
                match self { $(Self::$name => Class::$class,)* }
            }
        }
    };
}

impl Serialize for Verb {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

verbs! {
    /// ibv_create_qp, ibv_open_qp.
    CreateQueuePair "create_qp" QueuePairs,
    /// ibv_modify_qp.
    ModifyQueuePair "modify_qp" QueuePairs,
    /// ibv_destroy_qp.
    DestroyQueuePair "destroy_qp" QueuePairs,
    /// ibv_create_srq.
    CreateSharedReceiveQueue "create_srq" QueuePairs,
    /// ibv_modify_srq.
    ModifySharedReceiveQueue "modify_srq" QueuePairs,
    /// ibv_destroy_srq.
    DestroySharedReceiveQueue "destroy_srq" QueuePairs,
    /// ibv_create_wq, ibv_modify_wq, ibv_destroy_wq and their indirection tables.
    WorkQueue "work_queue" QueuePairs,
    /// ibv_post_send, ibv_post_recv of devices without kernel bypass.
    Post "post" QueuePairs,
    /// ibv_create_cq.
    CreateCompletionQueue "create_cq" CompletionQueues,
    /// ibv_resize_cq, ibv_modify_cq.
    ResizeCompletionQueue "resize_cq" CompletionQueues,
    /// ibv_destroy_cq.
    DestroyCompletionQueue "destroy_cq" CompletionQueues,
    /// ibv_poll_cq, ibv_req_notify_cq of devices without kernel bypass.
    PollCompletionQueue "poll_cq" CompletionQueues,
    /// ibv_create_comp_channel.
    CreateCompletionChannel "create_comp_channel" CompletionQueues,
    /// ibv_reg_mr, ibv_reg_dm_mr, ibv_reg_dmabuf_mr.
    RegisterMemory "reg_mr" MemoryRegions,
    /// ibv_rereg_mr.
    ReregisterMemory "rereg_mr" MemoryRegions,
    /// ibv_dereg_mr.
    DeregisterMemory "dereg_mr" MemoryRegions,
    /// ibv_advise_mr.
    AdviseMemory "advise_mr" MemoryRegions,
    /// ibv_alloc_mw.
    AllocateWindow "alloc_mw" MemoryRegions,
    /// ibv_dealloc_mw.
    DeallocateWindow "dealloc_mw" MemoryRegions,
    /// ibv_alloc_dm, ibv_free_dm.
    DeviceMemory "device_memory" MemoryRegions,
    /// ibv_create_ah, ibv_destroy_ah.
    AddressHandle "address_handle" AddressHandles,
    /// ibv_attach_mcast, ibv_detach_mcast.
    Multicast "multicast" AddressHandles,
    /// ibv_alloc_pd.
    AllocateProtectionDomain "alloc_pd" Others,
    /// ibv_dealloc_pd.
    DeallocateProtectionDomain "dealloc_pd" Others,
    /// ibv_open_device.
    OpenContext "get_context" Others,
    /// ibv_open_xrcd, ibv_close_xrcd.
    ExtendedDomain "xrcd" Others,
    /// ibv_create_flow, ibv_destroy_flow and their actions.
    Flow "flow" Others,
    /// ibv_create_counters, ibv_destroy_counters.
    Counters "counters" Others,
    /// A method of the driver's own.
    Driver "driver" Others,
    /// A method that this version does not know, or a call whose bytes cannot be read.
    Unknown "unknown" Others,
    /// Queries of devices, ports, queue pairs, regions and GIDs.
    Query "query" Queries,
}

/// The verb of `bytes`: the header and as many attributes as could be read.
///
/// ```
/// use isolane_rdma_enforcer::seccomp::call::{Verb, classify};
/// // Object 7 (MR), method 1 (destroy), one attribute.
/// let mut bytes = [0; 24];
/// (bytes[2], bytes[4], bytes[6]) = (7, 1, 1);
/// assert_eq!(classify(&bytes), Verb::DeregisterMemory);
/// assert_eq!(classify(&[]), Verb::Unknown);
/// ```
pub fn classify(bytes: &[u8]) -> Verb {
    let word = |at: usize| {
        let pair = bytes.get(at..at + 2)?;
        Some(u16::from_le_bytes([pair[0], pair[1]]))
    };
    if bytes.len() < HEADER {
        return Verb::Unknown;
    }
    let (Some(object), Some(method), Some(attributes)) = (word(2), word(4), word(6)) else {
        return Verb::Unknown;
    };
    if object & DRIVER != 0 || method & DRIVER != 0 {
        return Verb::Driver;
    }
    if (object, method) != (0, 0) {
        return of_method(object, method);
    }
    let count = usize::from(attributes).min(ATTRIBUTES_MAX);
    let command = (0..count).find_map(|index| {
        let at = HEADER + index * ATTRIBUTE;
        let data = bytes.get(at + 8..at + ATTRIBUTE)?;
        (word(at)? == WRITE_COMMAND).then(|| data[0])
    });
    command.map_or(Verb::Unknown, of_command)
}

/// Maps objects and methods of the ioctl interface.
const fn of_method(object: u16, method: u16) -> Verb {
    match (object, method) {
        (0, 3) => Verb::OpenContext,
        (0, _) => Verb::Query,
        (1, 0) => Verb::DeallocateProtectionDomain,
        (2, _) => Verb::CreateCompletionChannel,
        (3, 0) => Verb::CreateCompletionQueue,
        (3, 1) => Verb::DestroyCompletionQueue,
        (4, 0) => Verb::CreateQueuePair,
        (4, 1) => Verb::DestroyQueuePair,
        (5, 0) => Verb::CreateSharedReceiveQueue,
        (5, 1) => Verb::DestroySharedReceiveQueue,
        (6, _) => Verb::AddressHandle,
        (7, 0 | 4) => Verb::RegisterMemory,
        (7, 1) => Verb::DeregisterMemory,
        (7, 2) => Verb::AdviseMemory,
        (7, 3) => Verb::Query,
        (8, 0) => Verb::DeallocateWindow,
        (9 | 13, _) => Verb::Flow,
        (10, _) => Verb::ExtendedDomain,
        (11 | 12, _) => Verb::WorkQueue,
        (14, _) => Verb::DeviceMemory,
        (15, 2) => Verb::Query,
        (15, _) => Verb::Counters,
        _ => Verb::Unknown,
    }
}

/// Maps commands of the older interface, inside INVOKE_WRITE.
const fn of_command(command: u8) -> Verb {
    match command {
        0 => Verb::OpenContext,
        1 | 2 | 7 | 12 | 25 | 34 => Verb::Query,
        3 => Verb::AllocateProtectionDomain,
        4 => Verb::DeallocateProtectionDomain,
        5 | 6 | 8 => Verb::AddressHandle,
        9 | 10 => Verb::RegisterMemory,
        11 => Verb::ReregisterMemory,
        13 => Verb::DeregisterMemory,
        14 | 15 => Verb::AllocateWindow,
        16 => Verb::DeallocateWindow,
        17 => Verb::CreateCompletionChannel,
        18 => Verb::CreateCompletionQueue,
        19 | 57 => Verb::ResizeCompletionQueue,
        20 => Verb::DestroyCompletionQueue,
        21..=23 => Verb::PollCompletionQueue,
        24 | 40 => Verb::CreateQueuePair,
        26 => Verb::ModifyQueuePair,
        27 => Verb::DestroyQueuePair,
        28 | 29 | 36 => Verb::Post,
        30 | 31 => Verb::Multicast,
        32 | 39 => Verb::CreateSharedReceiveQueue,
        33 => Verb::ModifySharedReceiveQueue,
        35 => Verb::DestroySharedReceiveQueue,
        37 | 38 => Verb::ExtendedDomain,
        50 | 51 => Verb::Flow,
        52..=56 => Verb::WorkQueue,
        _ => Verb::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A call with INVOKE_WRITE's three attributes, as libibverbs lays them out.
    fn invoke_write(command: u64) -> Vec<u8> {
        let mut bytes = vec![0_u8; HEADER + 3 * ATTRIBUTE];
        bytes[0] = bytes.len() as u8;
        bytes[6] = 3;
        for (index, id) in [0_u8, 1, 2].into_iter().enumerate() {
            bytes[HEADER + index * ATTRIBUTE] = id;
        }
        bytes[HEADER + 2 * ATTRIBUTE + 8..][..8].copy_from_slice(&command.to_le_bytes());
        bytes
    }

    #[test]
    fn registration_is_command_9_and_deregistration_method_1_of_object_7() {
        assert_eq!(classify(&invoke_write(9)), Verb::RegisterMemory);
        let mut bytes = [0; HEADER];
        (bytes[2], bytes[4]) = (7, 1);
        assert_eq!(classify(&bytes), Verb::DeregisterMemory);
    }

    #[test]
    fn an_extended_command_is_the_same_verb() {
        assert_eq!(classify(&invoke_write(0x8000_0018)), Verb::CreateQueuePair);
    }

    #[test]
    fn a_command_whose_attribute_cannot_be_read_is_unknown() {
        let whole = invoke_write(9);
        for length in 0..whole.len() {
            assert_eq!(classify(&whole[..length]), Verb::Unknown, "{length} bytes");
        }
    }

    #[test]
    fn methods_of_drivers_are_the_drivers() {
        let mut bytes = [0; HEADER];
        bytes[3] = 0x10;
        assert_eq!(classify(&bytes), Verb::Driver);
    }

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<&str> =
            Verb::ALL.iter().map(|verb| verb.name()).collect();
        assert_eq!(names.len(), Verb::ALL.len());
    }

    proptest! {
        /// Hostile bytes: any length, any number of attributes.
        #[test]
        fn any_bytes_are_some_verb(bytes in prop::collection::vec(any::<u8>(), 0..CALL_MAX + 8)) {
            let verb = classify(&bytes);
            prop_assert!(Verb::ALL.contains(&verb));
        }

        /// A forged count of attributes reads nothing beyond the bytes, and no more than the limit.
        #[test]
        fn a_forged_attribute_count_is_harmless(count in any::<u16>(), fill in any::<u8>(), length in HEADER..CALL_MAX) {
            let mut bytes = vec![fill; length];
            bytes[2..6].fill(0);
            bytes[6..8].copy_from_slice(&count.to_le_bytes());
            prop_assert!(Verb::ALL.contains(&classify(&bytes)));
        }
    }
}

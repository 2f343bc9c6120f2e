//! Mapping entries, as the kernel driver sends them and as the monitor stores them.
//!
//! An update has the seven fields of harmonic 5.11.1: a 16-bit operation code in its most significant bits, 16
//! reserved bits, then tenant, type, flags, size and start address. The source gives no widths for the last five;
//! ours make 24 bytes. A stored entry covers one page and takes 16 bytes.

use isolane_rdma_policy::harmonic::statistics::ObjectKind;

/// A small page, bytes.
pub const PAGE: u64 = 4096;
/// A huge page, bytes.
pub const HUGE_PAGE: u64 = 2 << 20;

/// What to do with an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The object was created.
    Insert,
    /// The object is gone.
    Delete,
}

/// One mapping update: a contiguous object, or a contiguous piece of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappingUpdate {
    /// Insert or delete.
    pub operation: Operation,
    /// Whose.
    pub tenant: u32,
    /// What; on the wire it is a type, and for regions their access flags.
    pub kind: ObjectKind,
    /// Length, bytes; whole pages.
    pub bytes: u32,
    /// First physical address, at the start of a page.
    pub address: u64,
}

/// Why bytes are no update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum EntryError {
    #[error("operation code {0:#06x} is neither insert (1) nor delete (2): drop the entry")]
    Operation(u16),
    #[error("object type {0} does not exist (0 to 6): drop the entry")]
    Type(u16),
    #[error("{bytes} bytes at {address:#x} are not whole pages of 4 KiB: send whole pages")]
    Pages { address: u64, bytes: u32 },
}

impl MappingUpdate {
    /// Bytes of an update.
    pub const BYTES: usize = 24;

    /// As the driver writes it, most significant byte first.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let (object, flags) = type_and_flags(self.kind);
        let operation: u16 = match self.operation {
            Operation::Insert => 1,
            Operation::Delete => 2,
        };
        let mut bytes = [0; Self::BYTES];
        bytes[0..2].copy_from_slice(&operation.to_be_bytes());
        // Bytes 2 and 3 are reserved.
        bytes[4..8].copy_from_slice(&self.tenant.to_be_bytes());
        bytes[8..10].copy_from_slice(&object.to_be_bytes());
        bytes[10..12].copy_from_slice(&flags.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.bytes.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.address.to_be_bytes());
        bytes
    }

    /// As the monitor reads it. Fails if the code or the type is unknown, or the piece does not consist of whole pages.
    pub fn decode(entry: &[u8; Self::BYTES]) -> Result<Self, EntryError> {
        let half = |at: usize| u16::from_be_bytes([entry[at], entry[at + 1]]);
        let word = |at: usize| u32::from(half(at)) << 16 | u32::from(half(at + 2));
        let operation = match half(0) {
            1 => Operation::Insert,
            2 => Operation::Delete,
            code => return Err(EntryError::Operation(code)),
        };
        let kind = kind_of(half(8), half(10)).ok_or(EntryError::Type(half(8)))?;
        let (bytes, address) = (word(12), u64::from(word(16)) << 32 | u64::from(word(20)));
        if bytes == 0 || !u64::from(bytes).is_multiple_of(PAGE) || !address.is_multiple_of(PAGE) {
            return Err(EntryError::Pages { address, bytes });
        }
        Ok(Self {
            operation,
            tenant: word(4),
            kind,
            bytes,
            address,
        })
    }

    /// The pages it covers: huge ones where it consists of them, else small ones.
    pub(crate) fn frames(&self) -> impl Iterator<Item = Frame> + use<> {
        let (address, bytes) = (self.address, u64::from(self.bytes));
        let huge = address.is_multiple_of(HUGE_PAGE) && bytes.is_multiple_of(HUGE_PAGE);
        let page = if huge { HUGE_PAGE } else { PAGE };
        (0..bytes / page).map(move |number| {
            let address = address + number * page;
            if huge {
                Frame::huge(address)
            } else {
                Frame::small(address)
            }
        })
    }
}

const REGION: u16 = 0;
const REMOTE_WRITE: u16 = 1 << 1;
const REMOTE_READ: u16 = 1 << 2;
const ATOMIC: u16 = 1 << 3;

/// Type and, for regions, `ibv_access_flags`.
fn type_and_flags(kind: ObjectKind) -> (u16, u16) {
    match kind {
        ObjectKind::PrivateMemory => (REGION, 0),
        ObjectKind::RemoteWriteMemory => (REGION, REMOTE_WRITE),
        ObjectKind::RemoteReadMemory => (REGION, REMOTE_READ),
        ObjectKind::AtomicMemory => (REGION, ATOMIC),
        ObjectKind::SendQueue => (1, 0),
        ObjectKind::ReceiveQueue => (2, 0),
        ObjectKind::CompletionQueue => (3, 0),
        ObjectKind::Doorbell => (4, 0),
        ObjectKind::Context => (5, 0),
        ObjectKind::Translation => (6, 0),
    }
}

fn kind_of(object: u16, flags: u16) -> Option<ObjectKind> {
    Some(match object {
        REGION => ObjectKind::of_region(
            flags & REMOTE_WRITE != 0,
            flags & REMOTE_READ != 0,
            flags & ATOMIC != 0,
        ),
        1 => ObjectKind::SendQueue,
        2 => ObjectKind::ReceiveQueue,
        3 => ObjectKind::CompletionQueue,
        4 => ObjectKind::Doorbell,
        5 => ObjectKind::Context,
        6 => ObjectKind::Translation,
        _ => return None,
    })
}

/// A page of either size: its number times two, plus one for a huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame(u64);

impl Frame {
    /// The small page of `address`.
    #[inline]
    pub const fn small(address: u64) -> Self {
        Self(address / PAGE * 2)
    }

    /// The huge page of `address`.
    #[inline]
    pub const fn huge(address: u64) -> Self {
        Self(address / HUGE_PAGE * 2 + 1)
    }

    /// Whether it is a huge page.
    #[inline]
    pub const fn is_huge(self) -> bool {
        self.0 % 2 == 1
    }

    #[inline]
    pub(super) const fn number(self) -> u64 {
        self.0
    }
}

/// What a page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Whose.
    pub tenant: u16,
    /// What.
    pub kind: ObjectKind,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) frame: Frame,
    pub(super) next: u32,
    pub(super) mapping: Mapping,
}

/// No page: an empty slot.
pub(super) const VACANT: Frame = Frame(u64::MAX);
pub(super) const END: u32 = u32::MAX;

impl Slot {
    pub(super) const EMPTY: Self = Self {
        frame: VACANT,
        next: END,
        mapping: Mapping {
            tenant: 0,
            kind: ObjectKind::PrivateMemory,
        },
    };
}

const _: () = assert!(size_of::<Slot>() == 16, "a stored entry is 16 bytes");
const _: () = assert!(
    MappingUpdate::BYTES == 2 + 2 + 4 + 2 + 2 + 4 + 8,
    "seven fields"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_reads_back_as_it_was_written() {
        for operation in [Operation::Insert, Operation::Delete] {
            for kind in ObjectKind::ALL {
                let update = MappingUpdate {
                    operation,
                    tenant: 0x0102_0304,
                    kind,
                    bytes: 3 * 4096,
                    address: 0x0012_3456_7890_a000,
                };
                let bytes = update.encode();
                assert_eq!(MappingUpdate::decode(&bytes), Ok(update));
                assert_eq!(bytes[2..4], [0, 0], "the second 16 bits are reserved");
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let update = MappingUpdate {
            operation: Operation::Insert,
            tenant: 1,
            kind: ObjectKind::Context,
            bytes: 4096,
            address: 4096,
        };
        let with = |at: usize, value: u8| {
            let mut bytes = update.encode();
            bytes[at] = value;
            MappingUpdate::decode(&bytes)
        };
        assert_eq!(with(1, 3), Err(EntryError::Operation(3)));
        assert_eq!(with(9, 7), Err(EntryError::Type(7)));
        assert!(matches!(with(15, 1), Err(EntryError::Pages { .. })));
        assert!(matches!(
            with(14, 0),
            Err(EntryError::Pages { bytes: 0, .. })
        ));
        assert!(matches!(with(23, 1), Err(EntryError::Pages { .. })));
    }

    #[test]
    fn whole_huge_pages_take_one_entry_each() {
        let update = |address: u64, bytes: u64| MappingUpdate {
            operation: Operation::Insert,
            tenant: 0,
            kind: ObjectKind::PrivateMemory,
            bytes: bytes as u32,
            address,
        };
        assert_eq!(update(HUGE_PAGE, 2 * HUGE_PAGE).frames().count(), 2);
        assert_eq!(update(HUGE_PAGE, HUGE_PAGE + PAGE).frames().count(), 513);
        assert_eq!(update(PAGE, HUGE_PAGE).frames().count(), 512);
        assert_eq!(
            update(PAGE, PAGE).frames().collect::<Vec<_>>(),
            [Frame::small(PAGE)]
        );
    }
}

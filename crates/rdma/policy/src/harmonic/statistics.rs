//! The counters of a PCIe monitor for one tenant, and conclusions about the tenant's requests.
//!
//! Problem: requests bypass the kernel, so no software sees which verbs a tenant uses. The NIC's own bus does: every
//! request makes the NIC read and write host memory, and each object in that memory has one owner and one use. Method:
//! the monitor keeps, per tenant, kind of object and direction, the transactions and the bytes it saw: 10 kinds x 2
//! directions x 2 = 40 counters of 8 bytes (harmonic 5.12). They only ever grow; a poller takes differences.
//!
//! The kinds distinguish the verbs. On the responding host, payload written into a region others may write is a WRITE,
//! payload read out of a region others may read is a READ, and either way in an atomic region is an atomic. On the
//! requesting host, payload read out of a private region belongs to a WRITE or a SEND. Receive queue entries show a
//! SEND. Contexts and translations are metadata: the NIC reads them only when its caches miss.
//!
//! Units: transactions and bytes of payload, without packet headers, as the transaction's header states them.
//! Limits: a region registered for several uses counts as the strongest of them (see [`ObjectKind::of_region`]).
//! Source: harmonic 5.4.4, 5.11, 5.12. The text names three types of object and the flags of regions; the division
//! into exactly these ten is ours.

use serde::{Deserialize, Serialize};

/// What a physical address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum ObjectKind {
    /// Payload in a region that only its owner's requests touch: sources of WRITE and SEND, and where SEND and READ
    /// payload lands.
    PrivateMemory,
    /// Payload in a region that other hosts may write.
    RemoteWriteMemory,
    /// Payload in a region that other hosts may read.
    RemoteReadMemory,
    /// Operands in a region open to atomics.
    AtomicMemory,
    /// Work requests of a send queue.
    SendQueue,
    /// Work requests of a receive queue.
    ReceiveQueue,
    /// Entries of a completion queue.
    CompletionQueue,
    /// A doorbell register or record.
    Doorbell,
    /// Contexts of queue pairs and completion queues.
    Context,
    /// Translation and protection entries.
    Translation,
}

impl ObjectKind {
    /// Every kind, in the order of the counters.
    pub const ALL: [Self; 10] = [
        Self::PrivateMemory,
        Self::RemoteWriteMemory,
        Self::RemoteReadMemory,
        Self::AtomicMemory,
        Self::SendQueue,
        Self::ReceiveQueue,
        Self::CompletionQueue,
        Self::Doorbell,
        Self::Context,
        Self::Translation,
    ];

    /// The kind of a memory region with these access flags: the strongest right that others have.
    pub const fn of_region(remote_write: bool, remote_read: bool, atomic: bool) -> Self {
        if atomic {
            Self::AtomicMemory
        } else if remote_read {
            Self::RemoteReadMemory
        } else if remote_write {
            Self::RemoteWriteMemory
        } else {
            Self::PrivateMemory
        }
    }

    /// Whether it is application memory, rather than a queue or metadata.
    pub const fn is_payload(self) -> bool {
        matches!(
            self,
            Self::PrivateMemory
                | Self::RemoteWriteMemory
                | Self::RemoteReadMemory
                | Self::AtomicMemory
        )
    }

    /// Whether the NIC touches it only when its caches miss.
    pub const fn is_metadata(self) -> bool {
        matches!(self, Self::Context | Self::Translation)
    }
}

/// Which way the payload of a transaction goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum BusDirection {
    /// Towards the NIC: it reads host memory, or the host writes a doorbell.
    ToNic,
    /// Towards the host: the NIC writes host memory.
    ToHost,
}

impl BusDirection {
    /// Both, in the order of the counters.
    pub const ALL: [Self; 2] = [Self::ToNic, Self::ToHost];
}

/// Transactions and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Bus transactions: read requests and posted writes.
    pub transactions: u64,
    /// Payload bytes.
    pub bytes: u64,
}

/// The 40 counters of one tenant.
///
/// ```
/// use isolane_rdma_policy::harmonic::statistics::{BusDirection, ObjectKind, TenantStatistics};
/// let mut now = TenantStatistics::default();
/// now.add(ObjectKind::SendQueue, BusDirection::ToNic, 1, 64);
/// let before = now;
/// now.add(ObjectKind::SendQueue, BusDirection::ToNic, 2, 128);
/// let interval = now.since(&before);
/// assert_eq!(interval.of(ObjectKind::SendQueue, BusDirection::ToNic).transactions, 2);
/// assert_eq!(interval.total().bytes, 128);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantStatistics {
    usage: [[Usage; 2]; ObjectKind::ALL.len()],
}

impl TenantStatistics {
    /// Counters of one tenant (harmonic 5.12).
    pub const COUNTERS: u64 = 40;
    /// Bytes of one counter.
    pub const COUNTER_BYTES: u64 = 8;

    /// The counters of one kind of object and direction.
    #[inline]
    pub const fn of(&self, kind: ObjectKind, direction: BusDirection) -> Usage {
        self.usage[kind as usize][direction as usize]
    }

    /// Counts `transactions` of `bytes` together. Counters wrap at 2^64, as in hardware.
    #[inline]
    pub const fn add(
        &mut self,
        kind: ObjectKind,
        direction: BusDirection,
        transactions: u64,
        bytes: u64,
    ) {
        let usage = &mut self.usage[kind as usize][direction as usize];
        usage.transactions = usage.transactions.wrapping_add(transactions);
        usage.bytes = usage.bytes.wrapping_add(bytes);
    }

    /// What was counted between an earlier poll and this one.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut interval = *self;
        for (usage, before) in interval
            .usage
            .as_flattened_mut()
            .iter_mut()
            .zip(earlier.usage.as_flattened())
        {
            usage.transactions = usage.transactions.wrapping_sub(before.transactions);
            usage.bytes = usage.bytes.wrapping_sub(before.bytes);
        }
        interval
    }

    /// Everything.
    pub fn total(&self) -> Usage {
        self.sum(|_, _| true)
    }

    /// Contexts and translations: what cache misses cost.
    pub fn metadata(&self) -> Usage {
        self.sum(|kind, _| kind.is_metadata())
    }

    /// Atomics served here: each reads its operand once.
    pub fn atomics(&self) -> u64 {
        self.of(ObjectKind::AtomicMemory, BusDirection::ToNic)
            .transactions
    }

    /// Receives fetched, bytes.
    pub fn receive_bytes(&self) -> u64 {
        self.of(ObjectKind::ReceiveQueue, BusDirection::ToNic).bytes
    }

    /// Doorbells rung.
    pub fn doorbells(&self) -> u64 {
        self.of(ObjectKind::Doorbell, BusDirection::ToNic)
            .transactions
    }

    fn sum(&self, counts: impl Fn(ObjectKind, BusDirection) -> bool) -> Usage {
        let mut sum = Usage::default();
        for kind in ObjectKind::ALL {
            for direction in BusDirection::ALL {
                if counts(kind, direction) {
                    let usage = self.of(kind, direction);
                    sum.transactions = sum.transactions.wrapping_add(usage.transactions);
                    sum.bytes = sum.bytes.wrapping_add(usage.bytes);
                }
            }
        }
        sum
    }
}

const _: () = assert!(
    size_of::<TenantStatistics>() as u64
        == TenantStatistics::COUNTERS * TenantStatistics::COUNTER_BYTES,
    "a tenant's counters are what a poll reads"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_and_direction_has_counters_of_its_own() {
        let mut statistics = TenantStatistics::default();
        let mut number = 1;
        for kind in ObjectKind::ALL {
            for direction in BusDirection::ALL {
                statistics.add(kind, direction, number, 100 * number);
                number += 1;
            }
        }
        number = 1;
        for kind in ObjectKind::ALL {
            for direction in BusDirection::ALL {
                let usage = statistics.of(kind, direction);
                assert_eq!((usage.transactions, usage.bytes), (number, 100 * number));
                number += 1;
            }
        }
        assert_eq!(statistics.total().transactions, 20 * 21 / 2);
        assert_eq!(statistics.metadata().bytes, 100 * (17 + 18 + 19 + 20));
    }

    #[test]
    fn a_difference_survives_a_counter_that_wraps() {
        let mut before = TenantStatistics::default();
        before.add(
            ObjectKind::Doorbell,
            BusDirection::ToNic,
            u64::MAX,
            u64::MAX - 9,
        );
        let mut now = before;
        now.add(ObjectKind::Doorbell, BusDirection::ToNic, 3, 20);
        let interval = now.since(&before);
        assert_eq!(interval.doorbells(), 3);
        assert_eq!(
            interval.of(ObjectKind::Doorbell, BusDirection::ToNic).bytes,
            20
        );
        assert_eq!(interval.total().transactions, 3);
    }

    #[test]
    fn a_region_counts_as_the_strongest_right_others_have() {
        let kind = ObjectKind::of_region;
        assert_eq!(kind(false, false, false), ObjectKind::PrivateMemory);
        assert_eq!(kind(true, false, false), ObjectKind::RemoteWriteMemory);
        assert_eq!(kind(true, true, false), ObjectKind::RemoteReadMemory);
        assert_eq!(kind(true, true, true), ObjectKind::AtomicMemory);
    }

    #[test]
    fn the_verbs_have_different_traces() {
        use BusDirection::{ToHost, ToNic};
        // What the host that answers one request of each verb sees.
        let trace = |touched: &[(ObjectKind, BusDirection, u64)]| {
            let mut statistics = TenantStatistics::default();
            for &(kind, direction, bytes) in touched {
                statistics.add(kind, direction, 1, bytes);
            }
            (
                statistics.of(ObjectKind::RemoteWriteMemory, ToHost).bytes,
                statistics.of(ObjectKind::RemoteReadMemory, ToNic).bytes,
                statistics.atomics(),
                statistics.receive_bytes(),
            )
        };
        let write = trace(&[(ObjectKind::RemoteWriteMemory, ToHost, 64)]);
        let read = trace(&[(ObjectKind::RemoteReadMemory, ToNic, 64)]);
        let atomic = trace(&[
            (ObjectKind::AtomicMemory, ToNic, 8),
            (ObjectKind::AtomicMemory, ToHost, 8),
        ]);
        let send = trace(&[
            (ObjectKind::ReceiveQueue, ToNic, 16),
            (ObjectKind::PrivateMemory, ToHost, 64),
        ]);
        assert_eq!(write, (64, 0, 0, 0));
        assert_eq!(read, (0, 64, 0, 0));
        assert_eq!(atomic, (0, 0, 1, 0));
        assert_eq!(send, (0, 0, 0, 16));
    }
}

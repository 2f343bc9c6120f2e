//! A tenant's usage, inferred from the transactions that the PCIe monitor counted.
//!
//! The monitor sees headers: an address, a length, a direction. The address leads to a region, a queue or
//! metadata, and to its owner. From these counts follow:
//!
//! * **Payload out and in**: what the NIC read from, and wrote to, memory regions. Exact, except that inline
//!   payload travels in work requests and is not seen.
//! * **Bus bytes** each way: lengths, plus the header of every transaction. Reads are counted by request, and
//!   answered in completions of at most `payload_max` bytes, so completions are worked out.
//! * **Requests issued** here: bytes of work requests fetched over the size of one, plus doorbells beyond these requests
//!   and the receives (a lone inline request rides in the doorbell; every other doorbell announces at least one request,
//!   and one fetch may serve several doorbells). Requests of several elements count in part more than once, and a list's
//!   requests hide as many inline ones, less one. How many were READs: at most one for each write into a private region that no receive explains. A
//!   result of 8 bytes may be an atomic's; the requesting host cannot distinguish it from a READ, and counts it as a
//!   READ.
//! * **Requests served** here: atomics, which read and write one 8-byte operand in a region open to atomics, and
//!   SENDs, which take a receive. WRITEs and READs are not counted where they are served: one of 1 KiB and eight
//!   of 128 B look the same there. They are counted where they are issued.
//! * **Cache misses**: reads of contexts, translations and protection entries.
//!
//! Units: bytes, transactions; requests are in thousandths of one WRITE. Divisions round down.
//! Source: harmonic 5.5.1 (which sums to take), 5.11 (what a header shows). The text leaves the rules for
//! counting requests open; these are ours.

use super::statistics::{BusDirection, ObjectKind, TenantStatistics};

/// What one request of each verb costs the NIC, in thousandths of a WRITE, from an offline profiling run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestCosts {
    /// WRITE: 1000 by definition.
    pub write: u32,
    /// SEND.
    pub send: u32,
    /// READ.
    pub read: u32,
    /// FETCH_AND_ADD and CMP_AND_SWAP.
    pub atomic: u32,
}

impl RequestCosts {
    /// A WRITE's cost.
    pub const UNIT: u32 = 1_000;
    /// The published costs of a 25 Gb/s ConnectX-6 Dx (harmonic 5.5.1).
    pub const CONNECTX_6_DX: Self = Self {
        write: 1_000,
        send: 1_000,
        read: 1_100,
        atomic: 3_000,
    };
}

/// How the bus and the device's queues lay out what the monitor counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusFormat {
    /// Payload of one transaction at most, bytes.
    pub payload_max: u64,
    /// Header and framing of one transaction, bytes.
    pub header: u64,
    /// One work request in a send queue, bytes.
    pub work_request: u64,
    /// One work request in a receive queue, bytes.
    pub receive: u64,
}

/// What a tenant used in some interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantUsage {
    /// Payload the NIC read from regions, bytes.
    pub payload_out: u64,
    /// Payload the NIC wrote to regions, bytes.
    pub payload_in: u64,
    /// Bus bytes towards the NIC.
    pub bus_to_nic: u64,
    /// Bus bytes towards the host.
    pub bus_to_host: u64,
    /// Requests issued, thousandths of a WRITE.
    pub issued: u64,
    /// Requests served, thousandths of a WRITE.
    pub served: u64,
    /// Reads of metadata.
    pub cache_misses: u64,
}

/// Operand of an atomic, bytes.
const OPERAND: u64 = 8;

impl TenantUsage {
    /// What the counts of an interval say.
    pub fn of(counts: &TenantStatistics, format: &BusFormat, costs: &RequestCosts) -> Self {
        use BusDirection::{ToHost, ToNic};
        let mut usage = Self::default();
        // Counters come from a device: sums stop at the largest number instead of wrapping.
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        let headers = |transactions: u64| transactions.saturating_mul(format.header);
        for kind in ObjectKind::ALL {
            let (read, written) = (counts.of(kind, ToNic), counts.of(kind, ToHost));
            if kind.is_payload() {
                add(&mut usage.payload_out, read.bytes);
                add(&mut usage.payload_in, written.bytes);
            }
            let completions = read
                .transactions
                .max(read.bytes.div_ceil(format.payload_max));
            add(&mut usage.bus_to_nic, read.bytes);
            add(&mut usage.bus_to_nic, headers(completions));
            add(&mut usage.bus_to_host, written.bytes);
            add(&mut usage.bus_to_host, headers(written.transactions));
            if kind != ObjectKind::Doorbell {
                // The read requests themselves travel towards the host.
                add(&mut usage.bus_to_host, headers(read.transactions));
            }
        }
        let fetches = counts.of(ObjectKind::SendQueue, ToNic);
        let sends = counts.receive_bytes() / format.receive;
        let fetched = fetches.bytes / format.work_request;
        // Posting receives rings doorbells as well, at most one for each.
        let riding = counts.doorbells().saturating_sub(fetched);
        let issued = fetched.saturating_add(riding.saturating_sub(sends));
        let landed = counts.of(ObjectKind::PrivateMemory, ToHost).transactions;
        let reads = landed.saturating_sub(sends).min(issued);
        let cost = |requests: u64, each: u32| requests.saturating_mul(each.into());
        add(&mut usage.issued, cost(issued - reads, costs.write));
        add(&mut usage.issued, cost(reads, costs.read));
        let atomics = operands(counts, ToNic).min(operands(counts, ToHost));
        add(&mut usage.served, cost(atomics, costs.atomic));
        add(&mut usage.served, cost(sends, costs.send));
        usage.cache_misses = counts.metadata().transactions;
        usage
    }
}

/// Operands that may have moved in one direction: no more than transactions, nor than fit the bytes.
fn operands(counts: &TenantStatistics, direction: BusDirection) -> u64 {
    let seen = counts.of(ObjectKind::AtomicMemory, direction);
    seen.transactions.min(seen.bytes / OPERAND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use BusDirection::{ToHost, ToNic};

    const FORMAT: BusFormat = BusFormat {
        payload_max: 128,
        header: 20,
        work_request: 36,
        receive: 16,
    };

    fn usage(seen: &[(ObjectKind, BusDirection, u64, u64)]) -> TenantUsage {
        let mut counts = TenantStatistics::default();
        for &(kind, direction, transactions, bytes) in seen {
            counts.add(kind, direction, transactions, bytes);
        }
        TenantUsage::of(&counts, &FORMAT, &RequestCosts::CONNECTX_6_DX)
    }

    #[test]
    fn a_list_of_writes_is_counted_by_its_work_requests() {
        let usage = usage(&[
            (ObjectKind::Doorbell, ToNic, 1, 64),
            (ObjectKind::SendQueue, ToNic, 1, 16 * 36),
            (ObjectKind::PrivateMemory, ToNic, 16, 16 * 64),
            (ObjectKind::CompletionQueue, ToHost, 1, 64),
        ]);
        assert_eq!((usage.issued, usage.served), (16_000, 0));
        assert_eq!((usage.payload_out, usage.payload_in), (1024, 0));
        // Doorbell 84, work requests 576 in five completions, payload 16 times 84.
        assert_eq!(usage.bus_to_nic, 84 + 576 + 100 + 16 * 84);
        // One read request for the list and 16 for payload, and the completion entry.
        assert_eq!(usage.bus_to_host, 17 * 20 + 84);
    }

    #[test]
    fn an_inline_request_that_rides_in_its_doorbell_counts() {
        assert_eq!(
            usage(&[(ObjectKind::Doorbell, ToNic, 7, 448)]).issued,
            7_000
        );
    }

    #[test]
    fn one_fetch_for_several_doorbells_counts_each_request_once() {
        let usage = usage(&[
            (ObjectKind::Doorbell, ToNic, 32, 32 * 64),
            (ObjectKind::SendQueue, ToNic, 2, 32 * 36),
            (ObjectKind::PrivateMemory, ToNic, 32, 32 * 64),
        ]);
        assert_eq!(usage.issued, 32_000);
    }

    #[test]
    fn a_doorbell_that_posts_receives_is_no_request() {
        let usage = usage(&[
            (ObjectKind::Doorbell, ToNic, 7, 448),
            (ObjectKind::ReceiveQueue, ToNic, 4, 7 * 16),
            (ObjectKind::PrivateMemory, ToHost, 7, 448),
        ]);
        assert_eq!((usage.issued, usage.served), (0, 7_000));
    }

    #[test]
    fn reads_cost_more_where_they_are_issued_and_their_payload_comes_in() {
        let usage = usage(&[
            (ObjectKind::Doorbell, ToNic, 1, 64),
            (ObjectKind::SendQueue, ToNic, 1, 10 * 36),
            (ObjectKind::PrivateMemory, ToHost, 10, 640),
        ]);
        assert_eq!((usage.issued, usage.payload_in), (11_000, 640));
    }

    #[test]
    fn a_received_send_is_no_read() {
        let usage = usage(&[
            (ObjectKind::Doorbell, ToNic, 1, 64),
            (ObjectKind::SendQueue, ToNic, 1, 10 * 36),
            (ObjectKind::ReceiveQueue, ToNic, 1, 10 * 16),
            (ObjectKind::PrivateMemory, ToHost, 10, 640),
        ]);
        assert_eq!((usage.issued, usage.served), (10_000, 10_000));
    }

    #[test]
    fn an_atomic_is_known_where_it_is_served() {
        let served = usage(&[
            (ObjectKind::AtomicMemory, ToNic, 5, 40),
            (ObjectKind::AtomicMemory, ToHost, 5, 40),
        ]);
        assert_eq!(served.served, 15_000);
        // A WRITE into such a region reads nothing.
        let written = usage(&[(ObjectKind::AtomicMemory, ToHost, 5, 640)]);
        assert_eq!((written.served, written.payload_in), (0, 640));
    }

    #[test]
    fn misses_are_reads_of_metadata() {
        let usage = usage(&[
            (ObjectKind::Context, ToNic, 3, 3 * 256),
            (ObjectKind::Translation, ToNic, 4, 32),
        ]);
        assert_eq!(usage.cache_misses, 7);
        assert_eq!((usage.payload_out, usage.issued), (0, 0));
    }
}

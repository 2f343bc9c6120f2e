//! A monitor on an RDMA NIC's PCIe port: usage per tenant, from packet headers alone.
//!
//! Problem: requests bypass the kernel, and what they cost inside the NIC is on no wire. But everything that a NIC
//! touches is in pinned host memory, so the address in a bus packet's header identifies the object and its tenant
//! (harmonic 5.3). Method: a kernel driver sends a mapping entry for each object it creates ([`MappingUpdate`]); the
//! monitor keeps them by page ([`MappingStore`]), looks the address of each packet up ([`Analyser`]), and adds to one
//! of the 40 counters of the page's tenant. A daemon polls them.
//!
//! Nothing here sees the simulator's own books: a monitor knows headers ([`TlpHeaders`]) and updates, no more. What it
//! cannot know, it does not count: an address that no entry covers goes to `unmapped`, a header that finds the queue
//! full to `overflowed`.
//!
//! Units: bytes, picoseconds. Sources: harmonic 5.4, 5.11, 5.12. `docs/internals/monitor.md` describes the whole
//! mechanism. Limits: counters move when a transfer is booked on the bus, which is up to a microsecond or so before it
//! is over.

mod analyser;
pub mod cost;
mod entry;
mod store;
#[cfg(test)]
mod tests;

pub use analyser::{Analyser, CYCLE_PS, HOP_CYCLES, QUEUE_HEADERS, SEARCH_CYCLES};
pub use entry::{EntryError, Frame, HUGE_PAGE, Mapping, MappingUpdate, Operation, PAGE};
pub use store::{Found, Full, MappingStore, StoreSize};

use isolane_rdma_policy::harmonic::statistics::{BusDirection, TenantStatistics, Usage};

/// The headers of one transfer: packets of consecutive addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlpHeaders {
    /// Address of the first.
    pub address: u64,
    /// Bytes that all of them name together.
    pub bytes: u64,
    /// Bytes that one names at most.
    pub each: u64,
    /// Which way the bytes go.
    pub direction: BusDirection,
}

/// How large a monitor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonitorOptions {
    /// Mapping memory.
    pub store: StoreSize,
    /// Search engines of each direction.
    pub engines: u64,
    /// Tenants with counters: numbers from zero to one less.
    pub tenants: usize,
}

/// One monitor.
#[derive(Clone, Debug)]
pub struct Monitor {
    store: MappingStore,
    /// One per direction of the bus.
    analysers: [Analyser; 2],
    statistics: Vec<TenantStatistics>,
    unmapped: Usage,
    overflowed: Usage,
    updates: u64,
    rejected: u64,
}

impl Monitor {
    /// A monitor without entries.
    pub fn new(options: MonitorOptions) -> Self {
        Self {
            store: MappingStore::new(options.store),
            analysers: [
                Analyser::new(options.engines),
                Analyser::new(options.engines),
            ],
            statistics: vec![TenantStatistics::default(); options.tenants],
            unmapped: Usage::default(),
            overflowed: Usage::default(),
            updates: 0,
            rejected: 0,
        }
    }

    /// Takes one mapping entry as the driver writes it. Fails if it is no entry; it is dropped then.
    pub fn update(&mut self, entry: &[u8; MappingUpdate::BYTES]) -> Result<(), EntryError> {
        self.updates += 1;
        let update = MappingUpdate::decode(entry)?;
        for frame in update.frames() {
            match update.operation {
                Operation::Insert => {
                    // Counters exist for the tenants known at the start; others' pages count as unmapped.
                    let known = (update.tenant as usize) < self.statistics.len();
                    let mapping = Mapping {
                        tenant: update.tenant as u16,
                        kind: update.kind,
                    };
                    if !known || self.store.insert(frame, mapping).is_err() {
                        self.rejected += 1;
                    }
                }
                Operation::Delete => {
                    self.store.delete(frame);
                }
            }
        }
        Ok(())
    }

    /// Headers pass at `at`, ps, in order of time for each direction.
    #[inline]
    pub fn observe(&mut self, at: u64, headers: TlpHeaders) {
        // A transfer that crosses a page's end is looked up on both sides, as its packets would be.
        let mut rest = headers;
        loop {
            let bytes = rest.bytes.min(PAGE - rest.address % PAGE);
            self.observe_within_page(at, TlpHeaders { bytes, ..rest });
            rest.address += bytes;
            rest.bytes -= bytes;
            if rest.bytes == 0 {
                return;
            }
        }
    }

    #[inline]
    fn observe_within_page(&mut self, at: u64, headers: TlpHeaders) {
        let each = headers.each.max(1);
        let count = headers.bytes.div_ceil(each).max(1);
        let found = self.store.search(headers.address);
        let analyser = &mut self.analysers[headers.direction as usize];
        let seen = analyser.take(at, count, found.hops);
        let bytes = if seen == count {
            headers.bytes
        } else {
            let seen_bytes = seen * each;
            self.overflowed.transactions += count - seen;
            self.overflowed.bytes += headers.bytes - seen_bytes;
            seen_bytes
        };
        if seen == 0 {
            return;
        }
        match found.mapping {
            Some(mapping) => self.statistics[usize::from(mapping.tenant)].add(
                mapping.kind,
                headers.direction,
                seen,
                bytes,
            ),
            None => {
                self.unmapped.transactions += seen;
                self.unmapped.bytes += bytes;
            }
        }
    }

    /// The counters of a tenant, as a poll reads them; zeros for a tenant that is not known. What the poll costs on
    /// the bus is [`cost::poll_cost`].
    pub fn poll(&self, tenant: u16) -> TenantStatistics {
        self.statistics
            .get(usize::from(tenant))
            .copied()
            .unwrap_or_default()
    }

    /// What no mapping entry covers.
    pub const fn unmapped(&self) -> Usage {
        self.unmapped
    }

    /// What the analyser missed.
    pub const fn overflowed(&self) -> Usage {
        self.overflowed
    }

    /// Mapping entries taken.
    pub const fn updates(&self) -> u64 {
        self.updates
    }

    /// Pages that found no place.
    pub const fn rejected(&self) -> u64 {
        self.rejected
    }

    /// The mapping memory.
    pub const fn store(&self) -> &MappingStore {
        &self.store
    }

    /// Searches made, and the cycles they took.
    pub const fn searches(&self) -> (u64, u64) {
        let [one, other] = &self.analysers;
        (one.searches + other.searches, one.cycles + other.cycles)
    }

    /// Memory for mappings, counters and waiting headers, bytes.
    pub const fn footprint_bytes(&self) -> u64 {
        self.store.footprint_bytes()
            + (self.statistics.len() * size_of::<TenantStatistics>()) as u64
            + 2 * QUEUE_HEADERS * 8
    }
}

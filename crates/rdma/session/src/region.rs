//! The private shared memory of one session.
//!
//! Layout, in cache lines of 64 bytes, so that the two sides never write the same line:
//!
//! | offset | what | written by |
//! |---|---|---|
//! | 0 | [`Header`]: identity line | daemon, once |
//! | 64 | daemon's line: state | daemon |
//! | 128 | shim's line: pump state, slots in use | shim |
//! | 256 | [`METERS`] x [`Meter`]: a lease (daemon) and counters (shim) | both, own lines |
//! | 8,448 | [`SLOTS`] x [`Slot`]: a queue pair's class (daemon) and counters (shim) | both, own lines |
//!
//! A lease is a set of independent words. A reader that sees half of an update sees a rate of one lease and the end of
//! another, and the daemon set both values; nothing else may depend on their agreement. A lease holds until
//! `valid_until_ns`. A shim stops pacing when the lease expired more than [`GRACE_NS`] ago, because its daemon has
//! ended or is stopped. The lease of an idle process has no end, so a shim also stops pacing when the daemon has not
//! answered a wake-up for [`SILENT_NS`]. Counters only rise; a reader takes differences modulo 2^64 and clamps.
//!
//! SAFETY of the whole module: the memory file is sealed against shrinking before any other process sees it, so a
//! mapped region stays mapped; every field is an atomic, so anything that the other process writes at any time is a
//! value and not undefined behaviour; a mapping lives as long as the [`Region`] that hands out references to it.

use crate::words::{Atomics, Processor, Word};
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// First word of a region.
pub const MAGIC: u64 = 0x6973_6f6c_616e_6531;
/// Meters of a session: two per device, and one per device and port from which it READs.
pub const METERS: usize = 64;
/// Ports from which a session READs with a meter of their own, so that 16 devices have theirs; READs from further ports
/// have the device's meter.
pub const SOURCES: usize = 32;
/// Queue pairs with their own slot; all further ones share the last slot.
pub const SLOTS: usize = 1024;
/// How long after its end a lease still paces, ns: longer than a busy machine delays the daemon.
pub const GRACE_NS: u64 = 200_000_000;
/// How long the lease of an idle process paces without an answer to a wake-up, ns: as long as an active lease, which
/// the daemon extends for a second, and its grace.
pub const SILENT_NS: u64 = 1_000_000_000 + GRACE_NS;
/// Size of the region, bytes.
pub const REGION_BYTES: usize = size_of::<Layout>();

/// [`Meter::flags`]: the meter counts as active and has a sender's lease.
pub const METER_ACTIVE: u32 = 1;
/// [`Meter::flags`]: the meter is not paced; everything passes and is counted.
pub const METER_RELEASED: u32 = 2;

/// [`Header::state`]: the daemon has released the session; everything passes from now on.
pub const STATE_RELEASED: u32 = 1;

/// [`Slot::state`]: free.
pub const SLOT_FREE: u32 = 0;
/// [`Slot::state`]: a queue pair.
pub const SLOT_USED: u32 = 1;
/// [`Slot::state`]: shared by all queue pairs without their own slot.
pub const SLOT_SHARED: u32 = 2;

/// The class in which a network carries a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Service {
    /// InfiniBand's service level.
    pub level: u8,
    /// RoCE's traffic class; its upper six bits are the DSCP.
    pub traffic_class: u8,
}

impl Service {
    /// The word in shared memory; never zero.
    pub fn word(self) -> u32 {
        SERVICE_KNOWN | u32::from(self.level) << 8 | u32::from(self.traffic_class)
    }

    /// The word of a slot: the class of the connection, if it is known, and whether the queue pair has posted READs.
    pub fn slot_word(service: Option<Self>, has_read: bool) -> u32 {
        service.map_or(0, Self::word) | if has_read { SLOT_HAS_READ } else { 0 }
    }

    /// The class of a word; `None` before a connection is known.
    pub fn from_word(word: u32) -> Option<Self> {
        (word & SERVICE_KNOWN != 0).then_some(Self {
            level: (word >> 8) as u8,
            traffic_class: word as u8,
        })
    }
}

/// Set in the word of a known class.
const SERVICE_KNOWN: u32 = 1 << 16;
/// Set in a slot's word once its queue pair has posted a READ.
pub(crate) const SLOT_HAS_READ: u32 = 1 << 17;

/// The whole region.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Layout {
    /// Identity, state and version.
    pub header: Header,
    /// See [`METERS`].
    pub meters: [Meter; METERS],
    /// One per queue pair.
    pub slots: [Slot; SLOTS],
}

/// The first 256 bytes.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`crate::VERSION`].
    pub version: AtomicU32,
    /// [`REGION_BYTES`].
    pub bytes: AtomicU32,
    /// Session number.
    pub session: AtomicU64,
    identity_rest: [AtomicU64; 5],
    /// 0 while the session is served, else [`STATE_RELEASED`]; written by the daemon.
    pub state: AtomicU32,
    /// The class of new queue pairs, a number of [`crate::message::Class`]; written by the daemon.
    pub class: AtomicU32,
    /// Number of changed classes and releases; when it changes, the shim reads its slots.
    pub changes: AtomicU64,
    /// Number of wake-ups that the daemon has answered; written by the daemon.
    pub answers: AtomicU64,
    daemon_rest: [AtomicU64; 5],
    /// One past the highest slot ever used; written by the shim.
    pub slots_high: AtomicU32,
    /// Whether the shim's pump sleeps; written by the shim for the metrics.
    pub pump_asleep: AtomicU32,
    /// Work requests that wait in the shim; written by the shim.
    pub waiting: AtomicU64,
    /// The [`Service`] of the newest connection of a process whose data path the shim does not see; written by the shim.
    pub service: AtomicU32,
    shim_u32: AtomicU32,
    shim_rest: [AtomicU64; 13],
}

/// The lease and the counters of one device and direction, for READs also of one port that they read.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Meter<A: Atomics = Processor> {
    /// [`METER_ACTIVE`], [`METER_RELEASED`]; daemon.
    pub flags: A::U32,
    /// Messages above this size are split into chunks of this size, bytes; zero: never split; daemon.
    pub chunk_bytes: A::U32,
    /// Payload rate of the lease; daemon.
    pub rate_bytes_per_s: A::U64,
    /// Message rate of the lease; daemon.
    pub rate_operations_per_s: A::U64,
    /// Largest credit, bytes; daemon.
    pub burst_bytes: A::U64,
    /// Largest credit, operations; daemon.
    pub burst_operations: A::U64,
    /// End of the lease, CLOCK_MONOTONIC; daemon.
    pub valid_until_ns: A::U64,
    daemon_rest: [A::U64; 2],
    /// Payload bytes that paced queue pairs posted, including waiting ones; shim.
    pub posted_bytes: A::U64,
    /// The same in messages; shim.
    pub posted_operations: A::U64,
    /// Payload bytes that took credit and went to the provider; shim. A batch may count ahead.
    pub passed_bytes: A::U64,
    /// The same in messages; shim.
    pub passed_operations: A::U64,
    /// Since when work has been waiting, CLOCK_MONOTONIC; zero: nothing waits; shim.
    pub waiting_since_ns: A::U64,
    shim_rest: [A::U64; 3],
}

/// The class and the counters of one queue pair.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Slot<A: Atomics = Processor> {
    /// The class assigned by the daemon, a number of [`crate::message::Class`].
    pub class: A::U32,
    daemon_u32: A::U32,
    daemon_rest: [A::U64; 7],
    /// [`SLOT_FREE`], [`SLOT_USED`], [`SLOT_SHARED`]; see [`crate::slot`].
    pub state: A::U32,
    /// Queue pair number; shim.
    pub queue_pair: A::U32,
    /// Meter of its sends and WRITEs (low half) and of its READs (high half); shim.
    pub meters: A::U32,
    /// The [`Service`] of its connection, and whether it has READ; shim.
    pub service: A::U32,
    /// Messages that the application posted; shim.
    pub posted_messages: A::U64,
    /// Payload of the posted messages, bytes; shim.
    pub posted_bytes: A::U64,
    /// Completed messages of the application, as far as it polled; shim.
    pub completed_messages: A::U64,
    /// Payload of the completed messages, bytes; shim.
    pub completed_bytes: A::U64,
    /// Work requests made by splitting; shim.
    pub chunks: A::U64,
    /// Sum of its messages' waits for credit, ns; shim.
    pub waited_ns: A::U64,
}

const _: () = {
    assert!(size_of::<Header>() == 256);
    assert!(size_of::<Meter<Processor>>() == 128);
    assert!(size_of::<Slot<Processor>>() == 128);
    assert!(size_of::<Layout>() == 256 + METERS * 128 + SLOTS * 128);
    assert!(std::mem::offset_of!(Header, state) == 64);
    assert!(std::mem::offset_of!(Header, slots_high) == 128);
    assert!(std::mem::offset_of!(Meter<Processor>, posted_bytes) == 64);
    assert!(std::mem::offset_of!(Slot<Processor>, state) == 64);
    assert!(size_of::<usize>() == 8 && cfg!(target_endian = "little"));
};

/// Why a region cannot be made or mapped.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum RegionError {
    #[error(
        "cannot {what} the session's shared memory of {REGION_BYTES} bytes: {error}; is memory or the number of open files used up?"
    )]
    Kernel {
        what: &'static str,
        error: rustix::io::Errno,
    },
    #[error(
        "the session's shared memory has {what} {found}, expected {expected}; install the same release of shim and daemon"
    )]
    Other {
        what: &'static str,
        found: u64,
        expected: u64,
    },
}

/// A mapped region. The daemon makes it; the shim maps the received file.
#[derive(Debug)]
pub struct Region {
    address: NonNull<Layout>,
}

// SAFETY: everything behind the address is atomic, and the mapping does not depend on a thread.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Makes a region for `session` with zero counters and no lease. Returns it with the sealed memory file for the
    /// shim. Fails if the kernel has no memory or no file descriptors left.
    pub fn create(session: u64) -> Result<(Self, OwnedFd), RegionError> {
        let kernel = |what| move |error| RegionError::Kernel { what, error };
        let file = memfd_create(
            "isolane-session",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )
        .map_err(kernel("create"))?;
        ftruncate(&file, REGION_BYTES as u64).map_err(kernel("size"))?;
        fcntl_add_seals(&file, seals()).map_err(kernel("seal"))?;
        let region = Self::map_unchecked(&file)?;
        let header = &region.header;
        header.version.store(crate::VERSION, Ordering::Relaxed);
        header.bytes.store(REGION_BYTES as u32, Ordering::Relaxed);
        header.session.store(session, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok((region, file))
    }

    /// Maps the region behind `file`, which the shim received. Fails if the file is not sealed, has the wrong size or
    /// version, or the kernel rejects the mapping.
    pub fn map(file: impl AsFd) -> Result<Self, RegionError> {
        let kernel = |what| move |error| RegionError::Kernel { what, error };
        let bytes = fstat(&file).map_err(kernel("inspect"))?.st_size as u64;
        check("size", bytes, REGION_BYTES as u64)?;
        let held = fcntl_get_seals(&file).map_err(kernel("inspect"))?;
        check(
            "seals",
            u64::from((held & seals()).bits()),
            u64::from(seals().bits()),
        )?;
        let region = Self::map_unchecked(&file)?;
        let header = &region.header;
        check("magic", header.magic.load(Ordering::Acquire), MAGIC)?;
        check(
            "version",
            u64::from(header.version.load(Ordering::Relaxed)),
            u64::from(crate::VERSION),
        )?;
        Ok(region)
    }

    fn map_unchecked(file: impl AsFd) -> Result<Self, RegionError> {
        // SAFETY: a fresh mapping at an address of the kernel's choice; the file has at least these bytes and is
        // sealed against shrinking, so no access can fault. Zero bytes are valid atomics.
        let address = unsafe {
            mmap(
                std::ptr::null_mut(),
                REGION_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )
        };
        let address = address.map_err(|error| RegionError::Kernel { what: "map", error })?;
        let address =
            NonNull::new(address.cast()).expect("mmap without a hint never maps address zero");
        Ok(Self { address })
    }
}

impl std::ops::Deref for Region {
    type Target = Layout;

    fn deref(&self) -> &Layout {
        // SAFETY: mapped for the life of `self`, page aligned, all fields atomic.
        unsafe { self.address.as_ref() }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map_unchecked`, and no reference outlives `self`. A failure would only
        // leave the mapping in place.
        let _ = unsafe { munmap(self.address.as_ptr().cast::<c_void>(), REGION_BYTES) };
    }
}

fn seals() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

fn check(what: &'static str, found: u64, expected: u64) -> Result<(), RegionError> {
    match found == expected {
        true => Ok(()),
        false => Err(RegionError::Other {
            what,
            found,
            expected,
        }),
    }
}

/// A lease as one value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// Payload rate, bytes per second.
    pub rate_bytes_per_s: u64,
    /// Message rate, operations per second.
    pub rate_operations_per_s: u64,
    /// Largest credit, bytes.
    pub burst_bytes: u64,
    /// Largest credit, operations.
    pub burst_operations: u64,
    /// Chunk size, bytes; zero: never split.
    pub chunk_bytes: u32,
    /// End of the lease, CLOCK_MONOTONIC, ns.
    pub valid_until_ns: u64,
    /// [`METER_ACTIVE`] and [`METER_RELEASED`].
    pub flags: u32,
}

/// The shim's counters of a meter as one value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// See [`Meter::posted_bytes`].
    pub posted_bytes: u64,
    /// See [`Meter::posted_operations`].
    pub posted_operations: u64,
    /// See [`Meter::passed_bytes`].
    pub passed_bytes: u64,
    /// See [`Meter::passed_operations`].
    pub passed_operations: u64,
    /// See [`Meter::waiting_since_ns`].
    pub waiting_since_ns: u64,
}

impl<A: Atomics> Meter<A> {
    /// Writes a lease, its end last: a prolonged lease then already has its new rate.
    pub fn grant(&self, lease: &Lease) {
        self.chunk_bytes.store(lease.chunk_bytes, Ordering::Relaxed);
        self.rate_bytes_per_s
            .store(lease.rate_bytes_per_s, Ordering::Relaxed);
        self.rate_operations_per_s
            .store(lease.rate_operations_per_s, Ordering::Relaxed);
        self.burst_bytes.store(lease.burst_bytes, Ordering::Relaxed);
        self.burst_operations
            .store(lease.burst_operations, Ordering::Relaxed);
        self.flags.store(lease.flags, Ordering::Relaxed);
        self.valid_until_ns
            .store(lease.valid_until_ns, Ordering::Release);
    }

    /// Reads the lease.
    pub fn lease(&self) -> Lease {
        let valid_until_ns = self.valid_until_ns.load(Ordering::Acquire);
        Lease {
            rate_bytes_per_s: self.rate_bytes_per_s.load(Ordering::Relaxed),
            rate_operations_per_s: self.rate_operations_per_s.load(Ordering::Relaxed),
            burst_bytes: self.burst_bytes.load(Ordering::Relaxed),
            burst_operations: self.burst_operations.load(Ordering::Relaxed),
            chunk_bytes: self.chunk_bytes.load(Ordering::Relaxed),
            valid_until_ns,
            flags: self.flags.load(Ordering::Relaxed),
        }
    }

    /// Reads the counters, which the other process may have set to any value.
    pub fn counters(&self) -> Counters {
        Counters {
            posted_bytes: self.posted_bytes.load(Ordering::Relaxed),
            posted_operations: self.posted_operations.load(Ordering::Relaxed),
            passed_bytes: self.passed_bytes.load(Ordering::Relaxed),
            passed_operations: self.passed_operations.load(Ordering::Relaxed),
            waiting_since_ns: self.waiting_since_ns.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_see_one_memory() {
        let (daemon, file) = Region::create(7).expect("memory");
        let shim = Region::map(&file).expect("what the daemon made");
        assert_eq!(shim.header.session.load(Ordering::Relaxed), 7);
        let lease = Lease {
            rate_bytes_per_s: 5_000_000,
            chunk_bytes: 5_000,
            valid_until_ns: 12,
            flags: METER_ACTIVE,
            ..Lease::default()
        };
        daemon.meters[3].grant(&lease);
        assert_eq!(shim.meters[3].lease(), lease);
        shim.meters[3].passed_bytes.store(99, Ordering::Relaxed);
        assert_eq!(daemon.meters[3].counters().passed_bytes, 99);
    }

    #[test]
    fn a_region_outlives_its_file_descriptor() {
        let (daemon, file) = Region::create(1).expect("memory");
        drop(file);
        daemon.slots[SLOTS - 1].chunks.store(3, Ordering::Relaxed);
        assert_eq!(daemon.slots[SLOTS - 1].chunks.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn memory_that_can_shrink_is_refused() {
        let file = memfd_create("other", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .expect("a memory file");
        ftruncate(&file, REGION_BYTES as u64).expect("its size");
        let error = Region::map(&file).expect_err("it has no seals");
        assert!(error.to_string().contains("seals"), "{error}");
    }

    #[test]
    fn memory_of_another_size_is_refused() {
        let file = memfd_create("other", MemfdFlags::CLOEXEC).expect("a memory file");
        ftruncate(&file, 4096).expect("its size");
        let error = Region::map(&file).expect_err("it is too small");
        assert!(error.to_string().contains("size 4096"), "{error}");
    }

    #[test]
    fn a_sealed_region_cannot_be_cut_by_the_other_side() {
        let (_daemon, file) = Region::create(1).expect("memory");
        assert!(ftruncate(&file, 0).is_err());
        assert!(fcntl_add_seals(&file, SealFlags::WRITE).is_err());
    }
}

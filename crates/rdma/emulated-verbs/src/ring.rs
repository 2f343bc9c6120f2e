//! A completion queue in memory that the broker and one client share.
//!
//! | offset | what | written by |
//! |---|---|---|
//! | 0 | entries produced | broker |
//! | 64 | entries consumed | client |
//! | 128 | what the client waits for: nothing, solicited, any | client sets, broker clears |
//! | 4,096 | entries of 64 bytes | broker |
//!
//! SAFETY of the whole module: the memory file is sealed against any change of its size before the client sees it, so a
//! mapping stays valid; every field is an atomic, so anything that the other process writes is a value. A hostile
//! client harms its own queue only: the broker bounds what it reads by the capacity.

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes before the first entry.
const HEADER: usize = 4096;
/// Bytes of an entry.
const ENTRY: usize = 64;

/// The client waits for no event.
pub const ARMED_NOT: u32 = 0;
/// The client waits for a solicited completion or an error.
pub const ARMED_SOLICITED: u32 = 1;
/// The client waits for any completion.
pub const ARMED_ANY: u32 = 2;

/// One completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// As posted.
    pub wr_id: u64,
    /// `ibv_wc_status`.
    pub status: u32,
    /// `ibv_wc_opcode`.
    pub opcode: u32,
    /// Bytes received or read.
    pub byte_len: u32,
    /// Immediate data in network order, or the invalidated key.
    pub immediate: u32,
    /// The queue pair.
    pub qp_num: u32,
    /// The sender of a datagram.
    pub src_qp: u32,
    /// `ibv_wc_flags`.
    pub flags: u32,
    /// LID of the sender.
    pub slid: u16,
    /// Service level.
    pub sl: u8,
    /// Whether it ends a receive.
    pub receive: bool,
    /// Number of the work request in its queue: all up to it are over.
    pub sequence: u64,
    /// Time of the device's clock, ns.
    pub timestamp: u64,
}

impl Entry {
    fn words(&self) -> [u64; 8] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let last = u32::from(self.slid) | u32::from(self.sl) << 16 | u32::from(self.receive) << 24;
        [
            self.wr_id,
            pair(self.status, self.opcode),
            pair(self.byte_len, self.immediate),
            pair(self.qp_num, self.src_qp),
            pair(self.flags, last),
            self.sequence,
            self.timestamp,
            0,
        ]
    }

    fn from_words(words: [u64; 8]) -> Self {
        let low = |word: u64| word as u32;
        let high = |word: u64| (word >> 32) as u32;
        let last = high(words[4]);
        Self {
            wr_id: words[0],
            status: low(words[1]),
            opcode: high(words[1]),
            byte_len: low(words[2]),
            immediate: high(words[2]),
            qp_num: low(words[3]),
            src_qp: high(words[3]),
            flags: low(words[4]),
            slid: last as u16,
            sl: (last >> 16) as u8,
            receive: last >> 24 & 1 == 1,
            sequence: words[5],
            timestamp: words[6],
        }
    }
}

/// A mapped completion queue.
#[derive(Debug)]
pub struct Ring {
    base: NonNull<c_void>,
    bytes: usize,
    capacity: u64,
    /// Broker: entries produced. The client can write the shared number, which the broker therefore never reads.
    produced: AtomicU64,
}

// SAFETY: see the module; all fields behind the pointer are atomics.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: `map` made this mapping, and no reference into it is left.
        let _ = unsafe { munmap(self.base.as_ptr(), self.bytes) };
    }
}

impl Ring {
    /// A new queue for `capacity` entries, and the file that the client maps. Fails without memory or descriptors.
    pub fn create(capacity: u32) -> Result<(Self, OwnedFd), Errno> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create("isolane-cq", flags)?;
        ftruncate(&fd, (HEADER + ENTRY * capacity as usize) as u64)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((Self::map(&fd, capacity)?, fd))
    }

    /// Maps a queue that the broker created. Fails with `EINVAL` when the file is no such queue.
    pub fn map(fd: impl AsFd, capacity: u32) -> Result<Self, Errno> {
        let bytes = HEADER + ENTRY * capacity as usize;
        let sealed = fcntl_get_seals(&fd)?.contains(SealFlags::SHRINK);
        if !sealed || fstat(&fd)?.st_size as usize != bytes {
            return Err(Errno::INVAL);
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                access,
                MapFlags::SHARED,
                &fd,
                0,
            )
        }?;
        Ok(Self {
            base: NonNull::new(base).ok_or(Errno::NOMEM)?,
            bytes,
            capacity: u64::from(capacity),
            produced: AtomicU64::new(0),
        })
    }

    /// Entries that it holds at most.
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset + 8 <= self.bytes && offset.is_multiple_of(8));
        // SAFETY: inside the mapping, aligned, and an atomic: see the module.
        unsafe { self.base.byte_add(offset).cast::<AtomicU64>().as_ref() }
    }

    fn armed(&self) -> &AtomicU32 {
        // SAFETY: inside the header of the mapping, aligned, and an atomic: see the module.
        unsafe { self.base.byte_add(128).cast::<AtomicU32>().as_ref() }
    }

    fn entry(&self, number: u64) -> usize {
        HEADER + ENTRY * (number % self.capacity) as usize
    }

    /// Broker: appends a completion; false when the queue is full.
    pub fn push(&self, entry: &Entry) -> bool {
        let produced = self.produced.load(Ordering::Relaxed);
        let consumed = self.word(64).load(Ordering::Acquire);
        if produced.wrapping_sub(consumed) >= self.capacity {
            return false;
        }
        self.write(produced, entry);
        let produced = produced.wrapping_add(1);
        self.produced.store(produced, Ordering::Relaxed);
        self.word(0).store(produced, Ordering::SeqCst);
        true
    }

    /// Broker: whether the client waits for a completion like this one; it does no more then.
    pub fn take_armed(&self, solicited: bool) -> bool {
        let armed = self.armed().load(Ordering::SeqCst);
        let wanted = armed == ARMED_ANY || armed == ARMED_SOLICITED && solicited;
        wanted && self.armed().swap(ARMED_NOT, Ordering::SeqCst) != ARMED_NOT
    }

    /// Broker: goes on in a new queue, behind the places of the entries that the client has not taken, with what the client
    /// waits for. The number of these entries, which the client copies by [`Self::take_over`], so that a long queue costs the
    /// other clients no time. `None`, without a change, if they and `more` entries do not fit. A client that writes a false
    /// count gets wrong entries, but never more than the broker has written here.
    pub fn continue_in(&self, new: &Self, more: u64) -> Option<u64> {
        let consumed = self.word(64).load(Ordering::Acquire);
        let produced = self.produced.load(Ordering::Relaxed);
        let written = produced.min(self.capacity);
        let waiting = produced.wrapping_sub(consumed).min(written);
        if waiting.saturating_add(more) > new.capacity {
            return None;
        }
        new.produced.store(waiting, Ordering::Relaxed);
        new.word(0).store(waiting, Ordering::SeqCst);
        let armed = self.armed().load(Ordering::SeqCst);
        new.armed().store(armed, Ordering::SeqCst);
        Some(waiting)
    }

    /// Client: copies the oldest `waiting` entries of the queue before this one to their places, before it takes any.
    pub fn take_over(&self, before: &Self, waiting: u64) {
        let consumed = before.word(64).load(Ordering::Relaxed);
        for number in 0..waiting.min(self.capacity) {
            self.write(number, &before.read(consumed.wrapping_add(number)));
        }
    }

    fn write(&self, number: u64, entry: &Entry) {
        let at = self.entry(number);
        for (index, word) in entry.words().into_iter().enumerate() {
            self.word(at + 8 * index).store(word, Ordering::Relaxed);
        }
    }

    fn read(&self, number: u64) -> Entry {
        let at = self.entry(number);
        let words = std::array::from_fn(|index| self.word(at + 8 * index).load(Ordering::Relaxed));
        Entry::from_words(words)
    }

    /// Client: takes the oldest completion.
    pub fn pop(&self) -> Option<Entry> {
        let consumed = self.word(64).load(Ordering::Relaxed);
        if self.word(0).load(Ordering::Acquire) == consumed {
            return None;
        }
        let entry = self.read(consumed);
        self.word(64)
            .store(consumed.wrapping_add(1), Ordering::Release);
        Some(entry)
    }

    /// Client: waits for an event from now on.
    pub fn arm(&self, solicited_only: bool) {
        let value = if solicited_only {
            ARMED_SOLICITED
        } else {
            ARMED_ANY
        };
        // "Any" includes "solicited".
        self.armed().fetch_max(value, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(wr_id: u64) -> Entry {
        Entry {
            wr_id,
            status: 5,
            opcode: 128,
            byte_len: 77,
            immediate: 0xdead_beef,
            qp_num: 9,
            src_qp: 11,
            flags: 3,
            slid: 0xabcd,
            sl: 7,
            receive: true,
            sequence: 1 << 40,
            timestamp: 12,
        }
    }

    #[test]
    fn the_client_sees_what_the_broker_wrote_in_order() {
        let (broker, fd) = Ring::create(3).expect("memory");
        let client = Ring::map(&fd, 3).expect("the file");
        for round in 0..5 {
            assert!(broker.push(&entry(2 * round)) && broker.push(&entry(2 * round + 1)));
            assert_eq!(client.pop(), Some(entry(2 * round)));
            assert_eq!(client.pop(), Some(entry(2 * round + 1)));
            assert_eq!(client.pop(), None);
        }
    }

    #[test]
    fn a_full_queue_takes_no_more_and_a_false_count_frees_none() {
        let (broker, fd) = Ring::create(2).expect("memory");
        assert!(broker.push(&entry(0)) && broker.push(&entry(1)));
        assert!(!broker.push(&entry(2)));
        let client = Ring::map(&fd, 2).expect("the file");
        client.word(64).store(1000, Ordering::Relaxed);
        assert!(!broker.push(&entry(2)));
    }

    #[test]
    fn a_new_queue_has_what_was_not_taken_and_what_is_waited_for() {
        let (broker, fd) = Ring::create(3).expect("memory");
        let client = Ring::map(&fd, 3).expect("the file");
        for number in 0..4 {
            assert!(broker.push(&entry(number)));
            assert!(number > 0 || client.pop() == Some(entry(0)));
        }
        client.arm(true);
        let (small, _fd) = Ring::create(2).expect("memory");
        assert_eq!(broker.continue_in(&small, 0), None);
        let (large, fd) = Ring::create(4).expect("memory");
        assert_eq!(broker.continue_in(&large, 2), None);
        assert_eq!(broker.continue_in(&large, 1), Some(3));
        assert!(large.take_armed(true));
        assert!(large.push(&entry(4)) && !large.push(&entry(9)), "full");
        let empty = Entry::from_words([0; 8]);
        assert_eq!(large.read(0), empty, "the broker copies nothing");
        let new = Ring::map(&fd, 4).expect("the file");
        new.take_over(&client, 3);
        for number in 1..5 {
            assert_eq!(new.pop(), Some(entry(number)));
        }
        assert_eq!(new.pop(), None);
    }

    #[test]
    fn false_counts_of_a_client_copy_no_more_than_was_written() {
        let (broker, fd) = Ring::create(8).expect("memory");
        let client = Ring::map(&fd, 8).expect("the file");
        for number in 0..2 {
            assert!(broker.push(&entry(number)));
        }
        for (produced, consumed) in [(8, 0), (u64::MAX, 2), (2, u64::MAX - 9), (0, 8)] {
            client.word(0).store(produced, Ordering::Relaxed);
            client.word(64).store(consumed, Ordering::Relaxed);
            let (other, _fd) = Ring::create(2).expect("memory");
            let waiting = broker.continue_in(&other, 0).expect("there is room");
            assert!(waiting <= 2, "{produced}, {consumed}: {waiting}");
        }
        client.word(64).store(2, Ordering::Relaxed);
        assert!(broker.push(&entry(2)));
        assert_eq!(client.pop(), Some(entry(2)), "the broker's count holds");
    }

    #[test]
    fn an_event_is_due_once_per_request() {
        let (broker, fd) = Ring::create(2).expect("memory");
        let client = Ring::map(&fd, 2).expect("the file");
        assert!(!broker.take_armed(true));
        client.arm(true);
        assert!(!broker.take_armed(false));
        client.arm(false);
        assert!(broker.take_armed(false) && !broker.take_armed(true));
    }
}

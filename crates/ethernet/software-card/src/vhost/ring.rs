//! A split virtqueue, seen from the device.
//!
//! Method: the driver publishes chains of descriptors in `avail`, the device takes them in order and returns each through
//! `used` when it is done with the bytes. Every address, index and length is checked against the ring's size and the
//! machine's memory; a chain that states something else is returned empty. Units: bytes. Limits: no event indexes, no packed
//! rings. Source: virtio 1.2, 2.7.

use super::memory::GuestMemory;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU16, Ordering, fence};

/// Longest ring that virtio permits.
const SIZE_MAX: u16 = 32_768;
const DESCRIPTOR_BYTES: usize = 16;
/// The chain goes on at `next`.
const NEXT: u16 = 1;
/// The device writes.
const WRITE: u16 = 2;
/// The bytes are a table of descriptors.
const INDIRECT: u16 = 4;
/// In `avail`: the driver wants no interrupt.
const NO_INTERRUPT: u16 = 1;

/// A ring.
#[derive(Debug, Default)]
pub(super) struct Ring {
    size: u16,
    /// Places of descriptors, `avail` and `used`, in the emulator.
    pub descriptors: u64,
    pub avail: u64,
    pub used: u64,
    /// The next entry of `avail`.
    pub next: u16,
    pub is_enabled: bool,
    call: Option<OwnedFd>,
    kick: Option<OwnedFd>,
    /// Taken and not returned.
    taken: Option<u16>,
}

/// A piece of a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub at: *mut u8,
    pub bytes: usize,
}

#[derive(Clone, Copy)]
struct Descriptor {
    address: u64,
    bytes: u32,
    flags: u16,
    next: u16,
}

impl Ring {
    /// Sets the number of entries; false if a ring cannot have it, or a chain is taken.
    pub(super) fn set_size(&mut self, size: u32) -> bool {
        let size = u16::try_from(size).unwrap_or(0);
        let is_possible = size.is_power_of_two() && size <= SIZE_MAX && self.taken.is_none();
        if is_possible {
            self.size = size;
        }
        is_possible
    }

    /// The driver's signal that there are new chains. The ring runs from now on.
    pub(super) fn set_kick(&mut self, kick: Option<OwnedFd>) {
        self.kick = kick.inspect(never_wait);
    }

    /// The card's signal that chains came back.
    pub(super) fn set_call(&mut self, call: Option<OwnedFd>) {
        self.call = call.inspect(never_wait);
    }

    /// The file of the driver's signal.
    pub(super) fn kick(&self) -> Option<&OwnedFd> {
        self.kick.as_ref()
    }

    /// Stops the ring; the next entry that was not returned.
    pub(super) fn stop(&mut self) -> u16 {
        self.kick = None;
        self.next = self
            .next
            .wrapping_sub(u16::from(self.taken.take().is_some()));
        self.next
    }

    /// Takes the next chain, and lists its pieces that the device reads (or writes) in `pieces`. None if there is none, or the
    /// ring is not usable. The chain stays taken until [`give_back`](Self::give_back).
    pub(super) fn take(
        &mut self,
        memory: &GuestMemory,
        is_written: bool,
        pieces: &mut Vec<Piece>,
    ) -> Option<()> {
        pieces.clear();
        if !self.has_next(memory) {
            // `poll` returns at once until the signal is read.
            self.drain();
            if !self.has_next(memory) {
                return None;
            }
        }
        let slot = usize::from(self.next % self.size);
        let head = read_word(
            memory.emulator(self.avail, 4 + 2 * (slot + 1))?,
            4 + 2 * slot,
        );
        self.next = self.next.wrapping_add(1);
        self.taken = Some(head);
        if self.walk(memory, head, is_written, pieces).is_none() {
            // A chain that makes no sense: returned empty.
            pieces.clear();
        }
        Some(())
    }

    /// Returns the chain that is taken, with so many bytes written, and interrupts the driver if it wants to be.
    pub(super) fn give_back(&mut self, memory: &GuestMemory, written: u32) {
        let Some(head) = self.taken.take() else {
            return;
        };
        let size = usize::from(self.size);
        let (Some(used), Some(avail)) = (
            memory.emulator(self.used, 4 + 8 * size),
            memory.emulator(self.avail, 4),
        ) else {
            return;
        };
        // SAFETY: `emulator` proved that the ring of `size` entries is mapped, and virtio aligns it to four bytes; the
        // driver only reads it.
        unsafe {
            let index = used.add(2).cast::<u16>();
            if !index.is_aligned() {
                return;
            }
            let index = AtomicU16::from_ptr(index);
            let at = index.load(Ordering::Relaxed);
            let entry = used.add(4 + 8 * (usize::from(at) % size)).cast::<u32>();
            entry.write_unaligned(u32::from(head));
            entry.add(1).write_unaligned(written);
            index.store(at.wrapping_add(1), Ordering::Release);
        }
        // The driver looks at `used` after it has asked for interrupts, the device at the wish after it has written `used`.
        fence(Ordering::SeqCst);
        if read_word(avail, 0) & NO_INTERRUPT == 0
            && let Some(call) = &self.call
        {
            // A counter that is full has told the driver already.
            let _ = rustix::io::write(call, &1_u64.to_ne_bytes());
        }
    }

    /// Whether the ring runs, and the driver has published a chain. No driver publishes more than the ring has.
    fn has_next(&self, memory: &GuestMemory) -> bool {
        let is_runnable = self.is_enabled && self.kick.is_some() && self.taken.is_none();
        let Some(avail) = memory.emulator(self.avail, 4).filter(|_| is_runnable) else {
            return false;
        };
        let index = avail.wrapping_add(2).cast::<u16>();
        if !index.is_aligned() {
            return false;
        }
        // SAFETY: `emulator` proved that these four bytes are mapped, and the address is aligned.
        let published = unsafe { AtomicU16::from_ptr(index) }.load(Ordering::Acquire);
        (1..=self.size).contains(&published.wrapping_sub(self.next))
    }

    fn drain(&self) {
        if let Some(kick) = &self.kick {
            // Nothing to read is what is wanted.
            let _ = rustix::io::read(kick, &mut [0; 8]);
        }
    }

    fn walk(
        &self,
        memory: &GuestMemory,
        head: u16,
        is_written: bool,
        pieces: &mut Vec<Piece>,
    ) -> Option<()> {
        let bytes = DESCRIPTOR_BYTES * usize::from(self.size);
        let mut table = memory.emulator(self.descriptors, bytes)?;
        let mut entries = self.size;
        let mut at = head;
        let mut is_indirect = false;
        // No chain is longer than its table, so a ring of descriptors ends.
        let mut left = u32::from(SIZE_MAX);
        while left > 0 {
            left -= 1;
            let descriptor = read_descriptor(table, (at < entries).then_some(at)?);
            if descriptor.flags & INDIRECT != 0 {
                let bytes = descriptor.bytes as usize;
                if is_indirect || !bytes.is_multiple_of(DESCRIPTOR_BYTES) {
                    return None;
                }
                is_indirect = true;
                entries = u16::try_from(bytes / DESCRIPTOR_BYTES).ok()?;
                table = memory.guest(descriptor.address, bytes)?;
                at = 0;
                continue;
            }
            if (descriptor.flags & WRITE != 0) == is_written {
                let bytes = descriptor.bytes as usize;
                let at = memory.guest(descriptor.address, bytes)?;
                pieces.push(Piece { at, bytes });
            }
            if descriptor.flags & NEXT == 0 {
                return Some(());
            }
            at = descriptor.next;
        }
        None
    }
}

/// Lets reads and writes of a signal return at once. The emulator may send any file, for example a full pipe, and a write to a
/// full pipe would stop the card.
fn never_wait(signal: &OwnedFd) {
    if let Ok(flags) = fcntl_getfl(signal) {
        // The kernel permits this for every file whose reads or writes can wait.
        let _ = fcntl_setfl(signal, flags | OFlags::NONBLOCK);
    }
}

/// Entry `at` of a table whose length the caller has checked.
fn read_descriptor(table: *mut u8, at: u16) -> Descriptor {
    let mut bytes = [0_u8; DESCRIPTOR_BYTES];
    // SAFETY: the caller checked that the table has more than `at` entries and is mapped. The copy cannot be torn in a way
    // that matters: each field is checked after it.
    unsafe {
        let from = table.add(DESCRIPTOR_BYTES * usize::from(at));
        std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), DESCRIPTOR_BYTES);
    }
    let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let low = |at: usize| u64::from(word(at)) | u64::from(word(at + 2)) << 16;
    Descriptor {
        address: low(0) | low(4) << 32,
        bytes: low(8) as u32,
        flags: word(12),
        next: word(14),
    }
}

/// The word `at` bytes behind `from`, which the caller has checked to be mapped.
fn read_word(from: *mut u8, at: usize) -> u16 {
    // SAFETY: the caller checked that `at + 2` bytes are mapped from `from` on.
    u16::from_le(unsafe { from.add(at).cast::<u16>().read_unaligned() })
}

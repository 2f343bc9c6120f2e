//! Memory with a given part on far nodes.
//!
//! Method: an anonymous mapping is bound to nodes chunk by chunk, evenly interleaved, and every page is written so that
//! it exists. Then the binding is lifted, so that the kernel's own balancing sees ordinary pages. Afterwards the kernel
//! reports the nodes of the pages ([`Region::far_percent`]).
//!
//! A pinned region ([`Region::pinned`]) keeps its binding, which balancing respects, and its pages are locked: reclaim,
//! which demotes pages whatever their binding, passes over locked ones.
//!
//! Units: bytes, percent. Limits: the kernel may move pages later unless they are pinned; ask again. Source: mbind(2),
//! mlock(2), get_mempolicy(2), Linux 6.12 (`shrink_folio_list`, `vma_policy_mof`).

use super::Nodes;
use crate::error::MemError;
use isolane_common_quantities::units::Bytes;
use std::io;
use std::ptr::NonNull;

/// A private anonymous mapping of whole pages, unmapped when dropped.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u64>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the value alone and is not tied to the thread that made it.
unsafe impl Send for Region {}

impl Region {
    /// Memory of `size` bytes (rounded up to whole pages), `far_percent` of it on far nodes, all of it present. Fails
    /// with [`MemError::NoTiers`] for far memory on a machine without it.
    pub fn new(size: Bytes, nodes: &Nodes, far_percent: u32) -> Result<Self, MemError> {
        if far_percent > 0 && nodes.far.is_empty() {
            return Err(MemError::NoTiers {
                tiers: 1,
                remedy: crate::tiers::NO_TIERS_REMEDY.to_owned(),
            });
        }
        let pages = size.get().div_ceil(PAGE).max(1);
        let bytes = usize::try_from(pages * PAGE).map_err(|_| too_large(size))?;
        let mut region = Self::map(bytes)?;
        if !nodes.near.is_empty() {
            region.place(nodes, far_percent)?;
        }
        region.touch();
        if !nodes.near.is_empty() {
            region.bind(0, bytes, MPOL_DEFAULT, &[])?;
        }
        Ok(region)
    }

    /// Memory of `size` bytes (rounded up to whole pages) on the nodes `on`, all of it present. True: it stays there;
    /// false: this process may not lock so much memory, and the kernel may demote it.
    pub fn pinned(size: Bytes, on: &[u32]) -> Result<(Self, bool), MemError> {
        let pages = size.get().div_ceil(PAGE).max(1);
        let bytes = usize::try_from(pages * PAGE).map_err(|_| too_large(size))?;
        let mut region = Self::map(bytes)?;
        region.bind(0, bytes, MPOL_BIND, on)?;
        region.touch();
        // SAFETY: the range is our mapping; locking changes no contents.
        let locked = unsafe { libc::mlock(region.start.as_ptr().cast(), bytes) } == 0;
        Ok((region, locked))
    }

    fn map(bytes: usize) -> Result<Self, MemError> {
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(failed(format!("reserve {bytes} bytes of memory")));
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| failed("map memory".to_owned()))?;
        Ok(Self { start, bytes })
    }

    /// Binds chunk after chunk, so that the far ones are spread evenly.
    fn place(&mut self, nodes: &Nodes, far_percent: u32) -> Result<(), MemError> {
        let chunk = chunk_bytes(self.bytes);
        let far_percent = far_percent.min(100) as usize;
        for (index, offset) in (0..self.bytes).step_by(chunk).enumerate() {
            let length = chunk.min(self.bytes - offset);
            let far = (index + 1) * far_percent / 100 > index * far_percent / 100;
            let to = if far { &nodes.far } else { &nodes.near };
            self.bind(offset, length, MPOL_BIND, to)?;
        }
        Ok(())
    }

    fn bind(
        &mut self,
        offset: usize,
        length: usize,
        mode: i64,
        nodes: &[u32],
    ) -> Result<(), MemError> {
        let mut words = [0u64; MASK_WORDS];
        for &node in nodes {
            if let Some(word) = words.get_mut(node as usize / 64) {
                *word |= 1 << (node % 64);
            }
        }
        // Without nodes the kernel wants no mask at all: it refuses one of no bits.
        let (mask, bits) = match nodes.is_empty() {
            true => (std::ptr::null(), 0),
            false => (words.as_ptr(), words.len() * 64),
        };
        // SAFETY: `offset..offset + length` is inside our mapping, on page boundaries; the mask outlives the call, or
        // is none. The call changes the nodes of future pages, never their contents.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.start.as_ptr().byte_add(offset),
                length,
                mode,
                mask,
                bits,
                0,
            )
        };
        match result {
            0 => Ok(()),
            _ => Err(failed(format!("bind memory to nodes {nodes:?}"))),
        }
    }

    fn touch(&mut self) {
        for page in self.words_mut().chunks_mut(PAGE as usize / 8) {
            page[0] = 0;
            std::hint::black_box(&mut page[0]);
        }
    }

    /// The memory.
    pub fn words(&self) -> &[u64] {
        // SAFETY: the mapping is readable, aligned to pages, `bytes` long and lives as long as `self`; anonymous memory is
        // initialised with zeros.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes / 8) }
    }

    fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `words`; the exclusive borrow of `self` makes it the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes / 8) }
    }

    /// Its size.
    pub fn size(&self) -> Bytes {
        Bytes::new(self.bytes as u64)
    }

    /// Part of its pages on far nodes now, in percent, from one page of each chunk; none where the kernel does not
    /// report it.
    pub fn far_percent(&self, nodes: &Nodes) -> Option<f64> {
        let chunk = chunk_bytes(self.bytes);
        let (mut far, mut all) = (0u32, 0u32);
        for offset in (0..self.bytes).step_by(chunk) {
            let node = self.node_at(offset)?;
            all += 1;
            far += u32::from(nodes.far.contains(&node));
        }
        (all > 0).then(|| f64::from(far) * 100.0 / f64::from(all))
    }

    fn node_at(&self, offset: usize) -> Option<u32> {
        let mut node: libc::c_int = -1;
        // SAFETY: `node` outlives the call and is what the kernel writes; the address is inside our mapping, and no
        // mask is passed.
        let result = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut node,
                std::ptr::null_mut::<u64>(),
                0,
                self.start.as_ptr().byte_add(offset),
                MPOL_F_NODE | MPOL_F_ADDR,
            )
        };
        if result != 0 {
            return None;
        }
        u32::try_from(node).ok()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this length, and no reference outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Pieces on one node: at least 256 of them in a region, so that a percent is a percent.
fn chunk_bytes(bytes: usize) -> usize {
    let page = PAGE as usize;
    (bytes / 256 / page * page).clamp(page, 2 << 20)
}

fn failed(action: String) -> MemError {
    MemError::Kernel {
        action,
        source: io::Error::last_os_error(),
    }
}

fn too_large(size: Bytes) -> MemError {
    MemError::Kernel {
        action: format!("reserve {size} of memory"),
        source: io::ErrorKind::OutOfMemory.into(),
    }
}

const PAGE: u64 = 4_096;
/// Room for 1024 nodes, as many as any kernel is built for.
const MASK_WORDS: usize = 16;
const MPOL_DEFAULT: i64 = 0;
const MPOL_BIND: i64 = 2;
const MPOL_F_NODE: libc::c_ulong = 1;
const MPOL_F_ADDR: libc::c_ulong = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_common_linux::skip::skip;

    #[test]
    fn memory_is_there_and_zero() {
        let region = Region::new(Bytes::new(1_000_000), &Nodes::default(), 0).unwrap();
        assert_eq!(region.size().get() % PAGE, 0);
        assert!(region.words().iter().all(|&word| word == 0));
        assert_eq!(region.words().len() as u64 * 8, region.size().get());
    }

    #[test]
    fn far_memory_needs_a_far_tier() {
        let error = Region::new(Bytes::new(4_096), &Nodes::default(), 10).unwrap_err();
        assert!(matches!(error, MemError::NoTiers { .. }), "{error}");
    }

    /// Every Linux machine has node 0; a kernel without the call skips.
    #[test]
    fn pages_are_where_they_were_bound() {
        let nodes = Nodes {
            near: vec![0],
            far: vec![63],
        };
        match Region::new(Bytes::from_mib(1), &nodes, 0) {
            Ok(region) => assert_eq!(region.far_percent(&nodes), Some(0.0)),
            Err(error) => skip(error),
        }
    }

    /// Goal: neither balancing nor reclaim moves it. Method: what the kernel says of the mapping.
    #[test]
    fn a_pinned_region_is_bound_and_locked() {
        let (region, locked) = match Region::pinned(Bytes::from_mib(1), &[0]) {
            Ok(made) => made,
            Err(error) => return skip(error),
        };
        // Neighbours of the same kind are one mapping with ours: the last mapping that begins at or below it has it.
        let about = |file: &str, line_of: &str| {
            let text = std::fs::read_to_string(file).unwrap();
            let begin = |line: &str| {
                let word = line.split([' ', '-']).next()?;
                usize::from_str_radix(word, 16).ok()
            };
            let ours = region.start.as_ptr().addr();
            let from = text
                .lines()
                .skip_while(|line| begin(line).is_none_or(|at| at > ours));
            let (mut found, mut inside) = (String::new(), false);
            for line in from {
                inside = begin(line).map_or(inside, |at| at <= ours);
                if inside && line.contains(line_of) {
                    line.clone_into(&mut found);
                }
            }
            found
        };
        let flags = about("/proc/self/smaps", "VmFlags:");
        assert_eq!(flags.contains(" lo"), locked, "{flags}");
        if std::path::Path::new("/proc/self/numa_maps").exists() {
            let policy = about("/proc/self/numa_maps", " ");
            assert!(policy.contains(" bind:0 "), "{policy}");
        }
    }

    #[test]
    fn chunks_are_pages_and_many() {
        assert_eq!(chunk_bytes(4_096), 4_096);
        assert_eq!(chunk_bytes(128 << 20), 512 << 10);
        assert_eq!(chunk_bytes(4 << 30), 2 << 20);
    }
}

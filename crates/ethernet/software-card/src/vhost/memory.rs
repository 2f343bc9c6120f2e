//! Memory of a virtual machine, mapped into this process.
//!
//! Problem: addresses come from a driver that may be wrong. Method: an address is translated with the length that is to be
//! read or written, and both must lie within one region, and a region within its file. Units: bytes. Limits: the files of the
//! regions must not shrink while they are mapped; QEMU's do not. Source: QEMU's `docs/interop/vhost-user.rst`.

use crate::error::SoftNicError;
use rustix::fs::{FileType, fstat};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::os::fd::OwnedFd;

/// A region, as the machine's emulator describes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegionEntry {
    /// Its address in the machine.
    pub guest: u64,
    pub bytes: u64,
    /// Its address in the emulator, which describes rings by such addresses.
    pub emulator: u64,
    /// Where it begins in its file.
    pub offset: u64,
}

/// All regions.
#[derive(Debug, Default)]
pub(super) struct GuestMemory {
    regions: Vec<Region>,
}

#[derive(Debug)]
struct Region {
    entry: RegionEntry,
    /// Of `entry.offset + entry.bytes` bytes.
    mapped: *mut c_void,
}

// SAFETY: a mapping belongs to the process and not to a thread; access to the bytes goes through raw pointers only.
unsafe impl Send for Region {}

impl GuestMemory {
    /// Maps each region of its file. Fails if the kernel refuses, or a length is none.
    pub(super) fn map(entries: &[RegionEntry], files: &[OwnedFd]) -> Result<Self, SoftNicError> {
        let regions = entries
            .iter()
            .zip(files)
            .map(|(entry, file)| Region::map(*entry, file))
            .collect::<Result<_, _>>()?;
        Ok(Self { regions })
    }

    /// The place of `bytes` bytes at an address of the machine, if one region has them all.
    pub(super) fn guest(&self, address: u64, bytes: usize) -> Option<*mut u8> {
        self.find(address, bytes, |entry| entry.guest)
    }

    /// The same for an address of the emulator.
    pub(super) fn emulator(&self, address: u64, bytes: usize) -> Option<*mut u8> {
        self.find(address, bytes, |entry| entry.emulator)
    }

    fn find(
        &self,
        address: u64,
        bytes: usize,
        start: impl Fn(&RegionEntry) -> u64,
    ) -> Option<*mut u8> {
        self.regions.iter().find_map(|region| {
            let entry = &region.entry;
            let within = address.checked_sub(start(entry))?;
            let end = within.checked_add(bytes as u64)?;
            if end > entry.bytes {
                return None;
            }
            // Inside the mapping, whose length `map` has checked.
            let at = usize::try_from(entry.offset + within).ok()?;
            Some(region.mapped.cast::<u8>().wrapping_add(at))
        })
    }
}

impl Region {
    fn map(entry: RegionEntry, file: &OwnedFd) -> Result<Self, SoftNicError> {
        let refused = |problem: String| {
            SoftNicError::Machine(format!("mapping memory of the virtual machine: {problem}"))
        };
        let bytes = entry
            .offset
            .checked_add(entry.bytes)
            .and_then(|bytes| usize::try_from(bytes).ok())
            .filter(|bytes| *bytes > 0)
            .ok_or_else(|| refused("a region has no length".to_owned()))?;
        let facts = fstat(file).map_err(|error| refused(error.to_string()))?;
        let is_plain = FileType::from_raw_mode(facts.st_mode).is_file();
        // Bytes beyond the end of a file can be mapped, and end the program that reads them. A device has no size.
        if is_plain && u64::try_from(facts.st_size).is_ok_and(|size| size < bytes as u64) {
            return Err(refused(format!(
                "a region ends at byte {bytes} of a file of {} bytes",
                facts.st_size
            )));
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses a free range, so nothing that exists is replaced.
        let mapped = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                access,
                MapFlags::SHARED,
                file,
                0,
            )
        }
        .map_err(|error| refused(error.to_string()))?;
        Ok(Self { entry, mapped })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let bytes = (self.entry.offset + self.entry.bytes) as usize;
        // SAFETY: `map` made this mapping of this length, and pointers into it are used only while `GuestMemory` is
        // borrowed.
        let _ = unsafe { munmap(self.mapped, bytes) };
    }
}

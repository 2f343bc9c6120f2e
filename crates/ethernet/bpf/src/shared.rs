//! Array maps as memory: the kernel's programs and this process read and write the same bytes.
//!
//! Method: the map's pages are mapped, as long as its values are; types from [`crate::intf`] consist of atomics, so a
//! shared reference may see any change.

use std::io;
use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

/// The values of an array map.
pub(crate) struct Shared<T> {
    start: NonNull<T>,
    count: usize,
    bytes: usize,
}

// SAFETY: all of `T` is atomic (see `map`), so any thread may hold and use it.
unsafe impl<T: Sync> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// Maps an array of `count` values of type `T`.
    ///
    /// # Safety
    /// The map must have BPF_F_MMAPABLE and `count` values whose layout is `T`'s, and `T` must consist of atomics.
    pub(crate) unsafe fn map(map: BorrowedFd<'_>, count: usize) -> io::Result<Self> {
        // SAFETY: a question without arguments by reference.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).expect("pages have a size");
        let bytes = (count * size_of::<T>()).next_multiple_of(page);
        // SAFETY: a new mapping, which overlaps nothing; its length is the map's, rounded up to pages as the kernel
        // rounds it.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
                rustix::mm::MapFlags::SHARED,
                map,
                0,
            )
        }?;
        Ok(Self {
            start: NonNull::new(start.cast()).expect("a mapping is never at 0"),
            count,
            bytes,
        })
    }
}

impl<T> Deref for Shared<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `map` made it this long, page-aligned, and zeroed memory is a valid value of atomics.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: our own mapping; references into it cannot outlive `self`.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

impl<T> std::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({} values)", self.count)
    }
}

//! Protection domains, and memory that a device may read and write.

use super::pages::Pages;
use super::{Context, VerbsError};
use crate::*;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

/// A protection domain.
#[derive(Debug)]
pub struct ProtectionDomain {
    pub(crate) context: Arc<Context>,
    pub(crate) raw: *mut ibv_pd,
}

// SAFETY: libibverbs' objects may be used by several threads.
unsafe impl Send for ProtectionDomain {}
// SAFETY: as above.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    /// A new domain. Fails if the device has no more.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: an open context.
        let raw = unsafe { (context.library.alloc_pd)(context.raw) };
        if raw.is_null() {
            return Err(VerbsError::last("ibv_alloc_pd", &context.device));
        }
        Ok(Arc::new(Self {
            context: Arc::clone(context),
            raw,
        }))
    }

    /// Its device.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: everything made in it held it and is gone.
        unsafe { (self.context.library.dealloc_pd)(self.raw) };
    }
}

/// Registered memory. The device may write it at any time, hence no references to it exist: bytes are copied in and
/// out, single words are atomic.
#[derive(Debug)]
pub struct MemoryRegion {
    domain: Arc<ProtectionDomain>,
    raw: *mut ibv_mr,
    pages: Pages,
}

// SAFETY: the region is accessed by atomic operations and copies that tolerate a device writing meanwhile.
unsafe impl Send for MemoryRegion {}
// SAFETY: as above.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// New memory of `length` bytes, registered with `access` (`IBV_ACCESS_*`). Fails without memory, beyond the limit
    /// of locked memory, and beyond the device's limit.
    pub fn new(
        domain: &Arc<ProtectionDomain>,
        length: u64,
        access: ibv_access_flags,
    ) -> Result<Arc<Self>, VerbsError> {
        Self::on_node(domain, length, access, None)
    }

    /// As [`MemoryRegion::new`], with every page on NUMA node `node`, if one is given. Fails with
    /// [`VerbsError::Binding`] or [`VerbsError::Elsewhere`] if a page is not there.
    pub fn on_node(
        domain: &Arc<ProtectionDomain>,
        length: u64,
        access: ibv_access_flags,
        node: Option<u32>,
    ) -> Result<Arc<Self>, VerbsError> {
        let device = &domain.context.device;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let pages = Pages::new(length).map_err(|error| VerbsError::Call {
            verb: "mmap",
            device: device.clone(),
            error,
            remedy: "; use smaller regions",
        })?;
        if let Some(node) = node {
            pages
                .bind(node)
                .map_err(|error| VerbsError::unbound(device, node, error))?;
        }
        let address = pages.start.as_ptr().cast::<c_void>();
        let access = access.cast_signed();
        // SAFETY: mapped memory of this length that stays mapped until after deregistration (Drop below).
        let raw =
            unsafe { (domain.context.library.reg_mr)(domain.raw, address, pages.length, access) };
        if raw.is_null() {
            return Err(VerbsError::last("ibv_reg_mr", device));
        }
        Ok(Arc::new(Self {
            domain: Arc::clone(domain),
            raw,
            pages,
        }))
    }

    /// Its virtual address, as work requests name it.
    pub fn address(&self) -> u64 {
        self.pages.start.as_ptr() as u64
    }

    /// Its length, bytes.
    pub fn length(&self) -> u64 {
        self.pages.length as u64
    }

    /// The key for own work requests.
    pub fn local_key(&self) -> u32 {
        // SAFETY: a live region.
        unsafe { (*self.raw).lkey }
    }

    /// The key for the other end's work requests.
    pub fn remote_key(&self) -> u32 {
        // SAFETY: a live region.
        unsafe { (*self.raw).rkey }
    }

    /// Copies `bytes` to `offset`. Panics if they do not fit.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        let place = self.place(offset, bytes.len());
        // SAFETY: `place` checked the range. A device that writes the same bytes meanwhile makes their content
        // undefined for the protocol, as always with RDMA, but no Rust reference to them exists.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
    }

    /// Copies bytes at `offset` out. Panics if the range is not inside.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        let place = self.place(offset, bytes.len());
        fence(Ordering::Acquire);
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(place, bytes.as_mut_ptr(), bytes.len()) };
    }

    /// The byte at `offset`, as the device last wrote it. Panics if it is not inside.
    pub fn load(&self, offset: u64) -> u8 {
        let place = self.place(offset, 1);
        // SAFETY: a mapped byte, accessed atomically on this side.
        unsafe { AtomicU8::from_ptr(place) }.load(Ordering::Acquire)
    }

    /// Stores a byte. Panics if it is not inside.
    pub fn store(&self, offset: u64, value: u8) {
        let place = self.place(offset, 1);
        // SAFETY: as in `load`.
        unsafe { AtomicU8::from_ptr(place) }.store(value, Ordering::Release);
    }

    /// The aligned word of 8 bytes at `offset`, in this machine's order. Panics if it is not inside or not aligned.
    pub fn load_word(&self, offset: u64) -> u64 {
        assert!(offset.is_multiple_of(8), "an aligned word");
        let place = self.place(offset, 8).cast();
        // SAFETY: a mapped word, aligned since pages are.
        unsafe { AtomicU64::from_ptr(place) }.load(Ordering::Acquire)
    }

    /// The address of `offset`, if `length` bytes from it are inside.
    fn place(&self, offset: u64, length: usize) -> *mut u8 {
        let end = offset.checked_add(length as u64);
        assert!(
            end.is_some_and(|end| end <= self.length()),
            "{length} bytes at {offset} in a region of {}",
            self.length()
        );
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.pages.start.as_ptr().add(offset as usize) }
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: registered once, deregistered once; the pages are unmapped after this body.
        unsafe { (self.domain.context.library.dereg_mr)(self.raw) };
    }
}

//! Protection domains, and memory that a device may read and write.

use super::gpu::GpuMemory;
use super::pages::Pages;
use super::{Context, VerbsError};
use crate::*;
use std::ffi::{c_int, c_void};
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

    /// Registers the first `length` bytes of a dma-buf, under the address that the device is to use for them. Fails if the library, the
    /// kernel or the device cannot.
    pub(super) fn register_dma_buf(
        &self,
        (descriptor, address): (c_int, u64),
        length: usize,
        access: ibv_access_flags,
    ) -> Result<*mut ibv_mr, VerbsError> {
        const VERB: &str = "ibv_reg_dmabuf_mr";
        let device = &self.context.device;
        let Some(register) = self.context.library.reg_dmabuf_mr else {
            return Err(VerbsError::code(VERB, device, libc::EOPNOTSUPP));
        };
        let access = access.cast_signed();
        // SAFETY: an open domain; the kernel checks the descriptor and the range, and keeps the dma-buf until deregistration.
        let raw = unsafe { register(self.raw, 0, length, address, descriptor, access) };
        match raw.is_null() {
            true => Err(VerbsError::last(VERB, device)),
            false => Ok(raw),
        }
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
    place: Place,
}

/// Where the bytes of a region are.
#[derive(Debug)]
enum Place {
    Host(Pages),
    Gpu(GpuMemory),
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
            place: Place::Host(pages),
        }))
    }

    /// As [`MemoryRegion::new`], in the memory of the first GPU. Fails without a GPU, or if the GPU, libibverbs, the kernel or the device
    /// has no dma-buf.
    pub fn on_gpu(
        domain: &Arc<ProtectionDomain>,
        length: u64,
        access: ibv_access_flags,
    ) -> Result<Arc<Self>, VerbsError> {
        let device = &domain.context.device;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let memory = GpuMemory::new(length).map_err(|error| VerbsError::Gpu {
            device: device.clone(),
            error,
        })?;
        let (address, length) = (memory.address(), memory.length());
        let raw = domain.register_dma_buf((memory.descriptor(), address), length, access)?;
        Ok(Arc::new(Self {
            domain: Arc::clone(domain),
            raw,
            place: Place::Gpu(memory),
        }))
    }

    /// Its virtual address, as work requests name it.
    pub fn address(&self) -> u64 {
        match &self.place {
            Place::Host(pages) => pages.start.as_ptr() as u64,
            Place::Gpu(memory) => memory.address(),
        }
    }

    /// Its length, bytes.
    pub fn length(&self) -> u64 {
        match &self.place {
            Place::Host(pages) => pages.length as u64,
            Place::Gpu(memory) => memory.length() as u64,
        }
    }

    /// Whether the processor can read it, as inline data needs.
    pub(super) fn is_on_host(&self) -> bool {
        matches!(self.place, Place::Host(_))
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

    /// Copies `bytes` to `offset`. Panics if they do not fit, or a GPU fails.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        self.check(offset, bytes.len());
        match &self.place {
            // SAFETY: the range was checked. A device that writes the same bytes meanwhile makes their content
            // undefined for the protocol, as always with RDMA, but no Rust reference to them exists.
            Place::Host(pages) => unsafe {
                let to = pages.start.as_ptr().add(offset as usize);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
            },
            Place::Gpu(memory) => memory.write(offset, bytes).unwrap_or_else(failed),
        }
    }

    /// Copies bytes at `offset` out. Panics if the range is not inside, or a GPU fails.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        self.check(offset, bytes.len());
        fence(Ordering::Acquire);
        match &self.place {
            // SAFETY: as in `write`.
            Place::Host(pages) => unsafe {
                let from = pages.start.as_ptr().add(offset as usize);
                std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
            },
            Place::Gpu(memory) => memory.read(offset, bytes).unwrap_or_else(failed),
        }
    }

    /// The byte at `offset`, as the device last wrote it. Panics if it is not inside, or a GPU fails.
    pub fn load(&self, offset: u64) -> u8 {
        self.check(offset, 1);
        match &self.place {
            // SAFETY: a mapped byte, accessed atomically on this side.
            Place::Host(pages) => unsafe {
                AtomicU8::from_ptr(pages.start.as_ptr().add(offset as usize))
                    .load(Ordering::Acquire)
            },
            Place::Gpu(memory) => {
                let mut byte = [0];
                memory.read(offset, &mut byte).unwrap_or_else(failed);
                byte[0]
            }
        }
    }

    /// Stores a byte. Panics if it is not inside, or a GPU fails.
    pub fn store(&self, offset: u64, value: u8) {
        self.check(offset, 1);
        match &self.place {
            // SAFETY: as in `load`.
            Place::Host(pages) => unsafe {
                AtomicU8::from_ptr(pages.start.as_ptr().add(offset as usize))
                    .store(value, Ordering::Release);
            },
            Place::Gpu(memory) => memory.write(offset, &[value]).unwrap_or_else(failed),
        }
    }

    /// The aligned word of 8 bytes at `offset`, in this machine's order. Panics if it is not inside or not aligned, or a GPU fails.
    pub fn load_word(&self, offset: u64) -> u64 {
        assert!(offset.is_multiple_of(8), "an aligned word");
        self.check(offset, 8);
        match &self.place {
            // SAFETY: a mapped word, aligned since pages are.
            Place::Host(pages) => unsafe {
                AtomicU64::from_ptr(pages.start.as_ptr().add(offset as usize).cast())
                    .load(Ordering::Acquire)
            },
            Place::Gpu(memory) => {
                let mut word = [0; 8];
                memory.read(offset, &mut word).unwrap_or_else(failed);
                u64::from_ne_bytes(word)
            }
        }
    }

    /// Panics unless `length` bytes from `offset` are inside.
    fn check(&self, offset: u64, length: usize) {
        let end = offset.checked_add(length as u64);
        assert!(
            end.is_some_and(|end| end <= self.length()),
            "{length} bytes at {offset} in a region of {}",
            self.length()
        );
    }
}

/// A copy of the GPU's driver failed: the GPU was reset or has gone, and no byte of it can be trusted.
fn failed(error: super::gpu::GpuError) {
    panic!("{error}");
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: registered once, deregistered once; the memory is freed after this body.
        unsafe { (self.domain.context.library.dereg_mr)(self.raw) };
    }
}

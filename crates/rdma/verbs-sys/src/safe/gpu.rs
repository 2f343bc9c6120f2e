//! Memory of an NVIDIA GPU, and its dma-buf, with which an RDMA device registers it.
//!
//! Problem: a device can read and write memory of a GPU without a copy through the host, but `ibv_reg_mr` takes host memory only.
//! Method: the CUDA driver's library is opened at run time. It allocates the memory and exports it as a dma-buf, whose file
//! descriptor `ibv_reg_dmabuf_mr` takes. The processor cannot access this memory; bytes are copied by the driver, about 10 us each
//! time. The first GPU that the driver lists is used; `CUDA_VISIBLE_DEVICES` changes the list.
//! Units: bytes. Errors: [`GpuError`]. Limits: never run on a GPU so far; the tests use a stand-in for the driver's library.
//! Source: CUDA Driver API, sections 6.13 (memory) and 6.5 (primary contexts); Linux, Documentation/driver-api/dma-buf.rst.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const SONAME: &CStr = c"libcuda.so.1";
/// `CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED`.
const DMA_BUF_SUPPORTED: c_int = 124;
/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`.
const DMA_BUF_FD: c_int = 1;
/// The driver exports whole pages of the host. This is the largest page of the supported machines.
const PAGE: u64 = 65_536;

/// Why memory of a GPU cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum GpuError {
    #[error(
        "libcuda.so.1 cannot be opened ({reason}); install the driver of an NVIDIA GPU, or use memory \"local\""
    )]
    NoLibrary { reason: String },
    #[error(
        "libcuda.so.1 has no function {symbol}; install driver 515 or newer, or use memory \"local\""
    )]
    NoFunction { symbol: &'static str },
    #[error(
        "the driver lists no GPU; look at `nvidia-smi` and CUDA_VISIBLE_DEVICES, or use memory \"local\""
    )]
    NoGpu,
    #[error(
        "the first GPU cannot export memory as dma-buf; use the open kernel modules of driver 515 or newer and Linux 5.12 or \
         newer, or use memory \"local\""
    )]
    NoDmaBuf,
    #[error("{call}: the driver returns {name} ({code}){remedy}")]
    Call {
        call: &'static str,
        name: String,
        code: c_int,
        /// What usually helps; empty or beginning with a semicolon.
        remedy: &'static str,
    },
}

macro_rules! driver {
    ($( $field:ident : $symbol:literal ( $($ty:ty),* ) ; )*) => {
        /// The functions of the CUDA driver that are used here. The library is never closed.
        #[derive(Clone, Copy, Debug)]
        struct Driver {
            $( $field: unsafe extern "C" fn($($ty),*) -> c_int, )*
        }

        impl Driver {
            /// Opens the library and finds its functions.
            fn open() -> Result<Self, GpuError> {
                // SAFETY: a terminated name.
                let handle = unsafe { libc::dlopen(SONAME.as_ptr(), libc::RTLD_NOW) };
                if handle.is_null() {
                    return Err(GpuError::NoLibrary { reason: crate::library::loader_message() });
                }
                Ok(Self { $( $field: {
                    let symbol: &CStr = $symbol;
                    // SAFETY: an open handle and a terminated name.
                    let address = unsafe { libc::dlsym(handle, symbol.as_ptr()) };
                    if address.is_null() {
                        return Err(GpuError::NoFunction { symbol: symbol.to_str().unwrap_or("?") });
                    }
                    // SAFETY: the address is that of the function of this name, whose signature cuda.h gives.
                    unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($ty),*) -> c_int>(address)
                    }
                }, )* })
            }
        }
    };
}

driver! {
    init: c"cuInit" (c_uint);
    error_name: c"cuGetErrorName" (c_int, *mut *const c_char);
    device_count: c"cuDeviceGetCount" (*mut c_int);
    device: c"cuDeviceGet" (*mut c_int, c_int);
    attribute: c"cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
    retain: c"cuDevicePrimaryCtxRetain" (*mut *mut c_void, c_int);
    release: c"cuDevicePrimaryCtxRelease_v2" (c_int);
    set_current: c"cuCtxSetCurrent" (*mut c_void);
    allocate: c"cuMemAlloc_v2" (*mut u64, usize);
    free: c"cuMemFree_v2" (u64);
    set: c"cuMemsetD8_v2" (u64, u8, usize);
    copy_in: c"cuMemcpyHtoD_v2" (u64, *const c_void, usize);
    copy_out: c"cuMemcpyDtoH_v2" (*mut c_void, u64, usize);
    export: c"cuMemGetHandleForAddressRange" (*mut c_void, u64, usize, c_int, u64);
}

impl Driver {
    /// Fails with the name of `code`, the answer of `call`, unless that is zero.
    fn check(&self, call: &'static str, code: c_int) -> Result<(), GpuError> {
        if code == 0 {
            return Ok(());
        }
        let mut text = std::ptr::null();
        // SAFETY: the driver writes null or a terminated text that it never frees.
        let name = unsafe {
            (self.error_name)(code, &mut text);
            match text.is_null() {
                true => "an unknown error".to_owned(),
                false => CStr::from_ptr(text).to_string_lossy().into_owned(),
            }
        };
        let remedy = match call {
            "cuInit" => "; look at `nvidia-smi` and at the permissions of /dev/nvidia*",
            "cuMemAlloc" => "; use fewer or smaller regions",
            "cuMemGetHandleForAddressRange" => {
                "; use the open kernel modules of driver 515 or newer"
            }
            _ => "",
        };
        Err(GpuError::Call {
            call,
            name,
            code,
            remedy,
        })
    }
}

/// The first GPU, with its primary context held.
#[derive(Debug)]
struct Gpu {
    driver: Driver,
    device: c_int,
    context: *mut c_void,
}

impl Gpu {
    fn first() -> Result<Self, GpuError> {
        let driver = Driver::open()?;
        let (mut count, mut device, mut exports) = (0, 0, 0);
        let mut context = std::ptr::null_mut();
        // SAFETY: every pointer leads to a variable of the type that cuda.h gives.
        unsafe {
            driver.check("cuInit", (driver.init)(0))?;
            driver.check("cuDeviceGetCount", (driver.device_count)(&mut count))?;
            if count == 0 {
                return Err(GpuError::NoGpu);
            }
            driver.check("cuDeviceGet", (driver.device)(&mut device, 0))?;
            let code = (driver.attribute)(&mut exports, DMA_BUF_SUPPORTED, device);
            driver.check("cuDeviceGetAttribute", code)?;
            if exports == 0 {
                return Err(GpuError::NoDmaBuf);
            }
            let code = (driver.retain)(&mut context, device);
            driver.check("cuDevicePrimaryCtxRetain", code)?;
        }
        Ok(Self {
            driver,
            device,
            context,
        })
    }

    /// Makes the context that of this thread: every call that follows needs it.
    fn enter(&self) -> Result<(), GpuError> {
        // SAFETY: the context is held until this is dropped.
        let code = unsafe { (self.driver.set_current)(self.context) };
        self.driver.check("cuCtxSetCurrent", code)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // SAFETY: retained once, released once; all memory of it is free.
        unsafe { (self.driver.release)(self.device) };
    }
}

/// Memory of a GPU, zero at first, exported as a dma-buf. Fields are dropped in their order: the dma-buf is closed and the memory is
/// freed before the context is released.
#[derive(Debug)]
pub(super) struct GpuMemory {
    descriptor: OwnedFd,
    block: Block,
    length: usize,
}

/// An allocation; `start` is its first whole page.
#[derive(Debug)]
struct Block {
    gpu: Gpu,
    allocated: u64,
    start: u64,
}

impl Drop for Block {
    fn drop(&mut self) {
        // A failure leaves nothing to do: the driver frees the memory when the process ends.
        let _ = self.gpu.enter();
        // SAFETY: allocated once, freed once; no region and no dma-buf of this process has it any more.
        unsafe { (self.gpu.driver.free)(self.allocated) };
    }
}

impl GpuMemory {
    pub(super) fn new(length: usize) -> Result<Self, GpuError> {
        let length = length.max(1);
        let pages = (length as u64).div_ceil(PAGE).saturating_mul(PAGE);
        let gpu = Gpu::first()?;
        gpu.enter()?;
        let driver = gpu.driver;
        let mut allocated = 0;
        // One page more, as the driver promises no alignment to pages.
        let room = usize::try_from(pages.saturating_add(PAGE)).unwrap_or(usize::MAX);
        // SAFETY: the driver writes the address.
        let code = unsafe { (driver.allocate)(&mut allocated, room) };
        driver.check("cuMemAlloc", code)?;
        let block = Block {
            gpu,
            allocated,
            start: allocated
                .checked_next_multiple_of(PAGE)
                .unwrap_or(allocated),
        };
        let mut descriptor: c_int = -1;
        // SAFETY: the pages from `start` are inside the allocation; the driver writes a file descriptor.
        unsafe {
            driver.check("cuMemsetD8", (driver.set)(allocated, 0, room))?;
            let handle = (&raw mut descriptor).cast();
            let code = (driver.export)(handle, block.start, pages as usize, DMA_BUF_FD, 0);
            driver.check("cuMemGetHandleForAddressRange", code)?;
        }
        Ok(Self {
            // SAFETY: a new descriptor that nobody else has.
            descriptor: unsafe { OwnedFd::from_raw_fd(descriptor) },
            block,
            length,
        })
    }

    /// The file descriptor of the dma-buf, which begins with the memory's first byte.
    pub(super) fn descriptor(&self) -> c_int {
        self.descriptor.as_raw_fd()
    }

    /// Its address for devices.
    pub(super) fn address(&self) -> u64 {
        self.block.start
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Copies `bytes` to `offset`, which the caller has checked.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), GpuError> {
        self.block.gpu.enter()?;
        let driver = &self.block.gpu.driver;
        let (to, from) = (self.block.start + offset, bytes.as_ptr().cast());
        // SAFETY: both ranges are whole.
        let code = unsafe { (driver.copy_in)(to, from, bytes.len()) };
        driver.check("cuMemcpyHtoD", code)
    }

    /// Copies bytes at `offset`, which the caller has checked, to `bytes`.
    pub(super) fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        self.block.gpu.enter()?;
        let driver = &self.block.gpu.driver;
        let (to, from) = (bytes.as_mut_ptr().cast(), self.block.start + offset);
        // SAFETY: both ranges are whole.
        let code = unsafe { (driver.copy_out)(to, from, bytes.len()) };
        driver.check("cuMemcpyDtoH", code)
    }
}

/// Whether [`MemoryRegion::on_gpu`](super::MemoryRegion::on_gpu) finds a GPU that exports its memory, or why not. Takes up to a second
/// where there is a driver.
pub fn gpu() -> Result<(), GpuError> {
    Gpu::first().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_common_linux::skip::{does_not_apply, skip};
    use std::process::Command;

    /// On a machine with a GPU the memory is read as it was written; elsewhere, as in CI, the error names what is missing.
    #[test]
    fn memory_of_a_gpu_keeps_bytes_or_its_refusal_names_what_is_missing() {
        match GpuMemory::new(100_000) {
            Ok(memory) => {
                memory.write(99_990, &[7; 10]).unwrap();
                let mut bytes = [1; 20];
                memory.read(99_980, &mut bytes).unwrap();
                assert_eq!((&bytes[..10], &bytes[10..]), (&[0; 10][..], &[7; 10][..]));
                assert!(memory.descriptor() >= 0 && memory.address().is_multiple_of(PAGE));
                assert!(GpuMemory::new(usize::MAX - 1).is_err(), "too much");
                println!("a GPU keeps bytes");
            }
            Err(error) => {
                does_not_apply(format_args!("memory of a GPU: {error}"));
                let text = error.to_string();
                assert!(text.contains("GPU") || text.contains("driver"), "{text}");
            }
        }
    }

    /// The test above, with a stand-in for the driver's library that lacks `missing`; its output. None without a C compiler.
    fn beside_stand_in(missing: &str) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/libcuda.c");
        let compiled = Command::new("cc")
            .args([
                "-shared", "-fPIC", "-Wall", "-Werror", "-pthread", source, "-o",
            ])
            .arg(folder.path().join("libcuda.so.1"))
            .status();
        match compiled {
            Ok(status) => assert!(status.success(), "cc: {status}"),
            Err(error) => {
                skip(format_args!("no C compiler: {error}"));
                return None;
            }
        }
        let name =
            "safe::gpu::tests::memory_of_a_gpu_keeps_bytes_or_its_refusal_names_what_is_missing";
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env("LD_LIBRARY_PATH", folder.path())
            .env("ISOLANE_STAND_IN", missing)
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}"
        );
        Some(text)
    }

    #[test]
    fn what_a_driver_has_is_used_and_what_it_lacks_is_named() {
        let cases = [
            ("nothing", "a GPU keeps bytes"),
            ("gpu", "the driver lists no GPU; look at `nvidia-smi`"),
            (
                "dma-buf",
                "the first GPU cannot export memory as dma-buf; use the open",
            ),
            (
                "export",
                "cuMemGetHandleForAddressRange: the driver returns CUDA_ERROR_NOT_SUPPORTED (801); use the open",
            ),
        ];
        for (missing, wanted) in cases {
            let Some(text) = beside_stand_in(missing) else {
                return;
            };
            assert!(text.contains(wanted), "without {missing}: {text}");
        }
    }
}

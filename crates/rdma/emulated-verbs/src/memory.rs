//! Protection domains, memory regions, memory windows.

use crate::connection::Answer;
use crate::context::{Context, null};
use crate::wire::{Writer, op, pack};
use isolane_rdma_verbs_sys::*;
use std::ffi::{c_int, c_uint, c_void};

/// Access that the model of memory has: local and remote, atomics, windows; the optional flags change nothing.
const ACCESS: u32 = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_MW_BIND
    | IBV_ACCESS_HUGETLB
    | IBV_ACCESS_OPTIONAL_RANGE;

/// `ibv_alloc_pd`.
///
/// # Safety
/// The context is open.
pub unsafe fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: the caller's promise.
    let ours = unsafe { Context::of(context) };
    match first(ours.connection.call(&Writer::of(&[op::ALLOC_PD]))) {
        Ok(handle) => Box::into_raw(Box::new(ibv_pd { context, handle })),
        Err(errno) => null(errno),
    }
}

/// The first word of an answer, a number of 32 bits.
pub(crate) fn first(answer: Result<Answer, c_int>) -> Result<u32, c_int> {
    answer?.reader().number().ok_or(libc::EPROTO)
}

/// Destroys the object `handle` at the broker; an `errno` value.
///
/// # Safety
/// The context is open.
pub(crate) unsafe fn destroy(context: *mut ibv_context, operation: u64, handle: u32) -> c_int {
    // SAFETY: the caller's promise.
    let ours = unsafe { Context::of(context) };
    let request = Writer::of(&[operation, u64::from(handle)]);
    ours.connection.call(&request).err().unwrap_or(0)
}

/// `ibv_dealloc_pd`.
///
/// # Safety
/// [`alloc_pd`] gave it out.
pub unsafe fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: the caller's promise; it is freed once, when the broker has let it go.
    unsafe {
        match destroy((*pd).context, op::DEALLOC_PD, (*pd).handle) {
            0 => drop(Box::from_raw(pd)),
            errno => return errno,
        }
    }
    0
}

/// What a program gets for a region: the header's structure, and behind it what only this library uses.
#[repr(C)]
struct Region {
    public: ibv_mr,
    /// The mapping of a dma-buf, unmapped after deregistration.
    mapped: Option<(*mut c_void, usize)>,
}

/// `ibv_reg_mr_iova2`.
///
/// # Safety
/// The protection domain is allocated.
pub unsafe fn reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    if access & !ACCESS != 0 {
        return null(libc::EOPNOTSUPP);
    }
    // SAFETY: the caller's promise.
    unsafe {
        let context = (*pd).context;
        let request = Writer::of(&[
            op::REG_MR,
            pack((*pd).handle, access),
            addr.expose_provenance() as u64,
            length as u64,
            iova,
        ]);
        let answer = first(Context::of(context).connection.call(&request));
        match answer {
            Ok(key) => {
                let public = ibv_mr {
                    context,
                    pd,
                    addr,
                    length,
                    handle: key,
                    lkey: key,
                    rkey: key,
                };
                Box::into_raw(Box::new(Region {
                    public,
                    mapped: None,
                }))
                .cast()
            }
            Err(errno) => null(errno),
        }
    }
}

/// `ibv_reg_dmabuf_mr`: the buffer is mapped into this process, whose memory the broker reads and writes. Fails with `EOPNOTSUPP` for a
/// buffer that its driver does not let map, and with `EINVAL` for an offset that is not one of a page.
///
/// # Safety
/// The protection domain is allocated.
pub unsafe fn reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    descriptor: c_int,
    access: c_uint,
) -> *mut ibv_mr {
    let Ok(offset) = libc::off_t::try_from(offset) else {
        return null(libc::EINVAL);
    };
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping where the kernel has room for it.
    let mapped = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            protection,
            flags,
            descriptor,
            offset,
        )
    };
    if mapped == libc::MAP_FAILED {
        return match std::io::Error::last_os_error().raw_os_error() {
            Some(errno @ (libc::EBADF | libc::EINVAL | libc::ENOMEM)) => null(errno),
            _ => null(libc::EOPNOTSUPP),
        };
    }
    // SAFETY: the caller's promise; the mapping is whole, and a region that was made is one of ours.
    unsafe {
        let region = reg_mr(pd, mapped, length, iova, access);
        match region.is_null() {
            true => {
                let errno = std::io::Error::last_os_error().raw_os_error();
                libc::munmap(mapped, length);
                null(errno.unwrap_or(libc::EINVAL))
            }
            false => {
                (*region.cast::<Region>()).mapped = Some((mapped, length));
                region
            }
        }
    }
}

/// `ibv_rereg_mr`: a new region in the place of the old one, with new keys.
///
/// # Safety
/// The region is registered, and `pd` allocated where its change is requested.
pub unsafe fn rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let flags = flags as u32;
    // SAFETY: the caller's promise.
    unsafe {
        let domain = if flags & IBV_REREG_MR_CHANGE_PD != 0 {
            pd
        } else {
            (*mr).pd
        };
        let (addr, length) = match flags & IBV_REREG_MR_CHANGE_TRANSLATION {
            0 => ((*mr).addr, (*mr).length),
            _ => (addr, length),
        };
        let access = match flags & IBV_REREG_MR_CHANGE_ACCESS {
            0 => u32::MAX,
            _ => access as u32,
        };
        let request = Writer::of(&[
            op::REREG_MR,
            pack((*mr).handle, (*domain).handle),
            addr.expose_provenance() as u64,
            length as u64,
            u64::from(access),
        ]);
        match Context::of((*mr).context).connection.call(&request) {
            Ok(_) => {
                (*mr).pd = domain;
                (*mr).addr = addr;
                (*mr).length = length;
                0
            }
            // IBV_REREG_MR_ERR_INPUT: the old region stays as it is.
            Err(_) => -1,
        }
    }
}

/// `ibv_dereg_mr`.
///
/// # Safety
/// [`reg_mr`] or [`reg_dmabuf_mr`] gave it out.
pub unsafe fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: the caller's promise; it is freed once, when the broker has let it go.
    unsafe {
        match destroy((*mr).context, op::DEREG_MR, (*mr).handle) {
            0 => {
                if let Some((mapped, length)) = Box::from_raw(mr.cast::<Region>()).mapped {
                    libc::munmap(mapped, length);
                }
            }
            errno => return errno,
        }
    }
    0
}

pub(crate) unsafe extern "C" fn alloc_window(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    // SAFETY: the header's function gives an allocated protection domain.
    unsafe {
        let context = (*pd).context;
        let request = Writer::of(&[op::ALLOC_MW, pack((*pd).handle, kind)]);
        let answer = Context::of(context).connection.call(&request);
        let made = answer.and_then(|answer| answer.reader().halves().ok_or(libc::EPROTO));
        match made {
            Ok((handle, rkey)) => Box::into_raw(Box::new(ibv_mw {
                context,
                pd,
                rkey,
                handle,
                r#type: kind,
            })),
            Err(errno) => null(errno),
        }
    }
}

pub(crate) unsafe extern "C" fn dealloc_window(mw: *mut ibv_mw) -> c_int {
    // SAFETY: the header's function gives a window of ours; it is freed once.
    unsafe {
        match destroy((*mw).context, op::DEALLOC_MW, (*mw).handle) {
            0 => drop(Box::from_raw(mw)),
            errno => return errno,
        }
    }
    0
}

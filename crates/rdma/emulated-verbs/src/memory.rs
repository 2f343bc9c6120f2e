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
            Ok(key) => Box::into_raw(Box::new(ibv_mr {
                context,
                pd,
                addr,
                length,
                handle: key,
                lkey: key,
                rkey: key,
            })),
            Err(errno) => null(errno),
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
/// [`reg_mr`] gave it out.
pub unsafe fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: the caller's promise; it is freed once, when the broker has let it go.
    unsafe {
        match destroy((*mr).context, op::DEREG_MR, (*mr).handle) {
            0 => drop(Box::from_raw(mr)),
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

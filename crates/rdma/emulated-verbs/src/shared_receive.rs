//! Shared receive queues.

use crate::connection::lock;
use crate::context::{Context, DEPTH_MAX, Kind, null};
use crate::memory::destroy;
use crate::wire::{ELEMENTS_MAX, Writer, op, pack};
use isolane_rdma_verbs_sys::*;
use std::ffi::c_int;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

/// A shared receive queue; begins like the public structure.
#[repr(C)]
pub struct SharedReceives {
    srq: ibv_srq,
    /// Receives posted.
    pub posted: Mutex<u64>,
    /// Receives over.
    pub over: Arc<AtomicU64>,
    /// Its size.
    pub depth: u32,
    /// Elements of a receive.
    pub elements: u32,
}

/// `ibv_create_srq`.
///
/// # Safety
/// The protection domain is allocated and the attributes are writable.
pub unsafe fn create(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    // SAFETY: the caller's promise.
    unsafe {
        let wanted = &mut (*attr).attr;
        if wanted.max_wr == 0 || wanted.max_wr > DEPTH_MAX || wanted.max_sge as usize > ELEMENTS_MAX
        {
            return null(libc::EINVAL);
        }
        let context = (*pd).context;
        let ours = Context::of(context);
        let request = Writer::of(&[op::CREATE_SRQ, pack((*pd).handle, wanted.max_wr)]);
        let handle = match crate::memory::first(ours.connection.call(&request)) {
            Ok(handle) => handle,
            Err(errno) => return null(errno),
        };
        let srq = Box::into_raw(Box::new(SharedReceives {
            srq: ibv_srq {
                context,
                srq_context: (*attr).srq_context,
                pd,
                handle,
                ..ibv_srq::default()
            },
            posted: Mutex::default(),
            over: Arc::default(),
            depth: wanted.max_wr,
            elements: wanted.max_sge.max(1),
        }));
        lock(&ours.objects).insert((Kind::SharedReceives, handle), srq.expose_provenance());
        srq.cast()
    }
}

pub(crate) unsafe extern "C" fn create_ex(
    _: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: the header's function gives its program's attributes.
    unsafe {
        let attr = &mut *attr;
        let known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
        let kind = match attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE {
            0 => IBV_SRQT_BASIC,
            _ => attr.srq_type,
        };
        if attr.comp_mask & !known != 0 || kind != IBV_SRQT_BASIC {
            return null(libc::EOPNOTSUPP);
        }
        if attr.comp_mask & IBV_SRQ_INIT_ATTR_PD == 0 {
            return null(libc::EINVAL);
        }
        let mut plain = ibv_srq_init_attr {
            srq_context: attr.srq_context,
            attr: attr.attr,
        };
        create(attr.pd, &raw mut plain)
    }
}

/// `ibv_modify_srq`: the limit; the size stays.
///
/// # Safety
/// The queue exists and the attributes are readable.
pub unsafe fn modify(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int {
    if mask as u32 & !IBV_SRQ_LIMIT != 0 {
        return libc::EOPNOTSUPP;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let limit = (*attr).srq_limit;
        if limit > (*srq.cast::<SharedReceives>()).depth {
            return libc::EINVAL;
        }
        let request = Writer::of(&[op::MODIFY_SRQ, pack((*srq).handle, limit)]);
        let ours = Context::of((*srq).context);
        ours.connection.call(&request).err().unwrap_or(0)
    }
}

/// `ibv_query_srq`.
///
/// # Safety
/// The queue exists and the attributes are writable.
pub unsafe fn query(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let ours = &*srq.cast::<SharedReceives>();
        let request = Writer::of(&[op::QUERY_SRQ, u64::from((*srq).handle)]);
        let answer = Context::of((*srq).context).connection.call(&request);
        match crate::memory::first(answer) {
            Ok(srq_limit) => {
                *attr = ibv_srq_attr {
                    max_wr: ours.depth,
                    max_sge: ours.elements,
                    srq_limit,
                };
                0
            }
            Err(errno) => errno,
        }
    }
}

/// `ibv_destroy_srq`.
///
/// # Safety
/// [`create`] gave it out, and no queue pair uses it.
pub unsafe fn destroy_queue(srq: *mut ibv_srq) -> c_int {
    // SAFETY: the caller's promise; it is freed once, when the broker has let it go.
    unsafe {
        let handle = (*srq).handle;
        match destroy((*srq).context, op::DESTROY_SRQ, handle) {
            0 => {
                let ours = Context::of((*srq).context);
                lock(&ours.objects).remove(&(Kind::SharedReceives, handle));
                drop(Box::from_raw(srq.cast::<SharedReceives>()));
            }
            errno => return errno,
        }
    }
    0
}

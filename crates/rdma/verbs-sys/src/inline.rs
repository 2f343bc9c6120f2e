//! The functions that C programs get from the header and not from the library.
//!
//! They call through the tables of the context and of the objects. A preload library that swaps these tables is
//! therefore seen here too. A provider without an operation answers `EOPNOTSUPP`.
//! Errors: as in C, a positive `errno` value, or a null pointer with `errno` set by the provider (or by us where the
//! operation is missing).

use crate::*;
use std::ffi::c_int;

/// The extended context around `context`, or null when the library is too old to have one.
///
/// # Safety
/// `context` is an open context of libibverbs.
#[inline]
pub unsafe fn verbs_get_ctx(context: *mut ibv_context) -> *mut verbs_context {
    // SAFETY: the caller gives an open context; `abi_compat` guarantees that a verbs_context surrounds it.
    unsafe {
        if (*context).abi_compat.addr() != VERBS_ABI_IS_EXTENDED {
            return std::ptr::null_mut();
        }
        context
            .byte_sub(std::mem::offset_of!(verbs_context, context))
            .cast()
    }
}

/// Whether the field at `offset` of [`verbs_context`] is inside the context of this library's version.
///
/// # Safety
/// `extended` is from [`verbs_get_ctx`] and is not null.
#[inline]
pub unsafe fn verbs_context_reaches(extended: *mut verbs_context, offset: usize) -> bool {
    // SAFETY: `sz` is directly before the context, so every extended context has it.
    unsafe { (*extended).sz >= size_of::<verbs_context>() - offset }
}

/// The operation `$field` of the extended context: `Option` of the function pointer.
///
/// Must be used where `unsafe` is allowed, with an open context.
#[macro_export]
macro_rules! verbs_get_ctx_op {
    ($context:expr, $field:ident) => {{
        let extended = $crate::verbs_get_ctx($context);
        let offset = ::std::mem::offset_of!($crate::verbs_context, $field);
        if extended.is_null() || !$crate::verbs_context_reaches(extended, offset) {
            None
        } else {
            (*extended).$field
        }
    }};
}

fn unsupported<T>() -> *mut T {
    // SAFETY: the address of this thread's errno is always writable.
    unsafe { *libc::__errno_location() = libc::EOPNOTSUPP };
    std::ptr::null_mut()
}

macro_rules! through_table {
    ($( $(#[$meta:meta])* $name:ident = $object:ident . $($path:ident).+ ( $($argument:ident : $ty:ty),* ) -> c_int ; )*) => { $(
        $(#[$meta])*
        ///
        /// # Safety
        /// All pointers are valid as the manual page of the same name demands.
        #[inline]
        pub unsafe fn $name($($argument: $ty),*) -> c_int {
            // SAFETY: the caller keeps the rules of the manual page; the provider filled the table.
            unsafe {
                match (*(*$object).context).ops.$($path).+ {
                    Some(operation) => operation($($argument),*),
                    None => libc::EOPNOTSUPP,
                }
            }
        }
    )* };
}

through_table! {
    /// Posts a list of send work requests.
    ibv_post_send = qp.post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr) -> c_int;
    /// Posts a list of receive work requests.
    ibv_post_recv = qp.post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr) -> c_int;
    /// Posts a list of receive work requests to a shared receive queue.
    ibv_post_srq_recv = srq.post_srq_recv(srq: *mut ibv_srq, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr) -> c_int;
    /// Takes at most `count` completions; answers how many, negative on error.
    ibv_poll_cq = cq.poll_cq(cq: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int;
    /// Requests an event at the next (solicited) completion.
    ibv_req_notify_cq = cq.req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int;
    /// Releases a memory window.
    ibv_dealloc_mw = mw.dealloc_mw(mw: *mut ibv_mw) -> c_int;
}

macro_rules! through_extension {
    ($( $(#[$meta:meta])* $name:ident = $field:ident [ $context:expr ] ( $($argument:ident : $ty:ty),* ) -> $answer:ty, else $missing:expr ; )*) => { $(
        $(#[$meta])*
        ///
        /// # Safety
        /// All pointers are valid as the manual page of the same name demands.
        #[inline]
        pub unsafe fn $name($($argument: $ty),*) -> $answer {
            // SAFETY: the caller keeps the rules of the manual page; verbs_get_ctx_op checks that the field exists.
            unsafe {
                match verbs_get_ctx_op!($context, $field) {
                    Some(operation) => operation($($argument),*),
                    None => $missing,
                }
            }
        }
    )* };
}

through_extension! {
    /// Creates an extended completion queue.
    ibv_create_cq_ex = create_cq_ex[context](context: *mut ibv_context, attr: *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex, else unsupported();
    /// Changes a completion queue's moderation.
    ibv_modify_cq = modify_cq[(*cq).context](cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int, else libc::EOPNOTSUPP;
    /// Sets the rate limit of a queue pair, where the device has one.
    ibv_modify_qp_rate_limit = modify_qp_rate_limit[(*qp).context](qp: *mut ibv_qp, attr: *mut ibv_qp_rate_limit_attr) -> c_int, else libc::EOPNOTSUPP;
    /// Opens a shared (XRC) queue pair.
    ibv_open_qp = open_qp[context](context: *mut ibv_context, attr: *mut ibv_qp_open_attr) -> *mut ibv_qp, else unsupported();
    /// Opens an XRC domain.
    ibv_open_xrcd = open_xrcd[context](context: *mut ibv_context, attr: *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd, else unsupported();
    /// Closes an XRC domain.
    ibv_close_xrcd = close_xrcd[(*xrcd).context](xrcd: *mut ibv_xrcd) -> c_int, else libc::EOPNOTSUPP;
    /// Allocates a thread domain.
    ibv_alloc_td = alloc_td[context](context: *mut ibv_context, attr: *mut ibv_td_init_attr) -> *mut ibv_td, else unsupported();
    /// Allocates a parent domain.
    ibv_alloc_parent_domain = alloc_parent_domain[context](context: *mut ibv_context, attr: *mut ibv_parent_domain_init_attr) -> *mut ibv_pd, else unsupported();
    /// Registers a piece of device memory.
    ibv_reg_dm_mr = reg_dm_mr[(*pd).context](pd: *mut ibv_pd, dm: *mut ibv_dm, offset: u64, length: usize, access: std::ffi::c_uint) -> *mut ibv_mr, else unsupported();
}

macro_rules! through_object {
    ($( $(#[$meta:meta])* $name:ident = $object:ident : $structure:ident . $field:ident ( $($argument:ident : $ty:ty),* ) $(-> $answer:ty)? ; )*) => { $(
        $(#[$meta])*
        ///
        /// # Safety
        /// The object was created with this operation (`send_ops_flags`, `wc_flags`), and is used between start and
        /// end as the manual page demands.
        #[inline]
        pub unsafe fn $name($object: *mut $structure $(, $argument: $ty)*) $(-> $answer)? {
            // SAFETY: the caller created the object with this operation, so the provider set the pointer.
            unsafe { (*$object).$field.expect("an operation requested at creation")($object $(, $argument)*) }
        }
    )* };
}

through_object! {
    /// Begins a batch of work requests.
    ibv_wr_start = qp: ibv_qp_ex.wr_start();
    /// Posts the batch.
    ibv_wr_complete = qp: ibv_qp_ex.wr_complete() -> c_int;
    /// Drops the batch.
    ibv_wr_abort = qp: ibv_qp_ex.wr_abort();
    /// Adds a WRITE.
    ibv_wr_rdma_write = qp: ibv_qp_ex.wr_rdma_write(rkey: u32, remote_addr: u64);
    /// Adds a WRITE with immediate data.
    ibv_wr_rdma_write_imm = qp: ibv_qp_ex.wr_rdma_write_imm(rkey: u32, remote_addr: u64, imm_data: u32);
    /// Adds a READ.
    ibv_wr_rdma_read = qp: ibv_qp_ex.wr_rdma_read(rkey: u32, remote_addr: u64);
    /// Adds a SEND.
    ibv_wr_send = qp: ibv_qp_ex.wr_send();
    /// Adds a SEND with immediate data.
    ibv_wr_send_imm = qp: ibv_qp_ex.wr_send_imm(imm_data: u32);
    /// Adds a compare and swap.
    ibv_wr_atomic_cmp_swp = qp: ibv_qp_ex.wr_atomic_cmp_swp(rkey: u32, remote_addr: u64, compare: u64, swap: u64);
    /// Adds a fetch and add.
    ibv_wr_atomic_fetch_add = qp: ibv_qp_ex.wr_atomic_fetch_add(rkey: u32, remote_addr: u64, add: u64);
    /// Adds a SEND that invalidates a key of the other end.
    ibv_wr_send_inv = qp: ibv_qp_ex.wr_send_inv(rkey: u32);
    /// Adds a SEND that the device cuts into segments of `mss` bytes with a header each.
    ibv_wr_send_tso = qp: ibv_qp_ex.wr_send_tso(hdr: *mut std::ffi::c_void, hdr_sz: u16, mss: u16);
    /// Adds the binding of a memory window.
    ibv_wr_bind_mw = qp: ibv_qp_ex.wr_bind_mw(mw: *mut ibv_mw, rkey: u32, info: *const ibv_mw_bind_info);
    /// Adds the invalidation of a key of one's own.
    ibv_wr_local_inv = qp: ibv_qp_ex.wr_local_inv(rkey: u32);
    /// Gives the last request its receive queue at the other end (XRC).
    ibv_wr_set_xrc_srqn = qp: ibv_qp_ex.wr_set_xrc_srqn(remote_srqn: u32);
    /// Gives the last request its datagram address.
    ibv_wr_set_ud_addr = qp: ibv_qp_ex.wr_set_ud_addr(ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32);
    /// Gives the last request its memory.
    ibv_wr_set_sge = qp: ibv_qp_ex.wr_set_sge(lkey: u32, addr: u64, length: u32);
    /// Gives the last request its list of memory.
    ibv_wr_set_sge_list = qp: ibv_qp_ex.wr_set_sge_list(count: usize, list: *const ibv_sge);
    /// Gives the last request its inline data.
    ibv_wr_set_inline_data = qp: ibv_qp_ex.wr_set_inline_data(addr: *mut std::ffi::c_void, length: usize);
    /// Gives the last request inline data from several places.
    ibv_wr_set_inline_data_list = qp: ibv_qp_ex.wr_set_inline_data_list(count: usize, list: *const ibv_data_buf);
    /// Begins a series of completions: 0, `ENOENT` when there are none.
    ibv_start_poll = cq: ibv_cq_ex.start_poll(attr: *mut ibv_poll_cq_attr) -> c_int;
    /// Steps to the next completion.
    ibv_next_poll = cq: ibv_cq_ex.next_poll() -> c_int;
    /// Ends the series.
    ibv_end_poll = cq: ibv_cq_ex.end_poll();
    /// Bytes of the current completion.
    ibv_wc_read_byte_len = cq: ibv_cq_ex.read_byte_len() -> u32;
}

//! The extended interface (`ibv_wr_start`, `ibv_wr_*`, `ibv_wr_complete`) of paced queue pairs.
//!
//! Problem: the provider's functions write directly into its send queue and bypass the shim. Method: our functions
//! collect classic work requests with copies of all lists and data, and complete posts them as one list. Places, memory
//! lists and inline data are checked first, because a failed complete must post nothing. Limits: the 8-byte atomic
//! WRITE has no classic form that all providers share; a queue pair that requests it is not paced. If the provider
//! rejects a request in the middle of the list, the earlier ones stay posted.

use crate::collector::Request;
use crate::queue_pair::QueuePair;
use isolane_rdma_verbs_sys::*;
use std::ffi::{c_int, c_void};

/// Replaces the functions that the provider has set.
///
/// # Safety
/// `qp` was just created with these operations and is not in use.
pub(crate) unsafe fn swap(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller's promise.
    let qp = unsafe { &mut *qp };
    macro_rules! swap {
        ($($field:ident = $function:expr;)*) => { $(
            if qp.$field.is_some() {
                qp.$field = Some($function);
            }
        )* };
    }
    swap! {
        wr_atomic_cmp_swp = wr_atomic_cmp_swp;
        wr_atomic_fetch_add = wr_atomic_fetch_add;
        wr_bind_mw = wr_bind_mw;
        wr_local_inv = wr_local_inv;
        wr_rdma_read = wr_rdma_read;
        wr_rdma_write = wr_rdma_write;
        wr_rdma_write_imm = wr_rdma_write_imm;
        wr_send = wr_send;
        wr_send_imm = wr_send_imm;
        wr_send_inv = wr_send_inv;
        wr_send_tso = wr_send_tso;
        wr_set_ud_addr = wr_set_ud_addr;
        wr_set_xrc_srqn = wr_set_xrc_srqn;
        wr_set_inline_data = wr_set_inline_data;
        wr_set_inline_data_list = wr_set_inline_data_list;
        wr_set_sge = wr_set_sge;
        wr_set_sge_list = wr_set_sge_list;
        wr_start = wr_start;
        wr_complete = wr_complete;
        wr_abort = wr_abort;
    }
}

fn known(qp: *mut ibv_qp_ex) -> Option<&'static QueuePair> {
    crate::process::process()?.queue_pair(qp.cast())
}

/// Adds a request to the batch and fills it.
///
/// # Safety
/// `qp` is one of ours, between start and complete.
unsafe fn add(qp: *mut ibv_qp_ex, opcode: ibv_wr_opcode, fill: impl FnOnce(&mut Request)) {
    if let Some(known) = known(qp) {
        // SAFETY: the caller's promise.
        fill(known.collector.content().begin(unsafe { &*qp }, opcode));
    }
}

fn rdma(remote_addr: u64, rkey: u32) -> ibv_send_wr_wr {
    ibv_send_wr_wr {
        rdma: ibv_send_wr_rdma { remote_addr, rkey },
    }
}

/// The functions that add a request.
macro_rules! adders {
    ($( $name:ident ( $($argument:ident : $ty:ty),* ) = $opcode:ident, |$request:ident| $body:block )*) => { $(
        unsafe extern "C" fn $name(qp: *mut ibv_qp_ex $(, $argument: $ty)*) {
            // SAFETY: the application calls between start and complete, on the queue pair whose pointer this is.
            unsafe { add(qp, $opcode, |$request| $body) }
        }
    )* };
}

adders! {
    wr_atomic_cmp_swp(rkey: u32, remote_addr: u64, compare: u64, swap: u64) = IBV_WR_ATOMIC_CMP_AND_SWP, |request| {
        request.work.wr.atomic = ibv_send_wr_atomic { remote_addr, compare_add: compare, swap, rkey };
    }
    wr_atomic_fetch_add(rkey: u32, remote_addr: u64, add: u64) = IBV_WR_ATOMIC_FETCH_AND_ADD, |request| {
        request.work.wr.atomic = ibv_send_wr_atomic { remote_addr, compare_add: add, swap: 0, rkey };
    }
    wr_bind_mw(mw: *mut ibv_mw, rkey: u32, info: *const ibv_mw_bind_info) = IBV_WR_BIND_MW, |request| {
        request.work.bind_mw.bind_mw = ibv_send_wr_bind_mw { mw, rkey, bind_info: *info };
    }
    wr_local_inv(rkey: u32) = IBV_WR_LOCAL_INV, |request| { request.work.imm_data = rkey; }
    wr_rdma_read(rkey: u32, remote_addr: u64) = IBV_WR_RDMA_READ, |request| {
        request.work.wr = rdma(remote_addr, rkey);
    }
    wr_rdma_write(rkey: u32, remote_addr: u64) = IBV_WR_RDMA_WRITE, |request| {
        request.work.wr = rdma(remote_addr, rkey);
    }
    wr_rdma_write_imm(rkey: u32, remote_addr: u64, imm_data: u32) = IBV_WR_RDMA_WRITE_WITH_IMM, |request| {
        request.work.wr = rdma(remote_addr, rkey);
        request.work.imm_data = imm_data;
    }
    wr_send() = IBV_WR_SEND, |_request| {}
    wr_send_imm(imm_data: u32) = IBV_WR_SEND_WITH_IMM, |request| { request.work.imm_data = imm_data; }
    wr_send_inv(rkey: u32) = IBV_WR_SEND_WITH_INV, |request| { request.work.imm_data = rkey; }
    wr_send_tso(hdr: *mut c_void, hdr_sz: u16, mss: u16) = IBV_WR_TSO, |request| {
        request.work.bind_mw.tso = ibv_send_wr_tso { hdr, hdr_sz, mss };
        if hdr_sz > 0 {
            // The application's header is readable during the call.
            let bytes = std::slice::from_raw_parts(hdr.cast::<u8>(), usize::from(hdr_sz));
            request.header.extend_from_slice(bytes);
        }
    }
}

/// The functions that change the last added request.
macro_rules! setters {
    ($( $name:ident ( $($argument:ident : $ty:ty),* ) |$request:ident| $body:block )*) => { $(
        unsafe extern "C" fn $name(qp: *mut ibv_qp_ex $(, $argument: $ty)*) {
            if let Some(known) = known(qp)
                && let Some($request) = known.collector.content().last()
            {
                $body
            }
        }
    )* };
}

setters! {
    wr_set_ud_addr(ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32) |request| {
        request.work.wr.ud = ibv_send_wr_ud { ah, remote_qpn, remote_qkey };
    }
    wr_set_xrc_srqn(remote_srqn: u32) |request| {
        request.work.qp_type.remote_srqn = remote_srqn;
    }
    wr_set_inline_data(addr: *mut c_void, length: usize) |request| {
        request.work.send_flags |= IBV_SEND_INLINE;
        if length > 0 {
            // SAFETY: the application's data is readable during the call.
            let bytes = unsafe { std::slice::from_raw_parts(addr.cast::<u8>(), length) };
            request.data.extend_from_slice(bytes);
        }
    }
    wr_set_inline_data_list(count: usize, list: *const ibv_data_buf) |request| {
        request.work.send_flags |= IBV_SEND_INLINE;
        for at in 0..count {
            // SAFETY: the application's list has `count` readable entries, each naming readable data.
            let bytes = unsafe {
                let entry = &*list.add(at);
                match entry.length {
                    0 => &[],
                    length => std::slice::from_raw_parts(entry.addr.cast::<u8>(), length),
                }
            };
            request.data.extend_from_slice(bytes);
        }
    }
    wr_set_sge(lkey: u32, addr: u64, length: u32) |request| {
        request.list.push(ibv_sge { addr, length, lkey });
    }
    wr_set_sge_list(count: usize, list: *const ibv_sge) |request| {
        if count > 0 {
            // SAFETY: the application's list has `count` readable entries.
            let entries = unsafe { std::slice::from_raw_parts(list, count) };
            request.list.extend_from_slice(entries);
        }
    }
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    if let Some(known) = known(qp) {
        known.collector.begin();
    }
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    if let Some(known) = known(qp) {
        known.collector.end();
    }
}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    let Some(known) = known(qp) else {
        return libc::EINVAL;
    };
    let collected = known.collector.content();
    let needs = collected.needs();
    // SAFETY: a list of our own copies.
    let answer = unsafe { known.post_batch(collected.link(), needs) };
    known.collector.end();
    answer
}

//! The extended interface of the null provider: requests are collected, and complete posts all of them or none.
//!
//! [`calls`] counts calls of its functions: under the shim an application must not reach them.

use super::*;
use work::{SendEntry, take};

#[derive(Default)]
pub(super) struct Batch {
    entries: Vec<SendEntry>,
    calls: u64,
}

/// Number of calls of this file's functions for a queue pair.
pub fn calls(qp: *mut ibv_qp) -> u64 {
    unsafe { (*qp.cast::<NullQp>()).batch.calls }
}

pub(super) fn fill(qp: &mut ibv_qp_ex) {
    qp.wr_start = Some(wr_start);
    qp.wr_abort = Some(wr_abort);
    qp.wr_complete = Some(wr_complete);
    qp.wr_rdma_write = Some(wr_rdma_write);
    qp.wr_rdma_write_imm = Some(wr_rdma_write_imm);
    qp.wr_rdma_read = Some(wr_rdma_read);
    qp.wr_atomic_cmp_swp = Some(wr_atomic_cmp_swp);
    qp.wr_atomic_fetch_add = Some(wr_atomic_fetch_add);
    qp.wr_bind_mw = Some(wr_bind_mw);
    qp.wr_local_inv = Some(wr_local_inv);
    qp.wr_send = Some(wr_send);
    qp.wr_send_imm = Some(wr_send_imm);
    qp.wr_send_inv = Some(wr_send_inv);
    qp.wr_send_tso = Some(wr_send_tso);
    qp.wr_set_ud_addr = Some(wr_set_ud_addr);
    qp.wr_set_xrc_srqn = Some(wr_set_xrc_srqn);
    qp.wr_set_inline_data = Some(wr_set_inline_data);
    qp.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    qp.wr_set_sge = Some(wr_set_sge);
    qp.wr_set_sge_list = Some(wr_set_sge_list);
}

fn batch(qp: *mut ibv_qp_ex) -> &'static mut Batch {
    let batch = unsafe { &mut (*qp.cast::<NullQp>()).batch };
    batch.calls += 1;
    batch
}

fn add(qp: *mut ibv_qp_ex, opcode: ibv_wr_opcode) -> &'static mut SendEntry {
    let (wr_id, send_flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags & !IBV_SEND_INLINE) };
    let batch = batch(qp);
    batch.entries.push(SendEntry::default());
    let entry = batch.entries.last_mut().unwrap();
    entry.work = ibv_send_wr {
        wr_id,
        send_flags,
        opcode,
        ..Default::default()
    };
    entry
}

fn last(qp: *mut ibv_qp_ex) -> &'static mut SendEntry {
    batch(qp).entries.last_mut().expect("a request was added")
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    batch(qp).entries.clear();
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    batch(qp).entries.clear();
}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    let entries = std::mem::take(&mut batch(qp).entries);
    unsafe { take(&mut *qp.cast::<NullQp>(), entries) }
}

macro_rules! adders {
    ($( $name:ident ( $($argument:ident : $ty:ty),* ) = $opcode:ident, |$entry:ident| $body:block )*) => { $(
        unsafe extern "C" fn $name(qp: *mut ibv_qp_ex $(, $argument: $ty)*) {
            let $entry = add(qp, $opcode);
            $body
        }
    )* };
}

fn rdma(remote_addr: u64, rkey: u32) -> ibv_send_wr_wr {
    ibv_send_wr_wr {
        rdma: ibv_send_wr_rdma { remote_addr, rkey },
    }
}

adders! {
    wr_rdma_write(rkey: u32, remote: u64) = IBV_WR_RDMA_WRITE, |entry| { entry.work.wr = rdma(remote, rkey); }
    wr_rdma_write_imm(rkey: u32, remote: u64, imm: u32) = IBV_WR_RDMA_WRITE_WITH_IMM, |entry| {
        entry.work.wr = rdma(remote, rkey);
        entry.work.imm_data = imm;
    }
    wr_rdma_read(rkey: u32, remote: u64) = IBV_WR_RDMA_READ, |entry| { entry.work.wr = rdma(remote, rkey); }
    wr_atomic_cmp_swp(rkey: u32, remote_addr: u64, compare_add: u64, swap: u64) = IBV_WR_ATOMIC_CMP_AND_SWP, |entry| {
        entry.work.wr.atomic = ibv_send_wr_atomic { remote_addr, compare_add, swap, rkey };
    }
    wr_atomic_fetch_add(rkey: u32, remote_addr: u64, compare_add: u64) = IBV_WR_ATOMIC_FETCH_AND_ADD, |entry| {
        entry.work.wr.atomic = ibv_send_wr_atomic { remote_addr, compare_add, swap: 0, rkey };
    }
    wr_bind_mw(mw: *mut ibv_mw, rkey: u32, info: *const ibv_mw_bind_info) = IBV_WR_BIND_MW, |entry| {
        entry.work.bind_mw.bind_mw = ibv_send_wr_bind_mw { mw, rkey, bind_info: unsafe { *info } };
    }
    wr_local_inv(rkey: u32) = IBV_WR_LOCAL_INV, |entry| { entry.work.imm_data = rkey; }
    wr_send() = IBV_WR_SEND, |_entry| {}
    wr_send_imm(imm: u32) = IBV_WR_SEND_WITH_IMM, |entry| { entry.work.imm_data = imm; }
    wr_send_inv(rkey: u32) = IBV_WR_SEND_WITH_INV, |entry| { entry.work.imm_data = rkey; }
    wr_send_tso(hdr: *mut c_void, hdr_sz: u16, mss: u16) = IBV_WR_TSO, |entry| {
        entry.work.bind_mw.tso = ibv_send_wr_tso { hdr, hdr_sz, mss };
        entry.header = unsafe { work::header(&entry.work) };
    }
}

unsafe extern "C" fn wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, number: u32, key: u32) {
    last(qp).work.wr.ud = ibv_send_wr_ud {
        ah,
        remote_qpn: number,
        remote_qkey: key,
    };
}

unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut ibv_qp_ex, number: u32) {
    last(qp).work.qp_type.remote_srqn = number;
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    let one = ibv_data_buf { addr, length };
    unsafe { wr_set_inline_data_list(qp, 1, &raw const one) };
}

unsafe extern "C" fn wr_set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    let entry = last(qp);
    entry.work.send_flags |= IBV_SEND_INLINE;
    for one in unsafe { std::slice::from_raw_parts(list, count) } {
        let from = one.addr.cast::<u8>();
        let bytes = unsafe { std::slice::from_raw_parts(from, one.length) };
        entry.inline.extend_from_slice(bytes);
    }
}

unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let one = ibv_sge { addr, length, lkey };
    unsafe { wr_set_sge_list(qp, 1, &raw const one) };
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    let entry = last(qp);
    entry.list = unsafe { std::slice::from_raw_parts(list, count) }.to_vec();
    entry.work.num_sge = count as c_int;
}

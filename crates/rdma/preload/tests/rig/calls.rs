//! Posts a classic list of work requests by the extended calls.

use isolane_rdma_verbs_sys::*;
use std::ffi::{c_int, c_void};

/// Begins a batch and adds the list without ending the batch.
pub unsafe fn add(qp: *mut ibv_qp_ex, first: &ibv_send_wr) {
    unsafe {
        ibv_wr_start(qp);
        let mut next = Some(first);
        while let Some(work) = next {
            (*qp).wr_id = work.wr_id;
            (*qp).wr_flags = work.send_flags;
            request(qp, work);
            memory(qp, work);
            next = work.next.as_ref();
        }
    }
}

/// Posts the list; returns an errno.
pub unsafe fn post(qp: *mut ibv_qp_ex, first: &ibv_send_wr) -> c_int {
    unsafe {
        add(qp, first);
        ibv_wr_complete(qp)
    }
}

unsafe fn request(qp: *mut ibv_qp_ex, work: &ibv_send_wr) {
    unsafe {
        let (rdma, atomic) = (work.wr.rdma, work.wr.atomic);
        match work.opcode {
            IBV_WR_RDMA_WRITE => ibv_wr_rdma_write(qp, rdma.rkey, rdma.remote_addr),
            IBV_WR_RDMA_WRITE_WITH_IMM => {
                ibv_wr_rdma_write_imm(qp, rdma.rkey, rdma.remote_addr, work.imm_data);
            }
            IBV_WR_RDMA_READ => ibv_wr_rdma_read(qp, rdma.rkey, rdma.remote_addr),
            IBV_WR_ATOMIC_CMP_AND_SWP => {
                let (compare, swap) = (atomic.compare_add, atomic.swap);
                ibv_wr_atomic_cmp_swp(qp, atomic.rkey, atomic.remote_addr, compare, swap);
            }
            IBV_WR_ATOMIC_FETCH_AND_ADD => {
                ibv_wr_atomic_fetch_add(qp, atomic.rkey, atomic.remote_addr, atomic.compare_add);
            }
            IBV_WR_SEND => ibv_wr_send(qp),
            IBV_WR_SEND_WITH_IMM => ibv_wr_send_imm(qp, work.imm_data),
            IBV_WR_SEND_WITH_INV => ibv_wr_send_inv(qp, work.imm_data),
            IBV_WR_LOCAL_INV => ibv_wr_local_inv(qp, work.imm_data),
            IBV_WR_BIND_MW => {
                let bind = work.bind_mw.bind_mw;
                ibv_wr_bind_mw(qp, bind.mw, bind.rkey, &raw const bind.bind_info);
            }
            IBV_WR_TSO => {
                let tso = work.bind_mw.tso;
                ibv_wr_send_tso(qp, tso.hdr, tso.hdr_sz, tso.mss);
            }
            other => panic!("opcode {other} has no call here"),
        }
        match (*qp).qp_base.qp_type {
            IBV_QPT_XRC_SEND => ibv_wr_set_xrc_srqn(qp, work.qp_type.remote_srqn),
            IBV_QPT_UD => {
                let to = work.wr.ud;
                ibv_wr_set_ud_addr(qp, to.ah, to.remote_qpn, to.remote_qkey);
            }
            _ => {}
        }
    }
}

/// Uses the call for one piece, or the call for lists.
unsafe fn memory(qp: *mut ibv_qp_ex, work: &ibv_send_wr) {
    unsafe {
        let list = match work.num_sge {
            0 => &[],
            count => std::slice::from_raw_parts(work.sg_list, count as usize),
        };
        let buffer = |piece: &ibv_sge| ibv_data_buf {
            addr: std::ptr::with_exposed_provenance_mut::<c_void>(piece.addr as usize),
            length: piece.length as usize,
        };
        match (list, work.send_flags & IBV_SEND_INLINE != 0) {
            ([], _) => {}
            ([one], false) => ibv_wr_set_sge(qp, one.lkey, one.addr, one.length),
            (list, false) => ibv_wr_set_sge_list(qp, list.len(), list.as_ptr()),
            ([one], true) => {
                let one = buffer(one);
                ibv_wr_set_inline_data(qp, one.addr, one.length);
            }
            (list, true) => {
                let list: Vec<_> = list.iter().map(buffer).collect();
                ibv_wr_set_inline_data_list(qp, list.len(), list.as_ptr());
            }
        }
    }
}

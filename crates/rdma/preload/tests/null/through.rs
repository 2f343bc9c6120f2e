//! Calls of an application through the shim's own exports: a connected queue pair, writes of whole buffers.

use super::{device, join};
use isolane_rdma_verbs_sys::*;
use isolane_shim::exports;
use std::ffi::c_int;

/// A queue pair of a device with this name, ready to send and connected to another one of this process, and its
/// completion queue. Both live as long as the process.
pub fn connected(name: &str, depth: u32) -> (*mut ibv_qp, *mut ibv_cq) {
    let none = std::ptr::null_mut();
    unsafe {
        let context = exports::ibv_open_device(device(name));
        let cq = exports::ibv_create_cq(context, 64, none, std::ptr::null_mut(), 0);
        let pd = Box::leak(Box::new(ibv_pd { context, handle: 0 }));
        let mut attr = ibv_qp_init_attr {
            send_cq: cq,
            recv_cq: cq,
            cap: ibv_qp_cap {
                max_send_wr: depth,
                max_send_sge: 2,
                ..Default::default()
            },
            qp_type: IBV_QPT_RC,
            ..Default::default()
        };
        let qp = exports::ibv_create_qp(pd, &raw mut attr);
        let other = exports::ibv_create_qp(pd, &raw mut attr);
        join(qp, other);
        let mut attr = ibv_qp_attr {
            qp_state: IBV_QPS_RTS,
            ..Default::default()
        };
        let status = exports::ibv_modify_qp(qp, &raw mut attr, IBV_QP_STATE as c_int);
        assert_eq!(status, 0, "a fresh queue pair becomes ready to send");
        (qp, cq)
    }
}

/// Posts a signalled write of all of `from` to `to`; the queue must have room.
pub fn write(qp: *mut ibv_qp, wr_id: u64, from: &[u8], to: *const u8) {
    let mut list = [ibv_sge {
        addr: from.as_ptr().expose_provenance() as u64,
        length: from.len() as u32,
        lkey: 1,
    }];
    let mut work = ibv_send_wr {
        wr_id,
        opcode: IBV_WR_RDMA_WRITE,
        sg_list: list.as_mut_ptr(),
        num_sge: 1,
        send_flags: IBV_SEND_SIGNALED,
        ..Default::default()
    };
    work.wr.rdma = ibv_send_wr_rdma {
        remote_addr: to.expose_provenance() as u64,
        rkey: 1,
    };
    let mut bad = std::ptr::null_mut();
    let status = unsafe { ibv_post_send(qp, &raw mut work, &raw mut bad) };
    assert_eq!(status, 0, "there is room");
}

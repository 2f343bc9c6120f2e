//! Shared receive queues, separate work queues and tag matching.
#![allow(
    missing_docs,
    reason = "names are those of <infiniband/verbs.h>; ibv_create_srq_ex(3) and ibv_create_wq(3) explain them"
)]

use crate::layout::{constants, structures};
use crate::{ibv_context, ibv_cq, ibv_pd, ibv_recv_wr, ibv_sge, ibv_xrcd};
use libc::{pthread_cond_t, pthread_mutex_t};
use std::ffi::{c_int, c_uint, c_void};

structures! {
    pub struct ibv_srq {
        pub context: *mut ibv_context,
        pub srq_context: *mut c_void,
        pub pd: *mut ibv_pd,
        pub handle: u32,
        pub mutex: pthread_mutex_t,
        pub cond: pthread_cond_t,
        pub events_completed: u32,
    }

    #[derive(Clone, Copy, Debug)]
    pub struct ibv_srq_attr {
        pub max_wr: u32,
        pub max_sge: u32,
        pub srq_limit: u32,
    }

    #[derive(Clone, Copy, Debug)]
    pub struct ibv_srq_init_attr {
        pub srq_context: *mut c_void,
        pub attr: ibv_srq_attr,
    }

    #[derive(Clone, Copy, Debug)]
    pub struct ibv_tm_cap {
        pub max_num_tags: u32,
        pub max_ops: u32,
    }

    #[derive(Clone, Copy, Debug)]
    pub struct ibv_srq_init_attr_ex {
        pub srq_context: *mut c_void,
        pub attr: ibv_srq_attr,
        pub comp_mask: u32,
        pub srq_type: ibv_srq_type,
        pub pd: *mut ibv_pd,
        pub xrcd: *mut ibv_xrcd,
        pub cq: *mut ibv_cq,
        pub tm_cap: ibv_tm_cap,
    }

    pub struct ibv_wq {
        pub context: *mut ibv_context,
        pub wq_context: *mut c_void,
        pub pd: *mut ibv_pd,
        pub cq: *mut ibv_cq,
        pub wq_num: u32,
        pub handle: u32,
        pub state: ibv_wq_state,
        pub wq_type: ibv_wq_type,
        pub post_recv: Option<
            unsafe extern "C" fn(*mut ibv_wq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
        >,
        pub mutex: pthread_mutex_t,
        pub cond: pthread_cond_t,
        pub events_completed: u32,
        pub comp_mask: u32,
    }

    #[derive(Clone, Copy, Debug)]
    pub struct ibv_wq_init_attr {
        pub wq_context: *mut c_void,
        pub wq_type: ibv_wq_type,
        pub max_wr: u32,
        pub max_sge: u32,
        pub pd: *mut ibv_pd,
        pub cq: *mut ibv_cq,
        pub comp_mask: u32,
        pub create_flags: u32,
    }

    #[derive(Clone, Copy, Debug)]
    pub struct ibv_wq_attr {
        pub attr_mask: u32,
        pub wq_state: ibv_wq_state,
        pub curr_wq_state: ibv_wq_state,
        pub flags: u32,
        pub flags_mask: u32,
    }

    pub struct ibv_rwq_ind_table {
        pub context: *mut ibv_context,
        pub ind_tbl_handle: c_int,
        pub ind_tbl_num: c_int,
        pub comp_mask: u32,
    }

    #[derive(Clone, Copy, Debug)]
    pub struct ibv_rwq_ind_table_init_attr {
        pub log_ind_tbl_size: u32,
        pub ind_tbl: *mut *mut ibv_wq,
        pub comp_mask: u32,
    }

    /// A tag list operation; `tm` is flattened in [`ibv_ops_wr_tm`].
    #[derive(Clone, Copy, Debug)]
    pub struct ibv_ops_wr {
        pub wr_id: u64,
        pub next: *mut ibv_ops_wr,
        pub opcode: c_uint,
        pub flags: c_int,
        pub tm: ibv_ops_wr_tm,
    }
}

/// The tag matching part of [`ibv_ops_wr`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_ops_wr_tm {
    pub unexpected_cnt: u32,
    pub handle: u32,
    pub recv_wr_id: u64,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
    pub tag: u64,
    pub mask: u64,
}

constants! {
    ibv_srq_type = c_uint {
        IBV_SRQT_BASIC = 0,
        IBV_SRQT_XRC = 1,
        IBV_SRQT_TM = 2,
    }

    ibv_srq_attr_mask = c_uint {
        IBV_SRQ_MAX_WR = 1,
        IBV_SRQ_LIMIT = 1 << 1,
    }

    ibv_srq_init_attr_mask = c_uint {
        IBV_SRQ_INIT_ATTR_TYPE = 1,
        IBV_SRQ_INIT_ATTR_PD = 1 << 1,
        IBV_SRQ_INIT_ATTR_XRCD = 1 << 2,
        IBV_SRQ_INIT_ATTR_CQ = 1 << 3,
        IBV_SRQ_INIT_ATTR_TM = 1 << 4,
    }

    ibv_wq_type = c_uint {
        IBV_WQT_RQ = 0,
    }

    ibv_wq_state = c_uint {
        IBV_WQS_RESET = 0,
        IBV_WQS_RDY = 1,
        IBV_WQS_ERR = 2,
        IBV_WQS_UNKNOWN = 3,
    }

    ibv_wq_attr_mask = c_uint {
        IBV_WQ_ATTR_STATE = 1,
        IBV_WQ_ATTR_CURR_STATE = 1 << 1,
        IBV_WQ_ATTR_FLAGS = 1 << 2,
    }
}

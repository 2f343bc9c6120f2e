//! Devices, ports, asynchronous events, and the context with its tables of operations.
#![allow(
    missing_docs,
    reason = "names are those of <infiniband/verbs.h>; ibv_query_device(3), ibv_query_port(3) and ibv_get_async_event(3) explain them"
)]

use crate::layout::{constants, structures};
use crate::*;
use libc::pthread_mutex_t;
use std::ffi::{c_char, c_int, c_uint, c_void};

/// A slot of the old operation table that nothing may call.
pub type unused_operation = Option<unsafe extern "C" fn()>;

/// The object an asynchronous event is about; the event's type says which member holds.
#[repr(C)]
#[derive(Clone, Copy)]
pub union ibv_async_event_element {
    pub cq: *mut ibv_cq,
    pub qp: *mut ibv_qp,
    pub srq: *mut ibv_srq,
    pub wq: *mut ibv_wq,
    pub port_num: c_int,
}

structures! {
    /// One device of the list; `_ops` is two dead function pointers.
    pub struct ibv_device {
        pub _ops: [unused_operation; 2],
        pub node_type: ibv_node_type,
        pub transport_type: ibv_transport_type,
        pub name: [c_char; 64],
        pub dev_name: [c_char; 64],
        pub dev_path: [c_char; 256],
        pub ibdev_path: [c_char; 256],
    }

    #[derive(Clone, Copy, Debug)]
    pub struct ibv_device_attr {
        pub fw_ver: [c_char; 64],
        pub node_guid: u64,
        pub sys_image_guid: u64,
        pub max_mr_size: u64,
        pub page_size_cap: u64,
        pub vendor_id: u32,
        pub vendor_part_id: u32,
        pub hw_ver: u32,
        pub max_qp: c_int,
        pub max_qp_wr: c_int,
        pub device_cap_flags: c_uint,
        pub max_sge: c_int,
        pub max_sge_rd: c_int,
        pub max_cq: c_int,
        pub max_cqe: c_int,
        pub max_mr: c_int,
        pub max_pd: c_int,
        pub max_qp_rd_atom: c_int,
        pub max_ee_rd_atom: c_int,
        pub max_res_rd_atom: c_int,
        pub max_qp_init_rd_atom: c_int,
        pub max_ee_init_rd_atom: c_int,
        pub atomic_cap: c_uint,
        pub max_ee: c_int,
        pub max_rdd: c_int,
        pub max_mw: c_int,
        pub max_raw_ipv6_qp: c_int,
        pub max_raw_ethy_qp: c_int,
        pub max_mcast_grp: c_int,
        pub max_mcast_qp_attach: c_int,
        pub max_total_mcast_qp_attach: c_int,
        pub max_ah: c_int,
        pub max_fmr: c_int,
        pub max_map_per_fmr: c_int,
        pub max_srq: c_int,
        pub max_srq_wr: c_int,
        pub max_srq_sge: c_int,
        pub max_pkeys: u16,
        pub local_ca_ack_delay: u8,
        pub phys_port_cnt: u8,
    }

    #[derive(Clone, Copy, Debug)]
    pub struct ibv_odp_caps {
        pub general_caps: u64,
        /// Of RC, UC and UD.
        pub per_transport_caps: [u32; 3],
    }

    #[derive(Clone, Copy, Debug)]
    pub struct ibv_tso_caps {
        pub max_tso: u32,
        pub supported_qpts: u32,
    }

    #[derive(Clone, Copy, Debug)]
    pub struct ibv_rss_caps {
        pub supported_qpts: u32,
        pub max_rwq_indirection_tables: u32,
        pub max_rwq_indirection_table_size: u32,
        pub rx_hash_fields_mask: u64,
        pub rx_hash_function: u8,
    }

    /// Rates of single queue pairs, in kbit/s, and a bit for each type of queue pair that has them.
    #[derive(Clone, Copy, Debug)]
    pub struct ibv_packet_pacing_caps {
        pub qp_rate_limit_min: u32,
        pub qp_rate_limit_max: u32,
        pub supported_qpts: u32,
    }

    #[derive(Clone, Copy, Debug)]
    pub struct ibv_tm_caps {
        pub max_rndv_hdr_size: u32,
        pub max_num_tags: u32,
        pub flags: u32,
        pub max_ops: u32,
        pub max_sge: u32,
    }

    #[derive(Clone, Copy, Debug)]
    pub struct ibv_cq_moderation_caps {
        pub max_cq_count: u16,
        pub max_cq_period: u16,
    }

    #[derive(Clone, Copy, Debug)]
    pub struct ibv_pci_atomic_caps {
        pub fetch_add: u16,
        pub swap: u16,
        pub compare_swap: u16,
    }

    #[derive(Clone, Copy, Debug)]
    pub struct ibv_device_attr_ex {
        pub orig_attr: ibv_device_attr,
        pub comp_mask: u32,
        pub odp_caps: ibv_odp_caps,
        pub completion_timestamp_mask: u64,
        pub hca_core_clock: u64,
        pub device_cap_flags_ex: u64,
        pub tso_caps: ibv_tso_caps,
        pub rss_caps: ibv_rss_caps,
        pub max_wq_type_rq: u32,
        pub packet_pacing_caps: ibv_packet_pacing_caps,
        pub raw_packet_caps: u32,
        pub tm_caps: ibv_tm_caps,
        pub cq_mod_caps: ibv_cq_moderation_caps,
        pub max_dm_size: u64,
        pub pci_atomic_caps: ibv_pci_atomic_caps,
        pub xrc_odp_caps: u32,
        pub phys_port_cnt_ex: u32,
    }

    #[derive(Clone, Copy, Debug)]
    pub struct ibv_port_attr {
        pub state: ibv_port_state,
        pub max_mtu: ibv_mtu,
        pub active_mtu: ibv_mtu,
        pub gid_tbl_len: c_int,
        pub port_cap_flags: u32,
        pub max_msg_sz: u32,
        pub bad_pkey_cntr: u32,
        pub qkey_viol_cntr: u32,
        pub pkey_tbl_len: u16,
        pub lid: u16,
        pub sm_lid: u16,
        pub lmc: u8,
        pub max_vl_num: u8,
        pub sm_sl: u8,
        pub subnet_timeout: u8,
        pub init_type_reply: u8,
        pub active_width: u8,
        pub active_speed: u8,
        pub phys_state: u8,
        pub link_layer: u8,
        pub flags: u8,
        pub port_cap_flags2: u16,
    }

    #[derive(Clone, Copy)]
    pub struct ibv_async_event {
        pub element: ibv_async_event_element,
        pub event_type: ibv_event_type,
    }

    /// The table that the inline functions of the header call through. Fields named `_compat_*` are dead.
    #[derive(Clone, Copy)]
    pub struct ibv_context_ops {
        pub _compat_query_device: unused_operation,
        pub _compat_query_port: unused_operation,
        pub _compat_alloc_pd: unused_operation,
        pub _compat_dealloc_pd: unused_operation,
        pub _compat_reg_mr: unused_operation,
        pub _compat_rereg_mr: unused_operation,
        pub _compat_dereg_mr: unused_operation,
        pub alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, ibv_mw_type) -> *mut ibv_mw>,
        pub bind_mw: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> c_int>,
        pub dealloc_mw: Option<unsafe extern "C" fn(*mut ibv_mw) -> c_int>,
        pub _compat_create_cq: unused_operation,
        pub poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
        pub req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
        pub _compat_cq_event: unused_operation,
        pub _compat_resize_cq: unused_operation,
        pub _compat_destroy_cq: unused_operation,
        pub _compat_create_srq: unused_operation,
        pub _compat_modify_srq: unused_operation,
        pub _compat_query_srq: unused_operation,
        pub _compat_destroy_srq: unused_operation,
        pub post_srq_recv: Option<
            unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
        >,
        pub _compat_create_qp: unused_operation,
        pub _compat_query_qp: unused_operation,
        pub _compat_modify_qp: unused_operation,
        pub _compat_destroy_qp: unused_operation,
        pub post_send: Option<
            unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int,
        >,
        pub post_recv: Option<
            unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
        >,
        pub _compat_create_ah: unused_operation,
        pub _compat_destroy_ah: unused_operation,
        pub _compat_attach_mcast: unused_operation,
        pub _compat_detach_mcast: unused_operation,
        pub _compat_async_event: unused_operation,
    }

    pub struct ibv_context {
        pub device: *mut ibv_device,
        pub ops: ibv_context_ops,
        pub cmd_fd: c_int,
        pub async_fd: c_int,
        pub num_comp_vectors: c_int,
        pub mutex: pthread_mutex_t,
        /// [`VERBS_ABI_IS_EXTENDED`] when a [`verbs_context`] surrounds this context.
        pub abi_compat: *mut c_void,
    }

    /// The extended context. It grows towards lower addresses: a field exists only when `sz` reaches back to it, see
    /// [`crate::verbs_get_ctx_op`].
    pub struct verbs_context {
        pub query_port: Option<unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int>,
        pub advise_mr: Option<
            unsafe extern "C" fn(*mut ibv_pd, ibv_advise_mr_advice, u32, *mut ibv_sge, u32) -> c_int,
        >,
        pub alloc_null_mr: Option<unsafe extern "C" fn(*mut ibv_pd) -> *mut ibv_mr>,
        pub read_counters: Option<unsafe extern "C" fn(*mut c_void, *mut u64, u32, u32) -> c_int>,
        pub attach_counters_point_flow:
            Option<unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void) -> c_int>,
        pub create_counters: Option<unsafe extern "C" fn(*mut ibv_context, *mut c_void) -> *mut c_void>,
        pub destroy_counters: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
        pub reg_dm_mr:
            Option<unsafe extern "C" fn(*mut ibv_pd, *mut ibv_dm, u64, usize, c_uint) -> *mut ibv_mr>,
        pub alloc_dm: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_alloc_dm_attr) -> *mut ibv_dm>,
        pub free_dm: Option<unsafe extern "C" fn(*mut ibv_dm) -> c_int>,
        pub modify_flow_action_esp: Option<unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int>,
        pub destroy_flow_action: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
        pub create_flow_action_esp:
            Option<unsafe extern "C" fn(*mut ibv_context, *mut c_void) -> *mut c_void>,
        pub modify_qp_rate_limit:
            Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_rate_limit_attr) -> c_int>,
        pub alloc_parent_domain: Option<
            unsafe extern "C" fn(*mut ibv_context, *mut ibv_parent_domain_init_attr) -> *mut ibv_pd,
        >,
        pub dealloc_td: Option<unsafe extern "C" fn(*mut ibv_td) -> c_int>,
        pub alloc_td: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_td_init_attr) -> *mut ibv_td>,
        pub modify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, *mut ibv_modify_cq_attr) -> c_int>,
        pub post_srq_ops:
            Option<unsafe extern "C" fn(*mut ibv_srq, *mut ibv_ops_wr, *mut *mut ibv_ops_wr) -> c_int>,
        pub destroy_rwq_ind_table: Option<unsafe extern "C" fn(*mut ibv_rwq_ind_table) -> c_int>,
        pub create_rwq_ind_table: Option<
            unsafe extern "C" fn(
                *mut ibv_context,
                *mut ibv_rwq_ind_table_init_attr,
            ) -> *mut ibv_rwq_ind_table,
        >,
        pub destroy_wq: Option<unsafe extern "C" fn(*mut ibv_wq) -> c_int>,
        pub modify_wq: Option<unsafe extern "C" fn(*mut ibv_wq, *mut ibv_wq_attr) -> c_int>,
        pub create_wq: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_wq_init_attr) -> *mut ibv_wq>,
        pub query_rt_values: Option<unsafe extern "C" fn(*mut ibv_context, *mut c_void) -> c_int>,
        pub create_cq_ex:
            Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex>,
        pub r#priv: *mut c_void,
        pub query_device_ex: Option<
            unsafe extern "C" fn(*mut ibv_context, *const c_void, *mut ibv_device_attr_ex, usize) -> c_int,
        >,
        pub ibv_destroy_flow: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
        pub ABI_placeholder2: unused_operation,
        pub ibv_create_flow: Option<unsafe extern "C" fn(*mut ibv_qp, *mut c_void) -> *mut c_void>,
        pub ABI_placeholder1: unused_operation,
        pub open_qp: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_open_attr) -> *mut ibv_qp>,
        pub create_qp_ex:
            Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp>,
        pub get_srq_num: Option<unsafe extern "C" fn(*mut ibv_srq, *mut u32) -> c_int>,
        pub create_srq_ex:
            Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_srq_init_attr_ex) -> *mut ibv_srq>,
        pub open_xrcd: Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd>,
        pub close_xrcd: Option<unsafe extern "C" fn(*mut ibv_xrcd) -> c_int>,
        pub _ABI_placeholder3: u64,
        pub sz: usize,
        pub context: ibv_context,
    }
}

/// Value of [`ibv_context::abi_compat`] in an extended context.
pub const VERBS_ABI_IS_EXTENDED: usize = usize::MAX;

constants! {
    ibv_node_type = c_int {
        IBV_NODE_UNKNOWN = -1,
        IBV_NODE_CA = 1,
        IBV_NODE_SWITCH = 2,
        IBV_NODE_ROUTER = 3,
        IBV_NODE_RNIC = 4,
        IBV_NODE_USNIC = 5,
        IBV_NODE_USNIC_UDP = 6,
        IBV_NODE_UNSPECIFIED = 7,
    }

    ibv_transport_type = c_int {
        IBV_TRANSPORT_UNKNOWN = -1,
        IBV_TRANSPORT_IB = 0,
        IBV_TRANSPORT_IWARP = 1,
        IBV_TRANSPORT_USNIC = 2,
        IBV_TRANSPORT_USNIC_UDP = 3,
        IBV_TRANSPORT_UNSPECIFIED = 4,
    }

    ibv_atomic_cap = c_uint {
        IBV_ATOMIC_NONE = 0,
        IBV_ATOMIC_HCA = 1,
        IBV_ATOMIC_GLOB = 2,
    }

    ibv_mtu = c_uint {
        IBV_MTU_256 = 1,
        IBV_MTU_512 = 2,
        IBV_MTU_1024 = 3,
        IBV_MTU_2048 = 4,
        IBV_MTU_4096 = 5,
    }

    ibv_port_state = c_uint {
        IBV_PORT_NOP = 0,
        IBV_PORT_DOWN = 1,
        IBV_PORT_INIT = 2,
        IBV_PORT_ARMED = 3,
        IBV_PORT_ACTIVE = 4,
        IBV_PORT_ACTIVE_DEFER = 5,
    }

    /// Values of [`ibv_port_attr::link_layer`].
    ibv_link_layer = u8 {
        IBV_LINK_LAYER_UNSPECIFIED = 0,
        IBV_LINK_LAYER_INFINIBAND = 1,
        IBV_LINK_LAYER_ETHERNET = 2,
    }

    ibv_event_type = c_uint {
        IBV_EVENT_CQ_ERR = 0,
        IBV_EVENT_QP_FATAL = 1,
        IBV_EVENT_QP_REQ_ERR = 2,
        IBV_EVENT_QP_ACCESS_ERR = 3,
        IBV_EVENT_COMM_EST = 4,
        IBV_EVENT_SQ_DRAINED = 5,
        IBV_EVENT_PATH_MIG = 6,
        IBV_EVENT_PATH_MIG_ERR = 7,
        IBV_EVENT_DEVICE_FATAL = 8,
        IBV_EVENT_PORT_ACTIVE = 9,
        IBV_EVENT_PORT_ERR = 10,
        IBV_EVENT_LID_CHANGE = 11,
        IBV_EVENT_PKEY_CHANGE = 12,
        IBV_EVENT_SM_CHANGE = 13,
        IBV_EVENT_SRQ_ERR = 14,
        IBV_EVENT_SRQ_LIMIT_REACHED = 15,
        IBV_EVENT_QP_LAST_WQE_REACHED = 16,
        IBV_EVENT_CLIENT_REREGISTER = 17,
        IBV_EVENT_GID_CHANGE = 18,
        IBV_EVENT_WQ_FATAL = 19,
    }
}

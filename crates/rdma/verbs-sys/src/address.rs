//! Addresses on the network: GIDs, routes, address handles.
#![allow(
    missing_docs,
    reason = "names are those of <infiniband/verbs.h>; ibv_create_ah(3) explains them"
)]

use crate::layout::{constants, structures};
use crate::{ibv_context, ibv_pd};
use std::ffi::c_uint;

/// A GID: 16 bytes in network order. In C a union with two 64-bit halves, hence its alignment.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ibv_gid {
    pub raw: [u8; 16],
}

structures! {
    #[derive(Clone, Copy, Debug)]
    pub struct ibv_gid_entry {
        pub gid: ibv_gid,
        pub gid_index: u32,
        pub port_num: u32,
        pub gid_type: u32,
        pub ndev_ifindex: u32,
    }

    #[derive(Clone, Copy, Debug)]
    pub struct ibv_global_route {
        pub dgid: ibv_gid,
        pub flow_label: u32,
        pub sgid_index: u8,
        pub hop_limit: u8,
        pub traffic_class: u8,
    }

    /// Header before the payload of a received datagram; its integers are in network order.
    #[derive(Clone, Copy, Debug)]
    pub struct ibv_grh {
        pub version_tclass_flow: u32,
        pub paylen: u16,
        pub next_hdr: u8,
        pub hop_limit: u8,
        pub sgid: ibv_gid,
        pub dgid: ibv_gid,
    }

    #[derive(Clone, Copy, Debug)]
    pub struct ibv_ah_attr {
        pub grh: ibv_global_route,
        pub dlid: u16,
        pub sl: u8,
        pub src_path_bits: u8,
        pub static_rate: u8,
        pub is_global: u8,
        pub port_num: u8,
    }

    pub struct ibv_ah {
        pub context: *mut ibv_context,
        pub pd: *mut ibv_pd,
        pub handle: u32,
    }
}

constants! {
    ibv_gid_type = c_uint {
        IBV_GID_TYPE_IB = 0,
        IBV_GID_TYPE_ROCE_V1 = 1,
        IBV_GID_TYPE_ROCE_V2 = 2,
    }
}

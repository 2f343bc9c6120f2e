//! `libibverbs.so.1` for programs under `isolane rdma emulate`: what the loader finds, each function with its symbol version.
//!
//! Problem: programs and other libraries name the versions `IBVERBS_1.0` to `IBVERBS_1.14` and, in provider libraries,
//! `IBVERBS_PRIVATE_34`; the loader refuses a library that lacks one of their symbols. Method: every symbol of rdma-core 44
//! is here. Most call the function of the library crate; those that only a provider of real devices calls report that they
//! are not supported. The build script and `ibverbs.map` give each its version.
//!
//! SAFETY of the whole file: every function is called by the rules of the manual page of the same name and passes its
//! arguments on.
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]
#![allow(missing_docs, reason = "the names are those of libibverbs")]
#![no_main]

use isolane_rdma_emulated_verbs::{
    address, completion, context, device, memory, queue_pair, shared_receive, text,
};
use isolane_rdma_verbs_sys::*;
use std::ffi::{c_char, c_int, c_uint, c_void};

macro_rules! exports {
    ($($name:ident($($argument:ident: $ty:ty),*) $(-> $answer:ty)? = $call:expr;)*) => { $(
        #[unsafe(no_mangle)]
        #[allow(unused_unsafe, clippy::missing_safety_doc, reason = "see the manual page")]
        pub unsafe extern "C" fn $name($($argument: $ty),*) $(-> $answer)? {
            // SAFETY: see the file.
            unsafe { $call }
        }
    )* };
}

mod rdmacm;

exports! {
    ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device = device::get_device_list(count);
    ibv_free_device_list(list: *mut *mut ibv_device) = device::free_device_list(list);
    ibv_get_device_name(device: *mut ibv_device) -> *const c_char = (&raw const (*device).name).cast();
    ibv_get_device_guid(device: *mut ibv_device) -> u64 = context::Device::of(device).facts.guid;
    ibv_get_device_index(device: *mut ibv_device) -> c_int = context::Device::of(device).facts.host as c_int;
    ibv_open_device(device: *mut ibv_device) -> *mut ibv_context = device::open(device);
    ibv_close_device(of: *mut ibv_context) -> c_int = device::close(of);
    ibv_query_device(of: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int = device::query_device(of, attr);
    ibv_query_port(of: *mut ibv_context, port: u8, attr: *mut c_void) -> c_int = device::query_port_old(of, port, attr);
    ibv_query_gid(of: *mut ibv_context, port: u8, index: c_int, gid: *mut ibv_gid) -> c_int = device::query_gid(of, port, index, gid);
    _ibv_query_gid_ex(of: *mut ibv_context, port: u32, index: u32, entry: *mut ibv_gid_entry, flags: u32, size: usize) -> c_int
        = device::query_gid_ex(of, port, index, entry, flags, size);
    _ibv_query_gid_table(of: *mut ibv_context, entries: *mut ibv_gid_entry, room: usize, flags: u32, size: usize) -> isize
        = device::query_gid_table(of, entries, room, flags, size);
    ibv_query_gid_type(of: *mut ibv_context, port: u8, index: c_uint, kind: *mut u32) -> c_int
        = device::query_gid_type(of, port, index, kind);
    ibv_query_pkey(of: *mut ibv_context, port: u8, index: c_int, key: *mut u16) -> c_int = device::query_pkey(of, port, index, key);
    ibv_get_pkey_index(_of: *mut ibv_context, port: u8, key: u16) -> c_int
        = if port == 1 && key == u16::MAX { 0 } else { context::minus_one(libc::EINVAL) };
    ibv_alloc_pd(of: *mut ibv_context) -> *mut ibv_pd = memory::alloc_pd(of);
    ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int = memory::dealloc_pd(pd);
    ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr
        = memory::reg_mr(pd, addr, length, addr.expose_provenance() as u64, access as c_uint);
    ibv_reg_mr_iova(pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_int) -> *mut ibv_mr
        = memory::reg_mr(pd, addr, length, iova, access as c_uint);
    ibv_reg_mr_iova2(pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_uint) -> *mut ibv_mr
        = memory::reg_mr(pd, addr, length, iova, access);
    ibv_reg_dmabuf_mr(pd: *mut ibv_pd, offset: u64, length: usize, iova: u64, fd: c_int, access: c_int) -> *mut ibv_mr
        = memory::reg_dmabuf_mr(pd, offset, length, iova, fd, access as c_uint);
    ibv_rereg_mr(mr: *mut ibv_mr, flags: c_int, pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> c_int
        = memory::rereg_mr(mr, flags, pd, addr, length, access);
    ibv_dereg_mr(mr: *mut ibv_mr) -> c_int = memory::dereg_mr(mr);
    ibv_create_comp_channel(of: *mut ibv_context) -> *mut ibv_comp_channel = completion::create_channel(of);
    ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int = completion::destroy_channel(channel);
    ibv_create_cq(of: *mut ibv_context, cqe: c_int, user: *mut c_void, channel: *mut ibv_comp_channel, vector: c_int) -> *mut ibv_cq
        = completion::create(of, cqe, user, channel, vector);
    ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int = completion::resize(cq, cqe);
    ibv_destroy_cq(cq: *mut ibv_cq) -> c_int = completion::destroy_queue(cq);
    ibv_get_cq_event(channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, user: *mut *mut c_void) -> c_int
        = completion::event(channel, cq, user);
    ibv_ack_cq_events(cq: *mut ibv_cq, count: c_uint) = completion::ack_events(cq, count);
    ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq = shared_receive::create(pd, attr);
    ibv_modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int = shared_receive::modify(srq, attr, mask);
    ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int = shared_receive::query(srq, attr);
    ibv_destroy_srq(srq: *mut ibv_srq) -> c_int = shared_receive::destroy_queue(srq);
    ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp = queue_pair::create(pd, attr);
    ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int = queue_pair::modify(qp, attr, mask);
    ibv_query_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int, init: *mut ibv_qp_init_attr) -> c_int
        = queue_pair::query(qp, attr, mask, init);
    ibv_destroy_qp(qp: *mut ibv_qp) -> c_int = queue_pair::destroy_pair(qp);
    ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex = queue_pair::to_extended(qp);
    ibv_query_qp_data_in_order(_qp: *mut ibv_qp, _opcode: c_uint, _flags: u32) -> c_int = 0;
    ibv_set_ece(_qp: *mut ibv_qp, _ece: *mut ibv_ece) -> c_int = libc::EOPNOTSUPP;
    ibv_query_ece(_qp: *mut ibv_qp, _ece: *mut ibv_ece) -> c_int = libc::EOPNOTSUPP;
    ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah = address::create(pd, attr);
    ibv_destroy_ah(ah: *mut ibv_ah) -> c_int = address::destroy(ah);
    ibv_init_ah_from_wc(_of: *mut ibv_context, port: u8, wc: *mut ibv_wc, grh: *mut ibv_grh, attr: *mut ibv_ah_attr) -> c_int
        = address::init_from_completion(port, wc, grh, attr);
    ibv_create_ah_from_wc(pd: *mut ibv_pd, wc: *mut ibv_wc, grh: *mut ibv_grh, port: u8) -> *mut ibv_ah
        = address::create_from_completion(pd, wc, grh, port);
    ibv_attach_mcast(_qp: *mut ibv_qp, _gid: *const ibv_gid, _lid: u16) -> c_int = libc::EOPNOTSUPP;
    ibv_detach_mcast(_qp: *mut ibv_qp, _gid: *const ibv_gid, _lid: u16) -> c_int = libc::EOPNOTSUPP;
    ibv_get_async_event(of: *mut ibv_context, event: *mut ibv_async_event) -> c_int = device::get_async_event(of, event);
    ibv_ack_async_event(_event: *mut ibv_async_event) = ();
    ibv_fork_init() -> c_int = 0;
    ibv_is_fork_initialized() -> c_int = FORK_UNNEEDED;
    ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int = 0;
    ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int = 0;
    ibv_wc_status_str(value: c_int) -> *const c_char = text::status(value);
    ibv_event_type_str(value: c_int) -> *const c_char = text::event(value);
    ibv_port_state_str(value: c_int) -> *const c_char = text::port_state(value);
    ibv_node_type_str(value: c_int) -> *const c_char = text::node_type(value);
    ibv_rate_to_mult(rate: c_int) -> c_int = text::rate_to_multiple(rate);
    mult_to_ibv_rate(multiple: c_int) -> c_int = text::multiple_to_rate(multiple);
    ibv_rate_to_mbps(rate: c_int) -> c_int = text::rate_to_mbps(rate);
    mbps_to_ibv_rate(mbps: c_int) -> c_int = text::mbps_to_rate(mbps);
    ibv_get_sysfs_path() -> *const c_char = c"/sys".as_ptr();
    ibv_read_sysfs_file(directory: *const c_char, file: *const c_char, buffer: *mut c_char, size: usize) -> c_int
        = device::read_sysfs_file(directory, file, buffer, size);
    ibv_read_ibdev_sysfs_file(_buffer: *mut c_char, _size: usize, _device: *mut c_void, _name: *const c_char) -> c_int
        = context::minus_one(libc::ENOENT);
    ibv_resolve_eth_l2_from_gid(_of: *mut ibv_context, _attr: *mut ibv_ah_attr, _mac: *mut u8, _vlan: *mut u16) -> c_int
        = context::minus_one(libc::EOPNOTSUPP);
    verbs_register_driver_34(_operations: *const c_void) = ();
    ibv_register_driver(_name: *const c_char, _init: *const c_void) = ();
}

/// `IBV_FORK_UNNEEDED`.
const FORK_UNNEEDED: c_int = 2;

/// Provider libraries set it.
#[unsafe(no_mangle)]
pub static mut verbs_allow_disassociate_destroy: bool = false;

/// Functions for providers and kernel interfaces that no program calls here.
macro_rules! not_supported {
    ($($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> c_int {
            libc::EOPNOTSUPP
        }
    )* };
}

/// Functions that make an object and answer with its address.
macro_rules! not_made {
    ($($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> *mut c_void {
            context::null(libc::EOPNOTSUPP)
        }
    )* };
}

not_made! {
    ibv_import_device
    ibv_import_mr
    ibv_import_pd
    ibv_import_dm
    verbs_open_device
    _verbs_init_and_alloc_context
}

not_supported! {
    __ioctl_final_num_attrs
    __verbs_log
    execute_ioctl
    ibv_cmd_advise_mr
    ibv_cmd_alloc_dm
    ibv_cmd_alloc_mw
    ibv_cmd_alloc_pd
    ibv_cmd_attach_mcast
    ibv_cmd_close_xrcd
    ibv_cmd_create_ah
    ibv_cmd_create_counters
    ibv_cmd_create_cq
    ibv_cmd_create_cq_ex
    ibv_cmd_create_flow
    ibv_cmd_create_flow_action_esp
    ibv_cmd_create_qp
    ibv_cmd_create_qp_ex
    ibv_cmd_create_qp_ex2
    ibv_cmd_create_rwq_ind_table
    ibv_cmd_create_srq
    ibv_cmd_create_srq_ex
    ibv_cmd_create_wq
    ibv_cmd_dealloc_mw
    ibv_cmd_dealloc_pd
    ibv_cmd_dereg_mr
    ibv_cmd_destroy_ah
    ibv_cmd_destroy_counters
    ibv_cmd_destroy_cq
    ibv_cmd_destroy_flow
    ibv_cmd_destroy_flow_action
    ibv_cmd_destroy_qp
    ibv_cmd_destroy_rwq_ind_table
    ibv_cmd_destroy_srq
    ibv_cmd_destroy_wq
    ibv_cmd_detach_mcast
    ibv_cmd_free_dm
    ibv_cmd_get_context
    ibv_cmd_modify_cq
    ibv_cmd_modify_flow_action_esp
    ibv_cmd_modify_qp
    ibv_cmd_modify_qp_ex
    ibv_cmd_modify_srq
    ibv_cmd_modify_wq
    ibv_cmd_open_qp
    ibv_cmd_open_xrcd
    ibv_cmd_poll_cq
    ibv_cmd_post_recv
    ibv_cmd_post_send
    ibv_cmd_post_srq_recv
    ibv_cmd_query_context
    ibv_cmd_query_device_any
    ibv_cmd_query_mr
    ibv_cmd_query_port
    ibv_cmd_query_qp
    ibv_cmd_query_srq
    ibv_cmd_read_counters
    ibv_cmd_reg_dm_mr
    ibv_cmd_reg_dmabuf_mr
    ibv_cmd_reg_mr
    ibv_cmd_req_notify_cq
    ibv_cmd_rereg_mr
    ibv_cmd_resize_cq
    ibv_copy_ah_attr_from_kern
    ibv_copy_path_rec_from_kern
    ibv_copy_path_rec_to_kern
    ibv_copy_qp_attr_from_kern
    ibv_unimport_dm
    ibv_unimport_mr
    ibv_unimport_pd
    verbs_init_cq
    verbs_set_ops
    verbs_uninit_context
}

//! `librdmacm.so.1` for programs under `isolane rdma emulate`: a second name of the same file.
//!
//! Every symbol of rdma-core 44 is here. Multicast and rsockets report that they are not supported.
//!
//! SAFETY of the whole file: every function is called by the rules of the manual page of the same name and passes its
//! arguments on.

#![allow(unreachable_pub, reason = "the loader finds them, not this crate")]

use super::*;
use isolane_rdma_emulated_verbs::cm::layout::*;
use isolane_rdma_emulated_verbs::cm::{connect, endpoint, events, identifier, pairs};
use libc::sockaddr;

exports! {
    rdma_create_event_channel() -> *mut rdma_event_channel = identifier::create_channel();
    rdma_destroy_event_channel(channel: *mut rdma_event_channel) = identifier::destroy_channel(channel);
    rdma_create_id(channel: *mut rdma_event_channel, id: *mut *mut rdma_cm_id, of: *mut c_void, ports: c_uint) -> c_int
        = identifier::create(channel, id, of, ports);
    rdma_destroy_id(id: *mut rdma_cm_id) -> c_int = identifier::destroy(id);
    rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int = identifier::migrate(id, channel);
    rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int = identifier::bind(id, addr);
    rdma_resolve_addr(id: *mut rdma_cm_id, src: *mut sockaddr, dst: *mut sockaddr, _timeout_ms: c_int) -> c_int
        = identifier::resolve_addr(id, src, dst);
    rdma_resolve_route(id: *mut rdma_cm_id, _timeout_ms: c_int) -> c_int = identifier::resolve_route(id);
    rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int = identifier::listen(id, backlog);
    rdma_get_src_port(id: *mut rdma_cm_id) -> u16 = identifier::port(&raw const (*id).route.addr.src);
    rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 = identifier::port(&raw const (*id).route.addr.dst);
    rdma_set_option(id: *mut rdma_cm_id, level: c_int, option: c_int, value: *mut c_void, length: usize) -> c_int
        = identifier::set_option(id, level, option, value, length);
    rdma_get_devices(count: *mut c_int) -> *mut *mut ibv_context = identifier::devices(count);
    rdma_free_devices(list: *mut *mut ibv_context) = identifier::free_devices(list);
    rdma_create_qp(id: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> c_int = pairs::create(id, pd, attr);
    rdma_create_qp_ex(id: *mut rdma_cm_id, attr: *mut ibv_qp_init_attr_ex) -> c_int = pairs::create_ex(id, attr);
    rdma_destroy_qp(id: *mut rdma_cm_id) = pairs::destroy(id);
    rdma_create_srq(id: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> c_int
        = pairs::create_shared(id, pd, attr);
    rdma_create_srq_ex(id: *mut rdma_cm_id, attr: *mut ibv_srq_init_attr_ex) -> c_int = pairs::create_shared_ex(id, attr);
    rdma_destroy_srq(id: *mut rdma_cm_id) = pairs::destroy_shared(id);
    rdma_init_qp_attr(id: *mut rdma_cm_id, attr: *mut ibv_qp_attr, mask: *mut c_int) -> c_int
        = pairs::init_attributes(id, attr, mask);
    rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int = connect::connect(id, param);
    rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int = connect::accept(id, param);
    rdma_establish(id: *mut rdma_cm_id) -> c_int = connect::establish(id);
    rdma_reject(id: *mut rdma_cm_id, data: *const c_void, length: u8) -> c_int = connect::reject(id, data, length);
    rdma_reject_ece(id: *mut rdma_cm_id, data: *const c_void, length: u8) -> c_int = connect::reject(id, data, length);
    rdma_disconnect(id: *mut rdma_cm_id) -> c_int = connect::disconnect(id);
    rdma_notify(_id: *mut rdma_cm_id, _event: c_uint) -> c_int = 0;
    rdma_set_local_ece(_id: *mut rdma_cm_id, _ece: *mut ibv_ece) -> c_int = 0;
    rdma_get_remote_ece(_id: *mut rdma_cm_id, _ece: *mut ibv_ece) -> c_int = context::minus_one(libc::EOPNOTSUPP);
    rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int = events::next(channel, event);
    rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int = events::acknowledge(event);
    rdma_event_str(kind: c_uint) -> *const c_char = events::text(kind);
    rdma_getaddrinfo(node: *const c_char, service: *const c_char, hints: *const rdma_addrinfo, to: *mut *mut rdma_addrinfo) -> c_int
        = endpoint::look_up(node, service, hints, to);
    rdma_freeaddrinfo(info: *mut rdma_addrinfo) = endpoint::free(info);
    rdma_create_ep(id: *mut *mut rdma_cm_id, info: *mut rdma_addrinfo, pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> c_int
        = endpoint::create(id, info, pd, attr);
    rdma_destroy_ep(id: *mut rdma_cm_id) = endpoint::destroy(id);
    rdma_get_request(listener: *mut rdma_cm_id, id: *mut *mut rdma_cm_id) -> c_int = endpoint::request(listener, id);
}

/// Functions that answer -1 and name themselves.
macro_rules! not_emulated {
    ($($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> c_int {
            context::not_emulated(stringify!($name))
        }
    )* };
}

not_emulated! {
    rdma_join_multicast
    rdma_join_multicast_ex
    rdma_leave_multicast
    raccept
    rbind
    rclose
    rconnect
    rfcntl
    rgetpeername
    rgetsockname
    rgetsockopt
    riounmap
    riowrite
    rlisten
    rpoll
    rread
    rreadv
    rrecv
    rrecvfrom
    rrecvmsg
    rselect
    rsend
    rsendmsg
    rsendto
    rsetsockopt
    rshutdown
    rsocket
    rwrite
    rwritev
}

/// An offset in a file's place, -1 for an error.
#[unsafe(no_mangle)]
pub extern "C" fn riomap() -> i64 {
    context::not_emulated("riomap").into()
}

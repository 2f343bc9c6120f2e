//! `rdma_getaddrinfo`, and endpoints: identifiers that are resolved, bound or connected in one call.

use super::identifier;
use super::layout::*;
use super::message::{PORTS_TCP, PORTS_UDP};
use super::object::Identifier;
use super::{address, events, pairs};
use crate::connection::lock;
use crate::context::minus_one;
use isolane_rdma_verbs_sys::*;
use libc::{addrinfo, sockaddr_storage};
use std::ffi::{c_char, c_int};

/// Flags of `rdma_addrinfo`.
const PASSIVE: c_int = 1;
const NUMERIC_HOST: c_int = 2;
const FAMILY: c_int = 8;

/// A list entry; begins like the public structure, and holds its addresses.
#[repr(C)]
struct Entry {
    info: rdma_addrinfo,
    src: sockaddr_storage,
    dst: sockaddr_storage,
}

/// The first address that the C library finds.
unsafe fn looked_up(
    node: *const c_char,
    service: *const c_char,
    flags: c_int,
    family: c_int,
) -> Result<(std::net::IpAddr, u16), c_int> {
    // SAFETY: zero is a value of the structure; the names are the caller's.
    unsafe {
        let mut hints: addrinfo = std::mem::zeroed();
        hints.ai_socktype = libc::SOCK_STREAM;
        if flags & PASSIVE != 0 {
            hints.ai_flags |= libc::AI_PASSIVE;
        }
        if flags & NUMERIC_HOST != 0 {
            hints.ai_flags |= libc::AI_NUMERICHOST;
        }
        if flags & FAMILY != 0 {
            hints.ai_family = family;
        }
        let mut list = std::ptr::null_mut();
        let found = libc::getaddrinfo(node, service, &raw const hints, &raw mut list);
        if found != 0 {
            return Err(found);
        }
        let first = address::read((*list).ai_addr);
        libc::freeaddrinfo(list);
        first.ok_or(libc::EAI_FAMILY)
    }
}

/// `rdma_getaddrinfo`: 0, or an error of getaddrinfo(3), or -1 with `errno`. Without a node and a service, the addresses are those
/// of the hints.
///
/// # Safety
/// The names are null or terminated, `hints` is null or valid, and `target` is writable.
pub unsafe fn look_up(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    target: *mut *mut rdma_addrinfo,
) -> c_int {
    // SAFETY: zero is a value of these structures; the rest is the caller's promise.
    unsafe {
        let mut entry: Entry = std::mem::zeroed();
        let info = &mut entry.info;
        (info.ai_port_space, info.ai_qp_type) = (PORTS_TCP as c_int, IBV_QPT_RC as c_int);
        let (mut source, mut destination) = (None, None);
        if let Some(hints) = hints.as_ref() {
            info.ai_flags = hints.ai_flags;
            info.ai_family = hints.ai_family;
            if hints.ai_port_space != 0 {
                info.ai_port_space = hints.ai_port_space;
            }
            if hints.ai_port_space == PORTS_UDP as c_int {
                info.ai_qp_type = IBV_QPT_UD as c_int;
            }
            if hints.ai_qp_type != 0 {
                info.ai_qp_type = hints.ai_qp_type;
            }
            source = address::read(hints.ai_src_addr);
            destination = address::read(hints.ai_dst_addr);
        }
        if !node.is_null() || !service.is_null() {
            let found = match looked_up(node, service, info.ai_flags, info.ai_family) {
                Ok(found) => found,
                Err(error) => return error,
            };
            info.ai_family = family(found.0);
            match info.ai_flags & PASSIVE {
                0 => destination = Some(found),
                _ => (source, destination) = (Some(found), None),
            }
        } else if hints.is_null() {
            return minus_one(libc::EINVAL);
        }
        let entry = Box::leak(Box::new(entry));
        if let Some((ip, port)) = source {
            address::write(&mut entry.src, ip, port);
            entry.info.ai_src_addr = (&raw mut entry.src).cast();
            entry.info.ai_src_len = address::length(ip) as libc::socklen_t;
        }
        if let Some((ip, port)) = destination {
            address::write(&mut entry.dst, ip, port);
            entry.info.ai_dst_addr = (&raw mut entry.dst).cast();
            entry.info.ai_dst_len = address::length(ip) as libc::socklen_t;
        }
        *target = &raw mut entry.info;
    }
    0
}

/// The family of an address.
fn family(ip: std::net::IpAddr) -> c_int {
    match ip.is_ipv4() {
        true => libc::AF_INET,
        false => libc::AF_INET6,
    }
}

/// `rdma_freeaddrinfo`.
///
/// # Safety
/// [`look_up`] returned it.
pub unsafe fn free(info: *mut rdma_addrinfo) {
    if !info.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(info.cast::<Entry>()) });
    }
}

/// `rdma_create_ep`.
///
/// # Safety
/// `info` is of [`look_up`], `pd` and `attr` are null or valid, and `target` is writable.
pub unsafe fn create(
    target: *mut *mut rdma_cm_id,
    info: *const rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let info = &*info;
        let mut id = std::ptr::null_mut();
        let ports = info.ai_port_space as u32;
        if identifier::create(
            std::ptr::null_mut(),
            &raw mut id,
            std::ptr::null_mut(),
            ports,
        ) != 0
        {
            return -1;
        }
        if !pd.is_null() {
            (*id).pd = pd;
        }
        let result = match info.ai_flags & PASSIVE {
            0 => reach(id, info, pd, attr),
            _ => {
                lock(&Identifier::of(id).inner).endpoint = attr.as_ref().copied();
                identifier::bind(id, info.ai_src_addr)
            }
        };
        if result != 0 {
            let errno = super::manager::errno();
            destroy(id);
            return minus_one(errno);
        }
        *target = id;
    }
    0
}

/// An endpoint that connects: resolved, with a queue pair where the program describes one.
unsafe fn reach(
    id: *mut rdma_cm_id,
    info: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if identifier::resolve_addr(id, info.ai_src_addr, info.ai_dst_addr) != 0
            || identifier::resolve_route(id) != 0
        {
            return -1;
        }
        let Some(attr) = attr.as_mut() else { return 0 };
        attr.qp_type = (*id).qp_type;
        pairs::create(id, pd, attr)
    }
}

/// `rdma_destroy_ep`.
///
/// # Safety
/// [`create`] or [`request`] returned it, and nothing uses it any more.
pub unsafe fn destroy(id: *mut rdma_cm_id) {
    // SAFETY: the caller's promise.
    unsafe {
        pairs::destroy(id);
        pairs::destroy_shared(id);
        identifier::destroy(id);
    }
}

/// `rdma_get_request`: the next connection request of an endpoint that listens.
///
/// # Safety
/// The endpoint exists and `target` is writable.
pub unsafe fn request(listener: *mut rdma_cm_id, target: *mut *mut rdma_cm_id) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let (is_synchronous, endpoint) = {
            let inner = lock(&Identifier::of(listener).inner);
            (inner.is_synchronous, inner.endpoint)
        };
        if !is_synchronous {
            return minus_one(libc::EINVAL);
        }
        let before = std::mem::replace(&mut (*listener).event, std::ptr::null_mut());
        if !before.is_null() {
            events::acknowledge(before);
        }
        let mut event = std::ptr::null_mut();
        if events::next((*listener).channel, &raw mut event) != 0 {
            return -1;
        }
        if (*event).event != super::message::kind::CONNECT_REQUEST {
            events::acknowledge(event);
            return minus_one(libc::EINVAL);
        }
        let id = (*event).id;
        let ready = identifier::migrate(id, std::ptr::null_mut()) == 0
            && endpoint.is_none_or(|mut attr| {
                attr.qp_type = (*id).qp_type;
                let own = (*listener).pd;
                let same = !own.is_null() && (*own).context == (*id).verbs;
                pairs::create(
                    id,
                    if same { own } else { std::ptr::null_mut() },
                    &raw mut attr,
                ) == 0
            });
        if !ready {
            let errno = super::manager::errno();
            events::acknowledge(event);
            destroy(id);
            return minus_one(errno);
        }
        (*id).event = event;
        *target = id;
    }
    0
}

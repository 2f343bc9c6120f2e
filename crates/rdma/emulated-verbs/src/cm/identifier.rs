//! Channels and identifiers: creation, binding, resolving, listening.

use super::address::{self, Meaning};
use super::events;
use super::layout::*;
use super::manager::{self, call, hosts, own_host, sees};
use super::message::{NO_HOST, PORTS_TCP, PORTS_UDP};
use super::object::{Channel, Identifier, ask, attach, done, number_of, place};
use crate::connection::{lock, say};
use crate::context::{minus_one, null};
use crate::wire::{Writer, op, pack};
use isolane_rdma_verbs_sys::*;
use libc::sockaddr;
use std::ffi::{c_int, c_uint, c_void};
use std::net::IpAddr;
use std::os::fd::AsRawFd;

/// `rdma_create_event_channel`.
pub fn create_channel() -> *mut rdma_event_channel {
    let answer = match call(&Writer::of(&[op::CM_CREATE_CHANNEL])) {
        Ok(answer) => answer,
        Err(errno) => return null(errno),
    };
    let number = answer.reader().number();
    match (number, answer.fd) {
        (Some(number), Some(events)) => {
            let channel = rdma_event_channel {
                fd: events.as_raw_fd(),
            };
            manager::set_channel(number, true);
            Box::into_raw(Box::new(Channel {
                channel,
                number,
                events,
            }))
            .cast()
        }
        _ => null(libc::EPROTO),
    }
}

/// `rdma_destroy_event_channel`.
///
/// # Safety
/// [`create_channel`] returned it, and nothing uses it any more.
pub unsafe fn destroy_channel(channel: *mut rdma_event_channel) {
    // SAFETY: the caller's promise.
    let channel = unsafe { Box::from_raw(channel.cast::<Channel>()) };
    manager::set_channel(channel.number, false);
    let _ = ask(op::CM_DESTROY_CHANNEL, channel.number, 0);
}

/// `rdma_create_id`.
///
/// # Safety
/// The channel is null or exists, and `target` is writable.
pub unsafe fn create(
    channel: *mut rdma_event_channel,
    target: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ports: c_uint,
) -> c_int {
    if !matches!(ports, PORTS_TCP | PORTS_UDP) {
        say(
            "rdma_create_id: the port spaces IPOIB and IB are not emulated; use RDMA_PS_TCP or RDMA_PS_UDP",
        );
        return minus_one(libc::EOPNOTSUPP);
    }
    let own = channel.is_null();
    let channel = if own { create_channel() } else { channel };
    if channel.is_null() {
        return -1;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let request = Writer::of(&[op::CM_CREATE_ID, pack(number_of(channel), ports)]);
        let created =
            call(&request).and_then(|answer| answer.reader().number().ok_or(libc::EPROTO));
        match created {
            Ok(number) => {
                *target = place(number, channel, context, ports);
                lock(&Identifier::of(*target).inner).is_synchronous = own;
                0
            }
            Err(errno) => {
                if own {
                    destroy_channel(channel);
                }
                minus_one(errno)
            }
        }
    }
}

/// `rdma_destroy_id`.
///
/// # Safety
/// The library gave it out, its queue pair is destroyed, and nothing uses it any more.
pub unsafe fn destroy(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let mut ours = Box::from_raw(id.cast::<Identifier>());
        manager::forget(ours.number);
        let answer = ask(op::CM_DESTROY_ID, ours.number, 0);
        let is_synchronous = lock(&ours.inner).is_synchronous;
        let public = ours.id.get_mut();
        if !public.event.is_null() {
            events::acknowledge(public.event);
        }
        if is_synchronous {
            destroy_channel(public.channel);
        }
        done(answer)
    }
}

/// `rdma_migrate_id`: to another channel, or to one of its own.
///
/// # Safety
/// The identifier and the channel exist.
pub unsafe fn migrate(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int {
    let own = channel.is_null();
    let channel = if own { create_channel() } else { channel };
    if channel.is_null() {
        return -1;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let ours = Identifier::of(id);
        if let Err(errno) = ask(op::CM_MIGRATE, ours.number, number_of(channel)) {
            if own {
                destroy_channel(channel);
            }
            return minus_one(errno);
        }
        let before = std::mem::replace(&mut lock(&ours.inner).is_synchronous, own);
        if before {
            if !(*id).event.is_null() {
                events::acknowledge((*id).event);
                (*id).event = std::ptr::null_mut();
            }
            destroy_channel((*id).channel);
        }
        (*id).channel = channel;
    }
    0
}

/// The host that an address to bind means; [`NO_HOST`] for all.
fn bindable(address: IpAddr) -> Result<u32, c_int> {
    let host = match address::meaning(address, hosts()?) {
        Meaning::Any => return Ok(own_host().unwrap_or(NO_HOST)),
        Meaning::Loopback => own_host().or(hosts()?.first().map(|facts| facts.host)),
        Meaning::Host(host) => Some(host),
        Meaning::Group | Meaning::Unknown => None,
    };
    host.filter(|host| sees(*host)).ok_or(libc::EADDRNOTAVAIL)
}

/// `rdma_bind_addr`.
///
/// # Safety
/// The identifier exists and `addr` is a socket address.
pub unsafe fn bind(id: *mut rdma_cm_id, addr: *const sockaddr) -> c_int {
    // SAFETY: the caller's promise.
    let Some((address, port)) = (unsafe { address::read(addr) }) else {
        return minus_one(libc::EAFNOSUPPORT);
    };
    // SAFETY: the caller's promise.
    done(unsafe { bind_at(id, address, port) })
}

unsafe fn bind_at(id: *mut rdma_cm_id, address: IpAddr, port: u16) -> Result<(), c_int> {
    let host = bindable(address)?;
    // SAFETY: the caller's promise.
    unsafe {
        let number = Identifier::of(id).number;
        let request = Writer::of(&[op::CM_BIND, pack(number, host), u64::from(port)]);
        let port = call(&request)?.reader().number().ok_or(libc::EPROTO)?;
        let port = u16::try_from(port).map_err(|_| libc::EPROTO)?;
        address::write(&mut (*id).route.addr.src, address, port);
        if !address.is_unspecified() {
            attach(id, host)?;
        }
    }
    Ok(())
}

/// `rdma_listen`.
///
/// # Safety
/// The identifier exists.
pub unsafe fn listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if port(&raw const (*id).route.addr.src) == 0 {
            let any = IpAddr::from([0; 4]);
            if let Err(errno) = bind_at(id, any, 0) {
                return minus_one(errno);
            }
        }
        let backlog = u32::try_from(backlog).unwrap_or(0);
        done(ask(op::CM_LISTEN, Identifier::of(id).number, backlog))
    }
}

/// The port of an address, in network order.
///
/// # Safety
/// The address is readable.
pub unsafe fn port(address: *const libc::sockaddr_storage) -> u16 {
    // SAFETY: the caller's promise.
    unsafe { address::read(address.cast()) }.map_or(0, |(_, port)| port.to_be())
}

/// The own host and the other end's for a connection to `to`. The first host that is not the other end's is taken where
/// neither the program nor `--host` names one, so that the messages cross the switch.
fn hosts_of(from: Option<u32>, to: IpAddr) -> Result<(u32, u32), c_int> {
    let all = hosts()?;
    let meaning = address::meaning(to, all);
    let there = match meaning {
        Meaning::Host(host) => Some(host),
        _ => None,
    };
    let visible = || {
        all.iter()
            .map(|facts| facts.host)
            .filter(|host| sees(*host))
    };
    let other = visible().find(|host| there.is_some_and(|there| there != *host));
    let here = from
        .or_else(own_host)
        .or(other)
        .or_else(|| visible().next());
    let here = here.filter(|host| sees(*host)).ok_or(libc::ENODEV)?;
    let there = match meaning {
        Meaning::Host(host) => host,
        Meaning::Loopback | Meaning::Any | Meaning::Group => here,
        Meaning::Unknown => {
            say(&format!(
                "{to} is no address of an emulated host; the hosts have {} to {}",
                address::of_host(0),
                address::of_host(all.len() as u32 - 1)
            ));
            NO_HOST
        }
    };
    Ok((here, there))
}

/// `rdma_resolve_addr`; the model's network needs no time for it, so that the timeout is not looked at.
///
/// # Safety
/// The identifier exists, `src` is null or a socket address, and `dst` is one.
pub unsafe fn resolve_addr(
    id: *mut rdma_cm_id,
    src: *const sockaddr,
    dst: *const sockaddr,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let result = resolve(id, address::read(src), address::read(dst));
        match result {
            Ok(()) => events::complete(id),
            Err(errno) => minus_one(errno),
        }
    }
}

unsafe fn resolve(
    id: *mut rdma_cm_id,
    src: Option<(IpAddr, u16)>,
    dst: Option<(IpAddr, u16)>,
) -> Result<(), c_int> {
    let (to, to_port) = dst.ok_or(libc::EAFNOSUPPORT)?;
    // SAFETY: the caller's promise.
    unsafe {
        if let Some((address, port)) = src
            && address::read((&raw const (*id).route.addr.src).cast()).is_none()
        {
            bind_at(id, address, port)?;
        }
        let bound = address::read((&raw const (*id).route.addr.src).cast());
        let from = match bound {
            Some((address, _)) => Some(bindable(address)?).filter(|host| *host != NO_HOST),
            None => None,
        };
        let (here, there) = hosts_of(from, to)?;
        let ours = Identifier::of(id);
        let request = Writer::of(&[
            op::CM_RESOLVE_ADDR,
            pack(ours.number, here),
            pack(there, u32::from(to_port)),
        ]);
        attach(id, here)?;
        lock(&ours.inner).remote_host = Some(there);
        address::write(&mut (*id).route.addr.dst, to, to_port);
        call(&request).map(|_| ())
    }
}

/// `rdma_resolve_route`.
///
/// # Safety
/// The identifier exists.
pub unsafe fn resolve_route(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        match ask(op::CM_RESOLVE_ROUTE, Identifier::of(id).number, 0) {
            Ok(()) => events::complete(id),
            Err(errno) => minus_one(errno),
        }
    }
}

/// `rdma_set_option`: the traffic class; the others change nothing here.
///
/// # Safety
/// The identifier exists and `length` bytes at `value` are readable.
pub unsafe fn set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    option: c_int,
    value: *const c_void,
    length: usize,
) -> c_int {
    /// `RDMA_OPTION_ID` and its options.
    const LEVEL_ID: c_int = 0;
    const TRAFFIC_CLASS: c_int = 0;
    const OPTIONS: c_int = 4;
    if level != LEVEL_ID || !(0..OPTIONS).contains(&option) {
        return minus_one(libc::ENOSYS);
    }
    if option == TRAFFIC_CLASS {
        if length != 1 {
            return minus_one(libc::EINVAL);
        }
        // SAFETY: the caller's promise.
        unsafe { lock(&Identifier::of(id).inner).traffic_class = value.cast::<u8>().read() };
    }
    0
}

/// `rdma_get_devices`: the devices that this program sees, all open.
///
/// # Safety
/// `count` is null or writable.
pub unsafe fn devices(count: *mut c_int) -> *mut *mut ibv_context {
    let all = match hosts() {
        Ok(all) => all,
        Err(errno) => return null(errno),
    };
    let visible = all
        .iter()
        .map(|facts| facts.host)
        .filter(|host| sees(*host));
    let opened = visible.map(|host| manager::opened(host).map(|(context, _)| context));
    let mut list: Vec<*mut ibv_context> = match opened.collect() {
        Ok(list) => list,
        Err(errno) => return null(errno),
    };
    // SAFETY: the caller's promise.
    unsafe {
        if !count.is_null() {
            *count = list.len() as c_int;
        }
    }
    list.push(std::ptr::null_mut());
    let list: Box<[*mut ibv_context]> = list.into();
    Box::leak(list).as_mut_ptr()
}

/// `rdma_free_devices`.
///
/// # Safety
/// [`devices`] returned the list.
pub unsafe fn free_devices(list: *mut *mut ibv_context) {
    let mut length = 1;
    // SAFETY: the list ends with a null pointer, and its box has exactly these entries.
    unsafe {
        while !(*list.add(length - 1)).is_null() {
            length += 1;
        }
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(
            list, length,
        )));
    }
}

//! Events: reading them from a channel, and what the library does before the program sees one.

use super::layout::*;
use super::manager::{self, call};
use super::message::{Event, Parameters, kind};
use super::object::{Identifier, ask, attach, name_ends, number_of, place};
use super::pairs;
use crate::connection::lock;
use crate::context::minus_one;
use crate::wire::{Writer, op, pack};
use std::ffi::{c_int, c_void};

/// An event that the program has; begins like the public structure.
#[repr(C)]
struct Given {
    event: rdma_cm_event,
    private_data: Vec<u8>,
}

/// Bytes of private data that a device hands over, however few were sent: of a connection request, an answer, a rejection;
/// of a request for datagrams, its answer.
const REQUEST: usize = 56;
const ANSWER: usize = 196;
const REJECTION: usize = 148;
const DATAGRAM_REQUEST: usize = 180;
const DATAGRAM_ANSWER: usize = 136;

/// The most private data that a program may send: of `(request, answer)` for connections or datagrams.
pub(super) const fn room(is_datagram: bool, is_request: bool) -> usize {
    match (is_datagram, is_request) {
        (false, true) => REQUEST,
        (false, false) => ANSWER,
        (true, true) => DATAGRAM_REQUEST,
        (true, false) => DATAGRAM_ANSWER,
    }
}

/// `rdma_get_cm_event`.
///
/// # Safety
/// The channel exists and `target` is writable.
pub unsafe fn next(channel: *mut rdma_event_channel, target: *mut *mut rdma_cm_event) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let number = number_of(channel);
        loop {
            if let Err(errno) = wait((*channel).fd, number) {
                return minus_one(errno);
            }
            let event = match call(&Writer::of(&[op::CM_EVENT, pack(number, 0)])) {
                Ok(answer) => Event::read(&mut answer.reader()),
                // What it was about is gone.
                Err(libc::ENOENT) => continue,
                Err(errno) => return minus_one(errno),
            };
            let Some(event) = event else {
                return minus_one(libc::EPROTO);
            };
            if let Some(given) = given(channel, event) {
                *target = Box::into_raw(Box::new(given)).cast();
                return 0;
            }
        }
    }
}

/// Takes the byte that stands for an event; waits for it where the descriptor blocks. A thread whose channel another thread
/// destroys waits for ever, as in the kernel: programs like rping end while a thread waits.
fn wait(descriptor: c_int, channel: u32) -> Result<(), c_int> {
    let mut byte = [0_u8];
    // SAFETY: one byte is writable.
    match unsafe { libc::read(descriptor, byte.as_mut_ptr().cast(), 1) } {
        1 => Ok(()),
        0 if !manager::has_channel(channel) => loop {
            // SAFETY: the call has no arguments.
            unsafe { libc::pause() };
        },
        0 => Err(libc::EIO),
        _ => Err(manager::errno()),
    }
}

/// The event for the program; `None` if its identifier is destroyed.
unsafe fn given(channel: *mut rdma_event_channel, event: Event) -> Option<Given> {
    let listener = match event.kind {
        kind::CONNECT_REQUEST => match manager::identifier(event.listener) {
            Some(listener) => Some(listener),
            // Another thread has destroyed the listener meanwhile: the other end is to know it.
            None => {
                let _ = ask(op::CM_DESTROY_ID, event.id, 0);
                return None;
            }
        },
        _ => None,
    };
    // SAFETY: identifiers that the library knows are not destroyed; the channel is the caller's.
    unsafe {
        let id = match listener {
            Some(listener) => {
                let id = place(event.id, channel, (*listener).context, (*listener).ps);
                request(id, &event);
                id
            }
            None => manager::identifier(event.id)?,
        };
        let (kind, status) = react(id, &event);
        let ours = Identifier::of(id);
        let is_request = kind == kind::CONNECT_REQUEST;
        let mut private_data = event.parameters.private_data.clone();
        let carries = match kind {
            kind::REJECTED => REJECTION,
            kind::CONNECT_REQUEST | kind::CONNECT_RESPONSE => room(ours.is_datagram(), is_request),
            kind::ESTABLISHED if event.parameters != Parameters::default() => {
                room(ours.is_datagram(), false)
            }
            _ => 0,
        };
        private_data.resize(carries, 0);
        let param = parameters(id, &event.parameters, &private_data);
        Some(Given {
            event: rdma_cm_event {
                id,
                listen_id: listener.unwrap_or(std::ptr::null_mut()),
                event: kind,
                status,
                param,
            },
            private_data,
        })
    }
}

/// A connection request: the new identifier has a device and both addresses.
unsafe fn request(id: *mut rdma_cm_id, event: &Event) {
    // SAFETY: the caller's promise.
    unsafe {
        let ours = Identifier::of(id);
        let mut inner = lock(&ours.inner);
        inner.remote_host = Some(event.remote.0);
        inner.peer = event.parameters.clone();
        drop(inner);
        // Without a device the program cannot create a queue pair, and rejects the request.
        let _ = attach(id, event.local.0);
        name_ends(id, event.local, event.remote);
    }
}

/// What the library does on an event; the kind and the status that the program sees.
unsafe fn react(id: *mut rdma_cm_id, event: &Event) -> (u32, c_int) {
    let unchanged = (event.kind, event.status);
    // SAFETY: the caller's promise.
    unsafe {
        let ours = Identifier::of(id);
        match event.kind {
            kind::ADDR_RESOLVED => {
                name_ends(id, event.local, event.remote);
                unchanged
            }
            kind::CONNECT_RESPONSE => {
                {
                    let mut inner = lock(&ours.inner);
                    inner.peer = event.parameters.clone();
                    // What the other end requests is what this end answers.
                    inner.depths = (
                        event.parameters.initiator_depth,
                        event.parameters.responder_resources,
                    );
                    inner.retries.1 = event.parameters.rnr_retry_count;
                }
                if (*id).qp.is_null() {
                    return unchanged;
                }
                let ready = pairs::be_ready(id);
                match ready.and_then(|()| ask(op::CM_ESTABLISH, ours.number, 0)) {
                    Ok(()) => (kind::ESTABLISHED, 0),
                    Err(errno) => {
                        pairs::fail(id);
                        (kind::CONNECT_ERROR, -errno)
                    }
                }
            }
            kind::ESTABLISHED if ours.is_datagram() => {
                lock(&ours.inner).peer = event.parameters.clone();
                unchanged
            }
            kind::REJECTED => {
                pairs::fail(id);
                unchanged
            }
            _ => unchanged,
        }
    }
}

unsafe fn parameters(
    id: *mut rdma_cm_id,
    from: &Parameters,
    private_data: &[u8],
) -> rdma_event_param {
    let place: *const c_void = match private_data.is_empty() {
        true => std::ptr::null(),
        false => private_data.as_ptr().cast(),
    };
    let length = private_data.len() as u8;
    // SAFETY: the caller's promise.
    unsafe {
        // SAFETY: integers and pointers only, so that zero is a value of each.
        let mut param: rdma_event_param = std::mem::zeroed();
        if Identifier::of(id).is_datagram() {
            param.ud = rdma_ud_param {
                private_data: place,
                private_data_len: length,
                // A host without a device has no way; its event has no queue pair either.
                ah_attr: pairs::way(id).unwrap_or(param.ud.ah_attr),
                qp_num: from.qp_num,
                qkey: pairs::DATAGRAM_KEY,
            };
        } else {
            param.conn = rdma_conn_param {
                private_data: place,
                private_data_len: length,
                responder_resources: from.initiator_depth,
                initiator_depth: from.responder_resources,
                flow_control: from.flow_control,
                retry_count: from.retry_count,
                rnr_retry_count: from.rnr_retry_count,
                srq: from.srq,
                qp_num: from.qp_num,
            };
        }
        param
    }
}

/// `rdma_ack_cm_event`: frees the event.
///
/// # Safety
/// [`next`] returned it.
pub unsafe fn acknowledge(event: *mut rdma_cm_event) -> c_int {
    if event.is_null() {
        return minus_one(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(event.cast::<Given>()) });
    0
}

/// Of an identifier without a channel, waits for the event of a call and keeps it as `id->event`.
///
/// # Safety
/// The identifier exists.
pub(super) unsafe fn complete(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if !lock(&Identifier::of(id).inner).is_synchronous {
            return 0;
        }
        let before = std::mem::replace(&mut (*id).event, std::ptr::null_mut());
        if !before.is_null() {
            acknowledge(before);
        }
        if next((*id).channel, &raw mut (*id).event) != 0 {
            return -1;
        }
        let event = &*(*id).event;
        match (event.status, event.event) {
            (0, _) => 0,
            (_, kind::REJECTED) => minus_one(libc::ECONNREFUSED),
            (status, _) => minus_one(status.abs()),
        }
    }
}

/// `rdma_event_str`.
pub fn text(kind: u32) -> *const std::ffi::c_char {
    const NAMES: [&std::ffi::CStr; 16] = [
        c"RDMA_CM_EVENT_ADDR_RESOLVED",
        c"RDMA_CM_EVENT_ADDR_ERROR",
        c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        c"RDMA_CM_EVENT_ROUTE_ERROR",
        c"RDMA_CM_EVENT_CONNECT_REQUEST",
        c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        c"RDMA_CM_EVENT_CONNECT_ERROR",
        c"RDMA_CM_EVENT_UNREACHABLE",
        c"RDMA_CM_EVENT_REJECTED",
        c"RDMA_CM_EVENT_ESTABLISHED",
        c"RDMA_CM_EVENT_DISCONNECTED",
        c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        c"RDMA_CM_EVENT_MULTICAST_JOIN",
        c"RDMA_CM_EVENT_MULTICAST_ERROR",
        c"RDMA_CM_EVENT_ADDR_CHANGE",
        c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
    ];
    let found = NAMES.get(kind as usize).copied();
    found.unwrap_or(c"UNKNOWN EVENT").as_ptr()
}

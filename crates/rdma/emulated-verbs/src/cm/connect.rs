//! Connecting, accepting, rejecting, and the end of a connection.

use super::events::{self, room};
use super::layout::*;
use super::manager::call;
use super::message::Parameters;
use super::object::{Identifier, ask, done};
use super::pairs;
use crate::connection::lock;
use crate::context::minus_one;
use crate::wire::{Writer, op, pack};
use std::ffi::{c_int, c_void};

/// READs and atomics at once that our devices have: `max_qp_rd_atom`.
const DEPTH_MAX: u8 = 16;
/// "As many as the device has": `RDMA_MAX_RESP_RES` and `RDMA_MAX_INIT_DEPTH`.
const MOST: u8 = u8::MAX;
/// Retries of a program that names no parameters, as in librdmacm.
const RETRIES: u8 = 7;

/// Copies private data.
///
/// # Safety
/// `length` bytes at `data` are readable, or `data` is null.
unsafe fn copied(data: *const c_void, length: u8, room: usize) -> Result<Vec<u8>, c_int> {
    let length = usize::from(length);
    if data.is_null() || length == 0 {
        return Ok(Vec::new());
    }
    if length > room {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) }.to_vec())
}

/// The parameters that the program gives, with those of its queue pair.
unsafe fn own(
    id: *mut rdma_cm_id,
    param: *const rdma_conn_param,
    is_request: bool,
) -> Result<Parameters, c_int> {
    // SAFETY: the callers' promise.
    unsafe {
        let ours = Identifier::of(id);
        let given = param.as_ref().copied().unwrap_or(rdma_conn_param {
            private_data: std::ptr::null(),
            private_data_len: 0,
            responder_resources: MOST,
            initiator_depth: MOST,
            flow_control: 0,
            retry_count: RETRIES,
            rnr_retry_count: RETRIES,
            srq: 0,
            qp_num: 0,
        });
        let depth = |wanted: u8| match wanted {
            MOST => DEPTH_MAX,
            wanted => wanted,
        };
        let (qp_num, srq) = match (*id).qp.as_ref() {
            Some(qp) => (qp.qp_num, u8::from(!qp.srq.is_null())),
            None => (given.qp_num, given.srq),
        };
        let room = room(ours.is_datagram(), is_request);
        Ok(Parameters {
            qp_num,
            responder_resources: depth(given.responder_resources),
            initiator_depth: depth(given.initiator_depth),
            flow_control: given.flow_control,
            retry_count: given.retry_count.min(RETRIES),
            rnr_retry_count: given.rnr_retry_count.min(RETRIES),
            srq,
            private_data: copied(given.private_data, given.private_data_len, room)?,
        })
    }
}

fn send(operation: u64, number: u32, parameters: &Parameters) -> Result<(), c_int> {
    let mut request = Writer::of(&[operation, pack(number, 0)]);
    parameters.write(&mut request);
    call(&request).map(|_| ())
}

/// `rdma_connect`.
///
/// # Safety
/// The identifier exists and `param` is null or valid.
pub unsafe fn connect(id: *mut rdma_cm_id, param: *const rdma_conn_param) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let ours = Identifier::of(id);
        let sent = own(id, param, true).and_then(|own| {
            let mut inner = lock(&ours.inner);
            inner.retries = (own.retry_count, own.rnr_retry_count);
            drop(inner);
            send(op::CM_CONNECT, ours.number, &own)
        });
        match sent {
            Ok(()) => events::complete(id),
            Err(errno) => minus_one(errno),
        }
    }
}

/// `rdma_accept`.
///
/// # Safety
/// The identifier is that of a connection request, and `param` is null or valid.
pub unsafe fn accept(id: *mut rdma_cm_id, param: *const rdma_conn_param) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let ours = Identifier::of(id);
        let accepted = own(id, param, false).and_then(|mut own| {
            let mut inner = lock(&ours.inner);
            // Neither end requests more than the other one answers.
            let peer = &inner.peer;
            own.responder_resources = own.responder_resources.min(peer.initiator_depth);
            own.initiator_depth = own.initiator_depth.min(peer.responder_resources);
            inner.depths = (own.responder_resources, own.initiator_depth);
            // The other end's word about its receiver, and its retries.
            inner.retries = (inner.peer.retry_count, inner.peer.rnr_retry_count);
            drop(inner);
            pairs::be_ready(id)?;
            send(op::CM_ACCEPT, ours.number, &own)
        });
        match accepted {
            Ok(()) if ours.is_datagram() => 0,
            Ok(()) => events::complete(id),
            Err(errno) => {
                pairs::fail(id);
                minus_one(errno)
            }
        }
    }
}

/// `rdma_reject`.
///
/// # Safety
/// The identifier exists and `length` bytes at `data` are readable.
pub unsafe fn reject(id: *mut rdma_cm_id, data: *const c_void, length: u8) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let ours = Identifier::of(id);
        done(copied(data, length, REJECTION).and_then(|private_data| {
            let parameters = Parameters {
                private_data,
                ..Parameters::default()
            };
            send(op::CM_REJECT, ours.number, &parameters)
        }))
    }
}

/// Private data of a rejection, bytes.
const REJECTION: usize = 148;

/// `rdma_establish`: for programs that change the states of their queue pairs themselves.
///
/// # Safety
/// The identifier exists.
pub unsafe fn establish(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        // The library itself does it for an identifier with a queue pair.
        if !(*id).qp.is_null() {
            return minus_one(libc::EINVAL);
        }
        done(ask(op::CM_ESTABLISH, Identifier::of(id).number, 0))
    }
}

/// `rdma_disconnect`.
///
/// # Safety
/// The identifier exists.
pub unsafe fn disconnect(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        pairs::fail(id);
        match ask(op::CM_DISCONNECT, Identifier::of(id).number, 0) {
            Ok(()) => events::complete(id),
            Err(errno) => minus_one(errno),
        }
    }
}

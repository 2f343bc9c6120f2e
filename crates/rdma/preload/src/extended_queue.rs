//! Extended completion queues: the application polls them through functions of the queue, which the shim replaces.
//!
//! Method: each function calls the provider's and translates the current completion as [`crate::completion_queue`]
//! does. Limits: nothing is stored for extended queues, see there.

use crate::completion_queue::{CompletionQueue, Extended, ReadOpcode};
use crate::places::Places;
use crate::process::{Process, process};
use crate::ring::Name;
use isolane_rdma_verbs_sys::*;
use std::ffi::c_int;

/// Puts our functions into an extended completion queue.
///
/// # Safety
/// `cq` was just created and is not in use.
pub(crate) unsafe fn extend(queue: &CompletionQueue, cq: *mut ibv_cq_ex) {
    // SAFETY: the caller's promise.
    unsafe {
        let (Some(start_poll), Some(next_poll), Some(end_poll)) =
            ((*cq).start_poll, (*cq).next_poll, (*cq).end_poll)
        else {
            return;
        };
        queue.set_extended(Extended {
            start_poll,
            next_poll,
            end_poll,
            read_byte_len: (*cq).read_byte_len,
            read_qp_num: (*cq).read_qp_num,
            read_opcode: (*cq).read_opcode,
        });
        (*cq).start_poll = Some(start);
        (*cq).next_poll = Some(next);
        if (*cq).read_byte_len.is_some() {
            (*cq).read_byte_len = Some(read_byte_len);
        }
    }
}

fn known(cq: *mut ibv_cq_ex) -> Option<(&'static Process, &'static CompletionQueue, Extended)> {
    let process = process()?;
    let queue = process.completion_queue(cq.cast())?;
    let extended = queue.extended()?;
    Some((process, queue, extended))
}

/// Translates the current completion of an extended poll. Returns false if it is ours.
///
/// # Safety
/// Between start and end of a poll.
unsafe fn turn_back(
    places: &Places,
    queue: &CompletionQueue,
    extended: &Extended,
    cq: *mut ibv_cq_ex,
) -> bool {
    // SAFETY: the caller's promise; the provider has filled identifier and status.
    unsafe {
        let Some(name) = Name::decode((*cq).wr_id, places.tag) else {
            queue.set_current_bytes(None);
            return true;
        };
        let is_receive = |read: ReadOpcode| read(cq) & IBV_WC_RECV != 0;
        if (*cq).status == IBV_WC_SUCCESS && extended.read_opcode.is_some_and(is_receive) {
            // A successful receive, whose identifier may look like one of ours. A flushed one stays hidden: a failed
            // completion has no opcode to tell it by.
            queue.set_current_bytes(None);
            return true;
        }
        let number = extended.read_qp_num.map(|read| read(cq));
        let seen = places.get(name.place).and_then(|queue_pair| {
            Some((queue_pair, queue_pair.complete(name, number, (*cq).status)?))
        });
        let Some((queue_pair, seen)) = seen else {
            return false;
        };
        queue_pair.deliver(&seen);
        (*cq).wr_id = seen.entry.wr_id;
        (*cq).status = seen.entry.status((*cq).status);
        queue.set_current_bytes(Some((
            seen.entry.last_chunk as u32,
            seen.entry.total as u32,
        )));
        true
    }
}

unsafe extern "C" fn start(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    let Some((process, queue, extended)) = known(cq) else {
        return libc::ENOENT;
    };
    // SAFETY: the application polls an extended queue by its own functions, which follow their protocol here.
    unsafe {
        let mut answer = (extended.start_poll)(cq, attr);
        if answer != 0 {
            return answer;
        }
        while !turn_back(&process.places, queue, &extended, cq) {
            answer = (extended.next_poll)(cq);
            if answer != 0 {
                (extended.end_poll)(cq);
                return answer;
            }
        }
        0
    }
}

unsafe extern "C" fn next(cq: *mut ibv_cq_ex) -> c_int {
    let Some((process, queue, extended)) = known(cq) else {
        return libc::ENOENT;
    };
    // SAFETY: as for `start`.
    unsafe {
        loop {
            let answer = (extended.next_poll)(cq);
            if answer != 0 || turn_back(&process.places, queue, &extended, cq) {
                return answer;
            }
        }
    }
}

unsafe extern "C" fn read_byte_len(cq: *mut ibv_cq_ex) -> u32 {
    let Some((_, queue, extended)) = known(cq) else {
        return 0;
    };
    let Some(read) = extended.read_byte_len else {
        return 0;
    };
    // SAFETY: the provider's own function, between start and end of a poll.
    let bytes = unsafe { read(cq) };
    match queue.current_bytes() {
        Some((last, total)) if last == bytes => total,
        _ => bytes,
    }
}

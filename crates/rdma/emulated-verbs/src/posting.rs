//! Work requests posted as lists: `ibv_post_send`, `ibv_post_recv`, `ibv_post_srq_recv`.

use crate::address::Address;
use crate::attributes::{Element, SendRequest, write_elements};
use crate::connection::lock;
use crate::context::{Context, MESSAGE_MAX as LONGEST};
use crate::queue_pair::{Pair, flags};
use crate::shared_receive::SharedReceives;
use crate::wire::{ELEMENTS_MAX, INLINE_MAX, MESSAGE_MAX, SEND_WORDS, Writer, op};
use isolane_rdma_verbs_sys::*;
use std::ffi::c_int;
use std::sync::atomic::Ordering;

/// Bytes that one more work request may take.
const REQUEST_BYTES_MAX: usize = 8 * SEND_WORDS + 16 * ELEMENTS_MAX + INLINE_MAX;

/// The elements of a work request.
///
/// # Safety
/// `list` has `count` readable elements.
unsafe fn elements(list: *const ibv_sge, count: c_int) -> Vec<Element> {
    let element = |index| {
        // SAFETY: the caller's promise.
        let sge = unsafe { &*list.add(index) };
        Element {
            addr: sge.addr,
            length: sge.length,
            lkey: sge.lkey,
        }
    };
    (0..count as usize).map(element).collect()
}

/// Bytes at an element's address.
///
/// # Safety
/// The program promises that the memory is there.
unsafe fn bytes_of(element: &Element) -> Vec<u8> {
    if element.length == 0 {
        return Vec::new();
    }
    let from = std::ptr::with_exposed_provenance::<u8>(element.addr as usize);
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(from, element.length as usize) }.to_vec()
}

/// Whether a device takes such a request: an `errno` value if not.
pub(crate) fn check(pair: &Pair, request: &SendRequest) -> Result<(), c_int> {
    let kind = pair.qp.qp_base.qp_type;
    let atomic = matches!(
        request.opcode,
        IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD
    );
    // SAFETY: a queue pair of ours, which lives while it is posted to.
    if atomic && !unsafe { pair.has_atomics() } {
        return Err(libc::EOPNOTSUPP);
    }
    let known = match kind {
        IBV_QPT_RC => request.opcode <= IBV_WR_SEND_WITH_INV,
        IBV_QPT_UC => {
            matches!(
                request.opcode,
                IBV_WR_RDMA_WRITE
                    | IBV_WR_RDMA_WRITE_WITH_IMM
                    | IBV_WR_SEND
                    | IBV_WR_SEND_WITH_IMM
                    | IBV_WR_LOCAL_INV
                    | IBV_WR_BIND_MW
                    | IBV_WR_SEND_WITH_INV
            )
        }
        _ => matches!(request.opcode, IBV_WR_SEND | IBV_WR_SEND_WITH_IMM),
    };
    let inline = request.inline.as_ref().map_or(0, Vec::len);
    let fits = request.elements.len() <= pair.cap.max_send_sge.max(1) as usize
        && inline <= pair.cap.max_inline_data as usize
        && request.length() <= u64::from(LONGEST);
    match known && fits {
        true => Ok(()),
        false => Err(libc::EINVAL),
    }
}

/// A list's request as the broker gets it.
///
/// # Safety
/// The request is valid as the manual page demands.
unsafe fn translated(pair: &Pair, wr: &ibv_send_wr) -> Result<SendRequest, c_int> {
    if wr.num_sge < 0 || wr.num_sge as usize > ELEMENTS_MAX {
        return Err(libc::EINVAL);
    }
    let mut request = SendRequest {
        wr_id: wr.wr_id,
        opcode: wr.opcode,
        flags: flags(pair, wr.send_flags),
        immediate: wr.imm_data,
        // SAFETY: the caller's promise.
        elements: unsafe { elements(wr.sg_list, wr.num_sge) },
        ..SendRequest::default()
    };
    if request.flags & IBV_SEND_INLINE != 0 {
        if request.length() > u64::from(pair.cap.max_inline_data) {
            return Err(libc::EINVAL);
        }
        // SAFETY: the program promises that inline data is there; keys do not count.
        let bytes = |element: &Element| unsafe { bytes_of(element) };
        request.inline = Some(request.elements.iter().flat_map(bytes).collect());
        request.elements.clear();
    }
    // SAFETY: the opcode and the queue pair's type say which member holds; all of them are integers and pointers.
    unsafe {
        match wr.opcode {
            IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD => {
                request.remote_addr = wr.wr.atomic.remote_addr;
                request.rkey = wr.wr.atomic.rkey;
                request.compare_add = wr.wr.atomic.compare_add;
                request.swap = wr.wr.atomic.swap;
            }
            IBV_WR_BIND_MW => {
                let bind = &wr.bind_mw.bind_mw;
                set_window(&mut request, bind.mw, bind.rkey, &bind.bind_info);
            }
            IBV_WR_LOCAL_INV => {}
            _ if pair.qp.qp_base.qp_type == IBV_QPT_UD => {
                let ud = wr.wr.ud;
                request.route = (*ud.ah.cast::<Address>()).route;
                request.remote_qpn = ud.remote_qpn;
                request.qkey = ud.remote_qkey;
            }
            _ => {
                request.remote_addr = wr.wr.rdma.remote_addr;
                request.rkey = wr.wr.rdma.rkey;
            }
        }
    }
    Ok(request)
}

/// Writes down which window is bound to what.
///
/// # Safety
/// The window exists, and the region too where there is one.
pub(crate) unsafe fn set_window(
    request: &mut SendRequest,
    mw: *mut ibv_mw,
    rkey: u32,
    info: &ibv_mw_bind_info,
) {
    // SAFETY: the caller's promise.
    unsafe {
        request.rkey = rkey;
        request.remote_addr = info.addr;
        request.compare_add = info.length;
        request.swap = u64::from(info.mw_access_flags);
        request.remote_qpn = (*mw).handle;
        request.qkey = match info.mr.is_null() {
            true => 0,
            false => (*info.mr).lkey,
        };
    }
}

/// Posts requests that were checked one after another; how many, and why not the next one.
pub(crate) fn post(
    pair: &Pair,
    requests: impl Iterator<Item = Result<SendRequest, c_int>>,
) -> (usize, c_int) {
    let base = &pair.qp.qp_base;
    if !matches!(
        base.state,
        IBV_QPS_RTS | IBV_QPS_SQD | IBV_QPS_SQE | IBV_QPS_ERR
    ) {
        return (0, libc::EINVAL);
    }
    // SAFETY: a context outlives its queue pairs.
    let context = unsafe { Context::of(base.context) };
    let mut sent = lock(&pair.sent);
    let head = [op::POST_SEND, u64::from(base.handle), 0];
    let mut message = Writer::of(&head);
    let (mut inside, mut posted, mut errno) = (0, 0, 0);
    for request in requests {
        let room =
            u64::from(pair.cap.max_send_wr) > *sent - pair.places.sent.load(Ordering::Acquire);
        let checked = request.and_then(|request| match room {
            true => check(pair, &request).map(|()| request),
            false => Err(libc::ENOMEM),
        });
        match checked {
            Ok(request) => request.write(&mut message),
            Err(refused) => {
                errno = refused;
                break;
            }
        }
        (inside, posted) = (inside + 1, posted + 1);
        *sent += 1;
        if message.bytes().len() + REQUEST_BYTES_MAX > MESSAGE_MAX {
            message.set(2, inside);
            if context.connection.post(&message).is_err() {
                return (posted - inside as usize, libc::EIO);
            }
            (message, inside) = (Writer::of(&head), 0);
        }
    }
    if inside > 0 {
        message.set(2, inside);
        if context.connection.post(&message).is_err() {
            return (posted - inside as usize, libc::EIO);
        }
    }
    (posted, errno)
}

pub(crate) unsafe extern "C" fn send(
    qp: *mut ibv_qp,
    list: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the header's function gives a queue pair of ours and its program's list.
    unsafe {
        let pair = Pair::of(qp);
        let mut next = list;
        let requests = std::iter::from_fn(|| {
            let wr = next.as_ref()?;
            next = wr.next;
            Some(translated(pair, wr))
        });
        let (posted, errno) = post(pair, requests);
        if errno != 0 {
            let mut refused = list;
            for _ in 0..posted {
                refused = (*refused).next;
            }
            *bad = refused;
        }
        errno
    }
}

/// A receive queue, of a pair or shared.
struct Receives<'a> {
    context: &'a Context,
    head: [u64; 3],
    posted: &'a mut u64,
    over: u64,
    depth: u32,
    elements: u32,
}

impl Receives<'_> {
    /// # Safety
    /// The list is valid as the manual page demands.
    unsafe fn post(self, list: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
        let mut message = Writer::of(&self.head);
        let (mut next, mut first, mut inside, mut errno) = (list, list, 0, 0);
        // SAFETY: the caller's promise.
        unsafe {
            while let Some(wr) = next.as_ref() {
                let full = *self.posted - self.over >= u64::from(self.depth);
                if full || wr.num_sge < 0 || wr.num_sge as u32 > self.elements {
                    errno = if full { libc::ENOMEM } else { libc::EINVAL };
                    break;
                }
                message.word(wr.wr_id).word(wr.num_sge as u64);
                write_elements(&elements(wr.sg_list, wr.num_sge), &mut message);
                *self.posted += 1;
                inside += 1;
                next = wr.next;
                if message.bytes().len() + REQUEST_BYTES_MAX > MESSAGE_MAX {
                    message.set(2, inside);
                    if self.context.connection.post(&message).is_err() {
                        *bad = first;
                        return libc::EIO;
                    }
                    (message, inside, first) = (Writer::of(&self.head), 0, next);
                }
            }
            message.set(2, inside);
            if inside > 0 && self.context.connection.post(&message).is_err() {
                *bad = first;
                return libc::EIO;
            }
            if errno != 0 {
                *bad = next;
            }
        }
        errno
    }
}

pub(crate) unsafe extern "C" fn receive(
    qp: *mut ibv_qp,
    list: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the header's function gives a queue pair of ours and its program's list.
    unsafe {
        let pair = Pair::of(qp);
        if (*qp).state == IBV_QPS_RESET || !(*qp).srq.is_null() {
            *bad = list;
            return libc::EINVAL;
        }
        let queue = Receives {
            context: Context::of((*qp).context),
            head: [op::POST_RECV, u64::from((*qp).handle), 0],
            posted: &mut lock(&pair.received),
            over: pair.places.received.load(Ordering::Acquire),
            depth: pair.cap.max_recv_wr,
            elements: pair.cap.max_recv_sge.max(1),
        };
        queue.post(list, bad)
    }
}

pub(crate) unsafe extern "C" fn receive_shared(
    srq: *mut ibv_srq,
    list: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the header's function gives a queue of ours and its program's list.
    unsafe {
        let ours = &*srq.cast::<SharedReceives>();
        let queue = Receives {
            context: Context::of((*srq).context),
            head: [op::POST_SRQ_RECV, u64::from((*srq).handle), 0],
            posted: &mut lock(&ours.posted),
            over: ours.over.load(Ordering::Acquire),
            depth: ours.depth,
            elements: ours.elements,
        };
        queue.post(list, bad)
    }
}

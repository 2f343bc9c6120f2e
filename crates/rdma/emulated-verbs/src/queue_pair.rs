//! Queue pairs: creation, states, attributes.

use crate::attributes::{PairAttributes, SendRequest};
use crate::connection::lock;
use crate::context::{Context, DEPTH_MAX, Kind, Places, null};
use crate::memory::destroy;
use crate::shared_receive::SharedReceives;
use crate::wire::{ELEMENTS_MAX, INLINE_MAX, Writer, op, pack};
use isolane_rdma_verbs_sys::*;
use std::ffi::{c_int, c_uint};
use std::sync::{Arc, Mutex, PoisonError};

/// Bits of `ibv_qp_attr_mask` that no device of ours has.
const NOT_THERE: u32 = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE | IBV_QP_CAP;

/// A queue pair; begins like the public structure.
#[repr(C)]
pub struct Pair {
    /// The public part.
    pub qp: ibv_qp_ex,
    /// Its sizes.
    pub cap: ibv_qp_cap,
    /// Whether every send work request is signalled.
    pub signal_all: bool,
    /// Whether it was created for the extended calls.
    pub is_extended: bool,
    /// Work requests posted to the send queue.
    pub sent: Mutex<u64>,
    /// Receives posted.
    pub received: Mutex<u64>,
    /// What came back.
    pub places: Arc<Places>,
    /// What an extended call is building.
    pub batch: Mutex<Vec<SendRequest>>,
}

impl Pair {
    /// The queue pair behind a pointer that [`create`] gave out.
    ///
    /// # Safety
    /// [`create`] gave it out, and it is not destroyed.
    pub unsafe fn of<'a>(qp: *mut ibv_qp) -> &'a Self {
        // SAFETY: ours begin with the public structure.
        unsafe { &*qp.cast::<Self>() }
    }

    /// Whether its device has atomics.
    ///
    /// # Safety
    /// As [`Self::of`].
    pub unsafe fn has_atomics(&self) -> bool {
        // SAFETY: the caller's promise; a context outlives its queue pairs.
        unsafe { Context::of(self.qp.qp_base.context).device.facts.atomics }
    }
}

/// `ibv_create_qp`.
///
/// # Safety
/// The protection domain is allocated and the attributes are valid.
pub unsafe fn create(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: the caller's promise.
    unsafe { new(pd, &mut *attr, false) }
}

fn fits(cap: &ibv_qp_cap) -> bool {
    cap.max_send_wr <= DEPTH_MAX
        && cap.max_recv_wr <= DEPTH_MAX
        && cap.max_send_sge as usize <= ELEMENTS_MAX
        && cap.max_recv_sge as usize <= ELEMENTS_MAX
        && cap.max_inline_data as usize <= INLINE_MAX
}

/// Inline bytes of a queue pair that fits. Devices round up to whole elements of a request, and programs rely on it.
fn inline_of(cap: &ibv_qp_cap) -> u32 {
    let whole = ELEMENT * cap.max_send_sge;
    cap.max_inline_data.max(whole.min(INLINE_MAX as u32))
}

/// Bytes of a scatter-gather element in a work request.
const ELEMENT: u32 = 16;

/// A new queue pair.
///
/// # Safety
/// As [`create`].
pub(crate) unsafe fn new(
    pd: *mut ibv_pd,
    attr: &mut ibv_qp_init_attr,
    is_extended: bool,
) -> *mut ibv_qp {
    if !matches!(attr.qp_type, IBV_QPT_RC | IBV_QPT_UC | IBV_QPT_UD) {
        return null(libc::EOPNOTSUPP);
    }
    if !fits(&attr.cap) || attr.send_cq.is_null() || attr.recv_cq.is_null() {
        return null(libc::EINVAL);
    }
    attr.cap.max_inline_data = inline_of(&attr.cap);
    // SAFETY: the callers' promise.
    unsafe {
        let context = (*pd).context;
        let ours = Context::of(context);
        let shared = (!attr.srq.is_null()).then(|| &*attr.srq.cast::<SharedReceives>());
        let srq = attr.srq.as_ref().map_or(u32::MAX, |srq| srq.handle);
        let cap = &attr.cap;
        let request = Writer::of(&[
            op::CREATE_QP,
            pack((*pd).handle, attr.qp_type),
            pack((*attr.send_cq).handle, (*attr.recv_cq).handle),
            pack(srq, u32::from(attr.sq_sig_all != 0)),
            pack(cap.max_send_wr, cap.max_recv_wr),
        ]);
        let qp_num = match crate::memory::first(ours.connection.call(&request)) {
            Ok(number) => number,
            Err(errno) => return null(errno),
        };
        let places = Arc::new(Places {
            shared: shared.map(|srq| Arc::clone(&srq.over)),
            ..Places::default()
        });
        let qp = ibv_qp_ex {
            qp_base: ibv_qp {
                context,
                qp_context: attr.qp_context,
                pd,
                send_cq: attr.send_cq,
                recv_cq: attr.recv_cq,
                srq: attr.srq,
                handle: qp_num,
                qp_num,
                state: IBV_QPS_RESET,
                qp_type: attr.qp_type,
                ..ibv_qp::default()
            },
            ..ibv_qp_ex::default()
        };
        let pair = Box::into_raw(Box::new(Pair {
            qp,
            cap: *cap,
            signal_all: attr.sq_sig_all != 0,
            is_extended,
            sent: Mutex::default(),
            received: Mutex::default(),
            places: Arc::clone(&places),
            batch: Mutex::default(),
        }));
        let mut all = ours.places.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(qp_num, places);
        lock(&ours.objects).insert((Kind::Pair, qp_num), pair.expose_provenance());
        pair.cast()
    }
}

/// `ibv_qp_to_qp_ex`.
///
/// # Safety
/// The queue pair exists.
pub unsafe fn to_extended(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: the caller's promise.
    match unsafe { Pair::of(qp) }.is_extended {
        true => qp.cast(),
        false => std::ptr::null_mut(),
    }
}

/// `ibv_modify_qp`.
///
/// # Safety
/// The queue pair exists and the attributes are valid.
pub unsafe fn modify(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    let mask = mask as u32;
    if mask & NOT_THERE != 0 {
        return libc::EOPNOTSUPP;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let wanted = &*attr;
        // Nothing changes where the rate is refused.
        if mask & IBV_QP_RATE_LIMIT != 0 {
            let most = Context::of((*qp).context).device.facts.pacing_kbps_max;
            let state = match mask & IBV_QP_STATE {
                0 => (*qp).state,
                _ => wanted.qp_state,
            };
            match (most, matches!(state, IBV_QPS_RTR | IBV_QPS_RTS)) {
                (0, _) => return libc::EOPNOTSUPP,
                (_, true) if wanted.rate_limit <= most => {}
                _ => return libc::EINVAL,
            }
        }
        let current = match mask & IBV_QP_CUR_STATE {
            0 => u32::MAX,
            _ => wanted.cur_qp_state,
        };
        let mut request = Writer::of(&[
            op::MODIFY_QP,
            pack((*qp).handle, mask & !IBV_QP_RATE_LIMIT),
            u64::from(current),
        ]);
        attributes(wanted).write(&mut request);
        if let Err(errno) = Context::of((*qp).context).connection.call(&request) {
            return errno;
        }
        if mask & IBV_QP_STATE != 0 {
            (*qp).state = wanted.qp_state;
            if wanted.qp_state == IBV_QPS_RESET {
                let pair = Pair::of(qp);
                let places = &pair.places;
                places
                    .sent
                    .store(*lock(&pair.sent), std::sync::atomic::Ordering::Release);
                places
                    .received
                    .store(*lock(&pair.received), std::sync::atomic::Ordering::Release);
            }
        }
        match mask & IBV_QP_RATE_LIMIT {
            0 => 0,
            _ => limit(qp, wanted.rate_limit),
        }
    }
}

fn attributes(wanted: &ibv_qp_attr) -> PairAttributes {
    PairAttributes {
        state: wanted.qp_state,
        path_mtu: wanted.path_mtu,
        qkey: wanted.qkey,
        rq_psn: wanted.rq_psn,
        sq_psn: wanted.sq_psn,
        dest_qp_num: wanted.dest_qp_num,
        access: wanted.qp_access_flags,
        pkey_index: u32::from(wanted.pkey_index),
        port: u32::from(wanted.port_num),
        max_rd_atomic: u32::from(wanted.max_rd_atomic),
        max_dest_rd_atomic: u32::from(wanted.max_dest_rd_atomic),
        min_rnr_timer: u32::from(wanted.min_rnr_timer),
        timeout: u32::from(wanted.timeout),
        retry_count: u32::from(wanted.retry_cnt),
        rnr_retry: u32::from(wanted.rnr_retry),
        route: crate::address::route(&wanted.ah_attr),
    }
}

/// `ibv_modify_qp_rate_limit`. The broker chooses burst and packet size.
pub(crate) unsafe extern "C" fn limit_rate(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_rate_limit_attr,
) -> c_int {
    // SAFETY: the caller gives a queue pair that exists, and valid attributes.
    unsafe { limit(qp, (*attr).rate_limit) }
}

/// # Safety
/// The queue pair exists.
unsafe fn limit(qp: *mut ibv_qp, kbps: u32) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let request = Writer::of(&[op::LIMIT_QP, pack((*qp).handle, kbps)]);
        let answer = Context::of((*qp).context).connection.call(&request);
        answer.map_or_else(|errno| errno, |_| 0)
    }
}

/// `ibv_query_qp`.
///
/// # Safety
/// The queue pair exists and the attributes are writable.
pub unsafe fn query(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let pair = Pair::of(qp);
        let request = Writer::of(&[op::QUERY_QP, u64::from((*qp).handle)]);
        let answer = match Context::of((*qp).context).connection.call(&request) {
            Ok(answer) => answer,
            Err(errno) => return errno,
        };
        let Some(found) = PairAttributes::read(&mut answer.reader()) else {
            return libc::EPROTO;
        };
        *attr = ibv_qp_attr {
            qp_state: found.state,
            cur_qp_state: found.state,
            path_mtu: found.path_mtu,
            qkey: found.qkey,
            rq_psn: found.rq_psn,
            sq_psn: found.sq_psn,
            dest_qp_num: found.dest_qp_num,
            qp_access_flags: found.access,
            cap: pair.cap,
            ah_attr: crate::address::attributes(&found.route, found.port as u8),
            pkey_index: found.pkey_index as u16,
            max_rd_atomic: found.max_rd_atomic as u8,
            max_dest_rd_atomic: found.max_dest_rd_atomic as u8,
            min_rnr_timer: found.min_rnr_timer as u8,
            port_num: found.port as u8,
            timeout: found.timeout as u8,
            retry_cnt: found.retry_count as u8,
            rnr_retry: found.rnr_retry as u8,
            ..NO_ATTRIBUTES
        };
        (*qp).state = found.state;
        *init = ibv_qp_init_attr {
            qp_context: (*qp).qp_context,
            send_cq: (*qp).send_cq,
            recv_cq: (*qp).recv_cq,
            srq: (*qp).srq,
            cap: pair.cap,
            qp_type: (*qp).qp_type,
            sq_sig_all: c_int::from(pair.signal_all),
        };
    }
    0
}

// SAFETY: integers only, so that zero is a value of each.
const NO_ATTRIBUTES: ibv_qp_attr = unsafe { std::mem::zeroed() };

/// `ibv_destroy_qp`.
///
/// # Safety
/// [`create`] returned it, and no thread posts to it any more.
pub unsafe fn destroy_pair(qp: *mut ibv_qp) -> c_int {
    // SAFETY: the caller's promise; it is freed once, when the broker has let it go.
    unsafe {
        let handle = (*qp).handle;
        match destroy((*qp).context, op::DESTROY_QP, handle) {
            0 => {
                let ours = Context::of((*qp).context);
                let mut all = ours.places.write().unwrap_or_else(PoisonError::into_inner);
                all.remove(&handle);
                lock(&ours.objects).remove(&(Kind::Pair, handle));
                drop(Box::from_raw(qp.cast::<Pair>()));
            }
            errno => return errno,
        }
    }
    0
}

/// Flags of a send work request, with the queue pair's rule that all are signalled.
pub(crate) fn flags(pair: &Pair, flags: c_uint) -> u32 {
    match pair.signal_all {
        true => flags | IBV_SEND_SIGNALED,
        false => flags,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_has_inline_room_for_its_elements() {
        for (max_inline_data, max_send_sge, want) in [(0, 1, 16), (100, 2, 100), (0, 0, 0)] {
            let cap = ibv_qp_cap {
                max_inline_data,
                max_send_sge,
                ..ibv_qp_cap::default()
            };
            assert_eq!(inline_of(&cap), want);
        }
    }
}

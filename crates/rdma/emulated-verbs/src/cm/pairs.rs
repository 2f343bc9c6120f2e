//! Queue pairs of identifiers: creation with what they need, and the states of a connection.

use super::layout::rdma_cm_id;
use super::manager::{errno, facts};
use super::object::{Identifier, done};
use super::verbs;
use crate::attributes::Route;
use crate::connection::lock;
use crate::context::{Context, minus_one};
use isolane_rdma_verbs_sys::*;
use std::ffi::{c_int, c_void};

/// Key of all datagrams of rdma_cm: `RDMA_UDP_QKEY`.
pub const DATAGRAM_KEY: u32 = 0x0123_4567;
/// What a peer may do where a key permits it.
const ACCESS: u32 = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
/// Exponent of the time without an answer: 67 ms.
const TIMEOUT: u8 = 14;
/// Hops of a packet, as Linux has them.
const HOPS: u8 = 64;

// SAFETY: integers only, so that zero is a value of each.
const NOTHING: ibv_qp_attr = unsafe { std::mem::zeroed() };

/// `rdma_create_qp`.
///
/// # Safety
/// The identifier exists and has a device; `attr` is valid.
pub unsafe fn create(id: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let attr = &mut *attr;
        let made = prepare(id, pd, &mut attr.send_cq, &mut attr.recv_cq, &attr.cap);
        done(made.and_then(|pd| {
            if attr.srq.is_null() {
                attr.srq = (*id).srq;
            }
            let qp = verbs::create_qp(pd, attr);
            keep(id, pd, qp)
        }))
    }
}

/// `rdma_create_qp_ex`: the device decides about the extensions.
///
/// # Safety
/// As [`create`].
pub unsafe fn create_ex(id: *mut rdma_cm_id, attr: *mut ibv_qp_init_attr_ex) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let attr = &mut *attr;
        let pd = match attr.comp_mask & IBV_QP_INIT_ATTR_PD {
            0 => std::ptr::null_mut(),
            _ => attr.pd,
        };
        let made = prepare(id, pd, &mut attr.send_cq, &mut attr.recv_cq, &attr.cap);
        done(made.and_then(|pd| {
            if attr.srq.is_null() {
                attr.srq = (*id).srq;
            }
            attr.pd = pd;
            attr.comp_mask |= IBV_QP_INIT_ATTR_PD;
            let context = &Context::of((*id).verbs).verbs;
            let create = context.create_qp_ex.ok_or(libc::EOPNOTSUPP)?;
            keep(id, pd, create((*id).verbs, attr))
        }))
    }
}

/// The protection domain for a queue pair, and its completion queues where the program gives none.
unsafe fn prepare(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    send: &mut *mut ibv_cq,
    receive: &mut *mut ibv_cq,
    cap: &ibv_qp_cap,
) -> Result<*mut ibv_pd, c_int> {
    // SAFETY: the caller's promise.
    unsafe {
        let id = &mut *id;
        if id.verbs.is_null() || !id.qp.is_null() {
            return Err(libc::EINVAL);
        }
        let pd = if pd.is_null() { id.pd } else { pd };
        if (*pd).context != id.verbs {
            return Err(libc::EINVAL);
        }
        if receive.is_null() && cap.max_recv_wr > 0 {
            (id.recv_cq_channel, id.recv_cq) = queue(id, cap.max_recv_wr)?;
            *receive = id.recv_cq;
        }
        if send.is_null() && cap.max_send_wr > 0 {
            (id.send_cq_channel, id.send_cq) = queue(id, cap.max_send_wr)?;
            *send = id.send_cq;
        }
        // A queue without places still names one of the two.
        if receive.is_null() {
            *receive = *send;
        }
        if send.is_null() {
            *send = *receive;
        }
        Ok(pd)
    }
}

unsafe fn queue(
    id: &mut rdma_cm_id,
    entries: u32,
) -> Result<(*mut ibv_comp_channel, *mut ibv_cq), c_int> {
    let context: *mut c_void = (&raw mut *id).cast();
    // SAFETY: the identifier has an open device.
    unsafe {
        let channel = verbs::create_comp_channel(id.verbs);
        if channel.is_null() {
            return Err(errno());
        }
        let queue = verbs::create_cq(id.verbs, entries as c_int, context, channel, 0);
        if queue.is_null() {
            let errno = errno();
            verbs::destroy_comp_channel(channel);
            return Err(errno);
        }
        Ok((channel, queue))
    }
}

/// Gives the identifier its queue pair, in its first state.
unsafe fn keep(id: *mut rdma_cm_id, pd: *mut ibv_pd, qp: *mut ibv_qp) -> Result<(), c_int> {
    // SAFETY: the caller's promise.
    unsafe {
        let failed = match qp.is_null() {
            true => Some(errno()),
            false => begin(id, qp).err(),
        };
        if let Some(errno) = failed {
            if !qp.is_null() {
                verbs::destroy_qp(qp);
            }
            destroy_queues(id);
            return Err(errno);
        }
        (*id).qp = qp;
        (*id).pd = pd;
    }
    Ok(())
}

unsafe fn change(qp: *mut ibv_qp, mut attr: ibv_qp_attr, mask: u32) -> Result<(), c_int> {
    // SAFETY: the callers give a queue pair that exists.
    match unsafe { verbs::modify_qp(qp, &raw mut attr, mask as c_int) } {
        0 => Ok(()),
        errno => Err(errno),
    }
}

/// The first state, in which receives can be posted; a queue pair for datagrams becomes ready at once.
unsafe fn begin(id: *mut rdma_cm_id, qp: *mut ibv_qp) -> Result<(), c_int> {
    // SAFETY: the callers' promise.
    unsafe {
        for state in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
            let (attr, mask) = attributes(id, state)?;
            change(qp, attr, mask)?;
            if !Identifier::of(id).is_datagram() {
                break;
            }
        }
    }
    Ok(())
}

/// Both directions of a connection become ready.
///
/// # Safety
/// The identifier exists.
pub(super) unsafe fn be_ready(id: *mut rdma_cm_id) -> Result<(), c_int> {
    // SAFETY: the caller's promise.
    unsafe {
        let qp = (*id).qp;
        if qp.is_null() || Identifier::of(id).is_datagram() {
            return Ok(());
        }
        for state in [IBV_QPS_RTR, IBV_QPS_RTS] {
            let (attr, mask) = attributes(id, state)?;
            change(qp, attr, mask)?;
        }
    }
    Ok(())
}

/// The queue pair of a connection that is over completes what it has with errors.
///
/// # Safety
/// The identifier exists.
pub(super) unsafe fn fail(id: *mut rdma_cm_id) {
    // SAFETY: the caller's promise.
    unsafe {
        if !(*id).qp.is_null() && !Identifier::of(id).is_datagram() {
            let attr = ibv_qp_attr {
                qp_state: IBV_QPS_ERR,
                ..NOTHING
            };
            let _ = change((*id).qp, attr, IBV_QP_STATE);
        }
    }
}

/// The way to the other end, as address attributes.
///
/// # Safety
/// The identifier exists.
pub(super) unsafe fn way(id: *mut rdma_cm_id) -> Result<ibv_ah_attr, c_int> {
    // SAFETY: the caller's promise.
    let ours = unsafe { Identifier::of(id) };
    let inner = lock(&ours.inner);
    let there = facts(inner.remote_host.ok_or(libc::ENOTCONN)?)?;
    let ethernet = there.link_layer == u32::from(IBV_LINK_LAYER_ETHERNET);
    let last = there.gids.len() - 1;
    let route = Route {
        is_global: ethernet,
        dlid: there.lid as u16,
        traffic_class: inner.traffic_class,
        // The last GID is that of RoCE version 2 over IPv4.
        sgid_index: if ethernet { last as u8 } else { 0 },
        hop_limit: HOPS,
        dgid: there.gids[last],
        ..Route::default()
    };
    Ok(crate::address::attributes(&route, 1))
}

/// What `ibv_modify_qp` needs for a state, and its mask.
unsafe fn attributes(id: *mut rdma_cm_id, state: u32) -> Result<(ibv_qp_attr, u32), c_int> {
    // SAFETY: the callers' promise.
    let ours = unsafe { Identifier::of(id) };
    let is_datagram = ours.is_datagram();
    let mut attr = ibv_qp_attr {
        qp_state: state,
        ..NOTHING
    };
    let mut mask = IBV_QP_STATE;
    match (state, is_datagram) {
        (IBV_QPS_INIT, _) => {
            attr.port_num = 1;
            mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT;
            if is_datagram {
                attr.qkey = DATAGRAM_KEY;
                mask |= IBV_QP_QKEY;
            } else {
                // SAFETY: an identifier whose queue pair changes has an open device.
                let atomics = unsafe { Context::of((*id).verbs) }.device.facts.atomics;
                attr.qp_access_flags = ACCESS | if atomics { IBV_ACCESS_REMOTE_ATOMIC } else { 0 };
                mask |= IBV_QP_ACCESS_FLAGS;
            }
        }
        (IBV_QPS_RTR, false) => {
            // SAFETY: the callers' promise.
            attr.ah_attr = unsafe { way(id)? };
            let inner = lock(&ours.inner);
            let there = facts(inner.remote_host.ok_or(libc::ENOTCONN)?)?;
            attr.path_mtu = there.mtu;
            attr.dest_qp_num = inner.peer.qp_num;
            attr.max_dest_rd_atomic = inner.depths.0;
            mask |= IBV_QP_AV
                | IBV_QP_PATH_MTU
                | IBV_QP_DEST_QPN
                | IBV_QP_RQ_PSN
                | IBV_QP_MAX_DEST_RD_ATOMIC
                | IBV_QP_MIN_RNR_TIMER;
        }
        (IBV_QPS_RTS, false) => {
            let inner = lock(&ours.inner);
            attr.max_rd_atomic = inner.depths.1;
            attr.timeout = TIMEOUT;
            (attr.retry_cnt, attr.rnr_retry) = inner.retries;
            mask |= IBV_QP_SQ_PSN
                | IBV_QP_MAX_QP_RD_ATOMIC
                | IBV_QP_TIMEOUT
                | IBV_QP_RETRY_CNT
                | IBV_QP_RNR_RETRY;
        }
        (IBV_QPS_RTS, true) => mask |= IBV_QP_SQ_PSN,
        (IBV_QPS_RTR, true) => {}
        _ => return Err(libc::EINVAL),
    }
    Ok((attr, mask))
}

/// `rdma_init_qp_attr`: for programs that change the states of their queue pairs themselves.
///
/// # Safety
/// The identifier exists, and `attr` and `mask` are writable.
pub unsafe fn init_attributes(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if (*id).verbs.is_null() {
            return minus_one(libc::EINVAL);
        }
        done(attributes(id, (*attr).qp_state).map(|(found, of)| {
            *attr = found;
            *mask = of as c_int;
        }))
    }
}

unsafe fn destroy_queues(id: *mut rdma_cm_id) {
    // SAFETY: the callers' promise.
    unsafe {
        let id = &mut *id;
        for (queue, channel) in [
            (&mut id.send_cq, &mut id.send_cq_channel),
            (&mut id.recv_cq, &mut id.recv_cq_channel),
        ] {
            if !queue.is_null() {
                verbs::destroy_cq(std::mem::replace(queue, std::ptr::null_mut()));
            }
            if !channel.is_null() {
                verbs::destroy_comp_channel(std::mem::replace(channel, std::ptr::null_mut()));
            }
        }
    }
}

/// `rdma_destroy_qp`.
///
/// # Safety
/// The identifier exists, and nothing uses its queue pair any more.
pub unsafe fn destroy(id: *mut rdma_cm_id) {
    // SAFETY: the caller's promise.
    unsafe {
        let qp = std::mem::replace(&mut (*id).qp, std::ptr::null_mut());
        if !qp.is_null() {
            verbs::destroy_qp(qp);
        }
        destroy_queues(id);
    }
}

/// `rdma_create_srq`.
///
/// # Safety
/// The identifier exists and has a device; `attr` is valid.
pub unsafe fn create_shared(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let pd = if pd.is_null() { (*id).pd } else { pd };
        if pd.is_null() || !(*id).srq.is_null() {
            return minus_one(libc::EINVAL);
        }
        let srq = verbs::create_srq(pd, attr);
        if srq.is_null() {
            return -1;
        }
        ((*id).srq, (*id).pd) = (srq, pd);
    }
    0
}

/// `rdma_create_srq_ex`: the device decides about the extensions.
///
/// # Safety
/// As [`create_shared`].
pub unsafe fn create_shared_ex(id: *mut rdma_cm_id, attr: *mut ibv_srq_init_attr_ex) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let attr = &mut *attr;
        if attr.comp_mask & IBV_SRQ_INIT_ATTR_PD == 0 {
            attr.pd = (*id).pd;
            attr.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
        }
        if attr.pd.is_null() || !(*id).srq.is_null() {
            return minus_one(libc::EINVAL);
        }
        let context = (*attr.pd).context;
        let Some(create) = Context::of(context).verbs.create_srq_ex else {
            return minus_one(libc::EOPNOTSUPP);
        };
        let srq = create(context, attr);
        if srq.is_null() {
            return -1;
        }
        ((*id).srq, (*id).pd) = (srq, attr.pd);
    }
    0
}

/// `rdma_destroy_srq`.
///
/// # Safety
/// The identifier exists, and nothing uses its shared receive queue any more.
pub unsafe fn destroy_shared(id: *mut rdma_cm_id) {
    // SAFETY: the caller's promise.
    unsafe {
        let srq = std::mem::replace(&mut (*id).srq, std::ptr::null_mut());
        if !srq.is_null() {
            verbs::destroy_srq(srq);
        }
    }
}

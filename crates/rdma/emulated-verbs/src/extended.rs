//! Queue pairs for extended calls: creation, work requests posted by calls between `ibv_wr_start` and `ibv_wr_complete`, and the binding of windows.

use crate::address::Address;
use crate::attributes::{Element, SendRequest};
use crate::connection::lock;
use crate::context::null;
use crate::posting::{post, set_window};
use crate::queue_pair::{Pair, flags, new};
use isolane_rdma_verbs_sys::*;
use std::ffi::{c_int, c_void};

/// The operations that a program can request (`ibv_qp_create_send_ops_flags`).
const OPERATIONS: u64 = (IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | IBV_QP_EX_WITH_SEND
    | IBV_QP_EX_WITH_SEND_WITH_IMM
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | IBV_QP_EX_WITH_LOCAL_INV
    | IBV_QP_EX_WITH_BIND_MW
    | IBV_QP_EX_WITH_SEND_WITH_INV) as u64;

pub(crate) unsafe extern "C" fn create_ex(
    _: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the header's function gives its program's attributes.
    unsafe {
        let whole = &mut *attr;
        let known = IBV_QP_INIT_ATTR_PD
            | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
            | IBV_QP_INIT_ATTR_CREATE_FLAGS
            | IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
        let has = |bit: u32| whole.comp_mask & bit != 0;
        let flags = has(IBV_QP_INIT_ATTR_CREATE_FLAGS) && whole.create_flags != 0;
        let header = has(IBV_QP_INIT_ATTR_MAX_TSO_HEADER) && whole.max_tso_header != 0;
        let operations = has(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS).then_some(whole.send_ops_flags);
        let others = operations.is_some_and(|flags| flags & !OPERATIONS != 0);
        if whole.comp_mask & !known != 0 || flags || header || others {
            return null(libc::EOPNOTSUPP);
        }
        if !has(IBV_QP_INIT_ATTR_PD) {
            return null(libc::EINVAL);
        }
        // The two structures begin alike.
        let qp = new(
            whole.pd,
            &mut *attr.cast::<ibv_qp_init_attr>(),
            operations.is_some(),
        );
        if let Some(operations) = operations
            && let Some(extended) = qp.cast::<ibv_qp_ex>().as_mut()
        {
            fill(extended, operations);
        }
        qp
    }
}

/// Fills in the calls that the program requested.
fn fill(qp: &mut ibv_qp_ex, operations: u64) {
    let has = |bit: u32| operations & u64::from(bit) != 0;
    macro_rules! set {
        ($($bit:ident: $field:ident = $call:ident;)*) => { $( if has($bit) { qp.$field = Some($call); } )* };
    }
    set! {
        IBV_QP_EX_WITH_RDMA_WRITE: wr_rdma_write = write;
        IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM: wr_rdma_write_imm = write_imm;
        IBV_QP_EX_WITH_SEND: wr_send = send;
        IBV_QP_EX_WITH_SEND_WITH_IMM: wr_send_imm = send_imm;
        IBV_QP_EX_WITH_RDMA_READ: wr_rdma_read = read;
        IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP: wr_atomic_cmp_swp = compare_swap;
        IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD: wr_atomic_fetch_add = fetch_add;
        IBV_QP_EX_WITH_LOCAL_INV: wr_local_inv = local_inv;
        IBV_QP_EX_WITH_BIND_MW: wr_bind_mw = bind;
        IBV_QP_EX_WITH_SEND_WITH_INV: wr_send_inv = send_inv;
    }
    qp.wr_set_ud_addr = Some(set_ud_addr);
    qp.wr_set_inline_data = Some(set_inline_data);
    qp.wr_set_inline_data_list = Some(set_inline_data_list);
    qp.wr_set_sge = Some(set_sge);
    qp.wr_set_sge_list = Some(set_sge_list);
    qp.wr_start = Some(start);
    qp.wr_complete = Some(complete);
    qp.wr_abort = Some(abort);
}

/// The queue pair behind the extended structure.
///
/// # Safety
/// It is one of ours.
unsafe fn pair<'a>(qp: *mut ibv_qp_ex) -> &'a Pair {
    // SAFETY: the caller's promise; ours begin with the public structure.
    unsafe { Pair::of(qp.cast()) }
}

/// Adds a request with what the program has set in the structure.
///
/// # Safety
/// As [`pair`].
unsafe fn add(qp: *mut ibv_qp_ex, opcode: u32, set: impl FnOnce(&mut SendRequest)) {
    // SAFETY: the caller's promise.
    unsafe {
        let pair = pair(qp);
        let mut request = SendRequest {
            wr_id: (*qp).wr_id,
            opcode,
            flags: flags(pair, (*qp).wr_flags),
            ..SendRequest::default()
        };
        set(&mut request);
        lock(&pair.batch).push(request);
    }
}

/// Changes the request added last.
///
/// # Safety
/// As [`pair`].
unsafe fn change(qp: *mut ibv_qp_ex, set: impl FnOnce(&mut SendRequest)) {
    // SAFETY: the caller's promise.
    if let Some(request) = lock(unsafe { &pair(qp).batch }).last_mut() {
        set(request);
    }
}

unsafe extern "C" fn start(qp: *mut ibv_qp_ex) {
    // SAFETY: the header's function gives a queue pair of ours.
    lock(unsafe { &pair(qp).batch }).clear();
}

unsafe extern "C" fn abort(qp: *mut ibv_qp_ex) {
    // SAFETY: as above.
    lock(unsafe { &pair(qp).batch }).clear();
}

unsafe extern "C" fn complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: as above.
    let pair = unsafe { pair(qp) };
    let batch = std::mem::take(&mut *lock(&pair.batch));
    // A batch is posted as a whole or not at all.
    let room = u64::from(pair.cap.max_send_wr)
        + pair.places.sent.load(std::sync::atomic::Ordering::Acquire)
        - *lock(&pair.sent);
    if batch.len() as u64 > room {
        return libc::ENOMEM;
    }
    if let Some(errno) = batch
        .iter()
        .find_map(|r| crate::posting::check(pair, r).err())
    {
        return errno;
    }
    post(pair, batch.into_iter().map(Ok)).1
}

macro_rules! calls {
    ($($name:ident = $opcode:ident ($($argument:ident: $ty:ty),*) |$request:ident| $set:block)*) => { $(
        unsafe extern "C" fn $name(qp: *mut ibv_qp_ex $(, $argument: $ty)*) {
            // SAFETY: the header's function gives a queue pair of ours.
            unsafe { add(qp, $opcode, |$request| $set) };
        }
    )* };
}

calls! {
    write = IBV_WR_RDMA_WRITE(rkey: u32, addr: u64) |r| { (r.rkey, r.remote_addr) = (rkey, addr); }
    write_imm = IBV_WR_RDMA_WRITE_WITH_IMM(rkey: u32, addr: u64, imm: u32) |r| {
        (r.rkey, r.remote_addr, r.immediate) = (rkey, addr, imm);
    }
    read = IBV_WR_RDMA_READ(rkey: u32, addr: u64) |r| { (r.rkey, r.remote_addr) = (rkey, addr); }
    send = IBV_WR_SEND() |_r| {}
    send_imm = IBV_WR_SEND_WITH_IMM(imm: u32) |r| { r.immediate = imm; }
    send_inv = IBV_WR_SEND_WITH_INV(rkey: u32) |r| { r.immediate = rkey; }
    local_inv = IBV_WR_LOCAL_INV(rkey: u32) |r| { r.immediate = rkey; }
    compare_swap = IBV_WR_ATOMIC_CMP_AND_SWP(rkey: u32, addr: u64, compare: u64, swap: u64) |r| {
        (r.rkey, r.remote_addr, r.compare_add, r.swap) = (rkey, addr, compare, swap);
    }
    fetch_add = IBV_WR_ATOMIC_FETCH_AND_ADD(rkey: u32, addr: u64, add: u64) |r| {
        (r.rkey, r.remote_addr, r.compare_add) = (rkey, addr, add);
    }
    bind = IBV_WR_BIND_MW(mw: *mut ibv_mw, rkey: u32, info: *const ibv_mw_bind_info) |r| {
        // The program promises that the window and the region exist.
        set_window(r, mw, rkey, &*info);
    }
}

unsafe extern "C" fn set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, remote_qpn: u32, qkey: u32) {
    // SAFETY: the header's function gives a queue pair and an address handle of ours.
    unsafe {
        let route = (*ah.cast::<Address>()).route;
        change(qp, |request| {
            (request.route, request.remote_qpn, request.qkey) = (route, remote_qpn, qkey);
        });
    }
}

unsafe extern "C" fn set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: the header's function gives a queue pair of ours.
    unsafe {
        change(qp, |request| {
            request.elements = vec![Element { addr, length, lkey }]
        })
    };
}

unsafe extern "C" fn set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: the header's function gives a queue pair of ours and `count` elements.
    unsafe {
        let list = std::slice::from_raw_parts(list, count);
        let element = |sge: &ibv_sge| Element {
            addr: sge.addr,
            length: sge.length,
            lkey: sge.lkey,
        };
        change(qp, |request| {
            request.elements = list.iter().map(element).collect()
        });
    }
}

unsafe extern "C" fn set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    let buffer = ibv_data_buf { addr, length };
    // SAFETY: the header's function gives a queue pair of ours and `length` bytes.
    unsafe { set_inline_data_list(qp, 1, &raw const buffer) };
}

unsafe extern "C" fn set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    // SAFETY: the header's function gives a queue pair of ours, `count` buffers and their bytes.
    unsafe {
        let mut bytes = Vec::new();
        for buffer in std::slice::from_raw_parts(list, count) {
            if buffer.length > 0 {
                let part = std::slice::from_raw_parts(buffer.addr.cast::<u8>(), buffer.length);
                bytes.extend_from_slice(part);
            }
        }
        change(qp, |request| {
            request.flags |= IBV_SEND_INLINE;
            request.inline = Some(bytes);
        });
    }
}

/// `ibv_bind_mw`, for windows of type 1: the window gets a new key at once, and the binding runs as a work request.
pub(crate) unsafe extern "C" fn bind_window(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    bind: *mut ibv_mw_bind,
) -> c_int {
    // SAFETY: the header's function gives a queue pair and a window of ours and its program's attributes.
    unsafe {
        if (*mw).r#type != IBV_MW_TYPE_1 || (*mw).pd != (*qp).pd {
            return libc::EINVAL;
        }
        let pair = Pair::of(qp);
        let bind = &*bind;
        let rkey = (*mw).rkey & !0xff | (*mw).rkey.wrapping_add(1) & 0xff;
        let mut request = SendRequest {
            wr_id: bind.wr_id,
            opcode: IBV_WR_BIND_MW,
            flags: flags(pair, bind.send_flags),
            ..SendRequest::default()
        };
        set_window(&mut request, mw, rkey, &bind.bind_info);
        let errno = post(pair, [Ok(request)].into_iter()).1;
        if errno == 0 {
            (*mw).rkey = rkey;
        }
        errno
    }
}

//! A provider without hardware: queue pairs connected in one process that execute work requests on demand.
//!
//! It keeps the rules that a preload library can break: a send queue of fixed depth whose places become free when a
//! completion is polled, completions in order, flushed work requests after an error, a completion queue of fixed size,
//! one receive per SEND and per WRITE with immediate data. Each call of [`step`] executes one work request, so a test
//! decides when anything happens. Remote memory is this process's own; [`forbid`] makes a range of it fail.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part")]

pub mod extended;
pub mod through;
mod work;

use isolane_rdma_verbs_sys::*;
use isolane_shim::originals::Originals;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Mutex;
pub use work::*;

/// Largest completion queue, entries.
pub const MAX_CQE: c_int = 1 << 20;

/// One lock: the provider's functions may be called from several threads.
static WORLD: Mutex<()> = Mutex::new(());

pub struct RecvEntry {
    wr_id: u64,
    list: Vec<ibv_sge>,
}

#[repr(C)]
pub struct NullQp {
    qp: ibv_qp_ex,
    cap: ibv_qp_cap,
    signal_all: bool,
    send: VecDeque<SendEntry>,
    recv: VecDeque<RecvEntry>,
    posted: u64,
    executed: u64,
    freed: u64,
    peer: *mut NullQp,
    failed: bool,
    pub refuse: c_int,
    /// As `refuse`, for requests with a payload only.
    pub refuse_payload: c_int,
    /// Whether it behaves like siw, see [`like_siw`].
    pub siw: bool,
    pub chunks: u64,
    log: Vec<Done>,
    batch: extended::Batch,
}

/// An executed work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    pub opcode: ibv_wr_opcode,
    pub bytes: u64,
    /// Immediate data, or the invalidated key.
    pub immediate: u32,
    /// Shared receive queue of XRC at the remote end.
    pub shared_receive: u32,
    /// Queue pair and key of a datagram's destination.
    pub datagram: Option<(u32, u32)>,
    /// Header length of a segmentation request.
    pub header_bytes: usize,
}

struct Completion {
    wc: ibv_wc,
    qp: *mut NullQp,
    frees: Option<u64>,
}

#[repr(C)]
pub struct NullCq {
    cq: ibv_cq_ex,
    entries: VecDeque<Completion>,
    pub overflowed: bool,
    /// Whether an event was requested, and whether for errors and solicited completions only.
    armed: Option<bool>,
    current: Option<ibv_wc>,
}

#[repr(C)]
struct NullChannel {
    channel: ibv_comp_channel,
    events: VecDeque<*mut ibv_cq>,
}

static FORBIDDEN: Mutex<Vec<(Option<u32>, u64, u64)>> = Mutex::new(Vec::new());
static CHANNELS: Mutex<Vec<usize>> = Mutex::new(Vec::new());
/// Keys of memory windows, and whether they are bound.
static WINDOWS: Mutex<BTreeMap<u32, bool>> = Mutex::new(BTreeMap::new());
static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);

/// Makes remote access to this range fail until [`allow_all`].
pub fn forbid(address: u64, bytes: u64) {
    FORBIDDEN.lock().unwrap().push((None, address, bytes));
}

/// The same for one remote key.
pub fn forbid_for(rkey: u32, address: u64, bytes: u64) {
    FORBIDDEN.lock().unwrap().push((Some(rkey), address, bytes));
}

pub fn allow_all() {
    FORBIDDEN.lock().unwrap().clear();
    WINDOWS.lock().unwrap().clear();
}

/// Makes remote access by this key fail, except while a window of that key is bound.
pub fn window(key: u32, bound: bool) {
    WINDOWS.lock().unwrap().insert(key, bound);
}

fn is_forbidden(rkey: u32, address: u64, bytes: u64) -> bool {
    if WINDOWS.lock().unwrap().get(&rkey) == Some(&false) {
        return true;
    }
    let forbidden = FORBIDDEN.lock().unwrap();
    let over = |(key, from, length): &(Option<u32>, u64, u64)| {
        key.is_none_or(|key| key == rkey) && address < from + length && *from < address + bytes
    };
    bytes > 0 && forbidden.iter().any(over)
}

pub fn originals() -> Originals {
    Originals {
        open_device,
        open_device_by_vendor: Some(open_device_by_vendor),
        close_device,
        query_device,
        create_cq,
        resize_cq,
        destroy_cq,
        get_cq_event,
        ack_cq_events,
        create_qp,
        modify_qp,
        query_qp,
        destroy_qp,
        qp_to_qp_ex: Some(qp_to_qp_ex),
        destroy_ah,
    }
}

/// A device with this name; never freed.
pub fn device(name: &str) -> *mut ibv_device {
    let mut device = ibv_device::default();
    for (at, byte) in name.bytes().enumerate() {
        device.name[at] = byte as i8;
    }
    Box::into_raw(Box::new(device))
}

pub unsafe extern "C" fn open_device(device: *mut ibv_device) -> *mut ibv_context {
    let mut context = Box::new(verbs_context::default());
    context.sz = size_of::<verbs_context>();
    context.create_qp_ex = Some(create_qp_ex);
    context.create_cq_ex = Some(create_cq_ex);
    context.alloc_parent_domain = Some(alloc_parent_domain);
    context.context.device = device;
    context.context.abi_compat = std::ptr::without_provenance_mut(VERBS_ABI_IS_EXTENDED);
    context.context.ops.post_send = Some(post_send);
    context.context.ops.post_recv = Some(post_recv);
    context.context.ops.bind_mw = Some(bind_mw);
    context.context.ops.poll_cq = Some(poll_cq);
    context.context.ops.req_notify_cq = Some(req_notify_cq);
    let raw = Box::into_raw(context);
    unsafe { &raw mut (*raw).context }
}

/// Opens like libibverbs: both functions lead to the same place.
unsafe extern "C" fn open_device_by_vendor(
    device: *mut ibv_device,
    _data: *mut c_void,
) -> *mut ibv_context {
    unsafe { open_device(device) }
}

unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    _attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    Box::into_raw(Box::new(ibv_pd { context, handle: 1 }))
}

unsafe extern "C" fn close_device(context: *mut ibv_context) -> c_int {
    unsafe { drop(Box::from_raw(verbs_get_ctx(context))) };
    0
}

unsafe extern "C" fn query_device(_: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    unsafe {
        (*attr).max_cqe = MAX_CQE;
        (*attr).max_qp_wr = 1 << 14;
    }
    0
}

fn new_cq(
    cqe: c_int,
    context: *mut ibv_context,
    user: *mut c_void,
    channel: *mut ibv_comp_channel,
) -> *mut NullCq {
    let mut cq = NullCq {
        cq: ibv_cq_ex::default(),
        entries: VecDeque::new(),
        overflowed: false,
        armed: None,
        current: None,
    };
    cq.cq.context = context;
    cq.cq.cqe = cqe;
    cq.cq.cq_context = user;
    cq.cq.channel = channel;
    Box::into_raw(Box::new(cq))
}

pub unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    user: *mut c_void,
    channel: *mut ibv_comp_channel,
    _vector: c_int,
) -> *mut ibv_cq {
    if !(1..=MAX_CQE).contains(&cqe) {
        return std::ptr::null_mut();
    }
    new_cq(cqe, context, user, channel).cast()
}

unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    unsafe {
        let attr = &*attr;
        let cq = new_cq(attr.cqe as c_int, context, attr.cq_context, attr.channel);
        (*cq).cq.start_poll = Some(start_poll);
        (*cq).cq.next_poll = Some(next_poll);
        (*cq).cq.end_poll = Some(end_poll);
        (*cq).cq.read_byte_len = Some(read_byte_len);
        (*cq).cq.read_qp_num = Some(read_qp_num);
        (*cq).cq.read_opcode = Some(read_opcode);
        cq.cast()
    }
}

unsafe extern "C" fn resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    if !(1..=MAX_CQE).contains(&cqe) {
        return libc::EINVAL;
    }
    unsafe { (*cq).cqe = cqe };
    0
}

pub unsafe extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    unsafe { drop(Box::from_raw(cq.cast::<NullCq>())) };
    0
}

/// An event channel; [`get_cq_event`] returns -1 where the kernel would block.
pub fn create_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    let channel = ibv_comp_channel {
        context,
        ..Default::default()
    };
    let events = VecDeque::new();
    Box::into_raw(Box::new(NullChannel { channel, events })).cast()
}

unsafe extern "C" fn get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    user: *mut *mut c_void,
) -> c_int {
    let _world = WORLD.lock().unwrap();
    unsafe {
        match (*channel.cast::<NullChannel>()).events.pop_front() {
            None => -1,
            Some(found) => {
                *cq = found;
                *user = (*found).cq_context;
                0
            }
        }
    }
}

unsafe extern "C" fn ack_cq_events(cq: *mut ibv_cq, count: c_uint) {
    unsafe { (*cq).comp_events_completed += count };
}

pub unsafe extern "C" fn create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    unsafe { new_qp((*pd).context, &*attr).cast() }
}

unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    unsafe {
        let qp = new_qp(context, &*attr.cast::<ibv_qp_init_attr>());
        extended::fill(&mut (*qp).qp);
        qp.cast()
    }
}

unsafe extern "C" fn qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    qp.cast()
}

fn new_qp(context: *mut ibv_context, attr: &ibv_qp_init_attr) -> *mut NullQp {
    let mut qp = NullQp {
        qp: ibv_qp_ex::default(),
        cap: attr.cap,
        signal_all: attr.sq_sig_all != 0,
        send: VecDeque::new(),
        recv: VecDeque::new(),
        posted: 0,
        executed: 0,
        freed: 0,
        peer: std::ptr::null_mut(),
        failed: false,
        refuse: 0,
        refuse_payload: 0,
        siw: false,
        chunks: 0,
        log: Vec::new(),
        batch: extended::Batch::default(),
    };
    let base = &mut qp.qp.qp_base;
    base.context = context;
    base.qp_context = attr.qp_context;
    base.send_cq = attr.send_cq;
    base.recv_cq = attr.recv_cq;
    base.qp_type = attr.qp_type;
    base.qp_num = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    Box::into_raw(Box::new(qp))
}

/// Connects two queue pairs; [`modify_qp`] sets their states.
pub fn join(one: *mut ibv_qp, two: *mut ibv_qp) {
    unsafe {
        (*one.cast::<NullQp>()).peer = two.cast();
        (*two.cast::<NullQp>()).peer = one.cast();
    }
}

pub unsafe extern "C" fn modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    let _world = WORLD.lock().unwrap();
    unsafe {
        if mask as u32 & IBV_QP_STATE != 0 {
            (*qp).state = (*attr).qp_state;
            let null = &mut *qp.cast::<NullQp>();
            match (*attr).qp_state {
                IBV_QPS_ERR => null.failed = true,
                IBV_QPS_RESET => {
                    null.failed = false;
                    null.send.clear();
                    null.freed = null.posted;
                    null.executed = null.posted;
                    let cq = &mut *(*qp).send_cq.cast::<NullCq>();
                    cq.entries.retain(|entry| !std::ptr::eq(entry.qp, null));
                }
                _ => {}
            }
        }
    }
    0
}

unsafe extern "C" fn query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    unsafe {
        let null = &*qp.cast::<NullQp>();
        (*attr).cap = null.cap;
        (*init).cap = null.cap;
        (*init).sq_sig_all = c_int::from(null.signal_all);
    }
    0
}

pub unsafe extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    let _world = WORLD.lock().unwrap();
    unsafe {
        let cq = &mut *(*qp).send_cq.cast::<NullCq>();
        let null = qp.cast::<NullQp>();
        cq.entries.retain(|entry| entry.qp != null);
        let cq = &mut *(*qp).recv_cq.cast::<NullCq>();
        cq.entries.retain(|entry| entry.qp != null);
        drop(Box::from_raw(null));
    }
    0
}

unsafe extern "C" fn destroy_ah(_: *mut ibv_ah) -> c_int {
    0
}

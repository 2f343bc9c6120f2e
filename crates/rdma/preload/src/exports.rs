//! The functions that the dynamic loader finds before those of libibverbs, and the functions for replaced tables.
//!
//! Problem: the loader gives the application our function in place of the library's. Ours must behave as the library's
//! where the shim adds nothing, and wherever the shim fails. Method: each function looks its object up and calls the
//! original if the object is unknown. Source: ld.so(8), LD_PRELOAD: unversioned definitions here satisfy references to
//! `IBVERBS_1.1`.
//!
//! SAFETY of the whole module: the application calls every function by the rules of the manual page of the same name,
//! and the functions pass their arguments on; our objects are found by address only while they live.

use crate::context::Hooks;
use crate::extended;
use crate::originals::Originals;
use crate::process::{Process, context_of, install, process};
use crate::queue::Splitting;
use crate::queue_pair::{Plan, SPARE_MIN};
use crate::settings::Settings;
use isolane_rdma_verbs_sys::*;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

/// Places for chunks in the provider's send queue, beyond the application's depth.
const SPARE: u32 = 128;

/// The functions that replace table entries of contexts.
pub const HOOKS: Hooks = Hooks {
    post_send,
    poll_cq,
    req_notify_cq,
    bind_mw,
    create_qp_ex,
    create_cq_ex,
};

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The originals; also available without a process state (in a child of `fork`).
fn originals() -> Option<Originals> {
    static ORIGINALS: OnceLock<Option<Originals>> = OnceLock::new();
    if let Some(process) = process() {
        return Some(process.originals);
    }
    *ORIGINALS.get_or_init(|| match Library::open(Lookup::Library) {
        Ok(library) => Some(Originals::from(&library)),
        Err(error) => {
            Settings::read(|name| std::env::var(name).ok()).say(&error.to_string());
            None
        }
    })
}

fn begin() -> Option<&'static Process> {
    if let Some(process) = process() {
        return Some(process);
    }
    let originals = originals()?;
    let settings = Settings::read(|name| std::env::var(name).ok());
    Some(install(Process::new(originals, settings, monotonic_ns)))
}

fn failed<T>(errno: c_int) -> *mut T {
    // SAFETY: this thread's errno is writable.
    unsafe { *libc::__errno_location() = errno };
    std::ptr::null_mut()
}

macro_rules! original {
    ($name:ident ( $($argument:expr),* ), else $missing:expr) => {
        match originals() {
            // SAFETY: see the module.
            Some(originals) => unsafe { (originals.$name)($($argument),*) },
            None => $missing,
        }
    };
}

/// Opens a device and requests its service from the daemon.
///
/// # Safety
/// See `ibv_open_device(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    let Some(process) = begin() else {
        return failed(libc::ENOSYS);
    };
    // SAFETY: see the module.
    unsafe {
        let context = (process.originals.open_device)(device);
        if !context.is_null() {
            let errno = *libc::__errno_location();
            process.adopt(context, &HOOKS);
            *libc::__errno_location() = errno;
        }
        context
    }
}

/// Closes a device.
///
/// # Safety
/// See `ibv_close_device(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    if let Some(process) = process() {
        process.forget_context(context);
    }
    original!(close_device(context), else libc::ENOSYS)
}

/// Creates a completion queue with room for completions of ours.
///
/// # Safety
/// See `ibv_create_cq(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    let create = |cqe| original!(create_cq(context, cqe, cq_context, channel, vector), else failed(libc::ENOSYS));
    let (Some(process), Ok(asked)) = (process(), u32::try_from(cqe)) else {
        return create(cqe);
    };
    let Some(known) = process.context(context) else {
        return create(cqe);
    };
    let mut spare = crate::completion_queue::spare_for(asked, known.max_cqe);
    let mut cq = create((asked + spare) as c_int);
    if cq.is_null() && spare > 0 {
        spare = 0;
        cq = create(cqe);
    }
    if !cq.is_null() {
        process.register_completion_queue(cq, known, spare);
    }
    cq
}

unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    let Some(known) = context_of(context) else {
        return failed(libc::EOPNOTSUPP);
    };
    let Some(create) = known.create_cq_ex else {
        return failed(libc::EOPNOTSUPP);
    };
    // SAFETY: see the module.
    unsafe {
        let Some(process) = process().filter(|process| process.context(context).is_some()) else {
            return create(context, attr);
        };
        let mut larger = std::ptr::read(attr);
        let mut spare = crate::completion_queue::spare_for(larger.cqe, known.max_cqe);
        larger.cqe += spare;
        let mut cq = create(context, &raw mut larger);
        if cq.is_null() && spare > 0 {
            spare = 0;
            cq = create(context, attr);
        }
        if !cq.is_null() {
            crate::extended_queue::extend(
                process.register_completion_queue(cq.cast(), known, spare),
                cq,
            );
        }
        cq
    }
}

/// Changes the size of a completion queue, keeping the room for completions of ours.
///
/// # Safety
/// See `ibv_resize_cq(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    let extra = process()
        .and_then(|process| process.completion_queue(cq))
        .map_or(0, crate::completion_queue::CompletionQueue::extra);
    original!(resize_cq(cq, cqe.saturating_add(extra)), else libc::ENOSYS)
}

/// Destroys a completion queue.
///
/// # Safety
/// See `ibv_destroy_cq(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    let ours = process().and_then(|process| Some((process, process.completion_queue(cq)?)));
    let Some((process, known)) = ours else {
        return original!(destroy_cq(cq), else libc::ENOSYS);
    };
    known.set_open(false);
    process.hide_completion_queue(cq);
    // SAFETY: see the module.
    let answer = unsafe { (process.originals.destroy_cq)(cq) };
    match answer {
        0 => process.recycle_completion_queue(known),
        _ => {
            known.set_open(true);
            process.show_completion_queue(cq, known);
        }
    }
    answer
}

/// Waits for an event of a completion queue; suppresses events that only completions of ours caused.
///
/// # Safety
/// See `ibv_get_cq_event(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    loop {
        let answer = original!(get_cq_event(channel, cq, cq_context), else -1);
        let Some(process) = process().filter(|_| answer == 0) else {
            return answer;
        };
        // SAFETY: see the module; the call filled `cq`.
        unsafe {
            match process.completion_queue(*cq) {
                Some(known) if known.is_quiet(&process.places) => {
                    (process.originals.ack_cq_events)(*cq, 1);
                }
                _ => return answer,
            }
        }
    }
}

/// Whether queue pairs of this transport are paced.
fn paced(kind: ibv_qp_type) -> bool {
    matches!(
        kind,
        IBV_QPT_RC | IBV_QPT_UC | IBV_QPT_UD | IBV_QPT_XRC_SEND
    )
}

/// Creates a queue pair with `create`, enlarged by the places for chunks, and paces it.
///
/// # Safety
/// `attr` is valid for `create`, which creates a queue pair of `context`.
unsafe fn create_paced(
    context: *mut ibv_context,
    attr: &mut ibv_qp_init_attr,
    create: impl Fn(&mut ibv_qp_init_attr) -> *mut ibv_qp,
) -> *mut ibv_qp {
    let ours = process().and_then(|process| Some((process, process.context(context)?)));
    let Some((process, known)) = ours else {
        return create(attr);
    };
    let kind = attr.qp_type;
    let depth = attr.cap.max_send_wr;
    let (Some(post_send), true) = (known.ops.post_send, paced(kind)) else {
        return create(attr);
    };
    if depth == 0 || attr.send_cq.is_null() || !known.device.is_served() {
        return create(attr);
    }
    let send_cq = process
        .completion_queue(attr.send_cq)
        .unwrap_or_else(|| process.register_completion_queue(attr.send_cq, known, 0));
    let Some(place) = process.places.take() else {
        return create(attr);
    };
    let orders = matches!(kind, IBV_QPT_RC | IBV_QPT_UC);
    let most = known.max_qp_wr.saturating_sub(depth).min(SPARE);
    let mut spare = if orders && most >= SPARE_MIN {
        send_cq.take_room(most)
    } else {
        0
    };
    if spare < SPARE_MIN {
        send_cq.give_room_back(spare);
        spare = 0;
    }
    let mut made = *attr;
    made.sq_sig_all = 0;
    made.cap.max_send_wr = depth + spare;
    let mut qp = create(&mut made);
    if qp.is_null() && spare > 0 {
        send_cq.give_room_back(spare);
        spare = 0;
        made = *attr;
        made.sq_sig_all = 0;
        qp = create(&mut made);
    }
    if qp.is_null() {
        process.places.give_back(place);
        return qp;
    }
    attr.cap = ibv_qp_cap {
        max_send_wr: depth,
        ..made.cap
    };
    let plan = Plan {
        qp,
        post_send,
        device: known.device,
        send_cq,
        depth,
        spare,
        signal_all: attr.sq_sig_all != 0,
        // SAFETY: an open context has a device.
        state_unknown: unsafe { (*(*context).device).transport_type } == IBV_TRANSPORT_IWARP,
        cap: made.cap,
        splitting: Splitting {
            possible: spare > 0,
            immediate: process.base.settings.split_immediate,
        },
    };
    send_cq.attached();
    // SAFETY: just created.
    unsafe { place.attach(&process.base, plan) };
    process.register_queue_pair(qp, place);
    qp
}

/// Creates a queue pair.
///
/// # Safety
/// See `ibv_create_qp(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    let create =
        |attr: &mut ibv_qp_init_attr| original!(create_qp(pd, attr), else failed(libc::ENOSYS));
    // SAFETY: see the module.
    unsafe { create_paced((*pd).context, &mut *attr, create) }
}

unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    let Some(create_extended) = context_of(context).and_then(|known| known.create_qp_ex) else {
        return failed(libc::EOPNOTSUPP);
    };
    // SAFETY: see the module; the plain attributes are the beginning of the extended ones.
    unsafe {
        let posts = (*attr).comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0;
        if posts && (*attr).send_ops_flags & u64::from(IBV_QP_EX_WITH_ATOMIC_WRITE) != 0 {
            // It has no classic form that all providers share.
            return create_extended(context, attr);
        }
        let create = |plain: &mut ibv_qp_init_attr| {
            let mut made = *attr;
            made.cap = plain.cap;
            made.sq_sig_all = plain.sq_sig_all;
            let qp = create_extended(context, &raw mut made);
            plain.cap = made.cap;
            (*attr).cap = made.cap;
            qp
        };
        let mut plain = *attr.cast::<ibv_qp_init_attr>();
        let qp = create_paced(context, &mut plain, create);
        let ours = process().and_then(|process| Some((process, process.queue_pair(qp)?)));
        if let Some((process, _)) = ours.filter(|_| !qp.is_null()) {
            (*attr).cap = plain.cap;
            if posts && let Some(convert) = process.originals.qp_to_qp_ex {
                let qp = convert(qp);
                if !qp.is_null() {
                    extended::swap(qp);
                }
            }
        }
        qp
    }
}

/// Changes a queue pair's state.
///
/// # Safety
/// See `ibv_modify_qp(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    let ours = process().and_then(|process| Some((process, process.queue_pair(qp)?)));
    let Some((process, known)) = ours else {
        return original!(modify_qp(qp, attr, mask), else libc::ENOSYS);
    };
    // SAFETY: see the module.
    unsafe {
        let state = (mask as u32 & IBV_QP_STATE != 0).then_some((*attr).qp_state);
        if state == Some(IBV_QPS_RESET) {
            known.state_changed(IBV_QPS_RESET);
        }
        let answer = (process.originals.modify_qp)(qp, attr, mask);
        if let Some(state) = state.filter(|_| answer == 0) {
            known.state_changed(state);
            known.drive();
        }
        answer
    }
}

/// Returns a queue pair's attributes as the application set them.
///
/// # Safety
/// See `ibv_query_qp(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
    init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    let answer = original!(query_qp(qp, attr, mask, init_attr), else libc::ENOSYS);
    let known = process().and_then(|process| process.queue_pair(qp));
    if let Some((depth, signal_all)) = known.and_then(|known| known.asked())
        && answer == 0
    {
        // SAFETY: see the module.
        unsafe {
            (*attr).cap.max_send_wr = depth;
            (*init_attr).cap.max_send_wr = depth;
            (*init_attr).sq_sig_all = c_int::from(signal_all);
        }
    }
    answer
}

/// Destroys a queue pair and its waiting messages.
///
/// # Safety
/// See `ibv_destroy_qp(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    let ours = process().and_then(|process| Some((process, process.queue_pair(qp)?)));
    let Some((process, known)) = ours else {
        return original!(destroy_qp(qp), else libc::ENOSYS);
    };
    known.pause();
    process.forget_queue_pair(qp);
    // SAFETY: see the module.
    let answer = unsafe { (process.originals.destroy_qp)(qp) };
    if answer == 0 {
        if known.detach() {
            process.places.give_back(known);
        }
    } else {
        process.register_queue_pair(qp, known);
        known.resume();
    }
    answer
}

/// Destroys an address handle after posting the datagrams that use it.
///
/// # Safety
/// See `ibv_destroy_ah(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    if let Some(process) = process() {
        process.flush_datagrams();
    }
    original!(destroy_ah(ah), else libc::ENOSYS)
}

unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: see the module.
    unsafe {
        if let Some(known) = process().and_then(|process| process.queue_pair(qp)) {
            return known.post(first, bad);
        }
        match context_of((*qp).context).and_then(|context| context.ops.post_send) {
            Some(post_send) => post_send(qp, first, bad),
            None => libc::EOPNOTSUPP,
        }
    }
}

unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, count: c_int, completions: *mut ibv_wc) -> c_int {
    // SAFETY: see the module.
    unsafe {
        if let Some(process) = process()
            && let Some(known) = process.completion_queue(cq)
        {
            known.kick();
            return known.poll(&process.places, cq, count, completions);
        }
        match context_of((*cq).context).and_then(|context| context.ops.poll_cq) {
            Some(poll_cq) => poll_cq(cq, count, completions),
            None => -1,
        }
    }
}

unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: see the module.
    unsafe {
        if let Some(known) = process().and_then(|process| process.completion_queue(cq)) {
            known.arms(solicited_only);
        }
        match context_of((*cq).context).and_then(|context| context.ops.req_notify_cq) {
            Some(req_notify_cq) => req_notify_cq(cq, solicited_only),
            None => libc::EOPNOTSUPP,
        }
    }
}

/// The old bind call bypasses the software queue, so waiting messages are posted first.
unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
    let known = process().and_then(|process| process.queue_pair(qp));
    if known.is_some_and(|known| !known.flush()) {
        return libc::ENOMEM;
    }
    // SAFETY: see the module.
    unsafe {
        let Some(provider) = context_of((*qp).context).and_then(|context| context.ops.bind_mw)
        else {
            return libc::EOPNOTSUPP;
        };
        let Some(known) = known else {
            return provider(qp, mw, bind);
        };
        let mut made = std::ptr::read(bind);
        if known.asked().is_some_and(|(_, signal_all)| signal_all) {
            // The provider does not know that the application wants all completions.
            made.send_flags |= IBV_SEND_SIGNALED;
        }
        let answer = provider(qp, mw, &raw mut made);
        if answer == 0 {
            known.went_past();
        }
        answer
    }
}

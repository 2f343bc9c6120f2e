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
use crate::creation::{create_paced, post_directly, post_in_domain};
use crate::extended;
use crate::originals::{Originals, past_ours};
use crate::process::{Process, context_of, install, process};
use crate::settings::Settings;
use isolane_rdma_session::message::PortAddress;
use isolane_rdma_session::region::Service;
use isolane_rdma_verbs_sys::*;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

/// The functions that replace table entries of contexts.
pub const HOOKS: Hooks = Hooks {
    post_send,
    poll_cq,
    req_notify_cq,
    bind_mw,
    create_qp_ex,
    create_cq_ex,
    alloc_parent_domain,
};

fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The originals; also available without a process state (in a child of `fork`).
pub(crate) fn originals() -> Option<Originals> {
    static ORIGINALS: OnceLock<Option<Originals>> = OnceLock::new();
    if let Some(process) = process() {
        return Some(process.originals);
    }
    *ORIGINALS.get_or_init(|| match past_ours(|| Library::open(Lookup::Library)) {
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
        adopt(process, context)
    }
}

/// Opens a device for a vendor's library (`mlx5dv_open_device`), and for libibverbs' own `ibv_open_device`.
///
/// # Safety
/// As `ibv_open_device(3)`; `data` is the vendor's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn verbs_open_device(
    device: *mut ibv_device,
    data: *mut c_void,
) -> *mut ibv_context {
    let Some(process) = begin() else {
        return failed(libc::ENOSYS);
    };
    let Some(open) = process.originals.open_device_by_vendor else {
        return failed(libc::ENOSYS);
    };
    // SAFETY: see the module.
    unsafe {
        let context = open(device, data);
        adopt(process, context)
    }
}

/// Handles an opened context, unless a function by which it was opened has done so.
///
/// # Safety
/// `context` is null or was just opened.
unsafe fn adopt(process: &'static Process, context: *mut ibv_context) -> *mut ibv_context {
    let ours: usize = post_send as *const () as usize;
    // SAFETY: see above.
    unsafe {
        if !context.is_null() && (*context).ops.post_send.map(|post| post as usize) != Some(ours) {
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

/// Changes the size of a completion queue, with room for completions of ours as far as the device's maximum permits.
///
/// # Safety
/// See `ibv_resize_cq(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    let resize = |cqe| original!(resize_cq(cq, cqe), else libc::ENOSYS);
    let ours = process().and_then(|process| Some((process, process.completion_queue(cq)?)));
    let (Some((process, known)), Ok(asked)) = (ours, u32::try_from(cqe)) else {
        return resize(cqe);
    };
    let mut spare = known.spare_at(asked);
    let mut answer = resize((asked + spare) as c_int);
    if answer != 0 && spare > 0 {
        spare = 0;
        answer = resize(cqe);
    }
    if answer == 0 && !known.resized(spare) {
        for queue_pair in process.places.all() {
            queue_pair.stop_splitting(cq);
        }
    }
    answer
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

unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    let Some(alloc) = context_of(context).and_then(|known| known.alloc_parent_domain) else {
        return failed(libc::EOPNOTSUPP);
    };
    // SAFETY: see the module.
    unsafe {
        let parent = alloc(context, attr);
        if let Some(process) = process().filter(|_| !parent.is_null()) {
            process.domains.parent(parent, (*attr).td);
        }
        parent
    }
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
    unsafe { create_paced(pd, (*pd).context, &mut *attr, create) }
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
        let pd = match (*attr).comp_mask & IBV_QP_INIT_ATTR_PD {
            0 => std::ptr::null_mut(),
            _ => (*attr).pd,
        };
        let qp = create_paced(pd, context, &mut plain, create);
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
    let Some(process) = process() else {
        return original!(modify_qp(qp, attr, mask), else libc::ENOSYS);
    };
    let known = process.queue_pair(qp);
    // SAFETY: see the module.
    unsafe {
        let path = path_of(attr, mask);
        let state = (mask as u32 & IBV_QP_STATE != 0).then_some((*attr).qp_state);
        if let Some(known) = known.filter(|_| state == Some(IBV_QPS_RESET)) {
            known.state_changed(IBV_QPS_RESET);
        }
        let answer = (process.originals.modify_qp)(qp, attr, mask);
        if answer != 0 {
            return answer;
        }
        if let Some((service, port)) = path {
            match known {
                Some(known) => {
                    let device = known.device();
                    let reads = device.map(|device| process.reads_from(device, port));
                    known.connected(service, reads);
                }
                None => process.base.show_service(service),
            }
        }
        if let (Some(known), Some(state)) = (known, state) {
            known.state_changed(state);
        }
        if state == Some(IBV_QPS_RESET) {
            process.forget_completions([(*qp).send_cq, (*qp).recv_cq], (*qp).qp_num);
        }
        if let Some(known) = known.filter(|_| state.is_some()) {
            known.drive();
        }
        answer
    }
}

/// The class of a connection and the port at its other end, if the call sets them.
///
/// # Safety
/// As for `ibv_modify_qp`.
unsafe fn path_of(attr: *const ibv_qp_attr, mask: c_int) -> Option<(Service, PortAddress)> {
    if mask as u32 & IBV_QP_AV == 0 {
        return None;
    }
    // SAFETY: the mask says that the application has set the path.
    let path = unsafe { &(*attr).ah_attr };
    let (traffic_class, port) = match path.is_global {
        0 => (0, PortAddress::of_lid(path.dlid)),
        _ => (path.grh.traffic_class, PortAddress(path.grh.dgid.raw)),
    };
    let service = Service {
        level: path.sl,
        traffic_class,
    };
    Some((service, port))
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
    let Some(process) = process() else {
        return original!(destroy_qp(qp), else libc::ENOSYS);
    };
    // SAFETY: see the module.
    let (queues, number) = unsafe { ([(*qp).send_cq, (*qp).recv_cq], (*qp).qp_num) };
    let known = process.queue_pair(qp);
    if let Some(known) = known {
        known.pause();
        process.forget_queue_pair(qp);
    }
    // SAFETY: see the module.
    let answer = unsafe { (process.originals.destroy_qp)(qp) };
    if answer == 0 {
        process.domains.leave(qp);
        process.forget_completions(queues, number);
        if let Some(known) = known.filter(|known| known.detach()) {
            process.places.give_back(known);
        }
    } else if let Some(known) = known {
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
        if let Some(process) = process() {
            if let Some(known) = process.queue_pair(qp) {
                return known.post(first, bad);
            }
            if process.domains.has(qp) {
                return post_in_domain(qp, first, bad);
            }
        }
        post_directly(qp, first, bad)
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
            return known.arm(cq, solicited_only);
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

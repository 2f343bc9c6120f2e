//! Creates paced queue pairs; posts to queue pairs that are not paced, or are in a thread domain.
//!
//! Method: the provider's queue pair gets additional places for chunks, and every message asks for a completion by its
//! own flag. What cannot be paced is created as the application asked, and one line says why if that is no choice of the
//! application's.

use crate::base::Saying;
use crate::completion_queue::CompletionQueue;
use crate::context::Context;
use crate::places::PLACES;
use crate::process::{Process, context_of, process};
use crate::queue::Splitting;
use crate::queue_pair::{Plan, QueuePair, SPARE_MIN};
use isolane_rdma_verbs_sys::*;
use std::ffi::c_int;

/// Places for chunks in the provider's send queue, beyond the application's depth.
const SPARE: u32 = 128;

/// Whether queue pairs of this transport are paced.
fn paced(kind: ibv_qp_type) -> bool {
    matches!(
        kind,
        IBV_QPT_RC | IBV_QPT_UC | IBV_QPT_UD | IBV_QPT_XRC_SEND
    )
}

/// Completion queue and place of a new queue pair; `None` if it is not paced.
fn to_pace(
    process: &Process,
    known: &Context,
    attr: &ibv_qp_init_attr,
) -> Option<(&'static CompletionQueue, &'static QueuePair)> {
    let sends = attr.cap.max_send_wr > 0 && !attr.send_cq.is_null();
    if !paced(attr.qp_type) || !sends || !known.device.is_served() {
        return None;
    }
    let Some(send_cq) = process.completion_queue(attr.send_cq) else {
        // It may be polled by functions of its own, which would show our identifiers.
        process.base.say_once(
            Saying::VendorQueue,
            "a vendor's function (such as mlx5dv_create_cq) created the completion queue of a queue pair; \
             this queue pair runs unpaced",
        );
        return None;
    };
    let place = process.places.take();
    if place.is_none() {
        process.base.say_once(
            Saying::NoPlace,
            &format!("more than {PLACES} queue pairs; further ones run unpaced"),
        );
    }
    Some((send_cq, place?))
}

/// Room of the completion queue for at most `most` chunks; 0 where too little is left, or where requests may complete in
/// another order.
fn take_spare(send_cq: &CompletionQueue, kind: ibv_qp_type, most: u32) -> u32 {
    if !matches!(kind, IBV_QPT_RC | IBV_QPT_UC) || most < SPARE_MIN {
        return 0;
    }
    let spare = send_cq.take_room(most);
    if spare < SPARE_MIN {
        send_cq.give_room_back(spare);
        return 0;
    }
    spare
}

/// Creates a queue pair with `create`, enlarged by the places for chunks, and paces it.
///
/// # Safety
/// `attr` is valid for `create`, which creates a queue pair of `context`.
pub(crate) unsafe fn create_paced(
    pd: *mut ibv_pd,
    context: *mut ibv_context,
    attr: &mut ibv_qp_init_attr,
    create: impl Fn(&mut ibv_qp_init_attr) -> *mut ibv_qp,
) -> *mut ibv_qp {
    let ours = process().and_then(|process| Some((process, process.context(context)?)));
    let Some((process, known)) = ours else {
        return create(attr);
    };
    let Some(post_send) = known.ops.post_send else {
        return create(attr);
    };
    let Some((send_cq, place)) = to_pace(process, known, attr) else {
        let qp = create(attr);
        if !qp.is_null() {
            process.domains.enter(pd, qp, post_send, post_in_domain);
        }
        return qp;
    };
    let depth = attr.cap.max_send_wr;
    let most = known.max_qp_wr.saturating_sub(depth).min(SPARE);
    let mut spare = take_spare(send_cq, attr.qp_type, most);
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
        post_send: process.domains.enter(pd, qp, post_send, post_in_domain),
        device: known.device,
        reads: &known.device.meters[1],
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

/// Posts to a queue pair of a thread domain, while no other thread posts in this domain.
pub(crate) unsafe extern "C" fn post_in_domain(
    qp: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: see the module.
    unsafe {
        let posted = process().and_then(|process| process.domains.post(qp, first, bad));
        // A child of `fork` has no domains.
        posted.unwrap_or_else(|| post_directly(qp, first, bad))
    }
}

/// The provider's post.
///
/// # Safety
/// As for `ibv_post_send`.
pub(crate) unsafe fn post_directly(
    qp: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: passed on.
    unsafe {
        match context_of((*qp).context).and_then(|context| context.ops.post_send) {
            Some(post_send) => post_send(qp, first, bad),
            None => libc::EOPNOTSUPP,
        }
    }
}

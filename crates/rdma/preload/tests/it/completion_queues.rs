//! Completion queues: their events, and their size.

use crate::behaviour::{CHUNK, SLOW, bytes, ids, ready, statuses, write};
use crate::null;
use crate::rig::{Rig, Shape, lease, pass_time, serial, set_state};
use isolane_rdma_verbs_sys::*;
use isolane_shim::exports;

#[test]
fn an_event_of_ours_alone_is_not_seen() {
    let _serial = serial();
    // Spare places are 128, so every 32nd chunk requests a completion.
    let (rig, from, to) = ready(SLOW, 40_000, 60_000);
    assert_eq!(unsafe { ibv_req_notify_cq(rig.send_cq, 0) }, 0);
    write(&rig, 1, &from, &to);
    rig.step(rig.qp(), 35);
    let (mut cq, mut user) = (std::ptr::null_mut(), std::ptr::null_mut());
    let mut event =
        || unsafe { exports::ibv_get_cq_event(rig.channel, &raw mut cq, &raw mut user) };
    assert_eq!(event(), -1, "only ours has completed");
    rig.settle();
    assert_eq!(event(), 0);
    assert_eq!(rig.poll(rig.send_cq, 8).len(), 1);
    assert_eq!(event(), -1);
    assert_eq!(
        unsafe { (*rig.send_cq).comp_events_completed },
        1,
        "the other one, acknowledged"
    );
}

/// A rig after three writes; there is credit for the first one.
fn with_three_writes(extended: bool, from: &[u8], to: &[u8]) -> Rig {
    let shape = Shape {
        extended,
        ..Shape::default()
    };
    let rig = Rig::new(shape, &lease(SLOW, 8, CHUNK));
    for id in 1..=3 {
        write(&rig, id, from, to);
    }
    rig
}

/// Goal: a program that sleeps until its completion channel has an event learns of a request that was rejected late.
/// Method: the provider rejects the second and the third request after their posts have returned.
#[test]
fn a_refusal_after_the_post_wakes_who_waits_for_an_event() {
    let _serial = serial();
    for (extended, solicited_only) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
        let (from, to) = (bytes(8), vec![0u8; 8]);
        let rig = with_three_writes(extended, &from, &to);
        assert_eq!(rig.step(rig.qp(), 8), 1, "the others wait for credit");
        assert_eq!(take(&rig), [(1, IBV_WC_SUCCESS)]);
        assert_eq!(unsafe { ibv_req_notify_cq(rig.send_cq, solicited_only) }, 0);
        null::refuse_payload(rig.qp(), libc::EIO);
        rig.settle();
        let (mut cq, mut user) = (std::ptr::null_mut(), std::ptr::null_mut());
        let event = unsafe { exports::ibv_get_cq_event(rig.channel, &raw mut cq, &raw mut user) };
        assert_eq!(event, 0, "extended: {extended}, {solicited_only}");
        let refused = IBV_WC_LOC_QP_OP_ERR;
        let expected = [(2, refused), (3, refused)];
        assert_eq!(take(&rig), expected, "extended: {extended}");
        null::refuse_payload(rig.qp(), 0);
        write(&rig, 4, &from, &to);
        rig.settle();
        assert_eq!(take(&rig), [(4, IBV_WC_SUCCESS)], "it still works");
    }
}

/// Goal: a late rejection wakes a program that waits for solicited events only, although an earlier message is still on its
/// way, whose completion takes an event. Method: the program requests events before or after the rejection, and again when
/// it has polled the first message. After the rejected ones, successful completions make no such event again.
#[test]
fn a_refusal_behind_a_message_on_its_way_wakes_who_waits_for_solicited_events() {
    let _serial = serial();
    for (extended, early) in [(false, false), (false, true), (true, false), (true, true)] {
        let (from, to) = (bytes(8), vec![0u8; 8]);
        let rig = with_three_writes(extended, &from, &to);
        let arm = || assert_eq!(unsafe { ibv_req_notify_cq(rig.send_cq, 1) }, 0);
        if early {
            arm();
        }
        null::refuse_payload(rig.qp(), libc::EIO);
        pass_time(1_000_000_000);
        rig.pump();
        assert_eq!(null::provider_requests(rig.qp()), 3, "all on their way");
        if !early {
            arm();
        }
        let (mut cq, mut user) = (std::ptr::null_mut(), std::ptr::null_mut());
        let mut event =
            || unsafe { exports::ibv_get_cq_event(rig.channel, &raw mut cq, &raw mut user) };
        let case = format!("extended: {extended}, early: {early}");
        assert_eq!(rig.step(rig.qp(), 1), 1);
        assert_eq!(event(), 0, "{case}");
        assert_eq!(take(&rig), [(1, IBV_WC_SUCCESS)]);
        for id in 2..=3 {
            arm();
            assert_eq!(rig.step(rig.qp(), 1), 1);
            assert_eq!(event(), 0, "{case}");
            assert_eq!(take(&rig), [(id, IBV_WC_LOC_QP_OP_ERR)], "{case}");
        }
        arm();
        null::refuse_payload(rig.qp(), 0);
        write(&rig, 4, &from, &to);
        rig.settle();
        assert_eq!(event(), -1, "{case}: as the program asked");
        assert_eq!(take(&rig), [(4, IBV_WC_SUCCESS)]);
    }
}

/// Goal: a queue pair that was reset while an empty request was on its way leaves no trace in the requests for events.
#[test]
fn a_reset_ends_the_wait_for_replacements() {
    let _serial = serial();
    let rig = Rig::new(Shape::default(), &lease(SLOW, 8, CHUNK));
    let (from, to) = (bytes(8), vec![0u8; 8]);
    for id in 1..=2 {
        write(&rig, id, &from, &to);
    }
    null::refuse_payload(rig.qp(), libc::EIO);
    pass_time(1_000_000_000);
    rig.pump();
    assert_eq!(null::provider_requests(rig.qp()), 2, "one in place of 2");
    null::refuse_payload(rig.qp(), 0);
    set_state(rig.qp(), IBV_QPS_RESET);
    set_state(rig.qp(), IBV_QPS_RTS);
    assert_eq!(unsafe { ibv_req_notify_cq(rig.send_cq, 1) }, 0);
    write(&rig, 3, &from, &to);
    rig.settle();
    let (mut cq, mut user) = (std::ptr::null_mut(), std::ptr::null_mut());
    let event = unsafe { exports::ibv_get_cq_event(rig.channel, &raw mut cq, &raw mut user) };
    assert_eq!(event, -1, "not solicited");
    assert_eq!(take(&rig), [(3, IBV_WC_SUCCESS)]);
}

/// Goal: a late rejection does not end a connection whose peer permits no remote WRITE, where the completion queue has
/// no channel, so no thread can wait for an event.
#[test]
fn a_refusal_posts_nothing_where_no_event_can_be_awaited() {
    let _serial = serial();
    let shape = Shape {
        events: false,
        ..Shape::default()
    };
    let rig = Rig::new(shape, &lease(SLOW, 8, CHUNK));
    let (from, to) = (bytes(8), vec![0u8; 8]);
    for id in 1..=3 {
        write(&rig, id, &from, &to);
    }
    null::refuse_payload(rig.qp(), libc::EIO);
    rig.settle();
    let refused = IBV_WC_LOC_QP_OP_ERR;
    let expected = [(1, IBV_WC_SUCCESS), (2, refused), (3, refused)];
    assert_eq!(take(&rig), expected);
    assert_eq!(null::provider_requests(rig.qp()), 1, "only the first");
    null::refuse_payload(rig.qp(), 0);
    write(&rig, 4, &from, &to);
    rig.settle();
    assert_eq!(take(&rig), [(4, IBV_WC_SUCCESS)], "it still works");
}

/// Identifiers and statuses of all completions, by the calls of the rig's queue.
fn take(rig: &Rig) -> Vec<(u64, ibv_wc_status)> {
    if !rig.shape.extended {
        return statuses(&rig.poll(rig.send_cq, 8));
    }
    let cq: *mut ibv_cq_ex = rig.send_cq.cast();
    let mut seen = Vec::new();
    unsafe {
        if ibv_start_poll(cq, std::ptr::null_mut()) == 0 {
            loop {
                seen.push(((*cq).wr_id, (*cq).status));
                if ibv_next_poll(cq) != 0 {
                    break;
                }
            }
            ibv_end_poll(cq);
        }
    }
    seen
}

/// Goal: a completion queue may grow to the device's stated maximum, which leaves no room for completions of chunks.
/// Method: half of a message has gone as chunks; the rest, and later messages, go whole.
#[test]
fn a_completion_queue_grows_to_the_devices_maximum() {
    let _serial = serial();
    let (rig, from, to) = ready(SLOW, 2_000, 5_000);
    write(&rig, 1, &from, &to);
    assert_eq!(null::provider_requests(rig.qp()), 2, "a burst of chunks");
    let resize = |cqe| unsafe { exports::ibv_resize_cq(rig.send_cq, cqe) };
    for broken in [-1, 0, null::MAX_CQE + 1] {
        assert_eq!(resize(broken), libc::EINVAL, "{broken}");
    }
    assert_eq!(resize(null::MAX_CQE), 0);
    assert_eq!(unsafe { (*rig.send_cq).cqe }, null::MAX_CQE);
    rig.settle();
    assert_eq!(null::provider_requests(rig.qp()), 3, "the rest goes whole");
    write(&rig, 2, &from, &to);
    rig.settle();
    assert_eq!(null::provider_requests(rig.qp()), 4, "and so does the next");
    assert_eq!(ids(&rig), [1, 2]);
    assert_eq!(from, to);
    assert_eq!(resize(512), 0);
    assert!(unsafe { (*rig.send_cq).cqe } > 512, "with room again");
}

#[test]
fn a_completion_queue_without_entries_is_refused() {
    let _serial = serial();
    let (rig, ..) = ready(SLOW, 2_000, 0);
    for cqe in [0, -1, null::MAX_CQE + 1] {
        let none = std::ptr::null_mut();
        let cq = unsafe { exports::ibv_create_cq(rig.context, cqe, none, std::ptr::null_mut(), 0) };
        assert!(cq.is_null(), "{cqe}");
    }
}

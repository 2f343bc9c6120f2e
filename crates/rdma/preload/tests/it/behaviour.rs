//! The application's view of a paced queue pair, case by case, over the null provider.

use crate::null;
use crate::rig::{self, Rig, Shape, address, lease, pass_time, serial, sge, work, write_request};
use isolane_rdma_session::region::{GRACE_NS, Lease, SILENT_NS};
use isolane_rdma_verbs_sys::*;
use isolane_shim::exports;
use isolane_shim::pump::Driven;
use std::sync::atomic::Ordering;

pub(crate) const SLOW: u64 = 1_000_000;
pub(crate) const CHUNK: u32 = 1_000;

pub(crate) fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// A signalled write of all of `list` to the start of `to`.
fn signalled_write(id: u64, list: &mut [ibv_sge], to: &[u8]) -> ibv_send_wr {
    write_request(id, list, address(to), IBV_SEND_SIGNALED)
}

/// A paced queue pair, and two buffers of `size` bytes.
pub(crate) fn ready(rate: u64, burst: u64, size: usize) -> (Rig, Vec<u8>, Vec<u8>) {
    let rig = Rig::new(Shape::default(), &lease(rate, burst, CHUNK));
    (rig, bytes(size), vec![0u8; size])
}

/// Posts a signalled write of `from` to `to`.
pub(crate) fn write(rig: &Rig, id: u64, from: &[u8], to: &[u8]) {
    let mut list = [sge(from)];
    let mut one = signalled_write(id, &mut list, to);
    rig.post(rig.qp(), &mut one).unwrap();
}

/// Posts the same write on the first queue pair of each pair.
fn write_on_all(rig: &Rig, from: &[u8], to: &[u8]) {
    let mut list = [sge(from)];
    for (qp, _) in &rig.pairs {
        let mut one = signalled_write(1, &mut list, to);
        rig.post(*qp, &mut one).unwrap();
    }
}

pub(crate) fn ids(rig: &Rig) -> Vec<u64> {
    let seen = rig.poll(rig.send_cq, 8);
    seen.iter().map(|wc| wc.wr_id).collect()
}

pub(crate) fn statuses(seen: &[ibv_wc]) -> Vec<(u64, ibv_wc_status)> {
    seen.iter().map(|wc| (wc.wr_id, wc.status)).collect()
}

#[test]
fn a_large_write_goes_out_as_chunks_and_completes_once() {
    let _serial = serial();
    let (rig, from, to) = ready(SLOW, 2_000, 50_500);
    write(&rig, 42, &from, &to);
    assert_eq!(null::provider_requests(rig.qp()), 2, "a burst, and no more");
    rig.settle();
    let seen = rig.poll(rig.send_cq, 3);
    assert_eq!(seen.len(), 1);
    let expected = (42, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE, 50_500);
    assert_eq!(
        (
            seen[0].wr_id,
            seen[0].status,
            seen[0].opcode,
            seen[0].byte_len
        ),
        expected
    );
    assert_eq!(from, to);
    assert_eq!(null::provider_requests(rig.qp()), 51);
}

#[test]
fn the_rate_is_the_leases() {
    let _serial = serial();
    let (rig, from, to) = ready(SLOW, 2_000, 100_000);
    write(&rig, 1, &from, &to);
    for _ in 0..490 {
        pass_time(100_000);
        rig.pump();
        rig.step(rig.qp(), 100);
    }
    let passed = null::provider_requests(rig.qp());
    assert!(
        (50..=51).contains(&passed),
        "2 at once, then 1 in each of 49 ms: {passed}"
    );
}

#[test]
fn the_queue_is_full_at_the_requested_depth() {
    let _serial = serial();
    for shimmed in [false, true] {
        let shape = Shape {
            shimmed,
            ..Shape::default()
        };
        let rig = Rig::new(shape, &lease(SLOW, 10, CHUNK));
        let (from, to) = (bytes(8), vec![0u8; 8]);
        let mut list = [sge(&from)];
        let mut one = signalled_write(1, &mut list, &to);
        for _ in 0..16 {
            rig.post(rig.qp(), &mut one).unwrap();
        }
        let here = (&raw const one).addr();
        assert_eq!(
            rig.post(rig.qp(), &mut one),
            Err((here, libc::ENOMEM)),
            "shim: {shimmed}"
        );
        rig.settle();
        assert_eq!(
            rig.post(rig.qp(), &mut one),
            Err((here, libc::ENOMEM)),
            "not polled yet"
        );
        assert_eq!(rig.poll(rig.send_cq, 4).len(), 16);
        rig.post(rig.qp(), &mut one).unwrap();
    }
}

#[test]
fn a_refused_request_in_a_list_is_named() {
    let _serial = serial();
    for shimmed in [false, true] {
        let shape = Shape {
            shimmed,
            ..Shape::default()
        };
        let rig = Rig::new(shape, &lease(0, 0, CHUNK));
        let (from, to) = (bytes(8), vec![0u8; 8]);
        let mut list = [sge(&from)];
        let mut broken_list = [sge(&from); 5];
        let mut third = signalled_write(3, &mut list, &to);
        let mut second = write_request(2, &mut broken_list, address(&to), 0);
        let mut first = signalled_write(1, &mut list, &to);
        second.next = &raw mut third;
        first.next = &raw mut second;
        let refused = (&raw const second).addr();
        assert_eq!(rig.post(rig.qp(), &mut first), Err((refused, libc::EINVAL)));
        rig.settle();
        let seen = ids(&rig);
        assert_eq!(seen, [1], "shim: {shimmed}");
    }
}

/// A provider may accept more than it promised. An accepted request must not be rejected as well, or it would be posted
/// twice. It completes as the application's own request and is charged.
#[test]
fn a_list_longer_than_promised_goes_where_the_provider_takes_it() {
    let _serial = serial();
    for (shimmed, signal_all) in [(false, false), (true, false), (true, true)] {
        let shape = Shape {
            shimmed,
            signal_all,
            ..Shape::default()
        };
        let rig = Rig::new(shape, &lease(SLOW, 1_000, CHUNK));
        null::like_siw(rig.qp());
        let (from, to) = (bytes(3_000), vec![0u8; 15_000]);
        let mut long = [sge(&from); 5];
        let mut list = [sge(&from[..100])];
        let mut third = signalled_write(3, &mut list, &to[100..]);
        let mut second = write_request(2, &mut long, address(&to), IBV_SEND_SIGNALED);
        let mut first = signalled_write(1, &mut list, &to);
        second.next = &raw mut third;
        first.next = &raw mut second;
        rig.post(rig.qp(), &mut first).unwrap();
        rig.step(rig.qp(), 8);
        let went = null::provider_requests(rig.qp());
        assert_eq!(
            went,
            if shimmed { 2 } else { 3 },
            "the third waits for the debt"
        );
        rig.settle();
        let seen = ids(&rig);
        assert_eq!(seen, [1, 2, 3], "shim: {shimmed}");
        assert_eq!(null::provider_requests(rig.qp()), 3, "each once");
        assert_eq!(to[12_000..], from);
    }
}

#[test]
fn a_refusal_by_the_provider_is_returned_at_once() {
    let _serial = serial();
    for size in [8, 5_000] {
        let rig = Rig::new(Shape::default(), &lease(0, 0, CHUNK));
        let (from, to) = (bytes(size), vec![0u8; size]);
        let mut list = [sge(&from)];
        let mut one = signalled_write(1, &mut list, &to);
        null::refuse(rig.qp(), libc::EIO);
        let here = (&raw const one).addr();
        assert_eq!(rig.post(rig.qp(), &mut one), Err((here, libc::EIO)));
        null::refuse(rig.qp(), 0);
        rig.post(rig.qp(), &mut one).unwrap();
        rig.settle();
        assert_eq!(rig.poll(rig.send_cq, 8).len(), 1);
    }
}

#[test]
fn a_refusal_after_the_post_becomes_an_error_completion() {
    let _serial = serial();
    let (rig, from, to) = ready(SLOW, 8, 8);
    for id in 1..=3 {
        write(&rig, id, &from, &to);
    }
    null::refuse(rig.qp(), libc::EIO);
    pass_time(1_000_000);
    rig.pump();
    assert!(
        rig.poll(rig.send_cq, 8).is_empty(),
        "the first is still on its way"
    );
    rig.settle();
    let seen = statuses(&rig.poll(rig.send_cq, 8));
    let refused = IBV_WC_LOC_QP_OP_ERR;
    assert_eq!(seen, [(1, IBV_WC_SUCCESS), (2, refused), (3, refused)]);
}

/// An operation that the transport does not have is rejected by the post, also behind a queue.
#[test]
fn an_operation_of_another_transport_is_refused_at_once() {
    let _serial = serial();
    let shape = Shape {
        kind: IBV_QPT_UC,
        ..Shape::default()
    };
    let rig = Rig::new(shape, &lease(SLOW, 8, CHUNK));
    let (from, to) = (bytes(8), vec![0u8; 8]);
    for id in 1..=3 {
        write(&rig, id, &from, &to);
    }
    let mut list = [sge(&from)];
    let mut read = work(4, IBV_WR_RDMA_READ, &mut list, address(&to), 0);
    let here = (&raw const read).addr();
    assert_eq!(rig.post(rig.qp(), &mut read), Err((here, libc::EINVAL)));
    rig.settle();
    assert_eq!(ids(&rig), [1, 2, 3]);
}

#[test]
fn inline_data_may_change_after_the_post() {
    let _serial = serial();
    let rig = Rig::new(Shape::default(), &lease(SLOW, 10, CHUNK));
    let to = vec![0u8; 40];
    let mut from = [5u8; 20];
    for at in 0..2 {
        let mut list = [sge(&from[..12]), sge(&from[12..])];
        let flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
        let mut one = write_request(1, &mut list, address(&to) + at * 20, flags);
        rig.post(rig.qp(), &mut one).unwrap();
        from.fill(9);
    }
    rig.settle();
    assert_eq!(to[..20], [5; 20]);
    assert_eq!(to[20..], [9; 20]);
    assert_eq!(rig.poll(rig.send_cq, 8).len(), 2);
}

#[test]
fn an_error_in_the_middle_of_a_message_is_one_completion() {
    let _serial = serial();
    let (rig, from, to) = ready(SLOW, 3_000, 20_000);
    null::forbid(address(&to) + 5_500, 1);
    for (wr_id, flags) in [(1, 0), (2, IBV_SEND_SIGNALED), (3, 0)] {
        let mut list = [sge(&from)];
        let mut one = write_request(wr_id, &mut list, address(&to), flags);
        rig.post(rig.qp(), &mut one).unwrap();
    }
    rig.settle();
    let seen = rig.poll(rig.send_cq, 2);
    rig.settle();
    let seen: Vec<_> = [seen, rig.poll(rig.send_cq, 2)].concat();
    let seen = statuses(&seen);
    let flushed = IBV_WC_WR_FLUSH_ERR;
    assert_eq!(
        seen,
        [(1, IBV_WC_REM_ACCESS_ERR), (2, flushed), (3, flushed)]
    );
    assert_eq!(to[..5_000], from[..5_000]);
}

#[test]
fn what_waits_is_flushed_when_the_application_fails_the_queue_pair() {
    let _serial = serial();
    let (rig, from, to) = ready(SLOW, 1_000, 5_000);
    for wr_id in 1..=4 {
        let mut list = [sge(&from)];
        let mut one = write_request(wr_id, &mut list, address(&to), 0);
        rig.post(rig.qp(), &mut one).unwrap();
    }
    rig::set_state(rig.qp(), IBV_QPS_ERR);
    rig.settle();
    let seen = statuses(&rig.poll(rig.send_cq, 8));
    assert_eq!(seen, [1, 2, 3, 4].map(|wr_id| (wr_id, IBV_WC_WR_FLUSH_ERR)));
}

#[test]
fn a_reset_forgets_what_waits_and_the_queue_pair_works_again() {
    let _serial = serial();
    let (rig, from, to) = ready(SLOW, 1_000, 5_000);
    let mut list = [sge(&from)];
    for _ in 0..16 {
        let mut one = signalled_write(1, &mut list, &to);
        rig.post(rig.qp(), &mut one).unwrap();
    }
    rig::set_state(rig.qp(), IBV_QPS_RESET);
    rig.settle();
    assert!(rig.poll(rig.send_cq, 8).is_empty());
    let mut one = signalled_write(7, &mut list, &to);
    let here = (&raw const one).addr();
    assert_eq!(
        rig.post(rig.qp(), &mut one),
        Err((here, libc::EINVAL)),
        "as the provider says it"
    );
    rig::set_state(rig.qp(), IBV_QPS_RTS);
    rig.post(rig.qp(), &mut one).unwrap();
    rig.settle();
    let seen = ids(&rig);
    assert_eq!(seen, [7]);
    assert_eq!(from, to);
}

#[test]
fn destroying_a_queue_pair_drops_what_waits() {
    let _serial = serial();
    let mut rig = Rig::new(
        Shape {
            pairs: 2,
            ..Shape::default()
        },
        &lease(SLOW, 1_000, CHUNK),
    );
    let (from, to) = (bytes(5_000), vec![0u8; 5_000]);
    write_on_all(&rig, &from, &to);
    let (one, two) = rig.pairs.remove(0);
    assert_eq!(unsafe { exports::ibv_destroy_qp(one) }, 0);
    assert_eq!(unsafe { exports::ibv_destroy_qp(two) }, 0);
    rig.settle();
    assert_eq!(rig.poll(rig.send_cq, 8).len(), 1);
    assert!(!rig::process().has_waiting());
}

#[test]
fn the_application_sees_its_own_attributes() {
    let _serial = serial();
    let rig = Rig::new(
        Shape {
            signal_all: true,
            ..Shape::default()
        },
        &lease(0, 0, CHUNK),
    );
    assert!(null::depth(rig.qp()) > 16);
    let (mut attr, mut init) = (ibv_qp_attr::default(), ibv_qp_init_attr::default());
    let answer = unsafe { exports::ibv_query_qp(rig.qp(), &raw mut attr, 0, &raw mut init) };
    assert_eq!(answer, 0);
    assert_eq!(
        (attr.cap.max_send_wr, init.cap.max_send_wr, init.sq_sig_all),
        (16, 16, 1)
    );
}

#[test]
fn without_the_daemon_everything_passes() {
    let _serial = serial();
    let (rig, from, to) = ready(SLOW, 1_000, 500_000);
    write(&rig, 1, &from, &to);
    write(&rig, 1, &from, &to);
    rig::process().release("over");
    rig.pump();
    while rig.step(rig.qp(), 1_000) > 0 {
        rig.pump();
    }
    assert_eq!(rig.poll(rig.send_cq, 8).len(), 2, "no time has passed");
    assert_eq!(from, to);
    let before = null::provider_requests(rig.qp());
    write(&rig, 1, &from, &to);
    assert_eq!(null::provider_requests(rig.qp()), before + 1, "whole");
}

#[test]
fn a_lease_that_ran_out_paces_no_more() {
    let _serial = serial();
    let mut ending = lease(SLOW, 1_000, CHUNK);
    ending.valid_until_ns = rig::clock() + 1_000;
    let rig = Rig::new(Shape::default(), &ending);
    let (from, to) = (bytes(50_000), vec![0u8; 50_000]);
    write(&rig, 1, &from, &to);
    assert_eq!(null::provider_requests(rig.qp()), 1);
    pass_time(isolane_rdma_session::region::GRACE_NS + 2_000);
    rig.pump();
    let passed = null::provider_requests(rig.qp());
    assert_eq!(
        passed, 3,
        "one chunk by the old size, then the rest at once"
    );
}

/// Goal: a stopped daemon holds an idle process no longer than a sender. Method: the lease of an idle process, which has
/// no end; the same time passes with an answer of the daemon in its middle, and without one.
#[test]
fn a_daemon_that_answers_no_wake_up_paces_no_more() {
    let _serial = serial();
    for answers in [true, false] {
        let idle = Lease {
            flags: 0,
            valid_until_ns: u64::MAX,
            ..lease(SLOW, 1_000, CHUNK)
        };
        let rig = Rig::new(Shape::default(), &idle);
        let (from, to) = (bytes(50_000), vec![0u8; 50_000]);
        write(&rig, 1, &from, &to);
        assert_eq!(null::provider_requests(rig.qp()), 1);
        // The first wake-up comes with the first look at the lease. The driver looks again at least once a second.
        for _ in 0..2 {
            pass_time(SILENT_NS / 2 + 2_000);
            if answers {
                rig.region.header.answers.fetch_add(1, Ordering::Relaxed);
            }
            rig.pump();
        }
        while rig.step(rig.qp(), 1_000) > 0 {}
        let done = rig.poll(rig.send_cq, 8).len();
        assert_eq!(done, usize::from(!answers), "answers: {answers}");
    }
}

/// Goal: the pump looks at the end of a lease, although credit for the next chunk is due 10 s later.
#[test]
fn a_waiting_message_is_looked_at_when_its_lease_ends() {
    let _serial = serial();
    let begin = rig::clock();
    let slow = lease(100, 1_000, CHUNK);
    let expires = begin + 1_000_000_000;
    let sender = Lease {
        valid_until_ns: expires,
        ..slow
    };
    let idle = Lease {
        flags: 0,
        valid_until_ns: u64::MAX,
        ..slow
    };
    let ends = [expires + GRACE_NS, begin + SILENT_NS];
    for (lease, end) in [sender, idle].into_iter().zip(ends) {
        let rig = Rig::new(Shape::default(), &lease);
        let (from, to) = (bytes(50_000), vec![0u8; 50_000]);
        write(&rig, 1, &from, &to);
        assert_eq!(rig.pump(), Some(end + 1));
    }
}

#[test]
fn extended_completion_queues_and_posts_work() {
    let _serial = serial();
    let rig = Rig::new(
        Shape {
            extended: true,
            ..Shape::default()
        },
        &lease(SLOW, 40_000, CHUNK),
    );
    let (from, to) = (bytes(60_000), vec![0u8; 60_000]);
    let mut pd = rig.domain();
    let mut attr = ibv_qp_init_attr_ex {
        send_cq: rig.send_cq,
        recv_cq: rig.recv_cq,
        cap: ibv_qp_cap {
            max_send_wr: 4,
            max_recv_wr: 1,
            max_send_sge: 2,
            max_recv_sge: 1,
            max_inline_data: 32,
        },
        qp_type: IBV_QPT_RC,
        comp_mask: IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        pd: &raw mut pd,
        ..Default::default()
    };
    let create = verbs_create_qp_ex(rig.context);
    unsafe {
        let qp = create(rig.context, &raw mut attr);
        null::join(qp, rig.pairs[0].1);
        rig::set_state(qp, IBV_QPS_RTS);
        let extended: *mut ibv_qp_ex = qp.cast();
        ibv_wr_start(extended);
        (*extended).wr_id = 9;
        (*extended).wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_rdma_write(extended, 2, address(&to));
        ibv_wr_set_sge(extended, 1, address(&from), 60_000);
        assert_eq!(ibv_wr_complete(extended), 0);
        ibv_wr_start(extended);
        ibv_wr_rdma_write(extended, 2, address(&to));
        ibv_wr_abort(extended);
        let cq: *mut ibv_cq_ex = rig.send_cq.cast();
        let mut seen = Vec::new();
        for _ in 0..100 {
            rig.step(qp, 1_000);
            pass_time(1_000_000);
            rig.pump();
            if ibv_start_poll(cq, std::ptr::null_mut()) == 0 {
                loop {
                    seen.push(((*cq).wr_id, (*cq).status, ibv_wc_read_byte_len(cq)));
                    if ibv_next_poll(cq) != 0 {
                        break;
                    }
                }
                ibv_end_poll(cq);
            }
        }
        assert_eq!(seen, [(9, IBV_WC_SUCCESS, 60_000)]);
        assert_eq!(from, to);
        null::join(rig.pairs[0].0, rig.pairs[0].1);
        assert_eq!(exports::ibv_destroy_qp(qp), 0);
    }
}

fn verbs_create_qp_ex(
    context: *mut ibv_context,
) -> unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp {
    unsafe { verbs_get_ctx_op!(context, create_qp_ex) }.expect("the null provider has it")
}

#[test]
fn many_queue_pairs_share_the_lease_equally() {
    let _serial = serial();
    let rig = Rig::new(
        Shape {
            pairs: 5,
            cqe: 4_096,
            ..Shape::default()
        },
        &lease(SLOW, 2_000, CHUNK),
    );
    let (from, to) = (bytes(200_000), vec![0u8; 200_000]);
    write_on_all(&rig, &from, &to);
    for _ in 0..500 {
        pass_time(1_000_000);
        rig.pump();
        for (qp, _) in &rig.pairs {
            rig.step(*qp, 100);
        }
    }
    let passed: Vec<u64> = rig
        .pairs
        .iter()
        .map(|(qp, _)| null::provider_requests(*qp))
        .collect();
    let (least, most) = (passed.iter().min().unwrap(), passed.iter().max().unwrap());
    assert!(most - least <= 2, "{passed:?}");
}

//! The extended calls: arguments arrive unchanged, a batch is posted whole or not at all, an abort leaves nothing.

use crate::null::{self, Done};
use crate::rig::{
    self, Calls, Rig, Shape, address, lease, pass_time, receive, serial, sge, work, write_request,
};
use isolane_rdma_verbs_sys::*;
use std::sync::atomic::Ordering;

const RATE: u64 = 1_000_000;
const CHUNK: u32 = 1_000;
const WINDOW: u32 = 0x1001;
const TOO_LONG: usize = 65;

/// The four ways: with and without the shim, by both kinds of calls.
fn ways(shape: Shape) -> [Shape; 4] {
    let [bare, shimmed] = [false, true].map(|shimmed| Shape { shimmed, ..shape });
    [Calls::Plain, Calls::Extended]
        .map(|calls| [bare, shimmed].map(|shape| Shape { calls, ..shape }))
        .concat()
        .try_into()
        .unwrap()
}

fn chain(all: &mut [ibv_send_wr]) -> &mut ibv_send_wr {
    for at in (1..all.len()).rev() {
        all[at - 1].next = &raw mut all[at];
    }
    &mut all[0]
}

fn extended(rig: &Rig) -> *mut ibv_qp_ex {
    rig.qp().cast()
}

/// Executed work with the chunks of a message joined; completions of one end; its memory.
type Outcome = (Vec<Done>, Vec<(u64, u32, u32, u32, u32, u32)>, Vec<Vec<u8>>);

fn outcome(rig: &Rig, memory: &[Vec<u8>]) -> Outcome {
    rig.settle();
    let mut done: Vec<Done> = Vec::new();
    for one in null::executed(rig.qp()) {
        match done.last_mut() {
            Some(last) if last.opcode == one.opcode && one.opcode == IBV_WR_RDMA_READ => {
                last.bytes += one.bytes;
            }
            _ => done.push(one),
        }
    }
    let completions = [rig.poll(rig.send_cq, 4), rig.poll(rig.recv_cq, 4)].concat();
    let line = |wc: &ibv_wc| {
        let (status, opcode, flags) = (wc.status, wc.opcode, wc.wc_flags);
        (wc.wr_id, status, opcode, wc.byte_len, wc.imm_data, flags)
    };
    (
        done,
        completions.iter().map(line).collect(),
        memory.to_vec(),
    )
}

/// Goal: no call loses or changes an argument. Method: one batch of every call for connected queue pairs, with memory
/// as one piece, as a list, inline, and inline as a list; the four ways must agree in everything.
#[test]
fn every_call_arrives_as_it_was_made() {
    let _serial = serial();
    let run = |shape: Shape| {
        null::allow_all();
        null::window(WINDOW, false);
        let rig = Rig::new(shape, &lease(RATE, 2_000, CHUNK));
        let from: Vec<u8> = (0..9_000u32).map(|at| at as u8).collect();
        let memory: Vec<Vec<u8>> = (0..5).map(|_| vec![7u8; 9_000]).collect();
        let [landed, remote, read, atomic, counted] = &memory[..] else {
            unreachable!("five of them");
        };
        for number in 0..5 {
            receive(
                rig.pairs[0].1,
                90 + number,
                &landed[number as usize * 1_000..],
            );
        }
        let mut whole = [sge(&from[..700])];
        let mut parts = [sge(&from[..300]), sge(&from[500..900])];
        let mut short = [sge(&from[..60])];
        let mut shorts = [sge(&from[100..130]), sge(&from[..20])];
        let mut into = [sge(&read[..4_000]), sge(&read[4_500..])];
        let mut swapped = [sge(&counted[..8])];
        let mut added = [sge(&counted[8..16])];
        let at = |offset: usize| address(&remote[offset..]);
        let (signalled, inline) = (IBV_SEND_SIGNALED, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
        let mut all = [
            write_request(1, &mut parts, at(0), signalled),
            write_request(2, &mut short, at(1_000), inline),
            work(
                3,
                IBV_WR_RDMA_WRITE_WITH_IMM,
                &mut shorts,
                at(2_000),
                inline,
            ),
            work(
                4,
                IBV_WR_SEND,
                &mut whole,
                0,
                signalled | IBV_SEND_SOLICITED,
            ),
            work(5, IBV_WR_SEND_WITH_IMM, &mut parts, 0, signalled),
            work(6, IBV_WR_BIND_MW, &mut [], 0, signalled | IBV_SEND_FENCE),
            work(7, IBV_WR_SEND_WITH_INV, &mut short, 0, inline),
            work(8, IBV_WR_LOCAL_INV, &mut [], 0, signalled),
            work(9, IBV_WR_RDMA_READ, &mut into, at(0), signalled),
            work(10, IBV_WR_ATOMIC_CMP_AND_SWP, &mut swapped, 0, signalled),
            work(11, IBV_WR_ATOMIC_FETCH_AND_ADD, &mut added, 0, signalled),
            work(12, IBV_WR_SEND, &mut [], 0, signalled),
        ];
        (all[2].imm_data, all[4].imm_data) = (0x0302_0100, 0x0b0a_0908);
        (all[6].imm_data, all[7].imm_data) = (WINDOW + 1, WINDOW);
        all[5].bind_mw.bind_mw = ibv_send_wr_bind_mw {
            mw: std::ptr::null_mut(),
            rkey: WINDOW,
            bind_info: ibv_mw_bind_info {
                mr: std::ptr::null_mut(),
                addr: 1,
                length: 2,
                mw_access_flags: 3,
            },
        };
        let sevens = u64::from_ne_bytes([7; 8]);
        for (one, place, compare_add) in [(9, 0, sevens), (10, 8, 5)] {
            all[one].wr.atomic = ibv_send_wr_atomic {
                remote_addr: address(&atomic[place..]),
                compare_add,
                swap: 0x1122_3344_5566_7788,
                rkey: 2,
            };
        }
        rig.post(rig.qp(), chain(&mut all)).unwrap();
        outcome(&rig, &memory)
    };
    let [bare, others @ ..] = ways(Shape::default()).map(run);
    assert_eq!(bare.0.len(), 12, "all were executed");
    let remote = &bare.2[1];
    assert_eq!((remote[299], remote[300], remote[2_030]), (43, 244, 0));
    for other in others {
        assert_eq!(bare, other);
    }
}

/// Datagrams: their addresses, and the header of a segmentation request, which the application may change after the
/// call.
#[test]
fn datagrams_keep_their_address_and_header() {
    let _serial = serial();
    let run = |shape: Shape| {
        let rig = Rig::new(shape, &lease(RATE, 2_000, CHUNK));
        let from = vec![5u8; 1_500];
        let memory = vec![vec![0u8; 9_000]];
        for number in 0..3 {
            receive(
                rig.pairs[0].1,
                number,
                &memory[0][number as usize * 2_000..],
            );
        }
        let mut list = [sge(&from)];
        let mut header = [9u8; 40];
        let mut all: [ibv_send_wr; 3] = std::array::from_fn(|at| {
            let opcode = [IBV_WR_SEND, IBV_WR_TSO, IBV_WR_SEND_WITH_IMM][at];
            let mut one = work(at as u64, opcode, &mut list, 0, IBV_SEND_SIGNALED);
            one.wr.ud = ibv_send_wr_ud {
                ah: std::ptr::dangling_mut(),
                remote_qpn: 40 + at as u32,
                remote_qkey: 50 + at as u32,
            };
            one
        });
        all[1].bind_mw.tso = ibv_send_wr_tso {
            hdr: header.as_mut_ptr().cast(),
            hdr_sz: 40,
            mss: 500,
        };
        chain(&mut all);
        match shape.calls {
            Calls::Plain => rig.post(rig.qp(), &mut all[0]).unwrap(),
            Calls::Extended => unsafe {
                rig::calls::add(extended(&rig), &all[0]);
                header.fill(0);
                assert_eq!(ibv_wr_complete(extended(&rig)), 0);
            },
        }
        header.fill(0);
        outcome(&rig, &memory)
    };
    let kind = IBV_QPT_UD;
    let [bare, others @ ..] = ways(Shape {
        kind,
        ..Shape::default()
    })
    .map(run);
    let addresses: Vec<_> = bare.0.iter().map(|one| one.datagram).collect();
    assert_eq!(addresses, [Some((40, 50)), Some((41, 51)), Some((42, 52))]);
    assert_eq!(bare.2[0][2_000..2_041], [&[9u8; 40][..], &[5]].concat());
    for other in others {
        assert_eq!(bare, other);
    }
}

/// An aborted batch is not posted, not counted and not charged, and does not affect the next one.
#[test]
fn an_aborted_batch_leaves_nothing() {
    let _serial = serial();
    for shimmed in [false, true] {
        null::allow_all();
        null::window(WINDOW, true);
        let calls = Calls::Extended;
        let shape = Shape {
            shimmed,
            calls,
            depth: 8,
            ..Shape::default()
        };
        let rig = Rig::new(shape, &lease(RATE, 2_000, CHUNK));
        let (from, to) = (vec![5u8; 1_000], vec![0u8; 1_000]);
        let (mut list, mut other) = ([sge(&from)], [sge(&from[..10])]);
        for _ in 0..100 {
            let mut all = [
                write_request(1, &mut list, address(&to), IBV_SEND_SIGNALED),
                work(2, IBV_WR_LOCAL_INV, &mut [], 0, IBV_SEND_SIGNALED),
                write_request(3, &mut other, address(&to), IBV_SEND_INLINE),
            ];
            all[1].imm_data = WINDOW;
            unsafe {
                rig::calls::add(extended(&rig), chain(&mut all));
                ibv_wr_abort(extended(&rig));
            }
        }
        rig.settle();
        assert_eq!(null::provider_requests(rig.qp()), 0);
        assert!(rig.poll(rig.send_cq, 4).is_empty());
        let counters = rig.region.meters[0].counters();
        assert_eq!((counters.posted_bytes, counters.passed_bytes), (0, 0));
        let messages = &rig.region.slots[0].posted_messages;
        assert_eq!(messages.load(Ordering::Relaxed), 0);
        // The whole burst is available, and so is the window.
        let mut one = write_request(4, &mut list, address(&to), IBV_SEND_SIGNALED);
        one.wr.rdma.rkey = WINDOW;
        rig.post(rig.qp(), &mut one).unwrap();
        assert_eq!(null::provider_requests(rig.qp()), 1, "no credit was spent");
        rig.step(rig.qp(), 8);
        let seen = rig.poll(rig.send_cq, 4);
        let seen: Vec<_> = seen.iter().map(|wc| (wc.wr_id, wc.status)).collect();
        assert_eq!(seen, [(4, IBV_WC_SUCCESS)], "shimmed: {shimmed}");
        assert_eq!(from, to);
    }
}

/// For a batch with one request too many, or a list or inline data too long, complete returns an error and posts
/// nothing. Queues without completions and messages that wait for credit count as well.
#[test]
fn a_batch_that_does_not_fit_posts_nothing() {
    let _serial = serial();
    for shimmed in [false, true] {
        let calls = Calls::Extended;
        let shape = Shape {
            shimmed,
            calls,
            depth: 3,
            ..Shape::default()
        };
        let rig = Rig::new(shape, &lease(RATE, 1_000, CHUNK));
        let (from, to) = (vec![5u8; 1_000], vec![0u8; 1_000]);
        let (mut list, mut pieces) = ([sge(&from[..10])], [sge(&from[..10]); 5]);
        let mut long = [sge(&from[..TOO_LONG])];
        let mut fits = |signalled: [bool; 2]| {
            let flags = signalled.map(|wish| if wish { IBV_SEND_SIGNALED } else { 0 });
            flags.map(|flags| write_request(1, &mut list, address(&to), flags))
        };
        let refused = |second: ibv_send_wr, errno: i32| {
            let first = fits([false; 2])[0];
            let mut all = [first, second];
            let answer = rig
                .post(rig.qp(), chain(&mut all))
                .map_err(|(_, code)| code);
            assert_eq!(answer, Err(errno), "shimmed: {shimmed}");
            assert_eq!(null::provider_requests(rig.qp()), 0);
        };
        let mut refused = refused;
        refused(write_request(2, &mut pieces, address(&to), 0), libc::EINVAL);
        let flags = IBV_SEND_INLINE;
        refused(
            write_request(2, &mut long, address(&to), flags),
            libc::EINVAL,
        );
        let mut four = [fits([false; 2]), fits([true; 2])].concat();
        let answer = rig
            .post(rig.qp(), chain(&mut four))
            .map_err(|(_, code)| code);
        assert_eq!(answer, Err(libc::ENOMEM));
        assert_eq!(null::provider_requests(rig.qp()), 0);
        // Two seen completions make room for two more messages, no earlier.
        let mut two = fits([false, true]);
        rig.post(rig.qp(), chain(&mut two)).unwrap();
        let mut more = fits([false, true]);
        let answer = rig
            .post(rig.qp(), chain(&mut more))
            .map_err(|(_, code)| code);
        assert_eq!(answer, Err(libc::ENOMEM));
        assert_eq!(null::provider_requests(rig.qp()), 2, "shimmed: {shimmed}");
        rig.settle();
        assert_eq!(rig.poll(rig.send_cq, 4).len(), 1);
        let mut more = fits([false, true]);
        rig.post(rig.qp(), chain(&mut more)).unwrap();
        rig.settle();
        assert_eq!(rig.poll(rig.send_cq, 4).len(), 1);
    }
}

/// Goal: the shim's count without completions does not cause half a batch. Method: a queue of three and two unsignalled
/// messages, once complete and once waiting for credit; then a batch of three.
#[test]
fn places_are_forgotten_for_a_whole_batch_or_not_at_all() {
    let _serial = serial();
    for waiting in [false, true] {
        let calls = Calls::Extended;
        let shape = Shape {
            calls,
            depth: 3,
            ..Shape::default()
        };
        let rig = Rig::new(shape, &lease(RATE, 1_000, CHUNK));
        let (from, to) = (vec![5u8; 1_000], vec![0u8; 1_000]);
        let bytes = if waiting { 1_000 } else { 10 };
        let mut list = [sge(&from[..bytes])];
        let mut write = |wr_id, flags| write_request(wr_id, &mut list, address(&to), flags);
        let mut two = [write(1, 0), write(2, 0)];
        rig.post(rig.qp(), chain(&mut two)).unwrap();
        let before = null::provider_requests(rig.qp());
        rig.step(rig.qp(), 8);
        let mut three = [write(3, 0), write(4, 0), write(5, IBV_SEND_SIGNALED)];
        let answer = rig
            .post(rig.qp(), chain(&mut three))
            .map_err(|(_, code)| code);
        let expected = if waiting { Err(libc::ENOMEM) } else { Ok(()) };
        assert_eq!(answer, expected);
        let after = if waiting { before } else { before + 3 };
        assert_eq!(null::provider_requests(rig.qp()), after);
        pass_time(1_000_000_000);
        rig.settle();
        let seen: Vec<u64> = rig.poll(rig.send_cq, 4).iter().map(|wc| wc.wr_id).collect();
        assert_eq!(seen, if waiting { vec![] } else { vec![5] });
    }
}

/// An application's identifier of a receive may look like one of the library's.
#[test]
fn a_receive_of_an_extended_queue_keeps_any_identifier() {
    let _serial = serial();
    let shape = Shape {
        extended: true,
        ..Shape::default()
    };
    let rig = Rig::new(shape, &lease(RATE, 2_000, CHUNK));
    let place = u64::from(u16::MAX) << 32;
    let wr_id = rig::process().places.tag | place | 7;
    let from = vec![5u8; 100];
    let memory = vec![0u8; 100];
    let mut attr = ibv_qp_init_attr {
        send_cq: rig.recv_cq,
        recv_cq: rig.send_cq,
        cap: ibv_qp_cap {
            max_send_wr: 4,
            max_recv_wr: 4,
            max_send_sge: 1,
            max_recv_sge: 1,
            ..Default::default()
        },
        qp_type: IBV_QPT_RC,
        ..Default::default()
    };
    let mut pd = rig.domain();
    unsafe {
        let qp = isolane_shim::exports::ibv_create_qp(&raw mut pd, &raw mut attr);
        null::join(rig.qp(), qp);
        rig::set_state(qp, IBV_QPS_RTS);
        receive(qp, wr_id, &memory);
        let mut list = [sge(&from)];
        let mut one = work(1, IBV_WR_SEND, &mut list, 0, 0);
        rig.post(rig.qp(), &mut one).unwrap();
        rig.step(rig.qp(), 1);
        let cq: *mut ibv_cq_ex = rig.send_cq.cast();
        assert_eq!(ibv_start_poll(cq, std::ptr::null_mut()), 0);
        assert_eq!((*cq).wr_id, wr_id);
        ibv_end_poll(cq);
        null::join(rig.pairs[0].0, rig.pairs[0].1);
        assert_eq!(isolane_shim::exports::ibv_destroy_qp(qp), 0);
    }
}

//! Work that is paced but never split: memory windows, invalidation, XRC, SENDs. Checks order, credit and completions,
//! by `ibv_post_send` and by the extended calls.

use crate::null::{self, Done};
use crate::rig::{
    Calls, Rig, Shape, address, lease, pass_time, receive, serial, sge, work, write_request,
};
use isolane_rdma_verbs_sys::*;

/// Bytes per second: one byte per microsecond.
const SLOW: u64 = 1_000_000;
const CHUNK: u32 = 1_000;
const WINDOW: u32 = 0x1001;
const OTHER_WINDOW: u32 = 0x1002;

/// Executed work with the chunks of one message joined.
fn joined(done: &[Done]) -> Vec<Done> {
    let mut all: Vec<Done> = Vec::new();
    for one in done {
        match all.last_mut() {
            Some(last) if last.opcode == one.opcode && one.opcode == IBV_WR_RDMA_WRITE => {
                last.bytes += one.bytes;
            }
            _ => all.push(*one),
        }
    }
    all
}

type Line = (u64, ibv_wc_status, ibv_wc_opcode);

fn lines(completions: &[ibv_wc]) -> Vec<Line> {
    let line = |wc: &ibv_wc| match wc.status {
        IBV_WC_SUCCESS => (wc.wr_id, wc.status, wc.opcode),
        status => (wc.wr_id, status, 0),
    };
    completions.iter().map(line).collect()
}

fn bind(key: u32) -> ibv_send_wr {
    let mut one = work(0, IBV_WR_BIND_MW, &mut [], 0, IBV_SEND_SIGNALED);
    one.bind_mw.bind_mw = ibv_send_wr_bind_mw {
        mw: std::ptr::null_mut(),
        rkey: key,
        bind_info: ibv_mw_bind_info {
            mr: std::ptr::null_mut(),
            addr: 0,
            length: 0,
            mw_access_flags: 0,
        },
    };
    one
}

/// Goal: a window is bound after the chunks of earlier messages, and used before it is invalidated. Method: writes by a
/// key fail while its window is not bound, so a wrong order shows in a completion; with and without the shim.
#[test]
fn windows_keep_their_order_among_chunks() {
    let _serial = serial();
    let run = |shimmed: bool, calls: Calls| {
        null::allow_all();
        null::window(WINDOW, false);
        null::window(OTHER_WINDOW, true);
        let shape = Shape {
            shimmed,
            calls,
            ..Shape::default()
        };
        let rig = Rig::new(shape, &lease(SLOW, 2_000, CHUNK));
        let from = vec![5u8; 20_000];
        let (plain, through, landed) = (vec![0u8; 20_000], vec![0u8; 20_000], vec![0u8; 20_000]);
        receive(rig.pairs[0].1, 90, &landed);
        let (mut long, mut part) = ([sge(&from)], [sge(&from[..5_000])]);
        let first = write_request(1, &mut long, address(&plain), 0);
        let mut second = bind(WINDOW);
        second.wr_id = 2;
        second.send_flags |= IBV_SEND_FENCE;
        let mut third = write_request(3, &mut part, address(&through), IBV_SEND_SIGNALED);
        third.wr.rdma.rkey = WINDOW;
        let mut fourth = work(4, IBV_WR_LOCAL_INV, &mut [], 0, IBV_SEND_SIGNALED);
        fourth.imm_data = WINDOW;
        let mut fifth = work(5, IBV_WR_SEND_WITH_INV, &mut long, 0, IBV_SEND_SIGNALED);
        fifth.imm_data = OTHER_WINDOW;
        // Both windows are invalidated now.
        let mut sixth = third;
        sixth.wr_id = 6;
        sixth.wr.rdma.rkey = OTHER_WINDOW;
        let mut all = [first, second, third, fourth, fifth, sixth];
        for at in (1..all.len()).rev() {
            all[at - 1].next = &raw mut all[at];
        }
        rig.post(rig.qp(), &mut all[0]).unwrap();
        rig.settle();
        let seen = lines(&rig.poll(rig.send_cq, 8));
        let received = rig.poll(rig.recv_cq, 8);
        let received: Vec<_> = received
            .iter()
            .map(|wc| (wc.wr_id, wc.byte_len, wc.imm_data, wc.wc_flags))
            .collect();
        let done = null::executed(rig.qp());
        let requests = done.len();
        let order = joined(&done);
        ((seen, received, order, plain, through, landed), requests)
    };
    let (bare, few) = run(false, Calls::Plain);
    assert_eq!(run(false, Calls::Extended), (bare.clone(), few));
    let (shimmed, many) = run(true, Calls::Plain);
    assert_eq!(bare, shimmed);
    assert_eq!(run(true, Calls::Extended), (bare, many));
    let (seen, received, order, ..) = shimmed;
    let expected: [Line; 5] = [
        (2, IBV_WC_SUCCESS, IBV_WC_BIND_MW),
        (3, IBV_WC_SUCCESS, IBV_WC_RDMA_WRITE),
        (4, IBV_WC_SUCCESS, IBV_WC_LOCAL_INV),
        (5, IBV_WC_SUCCESS, IBV_WC_SEND),
        (6, IBV_WC_REM_ACCESS_ERR, 0),
    ];
    assert_eq!(seen, expected);
    assert_eq!(received, [(90, 20_000, OTHER_WINDOW, IBV_WC_WITH_INV)]);
    assert_eq!(order[4].bytes, 20_000, "one SEND, whole");
    assert_eq!(
        (few, many),
        (5, 5 - 2 + 20 + 5),
        "only the WRITEs are split"
    );
}

/// The old bind call posts waiting messages first and charges them; it completes if all messages do.
#[test]
fn binding_by_the_old_call_is_in_order_and_not_for_free() {
    let _serial = serial();
    for signal_all in [false, true] {
        null::allow_all();
        null::window(WINDOW, false);
        let shape = Shape {
            signal_all,
            ..Shape::default()
        };
        let rig = Rig::new(shape, &lease(SLOW, 2_000, CHUNK));
        let (from, to) = (vec![5u8; 50_000], vec![0u8; 50_000]);
        let mut list = [sge(&from)];
        let mut one = write_request(1, &mut list, address(&to), 0);
        rig.post(rig.qp(), &mut one).unwrap();
        let mut window = ibv_mw {
            rkey: WINDOW,
            ..Default::default()
        };
        let mut wish = ibv_mw_bind {
            wr_id: 2,
            ..Default::default()
        };
        let call = unsafe { (*rig.context).ops.bind_mw }.expect("the provider has it");
        assert_eq!(unsafe { call(rig.qp(), &raw mut window, &raw mut wish) }, 0);
        rig.step(rig.qp(), 1_000);
        let done = null::executed(rig.qp());
        let last = done.last().expect("all of it").opcode;
        assert_eq!((joined(&done)[0].bytes, last), (50_000, IBV_WR_BIND_MW));
        let completed = usize::from(signal_all) * 2;
        assert_eq!(rig.poll(rig.send_cq, 8).len(), completed, "{signal_all}");
        let counters = rig.region.meters[0].counters();
        assert_eq!(counters.posted_bytes, 50_000);
        assert!(counters.passed_bytes >= 50_000, "the daemon sees the bytes");
        assert!(counters.passed_operations >= 2);
        // The next message waits until the debt is paid, 48 ms.
        let before = null::provider_requests(rig.qp());
        let mut small = [sge(&from[..CHUNK as usize])];
        let mut next = write_request(3, &mut small, address(&to), 0);
        rig.post(rig.qp(), &mut next).unwrap();
        pass_time(46_000_000);
        rig.pump();
        assert_eq!(
            null::provider_requests(rig.qp()),
            before,
            "still outstanding"
        );
        pass_time(4_000_000);
        rig.pump();
        assert_eq!(null::provider_requests(rig.qp()), before + 1);
    }
}

/// Bytes of `opcode` sent in 100 ms of a lease of 1 MB/s with messages of 10,000 bytes, and the executed work.
fn paced(kind: ibv_qp_type, opcode: ibv_wr_opcode, calls: Calls) -> (u64, Vec<Done>) {
    let shape = Shape {
        depth: 64,
        kind,
        calls,
        ..Shape::default()
    };
    let rig = Rig::new(shape, &lease(SLOW, 20_000, CHUNK));
    let (from, to) = (vec![5u8; 10_000], vec![0u8; 10_000]);
    let mut list = [sge(&from)];
    for number in 0..40 {
        receive(rig.pairs[0].1, number, &to);
        let mut one = work(number, opcode, &mut list, address(&to), IBV_SEND_SIGNALED);
        one.qp_type.remote_srqn = 700 + number as u32;
        rig.post(rig.qp(), &mut one).unwrap();
    }
    for _ in 0..100 {
        pass_time(1_000_000);
        rig.pump();
        rig.step(rig.qp(), 100);
    }
    let done = null::executed(rig.qp());
    rig.settle();
    let seen = rig.poll(rig.send_cq, 64);
    let order: Vec<u64> = seen.iter().map(|wc| wc.wr_id).collect();
    assert_eq!(order, (0..40).collect::<Vec<u64>>());
    assert!(seen.iter().all(|wc| wc.status == IBV_WC_SUCCESS));
    (done.iter().map(|one| one.bytes).sum(), done)
}

/// At most a burst, 100 ms of the rate, and the last message's debt.
fn check_paced((bytes, done): (u64, Vec<Done>)) {
    assert!((100_000..=130_000).contains(&bytes), "{bytes} bytes");
    assert!(done.iter().all(|one| one.bytes == 10_000), "whole");
}

#[test]
fn sends_keep_the_rate_and_go_whole() {
    let _serial = serial();
    for opcode in [IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV] {
        for calls in [Calls::Plain, Calls::Extended] {
            check_paced(paced(IBV_QPT_RC, opcode, calls));
        }
    }
}

#[test]
fn xrc_keeps_the_rate_goes_whole_and_names_its_receive_queue() {
    let _serial = serial();
    let ways = [IBV_WR_SEND, IBV_WR_RDMA_WRITE]
        .map(|opcode| [(opcode, Calls::Plain), (opcode, Calls::Extended)]);
    for (opcode, calls) in ways.into_iter().flatten() {
        let (bytes, done) = paced(IBV_QPT_XRC_SEND, opcode, calls);
        for (number, one) in done.iter().enumerate() {
            assert_eq!(one.shared_receive, 700 + number as u32);
        }
        check_paced((bytes, done));
    }
}

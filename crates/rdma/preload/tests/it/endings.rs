//! Queue pairs that end while the library holds work or completions of theirs.

use crate::null;
use crate::rig::{self, Rig, Shape, address, lease, receive, serial, sge, work, write_request};
use isolane_rdma_verbs_sys::*;
use isolane_shim::exports;

/// Goal: providers drop the completions of a queue pair that is destroyed or reset, so the store does too; the
/// application may have freed what they name. Method: the pump takes the completions of both queue pairs, and one of the
/// two ends.
#[test]
fn stored_completions_end_with_their_queue_pair() {
    let _serial = serial();
    for is_destroyed in [true, false] {
        let shape = Shape {
            pairs: 2,
            ..Shape::default()
        };
        let mut rig = Rig::new(shape, &lease(0, 0, 1_000));
        let (from, to) = (vec![1u8; 100], vec![0u8; 100]);
        let mut list = [sge(&from)];
        for (at, (qp, _)) in rig.pairs.iter().enumerate() {
            let wr_id = at as u64;
            let flags = IBV_SEND_SIGNALED;
            let mut one = write_request(wr_id, &mut list, address(&to), flags);
            rig.post(*qp, &mut one).unwrap();
            rig.step(*qp, 1);
        }
        let known = rig::process().completion_queue(rig.send_cq).unwrap();
        assert!(known.drain(&rig::process().places));
        match is_destroyed {
            true => {
                let (one, two) = rig.pairs.remove(0);
                assert_eq!(unsafe { exports::ibv_destroy_qp(one) }, 0);
                assert_eq!(unsafe { exports::ibv_destroy_qp(two) }, 0);
            }
            false => rig::set_state(rig.qp(), IBV_QPS_RESET),
        }
        let seen = rig.poll(rig.send_cq, 8);
        let ids: Vec<u64> = seen.iter().map(|wc| wc.wr_id).collect();
        assert_eq!(ids, [1], "destroyed: {is_destroyed}");
    }
}

/// The same for a queue pair that is not paced, in a completion queue that it shares with one that is.
#[test]
fn stored_completions_of_an_unpaced_queue_pair_end_with_its_reset() {
    let _serial = serial();
    let rig = Rig::new(Shape::default(), &lease(0, 0, 1_000));
    let (one, two) = rig.unpaced();
    assert!(rig::process().queue_pair(one).is_none());
    let known = rig::process().completion_queue(rig.send_cq).unwrap();
    let (from, to) = (vec![1u8; 100], vec![0u8; 100]);
    let mut list = [sge(&from)];
    for is_reset in [false, true] {
        let mut write = write_request(7, &mut list, address(&to), IBV_SEND_SIGNALED);
        rig.post(one, &mut write).unwrap();
        assert_eq!(rig.step(one, 1), 1);
        assert!(known.drain(&rig::process().places));
        if is_reset {
            rig::set_state(one, IBV_QPS_RESET);
        }
        let seen = rig.poll(rig.send_cq, 8).len();
        assert_eq!(seen, usize::from(!is_reset), "reset: {is_reset}");
    }
    for qp in [one, two] {
        assert_eq!(unsafe { exports::ibv_destroy_qp(qp) }, 0);
    }
}

/// Goal: completions that the pump has polled and not stored yet end with their queue pair too. Method: between the two,
/// another thread ends the queue pair; it has time to finish, unless it waits for the pump.
#[test]
fn completions_between_poll_and_store_end_with_their_queue_pair() {
    let _serial = serial();
    let rig = Rig::new(Shape::default(), &lease(0, 0, 1_000));
    let (from, to) = (vec![1u8; 100], vec![0u8; 100]);
    let mut list = [sge(&from)];
    let mut write = write_request(7, &mut list, address(&to), IBV_SEND_SIGNALED);
    rig.post(rig.qp(), &mut write).unwrap();
    assert_eq!(rig.step(rig.qp(), 1), 1);
    let known = rig::process().completion_queue(rig.send_cq).unwrap();
    let number = unsafe { (*rig.qp()).qp_num };
    let (sender, receiver) = std::sync::mpsc::channel();
    null::after_poll(move || {
        let ending = std::thread::spawn(move || known.forget(number));
        for _ in 0..20_000 {
            if ending.is_finished() {
                break;
            }
            std::thread::yield_now();
        }
        sender.send(ending).unwrap();
    });
    assert!(known.drain(&rig::process().places));
    receiver.recv().unwrap().join().unwrap();
    assert!(rig.poll(rig.send_cq, 8).is_empty());
}

/// Goal: while one thread destroys a queue pair, another thread's `ibv_destroy_ah` does not post to it. Method: the
/// steps of both threads in order.
#[test]
fn datagrams_of_a_queue_pair_that_is_being_destroyed_stay() {
    let _serial = serial();
    let shape = Shape {
        kind: IBV_QPT_UD,
        ..Shape::default()
    };
    let rig = Rig::new(shape, &lease(1_000, 1_000, 1_000));
    let (from, memory) = (vec![1u8; 1_000], vec![0u8; 8_000]);
    let mut list = [sge(&from)];
    for wr_id in 0..4 {
        receive(rig.pairs[0].1, wr_id, &memory[wr_id as usize * 2_000..]);
        let mut one = work(wr_id, IBV_WR_SEND, &mut list, 0, IBV_SEND_SIGNALED);
        one.wr.ud.ah = std::ptr::dangling_mut();
        rig.post(rig.qp(), &mut one).unwrap();
    }
    let posted = || null::provider_requests(rig.qp());
    let before = posted();
    assert!(before < 4, "some wait for credit");
    let known = rig::process().queue_pair(rig.qp()).unwrap();
    known.pause();
    rig::process().flush_datagrams();
    assert_eq!(posted(), before);
    known.resume();
    rig::process().flush_datagrams();
    assert_eq!(posted(), 4);
}

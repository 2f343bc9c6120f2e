//! What work requests do to memory, and how they fail (IB specification, chapters 9 and 10).

use crate::client::{ACCESS, End, Place, Refused, address, connected, connected_by, element};
use isolane_rdma_emulated_verbs::attributes::SendRequest;
use isolane_rdma_emulated_verbs::context::ENTRIES_MAX;
use isolane_rdma_emulated_verbs::ring::Ring;
use isolane_rdma_emulated_verbs::wire::{Writer, op, pack};
use isolane_rdma_emulator::faults::{Chances, PARTS};
use isolane_rdma_emulator::server::OPEN_TIME;
use isolane_rdma_emulator::tree;
use isolane_rdma_verbs_sys::*;
use std::hint::black_box;
use std::time::{Duration, Instant};

fn request(opcode: u32, from: &End, memory: &[u64], to: (&End, &[u64])) -> SendRequest {
    let lkey = from.register(memory, ACCESS);
    SendRequest {
        wr_id: 7,
        opcode,
        flags: IBV_SEND_SIGNALED,
        rkey: to.0.register(to.1, ACCESS),
        remote_addr: address(to.1),
        elements: vec![element(memory, lkey)],
        ..SendRequest::default()
    }
}

#[test]
fn a_write_lands_and_a_read_fetches() {
    let place = Place::new();
    let (left, right) = connected(&place, 0);
    let (source, target) = (vec![0xaa; 1000], vec![0; 1000]);
    left.post(&request(
        IBV_WR_RDMA_WRITE,
        &left,
        &source,
        (&right, &target),
    ));
    let entry = left.completion();
    assert_eq!(
        (entry.status, entry.wr_id, entry.opcode),
        (IBV_WC_SUCCESS, 7, IBV_WC_RDMA_WRITE)
    );
    assert_eq!(black_box(&target), &source);
    let fetched = vec![0; 1000];
    left.post(&request(
        IBV_WR_RDMA_READ,
        &left,
        &fetched,
        (&right, &target),
    ));
    assert_eq!(left.completion().status, IBV_WC_SUCCESS);
    assert_eq!(black_box(&fetched), &source);
    let summary = place.stop();
    assert_eq!((summary.messages, summary.bytes), (2, 16_000));
    assert!(
        summary.ports[0].0 > 8000 && summary.ports[0].1 > 8000,
        "{summary:?}"
    );
}

#[test]
fn a_completion_queue_grows_to_the_devices_maximum() {
    let place = Place::new();
    let (mut left, right) = connected(&place, 0);
    let (source, target) = (vec![0xaa; 8], vec![0; 8]);
    let write = request(IBV_WR_RDMA_WRITE, &left, &source, (&right, &target));
    for wr_id in 0..4 {
        left.post(&SendRequest {
            wr_id,
            ..write.clone()
        });
    }
    assert_eq!(left.completion().wr_id, 0);
    let resize = |left: &End, entries| {
        let words = [op::RESIZE_CQ, pack(left.queue, entries)];
        left.client.call_with(&Writer::of(&words))
    };
    let errno = |left: &End, entries| resize(left, entries).unwrap_err();
    let einval = Refused::Errno(libc::EINVAL as u64);
    assert_eq!(errno(&left, 0), einval);
    assert_eq!(errno(&left, ENTRIES_MAX + 1), einval);
    for entries in [64, ENTRIES_MAX] {
        let (waiting, file) = resize(&left, entries).unwrap();
        let new = Ring::map(file.unwrap(), entries).unwrap();
        new.take_over(&left.ring, waiting[0]);
        left.ring = new;
    }
    for wr_id in 1..4 {
        assert_eq!(left.completion().wr_id, wr_id);
    }
    let words = [op::CREATE_CQ, pack(1, u32::MAX)];
    let enomem = Refused::Errno(libc::ENOMEM as u64);
    assert_eq!(left.client.call(&words).unwrap_err(), enomem, "all is used");
}

/// Goal: a queue shrinks to what it holds, whatever is posted, as on a device. Method: the sends wait for receives without end.
#[test]
fn a_completion_queue_shrinks_below_what_was_posted() {
    let place = Place::new();
    let (left, right) = connected(&place, 7);
    let (source, target) = (vec![0xaa; 8], vec![0; 8]);
    for _ in 0..3 {
        left.post(&request(IBV_WR_SEND, &left, &source, (&right, &target)));
    }
    let words = [op::RESIZE_CQ, pack(left.queue, 1)];
    let (_, file) = left.client.call_with(&Writer::of(&words)).unwrap();
    let ring = Ring::map(file.unwrap(), 1).unwrap();
    assert_eq!(ring.pop(), None);
}

/// Waits until `condition` holds.
fn until(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(
            begun.elapsed() < crate::programs::DEADLINE,
            "not seen: {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn files_count_what_crossed_the_port_and_list_who_holds_what() {
    let place = Place::new();
    let device = |host: usize| {
        let class =
            tree::root(&place.directory.path().join("t"), None).join("sys/class/infiniband");
        class.join(format!("rnic{host}"))
    };
    let text = |host, file: &str| std::fs::read_to_string(device(host).join(file)).unwrap();
    let count = |host, name: &str| -> u64 {
        let text = text(host, &format!("ports/1/counters/{name}"));
        text.trim().parse().unwrap()
    };
    assert_eq!(count(0, "port_xmit_data"), 0);
    let (left, right) = connected(&place, 0);
    let (source, target) = (vec![0xaa; 1000], vec![0; 1000]);
    let write = request(IBV_WR_RDMA_WRITE, &left, &source, (&right, &target));
    left.post(&write);
    assert_eq!(left.completion().status, IBV_WC_SUCCESS);
    let packets = 2;
    let bytes = |host, name: &str| count(host, name) * 4;
    until("bytes and packets are counted", || {
        let all = bytes(0, "port_xmit_data") > 8_000 && bytes(1, "port_rcv_data") > 8_000;
        all && count(1, "port_rcv_packets") >= packets
    });
    let pid = std::process::id();
    let line = format!(
        "qp {pid} {} {IBV_QPT_RC} {IBV_QPS_RTS} {}\n",
        left.pair, right.pair
    );
    until("the pair is listed", || text(0, "objects").contains(&line));
    let objects = text(0, "objects");
    assert!(objects.contains(&format!("mr {pid} ")), "{objects}");
    drop((left, right));
    until("no object is listed", || text(0, "objects").is_empty());
}

/// Time from the first post to the last completion of `count` WRITEs of 1 MB.
fn time_of(left: &End, right: &End, count: u32) -> Duration {
    let (source, target) = (vec![0xaa; 125_000], vec![0; 125_000]);
    let write = request(IBV_WR_RDMA_WRITE, left, &source, (right, &target));
    let begun = Instant::now();
    for _ in 0..count {
        left.post(&write);
    }
    for _ in 0..count {
        assert_eq!(left.completion().status, IBV_WC_SUCCESS);
    }
    begun.elapsed()
}

#[test]
fn a_queue_pair_with_a_rate_sends_no_faster() {
    let place = Place::new();
    let (left, right) = connected(&place, 0);
    let limit = |pair: u32, kbps: u32| left.client.call(&[op::LIMIT_QP, pack(pair, kbps)]);
    // 4 MB at 80 Mb/s take 0.4 s, and the model's clock is never ahead of real time.
    assert_eq!(limit(left.pair, 80_000), Ok(vec![]));
    assert!(time_of(&left, &right, 4) >= Duration::from_millis(390));
    // Four of five packets would take half a minute, if the change had no effect on them.
    assert_eq!(limit(left.pair, 1), Ok(vec![]));
    let (source, target) = (vec![0xaa; 600], vec![0; 600]);
    let write = request(IBV_WR_RDMA_WRITE, &left, &source, (&right, &target));
    let begun = Instant::now();
    left.post(&write);
    assert_eq!(limit(left.pair, 0), Ok(vec![]));
    assert_eq!(left.completion().status, IBV_WC_SUCCESS);
    assert!(begun.elapsed() < Duration::from_secs(20));
    let refused = |result: Result<Vec<u64>, Refused>| result.unwrap_err();
    let errno = |errno: i32| Refused::Errno(errno as u64);
    // Above the link's 100 Gb/s, and a pair of another client.
    assert_eq!(refused(limit(left.pair, 100_000_001)), errno(libc::EINVAL));
    assert_eq!(refused(limit(right.pair, 1)), errno(libc::EINVAL));
}

#[test]
fn atomics_answer_the_old_value() {
    let place = Place::new();
    let (left, right) = connected(&place, 0);
    let (old, word) = (vec![0], vec![40]);
    let add = SendRequest {
        compare_add: 2,
        ..request(IBV_WR_ATOMIC_FETCH_AND_ADD, &left, &old, (&right, &word))
    };
    left.post(&add);
    assert_eq!(left.completion().status, IBV_WC_SUCCESS);
    assert_eq!((black_box(&old)[0], black_box(&word)[0]), (40, 42));
    let swap = SendRequest {
        opcode: IBV_WR_ATOMIC_CMP_AND_SWP,
        compare_add: 42,
        swap: 5,
        ..add
    };
    left.post(&swap);
    assert_eq!(left.completion().status, IBV_WC_SUCCESS);
    assert_eq!((black_box(&old)[0], black_box(&word)[0]), (42, 5));
}

#[test]
fn a_send_fills_the_oldest_receive() {
    let place = Place::new();
    let (left, right) = connected(&place, 7);
    let (source, first, second) = (vec![1, 2, 3], vec![0; 3], vec![0; 3]);
    for (wr_id, memory) in [(1, &first), (2, &second)] {
        let lkey = right.register(memory, ACCESS);
        right.post_receive(wr_id, element(memory, lkey));
    }
    let send = SendRequest {
        immediate: 0x0102,
        ..request(IBV_WR_SEND_WITH_IMM, &left, &source, (&right, &first))
    };
    left.post(&send);
    let entry = right.completion();
    assert_eq!(
        (entry.wr_id, entry.byte_len, entry.immediate),
        (1, 24, 0x0102)
    );
    assert_eq!(left.completion().status, IBV_WC_SUCCESS);
    assert_eq!(
        (black_box(&first), black_box(&second)),
        (&source, &vec![0; 3])
    );
}

#[test]
fn a_send_without_a_receive_fails_after_its_retries() {
    let place = Place::new();
    let (left, right) = connected(&place, 2);
    let memory = vec![1];
    left.post(&request(IBV_WR_SEND, &left, &memory, (&right, &memory)));
    assert_eq!(left.completion().status, IBV_WC_RNR_RETRY_EXC_ERR);
    left.post(&request(IBV_WR_SEND, &left, &memory, (&right, &memory)));
    assert_eq!(left.completion().status, IBV_WC_WR_FLUSH_ERR);
}

#[test]
fn what_a_key_does_not_allow_fails_and_changes_nothing() {
    let memory = vec![7; 8];
    let source = vec![1; 8];
    type Wrong = fn(&mut SendRequest, &End);
    let wrongs: [(Wrong, u32); 5] = [
        (|request, _| request.rkey ^= 0x100, IBV_WC_REM_ACCESS_ERR),
        (|request, _| request.remote_addr += 1, IBV_WC_REM_ACCESS_ERR),
        (
            |request, _| request.remote_addr = u64::MAX - 3,
            IBV_WC_REM_ACCESS_ERR,
        ),
        (
            |request, _| request.elements[0].length += 1,
            IBV_WC_LOC_PROT_ERR,
        ),
        // A key of the other end is no local key.
        (
            |request, _| request.elements[0].lkey = request.rkey,
            IBV_WC_LOC_PROT_ERR,
        ),
    ];
    for (index, (wrong, status)) in wrongs.into_iter().enumerate() {
        let place = Place::new();
        let (left, right) = connected(&place, 0);
        let mut write = request(IBV_WR_RDMA_WRITE, &left, &source, (&right, &memory));
        wrong(&mut write, &right);
        left.post(&write);
        assert_eq!(left.completion().status, status, "wrong {index}");
        assert_eq!(black_box(&memory), &vec![7; 8], "wrong {index}");
    }
}

#[test]
fn memory_that_may_only_be_read_is_not_written() {
    let place = Place::new();
    let (left, right) = connected(&place, 0);
    let (source, target) = (vec![1], vec![2]);
    let write = SendRequest {
        rkey: right.register(&target, IBV_ACCESS_REMOTE_READ),
        ..request(IBV_WR_RDMA_WRITE, &left, &source, (&right, &target))
    };
    left.post(&write);
    assert_eq!(left.completion().status, IBV_WC_REM_ACCESS_ERR);
    assert_eq!(black_box(&target), &vec![2]);
}

#[test]
fn a_peer_that_has_gone_does_not_answer() {
    let place = Place::new();
    let (left, right) = connected(&place, 0);
    let memory = vec![1];
    let write = request(IBV_WR_RDMA_WRITE, &left, &memory, (&right, &memory));
    drop(right);
    // The broker has seen the end of the connection when a connection that came later is served.
    assert!(place.open(1).is_served());
    left.post(&write);
    assert_eq!(left.completion().status, IBV_WC_RETRY_EXC_ERR);
}

#[test]
fn memory_that_is_not_there_cannot_be_registered() {
    let place = Place::new();
    let end = End::new(&place, 0, IBV_QPT_RC);
    let words = [op::REG_MR, pack(end.domain, ACCESS), 4096, 8, 4096];
    let refused = end.client.call(&words).unwrap_err();
    assert_eq!(refused, crate::client::Refused::Errno(libc::EFAULT as u64));
}

/// A datagram-like write: it completes when it has left.
fn unreliable_write(place: &Place, target: &[u64]) -> (End, End) {
    let (left, right) = connected_by(place, IBV_QPT_UC, 0);
    let source = vec![5; target.len()];
    left.post(&request(
        IBV_WR_RDMA_WRITE,
        &left,
        &source,
        (&right, target),
    ));
    assert_eq!(left.completion().status, IBV_WC_SUCCESS);
    (left, right)
}

#[test]
fn an_unreliable_write_arrives_unless_messages_are_lost() {
    let target = vec![0; 4];
    let place = Place::new();
    let (left, _right) = unreliable_write(&place, &target);
    while black_box(&target) != &vec![5; 4] {
        assert!(left.client.is_served());
    }
    let lost = Chances {
        lost_messages: PARTS,
        ..Chances::default()
    };
    let place = Place::with(OPEN_TIME, lost);
    let kept = vec![0; 4];
    let (left, right) = unreliable_write(&place, &kept);
    // A reliable message that leaves later arrives later.
    let (other, peer) = connected(&place, 0);
    let word = vec![1];
    other.post(&request(IBV_WR_RDMA_WRITE, &other, &word, (&peer, &word)));
    assert_eq!(other.completion().status, IBV_WC_SUCCESS);
    assert_eq!(black_box(&kept), &vec![0; 4]);
    drop((left, right));
    assert_eq!(place.stop().messages, 1);
}

#[test]
fn requests_fail_as_often_as_asked() {
    let failing = Chances {
        failed_requests: PARTS,
        ..Chances::default()
    };
    let place = Place::with(OPEN_TIME, failing);
    let (left, right) = connected(&place, 0);
    let (source, target) = (vec![1], vec![2]);
    left.post(&request(
        IBV_WR_RDMA_WRITE,
        &left,
        &source,
        (&right, &target),
    ));
    assert_eq!(left.completion().status, IBV_WC_RETRY_EXC_ERR);
    assert_eq!(black_box(&target), &vec![2]);
}

//! A processor that is stopped while it chooses a flow's queue, as a virtual machine's host may stop it for milliseconds.
//!
//! Problem: the first packet of a drained flow is counted before its queue is chosen. A processor that counts or drains the flow in
//! between subtracts later what was never added: a queue then has a flow for ever, and another one flow too few. Method: no
//! test can stop a program there, so this one writes what the stopped program leaves into the pinned maps.

use crate::attach::tun;
use crate::support::{in_lab, map_words};
use isolane_ethernet_bpf::{DqaSettings, WEIGHT_ONE};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// Of `struct dqa_flow`, in `bpf/intf.h`.
const FLOW_WORDS: usize = 8;
const BACKLOG: usize = 1;
const PLACE: usize = 2;
/// A packet of 128 bytes, the next number and the next run.
const PACKET: u64 = 1 << 50 | 128 << 20 | 1;
const RUN: u64 = 1 << 49;
const PLACE_RUN: u64 = 1 << 62;

#[test]
fn a_flow_whose_queue_is_being_chosen_is_left_alone() {
    in_lab("a stopped processor", |pins| {
        let (tun, mut dqa, sockets) = tun(pins, &DqaSettings::default(), 64, 2);
        let exchange = |index: usize| {
            sockets[index].send(&[0; 100]).expect("send");
            for queue in 0..8 {
                while tun.read(queue).is_some() {}
            }
        };
        exchange(0);
        let key = dqa.flows().iter().next().expect("its entry").key;
        let words = map_words(&pins.join("flows"), 64 * FLOW_WORDS);
        let flow = words
            .chunks_exact(FLOW_WORDS)
            .find(|flow| flow[0].load(SeqCst) as u32 == key)
            .expect("its entry");
        let loads = map_words(&pins.join("state"), 8);
        let total = || loads.iter().map(|load| load.load(SeqCst)).sum::<u64>();
        assert_eq!(total(), 0);

        let counted = (flow[BACKLOG].load(SeqCst) ^ RUN) + PACKET;
        flow[BACKLOG].store(counted, SeqCst);
        exchange(0);
        assert_eq!(flow[BACKLOG].load(SeqCst), counted, "not counted");
        dqa.set_patience(Duration::from_millis(50), Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(100));
        for _ in 0..40 {
            exchange(0);
            exchange(1);
            std::thread::sleep(Duration::from_millis(10));
        }
        let counters = dqa.counters().expect("readable");
        assert_eq!((counters.untouched, counters.healed), (41, 0));
        assert_eq!((flow[BACKLOG].load(SeqCst), total()), (counted, 0));

        // The processor goes on: it adds the flow to its queue.
        dqa.set_patience(Duration::from_secs(60), Duration::from_secs(60));
        let place = flow[PLACE].fetch_xor(PLACE_RUN, SeqCst);
        let queue = (place >> 32) as usize & 63;
        loads[queue].fetch_add(u64::from(WEIGHT_ONE) | 1 << 40, SeqCst);
        let kept = counters.kept;
        exchange(0);
        assert_eq!(dqa.counters().expect("readable").kept, kept + 1);
        assert_eq!(
            total(),
            0,
            "its last packet has left, and takes the first along"
        );
        dqa.detach().expect("detaches");
    });
}

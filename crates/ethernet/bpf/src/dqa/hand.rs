//! Completion by a card in user space, which alone knows when the packet that it took from a TUN device has left.
//!
//! Problem: TUN frees a packet when it is read, long before its last segment is on the wire; a flow that counts as drained
//! by then may take another queue and overtake itself.
//! Method: reading puts the packet's key and number into its queue's place of the shared state (`hand` in `bpf/intf.h`);
//! the card says when it has left, and then the flow's books are changed as the completing program changes them.
//! Units: bytes. Limits: one packet of each queue in hand; the device segments.

use super::Dqa;
use crate::intf::{self, Flow};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

impl Dqa {
    /// The packet of `length` bytes that a card in user space took from `queue` last has left ([`crate::Completion::InHand`]).
    pub fn left(&self, queue: u16, length: u32) {
        let state = &self.state[0];
        let Some(hand) = state.hand.get(usize::from(queue)) else {
            return;
        };
        let Some((number, key)) = intf::hand(hand.swap(0, Relaxed)) else {
            return;
        };
        let set = (key & self.config().sets_mask.load(Relaxed)) as usize * intf::WAYS;
        let set = &self.flows[set..set + intf::WAYS];
        if let Some(flow) = set.iter().find(|flow| flow.key.load(Relaxed) == key) {
            self.complete(flow, number, length);
        }
    }

    /// The twin of `complete` in `completion.h`.
    fn complete(&self, flow: &Flow, number: u32, length: u32) {
        let last = flow.last.load(SeqCst);
        if intf::is_before_healing(last, number) {
            return;
        }
        // Read before the count falls to 0, after which egress may write them.
        let (queue, weight) = intf::place(flow.place.load(SeqCst));
        let container = flow.container.load(SeqCst);
        let mut old = flow.backlog.load(SeqCst);
        let (new, bytes) = loop {
            let Some((new, bytes)) = intf::backlog_after(old, number, length) else {
                return;
            };
            match flow.backlog.compare_exchange(old, new, SeqCst, SeqCst) {
                Ok(_) => break (new, bytes),
                Err(now) => old = now,
            }
        };
        if last & intf::LAST_HEALED != 0 {
            flow.last.fetch_and(!intf::LAST_HEALED, SeqCst);
        }
        let (state, config) = (&self.state[0], self.config());
        let gate = [&config.gate_flow_bytes, &config.gate_queue_bytes];
        if gate.iter().any(|limit| limit.load(Relaxed) != 0) {
            state.bytes[usize::from(queue)].fetch_sub(i64::from(bytes), SeqCst);
        }
        if intf::backlog(new).0 == 0 {
            state.load[usize::from(queue)].fetch_sub(intf::load_of_flow(weight), SeqCst);
            let container = (container as usize).checked_sub(1);
            if let Some(container) = container.and_then(|index| self.containers.get(index)) {
                container.flows.fetch_sub(1, SeqCst);
            }
        }
    }
}

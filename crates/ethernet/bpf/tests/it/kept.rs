//! Flows that have no choice: their packets may be in a queue, or the kernel keeps the queue of their socket.

use crate::attach::tun;
use crate::support::{in_lab, veth};
use crate::traffic::attach;
use isolane_ethernet_bpf::{Completion, Dqa, DqaSettings};
use std::net::UdpSocket;
use std::time::Duration;

/// Goal: on a device that sends nothing for a while no flow overtakes itself. Method: five packets wait for longer than the
/// programs wait for a completion, and two more follow; the device then sends all of them.
#[test]
fn a_healed_flow_keeps_its_queue_until_a_later_packet_has_left() {
    in_lab("a slow device", |pins| {
        let (tun, mut dqa, sockets) = tun(pins, &DqaSettings::default(), 64, 1);
        let send = || sockets[0].send(&[0; 100]).expect("send");
        let entry = |dqa: &Dqa| {
            let flow = dqa.flows().iter().find(|flow| flow.sent_packets >= 5);
            let flow = flow.expect("an entry");
            (flow.queue, flow.outstanding)
        };
        for _ in 0..5 {
            send();
        }
        let (queue, _) = entry(&dqa);
        dqa.set_patience(Duration::from_millis(50), Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(200));
        send();
        dqa.set_patience(Duration::from_secs(60), Duration::from_secs(60));
        send();
        let counters = dqa.counters().expect("readable");
        assert_eq!((counters.healed, counters.assigned), (1, 1));
        assert_eq!(entry(&dqa), (queue, 2));
        for left in [2, 2, 2, 2, 2, 1, 0] {
            tun.read(usize::from(queue)).expect("a packet");
            assert_eq!(entry(&dqa), (queue, left));
        }
        send();
        assert_ne!(entry(&dqa).0, queue, "the flow has a choice again");
        dqa.detach().expect("detaches");
    });
}

/// Goal: no choice is made, and none overruled, where the kernel keeps a socket's queue. Method: connected UDP sockets send
/// single packets; the kernel gives each the queue of its socket's first packet.
#[test]
fn connected_sockets_keep_the_queue_that_the_kernel_keeps() {
    const SOCKETS: u16 = 4;
    const PACKETS: u64 = 50;
    in_lab("connected udp", |pins| {
        let peer = veth();
        let dqa = attach("v0", Completion::HandedOver, false, pins);
        let bound = |port| UdpSocket::bind(("10.1.0.2", port)).expect("bind");
        let receivers: Vec<UdpSocket> = peer.run(|| (7000..7000 + SOCKETS).map(bound).collect());
        let senders: Vec<UdpSocket> = receivers
            .iter()
            .map(|receiver| {
                let socket = UdpSocket::bind("10.1.0.1:0").expect("bind");
                let address = receiver.local_addr().expect("its address");
                socket.connect(address).expect("connect");
                socket
            })
            .collect();
        for _ in 0..PACKETS {
            for socket in &senders {
                socket.send(&[0; 100]).expect("send");
            }
        }
        let counters = dqa.counters().expect("readable");
        let sockets = u64::from(SOCKETS);
        assert!(counters.socket <= sockets, "{counters:?}");
        assert_eq!(counters.moved, 0, "{counters:?}");
        assert!(counters.kept >= sockets * (PACKETS - 2), "{counters:?}");
        dqa.detach().expect("detaches");
    });
}

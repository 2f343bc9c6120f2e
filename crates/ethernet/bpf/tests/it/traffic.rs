//! Real traffic: TCP and UDP, IPv4 and IPv6, tagged and forwarded, through veth (handed over) and TUN (freed).
//!
//! Goal: a flow keeps one queue while it has anything outstanding, so nothing is reordered; few flows never share;
//! drained flows give their weights back. Method: the order in which packets leave (behind TUN, where one thread carries
//! them, the receiver's own counters of packets out of order), and the flow table watched while traffic runs.
#![allow(unsafe_code)]

use crate::support::departures::Departures;
use crate::support::{
    Host, Tun, command, ifindex, in_lab, ip, out_of_order, receive_on_one_processor, send_frame,
    sent_packets, veth, without_timeouts,
};
use isolane_ethernet_bpf::{Completion, Dqa, DqaCounters, DqaSettings, FlowSnapshot, LoadOptions};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

pub(crate) fn attach(device: &str, completion: Completion, segmentation: bool, pins: &Path) -> Dqa {
    let options = LoadOptions {
        ifindex: ifindex(device),
        queues: 8,
        completion,
        hardware_segmentation: segmentation,
        pins: pins.into(),
        flows: 0,
    };
    let mut dqa = Dqa::load(&options, &DqaSettings::default()).expect("loads");
    // Where other work keeps a device waiting for seconds, no completion is lost for that. So nothing is healed on the way
    // either: what misses a completion is still there when `assert_drained` looks.
    dqa.set_patience(Duration::from_secs(60), Duration::from_secs(60));
    dqa.attach().expect("attaches");
    dqa
}

/// Flows that still have something outstanding; none when the queues hold no weight either.
fn loaded(dqa: &Dqa) -> Option<Vec<FlowSnapshot>> {
    let queues = dqa.queues();
    let weighs = queues
        .iter()
        .any(|queue| queue.weight != 0 || queue.flows != 0);
    let flows: Vec<FlowSnapshot> = dqa
        .flows()
        .iter()
        .filter(|flow| flow.outstanding > 0)
        .collect();
    (weighs || !flows.is_empty()).then_some(flows)
}

/// Segments of a packet at most: 64 KiB in segments of a TCP over Ethernet.
const SEGMENTS: u64 = 46;

/// Waits until every flow has given its weight back: a connection's closing packets may still be in the queue when the
/// bytes have arrived. `take` takes what `device` holds, where nothing else does.
///
/// Now and then, of 1,000 packets for 15 at most, the kernel does not call a tracing program (6.18: the device and the
/// tracepoint itself count more packets than the program has runs and skipped runs). A flow whose last packet it was
/// keeps its weight until it is healed by age, and so do segments that software cut, since only whole packets make good
/// for what was missed before them. So what is left after the wait must be what the device sent without a report, in
/// few flows, and a little other traffic must heal just these.
fn assert_drained(dqa: &mut Dqa, device: &str, address: &str, take: impl Fn()) {
    let waited = |dqa: &Dqa, rounds: u32, step: &dyn Fn()| {
        (0..rounds).any(|_| {
            step();
            take();
            std::thread::sleep(Duration::from_millis(10));
            loaded(dqa).is_none()
        })
    };
    if waited(dqa, 500, &|| ()) {
        return;
    }
    let left = loaded(dqa).unwrap_or_default();
    let counters = dqa.counters().expect("readable");
    let reported = counters.completed + counters.unknown;
    let sent = sent_packets(device);
    println!("not completed: {left:?}; {device} sent {sent} packets, {reported} were reported");
    // Where completions of a kind were missed, or segments miscounted, it would be more packets or many flows.
    let outstanding: u64 = left.iter().map(|flow| u64::from(flow.outstanding)).sum();
    assert!(
        outstanding <= sent.saturating_sub(reported) * SEGMENTS,
        "{left:?}, of {sent} packets {reported} were reported"
    );
    let few = 1 + dqa.flows().iter().count() / 4;
    assert!(left.len() <= few, "{left:?}, at most {few} flows");
    let healed = counters.healed;
    dqa.set_patience(Duration::from_millis(200), Duration::from_secs(60));
    let socket = UdpSocket::bind("0.0.0.0:0").expect("bind");
    let trickle = || {
        // No process listens there, and the host rejects the next attempt.
        let _ = socket.send_to(&[0; 100], (address, 9));
    };
    assert!(
        waited(dqa, 3000, &trickle),
        "still loaded: {:?} {:?} {:?}",
        dqa.queues(),
        loaded(dqa),
        dqa.counters()
    );
    let healed = dqa.counters().expect("readable").healed - healed;
    assert!(healed >= left.len() as u64, "{healed} healed of {left:?}");
}

/// Takes the packets in the rings of a device of 8 queues.
fn discard(tun: &Tun) {
    for queue in 0..8 {
        while tun.read(queue).is_some() {}
    }
}

/// A list of `mq` whose queues send 20 Mbit/s each, so that packets wait in them.
fn slow_queues(device: &str) {
    command(
        "tc",
        &format!("qdisc replace dev {device} root handle 1: mq"),
    );
    for queue in 1..=8 {
        let rate = "tbf rate 20mbit burst 20k limit 2m";
        command(
            "tc",
            &format!("qdisc add dev {device} parent 1:{queue:x} {rate}"),
        );
    }
}

/// How often traffic is watched at least, however seldom a busy machine lets the watcher run.
const LOOKS: u32 = 400;

/// Sends at least `bytes` on each of `count` TCP connections to `address` in parallel; `watch` runs meanwhile.
fn tcp(host: &Host, address: &str, count: usize, bytes: usize, mut watch: impl FnMut()) {
    let address: SocketAddr = address.parse().expect("an address");
    let listener = host.run(|| TcpListener::bind(address).expect("listen"));
    let address = listener.local_addr().expect("its port");
    let looks = &AtomicU32::new(0);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            let streams: Vec<TcpStream> = (0..count)
                .map(|_| listener.accept().expect("accept").0)
                .collect();
            std::thread::scope(|scope| {
                for mut stream in streams {
                    // Longer than any pause of a working link, so that a dead one fails the test.
                    let patience = Some(Duration::from_secs(20));
                    stream.set_read_timeout(patience).expect("a timeout");
                    scope.spawn(move || {
                        let mut buffer = vec![0; 1 << 16];
                        while stream.read(&mut buffer).expect("read") > 0 {}
                    });
                }
            });
        });
        let senders: Vec<_> = (0..count)
            .map(|_| TcpStream::connect(address).expect("connect"))
            .map(|mut stream| {
                scope.spawn(move || {
                    stream.write_all(&vec![7; bytes]).expect("write");
                    while looks.load(Relaxed) < LOOKS {
                        stream.write_all(&[7; 1 << 14]).expect("write");
                    }
                })
            })
            .collect();
        while !receiver.is_finished() {
            watch();
            looks.fetch_add(1, Relaxed);
            std::thread::sleep(Duration::from_millis(1));
        }
        for sender in senders {
            sender.join().expect("sent");
        }
    });
}

/// Watches a flow table: whether a flow changed queue without having drained, and whether large flows met.
#[derive(Default)]
struct Watch {
    last: BTreeMap<u32, (u32, u16, u64)>,
    moved_while_backlogged: u32,
    met: u32,
    samples: u32,
}

impl Watch {
    fn look(&mut self, dqa: &Dqa) {
        let mut queues = [0; 64];
        // A flow that changed while it was read is left for the next look.
        let first: Vec<FlowSnapshot> = dqa.flows().iter().collect();
        let settled = |flow: &FlowSnapshot| {
            let same = |other: &&FlowSnapshot| other.key == flow.key && other.moves == flow.moves;
            first
                .iter()
                .find(same)
                .is_some_and(|other| other.queue == flow.queue)
        };
        for flow in dqa.flows().iter().filter(settled) {
            let now = (flow.moves, flow.queue, flow.sent_packets);
            if let Some((moves, queue, _)) = self.last.insert(flow.key, now)
                && queue != flow.queue
                && moves == flow.moves
            {
                self.moved_while_backlogged += 1;
            }
            if flow.outstanding > 0 && flow.sent_bytes > 200_000 {
                queues[usize::from(flow.queue)] += 1;
                self.samples += 1;
            }
        }
        self.met += queues.iter().filter(|flows| **flows > 1).count() as u32;
    }

    /// Where the kernel kept a socket's earlier queue, the books follow it; a backlogged flow changes queue for nothing
    /// else.
    fn check_places(&self, counters: &DqaCounters) {
        let moved = u64::from(self.moved_while_backlogged);
        let allowed = counters.moved + counters.socket;
        assert!(moved <= allowed, "{moved} moves: {counters:?}");
    }
}

/// A UDP packet over IPv4 in a frame with VLAN tag 5.
fn tagged_udp(port: u16) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1, 0x81, 0x00, 0, 5, 0x08, 0x00]);
    frame.extend([
        0x45, 0, 0, 128, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 5, 0, 1, 10, 5, 0, 2,
    ]);
    frame.extend(port.to_be_bytes());
    frame.extend([0x13, 0x88, 0, 108, 0, 0]);
    frame.resize(14 + 4 + 128, 0);
    frame
}

fn check_counters(counters: &DqaCounters) {
    assert_eq!(counters.full, 0, "{counters:?}");
    assert_eq!(counters.healed, 0, "{counters:?}");
    assert_eq!(counters.untouched, 0, "{counters:?}");
}

#[test]
fn tcp_over_slow_veth_queues_stays_in_order_and_apart() {
    in_lab("tcp over veth", |pins| {
        let peer = veth();
        command("ethtool", "-K v0 tso off gso off");
        slow_queues("v0");
        let mut dqa = attach("v0", Completion::HandedOver, false, pins);
        let mut watch = Watch::default();
        let left = Departures::during("v0", || {
            tcp(&peer, "10.1.0.2:0", 3, 2_000_000, || watch.look(&dqa));
        });
        let counters = dqa.counters().expect("readable");
        println!("{counters:?} samples {}", watch.samples);
        assert!(watch.samples > 100, "{} samples", watch.samples);
        assert_eq!(watch.met, 0, "three flows shared one of eight queues");
        watch.check_places(&counters);
        left.check_order();
        check_counters(&counters);
        assert!(
            counters.kept > counters.assigned,
            "packets waited: {counters:?}"
        );
        assert_drained(&mut dqa, "v0", "10.1.0.2", || ());
        dqa.detach().expect("detaches");
    });
}

#[test]
fn segments_that_software_cuts_are_counted_as_segments() {
    in_lab("software segmentation", |pins| {
        let peer = veth();
        command("ethtool", "-K v0 tso off gso on");
        slow_queues("v0");
        let mut dqa = attach("v0", Completion::HandedOver, false, pins);
        let mut most = 0;
        let left = Departures::during("v0", || {
            tcp(&peer, "10.1.0.2:0", 3, 2_000_000, || {
                let outstanding = dqa.flows().iter().map(|flow| flow.outstanding);
                most = most.max(outstanding.max().unwrap_or_default());
            });
        });
        let counters = dqa.counters().expect("readable");
        println!("{counters:?} most outstanding {most}");
        left.check_order();
        assert!(
            counters.completed > counters.assigned + counters.kept,
            "{counters:?}"
        );
        assert_drained(&mut dqa, "v0", "10.1.0.2", || ());
        dqa.detach().expect("detaches");
    });
}

#[test]
fn more_flows_than_queues_spread_evenly() {
    in_lab("tcp, more flows than queues", |pins| {
        let peer = veth();
        slow_queues("v0");
        let mut dqa = attach("v0", Completion::HandedOver, true, pins);
        let mut most = 0;
        let left = Departures::during("v0", || {
            tcp(&peer, "10.1.0.2:0", 16, 500_000, || {
                let flows = dqa.queues().iter().map(|queue| queue.flows).max();
                most = most.max(flows.unwrap_or(0));
            });
        });
        assert!((2..=4).contains(&most), "{most} flows in one of 8 queues");
        left.check_order();
        check_counters(&dqa.counters().expect("readable"));
        assert_drained(&mut dqa, "v0", "10.1.0.2", || ());
        dqa.detach().expect("detaches");
    });
}

#[test]
fn tcp_goes_on_through_attach_changes_and_detach() {
    in_lab("attach under traffic", |pins| {
        let peer = veth();
        slow_queues("v0");
        let mut dqa = None;
        let mut step = 0;
        let mut sent_under_programs = 0;
        tcp(&peer, "10.1.0.2:0", 4, 8_000_000, || {
            step += 1;
            let latency = DqaSettings {
                latency_queue: Some(7),
                ..DqaSettings::default()
            };
            let off = DqaSettings {
                enabled: false,
                ..DqaSettings::default()
            };
            match (step % 100, &mut dqa) {
                (10, None) => dqa = Some(attach("v0", Completion::HandedOver, true, pins)),
                (30, Some(dqa)) => dqa.set(&latency).expect("set"),
                (40, Some(dqa)) => dqa.set(&off).expect("set"),
                (50, Some(dqa)) => dqa.set(&DqaSettings::default()).expect("set"),
                (60, Some(dqa)) => dqa.set_queues(2).expect("fewer"),
                (70, Some(dqa)) => dqa.set_queues(8).expect("more"),
                (90, dqa) => {
                    if let Some(dqa) = dqa.take() {
                        let counters = dqa.counters().expect("readable");
                        sent_under_programs += counters.assigned + counters.kept;
                        assert_eq!(counters.untouched, 0, "{counters:?}");
                        dqa.detach().expect("detaches");
                    }
                }
                _ => {}
            }
        });
        println!("{step} steps, {sent_under_programs} packets under the programs");
        assert!(
            sent_under_programs > 50,
            "{step} steps: the transfer was too short for a round"
        );
        if let Some(dqa) = dqa {
            dqa.detach().expect("detaches");
        }
        assert!(!command("tc", "qdisc show dev v0").contains("clsact"));
    });
}

#[test]
fn other_kinds_of_traffic_are_counted_too() {
    in_lab("udp, ipv6, vlan, forwarded", |pins| {
        let peer = veth();
        slow_queues("v0");
        let mut dqa = attach("v0", Completion::HandedOver, true, pins);
        let flows = || dqa.flows().iter().count();

        let left = Departures::during("v0", || tcp(&peer, "[fd00::2]:0", 2, 200_000, || ()));
        left.check_order();
        let ipv6 = flows();
        assert!(ipv6 >= 2, "{ipv6}");
        // Tagged frames, counted like others. This kernel has no VLAN devices, and of a packet socket's tagged frame it
        // dissects addresses only: so they are few flows.
        let counters = dqa.counters().expect("readable");
        for port in 0..10 {
            send_frame("v0", &tagged_udp(6000 + port));
        }
        let after = dqa.counters().expect("readable");
        let tagged = after.assigned + after.kept - counters.assigned - counters.kept;
        assert!(tagged >= 10, "{tagged}");
        let vlan = flows();
        assert!(vlan > ipv6, "{ipv6} {vlan}");

        // One unconnected socket, many destinations: a flow each, by their addresses and ports.
        let socket = UdpSocket::bind("10.1.0.1:0").expect("bind");
        for port in 4000..4020 {
            socket.send_to(&[0; 500], ("10.1.0.2", port)).expect("send");
        }
        let udp = flows();
        assert!(udp >= vlan + 15, "{vlan} {udp}");

        // A third host behind this one: its packets have no socket here.
        let third = Host::new();
        ip(&format!(
            "link add w0 type veth peer name w1 netns {}",
            third.path()
        ));
        ip("addr add 10.3.0.1/24 dev w0");
        ip("link set w0 up");
        receive_on_one_processor("w0", 1);
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("this namespace forwards");
        third.run(|| {
            ip("addr add 10.3.0.2/24 dev w1");
            ip("link set w1 up");
            ip("route add default via 10.3.0.1");
        });
        peer.run(|| ip("route add 10.3.0.0/24 via 10.1.0.1"));
        let counters = dqa.counters().expect("readable");
        let left = Departures::during("v0", || {
            third.run(|| tcp(&peer, "10.1.0.2:0", 2, 200_000, || ()));
        });
        left.check_order();
        let after = dqa.counters().expect("readable");
        assert!(after.kept > counters.kept, "{after:?}");
        assert!(flows() >= udp + 2);

        check_counters(&after);
        assert_drained(&mut dqa, "v0", "10.1.0.2", || ());
        dqa.detach().expect("detaches");
    });
}

#[test]
fn tcp_through_tun_stays_in_order_and_apart() {
    // The device cannot segment, so the kernel does, with either value of the flag.
    tcp_through_tun("tcp over tun", false);
    tcp_through_tun("tcp over tun, segmentation by the device's features", true);
}

fn tcp_through_tun(name: &str, segmentation: bool) {
    in_lab(name, |pins| {
        let tun = Tun::new("t0", 8);
        without_timeouts("t0", "10.2.0");
        let peer = Host::new();
        let far = peer.run(|| {
            let far = Tun::new("t1", 1);
            ip("addr add 10.2.0.2/24 dev t1");
            far
        });
        let mut dqa = attach("t0", Completion::Freed, segmentation, pins);
        tun.steer(dqa.steering_program());
        let before = peer.run(out_of_order);
        let mut watch = Watch::default();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // The wire: one packet of each queue at a time, slower than the senders.
            let wire = scope.spawn(|| {
                while !stop.load(Relaxed) {
                    for queue in 0..8 {
                        if let Some(packet) = tun.read(queue) {
                            far.write(0, &packet);
                        }
                    }
                    while let Some(packet) = far.read(0) {
                        tun.write(0, &packet);
                    }
                    std::thread::sleep(Duration::from_micros(200));
                }
            });
            tcp(&peer, "10.2.0.2:0", 3, 2_000_000, || watch.look(&dqa));
            stop.store(true, Relaxed);
            wire.join().expect("the wire");
        });
        let counters = dqa.counters().expect("readable");
        println!("{counters:?} samples {}", watch.samples);
        assert!(watch.samples > 100, "{} samples", watch.samples);
        assert_eq!(watch.met, 0, "three flows shared one of eight queues");
        watch.check_places(&counters);
        assert_eq!(counters.unknown, 0, "{counters:?}");
        assert_eq!(peer.run(out_of_order), before, "out of order");
        check_counters(&counters);
        assert_drained(&mut dqa, "t0", "10.2.0.2", || discard(&tun));
        dqa.detach().expect("detaches");
    });
}

/// Goal: a choice whose packets were all dropped does not count as one with a known effect. Method: one flow fills the ring of a TUN
/// device; each packet of a second flow is then dropped, so that the flow has a new choice; the test reads what is left.
#[test]
fn a_choice_of_which_nothing_was_sent_is_not_checked() {
    in_lab("choices of dropped packets", |pins| {
        let tun = Tun::new("t0", 1);
        ip("link set t0 txqueuelen 8");
        ip("addr add 10.2.0.1/24 dev t0");
        let dqa = attach("t0", Completion::Freed, false, pins);
        tun.steer(dqa.steering_program());
        for (port, packets) in [(9, 100), (10, 50)] {
            let socket = UdpSocket::bind("10.2.0.1:0").expect("a socket");
            for _ in 0..packets {
                // A full queue may return an error, or drop without one.
                let _ = socket.send_to(&[0; 500], ("10.2.0.2", port));
            }
        }
        let full = dqa.counters().expect("readable");
        assert!(full.assigned > 50, "{full:?}");
        assert_eq!(full.checked, 0, "{full:?}");
        while tun.read(0).is_some() {}
        let read = dqa.counters().expect("readable");
        assert!((1..=3).contains(&read.checked), "{read:?}");
        dqa.detach().expect("detaches");
    });
}

/// Goal: what a full ring drops does not count as sent. Method: a TUN device whose ring holds eight packets. No process
/// reads while a flow sends a hundred packets; then the test reads them.
#[test]
fn dropped_packets_do_not_count_as_sent() {
    in_lab("drops", |pins| {
        let tun = Tun::new("t0", 1);
        ip("link set t0 txqueuelen 8");
        ip("addr add 10.2.0.1/24 dev t0");
        let mut dqa = attach("t0", Completion::Freed, false, pins);
        tun.steer(dqa.steering_program());
        let socket = UdpSocket::bind("10.2.0.1:0").expect("a socket");
        for _ in 0..100 {
            // A full queue may return an error, or drop without one.
            let _ = socket.send_to(&[0; 500], "10.2.0.2:9");
        }
        let mut read = 0;
        while let Some(packet) = tun.read(0) {
            read += packet.len() as u64;
            // A queue that was stopped goes on.
            std::thread::sleep(Duration::from_millis(2));
        }
        let counters = dqa.counters().expect("readable");
        println!("{counters:?}, {read} bytes read");
        assert!(counters.dropped > 50, "{counters:?}");
        let flows: Vec<FlowSnapshot> = dqa
            .flows()
            .iter()
            .filter(|flow| flow.sent_packets > 50)
            .collect();
        assert_eq!(flows.len(), 1, "{flows:?}");
        assert_eq!(flows[0].completed_bytes(), read, "{flows:?}");
        assert_drained(
            &mut dqa,
            "t0",
            "10.2.0.2",
            || while tun.read(0).is_some() {},
        );
        dqa.detach().expect("detaches");
    });
}

#[test]
fn processors_that_race_lose_no_weight() {
    in_lab("races", |pins| {
        let tun = Tun::new("t0", 8);
        ip("addr add 10.2.0.1/24 dev t0");
        let mut dqa = attach("t0", Completion::Freed, true, pins);
        tun.steer(dqa.steering_program());
        // Connected sockets have a flow each; the last one is shared, so that processors meet at one flow.
        let socket = |port: u16| {
            let socket = UdpSocket::bind("10.2.0.1:0").expect("bind");
            socket.connect(("10.2.0.2", port)).expect("connect");
            socket
        };
        let shared = socket(4999);
        let read = std::thread::scope(|scope| {
            let senders: Vec<_> = (0..4_u16)
                .map(|thread| {
                    let (shared, socket) = (&shared, &socket);
                    // A thread that starts inherits this namespace.
                    scope.spawn(move || {
                        let own: Vec<UdpSocket> = (0..8)
                            .map(|flow| socket(5000 + thread * 8 + flow))
                            .collect();
                        for round in 0..4000 {
                            // A full ring drops, and returns an error to the sender.
                            let _ = own[round % 8].send(&[0; 200]);
                            let _ = shared.send(&[0; 200]);
                        }
                    })
                })
                .collect();
            let mut read = 0;
            while senders.iter().any(|sender| !sender.is_finished()) {
                for queue in 0..8 {
                    read += usize::from(tun.read(queue).is_some());
                }
            }
            read
        });
        let rest: usize = (0..8)
            .map(|queue| std::iter::from_fn(|| tun.read(queue)).count())
            .sum();
        let counters = dqa.counters().expect("readable");
        println!("{counters:?} read {read} + {rest}");
        let seen = counters.assigned + counters.kept + counters.untouched;
        assert_eq!(seen, 4 * 2 * 4000);
        assert!(counters.kept > counters.untouched);
        assert_drained(&mut dqa, "t0", "10.2.0.2", || discard(&tun));
        dqa.detach().expect("detaches");
    });
}

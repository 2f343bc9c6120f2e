//! What each congestion control promises at one shared port: a fair share, a busy line, a short queue.
//!
//! Flows from as many hosts send to one receiver without pause. The first half of the run is theirs to converge; over the
//! second half each flow's goodput, the receiver's line and the queue at the switch are measured. The bounds are what the
//! papers claim, not what the model happens to give.

use super::channel::Channels;
use super::{Message, Transport};
use crate::network::{Network, Ordering, Step};
use crate::packet::HostId;
use crate::topology::{PortId, Topology};
use isolane_common_quantities::units::{BitRate, Bytes, Duration, Instant};
use isolane_network_scenario::model::{
    Congestion, Ecn, FabricTopology, Pfc, PortScheduler, PortSettings, Recovery, Shape,
    TransportSpec,
};

/// What was seen in the second half.
#[derive(Debug)]
struct Shared {
    /// Jain's index of the flows' goodputs.
    jain: f64,
    /// Payload and headers at the receiver over what its line carries.
    utilisation: f64,
    /// Mean queue at the switch's port, sampled at each arrival at the receiver, bytes.
    queue: f64,
    dropped: u64,
}

struct Case {
    congestion: Congestion,
    parameters: &'static [(&'static str, f64)],
    ecn: Option<Ecn>,
    rate_gbps: u64,
    flows: u16,
    run: Duration,
}

const MESSAGE: u64 = 1_000_000;

fn ecn(min: u64, max: u64, max_probability: f64) -> Option<Ecn> {
    Some(Ecn {
        min: Bytes::new(min),
        max: Bytes::new(max),
        max_probability,
    })
}

fn share(case: &Case) -> Shared {
    let topology = FabricTopology {
        shape: Shape::SingleSwitch {
            hosts: u32::from(case.flows) + 1,
        },
        host_rate: BitRate::from_gbps(case.rate_gbps),
        nic_rate: BitRate::from_gbps(case.rate_gbps),
        hop_delay: Duration::from_ns(500),
    };
    let ports = PortSettings {
        scheduler: PortScheduler::Strict,
        mtu: Bytes::new(1_000),
        header: Bytes::new(40),
        buffer: Bytes::from_mib(4),
        shared_buffer: false,
        ecn: case.ecn,
        // DCQCN starts at line rate and leaves bursts to pauses; the others need none.
        pfc: (case.congestion == Congestion::Dcqcn).then_some(Pfc {
            xoff: Bytes::from_kib(100),
            xon: Bytes::from_kib(90),
            quanta: None,
        }),
    };
    let ordering = Ordering {
        order: PortScheduler::Strict.into(),
        weights: &[1],
        seed: 1,
    };
    let mut network = Network::ordered(Topology::new(&topology), &ports, ordering);
    let given = case.parameters.iter();
    let spec = TransportSpec {
        congestion: case.congestion,
        recovery: Recovery::Selective,
        parameters: given
            .map(|&(name, value)| (name.to_owned(), value))
            .collect(),
    };
    let mut channels = Channels::new(&spec, &network).unwrap();
    let receiver = HostId(case.flows);
    let message = |from: u16| Message {
        token: u32::from(from),
        from: HostId(from),
        to: receiver,
        class: 0,
        size: Bytes::new(MESSAGE),
        deadline: None,
    };
    for from in 0..case.flows {
        // Two messages in flight, so that a channel never runs dry.
        channels.send(&mut network, message(from));
        channels.send(&mut network, message(from));
    }
    let half = Instant::ZERO + case.run / 2;
    let end = Instant::ZERO + case.run;
    let port = PortId(u32::from(case.flows) + 1 + u32::from(receiver.0));
    let mut bytes = vec![0u64; usize::from(case.flows)];
    let (mut wire, mut queue, mut samples) = (0u64, 0u64, 0u64);
    let mut ended = Vec::new();
    loop {
        match network.step(end) {
            Step::Packet(id) => {
                let packet = network.packets[id];
                if packet.to == receiver && network.now() >= half {
                    bytes[usize::from(packet.from.0)] += u64::from(packet.payload);
                    wire += u64::from(packet.bytes);
                    queue += network.port_queue(port).get();
                    samples += 1;
                }
                channels.on_packet(&mut network, id, &mut ended);
            }
            Step::Timer(_, timer) => channels.on_timer(&mut network, timer, &mut ended),
            Step::Idle(_) => {}
            Step::Over => break,
        }
        for one in ended.drain(..) {
            channels.send(&mut network, message(one.token as u16));
        }
    }
    let sum: f64 = bytes.iter().map(|&b| b as f64).sum();
    let squares: f64 = bytes.iter().map(|&b| (b as f64).powi(2)).sum();
    let line = BitRate::from_gbps(case.rate_gbps).bytes_in(case.run / 2);
    Shared {
        jain: sum * sum / (f64::from(case.flows) * squares),
        utilisation: wire as f64 / line.get() as f64,
        queue: queue as f64 / samples as f64,
        dropped: network.counts().dropped.values().sum(),
    }
}

#[test]
fn swift_keeps_its_delay_and_shares_evenly() {
    // SIGCOMM 2020, section 4: throughput near line rate at a delay about the target, fair between flows; with fewer
    // packets per flow than one, by gaps.
    for flows in [2, 16] {
        let shared = share(&Case {
            congestion: Congestion::Swift,
            parameters: &[
                ("target_us", 15.0),
                ("window_min_packets", 0.01),
                ("window_max_packets", 200.0),
            ],
            ecn: None,
            rate_gbps: 100,
            flows,
            run: Duration::from_ms(20),
        });
        assert!(shared.jain > 0.95, "{flows} flows: {shared:?}");
        assert!(shared.utilisation > 0.9, "{flows} flows: {shared:?}");
        // 15 us at 100 Gb/s are 187,500 B of queue and way together.
        assert!(shared.queue < 187_500.0, "{flows} flows: {shared:?}");
        assert_eq!(shared.dropped, 0);
    }
}

#[test]
fn dctcp_keeps_the_queue_at_its_mark_and_the_line_busy() {
    // SIGCOMM 2010, section 3.3: with K above a seventh of the bandwidth-delay product, full throughput; the queue
    // oscillates about K, its largest value K plus a packet per flow.
    for flows in [2, 16] {
        let shared = share(&Case {
            congestion: Congestion::Dctcp,
            parameters: &[],
            ecn: ecn(65_000, 65_000, 1.0),
            rate_gbps: 10,
            flows,
            run: Duration::from_ms(200),
        });
        assert!(shared.jain > 0.95, "{flows} flows: {shared:?}");
        assert!(shared.utilisation > 0.98, "{flows} flows: {shared:?}");
        let most = 65_000.0 + 1_040.0 * f64::from(flows);
        assert!(shared.queue < most, "{flows} flows: {shared:?}");
        assert_eq!(shared.dropped, 0);
    }
}

#[test]
fn dcqcn_shares_evenly_below_its_marking_range() {
    // SIGCOMM 2015, sections 5 and 6: K_min 5 KB, K_max 200 KB, P_max 1 % at 40 Gb/s; flows converge to their fair share and
    // the queue stays below K_max.
    for flows in [2, 16] {
        let shared = share(&Case {
            congestion: Congestion::Dcqcn,
            parameters: &[],
            ecn: ecn(5_000, 200_000, 0.01),
            rate_gbps: 40,
            flows,
            run: Duration::from_ms(400),
        });
        assert!(shared.jain > 0.9, "{flows} flows: {shared:?}");
        assert!(shared.utilisation > 0.9, "{flows} flows: {shared:?}");
        assert!(shared.queue < 200_000.0, "{flows} flows: {shared:?}");
        assert_eq!(shared.dropped, 0);
    }
}

#[test]
fn timely_keeps_delay_below_its_high_threshold() {
    // SIGCOMM 2015, section 6: line rate at round trips between the thresholds. Nothing of equal shares: see the module.
    for flows in [2, 16] {
        let shared = share(&Case {
            congestion: Congestion::Timely,
            parameters: &[],
            ecn: None,
            rate_gbps: 10,
            flows,
            run: Duration::from_ms(400),
        });
        assert!(shared.utilisation > 0.9, "{flows} flows: {shared:?}");
        // 500 us at 10 Gb/s.
        assert!(shared.queue < 625_000.0, "{flows} flows: {shared:?}");
    }
}

#[test]
fn hpcc_fills_its_part_of_the_line_with_almost_no_queue() {
    // SIGCOMM 2019, sections 3.3 and 5: eta of the line, near-zero queues (below the bandwidth-delay product), fair.
    for flows in [2, 16] {
        let shared = share(&Case {
            congestion: Congestion::Hpcc,
            parameters: &[("flows", 16.0)],
            ecn: None,
            rate_gbps: 100,
            flows,
            run: Duration::from_ms(10),
        });
        assert!(shared.jain > 0.95, "{flows} flows: {shared:?}");
        assert!(
            (0.9..0.99).contains(&shared.utilisation),
            "{flows} flows: {shared:?}"
        );
        // 2.2 us at 100 Gb/s.
        assert!(shared.queue < 27_500.0, "{flows} flows: {shared:?}");
        assert_eq!(shared.dropped, 0);
    }
}

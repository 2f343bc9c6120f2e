//! The programs against the policy in Rust: the same packets, the same queues.
//!
//! Goal: `bpf/dqa.bpf.c` decides what `isolane_ethernet_policy::titan::assign` decides. Method: random sends of many flows
//! through a TUN device with a steering program, and random reads, each of which completes the packet it returns; after
//! every step queue, backlog and weights are compared. The TUN device's queues are FIFOs, so each read also shows that
//! nothing was reordered. A failure prints the seed.
#![allow(unsafe_code)]

use crate::support::{Tun, in_lab, ip, load};
use isolane_ethernet_bpf::{
    CpuPools, Dqa, DqaSettings, FlowSnapshot, QueueSet, WEIGHT_ONE, WeightSource,
};
use isolane_ethernet_policy::titan::assign::{Assigner, Place, Send};
use std::collections::VecDeque;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::Duration;

const FLOWS: usize = 24;
const STEPS: usize = 1500;
/// Below the length of a TUN device's ring, so that nothing is dropped.
const OUTSTANDING_MAX: usize = 300;

struct Flow {
    socket: UdpSocket,
    point: usize,
    key: u32,
    place: Place,
}

struct World {
    tun: Tun,
    dqa: Dqa,
    flows: Vec<Flow>,
    assigner: Assigner,
    /// Flow and length of what is in each queue.
    queues: Vec<VecDeque<(usize, usize)>>,
    settings: DqaSettings,
    allowed: QueueSet,
}

impl World {
    fn new(pins: &std::path::Path, queues: u16, settings: DqaSettings) -> Self {
        let tun = Tun::new("t0", usize::from(queues));
        ip("addr add 10.2.0.1/24 dev t0");
        let mut dqa = load(&tun, queues, pins, &settings);
        // A busy machine may not run the test for a second, after which the programs take packets for lost.
        let hour = Duration::from_secs(3600);
        dqa.set_patience(hour, hour);
        let allowed = match &settings.pools {
            CpuPools::Off => QueueSet::EMPTY,
            // The test gives every processor the same set.
            CpuPools::PerProcessor(sets) => sets[0],
        };
        Self {
            tun,
            dqa,
            flows: (0..FLOWS).map(flow).collect(),
            assigner: Assigner::new(queues, settings.latency_queue),
            queues: vec![VecDeque::new(); usize::from(queues)],
            settings,
            allowed,
        }
    }

    fn send(&mut self, index: usize, payload: usize) {
        let before = self.keys();
        let flow = &mut self.flows[index];
        let sent = flow.socket.send(&vec![0; payload]).expect("send");
        assert_eq!(sent, payload);
        let length = payload + 28;
        let urgent = [46, 48, 56].contains(&flow.point);
        let small = length <= self.settings.small_bytes as usize;
        let weight = match self.settings.weights {
            WeightSource::Dscp => self.settings.dscp_weights[flow.point],
            _ => WEIGHT_ONE,
        };
        let queue = self.assigner.send(
            &mut flow.place,
            Send {
                units: 1,
                weight,
                sparse: self.settings.latency_queue.is_some() && (small || urgent),
                allowed: self.allowed,
            },
        );
        self.queues[usize::from(queue)].push_back((index, length));
        if flow.key == 0 {
            let new = self
                .dqa
                .flows()
                .iter()
                .find(|flow| !before.contains(&flow.key));
            self.flows[index].key = new.expect("an entry for a new flow").key;
        }
        let there = self.entry(index);
        assert_eq!(there.queue, queue, "flow {index}: {there:?}");
        self.compare(index);
    }

    fn read(&mut self, queue: usize) {
        let Some(packet) = self.tun.read(queue) else {
            assert!(
                self.queues[queue].is_empty(),
                "queue {queue} has lost a packet"
            );
            return;
        };
        let (index, length) = self.queues[queue]
            .pop_front()
            .expect("a packet was sent there");
        let port = usize::from(u16::from_be_bytes([packet[22], packet[23]]));
        assert_eq!((port, packet.len()), (5000 + index, length), "out of order");
        self.assigner.freed(&mut self.flows[index].place, 1);
        self.compare(index);
    }

    fn compare(&self, index: usize) {
        let there = self.entry(index);
        let place = &self.flows[index].place;
        assert_eq!(there.outstanding, place.outstanding(), "flow {index}");
        let bytes: usize = self
            .queues
            .iter()
            .flatten()
            .filter(|(flow, _)| *flow == index)
            .map(|(_, length)| length)
            .sum();
        assert_eq!(there.outstanding_bytes as usize, bytes, "flow {index}");
        let queues = self.dqa.queues();
        let weights: Vec<u64> = queues.iter().map(|queue| queue.weight).collect();
        assert_eq!(weights, self.assigner.weights());
        let flows: Vec<u32> = queues.iter().map(|queue| queue.flows).collect();
        assert_eq!(flows, self.assigner.flows());
    }

    fn entry(&self, index: usize) -> FlowSnapshot {
        let key = self.flows[index].key;
        let mut flows = self.dqa.flows().iter().collect::<Vec<_>>().into_iter();
        flows.find(|flow| flow.key == key).expect("its entry")
    }

    fn keys(&self) -> Vec<u32> {
        self.dqa.flows().iter().map(|flow| flow.key).collect()
    }
}

fn flow(index: usize) -> Flow {
    let socket = UdpSocket::bind("10.2.0.1:0").expect("bind");
    socket
        .connect(("10.2.0.2", 5000 + index as u16))
        .expect("connect");
    let point = [0, 46, 8, 34][index % 4];
    let service = (point as i32) << 2;
    // SAFETY: passes one int.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_TOS,
            (&raw const service).cast(),
            4,
        )
    };
    assert_eq!(result, 0, "IP_TOS");
    Flow {
        socket,
        point,
        key: 0,
        place: Place::default(),
    }
}

/// A generator that needs no crate: xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

fn agree(name: &str, queues: u16, settings: DqaSettings, seed: u64) {
    in_lab(name, |pins| {
        println!("{name}: seed {seed:#x}");
        let mut world = World::new(pins, queues, settings);
        let mut random = Random(seed);
        for step in 0..STEPS {
            let outstanding: usize = world.queues.iter().map(VecDeque::len).sum();
            // Queues fill and drain in turns, so that flows keep their queues for a while and then do not.
            let send = if step / 100 % 2 == 0 { 75 } else { 30 };
            if random.below(100) < send && outstanding < OUTSTANDING_MAX {
                let payload = [100, 2000, 3000][random.below(3)];
                world.send(random.below(FLOWS), payload);
            } else {
                world.read(random.below(usize::from(queues)));
            }
        }
        for queue in 0..usize::from(queues) {
            while !world.queues[queue].is_empty() {
                world.read(queue);
            }
        }
        assert!(world.dqa.queues().iter().all(|queue| queue.weight == 0));
        let counters = world.dqa.counters().expect("readable");
        assert!(
            counters.kept > 50 && counters.assigned > FLOWS as u64,
            "{counters:?}"
        );
        assert_eq!(counters.assigned + counters.kept, counters.completed);
        assert_eq!(
            (counters.healed, counters.recovered, counters.unknown),
            (0, 0, 0)
        );
        world.dqa.detach().expect("detaches");
    });
}

#[test]
fn plain_flows_take_the_queues_of_the_policy() {
    agree(
        "plain flows",
        8,
        DqaSettings::default(),
        0x9e37_79b9_7f4a_7c15,
    );
    agree(
        "one queue",
        1,
        DqaSettings::default(),
        0x1234_5678_9abc_def1,
    );
    agree(
        "64 queues",
        64,
        DqaSettings::default(),
        0x0bad_cafe_0bad_cafe,
    );
}

#[test]
fn weights_of_code_points_are_those_of_the_policy() {
    let mut settings = DqaSettings {
        weights: WeightSource::Dscp,
        ..DqaSettings::default()
    };
    for (point, weight) in settings.dscp_weights.iter_mut().enumerate() {
        *weight = 100 + 77 * point as u32;
    }
    agree("code points", 5, settings, 0x5eed_0001_5eed_0001);
}

#[test]
fn sparse_flows_take_the_latency_queue() {
    let settings = DqaSettings {
        latency_queue: Some(2),
        ..DqaSettings::default()
    };
    agree("latency queue", 4, settings, 0x5eed_0002_5eed_0003);
}

#[test]
fn processors_keep_to_their_pools() {
    let settings = DqaSettings {
        latency_queue: Some(7),
        pools: CpuPools::PerProcessor(vec![QueueSet(0b1001_1010); 512]),
        ..DqaSettings::default()
    };
    agree("pools", 8, settings, 0x5eed_0004_5eed_0005);
}

/// By hash, a flow has the queue of its hash at any loads, in proportion to the set's size and from it alone.
#[test]
fn by_hash_a_flow_keeps_its_queue_for_good() {
    in_lab("by hash", |pins| {
        let set = QueueSet(0b0110_1001);
        let settings = DqaSettings {
            by_hash: true,
            pools: CpuPools::PerProcessor(vec![set; 512]),
            ..DqaSettings::default()
        };
        let tun = Tun::new("t0", 8);
        ip("addr add 10.2.0.1/24 dev t0");
        let dqa = load(&tun, 8, pins, &settings);
        let flows: Vec<Flow> = (0..FLOWS).map(flow).collect();
        for _ in 0..3 {
            for flow in &flows {
                flow.socket.send(&[0; 100]).expect("send");
            }
            for there in dqa.flows().iter() {
                let nth = ((u64::from(there.key) * u64::from(set.len())) >> 32) as usize;
                assert_eq!(Some(there.queue), set.iter().nth(nth), "{there:?}");
            }
            for queue in 0..8 {
                while let Some(packet) = tun.read(queue) {
                    assert!(!packet.is_empty() && set.holds(queue as u16));
                }
            }
        }
        assert_eq!(
            dqa.counters().expect("counters").kept,
            0,
            "all drained between rounds"
        );
    });
}

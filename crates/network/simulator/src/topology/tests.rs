//! Tests that every shape connects every pair by a shortest path, pairs its ports, and spreads flows over equal-cost paths.

use super::*;
use expect_test::{Expect, expect};
use isolane_network_scenario::model::{FabricTopology, Shape};
use proptest::prelude::*;

fn built(shape: Shape) -> Topology {
    Topology::new(&FabricTopology {
        shape,
        host_rate: BitRate::from_gbps(100),
        nic_rate: BitRate::from_gbps(100),
        hop_delay: Duration::from_ns(200),
    })
}

fn leaf_spine(leaves: u32, spines: u32, hosts_per_leaf: u32) -> Shape {
    Shape::LeafSpine {
        leaves,
        spines,
        hosts_per_leaf,
        uplink_rate: BitRate::from_gbps(40),
    }
}

fn two_racks(hosts_per_rack: u32) -> Shape {
    Shape::TwoRacks {
        hosts_per_rack,
        uplink_rate: BitRate::from_gbps(160),
    }
}

fn shapes() -> impl Strategy<Value = Shape> {
    prop_oneof![
        (1_u32..40).prop_map(|hosts| Shape::SingleSwitch { hosts }),
        (1_u32..8, 1_u32..6, 1_u32..7)
            .prop_map(|(leaves, spines, hosts)| leaf_spine(leaves, spines, hosts)),
        (1_u32..5).prop_map(|half| Shape::FatTree { k: 2 * half }),
        (1_u32..30).prop_map(two_racks),
    ]
}

/// Ports from `from` to `to`.
fn walk(topology: &Topology, from: u32, to: u32, path: u16) -> Vec<PortId> {
    let mut ports = vec![PortId(from)];
    loop {
        let spec = topology.ports[ports[ports.len() - 1].0 as usize];
        if spec.to == NodeId(to) {
            return ports;
        }
        assert!(
            ports.len() < 7 && spec.to.0 >= topology.hosts,
            "host{from} to host{to} strays: {ports:?}"
        );
        let port = topology.way(spec.to, HostId(to as u16), path);
        assert_eq!(topology.ports[port.0 as usize].from, spec.to);
        ports.push(port);
    }
}

/// Links of a shortest way, from the shape alone.
fn distance(shape: Shape, from: u32, to: u32) -> usize {
    let rack = |hosts: u32| from / hosts == to / hosts;
    match shape {
        Shape::SingleSwitch { .. } => 2,
        Shape::LeafSpine { hosts_per_leaf, .. } => 2 + 2 * usize::from(!rack(hosts_per_leaf)),
        Shape::TwoRacks { hosts_per_rack, .. } => 2 + 2 * usize::from(!rack(hosts_per_rack)),
        Shape::FatTree { k } => {
            2 + 2 * usize::from(!rack(k / 2)) + 2 * usize::from(!rack(k * k / 4))
        }
    }
}

proptest! {
    #[test]
    fn every_pair_is_joined_by_a_shortest_way(shape in shapes(), path: u16) {
        let topology = built(shape);
        for from in 0..topology.hosts {
            for to in (0..topology.hosts).filter(|&to| to != from) {
                prop_assert_eq!(walk(&topology, from, to, path).len(), distance(shape, from, to));
            }
        }
    }

    #[test]
    fn ports_come_in_pairs_and_belong_to_their_nodes(shape in shapes()) {
        let topology = built(shape);
        let mut ports = 0;
        for (node, own) in topology.ports_of.iter().enumerate() {
            for &port in own {
                let spec = topology.ports[port.0 as usize];
                let back = topology.ports[spec.back.0 as usize];
                prop_assert_eq!(spec.from, NodeId(node as u32));
                prop_assert_eq!((back.from, back.to, back.back), (spec.to, spec.from, port));
                prop_assert_eq!((back.rate, back.delay), (spec.rate, spec.delay));
                ports += 1;
            }
        }
        prop_assert_eq!(ports, topology.ports.len());
        prop_assert_eq!(topology.names.len(), topology.ports_of.len());
        prop_assert!((0..topology.hosts).all(|host| topology.ports_of[host as usize] == [PortId(host)]));
    }
}

/// Flows from host 0 to the last one, one path each, per port out of `node`: least and most loaded over the mean.
fn spread(topology: &Topology, node: &str) -> (f64, f64) {
    const FLOWS: u16 = 8_192;
    let mut used = vec![0_u32; topology.ports.len()];
    for path in 0..FLOWS {
        for port in walk(topology, 0, topology.hosts - 1, path) {
            used[port.0 as usize] += 1;
        }
    }
    let node = topology.names.iter().position(|name| name == node);
    let own = &topology.ports_of[node.expect("a node of the shape")];
    let used = own.iter().map(|port| used[port.0 as usize]);
    let used: Vec<u32> = used.filter(|&used| used > 0).collect();
    let mean = f64::from(used.iter().sum::<u32>()) / used.len() as f64;
    let extreme = |value: Option<&u32>| f64::from(*value.expect("used ports")) / mean;
    (extreme(used.iter().min()), extreme(used.iter().max()))
}

/// 1,024 flows per port scatter by 3 %, 128 by 9 %: four standard deviations either side.
#[test]
fn equal_cost_ways_share_flows_evenly_on_every_tier() {
    let clos = built(leaf_spine(4, 8, 4));
    let tree = built(Shape::FatTree { k: 16 });
    for (topology, node, slack) in [
        (&clos, "leaf0", 0.12),
        (&tree, "edge0", 0.12),
        (&tree, "agg0", 0.36),
        (&tree, "agg7", 0.36),
    ] {
        let (least, most) = spread(topology, node);
        assert!(
            least > 1.0 - slack && most < 1.0 + slack,
            "{node}: {least:.3} to {most:.3} of the mean"
        );
    }
}

#[test]
fn all_up_ports_are_used_by_one_path_to_many_hosts() {
    let tree = built(Shape::FatTree { k: 8 });
    let mut used = std::collections::BTreeSet::new();
    for to in 16..128 {
        used.insert(walk(&tree, 0, to, 7)[1]);
    }
    assert_eq!(used.len(), 4);
}

fn check(shape: Shape, expect: Expect) {
    let topology = built(shape);
    let mut text = String::new();
    for port in topology.ports_of[topology.hosts as usize..]
        .iter()
        .flatten()
    {
        let spec = topology.ports[port.0 as usize];
        let gbps = spec.rate.as_bps() / 1_000_000_000;
        text += &format!("{} {gbps} Gb/s\n", topology.port_name(*port));
    }
    expect.assert_eq(&text);
}

#[test]
fn leaves_meet_at_spines() {
    check(
        leaf_spine(2, 2, 1),
        expect![[r#"
            leaf0->host0 100 Gb/s
            leaf0->spine0 40 Gb/s
            leaf0->spine1 40 Gb/s
            leaf1->host1 100 Gb/s
            leaf1->spine0 40 Gb/s
            leaf1->spine1 40 Gb/s
            spine0->leaf0 40 Gb/s
            spine0->leaf1 40 Gb/s
            spine1->leaf0 40 Gb/s
            spine1->leaf1 40 Gb/s
        "#]],
    );
}

#[test]
fn racks_meet_at_a_core() {
    check(
        two_racks(1),
        expect![[r#"
            tor0->host0 100 Gb/s
            tor0->core 160 Gb/s
            tor1->host1 100 Gb/s
            tor1->core 160 Gb/s
            core->tor0 160 Gb/s
            core->tor1 160 Gb/s
        "#]],
    );
}

#[test]
fn a_fat_tree_of_two() {
    check(
        Shape::FatTree { k: 2 },
        expect![[r#"
            edge0->host0 100 Gb/s
            edge0->agg0 100 Gb/s
            edge1->host1 100 Gb/s
            edge1->agg1 100 Gb/s
            agg0->edge0 100 Gb/s
            agg0->core0 100 Gb/s
            agg1->edge1 100 Gb/s
            agg1->core0 100 Gb/s
            core0->agg0 100 Gb/s
            core0->agg1 100 Gb/s
        "#]],
    );
}

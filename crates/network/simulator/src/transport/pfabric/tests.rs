//! pFabric's properties on small networks.

use super::*;
use crate::discipline::Order;
use crate::network::Ordering;
use crate::transport::harness::{self, CALM, Start, World, ideal_us, losses, start};
use isolane_network_scenario::model::FabricPolicyKind;
use proptest::prelude::*;

fn world(hosts: u32) -> (Network, Pfabric) {
    let policy = harness::policy(FabricPolicyKind::Pfabric, &[]);
    let settings = |network: &Network| Settings::new(&policy, network).expect("defaults");
    let probe = Network::new(harness::topology(hosts), &harness::settings(1));
    let buffer = settings(&probe).buffer.get();
    let order = Ordering {
        order: Order::SmallestKey,
        weights: &[1],
        seed: 1,
    };
    let mut network = Network::ordered(harness::topology(hosts), &harness::settings(buffer), order);
    let pfabric = Pfabric::new(settings(&network), &mut network);
    (network, pfabric)
}

fn run(hosts: u32, starts: &[Start], how: World) -> (Network, Vec<f64>) {
    let (mut network, mut pfabric) = world(hosts);
    let done = harness::run_to_the_end(&mut network, &mut pfabric, starts, how);
    assert_eq!(pfabric.flows.open_now(), 0);
    let took = done.into_iter().map(|one| one.took_us);
    (network, took.collect())
}

#[test]
fn defaults_follow_from_the_bandwidth_delay_product() {
    let (_, pfabric) = world(2);
    // 2 * (5,120 + 40) B at 100 Gb/s and 4 hops of 200 ns: 1.6256 us, 20,320 B.
    assert_eq!(pfabric.settings.buffer, Bytes::new(40_640));
    assert_eq!(pfabric.settings.window, 4.0);
    assert_eq!(pfabric.settings.timeout, Duration::from_ps(3 * 1_625_600));
}

#[test]
fn a_flow_alone_takes_its_wire_time() {
    for bytes in [1, 5_080, 32_768, 1_000_000] {
        let took = run(2, &[start(0.0, 0, 1, bytes)], CALM).1[0];
        assert!(
            took < 1.001 * ideal_us(bytes),
            "{bytes} B took {took} us of {} us",
            ideal_us(bytes)
        );
    }
}

/// Ten long flows crowd one receiver; a short one takes its time alone and two packets that were on the line already.
#[test]
fn a_short_flow_does_not_wait_for_long_ones() {
    let mut starts: Vec<Start> = (1..11).map(|host| start(0.0, host, 0, 3_000_000)).collect();
    starts.push(start(100.0, 11, 0, 20_000));
    let (network, took) = run(12, &starts, CALM);
    assert!(took[10] < ideal_us(20_000) + 2.0 * 0.41, "{} us", took[10]);
    // The long ones did meet full buffers, so the short one had something to win against.
    assert!(network.counts().dropped["pfabric-lower-priority"] > 100);
    // And the line was not idle for it: ten flows in the time of their bytes.
    let last = took.iter().copied().fold(0.0, f64::max);
    assert!(last < 1.1 * ideal_us(30_020_000), "{last} us");
}

/// The same at a host: of two flows from one sender to two receivers, the shorter goes first.
#[test]
fn a_host_sends_its_shorter_flow_first() {
    let starts = [start(0.0, 0, 1, 1_000_000), start(10.0, 0, 2, 50_000)];
    let (_, took) = run(3, &starts, CALM);
    assert!(took[1] < ideal_us(50_000) + 2.0 * 0.41, "{} us", took[1]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn every_message_ends_after_any_loss((starts, world) in losses()) {
        prop_assert_eq!(run(4, &starts, world).1, run(4, &starts, world).1);
    }
}

//! Homa's properties on small networks.

use super::*;
use crate::transport::harness::{self, CALM, Start, World, ideal_us, losses, start};
use isolane_network_scenario::model::FabricPolicyKind;
use proptest::prelude::*;

fn world(hosts: u32) -> (Network, Homa) {
    let mut network = Network::new(harness::topology(hosts), &harness::settings(1 << 20));
    let policy = harness::policy(FabricPolicyKind::Homa, &[]);
    let homa = Homa::new(Settings::new(&policy).expect("defaults"), &mut network);
    (network, homa)
}

fn run(hosts: u32, starts: &[Start], world_of: World) -> Vec<f64> {
    let (mut network, mut homa) = world(hosts);
    let done = harness::run_to_the_end(&mut network, &mut homa, starts, world_of);
    assert_eq!(homa.flows.open_now(), 0);
    done.into_iter().map(|one| one.took_us).collect()
}

#[test]
fn a_message_alone_takes_its_wire_time() {
    for bytes in [1, 5_080, 32_768, 50_800] {
        let took = run(2, &[start(0.0, 0, 1, bytes)], CALM)[0];
        assert!(
            (took - ideal_us(bytes)).abs() < 1e-3,
            "{bytes} B took {took} us"
        );
    }
    // Grants come before the first round trip's worth has left, so a long one has no gap either.
    let took = run(2, &[start(0.0, 0, 1, 1_000_000)], CALM)[0];
    assert!(took < 1.02 * ideal_us(1_000_000), "{took} us");
}

/// 32 senders at once, each less than the unscheduled limit: nothing is lost, and the short ones go first.
#[test]
fn incast_of_short_messages_is_served_shortest_first_without_loss() {
    let starts: Vec<Start> = (1..33)
        .map(|host| start(0.0, host, 0, 1_500 * u64::from(host)))
        .collect();
    let (mut network, mut homa) = world(33);
    let done = harness::run(&mut network, &mut homa, &starts, CALM);
    assert_eq!((homa.resends, homa.asked), (0, 0));
    assert_eq!(network.counts().dropped.values().sum::<u64>(), 0);
    let took: Vec<f64> = done
        .into_iter()
        .map(|one| one.expect("ends").took_us)
        .collect();
    assert!(
        took[0] < 3.0 * ideal_us(1_500),
        "the shortest took {} us",
        took[0]
    );
    assert!(took[0] < took[8] && took[8] < took[24], "{took:?}");
}

/// A long message is under way; a short one to the same receiver takes little longer than alone.
#[test]
fn a_short_message_overtakes_a_long_one() {
    let starts = [start(0.0, 1, 0, 10_000_000), start(50.0, 2, 0, 20_000)];
    let took = run(3, &starts, CALM);
    assert!(took[1] < ideal_us(20_000) + 2.0 * 0.41, "{} us", took[1]);
    assert!(took[0] < 1.03 * ideal_us(10_020_000), "{} us", took[0]);
}

/// Of two long messages to one receiver, the one with less left ends as if it were alone.
#[test]
fn grants_go_to_what_is_nearest_to_its_end() {
    let starts = [start(0.0, 1, 0, 4_000_000), start(0.0, 2, 0, 1_000_000)];
    let took = run(3, &starts, CALM);
    assert!(took[1] < 1.15 * ideal_us(1_000_000), "{} us", took[1]);
    assert!(took[0] < 1.03 * ideal_us(5_000_000), "{} us", took[0]);
}

#[test]
fn unknown_parameters_are_errors() {
    let policy = harness::policy(FabricPolicyKind::Homa, &[("rtt_bytes", 1.0)]);
    let error = Settings::new(&policy).unwrap_err().to_string();
    assert_eq!(
        error,
        "transport `homa` has no parameter `rtt_bytes`; it has rtt_packets, priorities, sample_messages, resend_us"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_message_ends_after_any_loss((starts, world) in losses()) {
        prop_assert_eq!(run(4, &starts, world), run(4, &starts, world));
    }
}

//! QJump's properties on small networks.

use super::*;
use crate::transport::harness::{self, CALM, Done, Start, World, ideal_us, start};
use isolane_network_scenario::model::FabricPolicyKind;
use proptest::prelude::*;

fn world(hosts: u32, parameters: &[(&str, f64)]) -> (Network, Qjump) {
    let mut network = Network::new(harness::topology(hosts), &harness::settings(1 << 20));
    let policy = harness::policy(FabricPolicyKind::Qjump, parameters);
    let settings = Settings::new(&policy, 3, &network).expect("in range");
    let qjump = Qjump::new(settings, &mut network);
    (network, qjump)
}

fn run(hosts: u32, starts: &[Start], how: World) -> Vec<Done> {
    let (mut network, mut qjump) = world(hosts, &[]);
    let done = harness::run_to_the_end(&mut network, &mut qjump, starts, how);
    assert_eq!(qjump.flows.open_now(), 0);
    done
}

fn at_level(class: u8, start: Start) -> Start {
    Start { class, ..start }
}

#[test]
fn the_epoch_is_that_of_the_paper() {
    let (_, qjump) = world(33, &[]);
    // 2 * 33 * 5,120 B at 100 Gb/s and 1 us.
    assert!((qjump.settings.epoch.as_us_f64() - (27.0336 + 1.0)).abs() < 1e-9);
    assert_eq!(qjump.settings.limits[0], Some(Bytes::new(32 * 5_120)));
    assert_eq!(qjump.settings.limits[1], Some(Bytes::new(16 * 5_120)));
    assert_eq!(qjump.settings.limits[2], None);
}

/// All hosts send in all levels to one, the lowest as much as they can: with factor 1, no packet of the top level is under
/// way for longer than an epoch. The same packets in the lowest level are (so the bound says something).
#[test]
fn top_level_packets_arrive_within_an_epoch() {
    let mut starts = Vec::new();
    for host in 1..9 {
        starts.push(at_level(2, start(0.0, host, 0, 3_000_000)));
        starts.push(at_level(1, start(3.0, host, 0, 200_000)));
        for call in 0..20 {
            starts.push(at_level(0, start(f64::from(call) * 7.0, host, 0, 5_080)));
        }
    }
    let parameters = [("throughput_factor_0", 1.0), ("throughput_factor_1", 4.0)];
    let (mut network, mut qjump) = world(9, &parameters);
    let epoch = qjump.settings.epoch;
    let (mut slowest, mut seen) = ([Duration::ZERO; 3], 0);
    harness::run_and_watch(
        &mut network,
        &mut qjump,
        &starts,
        CALM,
        |network, packet| {
            if packet.kind == PacketKind::Data {
                let slot = &mut slowest[usize::from(packet.class)];
                *slot = (*slot).max(network.now().saturating_since(packet.sent_at));
                seen += u32::from(packet.class == 0);
            }
        },
    );
    assert_eq!(seen, 160);
    assert!(
        slowest[0] <= epoch,
        "{} us of {} us",
        slowest[0].as_us_f64(),
        epoch.as_us_f64()
    );
    assert!(slowest[2] > epoch, "{} us", slowest[2].as_us_f64());
}

/// A level gets its factor's part of the line and no more: with 9 hosts, 4 packets of 18 in an epoch.
#[test]
fn a_level_is_held_to_its_rate() {
    let (mut network, mut qjump) = world(9, &[("throughput_factor_0", 4.0), ("overhead_us", 0.0)]);
    let starts = [at_level(0, start(0.0, 1, 0, 5_080_000))];
    let done = harness::run(&mut network, &mut qjump, &starts, CALM);
    let took = done[0].expect("ends").took_us;
    let expected = ideal_us(5_080_000) * 18.0 / 4.0;
    assert!(
        (took / expected - 1.0).abs() < 0.03,
        "{took} us of {expected} us"
    );
}

#[test]
fn the_lowest_level_is_not_limited() {
    let took = run(9, &[at_level(2, start(0.0, 1, 0, 5_080_000))], CALM)[0].took_us;
    assert!(took < 1.05 * ideal_us(5_080_000), "{took} us");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn every_message_ends_after_any_loss(
        messages in proptest::collection::vec((0u32..200, 0u16..4, 1u16..4, 1u64..200_000, 0u8..3), 1..15),
        lost in 0u64..200,
        seed in any::<u64>(),
    ) {
        let starts: Vec<Start> = messages
            .iter()
            .map(|&(at, from, step, bytes, class)| at_level(class, start(f64::from(at), from, (from + step) % 4, bytes)))
            .collect();
        let how = World { lost_of_thousand: lost, seed };
        prop_assert_eq!(run(4, &starts, how), run(4, &starts, how));
    }
}

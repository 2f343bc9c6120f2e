//! PDQ's properties on small networks.

use super::*;
use crate::transport::harness::{self, CALM, Done, Start, World, due, ideal_us, losses, start};
use isolane_network_scenario::model::FabricPolicyKind;
use proptest::prelude::*;

fn run(hosts: u32, starts: &[Start], world: World) -> Vec<Done> {
    let mut network = Network::new(harness::topology(hosts), &harness::settings(1 << 20));
    let policy = harness::policy(FabricPolicyKind::Pdq, &[]);
    let settings = Settings::new(&policy, &network).expect("defaults");
    let mut pdq = Pdq::new(settings, &mut network);
    let done = harness::run_to_the_end(&mut network, &mut pdq, starts, world);
    assert_eq!(pdq.flows.open_now(), 0);
    done
}

#[test]
fn a_flow_alone_gets_the_link_after_one_round_trip() {
    let took = run(2, &[start(0.0, 0, 1, 1_000_000)], CALM)[0].took_us;
    assert!(took < 1.03 * ideal_us(1_000_000), "{took} us");
}

/// The paper's first example: sizes 1, 2, 3 over one bottleneck, all at once. Fair sharing ends them at 3, 5, 6 (mean
/// 4.67); one after the other, the shortest first, at 1, 3, 6 (mean 3.33).
#[test]
fn shortest_first_beats_fair_sharing_on_the_papers_example() {
    let unit = 1_000_000;
    let starts = [1, 2, 3].map(|size| start(0.0, size, 0, u64::from(size) * unit));
    let done = run(4, &starts, CALM);
    let unit_us = ideal_us(unit);
    let ends: Vec<f64> = done.iter().map(|one| one.took_us / unit_us).collect();
    for (end, expected) in ends.iter().zip([1.0, 3.0, 6.0]) {
        assert!((end / expected - 1.0).abs() < 0.07, "{ends:?}");
    }
    let mean = ends.iter().sum::<f64>() / 3.0;
    assert!(mean < 0.8 * 4.67, "{mean}");
}

/// The same example with deadlines 1, 4, 6 in units: the earliest first meets all three. Fair sharing meets only the
/// last, and first come first served fails for some orders of arrival.
#[test]
fn earliest_deadlines_first_meet_all_of_the_papers_example() {
    // Large enough that the round trips of a change of turns are a small part of the slack.
    let (unit, slack) = (5_000_000, 1.1);
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let starts: Vec<Start> = [(1, 1.0), (2, 4.0), (3, 6.0)]
            .iter()
            .zip(order)
            .map(|(&(size, deadline), place)| {
                let deadline_us = slack * deadline * ideal_us(unit);
                due(
                    0.1 * f64::from(place),
                    size,
                    0,
                    u64::from(size) * unit,
                    deadline_us,
                )
            })
            .collect();
        for done in run(4, &starts, CALM) {
            assert_eq!(done.how, How::Acknowledged, "{order:?} {done:?}");
        }
    }
}

/// A later flow with an earlier deadline takes the link from one that is under way.
#[test]
fn an_earlier_deadline_preempts() {
    let starts = [
        due(0.0, 1, 0, 1_000_000, 200.0),
        due(20.0, 2, 0, 300_000, 40.0),
    ];
    let done = run(3, &starts, CALM);
    assert_eq!(
        (done[0].how, done[1].how),
        (How::Acknowledged, How::Acknowledged)
    );
    assert!(done[1].took_us < 1.2 * ideal_us(300_000), "{done:?}");
}

#[test]
fn a_hopeless_flow_ends_early() {
    let starts = [
        due(0.0, 1, 0, 10_000_000, 100.0),
        due(0.0, 2, 0, 900_000, 100.0),
    ];
    let done = run(3, &starts, CALM);
    assert_eq!(
        done[0],
        Done {
            took_us: 0.0,
            how: How::Terminated
        }
    );
    assert_eq!(done[1].how, How::Acknowledged);
}

/// Flow switching: ten short flows one after the other keep the link nearly as busy as one long one.
#[test]
fn early_start_hides_the_round_trip_between_flows() {
    let starts: Vec<Start> = (1..=10).map(|host| start(0.0, host, 0, 100_000)).collect();
    let done = run(11, &starts, CALM);
    let last = done.iter().map(|one| one.took_us).fold(0.0, f64::max);
    assert!(last < 1.15 * ideal_us(1_000_000), "{last} us");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn every_message_ends_after_any_loss((starts, world) in losses()) {
        let done = run(4, &starts, world);
        prop_assert_eq!(&done, &run(4, &starts, world));
        for (done, start) in done.iter().zip(&starts) {
            prop_assert!(start.deadline_us.is_some() || done.how == How::Acknowledged);
        }
    }
}

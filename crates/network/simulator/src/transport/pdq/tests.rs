//! PDQ's properties on small networks.

use super::*;
use crate::transport::harness::{self, CALM, Done, Start, World, due, ideal_us, start};
use isolane_network_scenario::model::FabricPolicyKind;

fn run(hosts: u32, starts: &[Start], world: World) -> Vec<Done> {
    harness::run_with_deadlines(FabricPolicyKind::Pdq, hosts, starts, world)
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
    assert_eq!(harness::ends(&done), [How::Acknowledged, How::Acknowledged]);
    assert!(done[1].took_us < 1.2 * ideal_us(300_000), "{done:?}");
}

/// Flow switching: ten short flows one after the other keep the link nearly as busy as one long one.
#[test]
fn early_start_hides_the_round_trip_between_flows() {
    let starts: Vec<Start> = (1..=10).map(|host| start(0.0, host, 0, 100_000)).collect();
    let done = run(11, &starts, CALM);
    let last = done.iter().map(|one| one.took_us).fold(0.0, f64::max);
    assert!(last < 1.15 * ideal_us(1_000_000), "{last} us");
}

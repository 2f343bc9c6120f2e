//! D3's properties on small networks.

use super::*;
use crate::transport::harness::{self, CALM, Done, Start, World, due, ideal_us, start};
use isolane_network_scenario::model::FabricPolicyKind;

fn run(hosts: u32, starts: &[Start], world: World) -> Vec<Done> {
    harness::run_with_deadlines(FabricPolicyKind::D3, hosts, starts, world)
}

/// Three flows that together need nine tenths of the receiver's link: each requests its need, and each meets its
/// deadline. A fair share would make the most urgent one late.
#[test]
fn feasible_deadlines_are_met() {
    let starts = [
        due(0.0, 1, 0, 600_000, 100.0),
        due(0.0, 2, 0, 250_000, 100.0),
        due(0.0, 3, 0, 250_000, 100.0),
    ];
    let fair_us = 3.0 * 600_000.0 * 80e-6;
    assert!(fair_us > 100.0);
    for (done, wanted) in run(4, &starts, CALM).iter().zip(&starts) {
        assert_eq!(done.how, How::Acknowledged);
        assert!(
            done.took_us <= wanted.deadline_us.expect("all have one"),
            "{done:?}"
        );
    }
}

/// What came first keeps its rate (the weakness that PDQ is about): a later, more urgent flow is quenched.
#[test]
fn first_come_is_first_served() {
    let starts = [
        due(0.0, 1, 0, 1_100_000, 100.0),
        due(20.0, 2, 0, 300_000, 40.0),
    ];
    let done = run(3, &starts, CALM);
    assert_eq!(harness::ends(&done), [How::Acknowledged, How::Terminated]);
}

#[test]
fn flows_without_deadlines_share_what_is_left() {
    let starts = [start(0.0, 1, 0, 1_000_000), start(0.0, 2, 0, 1_000_000)];
    for done in run(3, &starts, CALM) {
        assert!(
            (done.took_us / ideal_us(2_000_000) - 1.0).abs() < 0.1,
            "{done:?}"
        );
    }
}

//! D3's properties on small networks.

use super::*;
use crate::transport::harness::{self, CALM, Done, Start, World, due, ideal_us, losses, start};
use isolane_network_scenario::model::FabricPolicyKind;
use proptest::prelude::*;

fn run(hosts: u32, starts: &[Start], world: World) -> Vec<Done> {
    let mut network = Network::new(harness::topology(hosts), &harness::settings(1 << 20));
    let policy = harness::policy(FabricPolicyKind::D3, &[]);
    let settings = Settings::new(&policy, &network).expect("defaults");
    let mut d3 = D3::new(settings, &mut network);
    let done = harness::run_to_the_end(&mut network, &mut d3, starts, world);
    assert_eq!(d3.flows.open_now(), 0);
    done
}

#[test]
fn a_flow_alone_gets_the_link_after_one_round_trip() {
    let took = run(2, &[start(0.0, 0, 1, 1_000_000)], CALM)[0].took_us;
    assert!(took < 1.03 * ideal_us(1_000_000), "{took} us");
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

/// A flow that would need more than the link is given up at once, and the others do not notice.
#[test]
fn a_hopeless_flow_is_quenched() {
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

/// What came first keeps its rate (the weakness that PDQ is about): a later, more urgent flow is quenched.
#[test]
fn first_come_is_first_served() {
    let starts = [
        due(0.0, 1, 0, 1_100_000, 100.0),
        due(20.0, 2, 0, 300_000, 40.0),
    ];
    let done = run(3, &starts, CALM);
    assert_eq!(
        (done[0].how, done[1].how),
        (How::Acknowledged, How::Terminated)
    );
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

//! Properties that D3 and PDQ share, on small networks.

use super::How;
use super::harness::{CALM, Done, due, ideal_us, losses, run_with_deadlines, start};
use isolane_network_scenario::model::FabricPolicyKind;
use proptest::prelude::*;

const KINDS: [FabricPolicyKind; 2] = [FabricPolicyKind::D3, FabricPolicyKind::Pdq];

#[test]
fn a_flow_alone_gets_the_link_after_one_round_trip() {
    for kind in KINDS {
        let starts = [start(0.0, 0, 1, 1_000_000)];
        let took = run_with_deadlines(kind, 2, &starts, CALM)[0].took_us;
        assert!(took < 1.03 * ideal_us(1_000_000), "{kind:?}: {took} us");
    }
}

/// A flow that would need more than the link ends at once, and the other flow keeps its deadline.
#[test]
fn a_hopeless_flow_ends_early() {
    let starts = [
        due(0.0, 1, 0, 10_000_000, 100.0),
        due(0.0, 2, 0, 900_000, 100.0),
    ];
    let hopeless = Done {
        took_us: 0.0,
        how: How::Terminated,
    };
    for kind in KINDS {
        let done = run_with_deadlines(kind, 3, &starts, CALM);
        assert_eq!(done[0], hopeless, "{kind:?}");
        assert_eq!(done[1].how, How::Acknowledged, "{kind:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_message_ends_after_any_loss(
        (starts, world) in losses(),
        kind in proptest::sample::select(&KINDS[..]),
    ) {
        let done = run_with_deadlines(kind, 4, &starts, world);
        prop_assert_eq!(&done, &run_with_deadlines(kind, 4, &starts, world));
        for (done, start) in done.iter().zip(&starts) {
            prop_assert!(start.deadline_us.is_some() || done.how == How::Acknowledged);
        }
    }
}

//! The daemons' reports by seed: the product holds, and two planted defects are found.

use isolane_tools_models::Broken;
use isolane_tools_models::peers::{Defect, Report, run};

/// Seeds for the product in `make test`; `make vopr` runs as many as its time allows.
const SEEDS: u64 = 20;
/// Seeds within which each planted defect must show.
const FOUND_WITHIN: u64 = 100;

#[test]
fn peers_keep_their_promises_under_random_faults() {
    let sum = crate::keeps(SEEDS, |seed| run(seed, Defect::None), Report::add);
    assert!(sum.links > 10 * SEEDS && sum.breaks > SEEDS && sum.kills > SEEDS);
    assert!(sum.reports > 100 * SEEDS);
}

#[test]
fn planted_defects_are_found_and_their_seed_fails_again() {
    let defects = [Defect::LosesConfirmations, Defect::KeepsLinks];
    crate::finds_planted(run, |broken: &Broken| broken.seed, FOUND_WITHIN, &defects);
}

//! What the guardian decides, by seed: the product holds, and four planted defects are found.

use isolane_tools_models::Broken;
use isolane_tools_models::guardian::{Defect, Report, run};

/// Seeds for the product in `make test`; `make vopr` runs as many as its time allows.
const SEEDS: u64 = 20;
/// Seeds within which each planted defect must show.
const FOUND_WITHIN: u64 = 100;

#[test]
fn the_guardian_keeps_its_promises_under_random_faults() {
    let sum = crate::keeps(SEEDS, |seed| run(seed, Defect::None), Report::add);
    assert!(sum.kept > SEEDS && sum.rejected > SEEDS && sum.calls > 100 * SEEDS);
    assert!(sum.kills > SEEDS && sum.orphans > SEEDS);
}

#[test]
fn planted_defects_are_found_and_their_seed_fails_again() {
    let defects = [
        Defect::ForgetsEnd,
        Defect::LosesListeners,
        Defect::KeepsListeners,
        Defect::RecordsEarly,
    ];
    crate::finds_planted(run, |broken: &Broken| broken.seed, FOUND_WITHIN, &defects);
}

//! The memory service's control loop by seed: the product holds, and four planted defects are found.

use isolane_tools_models::Broken;
use isolane_tools_models::memory::{Defect, Report, run};

/// Seeds for the product in `make test`; `make vopr` runs as many as its time allows.
const SEEDS: u64 = 60;
/// Seeds within which each planted defect must show.
const FOUND_WITHIN: u64 = 100;

#[test]
fn the_memory_service_keeps_its_promises_under_random_faults() {
    let sum = crate::keeps(SEEDS, |seed| run(seed, Defect::None), Report::add);
    assert!(sum.kills > SEEDS && sum.admitted > SEEDS && sum.limited > SEEDS);
}

#[test]
fn planted_defects_are_found_and_their_seed_fails_again() {
    let defects = [
        Defect::LosesWrites,
        Defect::IgnoresJournal,
        Defect::SkipsLimits,
        Defect::KeepsLimits,
    ];
    crate::finds_planted(run, |broken: &Broken| broken.seed, FOUND_WITHIN, &defects);
}

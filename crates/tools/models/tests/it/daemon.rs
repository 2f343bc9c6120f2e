//! `isolaned`'s deciding part by seed: the product holds, and six planted defects are found.

use isolane_tools_models::Broken;
use isolane_tools_models::daemon::{Defect, Report, run};

/// Seeds for the product in `make test`; `make vopr` runs as many as its time allows.
const SEEDS: u64 = 10;
/// Seeds within which each planted defect must show.
const FOUND_WITHIN: u64 = 100;

#[test]
fn the_daemon_keeps_its_promises_under_random_faults() {
    let sum = crate::keeps(SEEDS, |seed| run(seed, Defect::None), Report::add);
    assert!(sum.kills > SEEDS && sum.stops > 0 && sum.leases > 100 * SEEDS);
    assert!(sum.enforcers > SEEDS && sum.limited > SEEDS);
}

#[test]
fn planted_defects_are_found_and_their_seed_fails_again() {
    let defects = [
        Defect::ForgetsDeparture,
        Defect::StaleClock,
        Defect::IgnoresEnd,
        Defect::LosesReload,
        Defect::KeepsLimits,
        Defect::LosesLimits,
    ];
    crate::finds_planted(run, |broken: &Broken| broken.seed, FOUND_WITHIN, &defects);
}

//! Simulated studies of hosts with Ethernet NICs, and the tables of their results, for `sim` and for `nic`.

#[cfg_attr(
    not(feature = "nic-hosts"),
    allow(dead_code, reason = "`sim` shows one run, `nic` compares them")
)]
pub(crate) mod table;

use crate::network::cores;
use crate::progress::Bar;
use anyhow::{Context, Result};
use isolane_ethernet_scenario::model::NicStudy;
use isolane_ethernet_scenario::profile::NicProfile;
use isolane_ethernet_simulator::{Observers, RunError};
use isolane_study_results::ethernet::NicResult;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Simulates `studies` on all cores; results in their order, none if cancelled.
pub(crate) fn simulate(
    studies: &[NicStudy],
    cancel: &AtomicBool,
    bar: &Bar,
) -> Result<Option<Vec<NicResult>>> {
    let profile = NicProfile::of_paper();
    let next = AtomicUsize::new(0);
    let ended: Vec<Mutex<Option<Result<NicResult, RunError>>>> =
        studies.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        while !cancel.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(study) = studies.get(index) else {
                return;
            };
            let observers = Observers {
                cancel: Some(cancel),
                progress: None,
            };
            let result = isolane_ethernet_simulator::run_with(study, &profile, observers);
            *ended[index].lock().expect("no worker panics with the lock") = Some(result);
            bar.inc(1);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..cores().clamp(1, studies.len().max(1)) {
            scope.spawn(work);
        }
        work();
    });
    if cancel.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let mut results = Vec::new();
    for one in ended {
        let one = one.into_inner().expect("no worker panics with the lock");
        results.push(one.context("a run before this one failed")??);
    }
    Ok(Some(results))
}

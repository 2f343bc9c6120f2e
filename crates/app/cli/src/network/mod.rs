//! Runs of networks: one, or many at once.
//!
//! Method: runs share nothing, so each worker thread takes the next free run, and results are joined in the order of
//! the request. The result is the same for any number of workers.
//!
//! * [`text`] - what a terminal shows; [`remarks`] - what a run says in words; [`trace`] - packets as a pcap file.

pub(crate) mod remarks;
pub(crate) mod text;
pub(crate) mod trace;

use crate::inputs::bad;
use crate::progress::Bar;
use anyhow::{Context, Result, bail};
use isolane_network_scenario::model::FabricScenario;
use isolane_network_scenario::parameters;
use isolane_network_simulator::network::Tap;
use isolane_network_simulator::run::{Observers, RunError, run};
use isolane_study_results::network::FabricResult;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Units of the progress bar for one run.
pub(crate) const BAR_UNITS: u64 = 1_000;

/// One run to do.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// What to run.
    pub(crate) scenario: FabricScenario,
}

/// How runs are done.
#[derive(Debug)]
pub(crate) struct Jobs<'a> {
    /// Gives up soon after this becomes true.
    pub(crate) cancel: &'a AtomicBool,
    /// Threads.
    pub(crate) workers: usize,
    /// Shows how far they are.
    pub(crate) bar: &'a Bar,
}

/// Threads that can run at once.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// `KEY=VALUE` as pairs.
pub(crate) fn settings(written: &[String]) -> Result<Vec<(String, String)>> {
    let pair = |setting: &String| match setting.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        }
        _ => bail!(bad(format!("--set {setting}: must be key=value"))),
    };
    written.iter().map(pair).collect()
}

/// Whether `key` is a parameter of another one of `policies`, and not of the one called `name`.
pub(crate) fn only_others<'a>(
    key: &str,
    name: &str,
    policies: impl IntoIterator<Item = &'a String>,
) -> bool {
    let has = |name: &str| {
        let kind = parameters::policy_named(name);
        kind.is_some_and(|kind| parameters::describe(parameters::policy(kind), key).is_some())
    };
    !has(name) && policies.into_iter().any(|other| has(other))
}

impl Jobs<'_> {
    /// Runs all of `list`; results in its order. The error is the first run that failed, in the order of the list.
    pub(crate) fn run(&self, list: Vec<Job>) -> Result<Vec<FabricResult>> {
        self.run_each(&list, |_, _| Ok(()))
    }

    /// As [`Jobs::run`], and calls `done` with the index and result of each as soon as it is there.
    pub(crate) fn run_each(
        &self,
        list: &[Job],
        done: impl Fn(usize, &FabricResult) -> Result<()> + Sync,
    ) -> Result<Vec<FabricResult>> {
        self.bar.set_length(list.len() as u64 * BAR_UNITS);
        let next = AtomicUsize::new(0);
        let failed = AtomicBool::new(false);
        let ended: Vec<Mutex<Option<Result<FabricResult>>>> =
            list.iter().map(|_| Mutex::new(None)).collect();
        let work = || {
            while !failed.load(Ordering::Relaxed) {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(job) = list.get(index) else {
                    return;
                };
                let result = run_one(&job.scenario, self, None);
                let result = result.and_then(|result| done(index, &result).map(|()| result));
                failed.fetch_or(result.is_err(), Ordering::Relaxed);
                *ended[index].lock().expect("no worker panics with the lock") = Some(result);
            }
        };
        let workers = self.workers.clamp(1, list.len().max(1));
        std::thread::scope(|scope| {
            for _ in 1..workers {
                scope.spawn(work);
            }
            work();
        });
        let ended = ended
            .into_iter()
            .map(|one| one.into_inner().expect("no worker panics with the lock"));
        // Runs are taken in order: before one that was not taken is one that failed.
        ended
            .map(|one| one.context("a run before this one failed").flatten())
            .collect()
    }
}

/// Runs `scenario`, and lets `tap` see its packets.
pub(crate) fn run_one(
    scenario: &FabricScenario,
    jobs: &Jobs<'_>,
    tap: Option<Box<dyn Tap>>,
) -> Result<FabricResult> {
    if jobs.bar.length() == 0 {
        jobs.bar.set_length(BAR_UNITS);
    }
    let mut shown = 0;
    let mut progress = |part: f64| {
        let units = (part.clamp(0.0, 1.0) * BAR_UNITS as f64) as u64;
        jobs.bar.inc(units.saturating_sub(shown));
        shown = shown.max(units);
    };
    let observers = Observers {
        cancel: Some(jobs.cancel),
        progress: Some(&mut progress),
        tap,
    };
    let outcome = run(scenario, observers)?;
    jobs.bar.inc(BAR_UNITS - shown);
    Ok(outcome.result)
}

/// `results`, or none when the user stopped the runs.
pub(crate) fn unless_cancelled<T>(results: Result<T>) -> Result<Option<T>> {
    match results {
        Ok(results) => Ok(Some(results)),
        Err(error) if is_cancelled(&error) => Ok(None),
        Err(error) => match error.downcast::<RunError>() {
            // The contradiction is in the scenario or the command line.
            Ok(error) => Err(bad(error.to_string())),
            Err(error) => Err(error),
        },
    }
}

fn is_cancelled(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(RunError::Cancelled))
}

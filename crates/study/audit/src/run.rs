//! Runs a plan: many runs at once, in memory that does not grow with their length, and stoppable at any moment.
//!
//! Workers take the next undone run from a shared counter, so any number of workers follows the plan's order. First
//! every victim runs alone, which gives what the victim is owed; then the pairs run. They hand a condensed `Outcome` to
//! the calling thread, which writes the journal and reports progress. Results are looked up by run, never by order of
//! arrival: the number of workers cannot show. Runs that a testbed says are equal are done once. The cancel flag is checked between runs; one run lasts well below a
//! second, an application's a few seconds.

use crate::AuditError;
use crate::assemble::{assemble, demand};
use crate::cell::VictimKind;
use crate::journal::{Journal, Known};
use crate::matrix::{AuditResult, Progress};
use crate::outcome::Outcome;
use crate::place::settings;
use crate::plan::{Plan, Run};
use crate::settled;
use isolane_common_quantities::settle::Demand;
use isolane_study_testbed::{Testbed, TestbedError};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// How to run a plan.
pub struct RunOptions<'a> {
    /// Runs at once, at least 1.
    pub jobs: usize,
    /// Set it to stop after the runs under way.
    pub cancel: &'a AtomicBool,
    /// Where finished runs are written down; nowhere if absent.
    pub journal: Option<&'a Path>,
    /// Which build of the program this is: the journal of another build is not reused.
    pub build: &'a str,
    /// Reuse the runs that the journal holds.
    pub resume: bool,
    /// Called once before the first run of a resumed audit.
    pub on_resume: &'a mut dyn FnMut(Reused),
    /// Called after every run.
    pub on_progress: &'a mut dyn FnMut(Progress),
}

/// What the journal gave to a resumed audit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reused {
    /// False when there was no journal to go on with.
    pub journal_found: bool,
    /// Runs taken from it.
    pub runs: u64,
    /// Runs of the whole audit.
    pub runs_total: u64,
}

/// Finished runs waiting for the journal, per worker: enough that a slow disk does not idle the workers.
const QUEUE_PER_WORKER: usize = 16;

/// Runs `plan` on `testbed`. When cancelled, the result is partial and marked as partial.
pub fn run(
    plan: &Plan,
    testbed: &dyn Testbed,
    options: RunOptions<'_>,
) -> Result<AuditResult, AuditError> {
    if plan.victims.is_empty() || plan.policies.is_empty() || plan.seeds.is_empty() {
        return Err(AuditError::Empty);
    }
    let runs = plan.runs();
    let settings = settings(&plan.rerun);
    let (mut journal, known) = open_journal(&options, settings)?;
    let journal_found = known.is_some();
    let known = known.unwrap_or_default();
    let environment = plan.environment_key(testbed.name());
    // What a victim is owed, and so when its runs under attack have settled, follows from what it does alone.
    let (alone, attacked): (Vec<Run>, Vec<Run>) =
        runs.iter().partition(|run| run.attacker.is_none());
    let mut outcomes: BTreeMap<Run, Outcome> = BTreeMap::new();
    let undone_alone = undone(plan, environment, &alone, &known, &mut outcomes);
    let mut undone_attacked = match undone_alone.is_empty() {
        true => Some(undone(plan, environment, &attacked, &known, &mut outcomes)),
        false => None,
    };
    if let Some(path) = options.journal.filter(|_| options.resume) {
        check_use(path, &known, outcomes.len())?;
        (options.on_resume)(Reused {
            journal_found,
            runs: outcomes.len() as u64,
            runs_total: runs.len() as u64,
        });
    }
    let progress = |done: usize| Progress {
        runs_done: done as u64,
        runs_total: runs.len() as u64,
        partial: done < runs.len(),
    };
    (options.on_progress)(progress(outcomes.len()));
    let mut finish = |tasks: Vec<Task>, outcomes: &mut BTreeMap<Run, Outcome>| {
        let tasks = joined(plan, testbed, tasks);
        let work = Work {
            plan,
            testbed,
            undone: &tasks,
            next: AtomicUsize::new(0),
            cancel: options.cancel,
            broken: AtomicBool::new(false),
        };
        work.spread(options.jobs, |task, outcome| {
            for &(run, key) in &task.answers {
                if let Some(journal) = &mut journal {
                    journal.record(key, &outcome)?;
                }
                outcomes.insert(run, outcome.clone());
                (options.on_progress)(progress(outcomes.len()));
            }
            Ok(())
        })
    };
    finish(undone_alone, &mut outcomes)?;
    let stopped = alone.iter().any(|run| !outcomes.contains_key(run));
    if !stopped {
        let tasks = undone_attacked
            .take()
            .unwrap_or_else(|| undone(plan, environment, &attacked, &known, &mut outcomes));
        finish(tasks, &mut outcomes)?;
    }
    let done = progress(outcomes.len());
    Ok(assemble(plan, testbed.name(), &outcomes, done))
}

/// A journal of which no run can be used is of another audit.
fn check_use(path: &Path, known: &Known, used: usize) -> Result<(), AuditError> {
    if used > 0 || known.outcomes.is_empty() {
        return Ok(());
    }
    Err(AuditError::JournalOther {
        path: path.to_owned(),
        runs: known.outcomes.len(),
        found: known.settings.clone(),
    })
}

/// The journal that takes the outcomes, and what an earlier audit left in it.
fn open_journal(
    options: &RunOptions<'_>,
    settings: &str,
) -> Result<(Option<Journal>, Option<Known>), AuditError> {
    Ok(match (options.journal, options.resume) {
        (None, _) => (None, None),
        (Some(path), false) => (Some(Journal::create(path, options.build, settings)?), None),
        (Some(path), true) => {
            let (journal, known) = Journal::resume(path, options.build, settings)?;
            (Some(journal), known)
        }
    })
}

struct Task {
    run: Run,
    /// What has to be known of the victim when it ends.
    demand: Demand,
    /// The runs that get its outcome, itself among them, and their keys in the journal.
    answers: Vec<(Run, u64)>,
}

/// One task for those of `tasks` that have equal outcomes: some attackers of the catalogue differ in what the simulator does not
/// model, such as the number of protection domains.
fn joined(plan: &Plan, testbed: &dyn Testbed, tasks: Vec<Task>) -> Vec<Task> {
    let mut places: BTreeMap<u64, usize> = BTreeMap::new();
    let mut joined: Vec<Task> = Vec::new();
    for task in tasks {
        let Some(key) = plan.essence_key(testbed, &task.run, &task.demand) else {
            joined.push(task);
            continue;
        };
        match places.get(&key) {
            Some(&place) => joined[place].answers.extend(task.answers),
            None => {
                places.insert(key, joined.len());
                joined.push(task);
            }
        }
    }
    joined
}

/// Takes what the journal has of `runs` into `outcomes`; the rest.
fn undone(
    plan: &Plan,
    environment: u64,
    runs: &[Run],
    known: &Known,
    outcomes: &mut BTreeMap<Run, Outcome>,
) -> Vec<Task> {
    let mut undone = Vec::new();
    for &run in runs {
        let demand = demand(plan, outcomes, &run);
        let key = plan.run_key(environment, &run, &demand);
        match known.outcomes.get(&key) {
            // A run can be the first seed here without having been it when the journal was written.
            Some(outcome) if outcome.detail.is_some() || run.seed != 0 => {
                let mut outcome = outcome.clone();
                outcome.detail = outcome.detail.filter(|_| run.seed == 0);
                outcomes.insert(run, outcome);
            }
            _ => undone.push(Task {
                run,
                demand,
                answers: vec![(run, key)],
            }),
        }
    }
    undone
}

/// What workers share.
struct Work<'a> {
    plan: &'a Plan,
    testbed: &'a dyn Testbed,
    undone: &'a [Task],
    next: AtomicUsize,
    cancel: &'a AtomicBool,
    broken: AtomicBool,
}

type Finished = (usize, Result<Outcome, AuditError>);

impl Work<'_> {
    /// Does the undone runs with `jobs` workers and passes each outcome to `keep` on the calling thread. Of
    /// several failures the one of the lowest run is returned.
    fn spread(
        &self,
        jobs: usize,
        mut keep: impl FnMut(&Task, Outcome) -> Result<(), AuditError>,
    ) -> Result<(), AuditError> {
        if self.undone.is_empty() {
            return Ok(());
        }
        let jobs = jobs.clamp(1, self.undone.len());
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(jobs)
            .thread_name(|index| format!("audit-{index}"))
            .build()
            .map_err(|error| AuditError::Workers {
                jobs,
                reason: error.to_string(),
            })?;
        let (sender, receiver): (SyncSender<Finished>, Receiver<Finished>) =
            sync_channel(jobs * QUEUE_PER_WORKER);
        let mut failure: Option<(usize, AuditError)> = None;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pool.broadcast(|_| self.worker(&sender.clone()));
                drop(sender);
            });
            for (index, finished) in receiver {
                let task = &self.undone[index];
                let kept = finished.and_then(|outcome| keep(task, outcome));
                if let Err(error) = kept {
                    self.broken.store(true, Ordering::Relaxed);
                    if failure.as_ref().is_none_or(|(first, _)| index < *first) {
                        failure = Some((index, error));
                    }
                }
            }
        });
        failure.map_or(Ok(()), |(_, error)| Err(error))
    }

    fn worker(&self, sender: &SyncSender<Finished>) {
        while !self.cancel.load(Ordering::Relaxed) && !self.broken.load(Ordering::Relaxed) {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = self.undone.get(index) else {
                return;
            };
            let done = self.one(task);
            // Stopped by the user within a run: as if it had not begun.
            let stopped = matches!(done, Err(AuditError::Testbed(TestbedError::Interrupted)));
            if stopped || sender.send((index, done)).is_err() {
                return;
            }
        }
    }

    fn one(&self, task: &Task) -> Result<Outcome, AuditError> {
        let run = &task.run;
        let scenario = self.plan.scenario(run);
        let profile = &self.plan.profile;
        let result = match self.plan.cap {
            Some(cap) => {
                let mut demands = vec![Demand::Nothing; scenario.tenants.len()];
                demands[0].clone_from(&task.demand);
                settled::run(
                    self.testbed,
                    &scenario,
                    profile,
                    (self.plan.least_times, cap),
                    &demands,
                )?
            }
            None => self.testbed.run(&scenario, profile)?,
        };
        let outcome = Outcome::of(
            &result,
            &scenario,
            profile,
            self.plan.victims[run.victim].info.kind == VictimKind::Application,
            run.seed == 0,
        );
        outcome.ok_or(AuditError::NoTenant {
            scenario: scenario.name,
        })
    }
}

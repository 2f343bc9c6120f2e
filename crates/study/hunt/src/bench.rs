//! The bench: experiments in batches, on several cores, counted against a budget and written to a journal.
//!
//! An experiment is a point and the number of its repeat; its random numbers follow from both and from the seed of the
//! hunt. Its result is therefore looked up before it is measured: a journal from an interrupted hunt is a table of
//! answers, and a hunt that is started again runs the same experiments in the same order until it reaches a new one. An
//! experiment costs once, from the journal or from a run. Batches are formed by the caller, so the number of workers
//! can not show in any result. Limits: a target that measures differently each time is deterministic only as far as the
//! journal goes.

use crate::HuntError;
use crate::experiment::{Measured, Target, modelled_s};
use crate::monitor::{Judgement, Symptom};
use crate::rule::Rule;
use crate::space::Point;
use crate::sprt::{Decision, REPEATS_MIN, Sequential};
use crate::state::Journal;
use isolane_common_quantities::rng::Stream;
use isolane_study_results::settling::SettlingSummary;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

/// How much a hunt may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// Experiments.
    Experiments(u64),
    /// Seconds that they would take on real hardware ([`modelled_s`]).
    ModelledSeconds(f64),
}

/// What a hunt used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spent {
    /// Experiments.
    pub experiments: u64,
    /// Seconds on real hardware.
    pub modelled_s: f64,
}

impl Budget {
    /// Part of it that `spent` is, 0 to 1.
    pub fn part(self, spent: Spent) -> f64 {
        let part = match self {
            Self::Experiments(most) => spent.experiments as f64 / most.max(1) as f64,
            Self::ModelledSeconds(most) => spent.modelled_s / most.max(1e-9),
        };
        part.min(1.0)
    }

    /// Experiments that are left after `spent`, where they go on to take as long as so far.
    pub fn left(self, spent: Spent) -> f64 {
        match self {
            Self::Experiments(most) => most.saturating_sub(spent.experiments) as f64,
            Self::ModelledSeconds(most) => {
                let each = spent.modelled_s / spent.experiments.max(1) as f64;
                (most - spent.modelled_s).max(0.0) / each.max(1e-9)
            }
        }
    }

    fn is_used(self, spent: Spent) -> bool {
        match self {
            Self::Experiments(most) => spent.experiments >= most,
            Self::ModelledSeconds(most) => spent.modelled_s >= most,
        }
    }
}

/// Why no answer came.
#[derive(Debug)]
pub enum Stop {
    /// The budget is used up.
    Budget,
    /// The user stopped the hunt.
    Cancelled,
    /// Something broke.
    Failed(HuntError),
}

impl From<HuntError> for Stop {
    fn from(error: HuntError) -> Self {
        Self::Failed(error)
    }
}

/// One experiment: a point and the number of its repeat.
pub type Experiment = (Point, u32);

/// See the module.
pub struct Bench<'a> {
    /// Where experiments run.
    pub target: &'a dyn Target,
    /// What results are held against.
    pub rule: Rule,
    seed: u64,
    parallel: usize,
    budget: Budget,
    cancel: &'a AtomicBool,
    journal: Option<Journal>,
    known: BTreeMap<Experiment, Measured>,
    charged: BTreeSet<Experiment>,
    spent: Spent,
    on_progress: Box<dyn FnMut(Spent) + 'a>,
}

/// How a bench works.
pub struct BenchOptions<'a> {
    /// Seed of the hunt.
    pub seed: u64,
    /// Experiments at once, at least 1.
    pub parallel: usize,
    /// How much may be used.
    pub budget: Budget,
    /// Set it to stop.
    pub cancel: &'a AtomicBool,
    /// Called after every batch.
    pub on_progress: Box<dyn FnMut(Spent) + 'a>,
}

impl<'a> Bench<'a> {
    /// A bench on `target` with `rule`, that writes to `journal` and knows the results in `known`.
    pub fn new(
        target: &'a dyn Target,
        rule: Rule,
        journal: Option<Journal>,
        known: BTreeMap<Experiment, Measured>,
        options: BenchOptions<'a>,
    ) -> Self {
        Self {
            target,
            rule,
            seed: options.seed,
            parallel: options.parallel.max(1),
            budget: options.budget,
            cancel: options.cancel,
            journal,
            known,
            charged: BTreeSet::new(),
            spent: Spent::default(),
            on_progress: options.on_progress,
        }
    }

    /// What has been used.
    pub fn spent(&self) -> Spent {
        self.spent
    }

    /// How long the experiments took to be steady; none where that is not known.
    pub fn settling(&self) -> Option<SettlingSummary> {
        let each = self
            .charged
            .iter()
            .filter_map(|one| self.known[one].settling());
        each.reduce(SettlingSummary::and)
    }

    /// Part of the budget that is used, 0 to 1.
    pub fn part(&self) -> f64 {
        self.budget.part(self.spent)
    }

    /// Experiments that the budget leaves, about.
    pub fn left(&self) -> f64 {
        self.budget.left(self.spent)
    }

    /// The random seed of repeat `repeat`: any two points share it, so that they meet the same luck.
    pub fn run_seed(&self, repeat: u32) -> u64 {
        // 31 bits: short in a file, and every reader of a scenario takes it.
        Stream::indexed(self.seed, "hunt/run", u64::from(repeat)).next_u64() >> 33
    }

    /// The results of `batch`, in its order. Fails if the budget was used up before the batch, the user stopped, or a
    /// run failed.
    pub fn measure(&mut self, batch: &[Experiment]) -> Result<Vec<Measured>, Stop> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(Stop::Cancelled);
        }
        if self.budget.is_used(self.spent) {
            return Err(Stop::Budget);
        }
        let mut unknown: Vec<&Experiment> = Vec::new();
        for experiment in batch {
            if !self.known.contains_key(experiment) && !unknown.contains(&experiment) {
                unknown.push(experiment);
            }
        }
        self.run(&unknown)?;
        for experiment in batch {
            if self.charged.insert(experiment.clone()) {
                self.spent.experiments += 1;
                self.spent.modelled_s += modelled_s(&experiment.0);
            }
        }
        (self.on_progress)(self.spent);
        Ok(batch
            .iter()
            .map(|experiment| self.known[experiment].clone())
            .collect())
    }

    /// Runs `experiments` and keeps their results, also those that finish after a failure of another.
    fn run(&mut self, experiments: &[&Experiment]) -> Result<(), Stop> {
        let next = AtomicUsize::new(0);
        let broken = AtomicBool::new(false);
        let (target, cancel) = (self.target, self.cancel);
        let seeds: Vec<u64> = experiments.iter().map(|e| self.run_seed(e.1)).collect();
        let (sender, receiver) = mpsc::channel();
        let worker = |sender: mpsc::Sender<(usize, Result<Measured, HuntError>)>| {
            while !cancel.load(Ordering::Relaxed) && !broken.load(Ordering::Relaxed) {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some((point, _)) = experiments.get(index) else {
                    return;
                };
                let result = target.measure(point, seeds[index]);
                if sender.send((index, result)).is_err() {
                    return;
                }
            }
        };
        let mut failure: Option<(usize, HuntError)> = None;
        let mut finished = 0;
        std::thread::scope(|scope| {
            for _ in 0..self.parallel.min(experiments.len()) {
                let sender = sender.clone();
                scope.spawn(|| worker(sender));
            }
            drop(sender);
            for (index, result) in receiver {
                let kept = result.and_then(|measured| {
                    if let Some(journal) = &mut self.journal {
                        journal.record(experiments[index], &measured)?;
                    }
                    self.known.insert(experiments[index].clone(), measured);
                    Ok(())
                });
                finished += 1;
                if let Err(error) = kept {
                    broken.store(true, Ordering::Relaxed);
                    if failure.as_ref().is_none_or(|(first, _)| index < *first) {
                        failure = Some((index, error));
                    }
                }
            }
        });
        match failure {
            // Stopped by the user within a run: as if it had not begun.
            Some((_, HuntError::Testbed(isolane_study_testbed::TestbedError::Interrupted))) => {
                Err(Stop::Cancelled)
            }
            Some((_, error)) => Err(Stop::Failed(error)),
            None if finished < experiments.len() => Err(Stop::Cancelled),
            None => Ok(()),
        }
    }

    /// The result of an experiment with `point` that was done already, that of the lowest repeat.
    pub fn recall(&self, point: &Point) -> Option<&Measured> {
        let from = (point.clone(), 0);
        let to = (point.clone(), u32::MAX);
        self.known
            .range(from..=to)
            .next()
            .map(|(_, measured)| measured)
    }

    /// Whether the same resource ran out at `one` and at `other`, which were run. Only runs beside a victim say which one did.
    pub fn same_resource(&self, one: &Point, other: &Point) -> bool {
        let resource = |point| {
            let beside = self.recall(point)?.beside.as_ref()?;
            // The resource is what follows the words about a largest change.
            beside.exhausted.as_deref()?.rsplit(": ").next()
        };
        resource(one) == resource(other)
    }

    /// Judges one experiment.
    pub fn judge(&self, point: &Point, measured: &Measured) -> Judgement {
        self.rule.judge(point, measured)
    }

    /// Tests sequentially whether each of `points` shows `symptom`; repeats are numbered from `first`. A repeat that did not settle is
    /// no outcome. Fails as [`Bench::measure`] does.
    pub fn confirm(
        &mut self,
        points: &[Point],
        symptom: Symptom,
        first: u32,
    ) -> Result<Vec<Decision>, Stop> {
        let mut tests = vec![Sequential::default(); points.len()];
        loop {
            let mut batch: Vec<(usize, Experiment)> = Vec::new();
            for (index, test) in tests.iter().enumerate() {
                if test.decision().is_some() {
                    continue;
                }
                let repeats = if test.tried() == 0 { REPEATS_MIN } else { 1 };
                for repeat in 0..repeats {
                    batch.push((
                        index,
                        (points[index].clone(), first + test.tried() + repeat),
                    ));
                }
            }
            if batch.is_empty() {
                let decisions = tests.iter().map(Sequential::decision);
                return Ok(decisions
                    .map(|decision| decision.expect("the batch is empty"))
                    .collect());
            }
            let experiments: Vec<Experiment> = batch.iter().map(|(_, e)| e.clone()).collect();
            let results = self.measure(&experiments)?;
            for ((index, _), measured) in batch.iter().zip(&results) {
                let judgement = self.judge(&points[*index], measured);
                match judgement.unsettled {
                    true => tests[*index].skip(),
                    false => tests[*index].add(judgement.symptom == Some(symptom)),
                }
            }
        }
    }
}

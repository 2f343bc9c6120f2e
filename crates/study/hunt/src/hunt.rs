//! The hunt as a whole: rank the counters, search, reduce what is found, go on outside of it.
//!
//! Every decision follows from the seed and from results of experiments, in a fixed order: batches are proposed by the
//! searcher, judged in their order, and each anomaly is reduced before the next is looked at. The same target, space,
//! settings and seed therefore give the same result for any number of workers, and a larger budget only adds to it
//! until conditions are tested. While it searches, what is found is reduced roughly; the conditions are tested when the
//! budget leaves just enough for all of them, but not before half of it is used: who searches longer finds more, and
//! what was found can still be tested by a hunt that goes on. Limits: an anomaly whose reduction the budget cut short
//! is reported without a minimal feature set, one that was not tested without checks; a larger budget moves the tests.
//! Source: collie 3.5, algorithm 1; deferring is ours.

mod reduction;

use crate::HuntError;
use crate::bench::{Bench, Spent, Stop};
use crate::bounds::Bounds;
use crate::counters::{self, Counter, RANKING_POINTS};
use crate::experiment::Measured;
use crate::mfs::FeatureSet;
use crate::monitor::{Judgement, Symptom};
use crate::region::Region;
use crate::rule::Rule;
use crate::search::{self, Ground, Observed, Searcher, Stages};
use crate::space::{Point, Space};
use crate::state::HUNT_VERSION;
use crate::victim::{Harm, VictimSummary};
use isolane_common_quantities::rng::Stream;
use isolane_study_results::settling::SettlingSummary;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Experiments that a test of rough conditions takes, about.
const TEST_EXPERIMENTS: f64 = 100.0;
/// Part of the budget that is used before conditions are tested.
const SEARCHED_FIRST: f64 = 0.5;
/// Proposed points in a row without a new experiment after which a small space counts as searched through.
const REPEATED_MAX: usize = 64;

/// How to search.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Every random choice follows from it.
    pub seed: u64,
    /// One of [`search::NAMES`].
    pub searcher: String,
    /// Counters to follow.
    pub counters: Vec<Counter>,
    /// Whether what is found is reduced to its conditions and left out from then on. Without it a hunt is the plain search
    /// that the paper compares with.
    pub reduces: bool,
    /// The stages of `factors`.
    pub stages: Stages,
    /// Whether the conditions are tested after the search, with repeats and error rates.
    pub tests: bool,
}

/// Why a hunt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// The budget was used.
    Budget,
    /// The user stopped it.
    Interrupted,
    /// No new point outside of the known anomalies was left.
    Exhausted,
    /// It goes on, or was killed: this is what it had when it last found something.
    Unfinished,
}

/// One anomaly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Anomaly {
    /// From 1, in the order of discovery.
    pub number: u32,
    /// What is seen.
    pub symptom: Symptom,
    /// The workload that showed it first.
    pub point: Point,
    /// The figures of that experiment.
    pub judgement: Judgement,
    /// The counters of that experiment.
    pub counters: BTreeMap<String, f64>,
    /// What the hunt had used when it was found.
    pub found_at: Spent,
    /// What it had used when it was reduced.
    pub reduced_at: Spent,
    /// The minimal feature set; absent where the budget ended before it.
    pub set: Option<FeatureSet>,
    /// How often the search ran into it.
    pub times: u32,
    /// What the attack does to the victim, where there is one: by the simplest attack once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub harm: Option<Harm>,
}

/// One experiment of the search, for plots.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TracePoint {
    /// What the hunt had used after the batch of this experiment.
    pub spent: Spent,
    /// The counters that the hunt follows, in their order.
    pub counters: Vec<f64>,
    /// The anomaly that it showed.
    pub symptom: Option<Symptom>,
}

impl HuntResult {
    /// The anomalies as they are reported: those that hurt a victim most first, without a victim as they were found.
    pub fn ranked(&self) -> Vec<&Anomaly> {
        let mut ranked: Vec<&Anomaly> = self.anomalies.iter().collect();
        let kept = |one: &Anomaly| {
            one.harm
                .as_ref()
                .map_or(f64::INFINITY, |harm| harm.retained)
        };
        ranked.sort_by(|left, right| kept(left).total_cmp(&kept(right)));
        ranked
    }
}

/// What a hunt found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HuntResult {
    /// [`HUNT_VERSION`].
    pub version: u32,
    /// The target.
    pub target: String,
    /// The searcher.
    pub searcher: String,
    /// The seed.
    pub seed: u64,
    /// Why it ended.
    pub ended: Ended,
    /// What it used.
    pub spent: Spent,
    /// How long the experiments took to be steady; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settling: Option<SettlingSummary>,
    /// Counters in the order in which they were followed.
    pub counters: Vec<String>,
    /// Mean of every counter over the random points at the start.
    pub usual_counters: BTreeMap<String, f64>,
    /// What throughput was held against; absent where a victim counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bounds: Option<Bounds>,
    /// The victim and what it is owed, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub victim: Option<VictimSummary>,
    /// What was found.
    pub anomalies: Vec<Anomaly>,
    /// Anomalous experiments that showed no anomaly when they were repeated.
    pub not_repeated: u32,
    /// Experiments of the search on real devices that did not settle, so that they do not show whether there is an anomaly.
    #[serde(default)]
    pub unsettled: u32,
    /// Every experiment of the search itself.
    pub trace: Vec<TracePoint>,
}

/// Hunts on `bench` in `space`, until the budget ends. Fails for a run that failed, or an unknown searcher.
pub fn hunt(
    bench: &mut Bench<'_>,
    space: &Space,
    settings: &Settings,
) -> Result<HuntResult, HuntError> {
    hunt_watched(bench, space, settings, &mut |_| {})
}

/// As [`hunt`]; `on_found` is called with the known anomalies after each change. Fails as [`hunt`] does.
pub fn hunt_watched(
    bench: &mut Bench<'_>,
    space: &Space,
    settings: &Settings,
    on_found: &mut dyn FnMut(&HuntResult),
) -> Result<HuntResult, HuntError> {
    let Some(mut searcher) = search::by_name(&settings.searcher, settings.seed, settings.stages)
    else {
        let name = settings.searcher.clone();
        return Err(HuntError::NoSearcher { name });
    };
    let mut run = Run {
        space,
        seed: settings.seed,
        reduces: settings.reduces,
        stages: Stages {
            reverts: settings.stages.reverts && settings.searcher == "factors",
            ..settings.stages
        },
        result: HuntResult {
            version: HUNT_VERSION,
            target: bench.target.name().to_owned(),
            searcher: settings.searcher.clone(),
            seed: settings.seed,
            ended: Ended::Unfinished,
            spent: Spent::default(),
            settling: None,
            counters: Vec::new(),
            usual_counters: BTreeMap::new(),
            bounds: bench.rule.bounds().cloned(),
            victim: match &bench.rule {
                Rule::Victim(owed) => Some(owed.summary()),
                Rule::Device(..) => None,
            },
            anomalies: Vec::new(),
            not_repeated: 0,
            unsettled: 0,
            trace: Vec::new(),
        },
        counters: settings.counters.clone(),
        tests: settings.tests,
        regions: Vec::new(),
        witnesses: Vec::new(),
        reductions: 0,
        on_found,
    };
    run.result.ended = match run.all(bench, searcher.as_mut()) {
        Ok(()) => Ended::Exhausted,
        Err(Stop::Budget) => Ended::Budget,
        Err(Stop::Cancelled) => Ended::Interrupted,
        Err(Stop::Failed(error)) => return Err(error),
    };
    run.result.spent = bench.spent();
    run.result.settling = bench.settling();
    Ok(run.result)
}

/// A hunt under way.
struct Run<'a> {
    space: &'a Space,
    seed: u64,
    reduces: bool,
    stages: Stages,
    result: HuntResult,
    counters: Vec<Counter>,
    tests: bool,
    /// Of all reduced anomalies.
    regions: Vec<Region>,
    witnesses: Vec<Point>,
    /// Anomalous points looked at, each with a random stream of its own.
    reductions: u64,
    on_found: &'a mut dyn FnMut(&HuntResult),
}

impl Run<'_> {
    fn all(&mut self, bench: &mut Bench<'_>, searcher: &mut dyn Searcher) -> Result<(), Stop> {
        self.rank(bench)?;
        let mut repeated = 0;
        loop {
            let test = self.untested().len() as f64 * TEST_EXPERIMENTS;
            if self.tests && bench.part() >= SEARCHED_FIRST && bench.left() <= test {
                self.test(bench)?;
            }
            let batch = searcher.propose(&self.ground());
            if batch.is_empty() || repeated >= REPEATED_MAX {
                if !self.tests || self.untested().is_empty() {
                    return Ok(());
                }
                // A tested condition may leave more workloads outside the anomaly.
                self.test(bench)?;
                repeated = 0;
                continue;
            }
            let (before, proposed) = (bench.spent().experiments, batch.len());
            let observed = self.observe(bench, batch)?;
            searcher.observe(&self.ground(), &observed);
            let is_new = bench.spent().experiments > before;
            repeated = if is_new { 0 } else { repeated + proposed };
        }
    }

    fn ground(&self) -> Ground<'_> {
        Ground {
            space: self.space,
            known: &self.regions,
            counters: &self.counters,
            witnesses: &self.witnesses,
        }
    }

    /// Places of anomalies whose conditions are rough.
    fn untested(&self) -> Vec<usize> {
        let all = self.result.anomalies.iter().enumerate();
        let rough = |one: &Anomaly| one.set.as_ref().is_some_and(|set| set.checks.is_none());
        all.filter(|(_, one)| rough(one))
            .map(|(index, _)| index)
            .collect()
    }

    /// Tests the conditions of anomalies that were reduced roughly; what turns out to be another one again leaves.
    fn test(&mut self, bench: &mut Bench<'_>) -> Result<(), Stop> {
        while let Some(&index) = self.untested().first() {
            let rough = self.result.anomalies.remove(index);
            let witness = rough.set.as_ref().map(|set| set.witness.clone());
            let from = witness.unwrap_or_else(|| rough.point.clone());
            let (kept, ended) = match self.tested(bench, rough, &from) {
                Ok(kept) => (kept, Ok(())),
                Err(cut) => (Some(cut.0), Err(cut.1)),
            };
            if let Some(kept) = kept {
                self.result.anomalies.insert(index, kept);
            }
            self.remember(bench);
            ended?;
        }
        Ok(())
    }

    /// Measures the random points that order the counters; an anomaly among them counts like any other.
    fn rank(&mut self, bench: &mut Bench<'_>) -> Result<(), Stop> {
        let mut stream = Stream::named(self.seed, "hunt/rank");
        let draw = |_| self.space.draw(&mut stream);
        let points: Result<Vec<Point>, String> = (0..RANKING_POINTS).map(draw).collect();
        let points = points.map_err(|rule| HuntError::NoPoint { rule })?;
        let batch: Vec<(Point, u32)> = points.iter().map(|point| (point.clone(), 0)).collect();
        let measured = bench.measure(&batch)?;
        self.counters = counters::rank(std::mem::take(&mut self.counters), &measured);
        self.result.counters = self
            .counters
            .iter()
            .map(|counter| counter.name.clone())
            .collect();
        self.result.usual_counters = means(&measured);
        self.judge(bench, points, measured).map(drop)
    }

    fn observe(
        &mut self,
        bench: &mut Bench<'_>,
        points: Vec<Point>,
    ) -> Result<Vec<Observed>, Stop> {
        let batch: Vec<(Point, u32)> = points.iter().map(|point| (point.clone(), 0)).collect();
        let results = bench.measure(&batch)?;
        self.judge(bench, points, results)
    }

    /// Judges the `results` of `points`, and reduces what is anomalous.
    fn judge(
        &mut self,
        bench: &mut Bench<'_>,
        points: Vec<Point>,
        results: Vec<Measured>,
    ) -> Result<Vec<Observed>, Stop> {
        let spent = bench.spent();
        let mut observed = Vec::new();
        let mut found: Vec<(Point, Measured, Judgement, Symptom)> = Vec::new();
        for (point, measured) in points.into_iter().zip(results) {
            let judgement = bench.judge(&point, &measured);
            self.result.unsettled += u32::from(judgement.unsettled);
            let counters = self
                .counters
                .iter()
                .map(|counter| measured.counter(&counter.name));
            self.result.trace.push(TracePoint {
                spent,
                counters: counters.collect(),
                symptom: judgement.symptom,
            });
            if let Some(symptom) = judgement.symptom {
                found.push((point.clone(), measured.clone(), judgement, symptom));
            }
            observed.push(Observed {
                point,
                measured,
                judgement,
                anomalous: judgement.symptom.is_some(),
            });
        }
        let mut ended = Ok(());
        for (point, measured, judgement, symptom) in found {
            let anomaly = Anomaly {
                number: 0,
                symptom,
                point,
                judgement,
                counters: measured.counters,
                found_at: spent,
                reduced_at: spent,
                set: None,
                times: 1,
                harm: None,
            };
            // Triage holds it against the known ones itself, since their regions may be too broad.
            let triaged = self.reduces && self.stages.reverts && self.stages.triage;
            if !triaged && self.is_known(&anomaly) {
                continue;
            }
            match ended {
                Ok(()) => ended = self.discover(bench, anomaly),
                // Found is found, also where nothing is left to reduce it with.
                Err(Stop::Budget) => {
                    self.result.anomalies.push(anomaly);
                    self.remember(bench);
                }
                Err(_) => break,
            }
        }
        ended.map(|()| observed)
    }

    /// Numbers the anomalies, passes their regions to the search, and reports the known anomalies to the observer.
    fn remember(&mut self, bench: &Bench<'_>) {
        for (number, anomaly) in (1..).zip(&mut self.result.anomalies) {
            anomaly.number = number;
        }
        let sets = || {
            self.result
                .anomalies
                .iter()
                .filter_map(|one| one.set.as_ref())
        };
        self.regions = sets().map(|set| set.region.clone()).collect();
        self.witnesses = sets().map(|set| set.witness.clone()).collect();
        self.result.spent = bench.spent();
        self.result.settling = bench.settling();
        (self.on_found)(&self.result);
    }
}

fn means(samples: &[Measured]) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    for (name, value) in samples.iter().flat_map(|sample| &sample.counters) {
        *sums.entry(name.clone()).or_default() += value / samples.len() as f64;
    }
    sums
}

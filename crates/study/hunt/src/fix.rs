//! What ends one anomaly: changes of the device or its host, and changes of the workload, each shown by experiments.
//!
//! Problem: conditions say when an anomaly shows; an operator wants to know what to set or buy, a developer what to change. Method:
//! the simplest known workload of the anomaly runs again without each mechanism of the device ([`crate::knockout`]), and with
//! one feature changed at a time: a choice to each other value, a number to a few values outside of its condition, the
//! nearest first. A change ends the anomaly where the workload shows no symptom with two seeds. Of each feature the first
//! value that does so is kept; changes that cost a developer least come first ([`Effort`]). Limits: simulated devices only;
//! single changes only. Source: ours.

use crate::HuntError;
use crate::advise::Effort;
use crate::bounds::Bounds;
use crate::experiment::{Lab, Target};
use crate::hunt::Anomaly;
use crate::knockout::{Knockout, Mechanism};
use crate::monitor::{Judgement, Symptom, judge};
use crate::search::mild;
use crate::space::{Allowed, Feature, Point, Space};
use isolane_rdma_scenario::profile::Profile;
use isolane_study_testbed::Testbed;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Raised when [`Fix`] changes its meaning.
pub const FIX_VERSION: u32 = 1;
/// Values of one number that are tried.
const VALUES_MAX: usize = 4;

/// A change of the device or its host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Remedy {
    /// The mechanism that it removes.
    pub mechanism: String,
    /// What to change, in words.
    pub change: String,
    /// What the workload does then.
    pub after: Judgement,
}

/// A change of the workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// What changes.
    pub feature: Feature,
    /// From this value.
    pub from: String,
    /// To this one.
    pub to: String,
    /// What the change costs.
    pub effort: Effort,
    /// What the workload does then.
    pub after: Judgement,
}

/// What ends one anomaly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fix {
    /// [`FIX_VERSION`].
    pub version: u32,
    /// The device.
    pub target: String,
    /// The number of the anomaly.
    pub anomaly: u32,
    /// What is seen.
    pub symptom: Symptom,
    /// The workload, in words.
    pub workload: String,
    /// What the workload does now.
    pub before: Judgement,
    /// Changes of the device or host that end the symptom.
    pub device: Vec<Remedy>,
    /// Changes of the workload that end the symptom, the cheapest first.
    pub changes: Vec<Change>,
    /// Experiments.
    pub experiments: u32,
}

/// What is changed, and on what.
pub struct Subject<'a> {
    /// Where experiments run.
    pub testbed: &'a dyn Testbed,
    /// The device.
    pub profile: &'a Profile,
    /// What its throughput is held against.
    pub bounds: &'a Bounds,
    /// Two experiments of a change have this seed and the next.
    pub seed: u64,
}

/// Experiments of one subject, and which part of the work is done.
struct Work<'a> {
    subject: &'a Subject<'a>,
    lab: Lab<'a>,
    bounds: &'a Bounds,
    experiments: u32,
    done: u64,
    all: u64,
    /// Called after each step with the steps that are done and with all steps.
    watch: &'a dyn Fn(u64, u64),
}

impl Subject<'_> {
    /// What ends `anomaly`. Calls `watch` with the steps that are done and with all steps: the workload as it is, each value
    /// that may be tried, and each mechanism. Fails if a run fails, or the anomaly does not show.
    pub fn fix(&self, anomaly: &Anomaly, watch: &dyn Fn(u64, u64)) -> Result<Fix, HuntError> {
        let lab = Lab::simulated(self.testbed, self.profile);
        let point = anomaly
            .set
            .as_ref()
            .map_or(&anomaly.point, |set| &set.witness);
        let space = match point.second {
            None => Space::of(self.profile),
            Some(_) => Space::of(self.profile).with_two_kinds(),
        };
        let features = features(anomaly, point, &space);
        let tried = features
            .into_iter()
            .map(|feature| (feature, values(anomaly, point, &space, feature)));
        let tried: Vec<(Feature, Vec<u64>)> = tried.collect();
        // A hunt of a part of the space measured only its services.
        let bounds = &self.bounds.completed(&lab, self.profile, self.seed)?;
        let knockout = Knockout::of(self.testbed, self.profile, bounds);
        let removed: Vec<Mechanism> = knockout.concerning(point).collect();
        let values = tried.iter().map(|(_, values)| values.len() as u64);
        let mut work = Work {
            subject: self,
            lab,
            bounds,
            experiments: 0,
            done: 0,
            all: 1 + values.sum::<u64>() + removed.len() as u64,
            watch,
        };
        let before = work.run(point, self.seed)?;
        if before.symptom != Some(anomaly.symptom) {
            return Err(HuntError::NotShown {
                number: anomaly.number,
                target: work.lab.name,
                symptom: anomaly.symptom.name(),
            });
        }
        work.are_done(1);
        let changes = work.changes(point, &space, &tried)?;
        let device = work.remedies(point, &knockout, &removed)?;
        Ok(Fix {
            version: FIX_VERSION,
            target: work.lab.name,
            anomaly: anomaly.number,
            symptom: anomaly.symptom,
            workload: point.text(),
            before,
            device,
            changes,
            experiments: work.experiments,
        })
    }
}

impl Work<'_> {
    fn run(&mut self, point: &Point, seed: u64) -> Result<Judgement, HuntError> {
        self.experiments += 1;
        Ok(judge(point, &self.lab.measure(point, seed)?, self.bounds))
    }

    /// So many more steps are done.
    fn are_done(&mut self, steps: u64) {
        self.done += steps;
        (self.watch)(self.done, self.all);
    }

    /// The changes of the workload `point` that end its symptom, among the values in `tried`.
    fn changes(
        &mut self,
        point: &Point,
        space: &Space,
        tried: &[(Feature, Vec<u64>)],
    ) -> Result<Vec<Change>, HuntError> {
        let seed = self.subject.seed;
        let mut changes = Vec::new();
        for (feature, values) in tried {
            let mut left = values.len() as u64;
            for &value in values {
                let Some(changed) = space.with(point, *feature, value) else {
                    continue;
                };
                let after = self.run(&changed, seed)?;
                if after.symptom.is_some() || self.run(&changed, seed + 1)?.symptom.is_some() {
                    left -= 1;
                    self.are_done(1);
                    continue;
                }
                changes.push(Change {
                    feature: *feature,
                    from: feature.shown(feature.of(point)),
                    to: feature.shown(value),
                    effort: Effort::of(*feature),
                    after,
                });
                break;
            }
            self.are_done(left);
        }
        changes.sort_by_key(|change| (change.effort, change.feature));
        Ok(changes)
    }

    /// The changes of the device that end the symptom of `point`, by removal of one of `mechanisms` each.
    fn remedies(
        &mut self,
        point: &Point,
        knockout: &Knockout<'_>,
        mechanisms: &[Mechanism],
    ) -> Result<Vec<Remedy>, HuntError> {
        let seed = self.subject.seed;
        let mut device = Vec::new();
        for &mechanism in mechanisms {
            self.experiments += 1;
            let after = knockout.without(mechanism, point, seed)?;
            if after.symptom.is_none() {
                self.experiments += 1;
                let again = knockout.without(mechanism, point, seed + 1)?;
                if again.symptom.is_none() {
                    device.push(Remedy {
                        mechanism: mechanism.name.to_owned(),
                        change: mechanism.remedy.to_owned(),
                        after,
                    });
                }
            }
            self.are_done(1);
        }
        Ok(device)
    }
}

/// The features that may end `anomaly`: those with a condition; where none are known, those that differ from the mild workload.
fn features(anomaly: &Anomaly, point: &Point, space: &Space) -> Vec<Feature> {
    match (&anomaly.set, mild(space, [].iter(), point.service)) {
        (Some(set), _) => set.region.features.keys().copied().collect(),
        (None, Some(mild)) => Feature::ALL
            .into_iter()
            .filter(|f| f.is_active(point) && f.of(point) != f.of(&mild))
            .collect(),
        (None, None) => Feature::ALL.to_vec(),
    }
}

/// The values of `feature` outside of its condition, those nearest to that of `point` first.
fn values(anomaly: &Anomaly, point: &Point, space: &Space, feature: Feature) -> Vec<u64> {
    let own = feature.of(point);
    let set = anomaly.set.as_ref();
    let inside = set.and_then(|set| set.region.features.get(&feature));
    let mut values = space.allowed(feature).grid();
    values.retain(|value| *value != own && inside.is_none_or(|inside| !inside.has(*value)));
    if let Allowed::Range(..) = space.allowed(feature) {
        values.sort_by_key(|value| value.abs_diff(own));
        values.truncate(VALUES_MAX);
    }
    values
}

impl Fix {
    /// In words.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{}, anomaly {} ({}): {}\n{}\n",
            self.target,
            self.anomaly,
            self.symptom.name(),
            shown(&self.before),
            self.workload
        );
        text.push_str("\nchanges of the workload that end it\n");
        for change in &self.changes {
            text.push_str(&format!(
                "  {} = {} instead of {} ({}): {}\n",
                change.feature.name(),
                change.to,
                change.from,
                change.effort.name(),
                shown(&change.after)
            ));
        }
        if self.changes.is_empty() {
            text.push_str("  none of one feature\n");
        }
        text.push_str("\nchanges of the device or host that end it\n");
        for remedy in &self.device {
            text.push_str(&format!(
                "  {} [{}]: {}\n",
                remedy.change,
                remedy.mechanism,
                shown(&remedy.after)
            ));
        }
        if self.device.is_empty() {
            text.push_str("  none alone: several mechanisms of the model each suffice for it\n");
        }
        text
    }
}

/// The figures of `judged` in words.
fn shown(judged: &Judgement) -> String {
    let percent = |part: f64| part * 100.0;
    format!(
        "pauses {:.1} % of the time, reaches {:.0} % of the link, {:.0} % of the packet rate",
        percent(judged.pause_ratio),
        percent(judged.of_bits),
        percent(judged.of_packets)
    )
}

#[cfg(test)]
mod tests;

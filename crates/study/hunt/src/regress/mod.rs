//! Known reproducers as a suite: does each anomaly still show, on one device or on several states of it?
//!
//! Problem: a new firmware, driver or setting may bring an anomaly back. Method: a corpus of minimal workloads, from hunts or the
//! published triggers, runs on every state of the device with a few seeds; each state has bounds of its own. A reproducer
//! *shows* where every run shows its symptom, is *sound* where no run shows any, and is *unsteady* else. The first state is the
//! baseline: a reproducer that shows on a later state and not on the first is a regression. A suite records what it ran on
//! ([`Environment`]), so two suites of different days can be compared.
//!
//! * [`compare`] - two suites, and what changed between them;
//! * [`mod@bisect`] - the first of a list of versions on which a reproducer shows;
//! * [`canary`] - a suite every night, with a stated rate of false alarms;
//! * [`bundle`] - what a vendor needs to see the anomaly.
//!
//! Limits: a few runs do not find an anomaly that shows in one run of a hundred. Source: ours.

pub mod bisect;
pub mod bundle;
pub mod canary;
pub mod compare;
mod junit;
#[cfg(test)]
mod tests;

use crate::HuntError;
use crate::bounds::Bounds;
use crate::experiment::{Lab, Target};
use crate::hunt::HuntResult;
use crate::monitor::{Judgement, Symptom, judge};
use crate::space::{Allowed, Feature, Point, Space};
use crate::triggers::triggers;
use isolane_common_text_output::counted;
use isolane_rdma_scenario::profile::Profile;
use isolane_study_testbed::{Testbed, TestbedError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Raised when [`Regression`] changes its meaning.
pub const REGRESS_VERSION: u32 = 2;

/// The sections of a profile that describe the device and its host; the others are of policies.
const SECTIONS: [&str; 12] = [
    "link",
    "pcie",
    "wqe",
    "scheduler",
    "processing",
    "cache",
    "receive",
    "errors",
    "control",
    "congestion",
    "host",
    "microarchitecture",
];

/// What a suite ran on, by name: firmware, driver, kernel and settings of a real device; the parameters of a simulated one.
pub type Environment = BTreeMap<String, String>;

/// A workload that showed an anomaly.
#[derive(Clone, Debug, PartialEq)]
pub struct Reproducer {
    /// Its name.
    pub name: String,
    /// What was seen.
    pub symptom: Symptom,
    /// The workload.
    pub point: Point,
    /// The conditions that it meets, in words, where they are known.
    pub conditions: Option<String>,
}

/// The reproducers of a hunt in `space`, named after `source`.
pub fn of_hunt(result: &HuntResult, source: &str, space: &Space) -> Vec<Reproducer> {
    let all = result.anomalies.iter().map(|anomaly| {
        let set = anomaly.set.as_ref();
        Reproducer {
            name: format!("{source}#{}", anomaly.number),
            symptom: anomaly.symptom,
            point: set.map_or(&anomaly.point, |set| &set.witness).clone(),
            conditions: set.map(|set| set.region.text(space)),
        }
    });
    all.collect()
}

/// The published triggers of the device with this profile.
pub fn published(profile: &Profile) -> Vec<Reproducer> {
    let all = triggers()
        .into_iter()
        .filter(|one| one.profile == profile.name);
    let all = all.map(|one| Reproducer {
        name: format!("collie#{}", one.anomaly),
        symptom: one.symptom,
        point: one.point.point(),
        conditions: None,
    });
    all.collect()
}

/// The published triggers of the device with this profile, with each of their conditions broken alone. A device that behaves as
/// published is sound with them.
pub fn broken(profile: &Profile) -> Vec<Reproducer> {
    let mut all = Vec::new();
    for one in triggers() {
        if one.profile != profile.name {
            continue;
        }
        let broken = one.without.iter().map(|without| Reproducer {
            name: format!("collie#{}-without-{}", one.anomaly, without.condition),
            symptom: one.symptom,
            point: without.setting.over(&one.point).point(),
            conditions: None,
        });
        all.extend(broken);
    }
    all
}

/// What a reproducer did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every run shows the symptom.
    Shows,
    /// No run shows any symptom.
    Sound,
    /// Runs differ, or show another symptom.
    Unsteady,
    /// The device cannot run the workload.
    Impossible,
}

impl Verdict {
    /// Whether the device got worse since `before`: it shows the symptom, or it was sound and any run shows some symptom.
    pub fn is_worse_than(self, before: Self) -> bool {
        match self {
            Self::Shows => before != Self::Shows,
            Self::Unsteady => before == Self::Sound,
            Self::Sound | Self::Impossible => false,
        }
    }

    /// As tables write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shows => "shows",
            Self::Sound => "sound",
            Self::Unsteady => "unsteady",
            Self::Impossible => "impossible",
        }
    }
}

/// One reproducer on one state of the device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Case {
    /// The reproducer.
    pub name: String,
    /// Its symptom.
    pub symptom: Symptom,
    /// The workload, in words.
    pub workload: String,
    /// What it did.
    pub verdict: Verdict,
    /// Each run.
    pub runs: Vec<Judgement>,
    /// Mean of each counter that is not zero, over the runs.
    pub counters: BTreeMap<String, f64>,
    /// Why the device cannot run it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// All reproducers on one state of the device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Suite {
    /// The state's name: a profile, or the target.
    pub profile: String,
    /// What it ran on.
    pub environment: Environment,
    /// In the order of the corpus.
    pub cases: Vec<Case>,
}

/// All suites, the baseline first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Regression {
    /// [`REGRESS_VERSION`].
    pub version: u32,
    /// By state.
    pub suites: Vec<Suite>,
    /// Reproducers that show on a later state and not on the first.
    pub regressions: Vec<String>,
}

/// A device in one state: its firmware, driver and settings.
pub struct State<'a> {
    name: String,
    lab: Lab<'a>,
    environment: Environment,
    /// What throughput is held against, by the services of a workload.
    bounds: RefCell<BTreeMap<Vec<u64>, Bounds>>,
}

impl<'a> State<'a> {
    /// The state of `lab`, called `name`, with what it runs on.
    pub fn of(name: &str, lab: Lab<'a>, environment: Environment) -> Self {
        Self {
            name: name.to_owned(),
            lab,
            environment,
            bounds: RefCell::default(),
        }
    }

    /// A simulated device; its parameters are its environment.
    pub fn simulated(testbed: &'a dyn Testbed, name: &str, profile: &'a Profile) -> Self {
        Self::of(name, Lab::simulated(testbed, profile), parameters(profile))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it runs on.
    pub const fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Where it runs.
    pub const fn lab(&self) -> &Lab<'a> {
        &self.lab
    }

    /// Runs `corpus` once per seed.
    pub fn suite(
        &self,
        corpus: &[Reproducer],
        seeds: RangeInclusive<u64>,
    ) -> Result<Suite, HuntError> {
        let cases = corpus.iter().map(|one| self.case(one, seeds.clone()));
        Ok(Suite {
            profile: self.name.clone(),
            environment: self.environment.clone(),
            cases: cases.collect::<Result<_, HuntError>>()?,
        })
    }

    /// Runs `one` once per seed.
    pub fn case(&self, one: &Reproducer, seeds: RangeInclusive<u64>) -> Result<Case, HuntError> {
        // Published triggers have shorter receive queues than a search proposes, so only the device's own limits count.
        let space = Space::of(self.lab.profile).with_two_kinds();
        let mut reason = space.limits(&one.point).err();
        let mut runs = Vec::new();
        let mut counters: BTreeMap<String, f64> = BTreeMap::new();
        let count = seeds.clone().count() as f64;
        for seed in seeds {
            if reason.is_some() {
                break;
            }
            let measured = match self.lab.measure(&one.point, seed) {
                Ok(measured) => measured,
                Err(HuntError::Testbed(TestbedError::Declined { reason: why })) => {
                    reason = Some(why);
                    break;
                }
                Err(error) => return Err(error),
            };
            runs.push(judge(&one.point, &measured, &self.bounds(&one.point)?));
            for (name, value) in measured.counters {
                *counters.entry(name).or_default() += value / count;
            }
        }
        let verdict = match () {
            () if reason.is_some() => Verdict::Impossible,
            () if runs.iter().all(|run| run.symptom == Some(one.symptom)) => Verdict::Shows,
            () if runs.iter().all(Judgement::is_sound) => Verdict::Sound,
            () => Verdict::Unsteady,
        };
        Ok(Case {
            name: one.name.clone(),
            symptom: one.symptom,
            workload: one.point.text(),
            verdict,
            runs,
            counters,
            reason,
        })
    }

    /// What the throughput of `point` is held against; measured at the first call with its services.
    fn bounds(&self, point: &Point) -> Result<Bounds, HuntError> {
        let services: Vec<u64> = point.parts().iter().map(|part| part.service).collect();
        if let Some(bounds) = self.bounds.borrow().get(&services) {
            return Ok(bounds.clone());
        }
        let mut space = Space::of(self.lab.profile);
        space.narrow(Feature::Service, Allowed::Set(services.clone()));
        let measured = Bounds::measure(&self.lab, self.lab.profile, &space, 1)?;
        let mut known = self.bounds.borrow_mut();
        Ok(known.entry(services).or_insert(measured).clone())
    }
}

/// The parameters of `profile` as an environment.
pub fn parameters(profile: &Profile) -> Environment {
    let sections = SECTIONS.into_iter();
    let sections = sections.filter_map(|name| Some((name, profile.section(name)?)));
    let all = sections.flat_map(|(section, parameters)| {
        let named = parameters.iter();
        named.map(move |(name, one)| (format!("{section}.{name}"), one.value.to_string()))
    });
    all.collect()
}

/// Runs `corpus` on each of `states` with `seeds` runs each.
pub fn regress(
    states: &[State<'_>],
    corpus: &[Reproducer],
    seeds: u64,
) -> Result<Regression, HuntError> {
    let suites = states.iter().map(|state| state.suite(corpus, 1..=seeds));
    let suites: Vec<Suite> = suites.collect::<Result<_, HuntError>>()?;
    let worse = (0..corpus.len()).filter(|&index| {
        let verdict = |suite: &Suite| suite.cases[index].verdict;
        let first = suites.first().map(verdict);
        let mut later = suites.iter().skip(1).map(verdict);
        first.is_some_and(|first| later.any(|verdict| verdict.is_worse_than(first)))
    });
    let regressions = worse.map(|index| corpus[index].name.clone()).collect();
    Ok(Regression {
        version: REGRESS_VERSION,
        suites,
        regressions,
    })
}

impl Regression {
    /// Whether some reproducer shows on the first state.
    pub fn shows(&self) -> bool {
        let first = self.suites.first();
        first.is_some_and(|suite| suite.cases.iter().any(|c| c.verdict == Verdict::Shows))
    }

    /// For people: a row per reproducer, a column per state.
    pub fn text(&self) -> String {
        let mut rows = vec![vec!["reproducer".to_owned(), "symptom".to_owned()]];
        rows[0].extend(self.suites.iter().map(|suite| suite.profile.clone()));
        let cases = self.suites.first().map_or(0, |suite| suite.cases.len());
        for index in 0..cases {
            let first = &self.suites[0].cases[index];
            let mut row = vec![first.name.clone(), first.symptom.name().to_owned()];
            let verdicts = self.suites.iter().map(|suite| &suite.cases[index]);
            row.extend(verdicts.map(|case| case.verdict.name().to_owned()));
            rows.push(row);
        }
        let mut text = table(&rows);
        if self.suites.len() > 1 {
            text.push_str(&match self.regressions.len() {
                0 => "no regressions\n".to_owned(),
                count => format!(
                    "{}: {}\n",
                    counted(count as u64, "regression"),
                    self.regressions.join(", ")
                ),
            });
        }
        text
    }
}

/// `rows` with columns of one width each.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(String::len).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths);
        let line: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

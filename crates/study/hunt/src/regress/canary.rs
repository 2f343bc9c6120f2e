//! A suite every night, and an alarm with a stated rate of false alarms.
//!
//! Problem: one odd run among many nights is chance; waiting for certainty hides a real change. Method: the first night's verdict
//! of each reproducer is its baseline. A later run is *odd* if it does not repeat the baseline. With odd runs of probability
//! [`ODD_MAX`] at most, the likelihood ratio of a night against [`ODD_CHANGED`] has a mean of 1 at most, and the
//! Shiryaev-Roberts statistic R(n) = (R(n-1) + 1) L(n) minus n is a supermartingale. An alarm at R >= A therefore has a mean time
//! of at least A nights without a change, whatever the order of the odd runs. With k reproducers each one's limit is k A: the mean
//! of their statistics crosses A no later, so A nights hold for all of them together. A lasting change is seen within a few
//! nights, because odd runs multiply R by [`ODD_CHANGED`] / [`ODD_MAX`].
//!
//! Limits: runs of one night must be independent given the past; a baseline that is unsteady is not watched. Sources: Shiryaev
//! (1963), Roberts (1966); the bound follows from optional stopping.

use super::compare::{Difference, differences, differences_text};
use super::{Case, Environment, Suite, Verdict};
use crate::monitor::Symptom;
use isolane_common_text_output::counted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Raised when [`Canary`] changes its meaning.
pub const CANARY_VERSION: u32 = 1;
/// Most probable odd run of a device that did not change.
pub const ODD_MAX: f64 = 0.1;
/// Probability of an odd run that the test is most sensitive to.
pub const ODD_CHANGED: f64 = 0.5;
/// Nights in the mean to a false alarm, unless another number is set.
pub const NIGHTS: u64 = 1_000;
/// Where statistics stop to grow; every limit lies below.
const STATISTIC_MAX: f64 = 1e18;

/// A canary: its baseline and what the nights said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Canary {
    /// [`CANARY_VERSION`].
    pub version: u32,
    /// The state's name.
    pub target: String,
    /// Mean nights to a false alarm, at least.
    pub false_alarm_nights: u64,
    /// Runs of each reproducer per night.
    pub seeds: u64,
    /// Nights after the baseline.
    pub nights: u64,
    /// What the baseline ran on.
    pub baseline: Environment,
    /// What the last night ran on.
    pub latest: Environment,
    /// The reproducers that are watched.
    pub watched: Vec<Watched>,
    /// Reproducers without a steady baseline.
    pub not_watched: Vec<String>,
}

/// One reproducer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Watched {
    /// Its name.
    pub name: String,
    /// Its workload, in words.
    pub workload: String,
    /// What it did on the first night: shows or sound.
    pub baseline: Verdict,
    /// The statistic R.
    pub statistic: f64,
    /// Odd runs so far.
    pub odd: u64,
    /// Runs so far, without the baseline's.
    pub runs: u64,
    /// The night of its alarm.
    pub alarm: Option<u64>,
}

/// Why a night does not belong to a canary.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum CanaryError {
    #[error("canary of {ours}: this night ran on {theirs}: use another file for another device")]
    Target { ours: String, theirs: String },
    #[error(
        "reproducer {name}: the canary's baseline has it with the workload {ours:?} and this night {}: use the same hunts \
         each night, or begin another file", theirs.as_ref().map_or_else(|| "lacks it".to_owned(), |theirs| format!("with {theirs:?}"))
    )]
    Corpus {
        name: String,
        ours: String,
        theirs: Option<String>,
    },
}

impl Canary {
    /// Begins with the suite of the first night.
    pub fn begin(suite: &Suite, false_alarm_nights: u64, seeds: u64) -> Self {
        let steady = |case: &&Case| matches!(case.verdict, Verdict::Shows | Verdict::Sound);
        let watched = suite.cases.iter().filter(steady).map(|case| Watched {
            name: case.name.clone(),
            workload: case.workload.clone(),
            baseline: case.verdict,
            statistic: 0.0,
            odd: 0,
            runs: 0,
            alarm: None,
        });
        let others = suite.cases.iter().filter(|case| !steady(case));
        Self {
            version: CANARY_VERSION,
            target: suite.profile.clone(),
            false_alarm_nights,
            seeds,
            nights: 0,
            baseline: suite.environment.clone(),
            latest: suite.environment.clone(),
            watched: watched.collect(),
            not_watched: others.map(|case| case.name.clone()).collect(),
        }
    }

    /// The random numbers of the next night: none of them was used before.
    pub fn next_seeds(&self) -> std::ops::RangeInclusive<u64> {
        let first = (self.nights + 1) * self.seeds + 1;
        first..=first + self.seeds - 1
    }

    /// The statistic at which a reproducer raises the alarm.
    pub fn limit(&self) -> f64 {
        self.false_alarm_nights as f64 * self.watched.len().max(1) as f64
    }

    /// Adds the suite of a night. Fails if it is of another device or corpus; the canary stays as it was.
    pub fn night(&mut self, suite: &Suite) -> Result<(), CanaryError> {
        if suite.profile != self.target {
            return Err(CanaryError::Target {
                ours: self.target.clone(),
                theirs: suite.profile.clone(),
            });
        }
        let case_of = |watched: &Watched| {
            let mut cases = suite.cases.iter();
            let case = cases.find(|case| case.name == watched.name);
            match case.filter(|case| case.workload == watched.workload) {
                Some(same) => Ok(same),
                None => Err(CanaryError::Corpus {
                    name: watched.name.clone(),
                    ours: watched.workload.clone(),
                    theirs: case.map(|other| other.workload.clone()),
                }),
            }
        };
        let cases: Vec<&Case> = self.watched.iter().map(case_of).collect::<Result<_, _>>()?;
        self.nights += 1;
        let (night, limit) = (self.nights, self.limit());
        for (watched, case) in self.watched.iter_mut().zip(cases) {
            watched.add(case, night, limit);
        }
        self.latest = suite.environment.clone();
        Ok(())
    }

    /// Whether some reproducer raised the alarm.
    pub fn alarmed(&self) -> bool {
        self.watched.iter().any(|watched| watched.alarm.is_some())
    }

    /// What changed of the device, its host and settings since the baseline.
    pub fn changes(&self) -> Vec<Difference> {
        differences(&self.baseline, &self.latest)
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{}: {} after the baseline, {} watched\n",
            self.target,
            counted(self.nights, "night"),
            counted(self.watched.len() as u64, "reproducer"),
        );
        for watched in &self.watched {
            if let Some(night) = watched.alarm {
                text.push_str(&format!(
                    "ALARM {}: no longer {} since about night {night}; {} of {} differ from the baseline\n",
                    watched.name,
                    watched.baseline.name(),
                    watched.odd,
                    counted(watched.runs, "run"),
                ));
            }
        }
        if !self.alarmed() {
            text.push_str("no alarm\n");
        }
        if !self.not_watched.is_empty() {
            let names = self.not_watched.join(", ");
            text.push_str(&format!(
                "not watched, their baseline is not steady: {names}\n"
            ));
        }
        text.push_str("since the baseline: ");
        text.push_str(&differences_text(&self.changes()));
        text.push_str(&format!(
            "If a run differs from the baseline with a probability of at most {:.0} %, false alarms are at least {} apart in \
             the mean.\n",
            ODD_MAX * 100.0,
            counted(self.false_alarm_nights, "night"),
        ));
        text
    }
}

impl Watched {
    fn add(&mut self, case: &Case, night: u64, limit: f64) {
        let repeats = |symptom: Option<Symptom>| match self.baseline {
            Verdict::Shows => symptom == Some(case.symptom),
            _ => symptom.is_none(),
        };
        let all = case.runs.len() as u64;
        let odd = case.runs.iter().filter(|run| !repeats(run.symptom)).count() as u64;
        self.runs += all;
        self.odd += odd;
        self.statistic = next(self.statistic, odd, all - odd);
        if self.alarm.is_none() && self.statistic >= limit {
            self.alarm = Some(night);
        }
    }
}

/// The statistic after a night with `odd` runs and `same` ones.
fn next(statistic: f64, odd: u64, same: u64) -> f64 {
    let power = |base: f64, count: u64| libm::pow(base, count as f64);
    let ratio =
        power(ODD_CHANGED / ODD_MAX, odd) * power((1.0 - ODD_CHANGED) / (1.0 - ODD_MAX), same);
    ((statistic + 1.0) * ratio).min(STATISTIC_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::Judgement;
    use isolane_common_quantities::rng::Stream;

    /// A case with `odd` of three runs sound, the others with pauses.
    fn case(name: &str, odd: usize) -> Case {
        let run = |symptom| Judgement {
            symptom,
            ..Judgement::default()
        };
        let runs: Vec<Judgement> = (0..3)
            .map(|index| run((index >= odd).then_some(Symptom::PauseFrames)))
            .collect();
        Case {
            name: name.to_owned(),
            symptom: Symptom::PauseFrames,
            workload: "one".to_owned(),
            verdict: match odd {
                0 => Verdict::Shows,
                3 => Verdict::Sound,
                _ => Verdict::Unsteady,
            },
            runs,
            counters: Default::default(),
            reason: None,
        }
    }

    fn suite(odd: &[usize]) -> Suite {
        let cases = odd.iter().enumerate();
        Suite {
            profile: "verbs:r0,r1".to_owned(),
            environment: Environment::from([("firmware".to_owned(), "1".to_owned())]),
            cases: cases
                .map(|(index, &odd)| case(&index.to_string(), odd))
                .collect(),
        }
    }

    #[test]
    fn a_lasting_change_raises_the_alarm_within_three_nights_and_names_what_changed() {
        let mut canary = Canary::begin(&suite(&[0, 3, 1]), NIGHTS, 3);
        assert_eq!(canary.next_seeds(), 4..=6);
        assert_eq!(canary.not_watched, ["2"]);
        for _ in 0..100 {
            canary.night(&suite(&[0, 3, 1])).unwrap();
        }
        assert!(!canary.alarmed());
        let mut changed = suite(&[3, 3, 1]);
        changed
            .environment
            .insert("firmware".to_owned(), "2".to_owned());
        for _ in 0..3 {
            canary.night(&changed).unwrap();
        }
        expect_test::expect![[r#"
            verbs:r0,r1: 103 nights after the baseline, 2 reproducers watched
            ALARM 0: no longer shows since about night 102; 9 of 309 runs differ from the baseline
            not watched, their baseline is not steady: 2
            since the baseline: firmware: 1 -> 2
            If a run differs from the baseline with a probability of at most 10 %, false alarms are at least 1000 nights apart in the mean.
        "#]]
        .assert_eq(&canary.text());
    }

    #[test]
    fn other_devices_and_other_workloads_are_refused() {
        let mut canary = Canary::begin(&suite(&[0]), NIGHTS, 3);
        let before = canary.clone();
        let mut other = suite(&[0]);
        other.profile = "sim".to_owned();
        assert!(canary.night(&other).is_err());
        let mut other = suite(&[0]);
        other.cases[0].workload = "two".to_owned();
        let error = canary.night(&other).unwrap_err().to_string();
        assert!(
            error.contains("\"one\"") && error.contains("\"two\""),
            "{error}"
        );
        assert!(canary.night(&suite(&[])).is_err());
        assert_eq!(canary, before);
    }

    /// Goal: the stated mean time to a false alarm holds at the largest allowed probability of an odd run. Method: 400
    /// sequences of nights with three reproducers of two runs each, until the alarm.
    #[test]
    fn false_alarms_are_as_rare_as_stated() {
        const STATED: u64 = 200;
        const SEQUENCES: u64 = 400;
        let mut stream = Stream::named(7, "canary");
        let mut nights = 0;
        for _ in 0..SEQUENCES {
            let mut statistics = [0.0; 3];
            let limit = (STATED * 3) as f64;
            while statistics.iter().all(|statistic| *statistic < limit) {
                nights += 1;
                for statistic in &mut statistics {
                    let odd = (0..2).filter(|_| stream.chance(1, 10)).count() as u64;
                    *statistic = next(*statistic, odd, 2 - odd);
                }
            }
        }
        let mean = nights as f64 / SEQUENCES as f64;
        assert!(mean >= STATED as f64, "{mean} nights");
    }
}

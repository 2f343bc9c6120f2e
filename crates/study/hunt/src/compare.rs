//! Searchers compared: which published anomalies each finds, and after how much.
//!
//! Problem: a hunt on a model finds what the model does, in its own numbering; a comparison of searchers must recognise
//! that two of them found the same anomaly. Method: what a hunt found counts as the published anomaly whose conditions
//! its witness meets with the same symptom; of several, the one with the fewest conditions, since that is cause enough.
//! The witness is what is left when every feature that does not matter is mild. Where it meets none, or the search does
//! no reduction, the workload that showed the anomaly has to do: the model's borders are elsewhere than a device's, so
//! a witness may have left the published ones (128 queue pairs for deep queues) though the workload it came from is
//! inside. What meets no published conditions is counted apart. Times are those at which the first experiment that led
//! there was done, and everything that was spent before counts, reductions included.
//!
//! Units: experiments, and hours on real hardware as modelled. Limits: conditions are the published ones, so an anomaly
//! whose threshold the model has elsewhere may count as another or as none. Source: collie 3.7.2, figures 3.4 to 3.6.

mod agreement;
mod conditions;
mod recall;

use crate::bench::Spent;
use crate::hunt::{Anomaly, HuntResult};
use crate::known::{Known, KnownSet};
use crate::search::{STAGES, Stages};
use crate::space::{Point, Space};
pub use agreement::Agreement;
pub use conditions::{Compared, others, with_the_same_cause};
pub use recall::Recall;

use isolane_common_text_output::counted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Raised when [`Comparison`] changes its meaning.
pub const COMPARISON_VERSION: u32 = 1;
/// The counter of figure 3.6.
pub const SHOWN_COUNTER: &str = "receive_wqe_cache_miss";

/// One way to search that is compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Contestant {
    /// A name of [`crate::search::NAMES`].
    pub searcher: String,
    /// `diag`, `perf`, or `occupancy`, which is both of `diag` and `occupancy`.
    pub counters: String,
    /// Whether what is found is reduced and left out from then on.
    pub reduces: bool,
    /// Stages of `factors` that are left out: names of [`STAGES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
}

impl Contestant {
    /// Reads `anneal`, `anneal:perf`, `anneal:diag:no-mfs`, ... The error is the part that is none, with what it may
    /// be.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.split(':');
        let searcher = words.next().unwrap_or_default().to_owned();
        if !crate::search::NAMES.contains(&searcher.as_str()) {
            let names = crate::search::NAMES.join(", ");
            return Err(format!(
                "{searcher:?} is no searcher: must be one of {names}"
            ));
        }
        let mut contestant = Self {
            searcher,
            counters: "diag".to_owned(),
            reduces: true,
            without: Vec::new(),
        };
        for word in words {
            let stage = word.strip_prefix("no-").unwrap_or_default();
            if contestant.searcher == "factors" && STAGES.contains(&stage) {
                contestant.without.push(stage.to_owned());
                continue;
            }
            match word {
                "diag" | "perf" | "occupancy" => word.clone_into(&mut contestant.counters),
                "no-mfs" => contestant.reduces = false,
                other => {
                    return Err(format!(
                        "{other:?}: must be diag, perf, occupancy or no-mfs, and for factors also one of no-{}",
                        STAGES.join(", no-")
                    ));
                }
            }
        }
        Ok(contestant)
    }

    /// As it is read.
    pub fn name(&self) -> String {
        let mut name = self.searcher.clone();
        if self.counters != "diag" {
            name = format!("{name}:{}", self.counters);
        }
        if !self.reduces {
            name.push_str(":no-mfs");
        }
        for stage in &self.without {
            name.push_str(":no-");
            name.push_str(stage);
        }
        name
    }

    /// The words of `--counters` that it follows.
    pub fn counters(&self) -> Vec<String> {
        let mut words = vec![self.counters.clone()];
        if self.counters == "occupancy" {
            words.insert(0, "diag".to_owned());
        }
        words
    }

    /// The stages of `factors` that take part.
    pub fn stages(&self) -> Stages {
        Stages::without(self.without.iter().map(String::as_str))
    }
}

/// One hunt of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Race {
    /// Who searched.
    pub contestant: Contestant,
    /// The seed.
    pub seed: u64,
    /// All that was used.
    pub spent: Spent,
    /// When each published anomaly was found.
    pub found: BTreeMap<String, Spent>,
    /// Findings that belong to no anomaly of the truth.
    pub others: u32,
    /// All findings.
    #[serde(default)]
    pub findings: u32,
    /// Mechanisms that there are, where that is known of this hunt's device.
    #[serde(default, skip_serializing_if = "is_none")]
    pub mechanisms: u32,
    /// The conditions of what was found against the published ones; empty where none are published.
    #[serde(default, skip_serializing_if = "Agreement::is_none")]
    pub conditions: Agreement,
    /// Tested conditions of published anomalies that were found with the cause of their trigger; empty without such tests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compared: Vec<Compared>,
    /// Published anomalies that were found with other causes only.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub other_causes: BTreeSet<String>,
    /// Experiments of the search itself, without reductions.
    pub search_experiments: u64,
    /// Largest value of [`SHOWN_COUNTER`] that the search saw.
    pub counter_max: f64,
}

/// Whether nothing is counted.
fn is_none(count: &u32) -> bool {
    *count == 0
}

/// Many hunts on one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// [`COMPARISON_VERSION`].
    pub version: u32,
    /// The target.
    pub target: String,
    /// What each hunt might use, in words.
    pub budget: String,
    /// Names of the published anomalies.
    pub anomalies: Vec<String>,
    /// By contestant and seed.
    pub races: Vec<Race>,
}

impl Race {
    /// What `result` found of `published` in `space`.
    pub fn of(
        contestant: &Contestant,
        result: &HuntResult,
        published: &KnownSet,
        space: &Space,
    ) -> Self {
        let each = result.anomalies.iter();
        let rows: Vec<Option<&Known>> = each.map(|anomaly| row(anomaly, published)).collect();
        let causes: Vec<Vec<String>> = rows
            .iter()
            .map(|row| row.iter().map(|row| number(row)).collect())
            .collect();
        let mut race = Self::with_causes(contestant, result, &causes);
        // The first finding of each anomaly that has conditions.
        let mut compared = BTreeSet::new();
        for (anomaly, row) in result.anomalies.iter().zip(rows) {
            if let (Some(set), Some(row)) = (&anomaly.set, row)
                && compared.insert(number(row))
            {
                race.conditions += Agreement::of(&set.region, &row.region, space);
            }
        }
        race
    }

    /// What `result` found, where `causes` says what each finding belongs to. One with several causes shows none of them alone, so
    /// it counts for none, though it is no false one.
    pub fn with_causes(
        contestant: &Contestant,
        result: &HuntResult,
        causes: &[Vec<String>],
    ) -> Self {
        let mut found: BTreeMap<String, Spent> = BTreeMap::new();
        let mut others = 0;
        for (anomaly, causes) in result.anomalies.iter().zip(causes) {
            match causes.as_slice() {
                [] => others += 1,
                [name] => {
                    let first = found.entry(name.clone()).or_insert(anomaly.found_at);
                    if anomaly.found_at.experiments < first.experiments {
                        *first = anomaly.found_at;
                    }
                }
                _ => {}
            }
        }
        let shown = result
            .counters
            .iter()
            .position(|name| name == SHOWN_COUNTER);
        let values = shown.into_iter().flat_map(|index| {
            result
                .trace
                .iter()
                .filter_map(move |point| point.counters.get(index).copied())
        });
        Self {
            contestant: contestant.clone(),
            seed: result.seed,
            spent: result.spent,
            found,
            others,
            findings: result.anomalies.len() as u32,
            mechanisms: 0,
            conditions: Agreement::default(),
            compared: Vec::new(),
            other_causes: BTreeSet::new(),
            search_experiments: result.trace.len() as u64,
            counter_max: values.fold(0.0, f64::max),
        }
    }

    /// Times of discovery, the earliest first.
    pub fn times(&self) -> Vec<Spent> {
        let mut times: Vec<Spent> = self.found.values().copied().collect();
        times.sort_by_key(|spent| spent.experiments);
        times
    }
}

/// The row of `published` that `anomaly` is.
fn row<'a>(anomaly: &Anomaly, published: &'a KnownSet) -> Option<&'a Known> {
    let simplest = |point: &Point| {
        let all = published.known.iter();
        let met = all.filter(|known| known.symptom == anomaly.symptom && known.region.has(point));
        met.min_by_key(|known| known.region.features.len())
    };
    let witness = anomaly.set.as_ref().and_then(|set| simplest(&set.witness));
    witness.or_else(|| simplest(&anomaly.point))
}

/// Whether `known` is a row that the workload of `anomaly` or its witness meets.
fn is_row_of(known: &Known, anomaly: &Anomaly) -> bool {
    let witness = anomaly.set.as_ref().map(|set| &set.witness);
    let mut points = witness.into_iter().chain([&anomaly.point]);
    known.symptom == anomaly.symptom && points.any(|point| known.region.has(point))
}

/// The number of a published row; rows that differ in a letter are one anomaly.
fn number(known: &Known) -> String {
    known
        .name
        .trim_end_matches(|c: char| c.is_ascii_lowercase())
        .to_owned()
}

/// The numbers of all rows of `published`, in their order.
pub fn numbers(published: &KnownSet) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let all = published.known.iter().map(number);
    all.filter(|name| seen.insert(name.clone())).collect()
}

impl Comparison {
    /// The races of `contestant`, by seed.
    pub fn races_of<'a>(&'a self, contestant: &'a Contestant) -> impl Iterator<Item = &'a Race> {
        let all = self.races.iter();
        all.filter(move |race| race.contestant == *contestant)
    }

    /// Who takes part, in the order of their first race.
    pub fn contestants(&self) -> Vec<&Contestant> {
        let mut all: Vec<&Contestant> = Vec::new();
        for race in &self.races {
            if !all.contains(&&race.contestant) {
                all.push(&race.contestant);
            }
        }
        all
    }

    /// For people: what each found, and the median experiments and hours to its n-th discovery; where the mechanisms are
    /// known, recall and precision.
    pub fn text(&self) -> String {
        let mut text = format!("{} in {} each\n", self.target, self.budget);
        for contestant in self.contestants() {
            let races: Vec<&Race> = self.races_of(contestant).collect();
            let hunts = races.len().max(1) as f64;
            let mean =
                |of: &dyn Fn(&Race) -> f64| races.iter().map(|race| of(race)).sum::<f64>() / hunts;
            let counts = races.iter().map(|race| race.found.len());
            let of_all = races.iter().map(|race| race.spent.experiments);
            let search = races.iter().map(|race| race.search_experiments);
            let known = races
                .iter()
                .map(|race| race.mechanisms as usize)
                .sum::<usize>() as f64
                / hunts;
            let all = match known > 0.0 {
                true => format!("{known:.1}"),
                false => self.anomalies.len().to_string(),
            };
            text.push_str(&format!(
                "{:<18} {}: finds {:.1} of {all} on average ({} to {}), {:.1} others\n",
                contestant.name(),
                counted(races.len() as u64, "seed"),
                mean(&|race| race.found.len() as f64),
                counts.clone().min().unwrap_or(0),
                counts.max().unwrap_or(0),
                mean(&|race| f64::from(race.others)),
            ));
            text.push_str(&format!(
                "  {:.0} % of the experiments search, the others reduce",
                search.sum::<u64>() as f64 / of_all.sum::<u64>().max(1) as f64 * 100.0
            ));
            if known > 0.0 {
                text.push('\n');
                text.push_str(&Recall::of(&races).text());
            }
            if !self.anomalies.is_empty() {
                text.push_str(&self.by_anomaly(&races));
            }
            let mut conditions = Agreement::default();
            races.iter().for_each(|race| conditions += race.conditions);
            if !conditions.is_none() {
                text.push_str(&conditions.text("the anomalies that it found"));
            }
            text.push_str(&tested(&races));
        }
        text
    }

    /// How many of `races` found each anomaly, and the median experiments to the n-th.
    fn by_anomaly(&self, races: &[&Race]) -> String {
        let by = |name: &String| {
            let found = races.iter().filter(|race| race.found.contains_key(name));
            format!("{name} in {}", found.count())
        };
        let all: Vec<String> = self.anomalies.iter().map(by).collect();
        let before = match races.iter().any(|race| race.mechanisms > 0) {
            true => "  ",
            false => "; ",
        };
        let mut text = format!("{before}hunts that found each: {}\n", all.join(", "));
        for nth in 1..=self.anomalies.len() {
            let Some((experiments, hours)) = median_time(races, nth) else {
                continue;
            };
            text.push_str(&format!(
                "  {nth:>2} found after {experiments:.0} experiments ({hours:.1} h) in the median\n"
            ));
        }
        text
    }
}

/// The conditions that were tested after `races`, anomaly by anomaly, and how many are equal to the published ones.
fn tested(races: &[&Race]) -> String {
    let mut text = String::new();
    let (mut before, mut after) = (Agreement::default(), Agreement::default());
    let mut others = 0;
    for race in races {
        others += race.other_causes.len() as u64;
        for one in &race.compared {
            text.push_str(&format!("  seed {}, anomaly ", race.seed));
            text.push_str(&one.text());
            before += one.before;
            after += one.after;
        }
    }
    if !after.is_none() {
        text.push_str(&before.text("findings with the cause of the trigger, after the search"));
        text.push_str(&after.text("the same findings, tested"));
        let others = counted(others, "anomaly");
        text.push_str(&format!("  found with other causes only: {others}\n"));
    }
    text
}

/// Median experiments and hours to the `nth` discovery; none where more than half of the races never reached it. A race
/// that did not reach it counts as longer than all others.
pub fn median_time(races: &[&Race], nth: usize) -> Option<(f64, f64)> {
    let mut times: Vec<Option<Spent>> = races
        .iter()
        .map(|race| race.times().get(nth - 1).copied())
        .collect();
    times.sort_by_key(|time| time.map_or(u64::MAX, |spent| spent.experiments));
    let middle = times.get((times.len().max(1) - 1) / 2).copied().flatten();
    let upper = times.get(times.len() / 2).copied().flatten();
    let (low, high) = (middle?, upper?);
    Some((
        (low.experiments + high.experiments) as f64 / 2.0,
        (low.modelled_s + high.modelled_s) / 7200.0,
    ))
}

#[cfg(test)]
mod tests;

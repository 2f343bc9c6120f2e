//! Two suites of one corpus: what changed of the device, its host and settings, and what changed of the reproducers.
//!
//! Limits: the suites do not say which of several changes had the effect; [`super::bisect`] does, with one version per change.

use super::{Environment, Suite, Verdict, table};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Raised when [`Comparison`] changes its meaning.
pub const COMPARE_VERSION: u32 = 2;

/// One thing that two suites do not have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// Its name in the environment.
    pub name: String,
    /// Before; absent where it was not known.
    pub before: Option<String>,
    /// After; absent where it is not known.
    pub after: Option<String>,
}

/// One reproducer in both suites.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Compared {
    /// The reproducer.
    pub name: String,
    /// What it did before.
    pub before: Verdict,
    /// What it does after.
    pub after: Verdict,
}

/// Two suites.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// [`COMPARE_VERSION`].
    pub version: u32,
    /// Name of the earlier state.
    pub before: String,
    /// Name of the later state.
    pub after: String,
    /// What differs between the two.
    pub environment: Vec<Difference>,
    /// The reproducers that both suites ran, with the same workload.
    pub cases: Vec<Compared>,
    /// Reproducers whose verdict [is worse](Verdict::is_worse_than) after.
    pub regressions: Vec<String>,
    /// Reproducers that showed before and are sound after.
    pub repaired: Vec<String>,
    /// Reproducers that the device could run before and cannot run after.
    pub unjudged: Vec<String>,
    /// Reproducers that one suite lacks or ran with another workload.
    pub left_out: Vec<String>,
}

/// What differs between two environments, by name.
pub fn differences(before: &Environment, after: &Environment) -> Vec<Difference> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differing = names
        .into_iter()
        .filter(|name| before.get(*name) != after.get(*name));
    let all = differing.map(|name| Difference {
        name: name.clone(),
        before: before.get(name).cloned(),
        after: after.get(name).cloned(),
    });
    all.collect()
}

/// Compares `after` with `before`.
pub fn compare(before: &Suite, after: &Suite) -> Comparison {
    let mut cases = Vec::new();
    let mut left_out = Vec::new();
    for earlier in &before.cases {
        let mut later = after.cases.iter();
        match later.find(|case| case.name == earlier.name && case.workload == earlier.workload) {
            Some(later) => cases.push(Compared {
                name: earlier.name.clone(),
                before: earlier.verdict,
                after: later.verdict,
            }),
            None => left_out.push(earlier.name.clone()),
        }
    }
    for later in &after.cases {
        let known = cases.iter().any(|case| case.name == later.name);
        if !known && !left_out.contains(&later.name) {
            left_out.push(later.name.clone());
        }
    }
    let names = |chosen: &dyn Fn(&Compared) -> bool| {
        let all = cases.iter().filter(|case| chosen(case));
        all.map(|case| case.name.clone()).collect::<Vec<_>>()
    };
    let regressions = names(&|case| case.after.is_worse_than(case.before));
    let unjudged =
        names(&|case| case.before != Verdict::Impossible && case.after == Verdict::Impossible);
    let repaired = names(&|case| case.before == Verdict::Shows && case.after == Verdict::Sound);
    Comparison {
        version: COMPARE_VERSION,
        before: before.profile.clone(),
        after: after.profile.clone(),
        environment: differences(&before.environment, &after.environment),
        cases,
        regressions,
        repaired,
        unjudged,
        left_out,
    }
}

impl Comparison {
    /// Reproducers that both suites could run.
    fn judged(&self) -> usize {
        let judged = |case: &&Compared| ![case.before, case.after].contains(&Verdict::Impossible);
        self.cases.iter().filter(judged).count()
    }

    /// Whether the device got worse; absent where none of the reproducers says so and some of them cannot be judged any longer,
    /// or none can.
    pub fn answer(&self) -> Option<bool> {
        match (self.regressions.is_empty(), self.judged()) {
            (false, _) => Some(true),
            (true, 0) => None,
            (true, _) => self.unjudged.is_empty().then_some(false),
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = differences_text(&self.environment);
        let mut rows = vec![
            ["reproducer", "before", "after"]
                .map(str::to_owned)
                .to_vec(),
        ];
        rows.extend(self.cases.iter().map(|case| {
            vec![
                case.name.clone(),
                case.before.name().to_owned(),
                case.after.name().to_owned(),
            ]
        }));
        text.push('\n');
        text.push_str(&table(&rows));
        let lists = [
            ("regressions", &self.regressions),
            ("repaired", &self.repaired),
            ("cannot be run any longer, so not judged", &self.unjudged),
            (
                "not compared (missing, or another workload)",
                &self.left_out,
            ),
        ];
        for (title, names) in lists {
            if !names.is_empty() {
                text.push_str(&format!("{title}: {}\n", names.join(", ")));
            }
        }
        if self.regressions.is_empty() {
            let judged = self.judged();
            let all = judged + self.unjudged.len() + self.left_out.len();
            text.push_str(&format!(
                "no regressions among {judged} of {all} reproducers\n"
            ));
        }
        text
    }
}

/// `all` as lines for people.
pub fn differences_text(all: &[Difference]) -> String {
    if all.is_empty() {
        return "same device, host and settings\n".to_owned();
    }
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "not known".to_owned());
    let lines = all.iter();
    let lines = lines.map(|one| {
        let (before, after) = (shown(&one.before), shown(&one.after));
        format!("{}: {before} -> {after}\n", one.name)
    });
    lines.collect()
}

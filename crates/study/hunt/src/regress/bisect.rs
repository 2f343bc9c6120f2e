//! The version with which a reproducer began or ceased to show, by bisection of an ordered list of versions.
//!
//! Method: every reproducer runs on the first and on the last version. Where its verdict changed between sound and something else,
//! the version in the middle halves the list, until two neighbours are left: ceil(log2(n - 1)) steps for n versions. A
//! version where the reproducer is unsteady counts as one that has the anomaly. Reproducers share versions, so a version's
//! benchmarks run once. Limits: one change per reproducer; if the anomaly came, went and came again, one of the changes is found.

use super::compare::{Difference, differences, differences_text};
use super::{Case, Reproducer, State, Verdict};
use crate::HuntError;
use crate::monitor::Symptom;
use isolane_common_text_output::counted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Raised when [`Bisection`] changes its meaning.
pub const BISECT_VERSION: u32 = 1;
/// Fewest versions with a change between them.
pub const VERSIONS_MIN: usize = 2;

/// Differences of two versions that the text shows.
const DIFFERENCES_SHOWN: usize = 12;

/// A reproducer whose verdict changed between two neighbouring versions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Turn {
    /// The reproducer.
    pub name: String,
    /// Its symptom.
    pub symptom: Symptom,
    /// True where the anomaly came, false where it went.
    pub came: bool,
    /// The last version before the change.
    pub last_before: String,
    /// The first version after it.
    pub first_after: String,
    /// Versions that were tried between the first and the last.
    pub steps: u32,
    /// What differs between these two versions.
    pub environment: Vec<Difference>,
}

/// What a bisection found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bisection {
    /// [`BISECT_VERSION`].
    pub version: u32,
    /// The versions, in order.
    pub versions: Vec<String>,
    /// The reproducers whose verdict changed.
    pub turns: Vec<Turn>,
    /// Reproducers with the anomaly on the first and on the last version.
    pub throughout: Vec<String>,
    /// Reproducers that are sound on the first and on the last version.
    pub sound: Vec<String>,
    /// Reproducers that the first or the last version cannot run.
    pub impossible: Vec<String>,
    /// Runs of a reproducer, without benchmarks.
    pub runs: u64,
}

/// Bisects `states`, versions in their order, for every reproducer of `corpus`, with `seeds` runs each time. Panics
/// with fewer than [`VERSIONS_MIN`] states.
pub fn bisect(
    states: &[State<'_>],
    corpus: &[Reproducer],
    seeds: u64,
) -> Result<Bisection, HuntError> {
    assert!(states.len() >= VERSIONS_MIN, "a change needs two versions");
    let mut found = Bisection {
        version: BISECT_VERSION,
        versions: states.iter().map(|state| state.name().to_owned()).collect(),
        turns: Vec::new(),
        throughout: Vec::new(),
        sound: Vec::new(),
        impossible: Vec::new(),
        runs: 0,
    };
    for one in corpus {
        found.follow(states, one, seeds)?;
    }
    Ok(found)
}

impl Bisection {
    fn follow(
        &mut self,
        states: &[State<'_>],
        one: &Reproducer,
        seeds: u64,
    ) -> Result<(), HuntError> {
        let mut run = |index: usize| -> Result<Case, HuntError> {
            let case = states[index].case(one, 1..=seeds)?;
            self.runs += case.runs.len() as u64;
            Ok(case)
        };
        let has = |case: &Case| !matches!(case.verdict, Verdict::Sound | Verdict::Impossible);
        let (mut before, mut after) = (0, states.len() - 1);
        let (first, last) = (run(before)?, run(after)?);
        let name = one.name.clone();
        if [&first, &last]
            .iter()
            .any(|case| case.verdict == Verdict::Impossible)
        {
            self.impossible.push(name);
            return Ok(());
        }
        match (has(&first), has(&last)) {
            (true, true) => self.throughout.push(name),
            (false, false) => self.sound.push(name),
            (_, came) => {
                let mut steps = 0;
                while after - before > 1 {
                    let middle = before.midpoint(after);
                    steps += 1;
                    match has(&run(middle)?) == came {
                        true => after = middle,
                        false => before = middle,
                    }
                }
                self.turns.push(Turn {
                    name,
                    symptom: one.symptom,
                    came,
                    last_before: states[before].name().to_owned(),
                    first_after: states[after].name().to_owned(),
                    steps,
                    environment: differences(
                        states[before].environment(),
                        states[after].environment(),
                    ),
                });
            }
        }
        Ok(())
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let pair = |turn: &Turn| (turn.last_before.clone(), turn.first_after.clone());
        let pairs: BTreeSet<_> = self.turns.iter().map(pair).collect();
        for between in pairs {
            let turns: Vec<&Turn> = self
                .turns
                .iter()
                .filter(|turn| pair(turn) == between)
                .collect();
            text.push_str(&format!("between {} and {}\n", between.0, between.1));
            for turn in &turns {
                let what = if turn.came {
                    "shows since"
                } else {
                    "is gone since"
                };
                text.push_str(&format!(
                    "  {} ({}) {what} {} ({})\n",
                    turn.name,
                    turn.symptom.name(),
                    between.1,
                    counted(u64::from(turn.steps), "step"),
                ));
            }
            let changed = turns.first().map_or(&[][..], |turn| &turn.environment);
            for line in differences_text(changed).lines().take(DIFFERENCES_SHOWN) {
                text.push_str(&format!("  {line}\n"));
            }
            if changed.len() > DIFFERENCES_SHOWN {
                let more = counted((changed.len() - DIFFERENCES_SHOWN) as u64, "difference");
                text.push_str(&format!("  and {more} more: see --json\n"));
            }
        }
        let lists = [
            ("on the first and the last version", &self.throughout),
            ("sound on the first and the last version", &self.sound),
            (
                "impossible on the first or the last version",
                &self.impossible,
            ),
        ];
        for (title, names) in lists {
            if !names.is_empty() {
                text.push_str(&format!("{title}: {}\n", names.join(", ")));
            }
        }
        let versions = counted(self.versions.len() as u64, "version");
        text.push_str(&format!(
            "{versions}, {} of reproducers\n",
            counted(self.runs, "run")
        ));
        text
    }
}

//! Hunts as runs of claims: listed here, run by `isolane hunt bench --check-claims`.
//!
//! Problem: the paper's figures 3.4 to 3.6 compare ways to search, ten hours each with several seeds, which takes too long to
//! be part of every check of all claims. Their claims are files of the same form, so that one list holds all that is
//! claimed. Method: a run says `hunt = { searcher = "anneal", counters = "diag" }` (or `perf`, or `reduces = false`), and a
//! measurement is `label:hunt.field` with one of [`FIELDS`].
//!
//! Units end the names; hours are those on real hardware as modelled. Limits: what counts as found is said in
//! `docs/internals/hunt.md`. Source: collie 3.7.2.

use crate::error::{nearest, number};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a hunt is called in a measurement: `c:hunt.found`.
pub const NAME: &str = "hunt";

/// Who may search.
pub const SEARCHERS: [&str; 6] = ["anneal", "random", "bayes", "evolve", "screen", "factors"];

/// What a measurement may name of a hunt. A time that was not reached has no value.
pub const FIELDS: [&str; 15] = [
    "found",
    "others",
    "search_experiments",
    "counter_max",
    "hours_to_first",
    "hours_to_7",
    "hours_to_8",
    "hours_to_11",
    "hours_to_13",
    "experiments_to_13",
    "hours_to_half",
    "found_7",
    "found_8",
    "found_13",
    "hours_of_13",
];

/// One hunt, by what it says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HuntRun {
    /// One of [`SEARCHERS`].
    pub searcher: String,
    /// `diag` or `perf`.
    #[serde(default = "diagnostic")]
    pub counters: String,
    /// Whether what is found is reduced and left out from then on.
    #[serde(default = "yes")]
    pub reduces: bool,
}

fn diagnostic() -> String {
    "diag".to_owned()
}

fn yes() -> bool {
    true
}

impl HuntRun {
    /// Whether there is such a hunt; the error names what is wrong and the remedy.
    pub fn check(&self) -> Result<(), String> {
        let searcher = self.searcher.as_str();
        if !SEARCHERS.contains(&searcher) {
            let hint = nearest(searcher, SEARCHERS);
            return Err(format!("hunt: no searcher is called {searcher:?}{hint}"));
        }
        match self.counters.as_str() {
            "diag" | "perf" => Ok(()),
            other => Err(format!("hunt: counters = {other:?}: must be diag or perf")),
        }
    }

    /// As `isolane hunt bench --searchers` takes it.
    pub fn contestant(&self) -> String {
        let mut name = self.searcher.clone();
        if self.counters != "diag" {
            name = format!("{name}:{}", self.counters);
        }
        if !self.reduces {
            name.push_str(":no-mfs");
        }
        name
    }
}

/// What one hunt gave, by the names of [`FIELDS`]; a time that was not reached is absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HuntNumbers(pub BTreeMap<String, f64>);

impl HuntNumbers {
    /// The number `field` of what is called `name`, which is the hunt.
    pub(crate) fn value(&self, name: &str, field: &str) -> Result<f64, String> {
        let value = number(&self.0, ("a hunt", NAME), (name, field))?;
        value.ok_or_else(|| format!("a hunt ended before it had a {field}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Claim;
    use crate::claim::tests::parsed;

    fn parse(metric: &str, rest: &str, run: &str) -> Result<Claim, String> {
        let system = ("collie", "unit = \"count\"\npublished = 13");
        parsed(system, metric, rest, run)
    }

    const HERE: &str = "testbed = \"hunt\"";
    const RUN: &str = "hunt = { searcher = \"anneal\" }";

    #[test]
    fn a_claim_of_a_hunt_is_listed_and_not_run() {
        let claim = parse("r:hunt.found", HERE, RUN).unwrap();
        let report = crate::report::ClaimReport::elsewhere(&claim);
        let text = crate::report::markdown(&[report]);
        assert!(text.contains("1 in comparisons of searchers"), "{text}");
        assert!(!text.contains("| collie |"), "{text}");
    }

    #[test]
    fn what_no_hunt_has_is_refused() {
        let refused = |metric: &str, rest: &str, run: &str| parse(metric, rest, run).unwrap_err();
        assert!(
            refused("r:hunt.found", "", RUN).contains("testbed = \"hunt\" and hunt go together")
        );
        assert!(refused("r:hunt.fond", HERE, RUN).contains("did you mean \"found\""));
        let wrong = "hunt = { searcher = \"aneal\" }";
        assert!(refused("r:hunt.found", HERE, wrong).contains("did you mean \"anneal\""));
        let wrong = "hunt = { searcher = \"anneal\", counters = \"all\" }";
        assert!(refused("r:hunt.found", HERE, wrong).contains("diag or perf"));
    }

    #[test]
    fn a_hunt_is_named_as_the_command_takes_it() {
        let run = HuntRun {
            searcher: "anneal".to_owned(),
            counters: "perf".to_owned(),
            reduces: false,
        };
        assert_eq!(run.contestant(), "anneal:perf:no-mfs");
    }
}

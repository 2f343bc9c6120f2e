//! What a vendor needs to see an anomaly: conditions, figures of repeated runs, counters, versions and scripts.
//!
//! Method: the suite's record, a page for people, and for every reproducer that shows a scenario and two scripts: one for
//! `isolane sim`, one of perftest lines where perftest expresses the workload. The workload that perftest runs differs in its
//! memory regions; it runs here once per seed, and the page says whether it shows the symptom too. Equal suites give equal files.

use super::{Regression, Reproducer, State, Suite, Verdict};
use crate::HuntError;
use crate::monitor::Judgement;
use crate::perftest;
use crate::space::convert::scenario_text;
use isolane_rdma_scenario::check::DeviceLimits;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::RangeInclusive;

/// Counters of one reproducer that the page shows: those that count most.
const COUNTERS_SHOWN: usize = 40;
/// A reproducer's scenario is measured so many times longer than an experiment: it is not measured again.
const LONGER: u64 = 15;

/// One file of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleFile {
    /// Its path within the bundle.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// The bundle of `suite`, the result of `corpus` on `state` with `seeds`. Panics if the suite is of another corpus.
pub fn bundle(
    state: &State<'_>,
    corpus: &[Reproducer],
    suite: &Suite,
    record: &Regression,
    seeds: RangeInclusive<u64>,
) -> Result<Vec<BundleFile>, HuntError> {
    assert_eq!(corpus.len(), suite.cases.len(), "a case per reproducer");
    let mut page = head(suite);
    let mut files = Vec::new();
    let mut folders = BTreeSet::new();
    for (one, case) in corpus.iter().zip(&suite.cases) {
        if case.verdict != Verdict::Shows {
            continue;
        }
        let folder = folder(&one.name, &mut folders);
        write!(page, "\n## {}\n\n", one.name).expect(STRING);
        writeln!(page, "- symptom: {}", one.symptom.name()).expect(STRING);
        writeln!(page, "- workload: {}", case.workload).expect(STRING);
        let conditions = one.conditions.as_deref();
        let conditions = conditions.unwrap_or("not tested on this device");
        writeln!(page, "- conditions: {conditions}").expect(STRING);
        let (text, script) = perftest_text(state, one, seeds.clone())?;
        writeln!(page, "- perftest: {text}").expect(STRING);
        page.push_str(&runs(&case.runs));
        let mut counters: Vec<_> = case.counters.iter().collect();
        counters.sort_by(|left, right| right.1.total_cmp(left.1).then(left.0.cmp(right.0)));
        page.push_str("\n| counter | per second, or ratio |\n|---|---|\n");
        for (name, value) in counters.into_iter().take(COUNTERS_SHOWN) {
            writeln!(page, "| {name} | {value:.4} |").expect(STRING);
        }
        files.push(BundleFile {
            path: format!("{folder}/scenario.toml"),
            text: scenario(state, one),
        });
        if let Some(script) = script {
            files.push(BundleFile {
                path: format!("{folder}/perftest.sh"),
                text: format!(
                    "#!/bin/sh\n# {}: {}\n{script}",
                    one.name,
                    one.symptom.name()
                ),
            });
        }
    }
    files.push(BundleFile {
        path: "README.md".to_owned(),
        text: page,
    });
    let mut text = serde_json::to_string_pretty(record).expect("a record is plain data");
    text.push('\n');
    files.push(BundleFile {
        path: "record.json".to_owned(),
        text,
    });
    Ok(files)
}

const STRING: &str = "writing to a string never fails";

fn head(suite: &Suite) -> String {
    let shows = suite.cases.iter();
    let shows = shows.filter(|case| case.verdict == Verdict::Shows).count();
    let mut page = format!(
        "# RDMA anomalies on {}\n\n{shows} of {} reproducers show their symptom in every run. `NAME/scenario.toml` runs with \
         `isolane sim`, `NAME/perftest.sh` with perftest 4.5. `record.json` has every run; `isolane regress --compare` \
         compares it with another.\n\n| device, host and settings | value |\n|---|---|\n",
        suite.profile,
        suite.cases.len(),
    );
    for (name, value) in &suite.environment {
        writeln!(page, "| {name} | {} |", value.replace('|', "\\|")).expect(STRING);
    }
    page
}

/// A directory's name: letters, digits and dashes of `name`, unlike those in `taken`.
fn folder(name: &str, taken: &mut BTreeSet<String>) -> String {
    let plain = name.rsplit('/').next().unwrap_or(name).chars();
    let plain: String = plain
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let mut folder = plain.clone();
    let mut number = 2;
    while !taken.insert(folder.clone()) {
        folder = format!("{plain}-{number}");
        number += 1;
    }
    folder
}

fn scenario(state: &State<'_>, one: &Reproducer) -> String {
    let lab = state.lab();
    let mut times = lab.times_of(&one.point);
    times.duration = times.duration * LONGER;
    let description = format!("{}: {}", one.name, one.symptom.name());
    let names = ("reproducer", description.as_str());
    scenario_text(&one.point, names, &lab.profile.name, 1, times)
}

fn runs(runs: &[Judgement]) -> String {
    let mut text = "\n| run | paused | of the link | of the packet rate | of the offer |\n\
                    |---|---|---|---|---|\n"
        .to_owned();
    for (index, run) in runs.iter().enumerate() {
        let parts = [run.pause_ratio, run.of_bits, run.of_packets, run.of_offer];
        let parts = parts.map(|part| format!("{:.1} %", part * 100.0));
        writeln!(text, "| {} | {} |", index + 1, parts.join(" | ")).expect(STRING);
    }
    text
}

/// Whether perftest reproduces `one`, in words, and the script.
fn perftest_text(
    state: &State<'_>,
    one: &Reproducer,
    seeds: RangeInclusive<u64>,
) -> Result<(String, Option<String>), HuntError> {
    let limits = DeviceLimits::of(state.lab().profile);
    let found = match perftest::of(&one.point, &limits) {
        Ok(found) => found,
        Err(reason) => return Ok((format!("no: {reason}"), None)),
    };
    let differences = found.differences(&one.point);
    if differences.is_empty() {
        return Ok(("the same workload".to_owned(), Some(found.script())));
    }
    let near = Reproducer {
        point: found.point.clone(),
        ..one.clone()
    };
    let verdict = state.case(&near, seeds)?.verdict;
    let text = format!("{} with {}", verdict.name(), differences.join(" and "));
    let script = (verdict == Verdict::Shows).then(|| found.script());
    Ok((text, script))
}

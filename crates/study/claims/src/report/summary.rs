//! `CLAIMS.md` and `claims/outcomes.txt`: the score of each system with every miss, and the outcome of every claim.
//!
//! Out-of-sample claims are predictions without [`ClaimReport::seen`]. In-sample claims are all others. The two rates are stated
//! apart.

use super::{ClaimReport, Tally};
use crate::claim::{ClaimKind, ClaimTestbed};
use std::fmt::Write as _;

/// Testbeds that another command runs, and where their results are.
const ELSEWHERE: [(ClaimTestbed, &str); 4] = [
    (
        ClaimTestbed::SoftNic,
        "on the soft network card, below a real kernel: `isolane nic study --check-claims`. The numbers depend on the machine.",
    ),
    (
        ClaimTestbed::Planner,
        "in the query planner: `isolane edge plan --check-claims`. Results: [planner-claims.md](docs/internals/planner-claims.md).",
    ),
    (
        ClaimTestbed::Hunt,
        "in comparisons of searchers: `make bench-hunt`. Results: [hunt-claims.md](docs/internals/hunt-claims.md).",
    ),
    (
        ClaimTestbed::Lab,
        "on Soft-RoCE and siw in a virtual machine: `make lab`, then `isolane claims --lab out/lab`. Results: \
         [lab-claims.md](docs/internals/lab-claims.md).",
    ),
];

/// What `make cross-validation` printed: commands, their tables, and sums for `.ci/claims`.
const CROSS_VALIDATION: &str = include_str!("../../../../../claims/cross-validation.txt");

/// How a line with a sum begins.
const SUM: &str = "outcomes of ";

/// `CLAIMS.md`: the rates of each system, and every miss in one line.
pub fn markdown(reports: &[ClaimReport]) -> String {
    let mut text = String::from(
        "# Claims\n\n\
         What the papers state in numbers, and what Isolane's simulators give. `make claims` writes this page; do not edit it.\n\n\
         - `prediction`: no parameter, setting or mechanism was changed to meet the published number.\n\
         - `calibration`: a parameter, setting or mechanism was changed to meet it.\n\
         - Out-of-sample: predictions for whose sake, as far as the history shows, no mechanism or setting was changed; no change has moved their values.\n\
         - In-sample: all calibrations and all other predictions.\n\
         - `ordering`: words that are read as a number, and comparisons that hardly can fail. They count apart.\n\
         - `arithmetic`: the claim follows from formats, definitions and formulas.\n\n\
         Tolerances are fixed before the run. A claim over several seeds holds only if its value and four of five seeds hold.\n\
         The run that writes this page also checks the reasons of misses: a miss runs again with the change that its reason names.\n\
         A confirmed reason need not be the cause: another change may have the same effect. The number in the change is chosen for this claim and has no source, and other claims may miss with it. `isolane claims --why` prints the reasons. \
         `isolane claims --report DIR` writes a page with every claim, its statement, source and reason, to search and filter.\n\
         [claims/outcomes.txt](claims/outcomes.txt) has the outcome of every claim. \
         [The format](docs/internals/claims.md) of a claim.\n\n",
    );
    text.push_str(
        "| system | in-sample | out-of-sample | predictions of both | orderings | arithmetic | number withheld |\n\
         |---|---|---|---|---|---|---|\n",
    );
    let ran = || reports.iter().filter(|report| report.ran);
    for system in systems(reports) {
        let of_system = || ran().filter(|report| report.system == system);
        if of_system().next().is_some() {
            let _ = writeln!(
                text,
                "| {system} {}|",
                cells(&of_system().collect::<Vec<_>>())
            );
        }
    }
    let _ = writeln!(text, "| all {}|", cells(&ran().collect::<Vec<_>>()));
    let totals: Vec<String> = [
        ClaimKind::Calibration,
        ClaimKind::Prediction,
        ClaimKind::Ordering,
        ClaimKind::Arithmetic,
    ]
    .into_iter()
    .map(|kind| {
        let (within, judged) = rate(ran().filter(|report| report.kind == kind));
        format!("{}: {within} of {judged} within tolerance", kind.name())
    })
    .collect();
    let missed = || ran().filter(|report| report.within == Some(false));
    let judged = |confirmed| missed().filter(move |report| report.confirmed == confirmed);
    let _ = write!(
        text,
        "\n{}.\n\n{}\n\n{}## Misses\n\n{} misses: {} have a reason that a run confirms, {} one that a run refutes; the cause of the \
         {} others is unknown.\n",
        totals.join("; "),
        basis(&ran().collect::<Vec<_>>()),
        cross_validation(reports),
        missed().count(),
        judged(Some(true)).count(),
        judged(Some(false)).count(),
        judged(None).count()
    );
    misses(&mut text, reports);
    elsewhere(&mut text, reports);
    text
}

/// The rates of the last cross-validation, which takes too long to run with the claims; nothing without its claims.
fn cross_validation(reports: &[ClaimReport]) -> String {
    let is_listed = |report: &ClaimReport| report.ran && report.system == "titan";
    if !reports.iter().any(is_listed) {
        return String::new();
    }
    let tables: Vec<&str> = CROSS_VALIDATION
        .lines()
        .filter(|line| !line.starts_with(SUM))
        .collect();
    format!(
        "## Cross-validation\n\n\
         `left out` counts the claims that hold with parameters that are fitted to the other claims. What is left out together with a \
         claim: of Titan's table 3, the claims about the same configuration; of Husky, the claims of the same scenario, and of its matrix \
         (table 4.3) the column of the same attackers, under every policy. Of Vulcan nothing was fitted to a published number. \
         Each claim is judged by all of its seeds, as elsewhere on this page. Differences of a few claims are noise. \
         `make cross-validation` measures the rates again. [Method, costs and limits](docs/internals/claims.md#cross-validation).\n\n\
         ```text\n{}\n```\n\n",
        tables.join("\n")
    )
}

/// Each miss in one line, by system.
fn misses(text: &mut String, reports: &[ClaimReport]) {
    for system in systems(reports) {
        let missed: Vec<&ClaimReport> = reports
            .iter()
            .filter(|report| report.ran && report.system == system && report.within == Some(false))
            .collect();
        if missed.is_empty() {
            continue;
        }
        let _ = write!(text, "\n{system}:\n\n");
        for report in missed {
            let _ = writeln!(
                text,
                "- `{}` ({}): {}, published {}{}",
                report.id,
                report.kind.name(),
                report.ours_text(),
                report.published_text(),
                remark(report)
            );
        }
    }
}

/// What this command did not run, and which one does.
fn elsewhere(text: &mut String, reports: &[ClaimReport]) {
    let elsewhere: Vec<(usize, &str)> = ELSEWHERE
        .into_iter()
        .map(|(testbed, place)| {
            let on = |report: &&ClaimReport| !report.ran && report.testbed == testbed;
            (reports.iter().filter(on).count(), place)
        })
        .filter(|(count, _)| *count > 0)
        .collect();
    if !elsewhere.is_empty() {
        text.push_str("\n## Claims that another command checks\n\n");
        for (count, place) in elsewhere {
            let _ = writeln!(text, "- {count} {place}");
        }
    }
}

/// A line per claim, separated by tabs: system and id, verdict, our value, the published one.
pub fn outcomes(reports: &[ClaimReport]) -> String {
    let mut text = String::new();
    for report in reports.iter().filter(|report| report.ran) {
        let (system, id, verdict) = (&report.system, &report.id, report.verdict_text());
        let (ours, published) = (report.ours_text(), report.published_text());
        let _ = writeln!(text, "{system}/{id}\t{verdict}\t{ours}\t{published}");
    }
    text
}

/// On how many claims the out-of-sample rate rests, in a sentence.
fn basis(reports: &[&ClaimReport]) -> String {
    let judged = |counts: Counts| {
        let counted = reports.iter().copied();
        rate(counted.filter(|report| counts(report))).1
    };
    let unseen = |report: &ClaimReport| is_prediction(report) && !report.seen;
    let ordering = |report: &ClaimReport| report.kind == ClaimKind::Ordering;
    format!(
        "The out-of-sample rate rests on {} of {} judged predictions; the other {} are in-sample. A miss that led to a change of the \
         model is in-sample, so the rate is too favourable: [how many predictions held in their first run](docs/internals/claims.md#first-runs). \
         {} orderings are in neither rate.",
        judged(unseen),
        judged(is_prediction),
        judged(is_prediction) - judged(unseen),
        judged(ordering)
    )
}

fn systems(reports: &[ClaimReport]) -> Vec<&str> {
    let mut systems: Vec<&str> = reports
        .iter()
        .map(|report| report.system.as_str())
        .collect();
    systems.sort_unstable();
    systems.dedup();
    systems
}

/// What the run found of a miss's reason, or why the claim has no value.
fn remark(report: &ClaimReport) -> String {
    match (report.confirmed, &report.reason) {
        (Some(true), _) => "; reason confirmed".to_owned(),
        (Some(false), _) => "; reason refuted".to_owned(),
        (None, Some(reason)) if !report.is_of_unknown_cause() => format!(". {}", one_line(reason)),
        (None, _) => String::new(),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Claims within tolerance, and those that were judged.
fn rate<'a>(reports: impl Iterator<Item = &'a ClaimReport>) -> (usize, usize) {
    let tally = Tally::of(reports);
    (tally.within, tally.within + tally.missed)
}

/// Which claims a column counts.
type Counts = fn(&ClaimReport) -> bool;

/// The columns of the rates.
const COLUMNS: [Counts; 5] = [
    |report| report.kind == ClaimKind::Calibration || is_prediction(report) && report.seen,
    |report| is_prediction(report) && !report.seen,
    is_prediction,
    |report| report.kind == ClaimKind::Ordering,
    |report| report.kind == ClaimKind::Arithmetic,
];

fn is_prediction(report: &ClaimReport) -> bool {
    report.kind == ClaimKind::Prediction
}

/// The cells of a row, each behind its separator.
fn cells(reports: &[&ClaimReport]) -> String {
    let mut text = String::new();
    for counts in COLUMNS {
        let counted = reports.iter().copied().filter(|report| counts(report));
        let (within, judged) = rate(counted);
        let _ = match judged {
            0 => write!(text, "| none "),
            _ => write!(
                text,
                "| {within} of {judged} ({:.0}\u{a0}%) ",
                100.0 * within as f64 / judged as f64
            ),
        };
    }
    let _ = write!(text, "| {} ", Tally::of(reports.iter().copied()).reported);
    text
}

//! `CLAIMS.md` and `claims/outcomes.txt`: the score of each system with every miss, and the outcome of every claim.
//!
//! In-sample claims are those of kind `calibration`: a parameter, a setting or a mechanism was changed after their outcome was
//! seen. Out-of-sample claims are those of kind `prediction`. The two rates are stated apart.

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

/// `CLAIMS.md`: the rates of each system, and every miss in one line.
pub fn markdown(reports: &[ClaimReport]) -> String {
    let mut text = String::from(
        "# Claims\n\n\
         What the papers state in numbers, and what Isolane's simulators give. `make claims` writes this page; do not edit it.\n\n\
         - `prediction`: no parameter, setting or mechanism was changed after the outcome was seen (out-of-sample).\n\
         - `calibration`: one was (in-sample).\n\
         - `arithmetic`: the claim follows from formats and definitions.\n\n\
         Tolerances are fixed before the run. `isolane claims --report DIR` writes a page with every claim, its statement, source and \
         reason, to search and filter.\n\
         [claims/outcomes.txt](claims/outcomes.txt) has the outcome of every claim. \
         [The format](docs/internals/claims.md) of a claim.\n\n",
    );
    text.push_str(
        "| system | predictions within tolerance | calibrations within tolerance | arithmetic | published number withheld |\n\
         |---|---|---|---|---|\n",
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
        ClaimKind::Arithmetic,
    ]
    .into_iter()
    .map(|kind| {
        let (within, judged) = rate(ran(), kind);
        format!("{}: {within} of {judged} within tolerance", kind.name())
    })
    .collect();
    let _ = write!(text, "\n{}.\n\n## Misses\n", totals.join("; "));
    for system in systems(reports) {
        let missed: Vec<&ClaimReport> = ran()
            .filter(|report| report.system == system && report.within == Some(false))
            .collect();
        if missed.is_empty() {
            continue;
        }
        let _ = write!(text, "\n{system}:\n\n");
        for report in missed {
            let _ = writeln!(
                text,
                "- `{}` ({}): {}, published {}",
                report.id,
                report.kind.name(),
                report.ours_text(),
                report.published_text()
            );
        }
    }
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
    text
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

fn systems(reports: &[ClaimReport]) -> Vec<&str> {
    let mut systems: Vec<&str> = reports
        .iter()
        .map(|report| report.system.as_str())
        .collect();
    systems.sort_unstable();
    systems.dedup();
    systems
}

/// Claims of `kind` within tolerance, and those that were judged.
fn rate<'a>(reports: impl Iterator<Item = &'a ClaimReport>, kind: ClaimKind) -> (usize, usize) {
    let tally = Tally::of(reports.filter(|report| report.kind == kind));
    (tally.within, tally.within + tally.missed)
}

/// The cells of a row, each behind its separator.
fn cells(reports: &[&ClaimReport]) -> String {
    let mut text = String::new();
    for kind in [
        ClaimKind::Prediction,
        ClaimKind::Calibration,
        ClaimKind::Arithmetic,
    ] {
        let (within, judged) = rate(reports.iter().copied(), kind);
        let _ = match judged {
            0 => write!(text, "| none "),
            _ => write!(
                text,
                "| {within} of {judged} ({:.0} %) ",
                100.0 * within as f64 / judged as f64
            ),
        };
    }
    let _ = write!(text, "| {} ", Tally::of(reports.iter().copied()).reported);
    text
}

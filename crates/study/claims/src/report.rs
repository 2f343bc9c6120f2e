//! What came out, for people (a table), programs (JSON) and the repository (Markdown).

use crate::claim::{Claim, ClaimKind, ClaimTestbed};
use crate::expression::Value;
use crate::verdict::{Over, Published, Tolerance, Unit};
use isolane_common_text_output::{Table, counted};
use serde::Serialize;
use std::fmt::Write as _;

mod devices;
mod summary;

pub use devices::devices;
pub use summary::{markdown, outcomes};

/// One claim's outcome; the JSON form of `isolane claims --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClaimReport {
    /// The claim's id.
    pub id: String,
    /// The system it is about.
    pub system: String,
    /// Paper and section.
    pub paper: String,
    /// What is claimed.
    pub statement: String,
    /// Calibration, prediction or arithmetic.
    pub kind: ClaimKind,
    /// What its runs are made on.
    pub testbed: ClaimTestbed,
    /// The real device, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<&'static str>,
    /// False where this testbed is another one, so that it was only listed.
    pub ran: bool,
    /// Unit of `published` and `ours`.
    pub unit: Unit,
    /// The published number, `true` for an ordering, absent when withheld.
    pub published: Option<Value>,
    /// How `published` is meant.
    pub relation: Relation,
    /// Ours; absent when it could not be measured.
    pub ours: Option<Value>,
    /// How far ours may be off.
    pub tolerance: Tolerance,
    /// Whether it is not; absent when nothing is published.
    pub within: Option<bool>,
    /// Whether it is in-sample, see [`Claim::seen`](crate::claim::Claim::seen).
    pub seen: bool,
    /// Why ours is off or absent, in a sentence for people.
    pub reason: Option<String>,
    /// The reason that the claim's file gives for a miss.
    pub because: Option<String>,
    /// Our value with the change that the reason names; absent where no such run was made.
    pub changed: Option<Value>,
    /// Whether the claim holds with that change, as measured; absent where no such run was made: the cause is then unknown.
    pub confirmed: Option<bool>,
    /// How our experiment differs from the paper's.
    pub note: Option<String>,
    /// The formula.
    pub metric: String,
    /// Ours, seed by seed.
    pub per_seed: Vec<Value>,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// How their values became one.
    pub over: Over,
}

/// How a published number is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// Ours should be about the same.
    Equal,
    /// Ours should be at least this.
    AtLeast,
    /// Ours should be at most this.
    AtMost,
    /// A comparison should hold.
    Ordering,
    /// No number is available.
    Withheld,
}

impl ClaimReport {
    /// Of a claim for another testbed than the present one.
    pub fn elsewhere(claim: &Claim) -> Self {
        Self {
            ran: false,
            ..Self::new(claim, None, Vec::new(), None, None)
        }
    }

    pub(crate) fn new(
        claim: &Claim,
        ours: Option<Value>,
        per_seed: Vec<Value>,
        within: Option<bool>,
        failure: Option<String>,
    ) -> Self {
        let (published, relation) = match claim.published {
            Published::Value(value) => (Some(Value::Number(value)), Relation::Equal),
            Published::AtLeast(value) => (Some(Value::Number(value)), Relation::AtLeast),
            Published::AtMost(value) => (Some(Value::Number(value)), Relation::AtMost),
            Published::Ordering => (Some(Value::Truth(true)), Relation::Ordering),
            Published::Withheld => (None, Relation::Withheld),
        };
        let missed = within == Some(false);
        let because = claim.miss_reason.clone().filter(|_| missed);
        let unknown = match &because {
            Some(because) => format!("{UNKNOWN} Not checked: {because}"),
            None => UNKNOWN.to_owned(),
        };
        Self {
            id: claim.id.clone(),
            system: claim.system.clone(),
            paper: claim.paper.clone(),
            statement: claim.statement.clone(),
            kind: claim.kind,
            testbed: claim.testbed,
            device: claim
                .runs
                .iter()
                .find_map(|run| run.lab.as_ref()?.device_name()),
            ran: true,
            unit: claim.unit,
            published,
            relation,
            ours,
            tolerance: claim.tolerance,
            within,
            seen: claim.seen,
            reason: failure.or(missed.then_some(unknown)),
            because,
            changed: None,
            confirmed: None,
            note: claim.note.clone(),
            metric: claim.metric_text.clone(),
            per_seed,
            seeds: claim.seeds.clone(),
            over: claim.over,
        }
    }

    /// Takes `checked`, the same claim with the change that its reason names, as the judgement of that reason.
    pub(crate) fn judge_reason(&mut self, checked: &Self) {
        let confirmed = checked.within == Some(true);
        self.changed = checked.ours;
        self.confirmed = Some(confirmed);
        if let Some(because) = &self.because {
            self.reason = Some(match confirmed {
                true => because.clone(),
                false => format!("Refuted by its check: {because}"),
            });
        }
    }

    /// Whether nothing is known of a miss: no run confirmed or refuted its reason, and it was measured.
    fn is_of_unknown_cause(&self) -> bool {
        let reason = self.reason.as_deref();
        self.confirmed.is_none() && reason.is_some_and(|reason| reason.starts_with(UNKNOWN))
    }

    /// Our value with the change of the reason as people read it, where that was run.
    pub fn changed_text(&self) -> Option<String> {
        self.confirmed?;
        let none = || "none".to_owned();
        Some(self.changed.map_or_else(none, |value| self.text(value)))
    }

    /// The published value as people read it: `1.85x`, `>= 2.85x`, `holds`, `withheld`.
    pub fn published_text(&self) -> String {
        let value = self.published.map(|value| self.text(value));
        match (self.relation, value) {
            (Relation::AtLeast, Some(value)) => format!(">= {value}"),
            (Relation::AtMost, Some(value)) => format!("<= {value}"),
            (_, Some(value)) => value,
            (_, None) => "withheld".to_owned(),
        }
    }

    /// Our value as people read it.
    pub fn ours_text(&self) -> String {
        self.ours
            .map_or_else(|| "none".to_owned(), |value| self.text(value))
    }

    /// `within`, `MISS`, `reported` (nothing published), or `not run` (on this testbed).
    pub fn verdict_text(&self) -> &'static str {
        match self.within {
            _ if !self.ran => "not run",
            Some(true) => "within",
            Some(false) => "MISS",
            None => "reported",
        }
    }

    fn text(&self, value: Value) -> String {
        match value {
            Value::Truth(true) => "holds".to_owned(),
            Value::Truth(false) => "does not hold".to_owned(),
            Value::Number(number) => format!("{}{}", significant(number), self.unit.suffix()),
        }
    }
}

/// How the reason of a miss begins that no run checked.
const UNKNOWN: &str = "Cause unknown.";

/// Four significant digits without trailing zeros; whole numbers in full.
fn significant(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    let magnitude = number.abs().log10().floor();
    let decimals = (3.0 - magnitude).clamp(0.0, 9.0) as usize;
    let text = format!("{number:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// How many of each verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Claims met.
    pub within: usize,
    /// Claims missed.
    pub missed: usize,
    /// Claims without a published number.
    pub reported: usize,
    /// Claims for another testbed.
    pub elsewhere: usize,
}

impl Tally {
    /// Counts `reports`.
    pub fn of<'a>(reports: impl IntoIterator<Item = &'a ClaimReport>) -> Self {
        let mut tally = Self::default();
        for report in reports {
            match report.within {
                _ if !report.ran => tally.elsewhere += 1,
                Some(true) => tally.within += 1,
                Some(false) => tally.missed += 1,
                None => tally.reported += 1,
            }
        }
        tally
    }
}

/// The table a terminal shows: columns padded to their widest member, reasons of misses below their row. Where that is
/// wider than `width`, the table folds and the reasons are below it.
pub fn table(reports: &[ClaimReport], width: Option<usize>) -> String {
    let head = ["claim", "kind", "published", "ours", "tolerance", "verdict"].map(str::to_owned);
    let rows: Vec<[String; 6]> = reports.iter().map(row).collect();
    let mut widths = head.each_ref().map(String::len);
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let full: usize = widths.iter().map(|width| width + 2).sum();
    let mut text = match width.is_some_and(|width| full > width) {
        true => folded(&head, reports, &rows, width),
        false => {
            let mut text = line(&head, &widths);
            for (report, row) in reports.iter().zip(&rows) {
                text.push_str(&line(row, &widths));
                if let Some(reason) = report.reason_of_miss() {
                    let _ = writeln!(text, "    why: {reason}");
                }
            }
            text
        }
    };
    let tally = Tally::of(reports);
    let _ = write!(
        text,
        "{}: {} within tolerance, {} missed, {} reported without a published number",
        counted(reports.len() as u64, "claim"),
        tally.within,
        tally.missed,
        tally.reported
    );
    for (testbed, place) in ELSEWHERE {
        let on = |report: &&ClaimReport| !report.ran && report.testbed == testbed;
        let count = reports.iter().filter(on).count();
        if count > 0 {
            let _ = write!(text, ", {count} for the {place}");
        }
    }
    text.push('\n');
    text
}

/// The table in blocks of columns, and the reasons of misses.
fn folded(
    head: &[String; 6],
    reports: &[ClaimReport],
    rows: &[[String; 6]],
    width: Option<usize>,
) -> String {
    let mut table = Table::new("llllll", head);
    for row in rows {
        table.row(row.to_vec());
    }
    let mut text = table.render_within(width, false);
    for (report, row) in reports.iter().zip(rows) {
        if let Some(reason) = report.reason_of_miss() {
            let _ = writeln!(text, "  why {} misses: {reason}", row[0]);
        }
    }
    text
}

impl ClaimReport {
    /// Why it misses, where it misses and the claim has a reason.
    fn reason_of_miss(&self) -> Option<&str> {
        let missed = self.within == Some(false);
        self.reason.as_deref().filter(|_| missed)
    }
}

/// Testbeds that another command runs, and what they are called.
const ELSEWHERE: [(ClaimTestbed, &str); 4] = [
    (
        ClaimTestbed::SoftNic,
        "soft network card (isolane nic study --check-claims)",
    ),
    (
        ClaimTestbed::Planner,
        "query planner (isolane edge plan --check-claims)",
    ),
    (
        ClaimTestbed::Hunt,
        "comparison of searchers (isolane hunt bench --check-claims)",
    ),
    (ClaimTestbed::Lab, "lab's real devices (make lab)"),
];

fn row(report: &ClaimReport) -> [String; 6] {
    [
        format!("{}/{}", report.system, report.id),
        report.kind.name().to_owned(),
        report.published_text(),
        report.ours_text(),
        report.tolerance.to_string(),
        report.verdict_text().to_owned(),
    ]
}

fn line(cells: &[String; 6], widths: &[usize; 6]) -> String {
    let mut text = String::new();
    for (cell, width) in cells.iter().zip(widths) {
        let _ = write!(text, "{cell:<width$}  ");
    }
    format!("{}\n", text.trim_end())
}

/// Sections for pages: misses first with their reasons, then the rest.
pub fn verdicts(reports: &[&ClaimReport]) -> String {
    let mut text = String::new();
    section(&mut text, "Missed", reports, Some(false));
    section(&mut text, "Within tolerance", reports, Some(true));
    section(&mut text, "Published number withheld", reports, None);
    text
}

fn section(text: &mut String, title: &str, reports: &[&ClaimReport], within: Option<bool>) {
    let mut members = reports
        .iter()
        .filter(|report| report.ran && report.within == within)
        .peekable();
    if members.peek().is_none() {
        return;
    }
    let last = if within == Some(false) { "why" } else { "note" };
    let _ = write!(
        text,
        "\n### {title}\n\n| claim | statement | source | kind | published | ours | tolerance | {last} |\n|---|---|---|---|---|---|---|---|\n"
    );
    for report in members {
        let remark = match within {
            Some(false) => report.reason.as_ref(),
            _ => report.note.as_ref(),
        };
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} | {} | {} | {} |",
            report.id,
            cell(&report.statement),
            cell(&report.paper),
            report.kind.name(),
            report.published_text(),
            report.ours_text(),
            report.tolerance,
            cell(remark.map_or("", String::as_str))
        );
    }
}

/// One line without column separators.
fn cell(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests;

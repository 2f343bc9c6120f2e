//! The policies side by side: which isolation should I buy or build?
//!
//! One line per policy, the one that breaks fewest pairs first (of equals the one that uses more of the NIC), and
//! policies that need hardware that is not on sale behind all others, with a star: broken pairs, the columns of husky
//! table 4.3 with a tick where no pair breaks, and the figures of [`crate::figures`]. Below the table, each policy has
//! the resources that ran out in its broken pairs, most frequent first.
//!
//! Limits: pairs count alike. A reader who has one victim to protect reads the row of that victim in the matrix.

use crate::cell::{self, Verdict};
use crate::figures::{COLUMNS, ColumnSummary, heading};
use crate::matrix::{AuditResult, PolicySummary};
use crate::table::{BOLD, GREEN, GREY, RED, Style, cause};
use isolane_common_text_output::{Cell, Table};
use isolane_rdma_scenario::stack::{NOT_ON_SALE, marked};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Causes named per policy; the rest is counted.
const CAUSES: usize = 2;

/// The question that the table answers.
pub const QUESTION: &str = "Which isolation should I buy or build?";

/// The summaries, best first: what can be bought, then fewest broken pairs, then most utilisation, then the order of
/// the request.
pub fn ranked(result: &AuditResult) -> Vec<&PolicySummary> {
    let mut ranked: Vec<&PolicySummary> = result.summaries.iter().collect();
    let utilisation = |summary: &PolicySummary| summary.figures.map_or(0.0, |f| f.utilisation);
    ranked.sort_by(|one, other| {
        (!one.on_sale, one.violations)
            .cmp(&(!other.on_sale, other.violations))
            .then(utilisation(other).total_cmp(&utilisation(one)))
    });
    ranked
}

/// The broken pairs of `policy` by the resource that ran out, most frequent first.
pub fn causes(result: &AuditResult, policy: &str) -> Vec<(String, u32)> {
    let broken = |cell: &&cell::Cell| cell.policy == policy && cell.verdict == Verdict::Violation;
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for cell in result.cells.iter().filter(broken) {
        *counts.entry(cause(cell)).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
}

/// The table and what each policy leaves open, ending in a newline.
pub(crate) fn render(result: &AuditResult, style: Style) -> String {
    let ranked = ranked(result);
    let mut text = String::new();
    let title = format!("{QUESTION} On {}, best first", result.profile);
    let _ = writeln!(text, "{}", style.paint(BOLD, &title));
    let columns: Vec<_> = COLUMNS
        .into_iter()
        .filter(|column| {
            let mut all = ranked.iter().flat_map(|summary| &summary.columns);
            all.any(|summary| summary.column == *column)
        })
        .collect();
    let headings = ["policy", "broken"]
        .into_iter()
        .chain(columns.iter().map(|&column| heading(column)))
        .chain(["used", "vs none", "fair", "cores", "idle p50", "idle p99"]);
    let headings: Vec<Cell> = headings.map(|name| Cell::painted(name, GREY)).collect();
    let mut table = Table::new("l".repeat(headings.len()), &headings).stacked();
    for summary in &ranked {
        let code = if summary.violations > 0 { RED } else { GREEN };
        let mut row = vec![
            Cell::painted(marked(&summary.policy), BOLD),
            Cell::painted(format!("{}/{}", summary.violations, summary.cells), code),
        ];
        row.extend(columns.iter().map(|column| {
            let found = summary.columns.iter().find(|other| other.column == *column);
            mark(found)
        }));
        row.extend(figures(summary).map(Cell::from));
        table.row(row);
    }
    text.push_str(&table.render_within(style.width, style.colour));
    let explanation = "  used: sum of dominant shares, mean over the pairs; vs none: the same over that of none; \
                       fair: Jain's index of rate over guarantee\n  cores: CPU of the policy, mean over the pairs; idle: \
                       latency added to a latency victim that is alone, us\n";
    text.push_str(&style.paint(GREY, explanation.trim_end()));
    if ranked.iter().any(|summary| !summary.on_sale) {
        let line = format!("\n  {NOT_ON_SALE}, and comes after hardware on sale");
        text.push_str(&style.paint(GREY, &line));
    }
    text.push_str("\n\nWhat each one leaves open\n");
    let label = ranked.iter().map(|s| s.policy.chars().count()).max();
    for summary in &ranked {
        let _ = writeln!(
            text,
            "  {:label$}  {}",
            summary.policy,
            open(result, summary),
            label = label.unwrap_or(0)
        );
    }
    for left in &result.policies_left_out {
        let _ = writeln!(text, "  left out: {}: {}", left.policy, left.reason);
    }
    text
}

/// What `summary`'s policy does not protect against, in one line.
fn open(result: &AuditResult, summary: &PolicySummary) -> String {
    let causes = causes(result, &summary.policy);
    if causes.is_empty() {
        return "nothing that was tried".to_owned();
    }
    let mut named: Vec<String> = causes
        .iter()
        .take(CAUSES)
        .map(|(cause, count)| format!("{cause} ({count})"))
        .collect();
    let rest: u32 = causes.iter().skip(CAUSES).map(|(_, count)| count).sum();
    if rest > 0 {
        named.push(format!("others ({rest})"));
    }
    named.join("; ")
}

/// The figures of a policy in the order of the headings; a dash for what there is not.
fn figures(summary: &PolicySummary) -> [String; 6] {
    let Some(figures) = summary.figures else {
        return std::array::from_fn(|_| "-".to_owned());
    };
    let dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    [
        format!("{:.0} %", figures.utilisation * 100.0),
        dash(figures.utilisation_of_none.map(|part| format!("{part:.2}"))),
        dash(figures.fairness.map(|index| format!("{index:.2}"))),
        format!("{:.2}", figures.policy_cores_mean),
        dash(figures.idle_p50_added_us.map(added)),
        dash(figures.idle_p99_added_us.map(added)),
    ]
}

/// A difference with its sign; none where it rounds to nothing.
fn added(us: f64) -> String {
    match format!("{us:+.2}").as_str() {
        "+0.00" | "-0.00" => "0".to_owned(),
        text => text.to_owned(),
    }
}

fn mark(column: Option<&ColumnSummary>) -> Cell {
    match column {
        Some(column) if column.cells > 0 && column.violations == 0 => Cell::painted("✓", GREEN),
        Some(column) if column.cells > 0 => {
            Cell::painted(format!("✗ {}/{}", column.violations, column.cells), RED)
        }
        _ => Cell::painted("–", GREY),
    }
}

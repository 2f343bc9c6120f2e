//! The result as text for a terminal. More than two policies are compared in a table first ([`crate::comparison`]); of
//! more than [`MATRICES_MAX`] only that table is shown, unless an option requests the matrices.
//!
//! The matrix: victims down, attackers across, one mark per cell.
//!
//! Attackers are grouped by category; a column is one attacker. The last digit of an attacker's number is above its
//! column, and the legend below the matrices lists the numbers. A matrix wider than the terminal continues in a second
//! block. Marks, as in the HTML report: a tick for a kept promise, a cross for a violation, a question mark where the
//! runs did not settle, a dash where the cell does not apply, a space where it was not run; a tilde behind a mark says
//! that the value is near its limit, or that the seeds, or the windows of a run, disagree. The totals, the worst victim
//! and the reasons follow: the violations by the resource that ran out, each with its worst pair. Plain text without
//! colour is the same text without escape codes.

use crate::cell::{Attacker, Cell, JudgedMetric, Verdict};
use crate::comparison;
use crate::exhaustion::NOT_SATURATED;
use crate::matrix::{AuditResult, PolicySummary};
use isolane_common_quantities::stats::summary::median;
use isolane_common_text_output::counted;
use isolane_rdma_scenario::stack::{NOT_ON_SALE, marked};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// How to print.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// Use ANSI colours.
    pub colour: bool,
    /// Leave out the matrices: the comparison alone.
    pub comparison_only: bool,
    /// Columns of the terminal; tables fold where they are wider. None for as wide as they are.
    pub width: Option<usize>,
}

/// Policies up to which the matrices are printed unasked: more fill several screens.
pub const MATRICES_MAX: usize = 3;

pub(crate) const RED: &str = "\x1b[31;1m";
pub(crate) const GREEN: &str = "\x1b[32m";
pub(crate) const GREY: &str = "\x1b[90m";
pub(crate) const BOLD: &str = "\x1b[1m";
const RESET: &str = "\x1b[0m";

impl Style {
    pub(crate) fn paint(self, code: &str, text: &str) -> String {
        match self.colour {
            true => format!("{code}{text}{RESET}"),
            false => text.to_owned(),
        }
    }
}

/// Every policy's matrix, its summary, its worst victim and the reasons, ending in a newline.
pub fn render(result: &AuditResult, style: Style) -> String {
    if result.cells.is_empty() && result.progress.partial {
        let total = counted(result.progress.runs_total, "run");
        let done = result.progress.runs_done;
        return format!(
            "no pair has a verdict yet: {done} of {total} done; add --resume to go on\n"
        );
    }
    let mut text = String::new();
    if result.policies.len() > 2 || style.comparison_only {
        text.push_str(&comparison::render(result, style));
        text.push('\n');
    }
    if !style.comparison_only {
        for summary in &result.summaries {
            matrix(&mut text, result, summary, style);
            text.push('\n');
        }
        legend(&mut text, result, style);
    }
    if result.progress.partial {
        let _ = writeln!(
            text,
            "partial: {} of {} done; add --resume to go on",
            result.progress.runs_done,
            counted(result.progress.runs_total, "run")
        );
    }
    text
}

/// Columns of text in the legend, unless one name is longer.
const LEGEND_WIDTH: usize = 100;

/// What the marks mean, and the attacker of each column.
fn legend(text: &mut String, result: &AuditResult, style: Style) {
    if result.summaries.iter().any(|summary| !summary.on_sale) {
        let _ = writeln!(text, "{NOT_ON_SALE}");
    }
    let _ = writeln!(
        text,
        "{} keeps isolation  {} breaks it  {} not settled  {} does not apply  ~ near the limit, or the seeds disagree",
        style.paint(GREEN, "✓"),
        style.paint(RED, "✗"),
        style.paint(BOLD, "?"),
        style.paint(GREY, "–"),
    );
    let mut number = 0;
    for (category, attackers) in groups(result) {
        let mut line = format!("attackers, {category}:");
        for attacker in attackers {
            number += 1;
            let entry = format!(" {number} {}", attacker.name);
            if line.len() + entry.len() > LEGEND_WIDTH {
                let _ = writeln!(text, "{line}");
                line = "   ".to_owned();
            }
            line.push_str(&entry);
        }
        let _ = writeln!(text, "{line}");
    }
}

/// Attackers by category, both in the catalogue's order.
fn groups(result: &AuditResult) -> Vec<(&str, Vec<&Attacker>)> {
    let mut groups: Vec<(&str, Vec<&Attacker>)> = Vec::new();
    for attacker in &result.attackers {
        match groups
            .iter_mut()
            .find(|(name, _)| *name == attacker.category)
        {
            Some((_, members)) => members.push(attacker),
            None => groups.push((&attacker.category, vec![attacker])),
        }
    }
    groups
}

fn matrix(text: &mut String, result: &AuditResult, summary: &PolicySummary, style: Style) {
    let cells: BTreeMap<(&str, &str), &Cell> = result
        .cells
        .iter()
        .filter(|cell| cell.policy == summary.policy)
        .map(|cell| ((cell.victim.as_str(), cell.attacker.as_str()), cell))
        .collect();
    let edges: BTreeSet<&str> = cells
        .iter()
        .filter(|(_, cell)| cell.borderline)
        .map(|((_, attacker), _)| *attacker)
        .collect();
    let names = result
        .victims
        .iter()
        .map(|victim| victim.name.chars().count());
    let label = names.max().unwrap_or(0).max("victim".len());
    let title = format!("policy {} on {}", marked(&summary.policy), result.profile);
    let _ = writeln!(text, "{}", style.paint(BOLD, &title));
    let grid = Grid {
        result,
        cells,
        edges,
        label,
        style,
    };
    let room = style.width.map(|width| width.saturating_sub(2 + label));
    let blocks = grid.blocks(groups(result), room.unwrap_or(usize::MAX));
    for (index, block) in blocks.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        grid.block(text, block);
    }
    totals(text, result, summary, style);
    settled(text, grid.cells.values());
    reasons(text, result, summary, style);
}

/// Some attackers of a category, and how many columns precede them.
struct Group<'a> {
    name: &'a str,
    members: Vec<&'a Attacker>,
    before: usize,
}

/// One policy's matrix.
struct Grid<'a> {
    result: &'a AuditResult,
    cells: BTreeMap<(&'a str, &'a str), &'a Cell>,
    /// Attackers with a tilde in their column.
    edges: BTreeSet<&'a str>,
    /// Columns of text that the longest victim's name takes.
    label: usize,
    style: Style,
}

impl<'a> Grid<'a> {
    /// Characters of an attacker's column: a column with a tilde anywhere has two.
    fn column(&self, attacker: &Attacker) -> usize {
        1 + usize::from(self.edges.contains(attacker.name.as_str()))
    }

    fn marks(&self, members: &[&Attacker]) -> usize {
        members.iter().map(|one| self.column(one)).sum()
    }

    fn width(&self, group: &Group<'_>) -> usize {
        self.marks(&group.members).max(group.name.len())
    }

    /// The groups in blocks of at most `room` characters; a group that is wider goes on in the next block.
    fn blocks(
        &self,
        groups: Vec<(&'a str, Vec<&'a Attacker>)>,
        room: usize,
    ) -> Vec<Vec<Group<'a>>> {
        let mut blocks: Vec<Vec<Group<'a>>> = vec![Vec::new()];
        let mut used = 0;
        let mut before = 0;
        for (name, members) in groups {
            let mut members = members.as_slice();
            while !members.is_empty() {
                let left = room.saturating_sub(used + 2);
                let mut fit = 0;
                while fit < members.len() && self.marks(&members[..=fit]) <= left {
                    fit += 1;
                }
                let begins = used == 0;
                if !begins && (fit == 0 || name.len() > left) {
                    blocks.push(Vec::new());
                    used = 0;
                    continue;
                }
                let (now, later) = members.split_at(fit.max(1));
                let group = Group {
                    name,
                    members: now.to_vec(),
                    before,
                };
                before += now.len();
                used += 2 + self.width(&group);
                members = later;
                blocks.last_mut().expect("there is one").push(group);
            }
        }
        blocks
    }

    /// The heads of the groups, the attackers' last digits, and a line per victim.
    fn block(&self, text: &mut String, groups: &[Group<'_>]) {
        let (style, label) = (self.style, self.label);
        let mut header = format!("  {:label$}", "victim");
        let mut digits = format!("  {:label$}", "");
        for group in groups {
            let width = self.width(group);
            let _ = write!(header, "  {:width$}", group.name);
            digits.push_str("  ");
            for (index, attacker) in group.members.iter().enumerate() {
                let number = group.before + index + 1;
                let _ = write!(
                    digits,
                    "{:<width$}",
                    number % 10,
                    width = self.column(attacker)
                );
            }
            let padding = width - self.marks(&group.members);
            digits.extend(std::iter::repeat_n(' ', padding));
        }
        let _ = writeln!(text, "{}", style.paint(GREY, header.trim_end()));
        let _ = writeln!(text, "{}", style.paint(GREY, digits.trim_end()));
        for victim in &self.result.victims {
            let _ = write!(text, "  {:label$}", victim.name);
            for group in groups {
                text.push_str("  ");
                for attacker in &group.members {
                    let cell = self
                        .cells
                        .get(&(victim.name.as_str(), attacker.name.as_str()));
                    text.push_str(&mark(cell.map(|cell| cell.verdict), style));
                    let edge = cell.is_some_and(|cell| cell.borderline);
                    match (edge, self.column(attacker)) {
                        (true, _) => text.push('~'),
                        (false, 2) => text.push(' '),
                        (false, _) => {}
                    }
                }
                let padding = self.width(group) - self.marks(&group.members);
                text.extend(std::iter::repeat_n(' ', padding));
            }
            while text.ends_with(' ') {
                text.pop();
            }
            text.push('\n');
        }
    }
}

fn mark(verdict: Option<Verdict>, style: Style) -> String {
    match verdict {
        Some(Verdict::Pass) => style.paint(GREEN, "✓"),
        Some(Verdict::Violation) => style.paint(RED, "✗"),
        Some(Verdict::NotSettled) => style.paint(BOLD, "?"),
        Some(Verdict::NotApplicable) => style.paint(GREY, "–"),
        None => " ".to_owned(),
    }
}

fn totals(text: &mut String, result: &AuditResult, summary: &PolicySummary, style: Style) {
    let mut line = format!(
        "  {} of {} {} isolation",
        summary.violations,
        counted(u64::from(summary.cells), "pair"),
        if summary.violations == 1 {
            "breaks"
        } else {
            "break"
        }
    );
    if summary.not_settled > 0 {
        let _ = write!(line, "; {} more did not settle", summary.not_settled);
    }
    let code = if summary.violations > 0 { RED } else { GREEN };
    let categories: Vec<String> = summary
        .categories
        .iter()
        .map(|category| {
            format!(
                "{} {}/{}",
                category.category, category.violations, category.cells
            )
        })
        .collect();
    let _ = write!(text, "{}", style.paint(code, &line));
    let _ = writeln!(text, " ({})", categories.join(", "));
    if let Some(worst) = &summary.worst {
        let _ = writeln!(
            text,
            "  worst victim: {} under {} {}; broken by {}",
            style.paint(BOLD, &worst.victim),
            worst.attacker,
            result.loss(&summary.policy, worst),
            counted(u64::from(worst.violations), "attacker")
        );
    }
}

/// How long the runs of `cells` took to settle, and on how few messages a 99th percentile rests; nothing where times are
/// fixed.
fn settled<'a>(text: &mut String, cells: impl Iterator<Item = &'a &'a Cell>) {
    let settled: Vec<_> = cells
        .filter_map(|cell| Some((cell, cell.settling?)))
        .collect();
    let ends: Vec<f64> = settled
        .iter()
        .map(|(_, one)| one.settled_after_us + one.measured_us)
        .collect();
    let Some(middle) = median(&ends) else {
        return;
    };
    let longest = ends.iter().copied().fold(0.0, f64::max);
    let _ = write!(
        text,
        "  simulated time until a pair settled: {:.1} ms (median), {:.1} ms (longest)",
        middle / 1e3,
        longest / 1e3
    );
    let of_latency = settled.iter().filter(|(cell, _)| {
        cell.expected
            .as_ref()
            .is_some_and(|owed| owed.metric == JudgedMetric::P99Us)
    });
    let samples = of_latency.map(|(_, one)| one.samples);
    if let Some(fewest) = samples.filter(|&count| count > 0).min() {
        let _ = write!(
            text,
            "; a p99 rests on {} at least",
            counted(fewest, "message")
        );
    }
    text.push('\n');
}

/// The violations by the resource that ran out, most frequent first, each with its worst pair.
fn reasons(text: &mut String, result: &AuditResult, summary: &PolicySummary, style: Style) {
    let mut causes: BTreeMap<String, Vec<&Cell>> = BTreeMap::new();
    for cell in &result.cells {
        if cell.policy == summary.policy && cell.verdict == Verdict::Violation {
            causes.entry(cause(cell)).or_default().push(cell);
        }
    }
    let mut causes: Vec<_> = causes.into_iter().collect();
    causes.sort_by_key(|(_, cells)| std::cmp::Reverse(cells.len()));
    let retained = |cell: &Cell| cell.retained.unwrap_or(0.0);
    for (cause, cells) in causes {
        let worst = cells
            .iter()
            .min_by(|left, right| retained(left).total_cmp(&retained(right)))
            .expect("a cause has at least one cell");
        let count = style.paint(RED, &format!("✗ {:>4}", cells.len()));
        let _ = writeln!(text, "  {count}  {}", style.paint(BOLD, &cause));
        let _ = writeln!(
            text,
            "          {} under {} {}",
            worst.victim, worst.attacker, worst.why
        );
    }
}

/// The resource that ran out in a violated `cell`, in words.
pub(crate) fn cause(cell: &Cell) -> String {
    match &cell.exhausted {
        Some(exhausted) if exhausted.resource.starts_with(NOT_SATURATED) => {
            NOT_SATURATED.to_owned()
        }
        Some(exhausted) => format!("host {:?}: {}", exhausted.host, exhausted.resource),
        None => "no counter shows why".to_owned(),
    }
}

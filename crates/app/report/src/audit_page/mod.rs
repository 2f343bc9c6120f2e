//! The audit's page: the verdict in words, by resource, the worst pairs, and the matrix with its drill-down.
//!
//! What does not change with a click is markup and SVG from here; the drill-down of a pair is drawn by
//! `assets/audit.js` from the compact form that [`data`] embeds. The address' fragment names the open pair.

mod comparison;
mod data;
mod matrix;
mod summary;
#[cfg(test)]
mod tests;

use crate::html::{Page, escape};
use crate::number::{percent, time, whole};
use isolane_study_audit::cell::{Attacker, Cell, JudgedMetric, PredicateName, Verdict};
use isolane_study_audit::matrix::AuditResult;
use std::collections::BTreeMap;

/// The whole file.
pub(crate) fn page(result: &AuditResult) -> String {
    let view = View::new(result);
    let title = format!("Isolation audit of {}", result.profile);
    let description = summary::sentence(&view);
    let body = format!(
        "<main id=\"main\">\n{}{}{}{}{}{}{}</main>\n{DRILL}",
        summary::header(&view),
        comparison::section(&view),
        summary::overview(&view),
        summary::by_resource(&view),
        matrix::section(&view),
        summary::worst_pairs(&view),
        method(&view),
    );
    let data = data::compact(&view);
    let footer = format!(
        "Made by Isolane from an audit in JSON form {}. Everything is in this file; it needs no network.",
        result.version
    );
    Page {
        title: &title,
        description: &description,
        body: &body,
        data: Some(&data),
        scripts: &[
            include_str!("../../assets/plot.js"),
            include_str!("../../assets/audit.js"),
            include_str!("../../assets/drill.js"),
        ],
        footer: &footer,
    }
    .render()
}

/// An audit's cells by position.
pub(crate) struct View<'a> {
    pub(crate) result: &'a AuditResult,
    cells: Vec<Option<&'a Cell>>,
}

impl<'a> View<'a> {
    pub(crate) fn new(result: &'a AuditResult) -> Self {
        let policies = positions(result.policies.iter().map(String::as_str));
        let victims = positions(result.victims.iter().map(|victim| victim.name.as_str()));
        let attackers = positions(
            result
                .attackers
                .iter()
                .map(|attacker| attacker.name.as_str()),
        );
        let mut cells = vec![None; policies.len() * victims.len() * attackers.len()];
        for cell in &result.cells {
            let at = (
                policies.get(cell.policy.as_str()),
                victims.get(cell.victim.as_str()),
                attackers.get(cell.attacker.as_str()),
            );
            // A cell of a row or column that the result does not list cannot be shown.
            if let (Some(policy), Some(victim), Some(attacker)) = at {
                cells[(policy * victims.len() + victim) * attackers.len() + attacker] = Some(cell);
            }
        }
        Self { result, cells }
    }

    /// The cell at these positions, if it was run.
    pub(crate) fn cell(&self, policy: usize, victim: usize, attacker: usize) -> Option<&'a Cell> {
        let (victims, attackers) = (self.result.victims.len(), self.result.attackers.len());
        self.cells
            .get((policy * victims + victim) * attackers + attacker)
            .copied()
            .flatten()
    }

    /// All positions of one policy's cells, in row order.
    pub(crate) fn positions(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (victims, attackers) = (self.result.victims.len(), self.result.attackers.len());
        (0..victims).flat_map(move |victim| (0..attackers).map(move |attacker| (victim, attacker)))
    }

    /// Judged cells and violations of `policy` among the attackers that `chosen` accepts.
    pub(crate) fn count(
        &self,
        policy: usize,
        chosen: impl Fn(&Attacker) -> bool,
    ) -> (usize, usize) {
        let mut judged = 0;
        let mut violations = 0;
        for (victim, attacker) in self.positions() {
            if !chosen(&self.result.attackers[attacker]) {
                continue;
            }
            match self.cell(policy, victim, attacker).map(|cell| cell.verdict) {
                Some(Verdict::Violation) => {
                    judged += 1;
                    violations += 1;
                }
                Some(Verdict::Pass) => judged += 1,
                Some(Verdict::NotApplicable | Verdict::NotSettled) | None => {}
            }
        }
        (judged, violations)
    }

    /// Cells of `policy` that have no verdict, for their runs did not settle.
    pub(crate) fn unsettled(&self, policy: usize) -> usize {
        let cells = self
            .positions()
            .filter_map(|(victim, attacker)| self.cell(policy, victim, attacker));
        cells
            .filter(|cell| cell.verdict == Verdict::NotSettled)
            .count()
    }

    /// The groups of attackers, in the order of their first member.
    pub(crate) fn groups(&self) -> Vec<String> {
        let mut groups: Vec<String> = Vec::new();
        for attacker in &self.result.attackers {
            let group = group(attacker);
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        groups
    }
}

fn positions<'n>(names: impl Iterator<Item = &'n str>) -> BTreeMap<&'n str, usize> {
    names
        .enumerate()
        .map(|(index, name)| (name, index))
        .collect()
}

/// The resource an attacker goes for, as the columns of husky's table 4.3 divide them. The catalogue's names say
/// which; an attacker of no known form is in the group of its category.
pub(crate) fn group(attacker: &Attacker) -> String {
    let name = attacker.name.as_str();
    let group = match attacker.category.as_str() {
        "BW" => "Bandwidth",
        "PCIe" => "PCIe",
        "PU" if name.contains("RC-RNR") => "Processing units, errors on RC",
        "PU" if name.contains("RNR") => "Processing units, errors on UC and UD",
        "PU" => "Processing units, data verbs",
        "Cache" if name.contains("ctrl") => "Caches, control verbs",
        "Cache" => "Caches, data verbs",
        other => other,
    };
    group.to_owned()
}

/// What the victim achieved over what it was owed: 1 and more keeps isolation. For latency the bound over the measured
/// value, so that less is always worse. None when the cell does not apply.
pub(crate) fn achieved(cell: &Cell) -> Option<f64> {
    let expected = cell.expected.as_ref()?;
    let Some(measured) = cell.measured else {
        return Some(0.0);
    };
    let (part, whole) = match expected.metric {
        JudgedMetric::P99Us => (expected.bound, measured),
        JudgedMetric::GoodputGbps
        | JudgedMetric::MessageRatePerS
        | JudgedMetric::OperationsPerS => (measured, expected.bound),
    };
    Some(if whole > 0.0 { part / whole } else { 1.0 })
}

/// The style sheet's class of a cell: `v0` (a tenth of what is owed, or less) to `v6` (well above it), `na`, `ns` for
/// one that did not settle, or `un` for one not run yet. A violation is at most `v4`, a pass at least `v5`.
pub(crate) fn class(cell: Option<&Cell>) -> &'static str {
    let Some(cell) = cell else {
        return "un";
    };
    let ratio = achieved(cell);
    match cell.verdict {
        Verdict::NotApplicable => "na",
        Verdict::NotSettled => "ns",
        Verdict::Violation => {
            let ratio = ratio.unwrap_or(0.0);
            let bin = VIOLATION_BINS.iter().position(|&(top, _)| ratio < top);
            VIOLATION_BINS[bin.unwrap_or(VIOLATION_BINS.len() - 1)].1
        }
        Verdict::Pass if ratio.is_some_and(|ratio| ratio >= COMFORTABLE) => "v6",
        Verdict::Pass => "v5",
    }
}

/// Upper ends of the violations' colours, as fractions of what is owed, and their classes.
pub(crate) const VIOLATION_BINS: [(f64, &str); 5] = [
    (0.1, "v0"),
    (0.25, "v1"),
    (0.5, "v2"),
    (0.75, "v3"),
    (1.0, "v4"),
];

/// Passes from here on, as a fraction of what is owed, are comfortable.
pub(crate) const COMFORTABLE: f64 = 1.5;

/// The panel that a click on a cell opens; the script fills it.
const DRILL: &str =
    "<aside id=\"drill\" role=\"dialog\" aria-labelledby=\"drill-title\" hidden></aside>\n";

fn method(view: &View<'_>) -> String {
    let result = view.result;
    let rule = match result.predicate {
        PredicateName::Share => format!(
            "A victim that counts bits or messages is owed {} of the smaller of what it gets alone and its fair part \
             of the NIC, one of {}.",
            percent(1.0 - result.alpha),
            result.tenants
        ),
        PredicateName::Ratio => format!(
            "A victim that counts bits or messages is owed {} of what it gets alone, in bits and in messages.",
            percent(1.0 - result.alpha)
        ),
    };
    let seeds: Vec<String> = result.seeds.iter().map(u64::to_string).collect();
    format!(
        "<section id=\"method\"><h2>How this was judged</h2>\n<p>Every victim ran alone and under every attacker, \
         under every policy, once per seed; medians over the seeds are compared with what the victim is owed. {rule} \
         A latency victim is owed a 99th percentile within a factor of its own alone. A pair that the rule finds \
         wanting breaks isolation and carries a cross.</p>\n<dl class=\"facts\">\
         <div><dt>Device profile</dt><dd>{}</dd></div><div><dt>Testbed</dt><dd>{}</dd></div>\
         <div><dt>Tolerance α</dt><dd>{}</dd></div><div><dt>Measured per run</dt><dd>{} after {} of warm-up</dd></div>\
         <div><dt>Seeds</dt><dd>{}</dd></div><div><dt>Runs</dt><dd>{} of {}</dd></div></dl>\n\
         <p>This command makes the same report again:</p>\n\
         <pre class=\"command\"><code>{}</code></pre></section>\n",
        escape(&result.profile),
        escape(&result.testbed),
        percent(result.alpha),
        time(result.measured_us),
        time(result.warmup_us),
        escape(&seeds.join(", ")),
        whole(result.progress.runs_done),
        whole(result.progress.runs_total),
        escape(&result.rerun),
    )
}

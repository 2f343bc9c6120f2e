//! The policies side by side: a row each, best first, and what each one leaves open.
//!
//! Shown when more than two policies are compared. A column of husky table 4.3 is a tick where no pair breaks, else
//! the number of broken pairs on a colour that says how many of them; the first column stays in sight when the table
//! scrolls.

use super::View;
use crate::html::{escape, push};
use crate::number::{fixed, percent};
use isolane_rdma_scenario::catalogue::Column;
use isolane_rdma_scenario::stack;
use isolane_study_audit::comparison::{QUESTION, causes, ranked};
use isolane_study_audit::figures::{COLUMNS, ColumnSummary, heading};
use isolane_study_audit::matrix::PolicySummary;

/// Policies from which on the comparison replaces what shows each policy at length.
pub(super) const MANY: usize = 4;

/// Causes named per policy.
const CAUSES: usize = 3;

/// The section; nothing for one or two policies.
pub(super) fn section(view: &View<'_>) -> String {
    let result = view.result;
    if result.policies.len() < 3 {
        return String::new();
    }
    let ranked = ranked(result);
    let columns: Vec<Column> = COLUMNS
        .into_iter()
        .filter(|column| {
            let mut all = ranked.iter().flat_map(|summary| &summary.columns);
            all.any(|summary| summary.column == *column)
        })
        .collect();
    let mut head = String::new();
    for column in &columns {
        push(
            &mut head,
            format_args!("<th scope=\"col\" class=\"c\">{}</th>", heading(*column)),
        );
    }
    let rows: String = ranked
        .iter()
        .map(|summary| row(summary, &columns))
        .collect();
    let leaves: String = ranked
        .iter()
        .map(|summary| leaves_open(view, summary))
        .collect();
    let left_out: String = result
        .policies_left_out
        .iter()
        .map(|left| {
            format!(
                "<div><dt>{}, left out</dt><dd>{}</dd></div>",
                escape(&left.policy),
                escape(&left.reason)
            )
        })
        .collect();
    let unbuilt = stack::unbuilt(ranked.iter().map(|summary| summary.policy.as_str()));
    let unbuilt = match unbuilt.is_empty() {
        true => String::new(),
        false => format!(
            " * Hardware that is not on sale is needed by {}; these come after hardware on sale.",
            escape(&unbuilt.join(", "))
        ),
    };
    format!(
        "<section id=\"comparison\"><h2>{QUESTION}</h2>\n<p>Best first: the policy that breaks fewest pairs. \
         A tick means that no attacker of that kind breaks any victim.</p>\n<div class=\"scroller\">\
         <table class=\"plain compare\"><thead><tr><th scope=\"col\">policy</th>\
         <th scope=\"col\" class=\"n\">pairs broken</th>{head}<th scope=\"col\" class=\"n\">NIC used</th>\
         <th scope=\"col\" class=\"n\">vs none</th><th scope=\"col\" class=\"n\">fairness</th>\
         <th scope=\"col\" class=\"n\">cores</th><th scope=\"col\" class=\"n\">idle p50</th>\
         <th scope=\"col\" class=\"n\">idle p99</th></tr></thead>\n<tbody>{rows}</tbody></table></div>\n\
         <p class=\"legend-text\">NIC used: the sum of the dominant shares of victim and attacker, mean over the pairs, \
         and the same over that under <code>none</code>. Fairness: Jain's index over what each got of what it was owed. \
         Cores: CPU that the policy spends on a pair, mean. Idle: latency that the policy adds to a latency victim \
         that is alone, the most over the victims.{unbuilt}</p>\n<h3>What each one leaves open</h3>\n\
         <dl class=\"open\">{leaves}{left_out}</dl></section>\n",
    )
}

fn row(summary: &PolicySummary, columns: &[Column]) -> String {
    let mut out = format!(
        "<tr><th scope=\"row\">{}</th><td class=\"n\"><b>{}</b> of {}</td>",
        escape(&stack::marked(&summary.policy)),
        summary.violations,
        summary.cells
    );
    for column in columns {
        let found = summary.columns.iter().find(|one| one.column == *column);
        out.push_str(&mark(found));
    }
    let Some(figures) = summary.figures else {
        out.push_str("<td class=\"n\" colspan=\"6\">–</td></tr>\n");
        return out;
    };
    let dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    let cells = [
        percent(figures.utilisation),
        dash(
            figures
                .utilisation_of_none
                .map(|part| format!("× {}", fixed(part, 2))),
        ),
        dash(figures.fairness.map(|index| fixed(index, 2))),
        fixed(figures.policy_cores_mean, 2),
        dash(figures.idle_p50_added_us.map(added)),
        dash(figures.idle_p99_added_us.map(added)),
    ];
    for cell in cells {
        push(&mut out, format_args!("<td class=\"n\">{cell}</td>"));
    }
    out.push_str("</tr>\n");
    out
}

/// A tick, or the broken pairs on the colour of their part.
fn mark(column: Option<&ColumnSummary>) -> String {
    let Some(column) = column.filter(|column| column.cells > 0) else {
        return "<td class=\"score na\">–</td>".to_owned();
    };
    if column.violations == 0 {
        return format!(
            "<td class=\"score v5\" aria-label=\"keeps all {}\">✓</td>",
            column.cells
        );
    }
    let kept = 1.0 - f64::from(column.violations) / f64::from(column.cells);
    let class = match kept {
        kept if kept < 0.25 => "v1",
        kept if kept < 0.5 => "v2",
        kept if kept < 0.75 => "v3",
        _ => "v4",
    };
    format!(
        "<td class=\"score {class}\" aria-label=\"{} of {} pairs break\">✗ {}/{}</td>",
        column.violations, column.cells, column.violations, column.cells
    )
}

/// A difference of latency with its sign.
fn added(us: f64) -> String {
    match format!("{:.2}", us.abs()).as_str() {
        "0.00" => "0".to_owned(),
        text if us < 0.0 => format!("−{text} µs"),
        text => format!("+{text} µs"),
    }
}

fn leaves_open(view: &View<'_>, summary: &PolicySummary) -> String {
    let causes = causes(view.result, &summary.policy);
    let mut named: Vec<String> = causes
        .iter()
        .take(CAUSES)
        .map(|(cause, count)| format!("{} ({count})", escape(cause)))
        .collect();
    let rest: u32 = causes.iter().skip(CAUSES).map(|(_, count)| count).sum();
    if rest > 0 {
        named.push(format!("others ({rest})"));
    }
    let text = match named.is_empty() {
        true => "nothing that was tried".to_owned(),
        false => named.join("; "),
    };
    format!(
        "<div><dt>{}</dt><dd>{text}</dd></div>",
        escape(&summary.policy)
    )
}

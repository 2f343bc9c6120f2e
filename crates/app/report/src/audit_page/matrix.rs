//! The matrix of victims and attackers as an accessible grid, one per policy, with its tools and its legend.
//!
//! Without the script the matrices are one below the other and can be read and printed; with the script they become
//! tabs. A cell is a few bytes of markup: its position says which pair it is.

use super::{COMFORTABLE, VIOLATION_BINS, View, class};
use crate::html::escape;
use crate::number::{fixed, percent};
use crate::svg::Span;
use isolane_study_audit::cell::{Cell, Verdict};
use std::fmt::Write;

/// Up to so many attackers a cell can be large.
const ROOMY: usize = 20;

pub(super) fn section(view: &View<'_>) -> String {
    let policies = &view.result.policies;
    let tabs: String = policies
        .iter()
        .enumerate()
        .map(|(index, policy)| {
            format!(
                "<button type=\"button\" role=\"tab\" id=\"tab-{index}\" aria-controls=\"panel-{index}\" \
                 aria-selected=\"{}\">{}</button>",
                index == 0,
                escape(policy)
            )
        })
        .collect();
    let panels: String = (0..policies.len())
        .map(|policy| panel(view, policy))
        .collect();
    let groups: String = view
        .groups()
        .iter()
        .map(|group| format!("<option>{}</option>", escape(group)))
        .collect();
    format!(
        "<section id=\"matrix\"><h2>Every pair</h2>\n<p>Rows are victims, columns attackers. Open a cell for what \
         happened there. <span class=\"keys\">Keyboard: arrow keys move, Enter opens, Esc closes.</span></p>\n\
         <div class=\"tools\"><div class=\"tabs\" role=\"tablist\" aria-label=\"Policy\">{tabs}</div>\
         <label>Victims <input type=\"search\" id=\"filter-victim\" placeholder=\"any part of a name\" size=\"16\" \
         autocomplete=\"off\" spellcheck=\"false\"></label>\
         <label>Attackers <select id=\"filter-group\"><option value=\"\">all resources</option>{groups}</select></label>\
         <label class=\"check\"><input type=\"checkbox\" id=\"filter-broken\"> only rows and columns with violations</label>\
         <span class=\"tool-buttons\"><button type=\"button\" id=\"csv\" class=\"quiet\">CSV</button>\
         <button type=\"button\" class=\"quiet\" data-matrix=\"svg\">SVG</button>\
         <button type=\"button\" class=\"quiet\" data-matrix=\"png\">PNG</button></span></div>\n\
         {}<p id=\"readout\" class=\"readout\">&nbsp;</p>\n{panels}</section>\n",
        legend()
    )
}

fn legend() -> String {
    let mut items = String::new();
    let mut below = 0.0;
    for (top, class) in VIOLATION_BINS {
        item(
            &mut items,
            class,
            "×",
            &format!("{}–{}", fixed(below * 100.0, 0), percent(top)),
        );
        below = top;
    }
    item(
        &mut items,
        "v5",
        "·",
        &format!("100–{}", percent(COMFORTABLE)),
    );
    item(
        &mut items,
        "v6",
        "·",
        &format!("over {}", percent(COMFORTABLE)),
    );
    item(&mut items, "na", "–", "does not apply");
    item(&mut items, "ns", "?", "did not settle: no verdict");
    format!(
        "<div class=\"legend\"><span>Achieved, of what the victim is owed:</span><ul>{items}</ul>\
         <span><b>×</b> breaks isolation &ensp;<b>·</b> keeps it</span></div>\n"
    )
}

fn item(items: &mut String, class: &str, mark: &str, name: &str) {
    write!(
        items,
        "<li><i class=\"{class}\" aria-hidden=\"true\">{mark}</i>{name}</li>"
    )
    .expect("writing to a String succeeds");
}

fn panel(view: &View<'_>, policy: usize) -> String {
    let result = view.result;
    let name = escape(&result.policies[policy]);
    let roomy = if result.attackers.len() <= ROOMY {
        " roomy"
    } else {
        ""
    };
    let mut out = format!(
        "<div class=\"panel\" role=\"tabpanel\" id=\"panel-{policy}\" aria-labelledby=\"tab-{policy}\">\
         <h3 class=\"panel-title\">{name}</h3><div class=\"scroller\">\
         <table role=\"grid\" class=\"grid-table{roomy}\" aria-label=\"Victims and attackers under {name}\" \
         data-policy=\"{policy}\">\n<thead><tr class=\"spans\"><td></td>"
    );
    let mut push = |text: std::fmt::Arguments<'_>| {
        out.write_fmt(text).expect("writing to a String succeeds");
    };
    for span in Span::of(
        result
            .attackers
            .iter()
            .map(|attacker| attacker.category.as_str()),
    ) {
        push(format_args!(
            "<th scope=\"colgroup\" colspan=\"{}\">{}</th>",
            span.count,
            escape(&span.name)
        ));
    }
    push(format_args!(
        "</tr>\n<tr class=\"names\"><td class=\"corner\">victim \\ attacker</td>"
    ));
    let mut previous = None;
    for attacker in &result.attackers {
        let first = previous
            .replace(&attacker.category)
            .is_some_and(|category| *category != attacker.category);
        let class = if first { " class=\"first\"" } else { "" };
        push(format_args!(
            "<th scope=\"col\"{class}><span>{}</span></th>",
            escape(&attacker.name)
        ));
    }
    push(format_args!("</tr></thead>\n"));
    let mut row = 0;
    for span in Span::of(result.victims.iter().map(|victim| victim.category.as_str())) {
        push(format_args!(
            "<tbody><tr class=\"group\"><th colspan=\"{}\" scope=\"rowgroup\"><span>{}</span></th></tr>\n",
            result.attackers.len() + 1,
            escape(&span.name)
        ));
        for _ in 0..span.count {
            push(format_args!(
                "<tr data-v=\"{row}\"><th scope=\"row\">{}</th>",
                escape(&result.victims[row].name)
            ));
            for attacker in 0..result.attackers.len() {
                let cell = view.cell(policy, row, attacker);
                push(format_args!("<td class={}>{}", class(cell), mark(cell)));
            }
            push(format_args!("</tr>\n"));
            row += 1;
        }
        push(format_args!("</tbody>"));
    }
    push(format_args!("</table></div></div>\n"));
    out
}

fn mark(cell: Option<&Cell>) -> &'static str {
    match cell.map(|cell| cell.verdict) {
        Some(Verdict::Violation) => "×",
        Some(Verdict::Pass) => "·",
        Some(Verdict::NotSettled) => "?",
        Some(Verdict::NotApplicable) => "–",
        None => "",
    }
}

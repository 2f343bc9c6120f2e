//! The page of the papers' claims: the rate of each system, and every claim in a table to filter.

use crate::html::{Opening, Page, escape, figure, table};
use crate::svg::{Bar, BarPlot, BarRow};

/// One claim and its outcome, as text.
#[derive(Clone, Debug, Default)]
pub struct ClaimRow {
    /// The system that the claim is about.
    pub system: String,
    /// The claim's id.
    pub id: String,
    /// What is claimed.
    pub statement: String,
    /// Paper and section.
    pub source: String,
    /// `calibration`, `prediction` or `arithmetic`.
    pub kind: String,
    /// The published value with its unit.
    pub published: String,
    /// Ours with its unit.
    pub ours: String,
    /// How far ours may be off.
    pub tolerance: String,
    /// `within`, `MISS`, `reported` or `not run`.
    pub verdict: String,
    /// Why ours is off, or how our experiment differs.
    pub remark: String,
}

const WIDTH: f64 = 720.0;
const SCRIPT: &str = include_str!("../assets/claims.js");

/// The whole file.
pub(crate) fn page(rows: &[ClaimRow]) -> String {
    let title = "What the papers state, and what the simulators give";
    let verdict = verdict(rows);
    let opening = Opening {
        kicker: "Claims",
        title,
        verdict: &verdict,
        about: "A claim is a calibration if a parameter, setting or mechanism was changed to meet the published number, and \
                otherwise a prediction. Tolerances are fixed before the run.",
        plot: &figure(
            "claims-within",
            "Claims within tolerance, of those with a published value",
            &rates(rows),
        ),
    };
    let body = format!(
        "<main id=\"main\">\n{}<section>\n<h2>Every claim</h2>\n{}\n<p id=\"shown\" role=\"status\"></p>\n{}\n</section>\n</main>\n",
        opening.render(),
        tools(rows),
        claims(rows)
    );
    Page {
        title,
        description: &verdict,
        body: &body,
        scripts: &[SCRIPT],
        footer: "Made by <code>isolane claims --report</code>. Everything is in this file; it needs no network.",
        ..Page::default()
    }
    .render()
}

/// Claims within tolerance and claims judged, among those of `system` (all when none) and `kind`.
fn rate(rows: &[ClaimRow], system: Option<&str>, kind: &str) -> (usize, usize) {
    let of = |row: &&ClaimRow| system.is_none_or(|name| row.system == name) && row.kind == kind;
    let count = |verdict: &str| {
        rows.iter()
            .filter(of)
            .filter(|row| row.verdict == verdict)
            .count()
    };
    (count("within"), count("within") + count("MISS"))
}

fn verdict(rows: &[ClaimRow]) -> String {
    let parts: Vec<String> = ["prediction", "calibration"]
        .into_iter()
        .filter_map(|kind| {
            let (within, judged) = rate(rows, None, kind);
            (judged > 0).then(|| format!("{within} of {judged} {kind}s"))
        })
        .collect();
    match parts.is_empty() {
        true => "No claim here has a published value.".to_owned(),
        false => format!("{} are within tolerance.", parts.join(" and ")),
    }
}

fn systems(rows: &[ClaimRow]) -> Vec<&str> {
    let mut systems: Vec<&str> = rows.iter().map(|row| row.system.as_str()).collect();
    systems.sort_unstable();
    systems.dedup();
    systems
}

fn rates(rows: &[ClaimRow]) -> String {
    let bars = |system: &str| -> Vec<Bar> {
        [("prediction", 0), ("calibration", 1)]
            .into_iter()
            .filter_map(|(kind, ink)| {
                let (within, judged) = rate(rows, Some(system), kind);
                let value = 100.0 * within as f64 / judged as f64;
                (judged > 0).then(|| Bar {
                    name: kind.to_owned(),
                    ink,
                    value,
                    text: format!("{value:.0} % ({within} of {judged})"),
                })
            })
            .collect()
    };
    let groups = systems(rows).into_iter().map(|system| BarRow {
        name: system.to_owned(),
        bars: bars(system),
        bound: None,
    });
    BarPlot {
        label: "Claims within tolerance by system".to_owned(),
        x_title: "claims within tolerance, %".to_owned(),
        x_max: 100.0,
        rows: groups.filter(|row| !row.bars.is_empty()).collect(),
        width: WIDTH,
    }
    .render()
}

/// The search field and a choice per column.
fn tools(rows: &[ClaimRow]) -> String {
    let choice = |name: &str, values: Vec<&str>| {
        let options: String = values
            .iter()
            .map(|value| format!("<option>{}</option>", escape(value)))
            .collect();
        format!(
            "<label>{name} <select data-column=\"{name}\"><option value=\"\">all</option>{options}</select></label>"
        )
    };
    format!(
        "<div class=\"tools\"><label>Search <input type=\"search\" id=\"words\" placeholder=\"figure 11, tail, READ\"></label>{}{}{}</div>",
        choice("system", systems(rows)),
        choice("kind", vec!["prediction", "calibration", "arithmetic"]),
        choice("verdict", vec!["MISS", "within", "reported", "not run"]),
    )
}

fn claims(rows: &[ClaimRow]) -> String {
    let columns = [
        "claim",
        "system",
        "kind",
        "verdict",
        "ours",
        "published",
        "tolerance",
        "statement and source",
    ];
    let cells = rows.iter().map(|row| {
        let remark = match row.remark.as_str() {
            "" => String::new(),
            remark => format!("<br><small>{}</small>", escape(remark)),
        };
        vec![
            escape(&row.id),
            escape(&row.system),
            escape(&row.kind),
            escape(&row.verdict),
            escape(&row.ours),
            escape(&row.published),
            escape(&row.tolerance),
            format!(
                "{} <em>{}</em>{remark}",
                escape(&row.statement),
                escape(&row.source)
            ),
        ]
    });
    format!(
        "<div id=\"claims\">{}</div>",
        table("Every claim", &columns, columns.len(), cells)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str, kind: &str, verdict: &str) -> ClaimRow {
        ClaimRow {
            system: "justitia".to_owned(),
            id: id.to_owned(),
            kind: kind.to_owned(),
            verdict: verdict.to_owned(),
            statement: "p < q".to_owned(),
            ..ClaimRow::default()
        }
    }

    #[test]
    fn the_verdict_counts_in_sample_and_out_of_sample_apart() {
        let rows = [
            row("a", "prediction", "within"),
            row("b", "prediction", "MISS"),
            row("c", "calibration", "within"),
            row("d", "prediction", "reported"),
        ];
        let said = verdict(&rows);
        assert_eq!(
            said,
            "1 of 2 predictions and 1 of 1 calibrations are within tolerance."
        );
        let page = page(&rows);
        assert!(page.contains("p &lt; q") && page.contains("50 % (1 of 2)"));
    }
}

//! A lab as a terminal shows it: verdicts first, then what they rest on.

use crate::text::{Table, optional};
use isolane_rpc_demo::plan::CLASSES;
use isolane_rpc_demo::report::{Report, RunKind, RunReport};
use std::fmt::Write;

pub(super) fn render(report: &Report) -> String {
    let mut text = String::new();
    for verdict in &report.verdicts {
        let answer = match (verdict.passed, verdict.judged) {
            (true, _) if verdict.settled == Some(false) => "open",
            (true, _) => "yes ",
            (false, true) => "NO  ",
            (false, false) => "?   ",
        };
        let _ = writeln!(text, "{answer}  {}: {}", verdict.name, verdict.words);
    }
    let plan = &report.plan;
    let names: Vec<&str> = report.clients.iter().map(|client| client.name()).collect();
    let _ = writeln!(
        text,
        "\nPort of {} Mbit/s, weights {}, load {} of the line in bursts of {} every {} ms; clients {}; {:.0} s\n",
        plan.line_bit_per_s / 1_000_000,
        plan.weights.map(|weight| weight.to_string()).join(":"),
        plan.load,
        plan.burst,
        plan.period_ms,
        names.join(", "),
        report.seconds
    );
    let columns = "lrrrrrrrr";
    let mut table = Table::new(
        columns,
        &[
            "run",
            "class",
            "requested",
            "ran",
            "p50 ms",
            "p99 ms",
            "p99.9 ms",
            "SLO ms",
            "missed %",
        ],
    );
    for run in &report.runs {
        for row in rows(report, run) {
            table.row(row);
        }
    }
    text.push_str(&table.render());
    text.push_str(&clients(report));
    for objective in &report.objectives {
        let _ = writeln!(
            text,
            "  Class {}: {} % of its calls took at most {:.2} ms at the target mix, {:.2} ms in a model of the port; the closed form \
             gives at least {:.2} ms.",
            objective.class,
            objective.percentile,
            objective.measured_ms,
            objective.model_ms,
            objective.theory_ms
        );
    }
    let late = report
        .runs
        .iter()
        .map(|run| run.late_ms_max)
        .fold(0.0, f64::max);
    let _ = writeln!(
        text,
        "  The busy processors of this machine delayed calls by at most {late:.1} ms."
    );
    if let Some(kept) = &report.kept {
        let _ = writeln!(text, "  {kept}");
    }
    text
}

fn rows(report: &Report, run: &RunReport) -> Vec<Vec<String>> {
    let name = match run.kind {
        RunKind::Target => "target mix",
        RunKind::Without => "without",
        RunKind::With => "with",
        RunKind::Shadow => "shadow",
    };
    let row = |class: usize| {
        let figures = &run.classes[class];
        let objective = report.objectives.get(class);
        vec![
            if class == 0 {
                name.to_owned()
            } else {
                String::new()
            },
            class.to_string(),
            format!("{:.2}", run.mix_asked[class]),
            format!("{:.2}", run.mix_ran[class]),
            optional(figures.p50_ms),
            optional(figures.p99_ms),
            optional(figures.p999_ms),
            optional(objective.map(|objective| objective.slo_ms)),
            run.misses.get(class).map_or("-".to_owned(), |misses| {
                format!("{:.1}", 100.0 * misses.share)
            }),
        ]
    };
    (0..CLASSES).map(row).collect()
}

/// The clients of the last run.
fn clients(report: &Report) -> String {
    let Some(run) = report.runs.last() else {
        return String::new();
    };
    let mut table = Table::new(
        "llrrrr",
        &["client", "server", "ran 0", "ran 1", "ran 2", "p99 ms of 0"],
    );
    for client in &run.clients {
        let mut row = vec![
            client.language.name().to_owned(),
            client.server.name().to_owned(),
        ];
        row.extend(client.mix_ran.iter().map(|part| format!("{part:.2}")));
        row.push(optional(client.classes[0].p99_ms));
        table.row(row);
    }
    format!("\n{}\n", table.render())
}

//! The first sentence about applications on tiered memory, and the plot that shows it.
//!
//! With objectives the sentence says of each how much of its time it met its own under each policy. Without any, it says
//! whose throughput depends most on the policy; of one run, the bandwidth of each.

use super::objective;
use crate::html::{figure, listed};
use crate::number::{percent, significant};
use crate::svg::{Bar, BarPlot, BarRow, INKS};
use isolane_study_results::memory::{MemAppResult, MemResult};

const WIDTH: f64 = 420.0;
/// Throughputs that differ by less than this factor are called alike.
const ALIKE: f64 = 1.02;

/// What a bar shows: its value, and the text at its end.
type Figure = fn(&MemAppResult, f64) -> Option<(f64, String)>;

pub(super) fn sentence(results: &[MemResult]) -> String {
    let first = &results[0];
    let apps = || first.apps.iter().enumerate();
    let with_objective: Vec<String> = apps()
        .filter_map(|(index, app)| met(results, index, app))
        .collect();
    match (with_objective.is_empty(), results.len()) {
        (false, _) => format!("{}.", with_objective.join("; ")),
        (true, 1) => {
            let rates: Vec<String> = apps().map(|(_, app)| rate(app)).collect();
            format!(
                "No application has an objective: {} under {}.",
                listed(&rates),
                first.policy
            )
        }
        (true, _) => throughputs(results),
    }
}

fn rate(app: &MemAppResult) -> String {
    match app.ran_s > 0.0 {
        true => format!(
            "{} does {} {}/s at {} GB/s",
            app.name,
            significant(app.throughput, 3),
            app.operation,
            significant(app.bandwidth_gb_per_s, 3)
        ),
        false => format!("{} does not run", app.name),
    }
}

/// How much of its time application `index` met its objective under each policy.
fn met(results: &[MemResult], index: usize, app: &MemAppResult) -> Option<String> {
    let wanted = objective(app)?;
    let parts: Vec<String> = results
        .iter()
        .filter_map(|run| {
            let app = run.apps.get(index)?;
            Some(match app.ran_s > 0.0 {
                true => format!(
                    "{} of its time under {}",
                    percent(app.slo_met_share),
                    run.policy
                ),
                false => format!("never under {}, which does not run it", run.policy),
            })
        })
        .collect();
    Some(format!(
        "{} meets its objective ({wanted}) {}",
        app.name,
        listed(&parts)
    ))
}

fn throughputs(results: &[MemResult]) -> String {
    let mut largest: Option<(f64, String)> = None;
    for (index, app) in results[0].apps.iter().enumerate() {
        let mut values: Vec<(f64, &str)> = results
            .iter()
            .filter_map(|run| Some((run.apps.get(index)?.throughput, run.policy.as_str())))
            .collect();
        values.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (Some(low), Some(high)) = (values.first(), values.last()) else {
            continue;
        };
        let factor = high.0 / low.0;
        let text = format!(
            "{} does {} {}/s under {} and {} under {}",
            app.name,
            significant(low.0, 3),
            app.operation,
            low.1,
            significant(high.0, 3),
            high.1
        );
        if high.0 > 0.0 && largest.as_ref().is_none_or(|(most, _)| factor > *most) {
            largest = Some((factor, text));
        }
    }
    match largest {
        Some((factor, text)) if factor >= ALIKE => {
            format!("No application has an objective; {text}, the largest difference.")
        }
        _ => {
            let policies: Vec<String> = results.iter().map(|run| run.policy.clone()).collect();
            format!(
                "No application has an objective, and no throughput differs by more than 2 % between {}.",
                listed(&policies)
            )
        }
    }
}

/// The plot of the verdict, as a figure.
pub(super) fn plot(results: &[MemResult]) -> String {
    let first = &results[0];
    let with_objective = first.apps.iter().any(|app| objective(app).is_some());
    let (caption, axis, of): (_, _, Figure) = match (with_objective, results.len()) {
        (true, _) => (
            "<b>Time in which each objective is met</b>",
            "time in which the objective is met, %",
            |app, _| Some((100.0 * app.slo_met_share, percent(app.slo_met_share))),
        ),
        (false, 1) => (
            "<b>Bandwidth</b> of every application",
            "bandwidth, GB/s",
            |app, _| {
                let text = format!("{} GB/s", significant(app.bandwidth_gb_per_s, 3));
                Some((app.bandwidth_gb_per_s, text))
            },
        ),
        (false, _) => (
            "<b>Throughput</b> of every application, of its largest one",
            "throughput, % of the application's largest",
            |app, most| {
                let text = format!("{} {}/s", significant(app.throughput, 3), app.operation);
                (most > 0.0).then(|| (100.0 * app.throughput / most, text))
            },
        ),
    };
    let rows = first.apps.iter().enumerate().map(|(index, app)| {
        let of_app = || results.iter().filter_map(move |run| run.apps.get(index));
        let most = of_app().map(|app| app.throughput).fold(0.0, f64::max);
        let bars = results.iter().enumerate().filter_map(|(order, run)| {
            let app = run.apps.get(index)?;
            if with_objective && objective(app).is_none() {
                return None;
            }
            let (value, text) = match app.ran_s > 0.0 {
                true => of(app, most)?,
                false => (0.0, "does not run".to_owned()),
            };
            Some(Bar {
                name: run.policy.clone(),
                ink: order % INKS,
                value,
                text,
            })
        });
        BarRow {
            name: match objective(app) {
                Some(wanted) => format!("{}: {wanted}", app.name),
                None => app.name.clone(),
            },
            bars: bars.collect(),
            bound: None,
        }
    });
    let plot = BarPlot {
        label: axis.to_owned(),
        x_title: axis.to_owned(),
        x_max: match (with_objective, results.len()) {
            (false, 1) => 0.0,
            _ => 100.0,
        },
        rows: rows.filter(|row| !row.bars.is_empty()).collect(),
        width: WIDTH,
    };
    figure(
        &format!("{}-verdict", first.scenario),
        caption,
        &plot.render(),
    )
}

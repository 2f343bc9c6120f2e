//! A sweep as a table and as comma-separated values.
//!
//! The table has a row per combination and class: means over the seeds, and the range of p99.9 over them. The values have
//! a line per point and class, units in the names.

use super::store::{Document, PointResult};
use crate::text::{Table, counted, fitted, number};
use isolane_study_results::network::ClassResult;
use std::fmt::Write;

/// Columns of the values after keys, seed and class.
const COLUMNS: [&str; 17] = [
    "issued",
    "admitted",
    "downgraded",
    "terminated",
    "unfinished",
    "asked_share",
    "ran_share",
    "admitted_share",
    "rnl_p50_us",
    "rnl_p99_us",
    "rnl_p999_us",
    "rnl_per_mtu_p999_us",
    "met_slo_share",
    "ran_met_slo_share",
    "goodput_gbps",
    "utilisation",
    "dropped",
];

/// A line per point and class, after a line of names.
pub(super) fn csv(document: &Document) -> String {
    let mut text = String::new();
    let names = document.keys.iter().map(String::as_str);
    let names: Vec<String> = names
        .chain(["seed", "policy", "class"])
        .chain(COLUMNS)
        .map(quoted)
        .collect();
    let _ = writeln!(text, "{}", names.join(","));
    for point in &document.points {
        for class in &point.result.classes {
            let mut cells: Vec<String> = document
                .keys
                .iter()
                .map(|key| quoted(point.settings.get(key).map_or("", String::as_str)))
                .collect();
            cells.push(point.seed.to_string());
            cells.push(quoted(&point.result.policy));
            cells.push(quoted(&class.name));
            cells.extend(values(point, class));
            let _ = writeln!(text, "{}", cells.join(","));
        }
    }
    text
}

fn values(point: &PointResult, class: &ClassResult) -> Vec<String> {
    let optional = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let dropped: u64 = point.result.packets.dropped.values().sum();
    vec![
        class.issued.to_string(),
        class.admitted.to_string(),
        class.downgraded.to_string(),
        class.terminated.to_string(),
        class.unfinished.to_string(),
        class.asked_share.to_string(),
        class.ran_share.to_string(),
        class.admitted_share.to_string(),
        optional(class.rnl_us.map(|summary| summary.p50)),
        optional(class.rnl_us.map(|summary| summary.p99)),
        optional(class.rnl_us.map(|summary| summary.p999)),
        optional(class.rnl_per_mtu_us.map(|summary| summary.p999)),
        optional(class.met_slo_share),
        optional(class.ran_met_slo_share),
        class.goodput_gbps.to_string(),
        point.result.utilisation.to_string(),
        dropped.to_string(),
    ]
}

/// A cell as RFC 4180 has it.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// A row per combination and class.
pub(super) fn text(document: &Document) -> String {
    let Some(first) = document.points.first() else {
        return "no points\n".to_owned();
    };
    let seeds = document
        .points
        .iter()
        .filter(|point| point.settings == first.settings)
        .count();
    let part = document
        .shard
        .as_ref()
        .map_or_else(String::new, |shard| format!(", shard {shard}"));
    let mut text = format!(
        "{}: {} of {}{part}, {} each; means over seeds\n\n",
        document.scenario,
        document.points.len(),
        counted(document.points_total, "point"),
        counted(seeds as u64, "seed"),
    );
    let figures = [
        "class",
        "ran %",
        "admitted %",
        "p50 us",
        "p99.9 us",
        "p99.9 of seeds",
        "met %",
        "goodput Gb/s",
    ];
    let keys = document.keys.iter().map(String::as_str);
    let headings: Vec<&str> = keys.chain(figures).collect();
    let columns = format!("{}lrrrrlrr", "l".repeat(document.keys.len()));
    let mut table = Table::new(columns, &headings);
    for group in document.points.chunk_by(|a, b| a.settings == b.settings) {
        for class in 0..group[0].result.classes.len() {
            table.row(row(document, group, class));
        }
    }
    text.push_str(&fitted(&table));
    text
}

fn row(document: &Document, group: &[PointResult], class: usize) -> Vec<String> {
    let classes = || {
        group
            .iter()
            .filter_map(|point| point.result.classes.get(class))
    };
    let mean = |of: &dyn Fn(&ClassResult) -> Option<f64>| {
        let values: Vec<f64> = classes().filter_map(of).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
    let percent = |value: Option<f64>| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{:.2}", value * 100.0))
    };
    let tails: Vec<f64> = classes()
        .filter_map(|one| one.rnl_us.map(|summary| summary.p999))
        .collect();
    let range = match tails.len() {
        0 | 1 => String::new(),
        _ => format!(
            "{} - {}",
            number(tails.iter().copied().fold(f64::INFINITY, f64::min)),
            number(tails.iter().copied().fold(0.0, f64::max))
        ),
    };
    let mut cells: Vec<String> = document
        .keys
        .iter()
        .map(|key| group[0].settings.get(key).cloned().unwrap_or_default())
        .collect();
    cells.push(group[0].result.classes[class].name.clone());
    cells.push(percent(mean(&|one| Some(one.ran_share))));
    cells.push(percent(mean(&|one| Some(one.admitted_share))));
    cells.push(shown(mean(&|one| one.rnl_us.map(|summary| summary.p50))));
    cells.push(shown(mean(&|one| one.rnl_us.map(|summary| summary.p999))));
    cells.push(range);
    cells.push(percent(mean(&|one| one.ran_met_slo_share)));
    cells.push(shown(mean(&|one| Some(one.goodput_gbps))));
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_commas_are_quoted() {
        assert_eq!(quoted("a"), "a");
        assert_eq!(quoted("[0.6, 0.4]"), "\"[0.6, 0.4]\"");
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
    }
}

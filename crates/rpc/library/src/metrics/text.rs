//! A report as text.

use super::Report;
use crate::settings::Settings;
use crate::table::{BUCKET_ENDS_NS, Counts};
use std::fmt::Write;

/// What `Content-Type` says of the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Name (behind the prefix), help and value of a counter.
type Row = (&'static str, &'static str, fn(&Counts) -> u64);

const COUNTERS: [Row; 6] = [
    ("issued", "Calls that asked for the class", Counts::issued),
    (
        "admitted",
        "Calls that got the class they asked for",
        |counts| counts.admitted,
    ),
    (
        "downgraded",
        "Calls sent in the lowest class instead (in shadow mode: that would have been)",
        |counts| counts.downgraded,
    ),
    (
        "leased",
        "Admitted calls on the account of a quota's lease",
        |counts| counts.leased,
    ),
    (
        "met",
        "Calls that ran in the class and met its objective",
        Counts::met,
    ),
    (
        "missed",
        "Calls that ran in the class and missed its objective",
        |counts| counts.missed,
    ),
];

/// One series: its labels, and what was counted.
type Series<'a> = (String, &'a Counts);

/// The whole text, with its end mark.
pub fn render(report: &Report, settings: &Settings) -> String {
    let mut text = String::new();
    head(&mut text, report, settings);
    let class = |index: usize| {
        let class = &settings.classes[index];
        // The lowest class has no objective to meet.
        (escaped(&class.name), class.options.is_some())
    };
    let totals: Vec<(Series<'_>, bool)> = (report.totals.iter().enumerate())
        .map(|(index, counts)| {
            let (name, controlled) = class(index);
            ((format!("class=\"{name}\""), counts), controlled)
        })
        .collect();
    families(&mut text, "isolane_rpc", &totals);
    let mut each = Vec::new();
    let mut probabilities = Vec::new();
    for destination in &report.shown {
        for (index, (counts, probability)) in destination.classes.iter().enumerate() {
            let (name, controlled) = class(index);
            let destination = escaped(&destination.name);
            let labels = format!("destination=\"{destination}\",class=\"{name}\"");
            if controlled {
                probabilities.push((labels.clone(), probability.as_f64()));
            }
            each.push(((labels, counts), controlled));
        }
    }
    for (index, counts) in report.other.iter().enumerate() {
        let (name, controlled) = class(index);
        let labels = format!("destination=\"other\",class=\"{name}\"");
        each.push(((labels, counts), controlled));
    }
    families(&mut text, "isolane_rpc_destination", &each);
    let name = "isolane_rpc_destination_admit_probability";
    family(
        &mut text,
        name,
        "gauge",
        "",
        "Part of calls that are admitted, 0 to 1",
    );
    for (labels, probability) in probabilities {
        line(&mut text, name, &labels, probability);
    }
    text.push_str("# EOF\n");
    text
}

fn head(text: &mut String, report: &Report, settings: &Settings) {
    family(
        text,
        "isolane_rpc",
        "info",
        "",
        "Version and mode of the admission",
    );
    let labels = format!(
        "version=\"{}\",mode=\"{}\"",
        env!("CARGO_PKG_VERSION"),
        settings.mode.name()
    );
    line(text, "isolane_rpc_info", &labels, 1);
    let name = "isolane_rpc_destinations";
    family(text, name, "gauge", "", "Destinations in the table");
    line(text, name, "", report.destinations);
    for (name, help, value) in [
        (
            "isolane_rpc_destinations_evicted",
            "Destinations that left the table",
            report.evicted,
        ),
        (
            "isolane_rpc_overflowed",
            "Calls whose destination found no room and shared a place",
            report.overflowed,
        ),
    ] {
        family(text, name, "counter", "", help);
        line(text, &format!("{name}_total"), "", value);
    }
    let name = "isolane_rpc_target_seconds_per_mtu";
    family(
        text,
        name,
        "gauge",
        "",
        "The objective of the class, for each MTU of a call",
    );
    for class in &settings.classes {
        if let Some(options) = &class.options {
            let labels = format!("class=\"{}\"", escaped(&class.name));
            line(text, name, &labels, options.target_per_mtu.as_secs_f64());
        }
    }
}

fn families(text: &mut String, prefix: &str, series: &[(Series<'_>, bool)]) {
    for (name, help, value) in COUNTERS {
        let name = format!("{prefix}_{name}");
        family(text, &name, "counter", "", help);
        let of_objective = matches!(help.rsplit(' ').next(), Some("objective"));
        for ((labels, counts), controlled) in series {
            if *controlled || !of_objective {
                line(text, &format!("{name}_total"), labels, value(counts));
            }
        }
    }
    let name = format!("{prefix}_network_latency_seconds");
    let help = "Time from the transport taking a call to its last byte being there";
    family(text, &name, "histogram", "seconds", help);
    for ((labels, counts), _) in series {
        let mut below = 0;
        for (index, count) in counts.histogram.iter().enumerate() {
            below += count;
            let end = match BUCKET_ENDS_NS.get(index) {
                Some(&end) => format!("{}", end as f64 / 1e9),
                None => "+Inf".to_owned(),
            };
            line(
                text,
                &format!("{name}_bucket"),
                &format!("{labels},le=\"{end}\""),
                below,
            );
        }
        let sum = counts.latency_sum_ns as f64 / 1e9;
        line(text, &format!("{name}_sum"), labels, sum);
        line(text, &format!("{name}_count"), labels, below);
    }
}

fn family(text: &mut String, name: &str, kind: &str, unit: &str, help: &str) {
    writeln!(text, "# TYPE {name} {kind}").expect("text takes all");
    if !unit.is_empty() {
        writeln!(text, "# UNIT {name} {unit}").expect("text takes all");
    }
    writeln!(text, "# HELP {name} {help}.").expect("text takes all");
}

fn line(text: &mut String, name: &str, labels: &str, value: impl std::fmt::Display) {
    let labels = match labels {
        "" => String::new(),
        labels => format!("{{{labels}}}"),
    };
    writeln!(text, "{name}{labels} {value}").expect("text takes all");
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

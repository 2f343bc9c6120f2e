//! Formats a report as text.

use super::Report;
use crate::settings::{ClassSettings, Settings};
use crate::table::{BUCKET_ENDS_NS, Counts};
use isolane_common_text_output::openmetrics::{Families, Kind, Labels};

/// A counter: suffix of its name, HELP text and value.
struct Counter {
    name: &'static str,
    help: &'static str,
    /// Whether it is about an objective, which the lowest class does not have.
    of_objective: bool,
    value: fn(&Counts) -> u64,
}

const COUNTERS: [Counter; 6] = [
    Counter {
        name: "issued",
        help: "Calls that requested the class.",
        of_objective: false,
        value: Counts::issued,
    },
    Counter {
        name: "admitted",
        help: "Calls that got the requested class.",
        of_objective: false,
        value: |counts| counts.admitted,
    },
    Counter {
        name: "downgraded",
        help: "Calls sent in the lowest class instead (in shadow mode: that would have been).",
        of_objective: false,
        value: |counts| counts.downgraded,
    },
    Counter {
        name: "leased",
        help: "Admitted calls that used a quota's lease.",
        of_objective: false,
        value: |counts| counts.leased,
    },
    Counter {
        name: "met",
        help: "Calls that ran in the class and met its objective.",
        of_objective: true,
        value: Counts::met,
    },
    Counter {
        name: "missed",
        help: "Calls that ran in the class and missed its objective.",
        of_objective: true,
        value: |counts| counts.missed,
    },
];

/// The counters of a class, in total or of one destination.
struct Series<'a> {
    /// `None` for the totals.
    destination: Option<&'a str>,
    class: &'a ClassSettings,
    counts: &'a Counts,
}

impl Series<'_> {
    fn labels(&self, write: impl FnOnce(&Labels<'_>)) {
        match &self.destination {
            Some(destination) => {
                write(&[("destination", destination), ("class", &self.class.name)])
            }
            None => write(&[("class", &self.class.name)]),
        }
    }
}

/// The whole text with its end mark.
pub(crate) fn render(report: &Report, settings: &Settings) -> String {
    let mut text = Families::default();
    head(&mut text, report, settings);
    let series = |destination, (index, counts)| Series {
        destination,
        class: &settings.classes[index],
        counts,
    };
    let totals = report.totals.iter().enumerate();
    let totals: Vec<Series<'_>> = totals.map(|it| series(None, it)).collect();
    families(&mut text, "isolane_rpc", &totals);
    let mut each = Vec::new();
    for destination in &report.shown {
        let classes = destination.classes.iter().map(|(counts, _)| counts);
        let name = Some(destination.name.as_str());
        each.extend(classes.enumerate().map(|it| series(name, it)));
    }
    let other = report.other.iter().enumerate();
    each.extend(other.map(|it| series(Some("other"), it)));
    families(&mut text, "isolane_rpc_destination", &each);
    let name = "isolane_rpc_destination_admit_probability";
    let help = "Part of calls that are admitted, 0 to 1.";
    let mut family = text.family(Kind::Gauge, name, help);
    for destination in &report.shown {
        for (class, (_, probability)) in settings.classes.iter().zip(&destination.classes) {
            if class.options.is_some() {
                let labels: &Labels<'_> =
                    &[("destination", &destination.name), ("class", &class.name)];
                family.sample(labels, probability.as_f64());
            }
        }
    }
    text.into_text()
}

fn head(text: &mut Families, report: &Report, settings: &Settings) {
    let labels: &Labels<'_> = &[
        ("version", &env!("CARGO_PKG_VERSION")),
        ("mode", &settings.mode.name()),
    ];
    text.family(
        Kind::Info,
        "isolane_rpc",
        "Version and mode of the admission.",
    )
    .sample(labels, true);
    let help = "Destinations in the table.";
    text.family(Kind::Gauge, "isolane_rpc_destinations", help)
        .sample(&[], report.destinations);
    let help = "Destinations that left the table.";
    text.family(Kind::Counter, "isolane_rpc_destinations_evicted", help)
        .sample(&[], report.evicted);
    let help = "Calls to destinations without a place of their own.";
    text.family(Kind::Counter, "isolane_rpc_overflowed", help)
        .sample(&[], report.overflowed);
    let help = "The objective of the class, for each MTU of a call.";
    let mut family = text.family(Kind::Gauge, "isolane_rpc_target_seconds_per_mtu", help);
    for class in &settings.classes {
        if let Some(options) = &class.options {
            let target = options.target_per_mtu.as_secs_f64();
            family.sample(&[("class", &class.name)], target);
        }
    }
}

fn families(text: &mut Families, prefix: &str, series: &[Series<'_>]) {
    for counter in &COUNTERS {
        let name = format!("{prefix}_{}", counter.name);
        let mut family = text.family(Kind::Counter, &name, counter.help);
        for series in series {
            if series.class.options.is_some() || !counter.of_objective {
                let value = (counter.value)(series.counts);
                series.labels(|labels| family.sample(labels, value));
            }
        }
    }
    let name = format!("{prefix}_network_latency_seconds");
    let help = "Time from the transport taking a call to its last byte being there.";
    let mut family = text.family(Kind::Histogram, &name, help);
    let ends = || {
        let ends = BUCKET_ENDS_NS.iter().map(|&end| end as f64 / 1e9);
        ends.chain([f64::INFINITY])
    };
    for series in series {
        let counts = series.counts;
        let buckets = ends().zip(counts.histogram);
        let sum = counts.latency_sum_ns as f64 / 1e9;
        series.labels(|labels| family.histogram(labels, buckets, sum));
    }
}

//! Attachments as OpenMetrics text.
//!
//! Units: base units as the format wants them. Limits: flows are counted, not shown one by one: there may be thousands.
//! Source: the OpenMetrics specification, version 1.0.0.

use crate::error::NicError;
use crate::journal::Journal;
use crate::status::{Asked, Report, report};
use crate::system::System;
use std::fmt::{Display, Write};

/// Families for every device that is attached in this namespace, without the end mark; empty where there is none.
///
/// # Errors
/// A journal that cannot be read.
pub fn families(system: &System) -> Result<String, NicError> {
    let journals = Journal::all(system)?;
    // A device that goes away meanwhile is left out.
    let reports = journals
        .iter()
        .filter_map(|journal| report(system, &journal.device, Asked::default()).ok());
    Ok(text(&reports.collect::<Vec<_>>()))
}

/// A whole text with its end mark.
pub fn render(reports: &[Report]) -> String {
    text(reports) + "# EOF\n"
}

fn text(reports: &[Report]) -> String {
    let mut text = String::new();
    if reports.is_empty() {
        return text;
    }
    family(
        &mut text,
        "isolane_nic_controlled",
        "gauge",
        "Whether a controller runs",
    );
    for report in reports {
        let controlled = u8::from(report.controller.is_some());
        sample(
            &mut text,
            "isolane_nic_controlled",
            &report.device,
            &[],
            controlled,
        );
    }
    family(
        &mut text,
        "isolane_nic_segment_bytes",
        "gauge",
        "Largest segment",
    );
    for report in reports {
        sample(
            &mut text,
            "isolane_nic_segment_bytes",
            &report.device,
            &[],
            report.sizes.general,
        );
    }
    family(
        &mut text,
        "isolane_nic_queue_flows",
        "gauge",
        "Flows with anything outstanding in a queue",
    );
    for (report, queue) in queues(reports) {
        let label = [("queue", queue.queue.to_string())];
        sample(
            &mut text,
            "isolane_nic_queue_flows",
            &report.device,
            &label,
            queue.flows,
        );
    }
    family(
        &mut text,
        "isolane_nic_queue_weight",
        "gauge",
        "Weight of those flows; one is 1",
    );
    for (report, queue) in queues(reports) {
        let label = [("queue", queue.queue.to_string())];
        sample(
            &mut text,
            "isolane_nic_queue_weight",
            &report.device,
            &label,
            queue.weight,
        );
    }
    let what =
        "What became of packets, and of flows whose completions were lost or that lost their entry";
    family(&mut text, "isolane_nic_events", "counter", what);
    for report in reports {
        let events = &report.events;
        let counts = [
            ("assigned", events.assigned),
            ("kept", events.kept),
            ("latency", events.latency),
            ("table_full", events.table_full),
            ("stood_aside", events.stood_aside),
            ("overruled", events.overruled),
            ("healed", events.healed),
            ("evicted", events.evicted),
        ];
        for (event, count) in counts {
            let label = [("event", event.to_owned())];
            sample(
                &mut text,
                "isolane_nic_events_total",
                &report.device,
                &label,
                count,
            );
        }
    }
    text
}

fn queues(reports: &[Report]) -> impl Iterator<Item = (&Report, &crate::status::QueueReport)> {
    let of = |report| {
        let report: &Report = report;
        report.queues.iter().map(move |queue| (report, queue))
    };
    reports.iter().flat_map(of)
}

fn family(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# TYPE {name} {kind}");
    if name.ends_with("_bytes") {
        let _ = writeln!(text, "# UNIT {name} bytes");
    }
    let _ = writeln!(text, "# HELP {name} {help}");
}

/// Device names hold no character that the format would want escaped, but for a backslash or a quote that somebody chose.
fn sample(
    text: &mut String,
    name: &str,
    device: &str,
    labels: &[(&str, String)],
    value: impl Display,
) {
    let device = device.replace('\\', "\\\\").replace('"', "\\\"");
    let _ = write!(text, "{name}{{device=\"{device}\"");
    for (label, value) in labels {
        let _ = write!(text, ",{label}=\"{value}\"");
    }
    let _ = writeln!(text, "}} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Sizes;
    use crate::options::Options;
    use crate::status::{Events, QueueReport};
    use expect_test::expect;

    #[test]
    fn a_device_is_told_in_families() {
        let report = Report {
            version: 1,
            device: "eth0".to_owned(),
            controller: Some(7),
            options: Options::default(),
            weights_told_to: None,
            sizes: Sizes {
                general: 16_384,
                ipv4: None,
            },
            segments_reduced: true,
            queues: vec![QueueReport {
                queue: 0,
                flows: 2,
                weight: 2.5,
                sent_bytes: 0,
            }],
            flows_known: 2,
            flows: Vec::new(),
            events: Events {
                assigned: 9,
                ..Events::default()
            },
            fairness: None,
            cost: None,
        };
        let text = render(&[report]);
        let kept: Vec<&str> = text.lines().filter(|line| !line.ends_with(" 0")).collect();
        expect![[r##"
            # TYPE isolane_nic_controlled gauge
            # HELP isolane_nic_controlled Whether a controller runs
            isolane_nic_controlled{device="eth0"} 1
            # TYPE isolane_nic_segment_bytes gauge
            # UNIT isolane_nic_segment_bytes bytes
            # HELP isolane_nic_segment_bytes Largest segment
            isolane_nic_segment_bytes{device="eth0"} 16384
            # TYPE isolane_nic_queue_flows gauge
            # HELP isolane_nic_queue_flows Flows with anything outstanding in a queue
            isolane_nic_queue_flows{device="eth0",queue="0"} 2
            # TYPE isolane_nic_queue_weight gauge
            # HELP isolane_nic_queue_weight Weight of those flows; one is 1
            isolane_nic_queue_weight{device="eth0",queue="0"} 2.5
            # TYPE isolane_nic_events counter
            # HELP isolane_nic_events What became of packets, and of flows whose completions were lost or that lost their entry
            isolane_nic_events_total{device="eth0",event="assigned"} 9
            # EOF"##]]
        .assert_eq(&kept.join("\n"));
        assert_eq!(render(&[]), "# EOF\n");
    }
}

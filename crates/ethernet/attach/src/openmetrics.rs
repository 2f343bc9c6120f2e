//! Attachments as OpenMetrics text.
//!
//! Limits: flows are counted, not shown one by one: there may be thousands.

use crate::error::NicError;
use crate::journal::Journal;
use crate::status::{Asked, Report, report};
use crate::system::System;
use isolane_common_text_output::openmetrics::{Families, Kind, Labels};

/// Families of all attached devices of this namespace, without the end mark; empty if there are none. Fails if a
/// journal cannot be read.
pub fn families(system: &System) -> Result<String, NicError> {
    let journals = Journal::all(system)?;
    // A device that is removed meanwhile is left out.
    let reports = journals
        .iter()
        .filter_map(|journal| report(system, &journal.device, Asked::default()).ok());
    Ok(written(&reports.collect::<Vec<_>>()).into_families())
}

/// A whole text with its end mark.
pub fn render(reports: &[Report]) -> String {
    written(reports).into_text()
}

fn written(reports: &[Report]) -> Families {
    let mut text = Families::default();
    if reports.is_empty() {
        return text;
    }
    let help = "Whether a controller runs";
    let mut family = text.family(Kind::Gauge, "isolane_nic_controlled", help);
    for report in reports {
        family.sample(&[("device", &report.device)], report.controller.is_some());
    }
    let help = "Whether flows get the chosen queues; 0 while the programs step aside";
    let mut family = text.family(Kind::Gauge, "isolane_nic_effective", help);
    for report in reports {
        family.sample(&[("device", &report.device)], report.aside.is_none());
    }
    let help = "Largest segment";
    let mut family = text.family(Kind::Gauge, "isolane_nic_segment_bytes", help);
    for report in reports {
        family.sample(&[("device", &report.device)], report.sizes.general);
    }
    let help = "Flows with outstanding packets in a queue";
    let mut family = text.family(Kind::Gauge, "isolane_nic_queue_flows", help);
    for (report, queue) in queues(reports) {
        let labels: &Labels<'_> = &[("device", &report.device), ("queue", &queue.queue)];
        family.sample(labels, queue.flows);
    }
    let help = "Sum of the weights of these flows; a usual flow has 1";
    let mut family = text.family(Kind::Gauge, "isolane_nic_queue_weight", help);
    for (report, queue) in queues(reports) {
        let labels: &Labels<'_> = &[("device", &report.device), ("queue", &queue.queue)];
        family.sample(labels, queue.weight);
    }
    let help = "Packets by outcome, and flows that lost completions or their table entry";
    let mut family = text.family(Kind::Counter, "isolane_nic_events", help);
    for report in reports {
        let events = &report.events;
        for (event, count) in [
            ("assigned", events.assigned),
            ("kept", events.kept),
            ("latency", events.latency),
            ("table_full", events.table_full),
            ("stood_aside", events.stood_aside),
            ("checked", events.checked),
            ("overruled", events.overruled),
            ("dropped", events.dropped),
            ("healed", events.healed),
            ("evicted", events.evicted),
            ("carried", events.carried),
        ] {
            family.sample(&[("device", &report.device), ("event", &event)], count);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Sizes;
    use crate::options::Options;
    use crate::status::{Events, QueueReport};
    use expect_test::expect;

    #[test]
    fn a_device_is_described_in_families() {
        let report = Report {
            version: 1,
            device: "eth0".to_owned(),
            controller: Some(7),
            aside: None,
            options: Options::default(),
            weight_interface: None,
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
            not_carried: Vec::new(),
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
            # TYPE isolane_nic_effective gauge
            # HELP isolane_nic_effective Whether flows get the chosen queues; 0 while the programs step aside
            isolane_nic_effective{device="eth0"} 1
            # TYPE isolane_nic_segment_bytes gauge
            # UNIT isolane_nic_segment_bytes bytes
            # HELP isolane_nic_segment_bytes Largest segment
            isolane_nic_segment_bytes{device="eth0"} 16384
            # TYPE isolane_nic_queue_flows gauge
            # HELP isolane_nic_queue_flows Flows with outstanding packets in a queue
            isolane_nic_queue_flows{device="eth0",queue="0"} 2
            # TYPE isolane_nic_queue_weight gauge
            # HELP isolane_nic_queue_weight Sum of the weights of these flows; a usual flow has 1
            isolane_nic_queue_weight{device="eth0",queue="0"} 2.5
            # TYPE isolane_nic_events counter
            # HELP isolane_nic_events Packets by outcome, and flows that lost completions or their table entry
            isolane_nic_events_total{device="eth0",event="assigned"} 9
            # EOF"##]]
        .assert_eq(&kept.join("\n"));
        assert_eq!(render(&[]), "# EOF\n");
    }
}

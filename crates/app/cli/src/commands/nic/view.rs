//! An attached device in words and tables.

use crate::text::{Table, counted, fitted, number, optional};
use isolane_ethernet_attach::effect::Aside;
use isolane_ethernet_attach::options::{Segments, Weights};
use isolane_ethernet_attach::status::{COST_PACKETS_MIN, Report};
use std::collections::BTreeMap;

/// Flows shown without `--all`.
const FLOWS: usize = 16;

/// The report, with every flow if `all`.
pub(super) fn text(report: &Report, all: bool) -> String {
    let mut text = head(report);
    text.push('\n');
    text.push_str(&queues(report));
    text.push_str(&flows(report, all));
    text.push_str(&measured(report));
    text.push_str(&remarks(report));
    text
}

fn head(report: &Report) -> String {
    let options = &report.options;
    let weights = match options.weights {
        Weights::Flow => "every flow weighs one",
        Weights::Dscp => "flows weigh by DSCP",
        Weights::Cgroup => "flows weigh by container",
    };
    let mut words = vec![weights.to_owned()];
    words.extend(
        options
            .pools
            .then(|| "queues belong to processors".to_owned()),
    );
    words.extend(
        options
            .latency
            .then(|| "one queue for small packets".to_owned()),
    );
    let size = report.sizes.general >> 10;
    words.push(match (options.segments, report.segments_reduced) {
        (Segments::Off, _) => format!("segments up to {size} KiB"),
        (_, true) => format!("segments up to {size} KiB while queues are shared"),
        (_, false) => format!("segments up to {size} KiB, as no queue is shared"),
    });
    if let Some(reason) = report.aside {
        words = vec![aside(reason)];
    }
    let controller = match report.controller {
        Some(process) => format!("controlled by process {process}"),
        None => "no controller".to_owned(),
    };
    format!("{}: {}; {controller}\n", report.device, words.join(", "))
}

/// Why the programs do nothing, and what to do.
fn aside(reason: Aside) -> String {
    match reason {
        Aside::OneQueue => "no effect: the device has one transmit queue now".to_owned(),
        Aside::XpsMaps => {
            "no effect: XPS maps were set, which the kernel prefers; empty them or detach"
                .to_owned()
        }
        Aside::Overruled { percent } => format!(
            "no effect: {percent} % of the choices were overruled by the driver or by another program on egress; detach"
        ),
    }
}

fn queues(report: &Report) -> String {
    let total: u64 = report.queues.iter().map(|queue| queue.sent_bytes).sum();
    let mut table = Table::new("rrrr", &["queue", "flows", "weight", "sent %"]);
    for queue in &report.queues {
        let share = (total > 0).then(|| queue.sent_bytes as f64 * 100.0 / total as f64);
        table.row(vec![
            queue.queue.to_string(),
            queue.flows.to_string(),
            number(queue.weight),
            optional(share),
        ]);
    }
    fitted(&table)
}

fn flows(report: &Report, all: bool) -> String {
    if report.flows.is_empty() {
        return String::new();
    }
    let headings = [
        "flow",
        "queue",
        "weight",
        "outstanding",
        "sent KiB",
        "moves",
    ];
    let mut table = Table::new("lrrrrr", &headings);
    let shown = if all { report.flows.len() } else { FLOWS };
    for flow in report.flows.iter().take(shown) {
        table.row(vec![
            format!("{:08x}", flow.hash),
            flow.queue.to_string(),
            number(flow.weight),
            flow.outstanding.to_string(),
            (flow.sent_bytes >> 10).to_string(),
            flow.moves.to_string(),
        ]);
    }
    let left = report.flows.len().saturating_sub(shown);
    let more = match left {
        0 => String::new(),
        left => format!("  and {left} more (--flows)\n"),
    };
    format!("\n{}{more}", fitted(&table))
}

fn measured(report: &Report) -> String {
    let mut text = String::new();
    if let Some(fairness) = &report.fairness {
        text.push_str(&format!(
            "\nFairness over {} s: {} busy flows, NFM {} at 1 ms and {} at 1 s (0 is fair), Jain index {}\n",
            number(fairness.seconds),
            fairness.busy_flows,
            optional(fairness.nfm_1ms),
            optional(fairness.nfm_1s),
            optional(fairness.jain)
        ));
    }
    if let Some(cost) = &report.cost {
        let packets = counted(cost.packets, "packet");
        text.push_str(&match cost.packet_ns {
            None => format!(
                "Cost unknown: {packets} while measuring, and a mean needs {COST_PACKETS_MIN}\n"
            ),
            Some(each) => format!(
                "Cost over {packets}: {} ns each, of which {} ns at egress; {} ns for each packet freed on this machine\n",
                number(each),
                optional(cost.egress_ns),
                optional(cost.completion_ns)
            ),
        });
    }
    text
}

fn remarks(report: &Report) -> String {
    let events = &report.events;
    let mut text = format!(
        "\n{} known; a queue was chosen {}, kept {}\n",
        counted(report.flows_known as u64, "flow"),
        counted(events.assigned, "time"),
        counted(events.kept, "time")
    );
    match &report.weight_interface {
        Some(name) => text.push_str(&format!("Queue weights go to the device by {name}\n")),
        None => text.push_str("The device takes no queue weights: it serves its queues in turn\n"),
    }
    let mut not_carried = BTreeMap::<&str, Vec<&str>>::new();
    for one in &report.not_carried {
        let paths = not_carried.entry(&one.reason).or_default();
        paths.push(&one.path);
    }
    for (reason, paths) in not_carried {
        let paths = paths.join(", ");
        text.push_str(&format!(
            "Routed flows of {paths} weigh one each: {reason}\n"
        ));
    }
    let counts = [
        (
            events.carried,
            "times a routed flow had the weight of its container",
        ),
        (
            events.stood_aside,
            "packets were left to the kernel, as the device reported nothing sent or another processor was choosing their queue",
        ),
        (
            events.table_full,
            "packets were left to the kernel, as the table of flows was full",
        ),
        (
            events.overruled,
            "times the kernel used another queue than the assigned one (an XPS map, another program)",
        ),
        (
            events.dropped,
            "packets were dropped before the device sent them",
        ),
        (
            events.healed,
            "flows lost their completions and count as drained",
        ),
    ];
    for (count, what) in counts {
        if count > 0 {
            text.push_str(&format!("{count} {what}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_ethernet_attach::containers::NotCarried;
    use isolane_ethernet_attach::link::Sizes;
    use isolane_ethernet_attach::options::Options;
    use isolane_ethernet_attach::status::{Cost, Events, Fairness, FlowReport, QueueReport};

    #[test]
    fn a_report_has_its_units() {
        let queue = |queue, flows| QueueReport {
            queue,
            flows,
            weight: f64::from(flows),
            sent_bytes: 1 << 20,
        };
        let report = Report {
            version: 1,
            device: "eth0".to_owned(),
            controller: None,
            options: Options::default(),
            weight_interface: None,
            sizes: Sizes {
                general: 65_536,
                ipv4: None,
            },
            aside: None,
            segments_reduced: false,
            queues: vec![queue(0, 1), queue(1, 2)],
            not_carried: ["b", "c"]
                .map(|name| NotCarried {
                    path: format!("/a.slice/{name}"),
                    reason: "attach the device again".to_owned(),
                })
                .to_vec(),
            flows_known: 5,
            flows: vec![FlowReport {
                hash: 0xabc,
                queue: 1,
                weight: 1.0,
                outstanding: 3,
                sent_bytes: 1 << 20,
                moves: 7,
                cgroup: 0,
            }],
            events: Events {
                assigned: 10,
                kept: 90,
                overruled: 2,
                kept_by_socket: 0,
                ..Events::default()
            },
            fairness: Some(Fairness {
                seconds: 2.0,
                busy_flows: 1,
                nfm_1ms: Some(0.25),
                nfm_1s: None,
                jain: None,
            }),
            cost: Some(Cost {
                packets: 1,
                egress_ns: None,
                completion_ns: None,
                packet_ns: None,
            }),
        };
        let want = "\
eth0: every flow weighs one, segments up to 64 KiB, as no queue is shared; no controller

  queue  flows  weight  sent %
      0      1    1.00   50.00
      1      2    2.00   50.00

  flow      queue  weight  outstanding  sent KiB  moves
  00000abc      1    1.00            3      1024      7

Fairness over 2.00 s: 1 busy flows, NFM 0.2500 at 1 ms and - at 1 s (0 is fair), Jain index -
Cost unknown: 1 packet while measuring, and a mean needs 100

5 flows known; a queue was chosen 10 times, kept 90 times
The device takes no queue weights: it serves its queues in turn
Routed flows of /a.slice/b, /a.slice/c weigh one each: attach the device again
2 times the kernel used another queue than the assigned one (an XPS map, another program)
";
        assert_eq!(text(&report, false), want);
    }
}

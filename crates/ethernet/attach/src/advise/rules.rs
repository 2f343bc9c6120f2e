//! The rules. Figures: titan, table 3 (3 and 12 flows on 8 queues) and table 4.

use super::{Finding, Weight};
use crate::device::Device;
use crate::ethtool::Moderation;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attachment {
    /// Whether its controller runs.
    pub(super) controlled: bool,
    /// Whether it sizes segments.
    pub(super) segments: bool,
}

pub(super) type Rule = fn(&Device, Option<Attachment>) -> Option<Finding>;

pub(super) const ALL: &[Rule] = &[
    one_queue,
    hashing,
    no_controller,
    no_segmentation,
    large_segments,
    one_discipline,
    first_in_first_out,
    no_byte_limit,
    large_byte_limit,
    rare_interrupts,
    large_tcp_limit,
];

/// Byte limit of the study's best configuration, bytes.
const BYTE_LIMIT: u64 = 256 << 10;
/// Microseconds between interrupts at 20,000 interrupts per second.
const INTERRUPT_USECS: u32 = 50;
/// A flow's limit below TCP in recent kernels, bytes; a higher one makes TCP Small Queues ineffective.
const TCP_LIMIT: u64 = 4 << 20;
/// Largest segment without jumbo payload headers, bytes.
const SEGMENT: u32 = 64 << 10;

fn finding(rule: &'static str, weight: Weight, found: impl Into<String>) -> Finding {
    Finding {
        rule,
        weight,
        found: found.into(),
        costs: "",
        measured: "",
        command: None,
    }
}

fn one_queue(device: &Device, _: Option<Attachment>) -> Option<Finding> {
    if device.queues.len() != 1 {
        return None;
    }
    let name = &device.name;
    let found = format!(
        "{name} uses one transmit queue of {} possible",
        device.queues_max.max(1)
    );
    let command = device.more_queues();
    let weight = match command {
        Some(_) => Weight::Change,
        None => Weight::Know,
    };
    Some(Finding {
        costs: "all processors take turns at one lock, and every packet waits behind all others",
        measured: "no figure: the study left single queues out because they do not reach 10 Gb/s (titan, section 3)",
        command,
        ..finding("one-queue", weight, found)
    })
}

fn hashing(device: &Device, attachment: Option<Attachment>) -> Option<Finding> {
    // A device that only passes packets on does not queue them.
    if device.queues.len() < 2 || attachment.is_some() || !device.frees_what_it_sent() {
        return None;
    }
    let (found, measured) = match device.has_maps() {
        false => (
            "flows get their queue by a hash, so some share one while others are idle",
            "NFM at 1 ms with 12 flows: 1.92 by hash, 0.32 with Titan; with 3 flows 0.16 and 0.01 \
             (titan, table 3: C6, T3)",
        ),
        true => (
            "flows get their queue by the processor they run on (XPS) and a hash among its queues",
            "NFM at 1 ms with 12 flows: 0.96 with XPS, 0.31 with Titan and XPS; at 1 s 0.80 and 0.02 \
             (titan, table 3: XPS, TX3)",
        ),
    };
    let pools = if device.has_maps() { " --xps" } else { "" };
    Some(Finding {
        costs: "a flow that shares its queue gets half of what one alone gets, for as long as both last",
        measured,
        command: Some(device.command(&format!("isolane nic attach {}{pools}", device.name))),
        ..finding("hashing", Weight::Change, found)
    })
}

fn no_controller(device: &Device, attachment: Option<Attachment>) -> Option<Finding> {
    if attachment?.controlled {
        return None;
    }
    Some(Finding {
        costs: "queues go on being assigned, but queue weights and segment sizes stay as they were left",
        measured: "NFM at 1 ms with 12 flows: 1.33 with queue assignment alone, 0.32 with all three \
                   (titan, table 3: T1, T3)",
        command: Some(device.command(&format!("isolane nic attach {}", device.name))),
        ..finding(
            "no-controller",
            Weight::Change,
            "Titan is attached, but its controller does not run",
        )
    })
}

fn no_segmentation(device: &Device, _: Option<Attachment>) -> Option<Finding> {
    let possible = device.offloads.possible.contains("tx-tcp-segmentation");
    if device.cuts_segments() || device.offloads.features.is_empty() {
        return None;
    }
    Some(Finding {
        costs: "processors cut segments into packets, and are too slow for the link",
        measured: "12 flows: 3.6 instead of 9.4 Gb/s, 466 instead of 44 % of a processor (titan, table 3: C8, C6)",
        command: possible.then(|| device.command(&format!("ethtool -K {} tso on", device.name))),
        ..finding(
            "no-segmentation-offload",
            if possible {
                Weight::Change
            } else {
                Weight::Know
            },
            "the device does not cut TCP segments (TSO is off)",
        )
    })
}

fn large_segments(device: &Device, attachment: Option<Attachment>) -> Option<Finding> {
    let sized = attachment.is_some_and(|attachment| attachment.segments);
    let is_card = device.frees_what_it_sent();
    if sized || device.sizes.general < SEGMENT || device.queues.len() < 2 || !is_card {
        return None;
    }
    let found = format!(
        "segments have up to {} KiB whether queues are shared or not",
        device.sizes.general >> 10
    );
    Some(Finding {
        costs: "in a shared queue a packet waits for whole segments of others",
        measured: "NFM at 1 ms with 12 flows: 1.20 with 64 KiB, 0.32 with 16 KiB while queues are shared \
                   (titan, table 3: T2, T3); 16 KiB at all times costs 3 flows 70 instead of 57 % of a processor (C9, C6)",
        command: Some(device.command(&format!("isolane nic attach {} --dsos auto", device.name))),
        // Without Titan, the rule about hashing names the same command.
        ..finding(
            "large-segments",
            if attachment.is_some() {
                Weight::Change
            } else {
                Weight::Know
            },
            found,
        )
    })
}

fn one_discipline(device: &Device, _: Option<Attachment>) -> Option<Finding> {
    let root = device.disciplines.root()?;
    if device.queues.len() < 2 || matches!(root, "mq" | "mqprio" | "noqueue" | "taprio") {
        return None;
    }
    let found = format!(
        "one `{root}` at the root precedes {} transmit queues",
        device.queues.len()
    );
    Some(Finding {
        costs: "every packet takes one lock, and what the discipline orders the queues below mix again",
        measured: "no figure in titan's tables, which have a discipline for each queue throughout",
        command: Some(device.command(&format!(
            "tc qdisc replace dev {} root handle 1: mq",
            device.name
        ))),
        ..finding("one-discipline", Weight::Know, found)
    })
}

fn first_in_first_out(device: &Device, _: Option<Attachment>) -> Option<Finding> {
    let leaves = device.disciplines.leaves();
    let count: usize = ["pfifo_fast", "pfifo", "bfifo"]
        .iter()
        .filter_map(|kind| leaves.get(kind))
        .sum();
    if count == 0 {
        return None;
    }
    let found = format!("{count} queues are first in, first out above the device");
    Some(Finding {
        costs: "a small packet waits behind everything that was sent before it",
        measured: "p90 ping with 12 flows: 1.83 ms first in, first out, 1.19 ms with fair queueing and priority \
                   (titan, table 3: C1, C3)",
        command: Some(device.command(&format!(
            "sysctl -w net.core.default_qdisc=fq_codel; tc qdisc replace dev {} root handle 1: mq",
            device.name
        ))),
        ..finding("first-in-first-out", Weight::Change, found)
    })
}

fn no_byte_limit(device: &Device, _: Option<Attachment>) -> Option<Finding> {
    let is_hardware = device.frees_what_it_sent() && device.driver != "tun";
    let limited = device.queues.iter().any(|queue| queue.limit.is_some());
    if limited || !is_hardware || device.queues.is_empty() {
        return None;
    }
    Some(Finding {
        costs: "the device's own queues fill up to their length in packets, and every flow waits for them",
        measured: "p90 ping with 12 flows: 2.04 ms without byte limits, 1.19 ms with (titan, table 3: C4, C3)",
        ..finding(
            "no-byte-limit",
            Weight::Know,
            "no byte limit (BQL) is at work: the driver has none, or nothing was sent yet",
        )
    })
}

fn large_byte_limit(device: &Device, _: Option<Attachment>) -> Option<Finding> {
    let most = device
        .queues
        .iter()
        .filter_map(|queue| queue.limit)
        .map(|limit| limit.limit_bytes)
        .max()?;
    if most <= BYTE_LIMIT {
        return None;
    }
    Some(Finding {
        costs: "a packet waits for more bytes in the device than are needed to keep it busy",
        measured: "p90 ping with 3 flows: 0.50 ms with the kernel's own limit, 0.33 ms with 256 KiB (titan, table 3: C3, C5)",
        command: Some(device.command(&format!(
            "for limit in /sys/class/net/{}/queues/tx-*/byte_queue_limits/limit_max; do echo {BYTE_LIMIT} > $limit; done",
            device.name
        ))),
        ..finding(
            "large-byte-limit",
            Weight::Change,
            format!("the byte limit of a queue is {} KiB", most >> 10),
        )
    })
}

fn rare_interrupts(device: &Device, _: Option<Attachment>) -> Option<Finding> {
    let moderation = device.offloads.moderation?;
    let Moderation {
        tx_usecs: Some(usecs),
        adaptive,
        ..
    } = moderation
    else {
        return None;
    };
    if usecs <= INTERRUPT_USECS || adaptive == Some(true) {
        return None;
    }
    Some(Finding {
        costs: "flows learn late that their packets have left, so queues run empty or need to be long",
        measured: "20,000 interrupts/s instead of the driver's choice, 12 flows: p90 ping 1.04 instead of 1.24 ms, \
                   44 instead of 51 % of a processor (titan, table 3: C6, C5)",
        command: Some(device.command(&format!(
            "ethtool -C {} tx-usecs {INTERRUPT_USECS}",
            device.name
        ))),
        ..finding(
            "rare-interrupts",
            Weight::Change,
            format!("a transmit interrupt waits for {usecs} us"),
        )
    })
}

fn large_tcp_limit(device: &Device, _: Option<Attachment>) -> Option<Finding> {
    let limit = device
        .tcp
        .limit_output_bytes
        .filter(|limit| *limit > TCP_LIMIT)?;
    Some(Finding {
        costs: "flows fill the queues below them, and packets of other flows wait",
        measured: "p90 ping with 3 flows: 1.19 ms without TCP Small Queues, 0.38 ms with (titan, table 3: C2, C1)",
        command: Some(device.command(&format!(
            "sysctl -w net.ipv4.tcp_limit_output_bytes={TCP_LIMIT}"
        ))),
        ..finding(
            "large-tcp-limit",
            Weight::Change,
            format!("a flow may have {} KiB below TCP", limit >> 10),
        )
    })
}

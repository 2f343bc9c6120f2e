//! Checks the Ethernet configuration of a RoCE device: a lossless class that RDMA traffic uses, or congestion control.
//!
//! The chain is: the type of service that rdma_cm gives new connections -> DSCP -> priority -> traffic class, and
//! priority flow control and ECN on that priority. Each step can fail alone, so each has a check. Programs that set
//! their own traffic class bypass the first step.

use super::device::Port;
use super::{Check, Live};
use crate::dcb::{Bridging, Selection};
use isolane_common_linux::root::Root;

/// Every check of one RoCE port.
pub fn checks(root: &Root, live: &Live, port: &Port) -> Vec<Check> {
    let Some(name) = port.network_device.as_deref() else {
        let seen = "no network device found for the port";
        return vec![Check::unknown("PFC", seen, "rdma link")];
    };
    let mut checks = Vec::new();
    match live.bridging.get(name) {
        Some(bridging) => {
            checks.push(flow_control(name, bridging));
            checks.extend(classes(name, bridging));
        }
        None => checks.push(Check::unknown(
            "PFC",
            format!("the driver of {name} has no DCB (a virtual function, or set by its firmware)"),
            format!("mlnx_qos -i {name}, on the physical function"),
        )),
    }
    checks.push(service(root, live, port, name));
    checks.push(congestion(root, live, port, name));
    checks
}

fn pauses(counts: &[u64]) -> u64 {
    counts
        .iter()
        .fold(0, |sum, count| sum.saturating_add(*count))
}

fn flow_control(name: &str, bridging: &Bridging) -> Check {
    const NAME: &str = "PFC";
    /// Each lossless priority takes buffer for the round trip of a pause; switches have it for two.
    const MOST_LOSSLESS: usize = 2;
    let Some(flow_control) = &bridging.flow_control else {
        return Check::unknown(NAME, "the driver has none", format!("ethtool -a {name}"));
    };
    let priorities = flow_control.priorities();
    let frames = format!(
        "{} pause frames sent, {} received",
        pauses(&flow_control.pauses_sent),
        pauses(&flow_control.pauses_received)
    );
    match priorities.len() {
        0 => Check::warn(
            NAME,
            "on no priority: a full buffer drops RDMA packets",
            format!(
                "dcb pfc set dev {name} prio-pfc all:off 3:on   # the same on the switch, or rely on ECN alone"
            ),
        ),
        count if count > MOST_LOSSLESS => Check::warn(
            NAME,
            format!("on priorities {}; {frames}", list(&priorities)),
            format!(
                "few switches have buffers for more than two: dcb pfc set dev {name} prio-pfc all:off 3:on"
            ),
        ),
        _ => Check::ok(NAME, format!("on priority {}; {frames}", list(&priorities))),
    }
}

fn list(numbers: &[u8]) -> String {
    let texts: Vec<String> = numbers.iter().map(u8::to_string).collect();
    texts.join(", ")
}

fn classes(name: &str, bridging: &Bridging) -> Option<Check> {
    const NAME: &str = "traffic classes";
    let classes = bridging.classes.as_ref()?;
    let priorities = bridging.flow_control.as_ref()?.priorities();
    let priority = *priorities.first()?;
    let class = classes.class_of_priority[usize::from(priority)];
    let index = usize::from(class).min(7);
    let served = match classes.selection[index] {
        Selection::Strict => "served first".to_owned(),
        Selection::Share => format!("{} % of the link", classes.bandwidth_percent[index]),
        Selection::CreditShaper | Selection::Vendor => "the vendor's order".to_owned(),
    };
    let seen = format!("priority {priority} is class {class}, {served}");
    let shared = priority != 0 && classes.class_of_priority[0] == class;
    Some(match shared {
        true => Check::warn(
            NAME,
            format!("{seen}, and so is priority 0: a pause stops other traffic too"),
            format!(
                "dcb ets set dev {name} prio-tc 0:0 {priority}:{priority} tc-tsa 0:ets {priority}:ets tc-bw 0:50 {priority}:50"
            ),
        ),
        false => Check::ok(NAME, seen),
    })
}

/// The type of service of new connections of rdma_cm, and the resulting priority.
fn service(root: &Root, live: &Live, port: &Port, name: &str) -> Check {
    const NAME: &str = "type of service";
    let folder = format!(
        "/sys/kernel/config/rdma_cm/{}/ports/{}",
        port.device, port.number
    );
    let mode = root.text(&format!("{folder}/default_roce_mode"));
    let service =
        forced_service(root, port).or_else(|| root.number(&format!("{folder}/default_roce_tos")));
    let Some(service) = service else {
        return Check::unknown(
            NAME,
            "rdma_cm's defaults are not shown without a request",
            format!(
                "modprobe configfs; mkdir -p /sys/kernel/config/rdma_cm/{}",
                port.device
            ),
        );
    };
    if mode.as_deref().is_some_and(|mode| mode.contains("v1")) {
        return Check::warn(
            NAME,
            "rdma_cm connects with RoCE v1, which no router passes on",
            format!("cma_roce_mode -d {} -p {} -m 2", port.device, port.number),
        );
    }
    let dscp = u8::try_from(service >> 2).unwrap_or(u8::MAX);
    let Some(bridging) = live.bridging.get(name) else {
        return Check::ok(NAME, format!("{service} (DSCP {dscp}) for new connections"));
    };
    let listed = bridging.dscp_priorities.iter();
    let by_table = listed.clone().find(|(found, _)| *found == dscp);
    // A driver that trusts DSCP without a table of its own uses the upper three bits, as mlx5 does by default.
    let priority = by_table.map_or(dscp >> 3, |(_, priority)| *priority);
    let trust = match bridging.dscp_priorities.is_empty() {
        true => "if DSCP is trusted",
        false => "by the DSCP table",
    };
    let seen = format!("{service}: DSCP {dscp}, priority {priority} {trust}");
    let lossless = bridging
        .flow_control
        .as_ref()
        .map_or_else(Vec::new, |control| control.priorities());
    match lossless.first() {
        Some(first) if !lossless.contains(&priority) => {
            let wanted = listed
                .clone()
                .find(|(_, priority)| priority == first)
                .map_or(first << 3, |(dscp, _)| *dscp);
            // The two lowest bits mean that the sender supports ECN.
            let wanted = (u16::from(wanted) << 2) | 2;
            Check::warn(
                NAME,
                format!(
                    "{seen}, which is not lossless: PFC does not protect connections of rdma_cm"
                ),
                format!(
                    "cma_roce_tos -d {} -p {} -t {wanted}",
                    port.device, port.number
                ),
            )
        }
        _ => Check::ok(NAME, seen),
    }
}

/// The traffic class that the vendor's driver package forces on every connection of a port.
fn forced_service(root: &Root, port: &Port) -> Option<u64> {
    let text = root.text(&format!(
        "/sys/class/infiniband/{}/tc/{}/traffic_class",
        port.device, port.number
    ))?;
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("Global tclass="))?;
    line.trim().parse().ok()
}

/// Congestion control per priority: from the files of the vendor's driver package, else from counters.
fn congestion(root: &Root, live: &Live, port: &Port, name: &str) -> Check {
    const NAME: &str = "ECN";
    let lossless = live
        .bridging
        .get(name)
        .and_then(|bridging| bridging.flow_control.as_ref())
        .map_or_else(Vec::new, |control| control.priorities());
    let priority = lossless.first().copied().unwrap_or(0);
    let side = |side: &str| {
        root.number(&format!(
            "/sys/class/net/{name}/ecn/{side}/enable/{priority}"
        ))
    };
    let counter = |name: &str| {
        let folder = format!(
            "/sys/class/infiniband/{}/ports/{}/hw_counters",
            port.device, port.number
        );
        root.number(&format!("{folder}/{name}"))
    };
    let counts = match (
        counter("np_ecn_marked_roce_packets"),
        counter("np_cnp_sent"),
        counter("rp_cnp_handled"),
    ) {
        (Some(marked), Some(sent), Some(handled)) => {
            format!("{marked} marked packets, {sent} notifications sent, {handled} handled")
        }
        _ => "no counters".to_owned(),
    };
    match (side("roce_np"), side("roce_rp")) {
        (Some(1), Some(1)) => Check::ok(NAME, format!("on for priority {priority}; {counts}")),
        (Some(np), Some(rp)) => Check::warn(
            NAME,
            format!("priority {priority}: notification {np}, reaction {rp} (1 is on); {counts}"),
            format!(
                "echo 1 | tee /sys/class/net/{name}/ecn/roce_np/enable/{priority} /sys/class/net/{name}/ecn/roce_rp/enable/{priority}"
            ),
        ),
        _ => match counter("np_cnp_sent").unwrap_or(0) + counter("rp_cnp_handled").unwrap_or(0) {
            0 => Check::unknown(
                NAME,
                format!("this driver does not show its settings; {counts}"),
                "mlxconfig -d DEVICE q | grep ROCE_CC_PRIO_MASK, or /sys/kernel/debug/mlx5/BDF/cc_params",
            ),
            _ => Check::ok(NAME, format!("at work: {counts}")),
        },
    }
}

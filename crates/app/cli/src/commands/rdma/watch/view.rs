//! One view as tables.

use crate::text::{Table, counted, fitted, number, optional};
use isolane_rdma_inventory::watch::{Limit, Port, Sign, Standing, User, View};

pub(super) fn text(view: &View) -> String {
    let devices = view.ports.iter().map(|port| &port.device);
    let devices: std::collections::BTreeSet<_> = devices.collect();
    let mut text = format!(
        "{}, {}; rates over {} s\n",
        counted(devices.len() as u64, "device"),
        counted(view.ports.len() as u64, "port"),
        number(view.seconds)
    );
    text += "\nPorts\n";
    text += &ports(&view.ports);
    text += "\nLimits, the nearest first\n";
    text += &limits(&view.limits);
    text += "\nSigns of congestion, loss or a slow host\n";
    text += &match view.signs.is_empty() {
        true => "  none\n".to_owned(),
        false => signs(&view.signs),
    };
    text += "\nUsers\n";
    text += &match (&view.users_unknown, view.users.is_empty()) {
        (Some(reason), _) => format!("  unknown: {reason}\n"),
        (None, true) => "  none\n".to_owned(),
        (None, false) => users(&view.users),
    };
    text
}

fn ports(ports: &[Port]) -> String {
    let headings = [
        "port",
        "driver",
        "state",
        "Gb/s",
        "sent Gb/s",
        "received Gb/s",
        "sent packets/s",
        "received packets/s",
    ];
    let mut table = Table::new("lllrrrrr", &headings);
    for port in ports {
        let gbps = |gbps: Option<f64>| match (gbps, port.of_network_device) {
            (Some(gbps), true) => format!("{} *", number(gbps)),
            (gbps, _) => optional(gbps),
        };
        table.row(vec![
            format!("{}/{}", port.device, port.port),
            port.driver.clone(),
            if port.active { "active" } else { "not active" }.to_owned(),
            optional(port.rate_gbps),
            gbps(port.sent_gbps),
            gbps(port.received_gbps),
            optional(port.sent_packets_per_s),
            optional(port.received_packets_per_s),
        ]);
    }
    let mut text = fitted(&table);
    if ports
        .iter()
        .any(|port| port.of_network_device && port.sent_gbps.is_some())
    {
        text += "  * all bytes of the network device: the driver counts no RDMA bytes\n";
    }
    text
}

fn limits(limits: &[Limit]) -> String {
    if limits.is_empty() {
        return "  none is known: the counters show no rate, and no cgroup has a limit\n"
            .to_owned();
    }
    let mut nearest: Vec<&Limit> = limits.iter().collect();
    nearest.sort_by(|left, right| right.used_percent.total_cmp(&left.used_percent));
    let headings = [
        "of", "limit", "used", "most", "unit", "used %", "", "source",
    ];
    let mut table = Table::new("llrrlrll", &headings);
    for limit in nearest {
        // Without a unit, it counts objects.
        let value = |value: f64| match limit.unit {
            "" => format!("{value:.0}"),
            _ => number(value),
        };
        table.row(vec![
            limit.of.clone(),
            limit.what.to_owned(),
            value(limit.used),
            value(limit.limit),
            limit.unit.to_owned(),
            format!("{:.1}", limit.used_percent),
            match limit.standing {
                Standing::Free => "",
                Standing::Near => "near",
                Standing::Full => "FULL",
            }
            .to_owned(),
            limit.source.clone(),
        ]);
    }
    fitted(&table)
}

fn signs(signs: &[Sign]) -> String {
    let mut table = Table::new("llrl", &["port", "counter", "per s", "meaning"]);
    for sign in signs {
        table.row(vec![
            format!("{}/{}", sign.device, sign.port),
            sign.counter.name().to_owned(),
            number(sign.per_s),
            sign.meaning.to_owned(),
        ]);
    }
    fitted(&table)
}

fn users(users: &[User]) -> String {
    let headings = [
        "device",
        "owner",
        "pid",
        "program",
        "RC packets/s",
        "QPs",
        "sending",
        "CQs",
        "MRs",
        "registered MiB",
    ];
    let mut table = Table::new("llrlrrrrrr", &headings);
    for user in users {
        let program = match user.program.as_str() {
            "" => "(ended)",
            program => program,
        };
        table.row(vec![
            user.device.clone(),
            user.owner.clone(),
            user.pid.to_string(),
            program.to_owned(),
            optional(user.rc_packets_per_s),
            user.holds.queue_pairs.to_string(),
            user.holds.queue_pairs_sending.to_string(),
            user.holds.completion_queues.to_string(),
            user.holds.memory_regions.to_string(),
            number(user.holds.memory_bytes as f64 / f64::from(1 << 20)),
        ]);
    }
    fitted(&table)
}

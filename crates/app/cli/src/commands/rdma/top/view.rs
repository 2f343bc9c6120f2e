//! Two snapshots as tables.
//!
//! Units: Gb/s of payload, messages per second, and microseconds of waiting per message. A counter that decreased (the
//! process restarted) counts as no traffic.

use crate::text::{Table, counted, fitted, number, optional};
use isolane_rdma_inventory::unheld::Unheld;
use isolaned::snapshot::{
    DeviceSnapshot, LimitSnapshot, QueuePairSnapshot, SessionSnapshot, Snapshot,
};
use std::collections::{BTreeMap, BTreeSet};

/// The view of what happened between the snapshots.
pub(crate) fn text(before: &Snapshot, now: &Snapshot, brief: bool) -> String {
    let seconds = now.now_ns.saturating_sub(before.now_ns) as f64 / 1e9;
    let rates = Rates { seconds };
    let mut text = format!(
        "{}, {}, {}; rates over {} s\n",
        counted(now.daemon.sessions, "process"),
        counted(now.tenants.len() as u64, "tenant"),
        counted(now.devices.len() as u64, "device"),
        number(seconds)
    );
    text += "\nDevices\n";
    text += &devices(&now.devices);
    text += "\nTenants\n";
    text += &tenants(before, now, rates);
    if !now.limits.is_empty() {
        text += "\nLimits\n";
        text += &limits(&now.limits);
    }
    if !now.unheld.is_empty() {
        text += "\nNot paced\n";
        text += &unheld(&now.unheld);
    }
    if !now.sessions.is_empty() {
        text += "\nProcesses\n";
        text += &sessions(before, now, rates);
    }
    if !brief
        && now
            .sessions
            .iter()
            .any(|session| !session.queue_pairs.is_empty())
    {
        text += "\nQueue pairs\n";
        text += &queue_pairs(before, now, rates);
    }
    text
}

#[derive(Clone, Copy)]
struct Rates {
    seconds: f64,
}

impl Rates {
    fn per_s(self, before: u64, now: u64) -> f64 {
        match self.seconds > 0.0 {
            true => now.saturating_sub(before) as f64 / self.seconds,
            false => 0.0,
        }
    }

    fn gbps(self, before: u64, now: u64) -> String {
        number(self.per_s(before, now) * 8.0 / 1e9)
    }
}

fn gbps(bps: u64) -> String {
    number(bps as f64 / 1e9)
}

fn per_s_gbps(bytes_per_s: u64) -> String {
    number(bytes_per_s as f64 * 8.0 / 1e9)
}

fn dash() -> String {
    "-".to_owned()
}

fn devices(devices: &[DeviceSnapshot]) -> String {
    let headings = [
        "device",
        "policy",
        "max Gb/s",
        "safe Gb/s",
        "min Gb/s",
        "senders",
        "readers",
        "latency",
        "ref p99 us",
        "foreign Gb/s",
    ];
    let mut table = Table::new("llrrrrrrrr", &headings);
    for device in devices {
        table.row(vec![
            device.name.clone(),
            device.policy.clone(),
            gbps(device.rate_max_bps),
            gbps(device.safe_util_bps),
            gbps(device.minimum_rate_bps),
            device.active_sending.to_string(),
            device.active_reading.to_string(),
            device.latency_weight.to_string(),
            optional(device.figures.get("reference_p99_us").copied()),
            device.foreign_bytes_per_s.map_or_else(dash, per_s_gbps),
        ]);
    }
    let mut text = fitted(&table);
    for device in devices.iter().filter(|device| device.has_foreign) {
        text += &format!(
            "{} sends what no session posted: until it ends, late reference messages lower no rate\n",
            device.name
        );
    }
    text
}

fn tenants(before: &Snapshot, now: &Snapshot, rates: Rates) -> String {
    let known: BTreeMap<&str, _> = before
        .tenants
        .iter()
        .map(|tenant| (tenant.name.as_str(), tenant))
        .collect();
    let mut table = Table::new(
        "lrrrr",
        &["tenant", "weight", "processes", "Gb/s", "messages/s"],
    );
    for tenant in &now.tenants {
        let (bytes, operations) = known.get(tenant.name.as_str()).map_or((0, 0), |tenant| {
            (tenant.passed_bytes, tenant.passed_operations)
        });
        table.row(vec![
            tenant.name.clone(),
            tenant.weight.to_string(),
            tenant.sessions.to_string(),
            rates.gbps(bytes, tenant.passed_bytes),
            number(rates.per_s(operations, tenant.passed_operations)),
        ]);
    }
    let mut text = fitted(&table);
    for tenant in &now.tenants {
        for device in &tenant.latency_lost_on {
            text += &format!(
                "{} has lost the latency class on {device}: it sent bulk in it and is paced as bandwidth\n",
                tenant.name
            );
        }
    }
    text
}

fn limits(limits: &[LimitSnapshot]) -> String {
    let headings = ["limit", "Gb/s", "processes", "not held", "tenants"];
    let mut table = Table::new("rrrrl", &headings);
    for limit in limits {
        table.row(vec![
            limit.number.to_string(),
            per_s_gbps(limit.bytes_per_s),
            limit.sessions.to_string(),
            limit.unheld.to_string(),
            limit.tenants.join(", "),
        ]);
    }
    fitted(&table)
}

fn unheld(unheld: &[Unheld]) -> String {
    let headings = ["pid", "program", "device", "queue pairs", "reason"];
    let mut table = Table::new("rllrl", &headings);
    for one in unheld {
        table.row(vec![
            one.pid.to_string(),
            one.program.clone(),
            one.devices.join(", "),
            match one.queue_pairs {
                0 => dash(),
                count => count.to_string(),
            },
            one.what(),
        ]);
    }
    let mut text = fitted(&table);
    let reasons: BTreeSet<_> = unheld.iter().map(|one| one.reason).collect();
    for reason in reasons {
        text += &format!("{}: {}\n", reason.text(), reason.remedy());
    }
    text
}

fn by_number(snapshot: &Snapshot) -> BTreeMap<u64, &SessionSnapshot> {
    snapshot
        .sessions
        .iter()
        .map(|session| (session.session, session))
        .collect()
}

fn sessions(before: &Snapshot, now: &Snapshot, rates: Rates) -> String {
    let known = by_number(before);
    let headings = [
        "tenant",
        "pid",
        "program",
        "class",
        "device",
        "direction",
        "state",
        "limit",
        "limit Gb/s",
        "lease Gb/s",
        "Gb/s",
        "messages/s",
        "waiting",
    ];
    let mut table = Table::new("lrlllllrrrrrr", &headings);
    for session in &now.sessions {
        let who = || {
            vec![
                session.tenant.clone(),
                session.pid.to_string(),
                session.program.clone(),
                session.class.clone(),
            ]
        };
        if session.meters.is_empty() {
            table.row(who());
        }
        for (place, meter) in session.meters.iter().enumerate() {
            let old = known
                .get(&session.session)
                .and_then(|old| old.meters.get(place));
            let (bytes, operations) =
                old.map_or((0, 0), |old| (old.passed_bytes, old.passed_operations));
            let mut row = who();
            row.extend([
                meter.device.clone(),
                if meter.remote_read { "read" } else { "send" }.to_owned(),
                if meter.active { "active" } else { "idle" }.to_owned(),
                session.limit.map_or_else(dash, |limit| limit.to_string()),
                meter.limit_bytes_per_s.map_or_else(dash, per_s_gbps),
                per_s_gbps(meter.lease_bytes_per_s),
                rates.gbps(bytes, meter.passed_bytes),
                number(rates.per_s(operations, meter.passed_operations)),
                session.waiting.to_string(),
            ]);
            table.row(row);
        }
    }
    fitted(&table)
}

fn queue_pairs(before: &Snapshot, now: &Snapshot, rates: Rates) -> String {
    let known = by_number(before);
    let headings = [
        "tenant",
        "pid",
        "queue pair",
        "class",
        "Gb/s",
        "messages/s",
        "chunks/s",
        "wait us",
    ];
    let mut table = Table::new("lrrlrrrr", &headings);
    for session in &now.sessions {
        let old = known.get(&session.session);
        for pair in &session.queue_pairs {
            let old = old.and_then(|old| {
                old.queue_pairs
                    .iter()
                    .find(|old| old.queue_pair == pair.queue_pair)
            });
            let none = QueuePairSnapshot::default();
            let old = old.unwrap_or(&none);
            let messages = pair
                .completed_messages
                .saturating_sub(old.completed_messages);
            let waited = pair.waited_ns.saturating_sub(old.waited_ns) as f64 / 1e3;
            table.row(vec![
                session.tenant.clone(),
                session.pid.to_string(),
                pair.queue_pair.to_string(),
                pair.class.clone(),
                rates.gbps(old.completed_bytes, pair.completed_bytes),
                number(rates.per_s(old.completed_messages, pair.completed_messages)),
                number(rates.per_s(old.chunks, pair.chunks)),
                optional((messages > 0).then(|| waited / messages as f64)),
            ]);
        }
    }
    fitted(&table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_rdma_inventory::unheld::Reason;
    use isolaned::snapshot::{MeterSnapshot, TenantSnapshot};

    fn snapshot(now_ns: u64, bytes: u64) -> Snapshot {
        Snapshot {
            now_ns,
            devices: vec![DeviceSnapshot {
                name: "r0".into(),
                policy: "justitia".into(),
                rate_max_bps: 40_000_000,
                safe_util_bps: 20_000_000,
                figures: BTreeMap::from([("reference_p99_us".to_owned(), 812.5)]),
                ..DeviceSnapshot::default()
            }],
            tenants: vec![TenantSnapshot {
                name: "backup".into(),
                weight: 2,
                sessions: 1,
                passed_bytes: bytes,
                passed_operations: bytes / 1_000,
                latency_lost_on: Vec::new(),
            }],
            sessions: vec![SessionSnapshot {
                session: 1,
                tenant: "backup".into(),
                pid: 77,
                program: "ib_write_bw".into(),
                class: "bandwidth".into(),
                meters: vec![MeterSnapshot {
                    device: "r0".into(),
                    active: true,
                    lease_bytes_per_s: 2_500_000,
                    passed_bytes: bytes,
                    ..MeterSnapshot::default()
                }],
                queue_pairs: vec![QueuePairSnapshot {
                    queue_pair: 17,
                    class: "bandwidth".into(),
                    completed_messages: bytes / 1_000,
                    completed_bytes: bytes,
                    chunks: bytes / 500,
                    waited_ns: bytes,
                    ..QueuePairSnapshot::default()
                }],
                ..SessionSnapshot::default()
            }],
            ..Snapshot::default()
        }
    }

    #[test]
    fn a_process_that_is_not_paced_is_named_with_reason_and_remedy() {
        let mut now = snapshot(0, 0);
        now.unheld.push(Unheld {
            pid: 99,
            program: "nccl".into(),
            devices: vec!["r0".into()],
            queue_pairs: 4,
            reason: Reason::OpensAtRunTime,
            evidence: String::new(),
        });
        let text = text(&now, &now, true);
        let (_, section) = text.split_once("Not paced\n").expect("a section");
        let words = [
            "99",
            "nccl",
            "4",
            "opens libibverbs at run time",
            "isolane rdma run",
        ];
        for word in words {
            assert!(section.contains(word), "{word}: {section}");
        }
    }

    #[test]
    fn a_tenant_that_lost_the_latency_class_is_named() {
        let mut now = snapshot(0, 0);
        now.tenants[0].latency_lost_on.push("r0".into());
        let text = text(&now, &now, true);
        let message =
            "backup has lost the latency class on r0: it sent bulk in it and is paced as bandwidth";
        assert!(text.lines().any(|line| line == message), "{text}");
    }

    #[test]
    fn rates_are_differences_over_time() {
        let before = snapshot(0, 1_000_000);
        let now = snapshot(500_000_000, 2_000_000);
        let text = text(&before, &now, false);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        // 1 MB in half a second are 16 Mb/s and 2,000 messages of 1 kB a second, each after 1 us.
        let words = |start: &str| -> Vec<&str> {
            let line = lines
                .iter()
                .rev()
                .find(|line| line.starts_with(start))
                .expect(start);
            line.split_whitespace().collect()
        };
        assert_eq!(
            words("backup  "),
            [
                "backup",
                "77",
                "17",
                "bandwidth",
                "0.0160",
                "2000",
                "4000",
                "1.00"
            ]
        );
        let tenant = lines
            .iter()
            .find(|line| line.starts_with("backup"))
            .unwrap();
        assert_eq!(
            tenant.split_whitespace().collect::<Vec<_>>(),
            ["backup", "2", "1", "0.0160", "2000"]
        );
        assert!(words("r0").contains(&"812.5"));
    }

    #[test]
    fn a_counter_that_restarted_is_no_traffic() {
        let view = text(
            &snapshot(0, 5_000_000),
            &snapshot(1_000_000_000, 1_000),
            true,
        );
        let tenant = view
            .lines()
            .find(|line| line.trim().starts_with("backup"))
            .unwrap();
        assert_eq!(tenant.split_whitespace().nth(3), Some("0"));
        assert!(!view.contains("Queue pairs"));
    }
}

//! The snapshot as OpenMetrics text.
//!
//! Units: base units as the format wants them (bytes, seconds), named at the end of each name; rates of devices in
//! bits per second, as their data sheets have them. Figures of the policy keep their own unit in their name.
//! Limits: queue pairs are not shown one by one here (a thousand processes have too many); `isolane top` has them.
//! Source: the OpenMetrics specification, version 1.0.0.

use crate::snapshot::{
    DeviceSnapshot, LimitSnapshot, MeterSnapshot, SessionSnapshot, Snapshot, TenantSnapshot,
};
use std::fmt::{Display, Write};

/// What `Content-Type` says of the text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Name, help and value of a family.
type Row<T, V> = (&'static str, &'static str, fn(&T) -> V);
/// Name, unit, help and value of a family.
type UnitRow<T, V> = (&'static str, &'static str, &'static str, fn(&T) -> V);

/// The whole text, with its end mark.
pub fn render(snapshot: &Snapshot) -> String {
    render_with(snapshot, "")
}

/// The same, with families of somebody else before the end mark.
pub fn render_with(snapshot: &Snapshot, more: &str) -> String {
    let mut text = Text::default();
    daemon(&mut text, snapshot);
    devices(&mut text, snapshot);
    tenants(&mut text, snapshot);
    limits(&mut text, snapshot);
    sessions(&mut text, snapshot);
    text.0.push_str(more);
    text.0.push_str("# EOF\n");
    text.0
}

fn daemon(text: &mut Text, snapshot: &Snapshot) {
    text.family("isolane_build", "info", "", "Version of the daemon");
    text.sample(
        "isolane_build_info",
        &[("version", env!("CARGO_PKG_VERSION"))],
        1,
    );
    let figures = &snapshot.daemon;
    text.family("isolane_sessions", "gauge", "", "Processes that are served");
    text.sample("isolane_sessions", &[], figures.sessions);
    let counters = [
        (
            "isolane_sessions_opened",
            figures.sessions_total,
            "Processes ever served",
        ),
        (
            "isolane_sessions_refused",
            figures.refused_total,
            "Processes ever refused",
        ),
        (
            "isolane_periods",
            figures.periods_total,
            "Periods in which leases were worked out",
        ),
        ("isolane_leases", figures.leases_total, "Leases written"),
        (
            "isolane_implausible_counters",
            figures.implausible_total,
            "Times a process's counter ran backwards or too fast",
        ),
        (
            "isolane_reclassifications",
            figures.reclassified_total,
            "Times a queue pair's class changed",
        ),
        (
            "isolane_latency_lost",
            figures.latency_lost_total,
            "Times a tenant lost the latency class of a device for bulk",
        ),
    ];
    for (name, value, help) in counters {
        text.family(name, "counter", "", help);
        text.total(name, &[], value);
    }
}

fn devices(text: &mut Text, snapshot: &Snapshot) {
    let rates: [Row<DeviceSnapshot, u64>; 3] = [
        (
            "isolane_device_rate_max_bits_per_second",
            "Payload rate of the idle device",
            |device| device.rate_max_bps,
        ),
        (
            "isolane_device_safe_util_bits_per_second",
            "What hungry senders may use together",
            |device| device.safe_util_bps,
        ),
        (
            "isolane_device_minimum_rate_bits_per_second",
            "What hungry senders may count on",
            |device| device.minimum_rate_bps,
        ),
    ];
    for (name, help, value) in rates {
        text.family(name, "gauge", "bits_per_second", help);
        for device in &snapshot.devices {
            let labels = [
                ("device", device.name.as_str()),
                ("policy", device.policy.as_str()),
            ];
            text.sample(name, &labels, value(device));
        }
    }
    let counts: [UnitRow<DeviceSnapshot, u64>; 4] = [
        (
            "isolane_device_active_senders",
            "",
            "Senders that are active",
            |device| device.active_sending,
        ),
        (
            "isolane_device_active_readers",
            "",
            "READers that are active",
            |device| device.active_reading,
        ),
        (
            "isolane_device_latency_weight",
            "",
            "Weight of latency flows",
            |device| device.latency_weight,
        ),
        (
            "isolane_device_leased_bytes_per_second",
            "bytes_per_second",
            "Summed leases of the senders",
            |device| device.leased_bytes_per_s,
        ),
    ];
    for (name, unit, help, value) in counts {
        text.family(name, "gauge", unit, help);
        for device in &snapshot.devices {
            text.sample(name, &[("device", &device.name)], value(device));
        }
    }
    let name = "isolane_device_policy_figure";
    text.family(
        name,
        "gauge",
        "",
        "The policy's own figures; the unit ends the figure's name",
    );
    for device in &snapshot.devices {
        for (figure, value) in &device.figures {
            text.sample(
                name,
                &[("device", &device.name), ("figure", figure)],
                Float(*value),
            );
        }
    }
}

fn tenants(text: &mut Text, snapshot: &Snapshot) {
    let gauges: [Row<TenantSnapshot, u64>; 3] = [
        ("isolane_tenant_weight", "Weight of the tenant", |tenant| {
            tenant.weight.into()
        }),
        ("isolane_tenant_sessions", "Its processes", |tenant| {
            tenant.sessions
        }),
        (
            "isolane_tenant_latency_lost",
            "Devices where it has lost the latency class for bulk",
            |tenant| tenant.latency_lost_on.len() as u64,
        ),
    ];
    for (name, help, value) in gauges {
        text.family(name, "gauge", "", help);
        for tenant in &snapshot.tenants {
            text.sample(name, &[("tenant", &tenant.name)], value(tenant));
        }
    }
    let counters: [UnitRow<TenantSnapshot, u64>; 2] = [
        (
            "isolane_tenant_passed_bytes",
            "bytes",
            "Payload given to the devices under a lease",
            |tenant| tenant.passed_bytes,
        ),
        (
            "isolane_tenant_passed_operations",
            "",
            "Messages given to the devices under a lease",
            |tenant| tenant.passed_operations,
        ),
    ];
    for (name, unit, help, value) in counters {
        text.family(name, "counter", unit, help);
        for tenant in &snapshot.tenants {
            text.total(name, &[("tenant", &tenant.name)], value(tenant));
        }
    }
}

fn limits(text: &mut Text, snapshot: &Snapshot) {
    let gauges: [UnitRow<LimitSnapshot, u64>; 3] = [
        (
            "isolane_limit_bytes_per_second",
            "bytes_per_second",
            "Payload that the enforcer's tenant may send by each device, and read by each",
            |limit| limit.bytes_per_s,
        ),
        (
            "isolane_limit_sessions",
            "",
            "Processes under the limit",
            |limit| limit.sessions,
        ),
        (
            "isolane_limit_unheld_sessions",
            "",
            "Those of the latency class, which no lease holds",
            |limit| limit.unheld,
        ),
    ];
    for (name, unit, help, value) in gauges {
        text.family(name, "gauge", unit, help);
        for limit in &snapshot.limits {
            text.sample(name, &[("limit", &limit.number.to_string())], value(limit));
        }
    }
}

fn sessions(text: &mut Text, snapshot: &Snapshot) {
    let name = "isolane_session";
    text.family(name, "info", "", "Who a process is");
    for session in &snapshot.sessions {
        let (number, pid, user) = (
            session.session.to_string(),
            session.pid.to_string(),
            session.user.to_string(),
        );
        let labels = [
            ("session", number.as_str()),
            ("tenant", &session.tenant),
            ("pid", &pid),
            ("user", &user),
            ("program", &session.program),
            ("class", &session.class),
        ];
        text.sample("isolane_session_info", &labels, 1);
    }
    let name = "isolane_session_waiting_work_requests";
    text.family(name, "gauge", "", "Work requests that wait in the process");
    for session in &snapshot.sessions {
        text.sample(
            name,
            &[("session", &session.session.to_string())],
            session.waiting,
        );
    }
    let gauges: [UnitRow<MeterSnapshot, Float>; 3] = [
        (
            "isolane_meter_lease_bytes_per_second",
            "bytes_per_second",
            "Leased payload rate; zero while released",
            |meter| Float(meter.lease_bytes_per_s as f64),
        ),
        (
            "isolane_meter_lease_operations_per_second",
            "operations_per_second",
            "Leased message rate; zero while released",
            |meter| Float(meter.lease_operations_per_s as f64),
        ),
        (
            "isolane_meter_waiting_seconds",
            "seconds",
            "How long something has been waiting",
            |meter| Float(meter.waiting_ns as f64 / 1e9),
        ),
    ];
    for (name, unit, help, value) in gauges {
        text.family(name, "gauge", unit, help);
        each_meter(snapshot, |labels, meter| {
            text.sample(name, labels, value(meter))
        });
    }
    let name = "isolane_meter_limit_bytes_per_second";
    let help = "Part of the process's limit; no sample where no limit holds it";
    text.family(name, "gauge", "bytes_per_second", help);
    each_meter(snapshot, |labels, meter| {
        if let Some(limit) = meter.limit_bytes_per_s {
            text.sample(name, labels, limit);
        }
    });
    let counters: [UnitRow<MeterSnapshot, u64>; 4] = [
        (
            "isolane_meter_passed_bytes",
            "bytes",
            "Payload that took credit",
            |meter| meter.passed_bytes,
        ),
        (
            "isolane_meter_passed_operations",
            "",
            "Messages that took credit",
            |meter| meter.passed_operations,
        ),
        (
            "isolane_meter_posted_bytes",
            "bytes",
            "Payload that paced queue pairs posted",
            |meter| meter.posted_bytes,
        ),
        (
            "isolane_meter_posted_operations",
            "",
            "Messages that paced queue pairs posted",
            |meter| meter.posted_operations,
        ),
    ];
    for (name, unit, help, value) in counters {
        text.family(name, "counter", unit, help);
        each_meter(snapshot, |labels, meter| {
            text.total(name, labels, value(meter))
        });
    }
}

fn each_meter(snapshot: &Snapshot, mut visit: impl FnMut(&[(&str, &str)], &MeterSnapshot)) {
    let with_meters = |session: &SessionSnapshot| !session.meters.is_empty();
    for session in snapshot
        .sessions
        .iter()
        .filter(|session| with_meters(session))
    {
        let number = session.session.to_string();
        for meter in &session.meters {
            let direction = if meter.remote_read { "read" } else { "send" };
            let labels = [
                ("session", number.as_str()),
                ("device", &meter.device),
                ("direction", direction),
            ];
            visit(&labels, meter);
        }
    }
}

/// A number that may be none: the format has words for those.
struct Float(f64);

impl Display for Float {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            value if value.is_nan() => f.write_str("NaN"),
            f64::INFINITY => f.write_str("+Inf"),
            f64::NEG_INFINITY => f.write_str("-Inf"),
            value => write!(f, "{value}"),
        }
    }
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, unit: &str, help: &str) {
        let _ = writeln!(self.0, "# TYPE {name} {kind}");
        if !unit.is_empty() {
            let _ = writeln!(self.0, "# UNIT {name} {unit}");
        }
        let _ = writeln!(self.0, "# HELP {name} {help}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            self.0.push(if index == 0 { '{' } else { ',' });
            let _ = write!(self.0, "{label}=\"");
            for c in value.chars() {
                match c {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    c => self.0.push(c),
                }
            }
            self.0.push('"');
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    fn total(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        self.sample(&format!("{name}_total"), labels, value);
    }
}

#[cfg(test)]
mod tests;

//! The snapshot as OpenMetrics text.
//!
//! Units: base units as the format requires (bytes, seconds), at the end of each name; rates of devices in bits per
//! second, as in their data sheets. Figures of the policy keep their own unit in their name. Limits: single queue pairs
//! are not exported, because a thousand processes have too many; `isolane rdma top` shows them.

use crate::snapshot::{
    DeviceSnapshot, LimitSnapshot, MeterSnapshot, SessionSnapshot, Snapshot, TenantSnapshot,
};
use isolane_common_text_output::openmetrics::{Families, Kind, Labels};

/// Name, help and value of a family.
type Row<T, V> = (&'static str, &'static str, fn(&T) -> V);

/// The whole text. `more` holds families of other parts of the program; it is written before the end mark.
pub fn render(snapshot: &Snapshot, more: &str) -> String {
    let mut text = Families::default();
    daemon(&mut text, snapshot);
    devices(&mut text, snapshot);
    tenants(&mut text, snapshot);
    limits(&mut text, snapshot);
    sessions(&mut text, snapshot);
    unheld(&mut text, snapshot);
    text.append(more);
    text.into_text()
}

fn daemon(text: &mut Families, snapshot: &Snapshot) {
    text.family(Kind::Info, "isolane_build", "Version of the daemon")
        .sample(&[("version", &env!("CARGO_PKG_VERSION"))], true);
    let figures = &snapshot.daemon;
    text.family(Kind::Gauge, "isolane_sessions", "Sessions of processes")
        .sample(&[], figures.sessions);
    let counters = [
        (
            "isolane_sessions_opened",
            figures.sessions_total,
            "Sessions opened since the start",
        ),
        (
            "isolane_sessions_refused",
            figures.refused_total,
            "Sessions rejected since the start",
        ),
        (
            "isolane_periods",
            figures.periods_total,
            "Periods in which leases were computed",
        ),
        (
            "isolane_leases",
            figures.leases_total,
            "Leases written since the start",
        ),
        (
            "isolane_implausible_counters",
            figures.implausible_total,
            "Times a process's counter ran backwards or faster than the device can",
        ),
        (
            "isolane_reclassifications",
            figures.reclassified_total,
            "Changes of a queue pair's class",
        ),
        (
            "isolane_latency_lost",
            figures.latency_lost_total,
            "Times a tenant lost the latency class of a device because it sent bulk in it",
        ),
    ];
    for (name, value, help) in counters {
        text.family(Kind::Counter, name, help).sample(&[], value);
    }
}

fn devices(text: &mut Families, snapshot: &Snapshot) {
    let rates: [Row<DeviceSnapshot, u64>; 3] = [
        (
            "isolane_device_rate_max_bits_per_second",
            "Payload rate of the idle device",
            |device| device.rate_max_bps,
        ),
        (
            "isolane_device_safe_util_bits_per_second",
            "Rate that backlogged senders may use together",
            |device| device.safe_util_bps,
        ),
        (
            "isolane_device_minimum_rate_bits_per_second",
            "Rate guaranteed to backlogged senders together",
            |device| device.minimum_rate_bps,
        ),
    ];
    for (name, help, value) in rates {
        let mut family = text.family(Kind::Gauge, name, help);
        for device in &snapshot.devices {
            let labels: &Labels<'_> = &[("device", &device.name), ("policy", &device.policy)];
            family.sample(labels, value(device));
        }
    }
    let counts: [Row<DeviceSnapshot, u64>; 4] = [
        (
            "isolane_device_active_senders",
            "Active senders",
            |device| device.active_sending,
        ),
        (
            "isolane_device_active_readers",
            "Active senders of READs",
            |device| device.active_reading,
        ),
        (
            "isolane_device_latency_weight",
            "Sum of the weights of latency flows",
            |device| device.latency_weight,
        ),
        (
            "isolane_device_leased_bytes_per_second",
            "Sum of the senders' leases",
            |device| device.leased_bytes_per_s,
        ),
    ];
    for (name, help, value) in counts {
        let mut family = text.family(Kind::Gauge, name, help);
        for device in &snapshot.devices {
            family.sample(&[("device", &device.name)], value(device));
        }
    }
    foreign(text, snapshot);
    let name = "isolane_device_policy_figure";
    let help = "Figures of the policy; the unit ends the figure's name";
    let mut family = text.family(Kind::Gauge, name, help);
    for device in &snapshot.devices {
        for (figure, value) in &device.figures {
            family.sample(&[("device", &device.name), ("figure", figure)], *value);
        }
    }
}

/// Traffic that no session posted.
fn foreign(text: &mut Families, snapshot: &Snapshot) {
    let known = || {
        let devices = snapshot.devices.iter();
        devices.filter(|device| device.foreign_bytes_per_s.is_some())
    };
    let name = "isolane_device_foreign_bytes_per_second";
    let help = "Bytes that the port sent and no session posted; no sample where the driver has no such counters";
    let mut family = text.family(Kind::Gauge, name, help);
    for device in known() {
        let labels: &Labels<'_> = &[("device", &device.name)];
        family.sample(labels, device.foreign_bytes_per_s.unwrap_or(0));
    }
    let name = "isolane_device_foreign";
    let help = "1 while such traffic keeps late reference messages from lowering rates";
    let mut family = text.family(Kind::Gauge, name, help);
    for device in known() {
        family.sample(&[("device", &device.name)], u64::from(device.has_foreign));
    }
    let name = "isolane_device_foreign_bytes";
    let help = "Bytes that the port sent and no session posted";
    let mut family = text.family(Kind::Counter, name, help);
    for device in known() {
        family.sample(&[("device", &device.name)], device.foreign_bytes);
    }
}

fn tenants(text: &mut Families, snapshot: &Snapshot) {
    let gauges: [Row<TenantSnapshot, u64>; 3] = [
        ("isolane_tenant_weight", "Weight of the tenant", |tenant| {
            tenant.weight.into()
        }),
        (
            "isolane_tenant_sessions",
            "Sessions of the tenant",
            |tenant| tenant.sessions,
        ),
        (
            "isolane_tenant_latency_lost",
            "Devices on which the tenant has lost the latency class because it sent bulk in it",
            |tenant| tenant.latency_lost_on.len() as u64,
        ),
    ];
    for (name, help, value) in gauges {
        let mut family = text.family(Kind::Gauge, name, help);
        for tenant in &snapshot.tenants {
            family.sample(&[("tenant", &tenant.name)], value(tenant));
        }
    }
    let counters: [Row<TenantSnapshot, u64>; 2] = [
        (
            "isolane_tenant_passed_bytes",
            "Payload that the tenant sent under a lease",
            |tenant| tenant.passed_bytes,
        ),
        (
            "isolane_tenant_passed_operations",
            "Messages that the tenant sent under a lease",
            |tenant| tenant.passed_operations,
        ),
    ];
    for (name, help, value) in counters {
        let mut family = text.family(Kind::Counter, name, help);
        for tenant in &snapshot.tenants {
            family.sample(&[("tenant", &tenant.name)], value(tenant));
        }
    }
}

fn limits(text: &mut Families, snapshot: &Snapshot) {
    let gauges: [Row<LimitSnapshot, u64>; 3] = [
        (
            "isolane_limit_bytes_per_second",
            "Payload rate at which the enforcer's tenant may send by each device, and READ by each",
            |limit| limit.bytes_per_s,
        ),
        (
            "isolane_limit_sessions",
            "Sessions to which the limit applies",
            |limit| limit.sessions,
        ),
        (
            "isolane_limit_unheld_sessions",
            "Sessions of the limited tenant in the latency class, which have no lease",
            |limit| limit.unheld,
        ),
    ];
    for (name, help, value) in gauges {
        let mut family = text.family(Kind::Gauge, name, help);
        for limit in &snapshot.limits {
            family.sample(&[("limit", &limit.number)], value(limit));
        }
    }
}

fn unheld(text: &mut Families, snapshot: &Snapshot) {
    let name = "isolane_unheld_queue_pairs";
    let help = "Queue pairs of a process that is not paced for the named reason; zero if the kernel lists none";
    let mut family = text.family(Kind::Gauge, name, help);
    for one in &snapshot.unheld {
        let labels: &Labels<'_> = &[
            ("pid", &one.pid),
            ("program", &one.program),
            ("device", &one.devices.join(",")),
            ("reason", &one.reason.name()),
            ("remedy", &one.reason.remedy()),
        ];
        family.sample(labels, one.queue_pairs);
    }
}

fn sessions(text: &mut Families, snapshot: &Snapshot) {
    let name = "isolane_session";
    let mut family = text.family(Kind::Info, name, "Identity of a process");
    for session in &snapshot.sessions {
        let labels: &Labels<'_> = &[
            ("session", &session.session),
            ("tenant", &session.tenant),
            ("pid", &session.pid),
            ("user", &session.user),
            ("program", &session.program),
            ("class", &session.class),
        ];
        family.sample(labels, true);
    }
    let name = "isolane_session_waiting_work_requests";
    let mut family = text.family(Kind::Gauge, name, "Work requests that wait in the process");
    for session in &snapshot.sessions {
        family.sample(&[("session", &session.session)], session.waiting);
    }
    meters(text, snapshot);
}

/// What paces each process's queue pairs.
fn meters(text: &mut Families, snapshot: &Snapshot) {
    let gauges: [Row<MeterSnapshot, f64>; 3] = [
        (
            "isolane_meter_lease_bytes_per_second",
            "Leased payload rate; zero while released",
            |meter| meter.lease_bytes_per_s as f64,
        ),
        (
            "isolane_meter_lease_operations_per_second",
            "Leased message rate; zero while released",
            |meter| meter.lease_operations_per_s as f64,
        ),
        (
            "isolane_meter_waiting_seconds",
            "How long the first work request has been waiting",
            |meter| meter.waiting_ns as f64 / 1e9,
        ),
    ];
    for (name, help, value) in gauges {
        let mut family = text.family(Kind::Gauge, name, help);
        each_meter(snapshot, |labels, meter| {
            family.sample(labels, value(meter))
        });
    }
    let name = "isolane_meter_limit_bytes_per_second";
    let help = "The meter's share of the process's limit; no sample without a limit";
    let mut family = text.family(Kind::Gauge, name, help);
    each_meter(snapshot, |labels, meter| {
        if let Some(limit) = meter.limit_bytes_per_s {
            family.sample(labels, limit);
        }
    });
    let counters: [Row<MeterSnapshot, u64>; 4] = [
        (
            "isolane_meter_passed_bytes",
            "Payload that the process sent under a lease",
            |meter| meter.passed_bytes,
        ),
        (
            "isolane_meter_passed_operations",
            "Messages that the process sent under a lease",
            |meter| meter.passed_operations,
        ),
        (
            "isolane_meter_posted_bytes",
            "Payload that paced queue pairs posted",
            |meter| meter.posted_bytes,
        ),
        (
            "isolane_meter_posted_operations",
            "Messages that paced queue pairs posted",
            |meter| meter.posted_operations,
        ),
    ];
    for (name, help, value) in counters {
        let mut family = text.family(Kind::Counter, name, help);
        each_meter(snapshot, |labels, meter| {
            family.sample(labels, value(meter))
        });
    }
}

fn each_meter(snapshot: &Snapshot, mut visit: impl FnMut(&Labels<'_>, &MeterSnapshot)) {
    let with_meters = |session: &SessionSnapshot| !session.meters.is_empty();
    for session in snapshot
        .sessions
        .iter()
        .filter(|session| with_meters(session))
    {
        for meter in &session.meters {
            let direction = if meter.remote_read { "read" } else { "send" };
            let labels: &Labels<'_> = &[
                ("session", &session.session),
                ("device", &meter.device),
                ("direction", &direction),
            ];
            visit(labels, meter);
        }
    }
}

#[cfg(test)]
mod tests;

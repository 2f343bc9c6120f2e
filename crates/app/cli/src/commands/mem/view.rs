//! Applications, limits and plans in words and tables.

use crate::text::{Table, fitted};
use isolane_common_quantities::units::Duration;
use isolane_memory_service::application::Slo;
use isolane_memory_service::application::amounts::{bandwidth_text, size_text};
use isolane_memory_service::protocol::status::{ApplicationStatus, Measured, Status, TierStatus};
use isolane_memory_service::protocol::{Admission, Lacks, Limits, Planned, Submission};

pub(super) fn status(status: &Status) -> String {
    let mut text = format!(
        "policy {}, limits by {}, every {} ms\n\n",
        status.policy, status.backend, status.period_ms
    );
    text.push_str(&applications(status));
    text.push('\n');
    text.push_str(&tiers(&status.tiers));
    if let Some(faults) = &status.hint_faults_per_s {
        text.push_str(&format!(
            "hint faults: {:.0} per second ({})\n",
            faults.value,
            origin(faults)
        ));
    }
    for source in status.sources.iter().filter(|source| !source.works) {
        text.push_str(&format!(
            "not measured by {}: {}\n",
            source.name, source.seen
        ));
    }
    for problem in &status.problems {
        text.push_str(&format!("note: {problem}\n"));
    }
    text
}

fn applications(status: &Status) -> String {
    if status.applications.is_empty() {
        return "no application is under control; isolane mem run and isolane mem submit add one\n"
            .to_owned();
    }
    let headings = [
        "application",
        "prio",
        "objective",
        "measured",
        "from",
        "met",
        "near",
        "far",
        "near limit",
        "cpu %",
        "why it changed last",
    ];
    let mut table = Table::new("lrrrlrrrrrl", &headings);
    for app in &status.applications {
        let measured = measured(app);
        table.row(vec![
            app.name.clone(),
            app.priority.to_string(),
            slo(app.slo),
            measured.map_or_else(|| "-".to_owned(), |(value, _)| value),
            self::measured(app).map_or_else(|| "-".to_owned(), |(_, from)| from),
            kept(app),
            size_text(app.local_bytes()),
            size_text(app.far_bytes()),
            limit(&app.limits, 0),
            format!("{:.1}", f64::from(app.limits.cpu_per_mille) / 10.0),
            change(app),
        ]);
    }
    let mut text = fitted(&table);
    for app in status
        .applications
        .iter()
        .filter(|app| app.enforcement == "stuck" || app.problem.is_some())
    {
        let why = app.problem.as_deref().unwrap_or("limits do not hold");
        text.push_str(&format!("  {}: {why}\n", app.name));
    }
    for app in &status.applications {
        let waited = app.pressure_some_percent.as_ref();
        if let Some(waited) = waited.filter(|waited| waited.value >= 1.0) {
            text.push_str(&format!(
                "  {}: waited for memory {:.0} % of the last 10 s\n",
                app.name, waited.value
            ));
        }
    }
    text
}

/// The value of the objective's metric, and its source.
fn measured(app: &ApplicationStatus) -> Option<(String, String)> {
    let latency = app
        .latency_ns
        .as_ref()
        .map(|latency| (format!("{:.0} ns", latency.value), origin(latency)));
    let bandwidth = app
        .bandwidth_bytes_per_s
        .as_ref()
        .map(|rate| (rate_text(rate.value), origin(rate)));
    match app.slo {
        Slo::LatencyPs(_) => latency,
        Slo::BandwidthBytesPerS(_) => bandwidth,
        Slo::BestEffort => bandwidth.or(latency),
    }
}

fn kept(app: &ApplicationStatus) -> String {
    let share = app
        .slo_met_share
        .map(|share| format!(" {:.0}%", share * 100.0))
        .unwrap_or_default();
    match app.slo_met {
        Some(true) => format!("yes{share}"),
        Some(false) => format!("no{share}"),
        None => "-".to_owned(),
    }
}

fn change(app: &ApplicationStatus) -> String {
    let Some(change) = &app.last_change else {
        return "-".to_owned();
    };
    let refused = match &change.refused {
        Some(_) => ", rejected: see below",
        None => "",
    };
    format!(
        "{} ({:.1} s ago{refused})",
        change.reason,
        change.ago_ms as f64 / 1e3
    )
}

/// Source and age of a value.
fn origin(measured: &Measured) -> String {
    match measured.age_ms {
        0..=400 => measured.source.clone(),
        age => format!("{}, {:.1} s old", measured.source, age as f64 / 1e3),
    }
}

fn rate_text(bytes_per_s: f64) -> String {
    bandwidth_text(bytes_per_s.max(0.0) as u64)
}

fn tiers(tiers: &[TierStatus]) -> String {
    let mut table = Table::new("rrrr", &["tier", "memory", "used", "bandwidth"]);
    for tier in tiers {
        let rate = tier.bandwidth_bytes_per_s.as_ref();
        table.row(vec![
            tier.tier.to_string(),
            size_text(tier.capacity_bytes),
            size_text(tier.used_bytes),
            rate.map_or_else(|| "-".to_owned(), |rate| rate_text(rate.value)),
        ]);
    }
    fitted(&table)
}

pub(super) fn slo(slo: Slo) -> String {
    match slo {
        Slo::LatencyPs(ps) => Duration::from_ps(ps).to_string(),
        Slo::BandwidthBytesPerS(rate) => bandwidth_text(rate),
        Slo::BestEffort => "none".to_owned(),
    }
}

fn limit(limits: &Limits, tier: usize) -> String {
    match limits.tier_bytes.get(tier).copied().flatten() {
        Some(bytes) => size_text(bytes),
        None => "none".to_owned(),
    }
}

fn limits(limits: &Limits) -> String {
    let cpu = f64::from(limits.cpu_per_mille) / 10.0;
    format!(
        "near memory {}, processor time {cpu:.1} %",
        match limits.tier_bytes.first().copied().flatten() {
            Some(bytes) => format!("up to {}", size_text(bytes)),
            None => "without limit".to_owned(),
        }
    )
}

pub(super) fn lacks(lacks: &Lacks) -> String {
    let local =
        (lacks.local_bytes > 0).then(|| format!("{} of near memory", size_text(lacks.local_bytes)));
    let rate = (lacks.bandwidth_bytes_per_s > 0).then(|| {
        format!(
            "{} of bandwidth",
            bandwidth_text(lacks.bandwidth_bytes_per_s)
        )
    });
    let parts: Vec<String> = [local, rate].into_iter().flatten().collect();
    format!("its objective lacks {}", parts.join(" and "))
}

/// One line on how an application was taken in.
pub(super) fn admission(admission: &Admission) -> String {
    let mut text = format!(
        "{}: under control in {}; {}",
        admission.name,
        admission.cgroup,
        limits(&admission.limits)
    );
    if let Some(missing) = &admission.lacks {
        text.push_str(&format!("; {}", lacks(missing)));
    }
    let names: Vec<&str> = admission
        .yields
        .iter()
        .map(|given| given.name.as_str())
        .collect();
    if !names.is_empty() {
        text.push_str(&format!(
            "; {} lose{}",
            names.join(", "),
            if names.len() == 1 { "s" } else { "" }
        ));
    }
    text
}

/// The text of the request.
pub(super) fn submission(submission: &Submission) -> String {
    let application = &submission.application;
    format!(
        "{}: type {}, objective {}, priority {}, memory {}, in {}\n",
        application.name,
        application.slo.kind(),
        slo(application.slo),
        application.priority,
        application
            .memory_bytes
            .map_or_else(|| "unknown".to_owned(), size_text),
        submission.place.text()
    )
}

/// What would happen.
pub(super) fn planned(name: &str, planned: &Planned) -> String {
    if let Some(refused) = &planned.refused {
        return format!("no: {}\n", refused.message);
    }
    let mut text = match &planned.lacks {
        None => format!("yes: {name} can run and meet its objective"),
        Some(missing) => format!("no: {name} could run, but {}", lacks(missing)),
    };
    if let Some(allowed) = &planned.limits {
        text.push_str(&format!("; {}", limits(allowed)));
    }
    text.push('\n');
    if planned.yields.is_empty() {
        return text + "no other application would lose anything\n";
    }
    let mut table = Table::new(
        "lrrrrll",
        &[
            "loses",
            "near now",
            "near then",
            "cpu % now",
            "cpu % then",
            "its objective",
            "why",
        ],
    );
    let percent = |limits: &Limits| format!("{:.1}", f64::from(limits.cpu_per_mille) / 10.0);
    for given in &planned.yields {
        table.row(vec![
            given.name.clone(),
            limit(&given.before, 0),
            limit(&given.after, 0),
            percent(&given.before),
            percent(&given.after),
            match given.slo_kept {
                Some(true) => "met",
                Some(false) => "missed",
                None => "unknown",
            }
            .to_owned(),
            given.reason.clone(),
        ]);
    }
    text.push_str(&fitted(&table));
    let those = |keeps: Option<bool>| -> Vec<&str> {
        let those = planned
            .yields
            .iter()
            .filter(|given| given.slo_kept == keeps);
        those.map(|given| given.name.as_str()).collect()
    };
    let (broken, unknown) = (those(Some(false)), those(None));
    if !broken.is_empty() {
        text.push_str(&format!(
            "the objective would be missed by {}\n",
            broken.join(" and ")
        ));
    }
    if !unknown.is_empty() {
        text.push_str(&format!(
            "not known for {}, neither measured nor profiled: whether the objective would be met\n",
            unknown.join(" and ")
        ));
    }
    text
}

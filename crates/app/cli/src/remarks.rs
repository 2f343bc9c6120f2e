//! What a run says in words: which resource was under pressure, and which figures need a warning.
//!
//! Pressure: ratios are fractions of the measured time or of a capacity, 0 to 1. A ratio is reported from the threshold
//! of its kind on (stalls and pauses early, utilisation late); the largest come first. A link or a pause that both ends
//! count is named once, at the end where it begins.
//!
//! Limits: names what was busy, not who made it busy; the causes given for a tenant that moved nothing are likely
//! ones, read off the scenario and the counters, not proven.

use crate::text::{counted, number};
use isolane_rdma_scenario::model::{
    Arrival, DataTraffic, Host, Scenario, Tenant, Traffic, Verb, Workload,
};
use isolane_study_results::rdma::{
    HostCounters, RunResult, STEADY_MEDIANS_MIN, STEADY_SAMPLES_MIN, TenantResult,
};

/// Most lines of [`pressure`].
const PRESSURE_LINES: usize = 3;
/// Fraction of the time above which a stall or a pause shows in every tenant's figures.
const STALL: f64 = 0.1;
/// Fraction of the miss slots that are busy on average when misses no longer hide behind each other.
const MISS_SLOTS: f64 = 0.6;
/// Utilisation above which waiting times grow quickly.
const BUSY: f64 = 0.8;

/// Ratio, least value that is reported, and the words; `{}` is the percentage.
#[rustfmt::skip]
const SIGNS: [(&str, f64, &str); 13] = [
    ("rnr_stall_ratio", STALL, "receive units stalled {} of the time, receiver not ready"),
    ("unreliable_stall_ratio", STALL, "receive units stalled {} of the time by UC or UD messages that found no receive"),
    ("translation_stall_ratio", STALL, "address translation blocked {} of the time by deregistrations"),
    ("context_miss_busy", MISS_SLOTS, "slots for queue-pair context misses {} busy"),
    ("translation_miss_busy", MISS_SLOTS, "slots for address translation misses {} busy"),
    ("responder_unit_utilisation", BUSY, "responder processing units {} busy"),
    ("requester_unit_utilisation", BUSY, "requester processing units {} busy"),
    ("pcie_to_nic_utilisation", BUSY, "PCIe towards the NIC {} busy"),
    ("pcie_to_host_utilisation", BUSY, "PCIe towards the host {} busy"),
    ("link_tx_utilisation", BUSY, "link {} busy sending"),
    ("link_rx_utilisation", BUSY, "link {} busy receiving"),
    ("tx_pause_ratio", STALL, "receive buffer full, so that it paused the other end {} of the time"),
    ("rx_pause_ratio", STALL, "sending paused {} of the time by the other end"),
];

/// Ratios that say of one end what the other end's ratio has said already.
const SEEN_FROM_THE_OTHER_END: [(&str, &str); 2] = [
    ("link_rx_utilisation", "link_tx_utilisation"),
    ("rx_pause_ratio", "tx_pause_ratio"),
];

/// One to three lines: the resources under most pressure, or that there was none.
pub(crate) fn pressure(counters: &[HostCounters]) -> Vec<String> {
    let mut found: Vec<(f64, &str, Host, &str)> = Vec::new();
    for (name, threshold, words) in SIGNS {
        for host in counters.iter().map(|counters| counters.host) {
            let value = ratio(counters, host, name);
            let shown_before = SEEN_FROM_THE_OTHER_END.iter().any(|(this, that)| {
                let mut earlier = found.iter();
                *this == name
                    && earlier.any(|(_, shown_before, at, _)| shown_before == that && *at != host)
            });
            if value >= threshold && !shown_before {
                found.push((value, name, host, words));
            }
        }
    }
    if found.is_empty() {
        return vec![format!(
            "nothing: no stall or pause, and no unit, cache, bus or link was {} busy",
            percent(BUSY)
        )];
    }
    // Stable: of equal ratios the more direct proof, which comes first in SIGNS, stays first.
    found.sort_by(|left, right| right.0.total_cmp(&left.0));
    let lines = found.into_iter().take(PRESSURE_LINES);
    lines
        .map(|(value, _, host, words)| {
            let words = words.replace("{}", &percent(value));
            format!("host {}: {words}", letter(host))
        })
        .collect()
}

/// What the reader of the tenants' figures must know: errors, tenants that moved nothing, latencies that only
/// reflect the run's length, latency targets that were missed.
pub(crate) fn notes(scenario: &Scenario, result: &RunResult) -> Vec<String> {
    let mut notes = Vec::new();
    let settled = |index: usize| {
        let settling = result.settling.as_ref();
        settling.is_some_and(|all| all.tenants.get(index).is_some_and(|one| one.settled))
    };
    for (index, (tenant, measured)) in scenario.tenants.iter().zip(&result.tenants).enumerate() {
        let name = &measured.name;
        if measured.control_rate_per_s > 0.0 {
            let rate = number(measured.control_rate_per_s);
            notes.push(format!("{name}: {rate} control verbs per second"));
        }
        if measured.errors > 0 {
            notes.push(format!(
                "{name}: {} with an error",
                counted(measured.errors, "completion")
            ));
        }
        if let Some(cause) = idle_cause(scenario, tenant, measured, &result.counters) {
            notes.push(format!("{name}: no goodput; {cause}"));
        }
        notes.extend(unsteady(scenario, tenant, measured, settled(index)));
    }
    notes.extend(missed_targets(result));
    notes
}

/// Why `tenant` delivered nothing, when this needs an explanation.
fn idle_cause(
    scenario: &Scenario,
    tenant: &Tenant,
    measured: &TenantResult,
    counters: &[HostCounters],
) -> Option<String> {
    if measured.goodput_gbps > 0.0 || data(tenant).next().is_none() {
        return None;
    }
    if let Some(stop) = tenant.stop.filter(|stop| *stop <= scenario.warmup) {
        let begin = scenario.warmup;
        return Some(format!(
            "it stops at {stop}, before measuring begins at {begin}"
        ));
    }
    let starved =
        data(tenant).find(|(_, traffic)| traffic.verb == Verb::Send && traffic.receive_batch == 0);
    if let Some((workload, _)) = starved {
        return Some(format!(
            "its receiver on host {} posts no receive back (receive_batch = 0)",
            letter(workload.to)
        ));
    }
    let stalls = [
        ("rnr_stall_ratio", "receiver not ready"),
        (
            "unreliable_stall_ratio",
            "UC or UD messages that find no receive",
        ),
        ("translation_stall_ratio", "memory deregistrations"),
        ("rx_pause_ratio", "pauses by the other end"),
    ];
    let mut worst: Option<(f64, String)> = None;
    for host in counters.iter().map(|counters| counters.host) {
        for (name, words) in stalls {
            let value = ratio(counters, host, name);
            if value >= STALL && worst.as_ref().is_none_or(|(most, _)| value > *most) {
                let line = format!(
                    "likely host {}'s stall, {} of the time: {words}",
                    letter(host),
                    percent(value)
                );
                worst = Some((value, line));
            }
        }
    }
    let short = || {
        format!(
            "no message ended within {}: it waits behind others, or the run is too short for its messages",
            scenario.duration
        )
    };
    Some(worst.map_or_else(short, |(_, line)| line))
}

/// The note on a latency that only reflects the run's length, or that never came; for tenants with goodput. It mentions that the
/// goodput is `settled`, because the run's own line then says that all is.
fn unsteady(
    scenario: &Scenario,
    tenant: &Tenant,
    measured: &TenantResult,
    settled: bool,
) -> Option<String> {
    let samples = match &measured.latency_us {
        Some(latency) if latency.steady => return None,
        Some(latency) => latency.samples,
        None => 0,
    };
    if measured.goodput_gbps <= 0.0 {
        return None;
    }
    let p50_us = measured
        .latency_us
        .as_ref()
        .map_or(0.0, |latency| latency.p50);
    // Little's law: behind a full queue a message waits for everything outstanding.
    let waiting_us = outstanding_bytes(tenant) * 8.0 / (measured.goodput_gbps * 1e3);
    let medians_us = waiting_us.max(p50_us) * f64::from(STEADY_MEDIANS_MIN);
    let samples_us =
        scenario.duration.as_us_f64() * STEADY_SAMPLES_MIN as f64 / samples.max(1) as f64;
    let although = match settled {
        true => ", although its goodput has settled",
        false => "",
    };
    Some(format!(
        "{}: latency not steady after {} (completions measured: {samples}){although}; run at least --duration {}ms",
        measured.name,
        scenario.duration,
        (medians_us.max(samples_us) / 1e3).ceil()
    ))
}

/// Payload that `tenant` keeps outstanding when its queues are full, bytes; nothing for open loops, whose queues
/// need not fill.
fn outstanding_bytes(tenant: &Tenant) -> f64 {
    let workloads =
        data(tenant).filter(|(_, traffic)| !matches!(traffic.arrival, Arrival::Open { .. }));
    workloads
        .map(|(workload, traffic)| {
            let pattern = &traffic.pattern;
            let bytes: f64 = pattern
                .iter()
                .map(|message| message.bytes().get() as f64)
                .sum();
            let pairs = f64::from(workload.processes) * f64::from(traffic.queue_pairs);
            pairs * f64::from(traffic.depth) * bytes / pattern.len().max(1) as f64
        })
        .sum()
}

/// Justitia's latency targets that its reference messages did not meet at the end of the run.
fn missed_targets(result: &RunResult) -> Vec<String> {
    let figure = |host: Host, name: &str| {
        let host = letter(host).to_ascii_lowercase();
        result
            .policy_state
            .get(&format!("host_{host}.{name}"))
            .copied()
    };
    let missed = Host::ALL.into_iter().filter_map(|host| {
        let (p99, target) = (
            figure(host, "reference_p99_us")?,
            figure(host, "target_us")?,
        );
        (p99 > target).then(|| {
            format!(
                "host {}: reference p99 {p99:.1} us misses the target of {} us",
                letter(host),
                trimmed(target)
            )
        })
    });
    missed.collect()
}

fn data(tenant: &Tenant) -> impl Iterator<Item = (&Workload, &DataTraffic)> {
    tenant
        .workloads
        .iter()
        .filter_map(|workload| match &workload.traffic {
            Traffic::Data(traffic) => Some((workload, traffic)),
            Traffic::Control(_) | Traffic::Application(_) => None,
        })
}

fn ratio(counters: &[HostCounters], host: Host, name: &str) -> f64 {
    let found = counters.iter().find(|counters| counters.host == host);
    found
        .and_then(|counters| counters.ratios.get(name).copied())
        .unwrap_or(0.0)
}

fn letter(host: Host) -> &'static str {
    host.letter()
}

fn percent(ratio: f64) -> String {
    format!("{:.0} %", ratio * 100.0)
}

/// `value` with up to three decimals.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn host(host: Host, ratios: &[(&str, f64)]) -> HostCounters {
        let ratios = ratios.iter().map(|&(name, value)| (name.to_owned(), value));
        HostCounters {
            host,
            values: BTreeMap::new(),
            ratios: ratios.collect(),
        }
    }

    #[test]
    fn the_most_pressed_resources_come_first_and_a_link_once() {
        let counters = [
            host(
                Host::A,
                &[
                    ("link_tx_utilisation", 0.97),
                    ("requester_unit_utilisation", 0.5),
                ],
            ),
            host(
                Host::B,
                &[
                    ("link_rx_utilisation", 0.97),
                    ("responder_unit_utilisation", 1.0),
                    ("rnr_stall_ratio", 0.2),
                ],
            ),
        ];
        assert_eq!(
            pressure(&counters),
            [
                "host B: responder processing units 100 % busy",
                "host A: link 97 % busy sending",
                "host B: receive units stalled 20 % of the time, receiver not ready",
            ]
        );
    }

    #[test]
    fn an_idle_nic_is_said_to_be_idle() {
        let counters = [
            host(Host::A, &[("link_tx_utilisation", 0.3)]),
            host(Host::B, &[]),
        ];
        assert_eq!(
            pressure(&counters),
            ["nothing: no stall or pause, and no unit, cache, bus or link was 80 % busy"]
        );
    }

    #[test]
    fn figures_in_sentences_have_no_trailing_zeros() {
        assert_eq!([2.0, 0.15, 12.3456].map(trimmed).join(" "), "2 0.15 12.346");
    }
}

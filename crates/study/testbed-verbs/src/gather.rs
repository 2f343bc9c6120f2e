//! Combines the workers' measurements into a testbed's result.
//!
//! * Goodput and messages are completions of the posting end over the window it measured; where a transport may lose
//!   what it sent (UC, UD with receives), what the other end received in the same window.
//!   A tenant's series counts receptions only if all its workloads are of that kind.
//! * Latency is over all posting ends of a tenant, from their histograms; the series of percentiles takes the
//!   worst end of each sample.
//! * `wire_gbps` is worked out, not read: payload plus RoCEv2 headers of its packets. No device counts bytes
//!   per process.
//! * `share` is of the goodput that the calibration run got ([`crate::calibrate`]), not of the link's label.
//!
//! Units: nanoseconds and bytes in; microseconds and gigabits per second out.

use crate::calibrate::Calibration;
use crate::conduct::{Counted, Measured};
use isolane_rdma_scenario::model::{
    Arrival, DataTraffic, Host, Scenario, Tenant, Traffic, Transport, Verb,
};
use isolane_rdma_traffic::worker::{EndReport, LatencyNs, Report};
use isolane_study_results::rdma::{
    HostCounters, LatencyResult, RunResult, STEADY_MEDIANS_MIN, STEADY_SAMPLES_MIN, TenantResult,
};
use std::collections::{BTreeMap, BTreeSet};

/// Ethernet, IPv4, UDP, base transport header, ICRC and frame check of one RoCEv2 packet, bytes.
const PACKET_HEADERS: f64 = 14.0 + 20.0 + 8.0 + 12.0 + 4.0 + 4.0;
/// Smallest sum of bits per nanosecond that is a rate.
const NS_PER_US: f64 = 1e3;

/// The result of `scenario`, as `testbed` on `devices` measured it.
pub(crate) fn result(
    scenario: &Scenario,
    testbed: &str,
    profile: &str,
    calibration: &Calibration,
    measured: &Measured,
) -> RunResult {
    let reports = || measured.reports.iter().flat_map(BTreeMap::values);
    let seconds = reports().map(|report| report.window.seconds());
    let measured_s = seconds.fold(0.0, f64::max);
    let tenants = scenario.tenants.iter().zip(&measured.reports);
    RunResult {
        measured_s,
        tenants: tenants
            .map(|(tenant, reports)| tenant_result(scenario, tenant, reports, calibration))
            .collect(),
        counters: counters(scenario, measured, calibration, measured_s),
        policy_state: calibration.figures(),
        ..RunResult::empty(scenario, profile, testbed)
    }
}

fn tenant_result(
    scenario: &Scenario,
    tenant: &Tenant,
    reports: &BTreeMap<Host, Report>,
    calibration: &Calibration,
) -> TenantResult {
    let ends: Vec<&EndReport> = reports.values().flat_map(|report| &report.ends).collect();
    let lossy = lossy_workloads(tenant);
    let delivered: Vec<Delivered> = ends.iter().map(|end| Delivered::of(end, &lossy)).collect();
    let goodput_gbps = delivered.iter().map(Delivered::gbps).sum();
    let message_rate_per_s = delivered.iter().map(Delivered::messages_per_s).sum();
    let control = |end: &&EndReport| rate(end.control_verbs as f64, end.window.seconds());
    let latency_us = latency(reports);
    let series = Series::of(scenario, reports, lossy.len() == tenant.workloads.len());
    TenantResult {
        name: tenant.name.clone(),
        class: tenant.class,
        declared_class: tenant.class,
        offered_gbps: offered(tenant),
        goodput_gbps,
        wire_gbps: goodput_gbps + headers_gbps(tenant, goodput_gbps),
        message_rate_per_s,
        control_rate_per_s: ends.iter().map(control).sum(),
        share: rate(goodput_gbps, calibration.goodput_gbps),
        application: None,
        policy_cores: 0.0,
        errors: ends.iter().flat_map(|end| end.errors.values()).sum(),
        queue_pair_gbps: queue_pairs(&ends),
        goodput_series_gbps: series.goodput_gbps,
        p99_series_us: match latency_us {
            Some(_) => series.p99_us,
            None => Vec::new(),
        },
        latency_us,
    }
}

fn rate(amount: f64, per: f64) -> f64 {
    match per > 0.0 {
        true => amount / per,
        false => 0.0,
    }
}

/// Names of the workloads whose deliveries the receiving end counts.
fn lossy_workloads(tenant: &Tenant) -> BTreeSet<&str> {
    let lossy = tenant
        .workloads
        .iter()
        .filter(|workload| match &workload.traffic {
            Traffic::Data(data) => data.transport != Transport::Rc && data.verb == Verb::Send,
            Traffic::Control(_) | Traffic::Application(_) => false,
        });
    lossy.map(|workload| workload.name.as_str()).collect()
}

/// What one end saw delivered.
struct Delivered {
    bytes: u64,
    messages: u64,
    seconds: f64,
}

impl Delivered {
    fn of(end: &EndReport, lossy: &BTreeSet<&str>) -> Self {
        let (bytes, messages) = match lossy.contains(end.name.as_str()) {
            true => (end.received_bytes, end.received_messages),
            false => (end.posted_bytes, end.posted_messages),
        };
        Self {
            bytes,
            messages,
            seconds: end.window.seconds(),
        }
    }

    fn gbps(&self) -> f64 {
        rate(self.bytes as f64 * 8.0 / 1e9, self.seconds)
    }

    fn messages_per_s(&self) -> f64 {
        rate(self.messages as f64, self.seconds)
    }
}

fn latency(reports: &BTreeMap<Host, Report>) -> Option<LatencyResult> {
    let counts = reports
        .values()
        .map(|report| report.latency_counts.as_slice());
    let figures = LatencyNs::merged(counts)?;
    let us = |ns: u64| ns as f64 / NS_PER_US;
    let longest = reports.values().map(|report| report.window.seconds());
    let measured_us = longest.fold(0.0, f64::max) * 1e6;
    let p50 = us(figures.p50);
    Some(LatencyResult {
        samples: figures.samples,
        min: us(figures.min),
        mean: figures.mean / NS_PER_US,
        p50,
        p99: us(figures.p99),
        p999: us(figures.p999),
        max: us(figures.max),
        steady: figures.samples >= STEADY_SAMPLES_MIN
            && p50 * f64::from(STEADY_MEDIANS_MIN) <= measured_us,
    })
}

/// Payload that a tenant offers, where its workloads set a rate.
fn offered(tenant: &Tenant) -> Option<f64> {
    let mut sum = None;
    for workload in &tenant.workloads {
        let Traffic::Data(data) = &workload.traffic else {
            continue;
        };
        let per_process = match &data.arrival {
            Arrival::Paced { rate } => rate.as_gbps_f64(),
            Arrival::Open { interval, .. } => {
                let list = mean_bytes(data) * f64::from(data.post_list * data.queue_pairs);
                rate(list * 8.0 / 1e9, interval.as_secs_f64())
            }
            Arrival::Closed { .. } | Arrival::PingPong => return None,
        };
        *sum.get_or_insert(0.0) += per_process * f64::from(workload.processes);
    }
    sum
}

fn mean_bytes(data: &DataTraffic) -> f64 {
    let bytes = data
        .pattern
        .iter()
        .map(|message| message.bytes().get() as f64);
    rate(bytes.sum(), data.pattern.len() as f64)
}

/// Headers of the packets that carry `goodput_gbps`, by the mean of the tenant's workloads.
fn headers_gbps(tenant: &Tenant, goodput_gbps: f64) -> f64 {
    let (mut bytes, mut packets) = (0.0, 0.0);
    for workload in &tenant.workloads {
        if let Traffic::Data(data) = &workload.traffic {
            for message in &data.pattern {
                let size = message.bytes().get();
                bytes += size as f64;
                packets += size.div_ceil(u64::from(data.mtu)).max(1) as f64;
            }
        }
    }
    goodput_gbps * rate(packets * PACKET_HEADERS, bytes)
}

/// Smallest, median and largest goodput of a queue pair.
fn queue_pairs(ends: &[&EndReport]) -> [f64; 3] {
    let mut rates: Vec<f64> = ends
        .iter()
        .flat_map(|end| {
            let seconds = end.window.seconds();
            let bytes = end.queue_pair_bytes.iter();
            bytes.map(move |bytes| rate(*bytes as f64 * 8.0 / 1e9, seconds))
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    match rates.len() {
        0 => [0.0; 3],
        count => [rates[0], rates[count / 2], rates[count - 1]],
    }
}

/// A tenant over the measured time.
struct Series {
    goodput_gbps: Vec<f64>,
    p99_us: Vec<Option<f64>>,
}

impl Series {
    fn of(scenario: &Scenario, reports: &BTreeMap<Host, Report>, received: bool) -> Self {
        let interval = scenario.sample_interval.as_ps().max(1);
        // Whole points: those in which the warm-up and the measured time end are left out.
        let first = scenario.warmup.as_ps().div_ceil(interval) as usize;
        let end = (scenario.warmup + scenario.duration).as_ps() / interval;
        let points = (end as usize).saturating_sub(first);
        let mut series = Self {
            goodput_gbps: vec![0.0; points],
            p99_us: vec![None; points],
        };
        for report in reports.values() {
            let samples = report.series.iter().skip(first).take(points);
            for (point, sample) in samples.enumerate() {
                let bytes = match received {
                    true => sample.received_bytes,
                    false => sample.posted_bytes,
                };
                // Bits per picosecond are thousands of gigabits per second.
                series.goodput_gbps[point] += bytes as f64 * 8.0 * 1e3 / interval as f64;
                // A worker's 0 says that no message completed.
                let p99_us = (sample.p99_ns > 0).then(|| sample.p99_ns as f64 / NS_PER_US);
                series.p99_us[point] = largest(series.p99_us[point], p99_us);
            }
        }
        series
    }
}

/// The larger of those that are there.
fn largest(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.into_iter().chain(other).reduce(f64::max)
}

/// Of hosts A and B, and every other that a workload has an end on.
fn counters(
    scenario: &Scenario,
    measured: &Measured,
    calibration: &Calibration,
    measured_s: f64,
) -> Vec<HostCounters> {
    let mut hosts = BTreeSet::from([Host::A, Host::B]);
    let workloads = scenario.tenants.iter().flat_map(|tenant| &tenant.workloads);
    hosts.extend(workloads.flat_map(|workload| workload.hosts()));
    let of = |host: Host| {
        let counted = measured.counters.get(&host).cloned().unwrap_or_default();
        HostCounters {
            host,
            ratios: ratios(&counted, calibration),
            values: in_measured_time(counted, measured_s),
        }
    };
    hosts.into_iter().map(of).collect()
}

/// The rises of `counted`, which cover a part of the measured time, for the whole of it: the rates are taken for the same.
fn in_measured_time(counted: Counted, measured_s: f64) -> BTreeMap<String, u64> {
    let Counted { seconds, mut rises } = counted;
    if seconds > 0.0 {
        let values = rises.values_mut();
        values.for_each(|rise| *rise = (*rise as f64 * measured_s / seconds).round() as u64);
    }
    rises
}

/// How busy the link was, against the goodput that one tenant alone got; bytes of headers count, so a busy link has the
/// value 1.
fn ratios(counted: &Counted, calibration: &Calibration) -> BTreeMap<String, f64> {
    let directions = [
        ("link_tx_utilisation", ["tx_bytes", "netdev_tx_bytes"]),
        ("link_rx_utilisation", ["rx_bytes", "netdev_rx_bytes"]),
    ];
    let mut ratios = BTreeMap::new();
    for (ratio, names) in directions {
        let bytes = names.iter().find_map(|name| counted.rises.get(*name));
        if let (Some(bytes), true) = (bytes, counted.seconds > 0.0) {
            let gbps = *bytes as f64 * 8.0 / 1e9 / counted.seconds;
            ratios.insert(
                ratio.to_owned(),
                rate(gbps, calibration.goodput_gbps).min(1.0),
            );
        }
    }
    ratios
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_rdma_scenario::library::Library;
    use isolane_rdma_traffic::worker::{Sample, Window};

    fn scenario(traffic: &str) -> Scenario {
        let text = format!(
            "profile = \"cx5-100g-roce\"\nwarmup = \"100ms\"\nduration = \"1s\"\nsample_interval = \"250ms\"\n\
             [[tenant]]\nname = \"bulk\"\nclass = \"bandwidth\"\n[[tenant.traffic]]\n{traffic}"
        );
        isolane_rdma_scenario::parse(&text, "test.toml", &Library::embedded()).unwrap()
    }

    fn end(id: u32, posted_bytes: u64, received_bytes: u64) -> EndReport {
        EndReport {
            id,
            name: "traffic-1".to_owned(),
            window: Window {
                from_ns: 100_000_000,
                to_ns: 1_100_000_000,
            },
            posted_bytes,
            posted_messages: posted_bytes / 65_536,
            received_bytes,
            queue_pair_bytes: vec![posted_bytes],
            ..EndReport::default()
        }
    }

    fn measured(from: EndReport, to: EndReport) -> Measured {
        let report = |end: EndReport| Report {
            window: end.window,
            series: vec![
                Sample {
                    posted_bytes: end.posted_bytes / 4,
                    received_bytes: end.received_bytes / 4,
                    p99_ns: 2_000,
                    ..Sample::default()
                };
                5
            ],
            latency_counts: vec![(1_000, 90), (3_000, 10)],
            ends: vec![end],
            ..Report::default()
        };
        let rises = BTreeMap::from([("netdev_tx_bytes".to_owned(), 62_500_000)]);
        Measured {
            reports: vec![BTreeMap::from([
                (Host::A, report(from)),
                (
                    Host::B,
                    Report {
                        latency_counts: Vec::new(),
                        ..report(to)
                    },
                ),
            ])],
            counters: BTreeMap::from([(
                Host::A,
                Counted {
                    seconds: 1.0,
                    rises,
                },
            )]),
        }
    }

    const CALIBRATION: Calibration = Calibration {
        goodput_gbps: 1.0,
        messages_per_s: 1e5,
        idle_p50_us: 1.0,
        idle_p99_us: 2.0,
    };

    fn between_two(scenario: &Scenario, measured: &Measured) -> RunResult {
        result(scenario, "verbs:r0,r1", "r0,r1", &CALIBRATION, measured)
    }

    #[test]
    fn reliable_traffic_counts_at_the_end_that_posts() {
        let scenario = scenario("verb = \"write\"\nsize = \"64KiB\"\n");
        let measured = measured(end(0, 125_000_000, 0), end(1, 0, 0));
        let result = between_two(&scenario, &measured);
        let bulk = result.tenant("bulk").unwrap();
        assert!((bulk.goodput_gbps - 1.0).abs() < 1e-9);
        assert!((bulk.share - 1.0).abs() < 1e-9);
        // The points from 250 ms to 1 s are within the measured time, 100 ms to 1,100 ms.
        assert_eq!(bulk.goodput_series_gbps, [1.0; 3]);
        assert_eq!(bulk.p99_series_us, [Some(2.0); 3]);
        assert!(bulk.wire_gbps > bulk.goodput_gbps && bulk.wire_gbps < 1.1 * bulk.goodput_gbps);
        let latency = bulk.latency_us.as_ref().unwrap();
        assert_eq!(latency.samples, 100);
        assert!(latency.p50 < 1.1 && latency.p99 > 2.9 && latency.steady);
        assert_eq!(result.measured_s, 1.0);
        assert_eq!(result.counters[0].ratios["link_tx_utilisation"], 0.5);
        assert!(result.counters[1].ratios.is_empty());
    }

    /// The readings were 800 ms apart; at the same rate, the device sent five fourths of the bytes in the measured time.
    #[test]
    fn counters_of_a_part_of_the_measured_time_count_for_all_of_it() {
        let scenario = scenario("verb = \"write\"\nsize = \"64KiB\"\n");
        let mut measured = measured(end(0, 125_000_000, 0), end(1, 0, 0));
        measured.counters.get_mut(&Host::A).unwrap().seconds = 0.8;
        let host = &between_two(&scenario, &measured).counters[0];
        assert_eq!(host.values["netdev_tx_bytes"], 78_125_000);
        assert_eq!(host.ratios["link_tx_utilisation"], 0.625);
    }

    #[test]
    fn what_an_unreliable_send_lost_is_no_goodput() {
        let scenario = scenario("verb = \"send\"\ntransport = \"uc\"\nsize = \"64KiB\"\n");
        let measured = measured(end(0, 125_000_000, 0), end(1, 0, 62_500_000));
        let result = between_two(&scenario, &measured);
        assert!((result.tenants[0].goodput_gbps - 0.5).abs() < 1e-9);
        assert_eq!(result.tenants[0].goodput_series_gbps, [0.5; 3]);
    }

    #[test]
    fn open_and_paced_loads_say_what_they_offer() {
        let paced = scenario(
            "verb = \"write\"\nsize = \"64KiB\"\narrival = \"paced\"\nrate = \"2Gb/s\"\nprocesses = 3\n",
        );
        assert!((offered(&paced.tenants[0]).unwrap() - 6.0).abs() < 1e-9);
        let open = scenario(
            "verb = \"write\"\nsize = 1250\narrival = \"open\"\ninterval = \"10us\"\nqueue_pairs = 2\n",
        );
        assert!((offered(&open.tenants[0]).unwrap() - 2.0).abs() < 1e-9);
        assert_eq!(
            offered(&scenario("verb = \"write\"\nsize = 8\n").tenants[0]),
            None
        );
    }
}

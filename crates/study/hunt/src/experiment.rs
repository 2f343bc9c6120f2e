//! One experiment: a point is run until it is steady, and what matters of the result is kept.
//!
//! Units: wire gigabits per second, packets and messages per second; counters that count are per second and summed
//! over hosts, ratios are those of the host where they are largest. Where a device has no counter of bytes or packets, those of the
//! traffic's own ends count. Method: one run; where the goodput of its four
//! quarters differs by more than a tenth of their mean, it is measured again for twice as long, up to a limit, after which
//! the last run counts and is marked. Limits: packets on the loopback path have no counter; of two kinds of traffic, the ends of the one
//! inside count them. Source: collie 3.6 (metrics
//! are read four times per iteration, and traffic has to be stable).

use crate::HuntError;
use crate::space::benchmark::simple;
use crate::space::convert::{PROCESSES, SAMPLES, Times, scenario};
use crate::space::point::{self, Feature, Point};
use crate::vocabulary::{self, Way};
use isolane_common_quantities::units::Duration;
use isolane_rdma_scenario::model::Host;
use isolane_rdma_scenario::profile::Profile;
use isolane_study_audit::cell::Metrics;
use isolane_study_results::rdma::{HostCounters, RunResult, TenantResult};
use isolane_study_results::settling::SettlingSummary;
use isolane_study_testbed::settle::Congestion;
use isolane_study_testbed::{Patience, Testbed, Until};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most that quarters of a steady run differ, part of their mean.
const STEADY_SPREAD: f64 = 0.1;
/// The name of every experiment's scenario.
const NAME: &str = "hunt";

/// What arrives at one host that data flows to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Arrived {
    /// Bits on the wire and on the loopback path, headers included.
    pub gbps: f64,
    /// Packets on the wire.
    pub packets_per_s: f64,
}

/// One of two kinds of traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OfKind {
    /// What arrived in the direction that its data takes, that of the other kind included where it takes the same.
    pub arrived: Arrived,
    /// Messages completed.
    pub messages_per_s: f64,
}

/// What an experiment gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Time for which a NIC paused its link, part of the measured time; of the host that paused longer.
    pub pause_ratio: f64,
    /// The slower of the directions that carry data.
    pub slowest: Arrived,
    /// Messages completed, all directions together.
    pub messages_per_s: f64,
    /// The kinds of traffic of a point with two; empty where it has one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<OfKind>,
    /// False where the run was cut off before it was steady.
    pub steady: bool,
    /// Goodput of the best quarter, part of the mean, of a run that was not steady where runs differ ([`Lab::is_noisy`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_quarter: Option<f64>,
    /// Simulated time before the measured time, microseconds; absent in journals of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_after_us: Option<f64>,
    /// Measured time, microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_us: Option<f64>,
    /// 99th percentile of the latency of the slowest tenant's messages, microseconds; absent where too few completed for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// What the victim got, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Beside>,
    /// Counters by name that are not zero.
    pub counters: BTreeMap<String, f64>,
}

/// A victim beside an attacker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// The victim.
    pub victim: Metrics,
    /// Part of its link that the attacker took, in the direction where it took more; what stays inside a host counts
    /// nothing.
    pub link_share: f64,
    /// The resource that ran out, in words, as an audit would name it.
    pub exhausted: Option<String>,
}

impl Measured {
    /// How long the run took to be steady; none where it is not known.
    pub fn settling(&self) -> Option<SettlingSummary> {
        let (after, measured) = (self.settled_after_us?, self.measured_us?);
        Some(SettlingSummary::of_run(self.steady, after, measured))
    }

    /// The counter called `name`; zero where it did not count.
    pub fn counter(&self, name: &str) -> f64 {
        self.counters.get(name).copied().unwrap_or(0.0)
    }
}

/// A target of experiments.
pub trait Target: Sync {
    /// Its name in results: `sim:cx6-200g-roce`.
    fn name(&self) -> &str;

    /// Does the experiment `point` with random numbers of `seed`. Fails if the target fails; an anomaly is no error.
    fn measure(&self, point: &Point, seed: u64) -> Result<Measured, HuntError>;
}

/// A testbed with a device as a target.
pub struct Lab<'a> {
    /// Name in results.
    pub name: String,
    /// Where scenarios run.
    pub testbed: &'a dyn Testbed,
    /// The device.
    pub profile: &'a Profile,
    /// The first run of an experiment.
    pub times: Times,
    /// Most that each queue pair adds to the warm-up: all of them have to meet the caches.
    pub warmup_per_pair: Duration,
    /// How often an experiment that is not steady is measured again, twice as long each time.
    pub extensions: u32,
    /// Whether equal experiments differ, as on real devices. Then a run that was not steady decides only what each of its quarters
    /// shows.
    pub is_noisy: bool,
}

impl<'a> Lab<'a> {
    /// Warm-up of a simulated experiment: some hundred round trips, and the fill of a receive buffer that gets a tenth
    /// more than it can pass on.
    const WARMUP: Duration = Duration::from_us(300);
    /// The misses of a queue pair's first messages take about as long.
    const WARMUP_PER_PAIR: Duration = Duration::from_us(2);
    /// Measured time of a simulated experiment: the wire carries thousands of packets in it.
    const DURATION: Duration = Duration::from_us(200);

    /// A simulated device.
    pub fn simulated(testbed: &'a dyn Testbed, profile: &'a Profile) -> Self {
        Self {
            name: format!("{}:{}", testbed.name(), profile.name),
            testbed,
            profile,
            times: Times {
                warmup: Self::WARMUP,
                duration: Self::DURATION,
            },
            warmup_per_pair: Self::WARMUP_PER_PAIR,
            extensions: 2,
            is_noisy: false,
        }
    }

    /// Longest warm-up of `point`, and the time for which it is measured first.
    ///
    /// The warm-up does not end while processes still fill their queues: their doorbells and requests take most of PCIe then.
    pub fn times_of(&self, point: &Point) -> Times {
        let parts = point.parts();
        let pairs = parts.iter().map(|part| {
            let directions = 1 + u64::from(part.direction == point::BIDIRECTIONAL);
            part.queue_pairs * directions
        });
        let pairs = self.warmup_per_pair * pairs.sum::<u64>();
        let posting = parts.iter().map(|part| self.first_posting(part)).max();
        Times {
            warmup: self.times.warmup + pairs.max(posting.unwrap_or(Duration::ZERO)),
            duration: self.times.duration,
        }
    }

    /// Time in which a process fills the queues of all its pairs once.
    fn first_posting(&self, point: &Point) -> Duration {
        let of = |name: &str| self.profile.value("host", name);
        let request_ns = of("post_ns") + of("doorbell_ns") / point.post_list.max(1) as f64;
        let requests = point.queue_pairs.div_ceil(PROCESSES) * point.depth;
        Duration::from_ns_f64(request_ns * requests as f64)
    }
}

impl Target for Lab<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn measure(&self, point: &Point, seed: u64) -> Result<Measured, HuntError> {
        let scenario = scenario(point, NAME, &self.profile.name, seed, self.times_of(point));
        let patience = Patience {
            settle: self.times.warmup,
            stuck: None,
            congestion: Congestion::default(),
            warmup_max: scenario.warmup,
            cap: Duration::MAX,
            extensions: self.extensions,
            until: Until::Steady(&is_run_steady),
        };
        let result = self.testbed.run_until(&scenario, self.profile, &patience)?;
        let link_gbps = self.profile.value("link", "rate_gbps");
        let mut measured = condense(point, &result, link_gbps);
        if self.is_noisy && !measured.steady {
            measured.best_quarter = best_quarter(&result.tenants);
        }
        Ok(measured)
    }
}

/// Goodput of the best quarter of any of `tenants`, part of its mean; none where nothing moved.
pub(crate) fn best_quarter(tenants: &[TenantResult]) -> Option<f64> {
    let best = |tenant: &TenantResult| {
        let quarters = quarters(&tenant.goodput_series_gbps);
        let mean = quarters.iter().sum::<f64>() / quarters.len() as f64;
        let best = quarters.into_iter().fold(0.0f64, f64::max);
        (best > 0.0).then(|| best / mean)
    };
    tenants.iter().filter_map(best).max_by(f64::total_cmp)
}

/// Whether every tenant's goodput is steady.
fn is_run_steady(result: &RunResult) -> bool {
    let mut tenants = result.tenants.iter();
    tenants.all(|tenant| is_steady(&tenant.goodput_series_gbps))
}

/// What matters of `result`, the run of `point` on a link of `link_gbps`.
fn condense(point: &Point, result: &RunResult, link_gbps: f64) -> Measured {
    let kinds = kinds(point, result);
    let slowest = match kinds.as_slice() {
        [] => slowest(point, result),
        [first, others @ ..] => others.iter().fold(first.arrived, |slowest, other| {
            slower(slowest, other.arrived)
        }),
    };
    let tenants = || result.tenants.iter();
    Measured {
        pause_ratio: pause_ratio(result, link_gbps),
        slowest,
        messages_per_s: tenants().map(|tenant| tenant.message_rate_per_s).sum(),
        kinds,
        p99_us: p99_us(result),
        beside: None,
        steady: is_run_steady(result),
        best_quarter: None,
        settled_after_us: result.settling.as_ref().map(|one| one.settled_after_us),
        measured_us: Some(result.measured_s * 1e6),
        counters: counters(&result.counters, result.measured_s),
    }
}

/// The lower rates of both.
fn slower(one: Arrived, other: Arrived) -> Arrived {
    Arrived {
        gbps: one.gbps.min(other.gbps),
        packets_per_s: one.packets_per_s.min(other.packets_per_s),
    }
}

/// The slower direction of the one kind of traffic of `point`.
fn slowest(point: &Point, result: &RunResult) -> Arrived {
    let flows = Flows::of(point, &result.tenants);
    let port = |host: Host, way: Way| port(result, host, way, &flows);
    let reads = point.service == point::READ;
    match point.direction {
        point::BIDIRECTIONAL => slower(port(Host::A, Way::Received), port(Host::B, Way::Received)),
        point::LOOPBACK => {
            let way = if reads { Way::Sent } else { Way::Received };
            let mut both = port(Host::A, way);
            // Where no counter of the device counts it, half of the pairs stay inside.
            both.gbps += inside_gbps(result).unwrap_or(flows.gbps);
            both
        }
        _ => port(if reads { Host::A } else { Host::B }, Way::Received),
    }
}

/// What each kind of traffic of `point` did; nothing where there is one.
fn kinds(point: &Point, result: &RunResult) -> Vec<OfKind> {
    let parts = point.parts();
    let [first, second] = parts.as_slice() else {
        return Vec::new();
    };
    let [of_first, of_second] = [(first, 0), (second, 1)]
        .map(|(part, tenant)| Flows::of(part, result.tenants.get(tenant..=tenant).unwrap_or(&[])));
    let both = match point.direction {
        point::LOOPBACK => {
            let way = match first.service {
                point::READ => Way::Sent,
                _ => Way::Received,
            };
            let mut both = port(result, Host::A, way, &of_first);
            both.gbps += inside_gbps(result).unwrap_or(of_second.gbps);
            both.packets_per_s += of_second.packets_per_s;
            Some(both)
        }
        _ => None,
    };
    let tenants = result.tenants.iter();
    let all = parts.iter().zip(tenants).map(|(part, tenant)| {
        let host = part.data_flows_to();
        let mut flows = Flows::default();
        for (other, of_other) in [(first, &of_first), (second, &of_second)] {
            if other.data_flows_to() == host {
                flows.gbps += of_other.gbps;
                flows.packets_per_s += of_other.packets_per_s;
            }
        }
        OfKind {
            arrived: both.unwrap_or_else(|| port(result, host, Way::Received, &flows)),
            messages_per_s: tenant.message_rate_per_s,
        }
    });
    all.collect()
}

/// What went over the port of `host`; where the device does not count it, what `flows` are.
fn port(result: &RunResult, host: Host, way: Way, flows: &Flows) -> Arrived {
    let counted = result.counters.iter().find(|one| one.host == host);
    let bytes = counted.and_then(|counted| vocabulary::bytes(counted, way));
    let packets = counted.and_then(|counted| vocabulary::packets(counted, way));
    let seconds = result.measured_s;
    Arrived {
        gbps: bytes.map_or(flows.gbps, |bytes| bytes as f64 * 8.0 / seconds / 1e9),
        packets_per_s: packets.map_or(flows.packets_per_s, |packets| packets as f64 / seconds),
    }
}

/// What stayed inside host A, where the device counts it.
fn inside_gbps(result: &RunResult) -> Option<f64> {
    let host = result.counters.iter().find(|one| one.host == Host::A)?;
    let bytes = host.values.get("loopback_bytes")?;
    Some(*bytes as f64 * 8.0 / result.measured_s / 1e9)
}

/// One direction of the traffic as its ends count it, for devices without a counter of their own.
#[derive(Clone, Copy, Debug, Default)]
struct Flows {
    gbps: f64,
    packets_per_s: f64,
}

impl Flows {
    /// Of the one kind of traffic of `point`, which `tenants` run.
    fn of(point: &Point, tenants: &[TenantResult]) -> Self {
        // Both of these directions have two flows of as many pairs.
        let flows = match point.direction {
            point::BIDIRECTIONAL | point::LOOPBACK => 2.0,
            _ => 1.0,
        };
        let requests = point.requests.iter();
        let packets =
            requests.map(|request| request.iter().sum::<u64>().div_ceil(point.mtu).max(1));
        let packets = packets.sum::<u64>() as f64 / point.requests.len().max(1) as f64;
        let tenants = || tenants.iter();
        let messages: f64 = tenants().map(|tenant| tenant.message_rate_per_s).sum();
        Self {
            gbps: tenants().map(|tenant| tenant.wire_gbps).sum::<f64>() / flows,
            packets_per_s: messages * packets / flows,
        }
    }
}

/// Time for which the device that did so longer paused its link, part of the measured time.
fn pause_ratio(result: &RunResult, link_gbps: f64) -> f64 {
    let hosts = result.counters.iter();
    let ratios = hosts.map(|host| vocabulary::pause_ratio(host, result.measured_s, link_gbps));
    ratios.fold(0.0, f64::max)
}

/// Messages that a 99th percentile needs, so ten are above it.
const P99_SAMPLES_MIN: u64 = 1_000;

fn p99_us(result: &RunResult) -> Option<f64> {
    let latencies = result
        .tenants
        .iter()
        .filter_map(|tenant| tenant.latency_us.as_ref());
    let told = latencies.filter(|latency| latency.samples >= P99_SAMPLES_MIN);
    told.map(|latency| latency.p99).max_by(f64::total_cmp)
}

/// True where the quarters of `series` are alike and something moves.
pub(crate) fn is_steady(series: &[f64]) -> bool {
    let quarters = quarters(series);
    if quarters.is_empty() {
        return true;
    }
    let mean = quarters.iter().sum::<f64>() / quarters.len() as f64;
    let (least, most) = quarters
        .iter()
        .fold((f64::MAX, 0.0f64), |(least, most), &sum| {
            (least.min(sum), most.max(sum))
        });
    mean > 0.0 && most - least <= STEADY_SPREAD * mean
}

/// The sums of the quarters of `series`; empty where it is too short.
fn quarters(series: &[f64]) -> Vec<f64> {
    let quarter = series.len().min(SAMPLES as usize) / 4;
    if quarter == 0 {
        return Vec::new();
    }
    series
        .chunks_exact(quarter)
        .map(|quarter| quarter.iter().sum())
        .collect()
}

pub(crate) fn counters(hosts: &[HostCounters], seconds: f64) -> BTreeMap<String, f64> {
    let mut all: BTreeMap<String, f64> = BTreeMap::new();
    for host in hosts {
        for (name, &value) in &host.values {
            *all.entry(name.clone()).or_default() += value as f64 / seconds;
        }
        for (name, &ratio) in &host.ratios {
            let largest = all.entry(name.clone()).or_default();
            *largest = largest.max(ratio);
        }
    }
    all.retain(|_, value| *value != 0.0);
    all
}

/// The names of all counters that `lab` reports.
pub fn inventory(lab: &Lab<'_>) -> Result<Vec<String>, HuntError> {
    let scenario = scenario(&simple(0, 1, 1), NAME, &lab.profile.name, 1, lab.times);
    let result = lab.testbed.run(&scenario, lab.profile)?;
    let names = result
        .counters
        .iter()
        .flat_map(|host| host.values.keys().chain(host.ratios.keys()).cloned());
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// Seconds that the smallest experiment would take on real hardware.
pub const MODELLED_LEAST_S: f64 = 20.0;

/// Seconds that `point` would take on real hardware: 20 to 60, growing with queue pairs and regions to create.
///
/// The paper gives the range and what it depends on; that each half grows in proportion is our reading.
pub fn modelled_s(point: &Point) -> f64 {
    let part = |count: u64, most: f64| (count as f64 / most).min(1.0);
    let pairs = point.queue_pairs + Feature::SecondQueuePairs.of(point);
    MODELLED_LEAST_S + 20.0 * part(pairs, 20_000.0) + 20.0 * part(point.regions, 200_000.0)
}

#[cfg(test)]
pub(crate) mod tests;

//! Studies of a host's network card as runs of claims, and their numbers by name.
//!
//! Problem: Titan's tables are of some sixty runs that differ in two words, the configuration and the number of flows. So a
//! run of a claim says just that, `nic = { config = "C6", flows = 12 }`, or `{ config = "T1", hosts = 6 }` for hosts that
//! all send to each other, and what else it changes of the paper's experiment.
//!
//! Units end the names. Method: [`NicRun::study`] fills in the paper's experiment; [`NicNumbers`] flattens a result, so
//! that the runs of several seeds can be averaged before a formula sees them, as the paper does. Limits: measured times
//! are shorter than the paper's; a claim's note states this where it matters. Source: titan 3 and 6.

use crate::error::{nearest, number};
use isolane_common_quantities::units::{BitRate, Bytes, Duration};
use isolane_ethernet_scenario::config;
use isolane_ethernet_scenario::config::{ByteLimit, CATALOGUE, NicConfig};
use isolane_ethernet_scenario::model::{NicStudy, NicTraffic, TcpCongestion};
use isolane_study_results::ethernet::NicResult;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The name of a run's card in a measurement: `c6:nic.cpu_percent`.
pub(crate) const NAME: &str = "nic";

/// Time before measuring, unless a run says otherwise.
const WARMUP: Duration = Duration::from_ms(300);

/// Measured time, unless a run says otherwise: one second, which the fairness over a second needs, and a bit.
const DURATION: Duration = Duration::from_ms(1_200);

/// Time between pings of a run without pings: longer than any run.
const NEVER: Duration = Duration::from_secs(1_000_000);

/// What each connection of a cluster sends unless a run says otherwise: a tenth of the paper's.
const CLUSTER_BYTES: Bytes = Bytes::new(100_000_000);

/// What a measurement may name of a NIC's run.
pub(crate) const FIELDS: [&str; 29] = [
    "throughput_gbps",
    "cpu_percent",
    "ping_us.p50",
    "ping_us.p90",
    "ping_us.p99",
    "nfm_1ms",
    "nfm_1s",
    "flow_gbps.min",
    "flow_gbps.max",
    "flow_gbps.jain",
    "queue_bytes_max",
    "completion_ms.p50",
    "completion_ms.p90",
    "completion_ms.p99",
    "completion_ms.mean",
    "completion_ms.min",
    "completion_ms.max",
    "spread_ms.p50",
    "spread_ms.p90",
    "spread_ms.mean",
    "spread_ms.max",
    "counts.retransmissions",
    "counts.drops",
    "counts.reordered",
    "counts.moves",
    "counts.weight_writes",
    "counts.interrupts",
    "counts.segments",
    "counts.packets",
];

/// One experiment, by what it changes of the paper's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NicRun {
    /// A configuration of the catalogue, `C6`.
    pub config: String,
    /// Long flows from one host to another.
    #[serde(default)]
    pub flows: Option<u32>,
    /// Instead: hosts that all send to each other.
    #[serde(default)]
    pub hosts: Option<u32>,
    /// Hosts of those behind the second switch.
    #[serde(default)]
    pub second_switch: u32,
    /// Megabytes that each connection of a cluster sends.
    #[serde(default)]
    pub megabytes: Option<u64>,
    /// Whether the NIC gets the weights of queues; overrides the configuration.
    #[serde(default)]
    pub queue_weights: Option<bool>,
    /// KiB of a segment while queues are shared; 0 leaves segments whole.
    #[serde(default)]
    pub shared_segment_kib: Option<u64>,
    /// Line rate.
    #[serde(default)]
    pub rate_gbps: Option<f64>,
    /// Transmit queues.
    #[serde(default)]
    pub queues: Option<u16>,
    /// Processors of a host.
    #[serde(default)]
    pub processors: Option<u16>,
    /// Congestion control.
    #[serde(default)]
    pub congestion: Option<TcpCongestion>,
    /// Measured time.
    #[serde(default)]
    pub duration_ms: Option<u64>,
    /// Time before measuring.
    #[serde(default)]
    pub warmup_ms: Option<u64>,
    /// False: no pings beside the flows.
    #[serde(default)]
    pub pings: Option<bool>,
    /// KiB that a hardware queue may hold, instead of what the configuration says.
    #[serde(default)]
    pub byte_limit_kib: Option<u64>,
}

impl NicRun {
    /// The experiment; the error names what is wrong and the remedy.
    pub fn study(&self, seed: u64) -> Result<NicStudy, String> {
        let config = self.config()?;
        let mut study = NicStudy::of_paper(config, self.flows()?, seed);
        study.warmup = self.warmup_ms.map_or(WARMUP, Duration::from_ms);
        if let (Some(false), NicTraffic::Flows { ping_interval, .. }) =
            (self.pings, &mut study.traffic)
        {
            *ping_interval = NEVER;
        }
        study.duration = self.duration_ms.map_or(DURATION, Duration::from_ms);
        if let Some(rate) = self.rate_gbps {
            if !(0.1..=100.0).contains(&rate) {
                return Err(format!("nic: rate_gbps = {rate}: must be 0.1 to 100"));
            }
            study.card.rate = BitRate::from_gbps_f64(rate);
        }
        if let Some(queues) = self.queues {
            if !(1..=QUEUES_MAX).contains(&queues) {
                return Err(format!("nic: queues = {queues}: must be 1 to {QUEUES_MAX}"));
            }
            study.card.queues = queues;
        }
        if let Some(processors) = self.processors {
            if !(1..=PROCESSORS_MAX).contains(&processors) {
                return Err(format!(
                    "nic: processors = {processors}: must be 1 to {PROCESSORS_MAX}"
                ));
            }
            study.card.processors = processors;
        }
        if let Some(congestion) = self.congestion {
            study.congestion = congestion;
        }
        match self.hosts {
            Some(hosts) if self.second_switch >= hosts => {
                return Err(format!(
                    "nic: second_switch = {}: must be below hosts = {hosts}",
                    self.second_switch
                ));
            }
            Some(hosts) => {
                study.name = format!("{}-{hosts}-hosts", config.name);
                study.warmup = Duration::ZERO;
                study.traffic = NicTraffic::AllToAll {
                    hosts,
                    second_switch: self.second_switch,
                    bytes: self
                        .megabytes
                        .map_or(CLUSTER_BYTES, |number| Bytes::new(number * 1_000_000)),
                };
            }
            None if self.megabytes.is_some() || self.second_switch > 0 => {
                let message = "nic: megabytes and second_switch belong to clusters: give hosts";
                return Err(message.to_owned());
            }
            None => {}
        }
        Ok(study)
    }

    /// Flows of one host; a cluster has one for each pair of hosts.
    fn flows(&self) -> Result<u32, String> {
        match (self.flows, self.hosts) {
            (Some(flows @ 1..=FLOWS_MAX), None) => Ok(flows),
            (None, Some(2..=HOSTS_MAX)) => Ok(1),
            (Some(_), Some(_)) => Err("nic: give flows or hosts, not both".to_owned()),
            (None, None) => Err("nic: give flows, or hosts of a cluster".to_owned()),
            (Some(flows), None) => Err(format!("nic: flows = {flows}: must be 1 to {FLOWS_MAX}")),
            (None, Some(hosts)) => Err(format!("nic: hosts = {hosts}: must be 2 to {HOSTS_MAX}")),
        }
    }

    fn config(&self) -> Result<NicConfig, String> {
        let mut config = *config::named(&self.config).ok_or_else(|| {
            let names = CATALOGUE.iter().map(|config| config.name);
            format!(
                "nic: no configuration is called {:?}{}",
                self.config,
                nearest(&self.config, names)
            )
        })?;
        if let Some(weights) = self.queue_weights {
            config.queue_weights = weights;
        }
        config.byte_limit = match self.byte_limit_kib {
            None => config.byte_limit,
            Some(kib @ 2..=4096) => ByteLimit::Fixed(Bytes::new(kib * 1024)),
            Some(kib) => return Err(format!("nic: byte_limit_kib = {kib}: must be 2 to 4096")),
        };
        config.shared_segment = match self.shared_segment_kib {
            None => config.shared_segment,
            Some(0) => None,
            Some(kib @ 2..=64) => Some(Bytes::new(kib * 1024)),
            Some(kib) => {
                return Err(format!(
                    "nic: shared_segment_kib = {kib}: must be 0 or 2 to 64"
                ));
            }
        };
        Ok(config)
    }
}

/// Flows that one host may have: as many as a table of flows holds with room to spare.
const FLOWS_MAX: u32 = 4_096;
/// Hosts of a cluster: beyond, a run takes minutes.
const HOSTS_MAX: u32 = 64;
/// Processors of the largest hosts there are.
const PROCESSORS_MAX: u16 = 1_024;
/// Queues of the largest card that the study knows (titan 2.1).
const QUEUES_MAX: u16 = 128;

/// The numbers of a run by the names of [`FIELDS`]; those that the run did not measure are absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NicNumbers(BTreeMap<String, f64>);

impl NicNumbers {
    /// The numbers of one run.
    pub fn of(result: &NicResult) -> Self {
        let mut numbers = BTreeMap::from([
            ("throughput_gbps".to_owned(), result.throughput_gbps),
            ("cpu_percent".to_owned(), result.cpu_percent),
            ("nfm_1ms".to_owned(), result.nfm_1ms),
            ("nfm_1s".to_owned(), result.nfm_1s),
        ]);
        let mut put = |name: String, value: f64| numbers.insert(name, value);
        if let Some(ping) = result.ping_us {
            put("ping_us.p50".to_owned(), ping.p50);
            put("ping_us.p90".to_owned(), ping.p90);
            put("ping_us.p99".to_owned(), ping.p99);
        }
        let flows = &result.flow_gbps;
        if !flows.is_empty() {
            let sum: f64 = flows.iter().sum();
            let squares: f64 = flows.iter().map(|rate| rate * rate).sum();
            put("flow_gbps.min".to_owned(), quantile(flows, 0.0));
            put("flow_gbps.max".to_owned(), quantile(flows, 1.0));
            if squares > 0.0 {
                let jain = sum * sum / (flows.len() as f64 * squares);
                put("flow_gbps.jain".to_owned(), jain);
            }
        }
        if let Some(most) = result.queue_bytes_max.iter().max() {
            put("queue_bytes_max".to_owned(), *most as f64);
        }
        if let Some(completions) = &result.completion_ms {
            for (name, values) in [
                ("completion_ms", &completions.all_ms),
                ("spread_ms", &completions.spread_ms),
            ] {
                if values.is_empty() {
                    continue;
                }
                for (part, rank) in PARTS {
                    put(format!("{name}.{part}"), quantile(values, rank));
                }
                let mean = values.iter().sum::<f64>() / values.len() as f64;
                put(format!("{name}.mean"), mean);
            }
        }
        for (name, count) in &result.counts {
            put(format!("counts.{name}"), *count as f64);
        }
        Self(numbers)
    }

    /// Each number's mean over `runs`; a number that one of them lacks is absent.
    pub fn mean(runs: &[&Self]) -> Self {
        let Some((first, _)) = runs.split_first() else {
            return Self::default();
        };
        let means = first.0.keys().filter_map(|name| {
            let values: Option<Vec<f64>> =
                runs.iter().map(|run| run.0.get(name).copied()).collect();
            let mean = values?.iter().sum::<f64>() / runs.len() as f64;
            Some((name.clone(), mean))
        });
        Self(means.collect())
    }

    /// The number `field` of what is called `name`, which is the card.
    pub(crate) fn value(&self, name: &str, field: &str) -> Result<f64, String> {
        let value = number(&self.0, ("a NIC's run", NAME), (name, field))?;
        value.ok_or_else(|| format!("the run measured no {field}"))
    }
}

const PARTS: [(&str, f64); 5] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("min", 0.0),
    ("max", 1.0),
];

/// The nearest-rank quantile of `values`, which are not empty.
fn quantile(values: &[f64], rank: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (rank * sorted.len() as f64).ceil() as usize;
    sorted[place.clamp(1, sorted.len()) - 1]
}

#[cfg(test)]
pub(crate) mod tests;

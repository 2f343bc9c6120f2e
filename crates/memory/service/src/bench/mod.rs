//! Microbenchmarks: LS for latency, BI for bandwidth, and both at once.
//!
//! Problem: operators need the speed of their memory before they set objectives, and the machine's profile needs a
//! victim and an attacker of known behaviour. Method: [`latency`] makes dependent random accesses ([`chase`]),
//! [`bandwidth`] streams on several cores ([`stream`]), both over memory with a chosen far part ([`region`]).
//! [`together`] measures the first while the second runs, [`demonstration`] lets Mercury control the second.
//!
//! Units: nanoseconds, bytes per second, percent, thousandths. Limits: numbers are those of this machine at this moment, and
//! in an emulated machine they are the emulator's. Source: mercury 5.3.1.

pub mod chase;
pub mod demonstration;
pub mod region;
mod room;
pub mod stream;

use crate::error::MemError;
use crate::host::MemoryHost;
use crate::tiers::Tiers;
use chase::Walk;
use isolane_common_quantities::stats::Histogram;
use isolane_common_quantities::units::Bytes;
use region::Region;
use room::Need;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use stream::Streams;

/// Near and far nodes of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// Nodes of the nearest tier; empty places nothing, and the kernel decides.
    pub near: Vec<u32>,
    /// Nodes of the next one.
    pub far: Vec<u32>,
}

impl Nodes {
    /// The first two tiers.
    pub fn of(tiers: &Tiers) -> Self {
        let nodes = |tier: usize| {
            let tier = tiers.tiers.get(tier);
            tier.map_or_else(Vec::new, |tier| tier.nodes.clone())
        };
        Self {
            near: nodes(0),
            far: nodes(1),
        }
    }
}

/// How LS runs.
#[derive(Clone, Debug)]
pub struct LatencySettings {
    /// Memory that is accessed.
    pub region: Bytes,
    /// Part of it on far nodes, in percent.
    pub far_percent: u32,
    /// For how long.
    pub length: Duration,
    /// Where near and far are.
    pub nodes: Nodes,
}

impl Default for LatencySettings {
    /// 4 GiB, all near, two seconds (mercury 5.3.1).
    fn default() -> Self {
        Self {
            region: Bytes::from_mib(4_096),
            far_percent: 0,
            length: Duration::from_secs(2),
            nodes: Nodes::default(),
        }
    }
}

/// How BI runs.
#[derive(Clone, Debug)]
pub struct BandwidthSettings {
    /// Threads, each on its own core.
    pub cores: u32,
    /// Memory of each.
    pub region: Bytes,
    /// Part of it on far nodes, in percent.
    pub far_percent: u32,
    /// Part of the time in which they read, in thousandths.
    pub rate: u32,
    /// For how long.
    pub length: Duration,
    /// Where near and far are.
    pub nodes: Nodes,
}

impl Default for BandwidthSettings {
    /// 128 MiB on each processor that this process may use, all near, two seconds (mercury 5.3.1).
    fn default() -> Self {
        Self {
            cores: u32::try_from(stream::processors().len().max(1)).unwrap_or(u32::MAX),
            region: Bytes::from_mib(128),
            far_percent: 0,
            rate: 1_000,
            length: Duration::from_secs(2),
            nodes: Nodes::default(),
        }
    }
}

impl LatencySettings {
    fn need(&self) -> Need {
        Need {
            bytes: self.region,
            far_percent: self.far_percent,
        }
    }
}

impl BandwidthSettings {
    fn need(&self) -> Need {
        Need {
            bytes: Bytes::new(self.region.get().saturating_mul(u64::from(self.cores))),
            far_percent: self.far_percent,
        }
    }
}

/// What LS found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LatencyResult {
    /// Memory that was accessed, in bytes.
    pub region_bytes: u64,
    /// Far part of it at the end, in percent; none where the kernel does not report it.
    pub far_percent: Option<f64>,
    /// Accesses.
    pub accesses: u64,
    /// Samples that do not count, because the thread was taken off its processor.
    pub interrupted_samples: u64,
    /// Mean latency of an access, in nanoseconds.
    pub mean_ns: f64,
    /// Half of the samples are at most this, in nanoseconds.
    pub p50_ns: f64,
    /// Nine tenths.
    pub p90_ns: f64,
    /// 99 %.
    pub p99_ns: f64,
    /// Accesses per sample: quantiles are of their means.
    pub accesses_per_sample: u32,
    /// What the loop costs on memory in the first cache, in nanoseconds per access; it is part of the numbers above.
    pub loop_ns: f64,
    /// Samples by latency.
    pub histogram: Vec<Bucket>,
}

/// Samples of one latency.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Bucket {
    /// At most this, in nanoseconds; more than the bucket before.
    pub latency_ns: f64,
    /// How many.
    pub samples: u64,
}

/// What BI found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct BandwidthResult {
    /// Threads.
    pub cores: u32,
    /// Memory of each, in bytes.
    pub region_bytes: u64,
    /// Far part of it at the beginning, in percent; none where the kernel does not report it.
    pub far_percent: Option<f64>,
    /// Bandwidth of all, in bytes per second.
    pub bandwidth_bytes_per_s: f64,
    /// For so many seconds.
    pub length_s: f64,
}

/// Measures latency. Fails with [`MemError::NoRoom`], and as [`Region::new`] does.
pub fn latency(settings: &LatencySettings) -> Result<LatencyResult, MemError> {
    room::check(&MemoryHost::machine(), &settings.nodes, &[settings.need()])?;
    let region = Region::new(settings.region, &settings.nodes, settings.far_percent)?;
    let walk = chase::run(&region, settings.length);
    latency_result(&region, &settings.nodes, &walk)
}

/// Measures bandwidth. Fails with [`MemError::NoRoom`], [`MemError::NeverStreamed`], and as [`Streams::start`] does.
pub fn bandwidth(settings: &BandwidthSettings) -> Result<BandwidthResult, MemError> {
    room::check(&MemoryHost::machine(), &settings.nodes, &[settings.need()])?;
    let streams = Streams::start(settings, 0)?;
    std::thread::sleep(settings.length / WARM_UP_PARTS);
    let (bytes, start) = (streams.bytes(), Instant::now());
    std::thread::sleep(settings.length);
    bandwidth_result(settings, &streams, bytes, start)
}

/// Measures latency while others stream, each on cores of its own where there are enough. Fails as [`latency`] and
/// [`bandwidth`] do.
pub fn together(
    victim: &LatencySettings,
    disturber: &BandwidthSettings,
) -> Result<(LatencyResult, BandwidthResult), MemError> {
    let needs = [victim.need(), disturber.need()];
    room::check(&MemoryHost::machine(), &victim.nodes, &needs)?;
    let region = Region::new(victim.region, &victim.nodes, victim.far_percent)?;
    let streams = Streams::start(disturber, 1)?;
    std::thread::sleep(victim.length / WARM_UP_PARTS);
    let (bytes, start) = (streams.bytes(), Instant::now());
    let walk = chase::run(&region, victim.length);
    let disturbed = bandwidth_result(disturber, &streams, bytes, start)?;
    drop(streams);
    Ok((latency_result(&region, &victim.nodes, &walk)?, disturbed))
}

fn bandwidth_result(
    settings: &BandwidthSettings,
    streams: &Streams,
    bytes: u64,
    start: Instant,
) -> Result<BandwidthResult, MemError> {
    let read = streams.bytes() - bytes;
    let seconds = start.elapsed().as_secs_f64();
    if read == 0 && settings.rate > 0 {
        return Err(MemError::NeverStreamed { seconds });
    }
    Ok(BandwidthResult {
        cores: settings.cores,
        region_bytes: settings.region.get(),
        far_percent: streams.far_percent(),
        bandwidth_bytes_per_s: read as f64 / seconds.max(f64::MIN_POSITIVE),
        length_s: seconds,
    })
}

fn latency_result(region: &Region, nodes: &Nodes, walk: &Walk) -> Result<LatencyResult, MemError> {
    let histogram = &walk.samples;
    if histogram.count() == 0 {
        return Err(MemError::NeverRan {
            samples: walk.interrupted,
        });
    }
    let cached = Region::new(CACHED, &Nodes::default(), 0)?;
    let overhead = chase::run(&cached, OVERHEAD_LENGTH);
    let quantile = |q: f64| histogram.quantile(q).unwrap_or(0) as f64 / 1_000.0;
    Ok(LatencyResult {
        region_bytes: region.size().get(),
        far_percent: region.far_percent(nodes),
        accesses: histogram.count() * u64::from(chase::PER_SAMPLE),
        interrupted_samples: walk.interrupted,
        mean_ns: histogram.mean().unwrap_or(0.0) / 1_000.0,
        p50_ns: quantile(0.5),
        p90_ns: quantile(0.9),
        p99_ns: quantile(0.99),
        accesses_per_sample: chase::PER_SAMPLE,
        loop_ns: overhead.samples.quantile(0.5).unwrap_or(0) as f64 / 1_000.0,
        histogram: buckets(histogram),
    })
}

/// Samples by latency, rounded up to two digits: some dozens of rows.
fn buckets(histogram: &Histogram) -> Vec<Bucket> {
    let mut buckets: Vec<Bucket> = Vec::new();
    for (picoseconds, samples) in histogram.counts() {
        let mut unit = 100;
        while picoseconds > unit * 100 {
            unit *= 10;
        }
        let latency_ns = (picoseconds.div_ceil(unit) * unit) as f64 / 1_000.0;
        match buckets.last_mut() {
            Some(last) if last.latency_ns == latency_ns => last.samples += samples,
            _ => buckets.push(Bucket {
                latency_ns,
                samples,
            }),
        }
    }
    buckets
}

/// A tenth of the time is for threads to start.
const WARM_UP_PARTS: u32 = 10;
/// Fits into every first-level cache.
const CACHED: Bytes = Bytes::from_kib(4);
const OVERHEAD_LENGTH: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_reports_what_it_accessed() {
        let settings = LatencySettings {
            region: Bytes::from_mib(1),
            // Many turns of a busy machine's processor.
            length: Duration::from_millis(200),
            ..LatencySettings::default()
        };
        let result = latency(&settings).unwrap();
        let samples: u64 = result.histogram.iter().map(|bucket| bucket.samples).sum();
        assert_eq!(result.accesses, samples * 64);
        assert!(result.mean_ns > 0.0 && result.p50_ns <= result.p99_ns);
        assert_eq!(result.region_bytes, 1 << 20);
    }

    #[test]
    fn buckets_have_two_digits_and_lose_nothing() {
        let mut histogram = Histogram::new();
        for picoseconds in [900, 98_300, 98_400, 99_100, 1_234_567] {
            histogram.record(picoseconds);
        }
        let rows: Vec<(f64, u64)> = buckets(&histogram)
            .iter()
            .map(|bucket| (bucket.latency_ns, bucket.samples))
            .collect();
        assert_eq!(rows, [(0.9, 1), (99.0, 2), (100.0, 1), (1_300.0, 1)]);
    }

    #[test]
    fn both_run_at_once() {
        let victim = LatencySettings {
            region: Bytes::from_mib(1),
            // Beside programs of a higher priority a thread may wait for a processor for half a second.
            length: Duration::from_secs(3),
            ..LatencySettings::default()
        };
        let disturber = BandwidthSettings {
            cores: 1,
            region: Bytes::from_mib(1),
            ..BandwidthSettings::default()
        };
        let (latency, bandwidth) = together(&victim, &disturber).unwrap();
        assert!(latency.accesses > 0);
        assert!(bandwidth.bandwidth_bytes_per_s > 0.0);
        assert_eq!(bandwidth.cores, 1);
    }
}

//! Mercury on one machine without tiers, without privileges and without a service: random accesses keep an objective beside
//! threads that stream.
//!
//! Problem: most machines have no far tier, and their users are not root; they too want to see whether programs disturb each
//! other in memory.
//! Method: three phases of equal length. In the first, LS runs alone in memory that takes a quarter of the last-level cache. In
//! the second, BI streams beside LS on the other processors, takes the cache and loads the memory. In the third, `Mercury`
//! decides every 500 ms for what part of the time BI may stream. The objective is the median latency of the first phase plus a
//! tenth, the paper's bound of interference. Mercury gets as healthy bandwidth the point where a straight line from the first
//! phase to the second crosses the objective. The verdict is about the second half of the third phase.
//!
//! Units: nanoseconds, bytes per second, thousandths of the time. Limits: BI pauses itself, where a service would limit its
//! control group; one tier, so no page moves. Source: Mercury 5.3.1, 5.5.2, 5.5.4.

use super::chase::{self, Walk};
use super::region::Region;
use super::room::{self, Need};
use super::stream::{Streams, processors};
use super::{BandwidthSettings, Nodes};
use crate::error::MemError;
use crate::host::MemoryHost;
use isolane_common_quantities::stats::Histogram;
use isolane_common_quantities::units::{Bytes, Duration, Instant};
use isolane_memory_policy::mercury::{
    AppId, AppSpec, AppView, CPU_ONE, MemoryPolicy, Mercury, MercuryOptions, Objective,
    Observation, Reading, Source, TIERS_MAX, Thresholds, TierView,
};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering};

/// Time between two steps: in a virtual machine medians of 200 ms differ by 5 % without a cause.
const EVERY: Duration = Duration::from_ms(500);
/// Last-level cache of a machine that does not say how large its own is.
const CACHE: Bytes = Bytes::from_mib(32);
/// Memory of LS is this part of the last-level cache, and large enough that it does not fit into the caches of one
/// core.
const CACHE_PARTS: u64 = 4;
const REGION_MIN: Bytes = Bytes::from_mib(2);
/// Latency that counts as interference, over latency alone (mercury 5.5.2).
const DEGRADATION: f64 = 1.1;

const SENSITIVE: AppId = AppId(1);
const STREAM: AppId = AppId(2);

/// What was seen.
#[derive(Clone, Debug, Serialize)]
pub struct Demonstration {
    /// LS alone.
    pub alone: Phase,
    /// LS beside BI.
    pub beside: Phase,
    /// LS beside BI under Mercury: the second half of the phase. None where BI did not disturb LS.
    pub steered: Option<Phase>,
    /// Memory of LS, in bytes.
    pub region_bytes: u64,
    /// Threads of BI.
    pub streams: u32,
    /// Objective of LS: median latency, in nanoseconds.
    pub objective_ns: f64,
    /// The result.
    pub verdict: Verdict,
    /// Every period under Mercury.
    pub steps: Vec<Step>,
}

/// The result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// BI raised the median of LS by less than a tenth: there is nothing to control.
    NoInterference,
    /// Mercury kept the objective.
    Kept,
    /// Mercury did not keep it.
    Missed,
}

/// One phase.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Phase {
    /// Median latency of LS, in nanoseconds per access.
    pub p50_ns: f64,
    /// 99th percentile of its samples.
    pub p99_ns: f64,
    /// Samples.
    pub samples: u64,
    /// Samples that do not count: the thread was taken off its processor.
    pub interrupted_samples: u64,
    /// Part of the time in which LS had its processor and was sampled, in percent: less than about 95 on a busy machine.
    pub ran_percent: f64,
    /// Bandwidth of BI, in bytes per second.
    pub bandwidth_bytes_per_s: f64,
    /// Part of the time in which BI may stream, in thousandths: the mean of the phase.
    pub stream_thousandths: f64,
}

/// One period.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Since Mercury began, in seconds.
    pub at_s: f64,
    /// Median latency of LS in this period, in nanoseconds; none where every sample was interrupted.
    pub p50_ns: Option<f64>,
    /// Bandwidth of BI, in bytes per second.
    pub bandwidth_bytes_per_s: f64,
    /// Part of the time in which BI may stream, in thousandths.
    pub stream_thousandths: u32,
}

/// What [`run`] announces before it begins it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// LS alone.
    Alone,
    /// LS beside BI.
    Beside,
    /// Both under Mercury.
    Steered,
}

/// Runs the three phases, each for `length`; calls `begins` for each. Fails with [`MemError::OneProcessor`],
/// [`MemError::NoRoom`], [`MemError::NeverRan`], or [`MemError::Interrupted`] once `stop` is set.
pub fn run(
    length: std::time::Duration,
    stop: &AtomicBool,
    mut begins: impl FnMut(Part),
) -> Result<Demonstration, MemError> {
    let streams = processors().len().saturating_sub(1);
    if streams == 0 {
        return Err(MemError::OneProcessor);
    }
    let settings = BandwidthSettings {
        cores: u32::try_from(streams).unwrap_or(u32::MAX),
        ..BandwidthSettings::default()
    };
    let host = MemoryHost::machine();
    let size = region(&host);
    let needs = [
        Need {
            bytes: size,
            far_percent: 0,
        },
        settings.need(),
    ];
    room::check(&host, &Nodes::default(), &needs)?;
    let mut stage = Stage {
        region: Region::new(size, &Nodes::default(), 0)?,
        streams: None,
        stop,
    };
    let periods = usize::try_from(length.as_nanos() / u128::from(EVERY.as_ps() / 1_000))
        .unwrap_or(usize::MAX)
        .max(2);
    begins(Part::Alone);
    let alone = stage.phase(periods)?;
    begins(Part::Beside);
    stage.streams = Some(Streams::start(&settings, 1)?);
    let beside = stage.phase(periods)?;
    let mut found = Demonstration {
        objective_ns: alone.p50_ns * DEGRADATION,
        region_bytes: size.get(),
        streams: settings.cores,
        verdict: Verdict::NoInterference,
        steered: None,
        steps: Vec::new(),
        alone,
        beside,
    };
    if found.beside.p50_ns > found.objective_ns {
        begins(Part::Steered);
        stage.steer(periods, &mut found)?;
    }
    Ok(found)
}

/// Memory of LS on this machine.
fn region(host: &MemoryHost) -> Bytes {
    let text = host
        .root
        .text("/sys/devices/system/cpu/cpu0/cache/index3/size");
    let kib = text.and_then(|text| text.trim().strip_suffix('K')?.parse::<u64>().ok());
    let cache = kib.map_or(CACHE.get(), |kib| kib.saturating_mul(1 << 10));
    Bytes::new((cache / CACHE_PARTS).max(REGION_MIN.get()))
}

/// LS, and BI once it has begun.
struct Stage<'a> {
    region: Region,
    streams: Option<Streams>,
    stop: &'a AtomicBool,
}

struct Period {
    walk: Walk,
    bandwidth: f64,
}

impl Stage<'_> {
    /// LS until the next step.
    fn period(&self) -> Result<Period, MemError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(MemError::Interrupted);
        }
        let read = || self.streams.as_ref().map_or(0, Streams::bytes);
        let (before, start) = (read(), std::time::Instant::now());
        let walk = chase::run(
            &self.region,
            std::time::Duration::from_nanos(EVERY.as_ps() / 1_000),
        );
        Ok(Period {
            bandwidth: (read() - before) as f64 / start.elapsed().as_secs_f64(),
            walk,
        })
    }

    /// A phase in which nothing changes; a first period is for threads to start.
    fn phase(&self, periods: usize) -> Result<Phase, MemError> {
        self.period()?;
        let mut sum = Sum::default();
        for _ in 0..periods {
            let rate = self.streams.as_ref().map_or(0, |_| CPU_ONE);
            sum.add(&self.period()?, rate);
        }
        sum.phase()
    }

    /// The phase under Mercury; its second half is what is judged.
    fn steer(&self, periods: usize, found: &mut Demonstration) -> Result<(), MemError> {
        let mut driver = Driver::new(found)?;
        let mut sum = Sum::default();
        for step in 0..periods {
            let period = self.period()?;
            found.steps.push(Step {
                at_s: driver.now.saturating_since(Instant::ZERO).as_secs_f64(),
                p50_ns: median(&period.walk.samples),
                bandwidth_bytes_per_s: period.bandwidth,
                stream_thousandths: driver.rate,
            });
            if step >= periods / 2 {
                sum.add(&period, driver.rate);
            }
            let rate = driver.step(&period);
            if let Some(streams) = &self.streams {
                streams.set_rate(rate);
            }
        }
        let steered = sum.phase()?;
        found.verdict = match steered.p50_ns <= found.objective_ns {
            true => Verdict::Kept,
            false => Verdict::Missed,
        };
        found.steered = Some(steered);
        Ok(())
    }
}

/// Mercury with its two applications.
struct Driver {
    mercury: Mercury,
    now: Instant,
    /// Part of the time in which BI may stream, in thousandths.
    rate: u32,
}

/// Memory that each application holds, and near memory, in Mercury's observation. No page moves, so any amounts serve that
/// leave room.
const HELD: Bytes = Bytes::from_mib(256);
const CAPACITY: Bytes = Bytes::from_mib(1 << 20);

impl Driver {
    fn new(found: &Demonstration) -> Result<Self, MemError> {
        let rise = found.beside.p50_ns - found.alone.p50_ns;
        let healthy = (found.objective_ns - found.alone.p50_ns) / rise.max(f64::MIN_POSITIVE);
        let thresholds = Thresholds {
            local_bandwidth: (found.beside.bandwidth_bytes_per_s * healthy.min(1.0)) as u64,
            hint_faults_per_s: 0.0,
        };
        let mut mercury = Mercury::new(MercuryOptions::new(thresholds, CAPACITY))
            .expect("the defaults are in range");
        let objective = Objective::Latency(Duration::from_ns_f64(found.objective_ns));
        let nothing = Observation {
            tiers: vec![tier()],
            ..Observation::default()
        };
        for spec in [
            spec(SENSITIVE, "random accesses", objective, 2),
            spec(STREAM, "streams", Objective::BestEffort, 1),
        ] {
            mercury.arrive(Instant::ZERO, spec, &nothing);
        }
        while mercury.poll_action().is_some() {}
        Ok(Self {
            mercury,
            now: Instant::ZERO,
            rate: CPU_ONE,
        })
    }

    /// One step of the policy; what part of the time BI may stream from now on.
    fn step(&mut self, period: &Period) -> u32 {
        self.now += EVERY;
        let view = |id, latency, bandwidth| AppView {
            id,
            held: held(),
            latency,
            bandwidth,
            cpu_used: None,
        };
        let latency = period
            .walk
            .samples
            .quantile(0.5)
            .map(|ps| fresh(Duration::from_ps(ps)));
        let seen = Observation {
            tiers: vec![tier()],
            hint_faults_per_s: None,
            apps: vec![
                view(SENSITIVE, latency, None),
                view(STREAM, None, Some(fresh(period.bandwidth as u64))),
            ],
        };
        self.mercury.step(self.now, &seen);
        while self.mercury.poll_action().is_some() {}
        self.rate = self
            .mercury
            .limits(STREAM)
            .map_or(CPU_ONE, |limits| limits.cpu);
        self.rate
    }
}

fn fresh<T>(value: T) -> Reading<T> {
    Reading {
        value,
        age: Duration::ZERO,
        source: Source::Application,
    }
}

/// What each of the two holds: all of it near.
fn held() -> [Bytes; TIERS_MAX] {
    let mut held = [Bytes::ZERO; TIERS_MAX];
    held[0] = HELD;
    held
}

fn tier() -> TierView {
    TierView {
        capacity: CAPACITY,
        used: Bytes::new(HELD.get() * 2),
        bandwidth: None,
    }
}

fn spec(id: AppId, name: &str, objective: Objective, priority: u32) -> AppSpec {
    AppSpec {
        name: name.to_owned(),
        ..AppSpec::new(id, objective, priority, HELD)
    }
}

/// Periods put together.
#[derive(Default)]
struct Sum {
    samples: Histogram,
    interrupted: u64,
    bandwidth: f64,
    rates: f64,
    periods: f64,
}

impl Sum {
    fn add(&mut self, period: &Period, rate: u32) {
        self.samples.merge(&period.walk.samples);
        self.interrupted += period.walk.interrupted;
        self.bandwidth += period.bandwidth;
        self.rates += f64::from(rate);
        self.periods += 1.0;
    }

    /// Length of all samples together.
    fn sampled_ps(&self) -> f64 {
        let accesses = self.samples.count() * u64::from(chase::PER_SAMPLE);
        self.samples.mean().unwrap_or(0.0) * accesses as f64
    }

    fn phase(&self) -> Result<Phase, MemError> {
        let never = || MemError::NeverRan {
            samples: self.interrupted,
        };
        Ok(Phase {
            p50_ns: median(&self.samples).ok_or_else(never)?,
            p99_ns: self.samples.quantile(0.99).unwrap_or(0) as f64 / 1_000.0,
            samples: self.samples.count(),
            interrupted_samples: self.interrupted,
            ran_percent: 100.0 * self.sampled_ps() / (self.periods * EVERY.as_ps() as f64),
            bandwidth_bytes_per_s: self.bandwidth / self.periods,
            stream_thousandths: self.rates / self.periods,
        })
    }
}

fn median(samples: &Histogram) -> Option<f64> {
    samples.quantile(0.5).map(|ps| ps as f64 / 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(p50_ns: f64, bandwidth_bytes_per_s: f64) -> Phase {
        Phase {
            p50_ns,
            p99_ns: p50_ns,
            samples: 1_000,
            interrupted_samples: 0,
            ran_percent: 99.0,
            bandwidth_bytes_per_s,
            stream_thousandths: 1_000.0,
        }
    }

    /// A period of a memory whose latency grows by a straight line with the streams' bandwidth, from 100 ns to `worst`.
    fn period(rate: u32, worst: f64) -> Period {
        let part = f64::from(rate) / 1_000.0;
        let mut samples = Histogram::new();
        samples.record_n(((100.0 + (worst - 100.0) * part) * 1_000.0) as u64, 1_000);
        Period {
            walk: Walk {
                samples,
                interrupted: 0,
            },
            bandwidth: 10e9 * part,
        }
    }

    /// Steps with this memory; how much BI keeps at the end, and the latency then.
    fn steered(worst: f64, steps: usize) -> (u32, f64) {
        let found = Demonstration {
            alone: phase(100.0, 0.0),
            beside: phase(worst, 10e9),
            steered: None,
            region_bytes: 8 << 20,
            streams: 1,
            objective_ns: 110.0,
            verdict: Verdict::NoInterference,
            steps: Vec::new(),
        };
        let mut driver = Driver::new(&found).unwrap();
        for _ in 0..steps {
            let period = period(driver.rate, worst);
            driver.step(&period);
        }
        let last = period(driver.rate, worst).walk.samples;
        (driver.rate, median(&last).unwrap())
    }

    #[test]
    fn mercury_cuts_the_streams_until_the_objective_holds_and_no_further() {
        for worst in [120.0, 150.0, 400.0] {
            let (rate, latency) = steered(worst, 100);
            assert!(latency <= 110.5, "{worst}: {latency} ns at {rate}");
            // The objective leaves this much at most; a third of it is kept at least.
            let most = 10_000.0 / (worst - 100.0);
            assert!(f64::from(rate) > most / 3.0, "{worst}: {rate} of {most}");
        }
    }

    #[test]
    fn random_accesses_take_a_quarter_of_the_last_level_cache() {
        let tree = crate::testing::Tree::two_tiers();
        assert_eq!(region(&tree.host()), Bytes::from_mib(8));
        tree.write("/sys/devices/system/cpu/cpu0/cache/index3/size", "98304K\n");
        assert_eq!(region(&tree.host()), Bytes::from_mib(24));
    }

    #[test]
    fn all_phases_run_here_or_say_why_not() {
        let mut parts = Vec::new();
        let length = std::time::Duration::from_millis(500);
        match run(length, &AtomicBool::new(false), |part| parts.push(part)) {
            Ok(found) => {
                assert!(found.beside.bandwidth_bytes_per_s > 0.0);
                assert_eq!(found.steps.is_empty(), found.steered.is_none());
                assert_eq!(parts.len(), 2 + usize::from(found.steered.is_some()));
            }
            Err(error) => println!("skipped: {error}"),
        }
        let stopped = run(length, &AtomicBool::new(true), |_| ());
        assert!(!matches!(stopped, Ok(_) | Err(MemError::NeverRan { .. })));
    }
}

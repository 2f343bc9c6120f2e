//! Results of the calls of each class.
//!
//! Problem: latencies of millions of calls by the class they ran in, and shares by the requested class. Method:
//! counters and histograms of fixed size per class; nothing is kept per call. Units: picoseconds, bytes, calls. Only
//! calls that began in the measured time count, but goodput is the payload of all calls that ended in it, whenever they
//! began. Limits: quantiles are within 0.05 % ([`isolane_common_quantities::stats::Histogram`]).

use super::objective::Objective;
use super::slab::Call;
use isolane_common_quantities::stats::Histogram;
use isolane_common_quantities::units::{Duration, Instant};
use isolane_network_scenario::model::FabricScenario;
use isolane_study_results::network::{ClassResult, LatencySummary};

#[derive(Clone, Debug)]
struct Class {
    name: String,
    objective: Option<Objective>,
    asked: Asked,
    ran: Ran,
    outstanding: Histogram,
}

/// Calls that requested a class.
#[derive(Clone, Debug, Default)]
struct Asked {
    issued: u64,
    admitted: u64,
    terminated: u64,
    unfinished: u64,
    met: u64,
    bytes: u64,
    done_bytes: u64,
    met_bytes: u64,
}

/// Calls that ran in a class.
#[derive(Clone, Debug, Default)]
struct Ran {
    latency: Histogram,
    per_mtu: Histogram,
    met: u64,
    bytes: u64,
    /// Payload of calls that ended in the measured time.
    window_bytes: u64,
}

/// All classes.
#[derive(Clone, Debug)]
pub(super) struct Record {
    classes: Vec<Class>,
    /// Calls in flight by called host, then class.
    outstanding: Vec<u32>,
}

impl Record {
    /// Nothing yet.
    pub(super) fn new(
        scenario: &FabricScenario,
        objectives: &[Option<Objective>],
        hosts: u32,
    ) -> Self {
        let class = |(index, objective): (usize, &Option<Objective>)| Class {
            name: scenario.classes[index].name.clone(),
            objective: *objective,
            asked: Asked::default(),
            ran: Ran::default(),
            outstanding: Histogram::new(),
        };
        Self {
            classes: objectives.iter().enumerate().map(class).collect(),
            outstanding: vec![0; hosts as usize * objectives.len()],
        }
    }

    /// What `class` promised.
    #[inline]
    pub(super) fn objective(&self, class: u8) -> Option<&Objective> {
        self.classes[class as usize].objective.as_ref()
    }

    #[inline]
    pub(super) fn on_start(&mut self, call: &Call) {
        let row = call.to.0 as usize * self.classes.len();
        if call.measured {
            let counts = &self.outstanding[row..row + self.classes.len()];
            for (class, count) in self.classes.iter_mut().zip(counts) {
                class.outstanding.record(u64::from(*count));
            }
            let asked = &mut self.classes[call.asked as usize].asked;
            asked.issued += 1;
            asked.admitted += u64::from(call.ran == call.asked);
            asked.bytes += call.size;
            self.classes[call.ran as usize].ran.bytes += call.size;
        }
        self.outstanding[row + call.ran as usize] += 1;
    }

    /// A call was acknowledged after `latency`; `in_window` if that is within the measured time.
    #[inline]
    pub(super) fn on_done(
        &mut self,
        call: &Call,
        latency: Duration,
        mtus: u32,
        met: bool,
        in_window: bool,
    ) {
        self.outstanding[call.to.0 as usize * self.classes.len() + call.ran as usize] -= 1;
        let ran = &mut self.classes[call.ran as usize].ran;
        if in_window {
            ran.window_bytes += call.size;
        }
        if !call.measured {
            return;
        }
        ran.latency.record(latency.as_ps());
        ran.per_mtu.record(latency.as_ps() / u64::from(mtus));
        ran.met += u64::from(met);
        let asked = &mut self.classes[call.asked as usize].asked;
        asked.done_bytes += call.size;
        if met && call.ran == call.asked {
            asked.met += 1;
            asked.met_bytes += call.size;
        }
    }

    /// The transport gave a call up.
    pub(super) fn on_terminated(&mut self, call: &Call) {
        self.outstanding[call.to.0 as usize * self.classes.len() + call.ran as usize] -= 1;
        if call.measured {
            self.classes[call.asked as usize].asked.terminated += 1;
        }
    }

    /// A call is open at the end of the run.
    pub(super) fn on_unfinished(&mut self, call: &Call) {
        if call.measured {
            self.classes[call.asked as usize].asked.unfinished += 1;
        }
    }

    /// Payload of completed calls over the payload that arrived.
    pub(super) fn utilisation(&self) -> f64 {
        let asked = self.classes.iter().map(|class| &class.asked);
        let arrived: u64 = asked.clone().map(|asked| asked.bytes).sum();
        let done: u64 = asked.map(|asked| asked.done_bytes).sum();
        share(done, arrived).unwrap_or(1.0)
    }

    /// Per class, over `measured`.
    pub(super) fn results(&self, measured: Duration) -> Vec<ClassResult> {
        let asked: u64 = self.classes.iter().map(|class| class.asked.bytes).sum();
        let one = |class: &Class| class.result(asked, measured);
        self.classes.iter().map(one).collect()
    }
}

impl Class {
    fn result(&self, all_bytes: u64, measured: Duration) -> ClassResult {
        let (asked, ran) = (&self.asked, &self.ran);
        let promised = |part: u64, whole: u64| match self.objective {
            Some(_) => share(part, whole),
            None => None,
        };
        ClassResult {
            name: self.name.clone(),
            issued: asked.issued,
            admitted: asked.admitted,
            downgraded: asked.issued - asked.admitted,
            terminated: asked.terminated,
            unfinished: asked.unfinished,
            asked_share: share(asked.bytes, all_bytes).unwrap_or(0.0),
            ran_share: share(ran.bytes, all_bytes).unwrap_or(0.0),
            admitted_share: share(asked.admitted, asked.issued).unwrap_or(1.0),
            rnl_us: summary_us(&ran.latency),
            rnl_per_mtu_us: summary_us(&ran.per_mtu),
            met_slo_share: promised(asked.met, asked.issued),
            met_slo_bytes_share: promised(asked.met_bytes, asked.bytes),
            ran_met_slo_share: promised(ran.met, ran.latency.count()),
            goodput_gbps: gbps(ran.window_bytes, measured),
            outstanding_p50: self.outstanding.quantile(0.5).unwrap_or(0) as f64,
            outstanding_p99: self.outstanding.quantile(0.99).unwrap_or(0) as f64,
        }
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Gigabits per second.
pub(super) fn gbps(bytes: u64, time: Duration) -> f64 {
    match time.is_zero() {
        true => 0.0,
        false => bytes as f64 * 8_000.0 / time.as_ps() as f64,
    }
}

/// Quantiles of a histogram of picoseconds, in microseconds.
pub(super) fn summary_us(histogram: &Histogram) -> Option<LatencySummary> {
    let summary = histogram.summary()?;
    let us = |ps: u64| ps as f64 / 1e6;
    Some(LatencySummary {
        min: us(summary.min),
        mean: summary.mean / 1e6,
        p50: us(summary.p50),
        p99: us(summary.p99),
        p999: us(summary.p999),
        max: us(summary.max),
        count: summary.count,
    })
}

/// Whether `now` is within the measured time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// Calls that begin before are not measured.
    pub from: Instant,
    /// No call begins after this.
    pub to: Instant,
}

impl Window {
    /// Whether it is.
    #[inline]
    pub(super) fn contains(&self, now: Instant) -> bool {
        self.from <= now && now <= self.to
    }

    /// How long it is.
    pub(super) fn length(&self) -> Duration {
        self.to.saturating_since(self.from)
    }
}

//! Time series of a run: one value per interval, for a bounded number of intervals and names.
//!
//! Problem: convergence is seen over time, and a run may be long and its interval short. Method: sums and one histogram
//! per class, emptied at the end of each interval. An interval that would give more than [`POINTS_MAX`] points is
//! doubled until it does not; the result says which one was used. Pairs have series of their own only up to
//! [`PAIRS_MAX`] pairs, and queues only at the ports to hosts that are called, up to [`QUEUES_MAX`]. Units:
//! microseconds, gigabits per second, bytes, probabilities. Values: `rnl_p99_us/CLASS` and `rnl_p999_us/CLASS` of calls
//! that ended in the interval and ran in the class, `goodput_gbps/CLASS`, `ran_share/CLASS` of the payload that began,
//! `admit/CLASS` the mean admit probability met by calls that requested the class; with pairs `admit/0->2/CLASS` at the
//! interval's end and `goodput_gbps/0->2/CLASS`.

use super::admission::Admission;
use super::record::gbps;
use super::slab::Call;
use isolane_common_quantities::stats::Histogram;
use isolane_common_quantities::units::{Duration, Instant};
use isolane_network_scenario::model::FabricScenario;
use isolane_study_results::network::FabricSeries;
use std::collections::BTreeMap;

/// Most points of a series.
pub(crate) const POINTS_MAX: u64 = 4_096;
/// Most pairs that have series of their own.
pub(crate) const PAIRS_MAX: usize = 64;
/// Most ports whose queue has a series.
pub(crate) const QUEUES_MAX: usize = 16;

#[derive(Clone, Debug)]
pub(super) struct Series {
    interval: Duration,
    next: Instant,
    end: Instant,
    names: Vec<String>,
    classes: Vec<Interval>,
    pairs: Vec<(String, u64)>,
    values: BTreeMap<String, Vec<Option<f64>>>,
    points: usize,
}

/// One class in the running interval.
#[derive(Clone, Debug, Default)]
struct Interval {
    latency: Histogram,
    done_bytes: u64,
    began_bytes: u64,
    probability: f64,
    decisions: u64,
}

impl Series {
    /// The series of `scenario`, if it has one.
    pub(super) fn new(
        scenario: &FabricScenario,
        pairs: &[(u16, u16)],
        end: Instant,
    ) -> Option<Self> {
        let mut interval = scenario
            .sample_interval
            .filter(|interval| !interval.is_zero())?;
        while end.as_ps() / interval.as_ps() > POINTS_MAX {
            interval = interval + interval;
        }
        let names: Vec<String> = scenario
            .classes
            .iter()
            .map(|one| one.name.clone())
            .collect();
        let shown = scenario.per_pair && pairs.len() <= PAIRS_MAX;
        let named = pairs.iter().filter(|_| shown);
        let pairs: Vec<(String, u64)> = named
            .flat_map(|(from, to)| {
                names
                    .iter()
                    .map(move |name| (format!("{from}->{to}/{name}"), 0))
            })
            .collect();
        Some(Self {
            next: Instant::ZERO + interval,
            interval,
            end,
            classes: vec![Interval::default(); names.len()],
            names,
            pairs,
            values: BTreeMap::new(),
            points: 0,
        })
    }

    /// When the running interval ends; `None` when there is no more.
    pub(super) fn next_tick(&self) -> Option<Instant> {
        (self.next <= self.end).then_some(self.next)
    }

    pub(super) fn on_start(&mut self, call: &Call, probability: Option<f64>) {
        self.classes[call.ran as usize].began_bytes += call.size;
        if let Some(probability) = probability {
            let asked = &mut self.classes[call.asked as usize];
            asked.probability += probability;
            asked.decisions += 1;
        }
    }

    /// A call was acknowledged.
    pub(super) fn on_done(&mut self, call: &Call, latency: Duration) {
        let class = &mut self.classes[call.ran as usize];
        class.latency.record(latency.as_ps());
        class.done_bytes += call.size;
        let classes = self.names.len();
        if let Some(pair) = self
            .pairs
            .get_mut(call.pair as usize * classes + call.ran as usize)
        {
            pair.1 += call.size;
        }
    }

    /// The running interval ends; `queues` are names and bytes of ports.
    pub(super) fn on_tick(&mut self, admission: Option<&Admission>, queues: &[(String, u64)]) {
        let (interval, points) = (self.interval, self.points);
        let values = &mut self.values;
        let mut put = |name: String, value: Option<f64>| {
            let list = values.entry(name).or_default();
            list.resize(points, None);
            list.push(value);
        };
        let began: u64 = self.classes.iter().map(|class| class.began_bytes).sum();
        for (name, class) in self.names.iter().zip(&mut self.classes) {
            let us = |q| class.latency.quantile(q).map(|ps| ps as f64 / 1e6);
            put(format!("rnl_p99_us/{name}"), us(0.99));
            put(format!("rnl_p999_us/{name}"), us(0.999));
            put(
                format!("goodput_gbps/{name}"),
                Some(gbps(class.done_bytes, interval)),
            );
            let share = (began > 0).then(|| class.began_bytes as f64 / began as f64);
            put(format!("ran_share/{name}"), share);
            if class.decisions > 0 {
                let mean = class.probability / class.decisions as f64;
                put(format!("admit/{name}"), Some(mean));
            }
            class.latency.clear();
            *class = Interval {
                latency: std::mem::take(&mut class.latency),
                ..Interval::default()
            };
        }
        let classes = self.names.len();
        for (index, (name, bytes)) in self.pairs.iter_mut().enumerate() {
            put(
                format!("goodput_gbps/{name}"),
                Some(gbps(std::mem::take(bytes), interval)),
            );
            let probability = |admission: &Admission| {
                admission.probability((index / classes) as u32, (index % classes) as u8)
            };
            if let Some(probability) = admission.and_then(probability) {
                put(format!("admit/{name}"), Some(probability));
            }
        }
        for (name, bytes) in queues {
            put(format!("queue_bytes/{name}"), Some(*bytes as f64));
        }
        self.points += 1;
        self.next += interval;
    }

    pub(super) fn result(&self) -> FabricSeries {
        let mut values = self.values.clone();
        for list in values.values_mut() {
            list.resize(self.points, None);
        }
        FabricSeries {
            interval_us: self.interval.as_us_f64(),
            values,
        }
    }
}

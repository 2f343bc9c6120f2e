//! The counters of an end: window, series, latencies.
//!
//! Units: nanoseconds since the start of the run, bytes, messages. Method: every event is counted into a point of the
//! series; events within the window are also counted into the totals and the histogram. A passive end does not know the
//! window while it runs; its totals are the sum of the points wholly inside the window that it receives at the end.

use crate::worker::{EndReport, LatencyNs, Sample, Warmup, Window, limits};
use isolane_common_quantities::stats::Histogram;
use std::collections::BTreeMap;

/// Counters of one end.
#[derive(Debug)]
pub(crate) struct Meter {
    interval_ns: u64,
    duration_ns: u64,
    /// Start of the window; the largest time until the warm-up is over.
    from_ns: u64,
    detector: Option<Detector>,
    /// Whether the rate was steady when the window began.
    pub(crate) steady: bool,
    histogram: Histogram,
    point: Histogram,
    point_index: usize,
    series: Vec<Sample>,
    /// All counted events and their bytes.
    events: u64,
    bytes: u64,
    totals: EndReport,
}

impl Meter {
    pub(crate) fn new(
        warmup: Warmup,
        duration_ns: u64,
        interval_ns: u64,
        queue_pairs: usize,
    ) -> Self {
        let (from_ns, detector) = match warmup {
            Warmup::Fixed { ns } => (ns, None),
            Warmup::Steady { max_ns } => (u64::MAX, Some(Detector::new(max_ns))),
        };
        Self {
            interval_ns,
            duration_ns,
            from_ns,
            detector,
            steady: true,
            histogram: Histogram::new(),
            point: Histogram::new(),
            point_index: 0,
            series: Vec::new(),
            events: 0,
            bytes: 0,
            totals: EndReport {
                queue_pair_bytes: vec![0; queue_pairs],
                ..EndReport::default()
            },
        }
    }

    /// Records whether the device itself keeps the end's rate.
    pub(crate) fn paced_by_device(&mut self, is: bool) {
        self.totals.paced_by_device = is;
    }

    /// End of measuring; the largest time during the warm-up.
    pub(crate) fn end_ns(&self) -> u64 {
        self.from_ns.saturating_add(self.duration_ns)
    }

    fn in_window(&self, now_ns: u64) -> bool {
        now_ns >= self.from_ns && now_ns < self.end_ns()
    }

    /// Counts a completed own message of `queue_pair`.
    pub(crate) fn posted(&mut self, now_ns: u64, queue_pair: usize, bytes: u64, latency_ns: u64) {
        self.totals.posted_messages_total += 1;
        self.count(bytes);
        let sample = self.sample(now_ns);
        sample.posted_messages += 1;
        sample.posted_bytes += bytes;
        self.point.record(latency_ns);
        if self.in_window(now_ns) {
            self.totals.posted_messages += 1;
            self.totals.posted_bytes += bytes;
            self.totals.queue_pair_bytes[queue_pair] += bytes;
            self.histogram.record(latency_ns);
        }
    }

    /// Counts a received message.
    pub(crate) fn received(&mut self, now_ns: u64, bytes: u64) {
        self.totals.received_messages_total += 1;
        self.count(bytes);
        let sample = self.sample(now_ns);
        sample.received_messages += 1;
        sample.received_bytes += bytes;
        if self.in_window(now_ns) {
            self.totals.received_messages += 1;
            self.totals.received_bytes += bytes;
        }
    }

    /// Counts a completed control verb.
    pub(crate) fn control(&mut self, now_ns: u64, latency_ns: u64) {
        self.count(0);
        self.sample(now_ns).control_verbs += 1;
        self.point.record(latency_ns);
        if self.in_window(now_ns) {
            self.totals.control_verbs += 1;
            self.histogram.record(latency_ns);
        }
    }

    /// Counts an intended failure.
    pub(crate) fn fault(&mut self, now_ns: u64, latency_ns: u64) {
        self.count(0);
        self.sample(now_ns).control_verbs += 1;
        if self.in_window(now_ns) {
            self.totals.faults += 1;
            self.histogram.record(latency_ns);
        }
    }

    /// Counts an unexpected error completion.
    pub(crate) fn error(&mut self, status: &str) {
        *self.totals.errors.entry(status.to_owned()).or_default() += 1;
    }

    /// Counts compared bytes.
    pub(crate) fn checked(&mut self, bytes: u64, wrong: u64) {
        self.totals.checked_bytes += bytes;
        self.totals.wrong_bytes += wrong;
    }

    /// Events and bytes so far, in both directions.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.events, self.bytes)
    }

    fn count(&mut self, bytes: u64) {
        self.events += 1;
        self.bytes += bytes;
    }

    /// Checks at `now_ns` whether the warm-up is over.
    pub(crate) fn tick(&mut self, now_ns: u64) {
        let Some(detector) = &mut self.detector else {
            return;
        };
        if let Some(steady) = detector.tick(now_ns, self.events) {
            self.from_ns = now_ns;
            self.steady = steady;
            self.detector = None;
        }
    }

    fn sample(&mut self, now_ns: u64) -> &mut Sample {
        let index = (now_ns / self.interval_ns).min(limits::SAMPLES * 2) as usize;
        if index != self.point_index {
            self.close_point();
            self.point_index = index;
        }
        if self.series.len() <= index {
            self.series.resize(index + 1, Sample::default());
        }
        &mut self.series[index]
    }

    fn close_point(&mut self) {
        if let (Some(p99), Some(sample)) = (
            self.point.quantile(0.99),
            self.series.get_mut(self.point_index),
        ) {
            sample.p99_ns = p99;
        }
        self.point.clear();
    }

    /// Returns the figures. `posted_window` is the posting side's window, for an end without a window of its own.
    pub(crate) fn report(&mut self, now_ns: u64, posted_window: Option<Window>) -> Counted {
        self.close_point();
        let mut totals = self.totals.clone();
        totals.window = Window {
            from_ns: self.from_ns.min(now_ns),
            to_ns: self.end_ns().min(now_ns),
        };
        if let Some(window) = posted_window {
            let inside = |index: &usize| {
                let from = *index as u64 * self.interval_ns;
                from >= window.from_ns && from + self.interval_ns <= window.to_ns
            };
            let points: Vec<usize> = (0..self.series.len()).filter(inside).collect();
            if let (Some(first), Some(last)) = (points.first(), points.last()) {
                totals.window = Window {
                    from_ns: *first as u64 * self.interval_ns,
                    to_ns: (*last as u64 + 1) * self.interval_ns,
                };
                let sum = |field: fn(&Sample) -> u64| {
                    self.series[*first..=*last].iter().map(field).sum::<u64>()
                };
                totals.received_messages = sum(|sample| sample.received_messages);
                totals.received_bytes = sum(|sample| sample.received_bytes);
            }
        }
        totals.latency = LatencyNs::of(&self.histogram);
        Counted {
            report: totals,
            series: self.series.clone(),
            histogram: self.histogram.clone(),
            steady: self.steady,
        }
    }
}

/// Receives what an end has counted.
pub(crate) type Deliver<'a> = &'a mut dyn FnMut(Counted);

/// The figures of an end, for the worker's report.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    pub(crate) report: EndReport,
    pub(crate) series: Vec<Sample>,
    pub(crate) histogram: Histogram,
    pub(crate) steady: bool,
}

impl Counted {
    /// Adds another thread of the same end.
    pub(crate) fn merge(&mut self, other: Self) {
        let (mine, others) = (&mut self.report, other.report);
        mine.posted_messages += others.posted_messages;
        mine.posted_bytes += others.posted_bytes;
        mine.control_verbs += others.control_verbs;
        mine.faults += others.faults;
        merge_counts(&mut mine.errors, others.errors);
        if self.series.len() < other.series.len() {
            self.series.resize(other.series.len(), Sample::default());
        }
        for (sample, other) in self.series.iter_mut().zip(&other.series) {
            sample.add(other);
        }
        self.histogram.merge(&other.histogram);
        self.steady &= other.steady;
        self.report.latency = LatencyNs::of(&self.histogram);
    }
}

fn merge_counts(counts: &mut BTreeMap<String, u64>, others: BTreeMap<String, u64>) {
    for (name, count) in others {
        *counts.entry(name).or_default() += count;
    }
}

/// Detects a steady rate.
///
/// The longest warm-up is divided into [`Detector::STEPS`] steps. The rate is steady when each of the last
/// [`Detector::SAME`] steps counted within a tenth of their mean, and at least a few events each.
#[derive(Debug)]
struct Detector {
    max_ns: u64,
    step_ns: u64,
    next_ns: u64,
    counted: u64,
    steps: Vec<u64>,
}

impl Detector {
    const STEPS: u64 = 20;
    const SAME: usize = 4;
    /// Steps with fewer events are too noisy to compare.
    const FEW: u64 = 20;

    fn new(max_ns: u64) -> Self {
        let step_ns = (max_ns / Self::STEPS).max(1);
        Self {
            max_ns,
            step_ns,
            next_ns: step_ns,
            counted: 0,
            steps: Vec::new(),
        }
    }

    /// Returns `Some` when the warm-up is over: whether the rate is steady.
    fn tick(&mut self, now_ns: u64, counted: u64) -> Option<bool> {
        if now_ns < self.next_ns {
            return None;
        }
        self.steps.push(counted - self.counted);
        self.counted = counted;
        // The thread slept through a step, so its rate is not comparable: start again.
        if now_ns >= self.next_ns + self.step_ns {
            self.steps.clear();
        }
        self.next_ns = now_ns + self.step_ns;
        if is_steady(&self.steps) {
            return Some(true);
        }
        (now_ns >= self.max_ns).then_some(false)
    }
}

fn is_steady(steps: &[u64]) -> bool {
    let Some(last) = steps.len().checked_sub(Detector::SAME) else {
        return false;
    };
    let last = &steps[last..];
    let sum: u64 = last.iter().sum();
    // Each within a tenth of the mean, in integers: |10 * n * step - 10 * sum| <= sum.
    let count = Detector::SAME as u64;
    last.iter()
        .all(|&step| step >= Detector::FEW && (10 * count * step).abs_diff(10 * sum) <= sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_steps_are_steady_and_growing_ones_are_not() {
        assert!(is_steady(&[1, 100, 105, 98, 100]));
        assert!(!is_steady(&[100, 130, 160, 190]));
        assert!(!is_steady(&[100, 100, 100]), "too few steps");
        assert!(!is_steady(&[2, 2, 2, 2]), "too few messages");
    }

    #[test]
    fn the_longest_warm_up_ends_it_unsteady() {
        let mut detector = Detector::new(2_000);
        let over = (1..=20).map(|step| detector.tick(step * 100, 1_000 << step));
        let over: Vec<_> = over.flatten().collect();
        assert_eq!(over, [false]);
    }

    #[test]
    fn only_the_window_counts_but_the_series_has_everything() {
        let mut meter = Meter::new(Warmup::Fixed { ns: 100 }, 100, 10, 1);
        for now in [50, 100, 150, 199, 200] {
            meter.posted(now, 0, 8, 5);
        }
        let counted = meter.report(250, None);
        assert_eq!(counted.report.posted_messages, 3);
        assert_eq!(counted.report.posted_messages_total, 5);
        assert_eq!(
            counted.report.window,
            Window {
                from_ns: 100,
                to_ns: 200
            }
        );
        let sum: u64 = counted
            .series
            .iter()
            .map(|sample| sample.posted_messages)
            .sum();
        assert_eq!(sum, 5);
    }

    #[test]
    fn a_passive_end_counts_the_points_inside_the_window_it_receives() {
        let mut meter = Meter::new(Warmup::Fixed { ns: 0 }, u64::MAX, 10, 1);
        for now in 0..100 {
            meter.received(now, 1);
        }
        let posted_window = Window {
            from_ns: 15,
            to_ns: 55,
        };
        let report = meter.report(100, Some(posted_window)).report;
        assert_eq!(
            report.window,
            Window {
                from_ns: 20,
                to_ns: 50
            }
        );
        assert_eq!(report.received_bytes, 30);
    }
}

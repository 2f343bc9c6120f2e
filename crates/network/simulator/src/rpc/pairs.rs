//! Results of the calls of each pair of hosts and class, for scenarios with `per_pair`.
//!
//! Problem: fairness between callers needs figures per pair, and a thousand pairs cannot each have a large histogram.
//! Method: latencies in 64 steps per doubling, grown to the largest one seen; admit probabilities in 1,024 steps,
//! sampled at each call's start.
//! Units: picoseconds, bytes; probabilities 0 to 1.
//! Limits: quantiles of latencies are within 0.8 %, of probabilities within 0.001. About 12 KB per pair and class.

use super::record::gbps;
use super::slab::Call;
use isolane_common_quantities::units::Duration;
use isolane_study_results::network::{LatencySummary, PairResult, ProbabilitySummary};

#[derive(Clone, Debug, Default)]
struct Cell {
    issued: u64,
    admitted: u64,
    window_bytes: u64,
    latency: Steps,
    probability: Vec<u32>,
    lowest: f64,
    sum: f64,
    last: f64,
}

#[derive(Clone, Debug)]
pub(super) struct Pairs {
    cells: Vec<Cell>,
    classes: usize,
}

impl Pairs {
    /// Nothing yet.
    pub(super) fn new(pairs: usize, classes: usize) -> Self {
        Self {
            cells: vec![Cell::default(); pairs * classes],
            classes,
        }
    }

    /// A call begins that counts; `probability` is that of its pair and its requested class.
    pub(super) fn on_start(&mut self, call: &Call, probability: Option<f64>) {
        let cell = &mut self.cells[call.pair as usize * self.classes + call.asked as usize];
        cell.issued += 1;
        cell.admitted += u64::from(call.asked == call.ran);
        let Some(probability) = probability else {
            return;
        };
        if cell.probability.is_empty() {
            cell.probability = vec![0; PROBABILITY_STEPS + 1];
            cell.lowest = probability;
        }
        cell.probability[(probability * PROBABILITY_STEPS as f64) as usize] += 1;
        cell.lowest = cell.lowest.min(probability);
        cell.sum += probability;
        cell.last = probability;
    }

    /// A call was acknowledged.
    pub(super) fn on_done(&mut self, call: &Call, latency: Duration, in_window: bool) {
        let cell = &mut self.cells[call.pair as usize * self.classes + call.ran as usize];
        if in_window {
            cell.window_bytes += call.size;
        }
        if call.measured {
            cell.latency.record(latency.as_ps());
        }
    }

    /// Of every pair and class that was used.
    pub(super) fn results(
        &self,
        pairs: &[(u16, u16)],
        names: &[String],
        measured: Duration,
    ) -> Vec<PairResult> {
        let used = |(_, cell): &(usize, &Cell)| cell.issued > 0 || cell.latency.count > 0;
        let result = |(index, cell): (usize, &Cell)| {
            let (from, to) = pairs[index / self.classes];
            PairResult {
                from: u32::from(from),
                to: u32::from(to),
                class: names[index % self.classes].clone(),
                issued: cell.issued,
                admitted: cell.admitted,
                goodput_gbps: gbps(cell.window_bytes, measured),
                rnl_us: cell.latency.summary_us(),
                admit_probability: cell.probability(),
            }
        };
        let cells = self.cells.iter().enumerate();
        cells.filter(used).map(result).collect()
    }
}

impl Cell {
    fn probability(&self) -> Option<ProbabilitySummary> {
        let count: u64 = self.probability.iter().map(|count| u64::from(*count)).sum();
        let rank = count.div_ceil(100);
        let mut seen = 0;
        let step = self.probability.iter().position(|count| {
            seen += u64::from(*count);
            seen >= rank
        })?;
        Some(ProbabilitySummary {
            min: self.lowest,
            p01: (step as f64 / PROBABILITY_STEPS as f64).max(self.lowest),
            mean: self.sum / count as f64,
            last: self.last,
        })
    }
}

const PROBABILITY_STEPS: usize = 1_024;
/// Bits of a latency's nanoseconds that distinguish steps: 64 steps per doubling.
const STEP_BITS: u32 = 6;

/// A coarse histogram that grows with the largest value.
#[derive(Clone, Debug, Default)]
struct Steps {
    counts: Vec<u32>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Steps {
    fn record(&mut self, ps: u64) {
        let step = step_of(ps);
        if self.counts.len() <= step {
            self.counts.resize(step + 1, 0);
        }
        self.counts[step] += 1;
        self.min = if self.count == 0 {
            ps
        } else {
            self.min.min(ps)
        };
        self.max = self.max.max(ps);
        self.count += 1;
        self.sum += u128::from(ps);
    }

    fn quantile(&self, q: f64) -> u64 {
        let rank = ((q * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        let step = self.counts.iter().position(|count| {
            seen += u64::from(*count);
            seen >= rank
        });
        step.map_or(0, middle_of).clamp(self.min, self.max)
    }

    fn summary_us(&self) -> Option<LatencySummary> {
        let us = |ps: u64| ps as f64 / 1e6;
        (self.count > 0).then(|| LatencySummary {
            min: us(self.min),
            mean: self.sum as f64 / self.count as f64 / 1e6,
            p50: us(self.quantile(0.5)),
            p99: us(self.quantile(0.99)),
            p999: us(self.quantile(0.999)),
            max: us(self.max),
            count: self.count,
        })
    }
}

/// Steps are of nanoseconds (1,024 ps), whose first 64 have a step each.
fn step_of(ps: u64) -> usize {
    let ns = ps >> 10;
    let shift = (64 - STEP_BITS - 1).saturating_sub((ns | 1).leading_zeros());
    let shift = if ns < 1 << STEP_BITS { 0 } else { shift };
    ((shift as usize) << STEP_BITS) + (ns >> shift) as usize
}

fn middle_of(step: usize) -> u64 {
    let whole = 1usize << STEP_BITS;
    if step < 2 * whole {
        return ((step as u64) << 10) + 512;
    }
    let shift = step / whole - 1;
    let low = ((step - shift * whole) as u64) << shift;
    (low << 10) + (1 << (shift + 9))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_step_holds_its_middle_and_is_narrow(ps in 0u64..1 << 50) {
            let middle = middle_of(step_of(ps));
            prop_assert_eq!(step_of(middle), step_of(ps));
            prop_assert!(middle.abs_diff(ps) <= 512 + ps / 128, "{} {}", ps, middle);
        }

        #[test]
        fn steps_rise_with_the_value(ps in 0u64..1 << 50, more in 0u64..1 << 40) {
            prop_assert!(step_of(ps) <= step_of(ps + more));
        }
    }
}

//! Bayesian optimisation of one counter at a time.
//!
//! Method: a Gaussian process through the latest samples of the current counter; of some hundred candidates (random
//! points and neighbours of the best) the one with the largest expected improvement is next. A batch takes several,
//! each assumed to give what the process expects before the next is chosen. Numbers enter on a logarithmic scale from 0
//! to 1, choices as one input per value. Limits: the latest 120 samples count, which bounds the cubic cost. Source:
//! collie 3.7.2 compares with it and gives no settings; it names sudden changes between choices as the cause of its
//! failure.

use super::gaussian::Gaussian;
use super::{Ground, Observed, Searcher};
use crate::counters::Counter;
use crate::experiment::Measured;
use crate::space::{Allowed, Point, Space};
use isolane_common_quantities::rng::Stream;

/// Samples that count.
const WINDOW: usize = 120;
/// Points per proposal.
const BATCH: usize = 4;
/// Random points before the first model.
const FIRST: usize = 12;
/// Random candidates, and neighbours of the best.
const CANDIDATES: [usize; 2] = [160, 40];
/// Lengths of the covariance to choose from; inputs span 0 to 1 in some twenty dimensions.
const LENGTHS: [f64; 4] = [0.5, 1.0, 2.0, 4.0];

/// See the module.
pub struct Bayes {
    stream: Stream,
    samples: Vec<(Point, Measured)>,
    experiments: usize,
}

impl Bayes {
    /// With the stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            stream: Stream::named(seed, "hunt/bayes"),
            samples: Vec::new(),
            experiments: 0,
        }
    }

    fn candidates(&mut self, ground: &Ground<'_>, best: &Point) -> Vec<Point> {
        let [random, near] = CANDIDATES;
        let drawn: Vec<Point> = (0..random)
            .map_while(|_| ground.draw(&mut self.stream))
            .collect();
        let mutated = (0..near).filter_map(|_| ground.space.mutate(best, &mut self.stream).ok());
        let mutated: Vec<Point> = mutated.filter(|point| ground.is_fresh(point)).collect();
        drawn.into_iter().chain(mutated).collect()
    }

    fn model_batch(&mut self, ground: &Ground<'_>, counter: &Counter) -> Vec<Point> {
        let recent = &self.samples[self.samples.len().saturating_sub(WINDOW)..];
        let mut inputs: Vec<Vec<f64>> = recent
            .iter()
            .map(|(p, _)| encode(ground.space, p))
            .collect();
        let mut values: Vec<f64> = recent.iter().map(|(_, m)| counter.score(m)).collect();
        let best = values.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        let best_point = best.map(|(index, _)| recent[index].0.clone());
        let Some(best_point) = best_point else {
            return Vec::new();
        };
        let candidates = self.candidates(ground, &best_point);
        let encoded: Vec<Vec<f64>> = candidates.iter().map(|p| encode(ground.space, p)).collect();
        let mut left: Vec<usize> = (0..candidates.len()).collect();
        let Some(mut process) = Gaussian::fit_best(&inputs, &values, &LENGTHS) else {
            return Vec::new();
        };
        let mut batch = Vec::new();
        while batch.len() < BATCH && !left.is_empty() {
            let most = values.iter().copied().fold(f64::MIN, f64::max);
            let worth = |&index: &usize| process.guess(&encoded[index]).expected_improvement(most);
            let worths: Vec<f64> = left.iter().map(worth).collect();
            let place = (0..left.len()).max_by(|&a, &b| worths[a].total_cmp(&worths[b]));
            let next = left.swap_remove(place.expect("some candidate is left"));
            inputs.push(encoded[next].clone());
            values.push(process.guess(&encoded[next]).mean);
            batch.push(candidates[next].clone());
            match Gaussian::fit(&inputs, &values, process.length()) {
                Some(with_guess) => process = with_guess,
                None => break,
            }
        }
        batch
    }
}

impl Searcher for Bayes {
    fn propose(&mut self, ground: &Ground<'_>) -> Vec<Point> {
        let counter = ground.counter_after(self.experiments);
        let batch = match counter {
            Some(counter) if self.samples.len() >= FIRST => self.model_batch(ground, counter),
            _ => Vec::new(),
        };
        match batch.is_empty() {
            true => (0..BATCH)
                .map_while(|_| ground.draw(&mut self.stream))
                .collect(),
            false => batch,
        }
    }

    fn observe(&mut self, _: &Ground<'_>, observed: &[Observed]) {
        self.experiments += observed.len();
        let seen = observed
            .iter()
            .map(|seen| (seen.point.clone(), seen.measured.clone()));
        self.samples.extend(seen);
    }
}

/// A point as inputs from 0 to 1.
fn encode(space: &Space, point: &Point) -> Vec<f64> {
    let mut inputs = Vec::new();
    for &feature in space.features() {
        let value = feature.of(point);
        match (feature.names(), space.allowed(feature)) {
            (Some(names), _) => {
                inputs.extend(
                    (0..names.len() as u64).map(|index| f64::from(u8::from(index == value))),
                );
            }
            (None, _) if !feature.is_active(point) => inputs.push(0.0),
            (None, Allowed::Range(least, most)) => inputs.push(place(value, *least, *most)),
            (None, Allowed::Set(values)) => {
                let ends = (values.first().copied(), values.last().copied());
                inputs.push(place(value, ends.0.unwrap_or(1), ends.1.unwrap_or(1)));
            }
        }
    }
    inputs
}

fn place(value: u64, least: u64, most: u64) -> f64 {
    let log = |value: u64| libm::log2(value.max(1) as f64);
    let span = log(most) - log(least);
    if span > 0.0 {
        (log(value) - log(least)) / span
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::tests::{plain, profile};

    #[test]
    fn inputs_are_between_zero_and_one() {
        let space = Space::of(&profile("cx6-200g-roce"));
        let mut stream = Stream::named(1, "test");
        let length = encode(&space, &plain()).len();
        for _ in 0..200 {
            let inputs = encode(&space, &space.draw(&mut stream).unwrap());
            assert_eq!(inputs.len(), length);
            assert!(
                inputs.iter().all(|input| (0.0..=1.0).contains(input)),
                "{inputs:?}"
            );
        }
    }
}

//! Simulated annealing, algorithm 1 of the paper.
//!
//! A chain holds a point and its counters. It mutates the point; a neighbour inside a known anomaly is skipped and uses
//! up a step; any other is measured. Less energy is taken, more energy with probability exp(-dE / T). After an anomaly
//! the chain goes on at a random point. After n steps T becomes alpha T, and below the least T the chain restarts with
//! the next counter. Limits: the paper gives no values for T, alpha and n; ours let a run last 60 steps and still take
//! a doubling of energy once in some 20,000 steps at its end. Several chains run side by side, so that a batch is worth
//! several cores; they share known anomalies and nothing else, and take every k-th counter. One chain is the paper's.
//! Source: collie algorithm 1. Unlike the public prototype, a chain keeps its old point until the new one has been
//! measured, and heat makes it more tolerant, not less.

use super::{Ground, Observed, Searcher, unit};
use crate::experiment::Measured;
use crate::space::Point;
use isolane_common_quantities::rng::Stream;

/// The temperature schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Temperature at the start, in units of energy: 1 is a doubling.
    pub start: f64,
    /// Least temperature.
    pub least: f64,
    /// What a temperature is multiplied with.
    pub decay: f64,
    /// Steps at each temperature.
    pub steps: u32,
    /// Chains.
    pub chains: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            start: 1.0,
            least: 0.1,
            decay: 0.85,
            steps: 4,
            chains: 4,
        }
    }
}

struct Chain {
    stream: Stream,
    /// Place in the order of counters; counted on for ever.
    counter: usize,
    temperature: f64,
    step: u32,
    current: Option<(Point, Measured)>,
}

/// See the module.
pub struct Anneal {
    settings: Settings,
    chains: Vec<Chain>,
}

impl Anneal {
    /// Chains with streams of `seed`.
    pub fn new(seed: u64, settings: Settings) -> Self {
        let chains = (0..settings.chains.max(1)).map(|index| Chain {
            stream: Stream::indexed(seed, "hunt/anneal", index as u64),
            counter: index,
            temperature: settings.start,
            step: 0,
            current: None,
        });
        Self {
            settings,
            chains: chains.collect(),
        }
    }
}

impl Searcher for Anneal {
    fn propose(&mut self, ground: &Ground<'_>) -> Vec<Point> {
        let (settings, stride) = (self.settings, self.chains.len());
        let chains = self.chains.iter_mut();
        let points: Option<Vec<Point>> = chains
            .map(|chain| chain.next(ground, &settings, stride))
            .collect();
        points.unwrap_or_default()
    }

    fn observe(&mut self, ground: &Ground<'_>, observed: &[Observed]) {
        let (settings, stride) = (self.settings, self.chains.len());
        for (chain, seen) in self.chains.iter_mut().zip(observed) {
            chain.take(ground, seen);
            chain.cool(&settings, stride);
        }
    }
}

impl Chain {
    fn next(&mut self, ground: &Ground<'_>, settings: &Settings, stride: usize) -> Option<Point> {
        while let Some((old, _)) = &self.current {
            let new = ground.space.mutate(old, &mut self.stream).ok()?;
            if ground.is_fresh(&new) {
                return Some(new);
            }
            self.cool(settings, stride);
        }
        ground.draw(&mut self.stream)
    }

    fn take(&mut self, ground: &Ground<'_>, seen: &Observed) {
        if seen.anomalous {
            self.current = None;
            return;
        }
        let accepted = match &self.current {
            None => true,
            Some((_, old)) => {
                let count = ground.counters.len().max(1);
                let counter = ground.counters.get(self.counter % count);
                let energy = counter.map_or(0.0, |counter| counter.energy(old, &seen.measured));
                accepts(energy, self.temperature, unit(&mut self.stream))
            }
        };
        if accepted {
            self.current = Some((seen.point.clone(), seen.measured.clone()));
        }
    }

    /// Ends one step.
    fn cool(&mut self, settings: &Settings, stride: usize) {
        self.step += 1;
        if self.step < settings.steps {
            return;
        }
        self.step = 0;
        self.temperature *= settings.decay;
        if self.temperature <= settings.least {
            self.temperature = settings.start;
            self.counter += stride;
            self.current = None;
        }
    }
}

/// The rule of Metropolis: `luck` is uniform from 0 to below 1.
fn accepts(energy: f64, temperature: f64, luck: f64) -> bool {
    energy < 0.0 || luck < libm::exp(-energy / temperature)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counter;

    fn followed(anneal: &Anneal, counters: &[Counter]) -> Vec<String> {
        let chains = anneal.chains.iter();
        chains
            .map(|chain| counters[chain.counter % counters.len()].name.clone())
            .collect()
    }

    #[test]
    fn worse_points_are_taken_as_often_as_metropolis_says() {
        let mut stream = Stream::named(1, "test");
        for (energy, temperature) in [(0.5f64, 1.0f64), (2.0, 1.0), (0.5, 0.1), (0.0, 0.3)] {
            let taken = (0..100_000)
                .filter(|_| accepts(energy, temperature, unit(&mut stream)))
                .count();
            let expected = (-energy / temperature).exp();
            let share = taken as f64 / 1e5;
            assert!(
                (share - expected).abs() < 0.006,
                "{energy} {temperature}: {share} {expected}"
            );
        }
        assert!(accepts(-0.1, 0.1, 0.999));
        assert!(!accepts(f64::INFINITY, 1.0, 0.0));
    }

    #[test]
    fn heat_makes_it_more_tolerant() {
        let taken = |temperature: f64| {
            let luck = (0..1_000).map(|n| f64::from(n) / 1e3);
            luck.filter(|&luck| accepts(1.0, temperature, luck)).count()
        };
        assert!(taken(1.0) > taken(0.5) && taken(0.5) > taken(0.1));
    }

    #[test]
    fn chains_share_the_counters_in_turn() {
        let counters: Vec<Counter> = ["a", "b", "c"]
            .map(|name| Counter {
                name: name.to_owned(),
                up: true,
            })
            .to_vec();
        let settings = Settings {
            chains: 2,
            ..Settings::default()
        };
        let mut anneal = Anneal::new(1, settings);
        assert_eq!(followed(&anneal, &counters), ["a", "b"]);
        let mut steps = 0;
        while anneal.chains[0].counter == 0 {
            anneal.chains[0].cool(&settings, 2);
            steps += 1;
        }
        assert_eq!((steps, followed(&anneal, &counters)[0].as_str()), (60, "c"));
    }
}

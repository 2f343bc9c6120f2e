//! Where to look next: searchers behind one trait.
//!
//! A searcher proposes a batch of points outside all known anomalies and gets their results. Batch sizes belong to the
//! searcher, never to the machine, and every searcher draws from named streams of its own: the same seed and the same
//! results lead to the same proposals. Source: collie 3.5.1 (annealing), 3.7.2 (its rivals).

mod coverage;
mod effects;

pub mod anneal;
pub mod bayes;
pub mod evolve;
pub mod factors;
pub mod gaussian;
pub mod random;
pub mod screen;

#[cfg(test)]
mod tests;

use crate::counters::Counter;
use crate::experiment::Measured;
use crate::monitor::Judgement;
use crate::region::Region;
use crate::space::{Feature, Point, Space};
use isolane_common_quantities::rng::Stream;

/// Names of the searchers.
pub const NAMES: [&str; 6] = ["anneal", "random", "bayes", "evolve", "screen", "factors"];
/// The stages of `factors` that an ablation may leave out.
pub const STAGES: [&str; 6] = [
    "isolation",
    "coverage",
    "feedback",
    "triage",
    "border",
    "reverts",
];
/// Draws for a point outside all known anomalies before the space counts as searched through.
const DRAWS_MAX: u32 = 2_000;
/// Experiments after which a searcher that follows one counter at a time takes the next: as many as an annealing
/// run lasts.
const PER_COUNTER: usize = 60;

/// What every searcher sees.
pub struct Ground<'a> {
    /// The workloads.
    pub space: &'a Space,
    /// Known anomalies; points inside are skipped.
    pub known: &'a [Region],
    /// Counters in the order in which to follow them.
    pub counters: &'a [Counter],
    /// The simplest workload of each known anomaly.
    pub witnesses: &'a [Point],
}

#[cfg(test)]
impl<'a> Ground<'a> {
    /// A space of which nothing is known.
    fn unknown(space: &'a Space) -> Self {
        Self {
            space,
            known: &[],
            counters: &[],
            witnesses: &[],
        }
    }
}

/// Which stages of `factors` take part; all of them unless an ablation leaves some out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stages {
    /// One factor at a time first.
    pub isolation: bool,
    /// Uniform points show rare pairs of values.
    pub coverage: bool,
    /// Counters and sound workloads with new counter levels are built upon.
    pub feedback: bool,
    /// A finding is held against the known anomalies before it is reduced.
    pub triage: bool,
    /// As a part of that, what is beside a known region may be another anomaly.
    pub border: bool,
    /// A reduction takes back what deviates; without it, it is the one of the other searchers.
    pub reverts: bool,
}

impl Default for Stages {
    fn default() -> Self {
        Self {
            isolation: true,
            coverage: true,
            feedback: true,
            triage: true,
            border: true,
            reverts: true,
        }
    }
}

impl Stages {
    /// All stages but those called `without`.
    pub fn without<'a>(without: impl Iterator<Item = &'a str>) -> Self {
        let mut stages = Self::default();
        for name in without {
            match name {
                "isolation" => stages.isolation = false,
                "coverage" => stages.coverage = false,
                "feedback" => stages.feedback = false,
                "triage" => stages.triage = false,
                "border" => stages.border = false,
                "reverts" => stages.reverts = false,
                _ => {}
            }
        }
        stages
    }
}

/// One experiment that a searcher proposed.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The point.
    pub point: Point,
    /// What it gave.
    pub measured: Measured,
    /// How it was judged.
    pub judgement: Judgement,
    /// Whether it was anomalous.
    pub anomalous: bool,
}

/// A way to search.
pub trait Searcher {
    /// The next experiments; none when no point outside the known anomalies is left.
    fn propose(&mut self, ground: &Ground<'_>) -> Vec<Point>;

    /// Takes the results of the last proposal, in its order.
    fn observe(&mut self, ground: &Ground<'_>, observed: &[Observed]);
}

impl Ground<'_> {
    /// Whether `point` is outside all known anomalies.
    pub fn is_fresh(&self, point: &Point) -> bool {
        self.known.iter().all(|region| !region.has(point))
    }

    /// The mildest workload of `service` that is in no known anomaly; where all of them are in one, the mildest.
    pub fn mild(&self, service: u64) -> Option<Point> {
        mild(self.space, self.known.iter(), service)
    }

    /// The mild workload of every service.
    pub fn mild_of_all(&self) -> Vec<Point> {
        let services = self.space.allowed(Feature::Service).grid();
        let mild = services
            .into_iter()
            .filter_map(|service| self.mild(service));
        mild.collect()
    }

    /// A random point outside; none where many draws find none.
    pub fn draw(&self, stream: &mut Stream) -> Option<Point> {
        let draws = (0..DRAWS_MAX).map_while(|_| self.space.draw(stream).ok());
        let mut fresh = draws.filter(|point| self.is_fresh(point));
        fresh.next()
    }

    /// The counter that is followed after `experiments`.
    fn counter_after(&self, experiments: usize) -> Option<&Counter> {
        let count = self.counters.len().max(1);
        self.counters.get(experiments / PER_COUNTER % count)
    }
}

/// The mildest workload of `service` in `space` that is in none of the `known` regions; where all of them are in one,
/// the mildest.
pub(crate) fn mild<'a>(
    space: &Space,
    known: impl Iterator<Item = &'a Region> + Clone,
    service: u64,
) -> Option<Point> {
    let mut all = space.mild(service);
    let outside = |point: &Point| !known.clone().any(|region| region.has(point));
    let place = all.iter().position(outside).unwrap_or(0);
    (!all.is_empty()).then(|| all.swap_remove(place))
}

/// The searcher called `name`, with streams of `seed`; none where there is no such name. `stages` are those of `factors`.
pub fn by_name(name: &str, seed: u64, stages: Stages) -> Option<Box<dyn Searcher>> {
    Some(match name {
        "factors" => Box::new(factors::Factors::new(seed, stages)),
        "anneal" => Box::new(anneal::Anneal::new(seed, anneal::Settings::default())),
        "random" => Box::new(random::Random::new(seed)),
        "bayes" => Box::new(bayes::Bayes::new(seed)),
        "evolve" => Box::new(evolve::Evolve::new(seed)),
        "screen" => Box::new(screen::Screen::new(seed)),
        _ => return None,
    })
}

/// A uniform number from 0 to below 1.
fn unit(stream: &mut Stream) -> f64 {
    (stream.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

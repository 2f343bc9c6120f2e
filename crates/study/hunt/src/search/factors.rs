//! Factors: mild workloads first, then one factor at a time, then a few at once, guided by new counter signatures. Ours.
//!
//! Problem: most uniform points are anomalous through their topology, which hides everything else. Method: a workload is a
//! mild one with deviating factors ([`crate::space::factor`]). Three phases:
//!
//! * *isolation*: the mild workload of every service; then topologies until every pair of their levels was seen once (a
//!   covering array of strength two), with services in turn; then every other factor alone, for every service;
//! * *search*: three proposals of sixteen are a uniform point, or a mild workload with one to six deviating factors;
//! * *feedback*: twelve of sixteen are a uniform point with the levels of features that raise a counter (`effects`). One starts
//!   at a sound workload whose counters reached a level that its service had not shown before (powers of two, or twentieths of
//!   the bounds), the one that was used least of five, and deviates it by one or two factors or carries it to another service.
//!   Of two counters the one is raised that more lately reached a new maximum; one that led to a new anomaly is raised less.
//!
//! Uniform points are those of `coverage`, which show rare pairs of values.
//!
//! A workload in a known region is mostly left out: the more sound workloads were met in a region, the less, since such a
//! region is too broad and may hide another anomaly. The searcher knows no anomaly by name. Limits: shares are round numbers, chosen on
//! planted devices ([`crate::planted`]). Source: covering arrays by Cohen et al. (AETG, 1997); seeds by coverage as fuzzers
//! keep them.

use super::coverage::Coverage;
use super::effects::Effects;
use super::{Ground, Observed, Searcher, Stages};
use crate::space::factor::Factor;
use crate::space::{Feature, Point};
use isolane_common_quantities::rng::Stream;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Points per proposal.
const BATCH: usize = 4;
/// Factors that deviate at once at most.
const FACTORS_MAX: u64 = 6;
/// Attempts at a point outside the known anomalies and not proposed before.
const ATTEMPTS_MAX: usize = 400;
/// Number of seeds; the least used one is taken.
const SEEDS: u64 = 5;
/// One proposal in so many of the others is a uniform point, after isolation.
const UNIFORM_ONE_IN: u64 = 2;
/// Turns of proposals after isolation: one deviates a seed, those below [`OTHERS`] raise a counter.
const SHARES: u64 = 16;
/// The first turn that follows no counter.
const OTHERS: u64 = 13;
/// One workload in so many is proposed although it is in a known region in which all were anomalous.
const INSIDE_ONE_IN: u64 = 12;
/// Number of drawn topologies; the one with most new pairs is taken.
const TOPOLOGIES: usize = 32;
/// Proposals without effect that a counter is charged with once it led to a new anomaly.
const FOUND: u64 = 20;
/// Levels of a ratio from 0 to 1.
const RATIO_LEVELS: f64 = 20.0;

/// Features of the host topology.
const TOPOLOGY: [Feature; 3] = [Feature::Direction, Feature::MemoryA, Feature::MemoryB];

/// A sound point with a new signature.
struct Seed {
    point: Point,
    used: u32,
}

/// Service, counter and level.
type Signature = (u64, usize, i64);

/// See the module.
pub struct Factors {
    stream: Stream,
    stages: Stages,
    /// What isolation still proposes; none before it began.
    isolation: Option<VecDeque<Point>>,
    proposed: BTreeSet<Point>,
    seen: BTreeSet<Signature>,
    seeds: Vec<Seed>,
    /// Anomalous and sound workloads that were met in each known region.
    inside: Vec<[u64; 2]>,
    coverage: Coverage,
    effects: Effects,
    /// Proposals that followed each objective since it last led to more of its counter or to an anomaly.
    barren: Vec<u64>,
    /// The most of each objective in a sound workload.
    most: Vec<f64>,
    /// The objectives of proposals that were not observed yet.
    pending: BTreeMap<Point, usize>,
}

impl Factors {
    /// With the stream of `seed`, and those of its stages that `stages` has.
    pub fn new(seed: u64, stages: Stages) -> Self {
        Self {
            stream: Stream::named(seed, "hunt/factors"),
            stages,
            isolation: None,
            proposed: BTreeSet::new(),
            seen: BTreeSet::new(),
            seeds: Vec::new(),
            inside: Vec::new(),
            coverage: Coverage::default(),
            effects: Effects::default(),
            barren: Vec::new(),
            most: Vec::new(),
            pending: BTreeMap::new(),
        }
    }

    /// Whether `point` may be proposed: outside of all known regions, or in one that may be too broad.
    fn admits(&mut self, ground: &Ground<'_>, point: &Point) -> bool {
        for (index, region) in ground.known.iter().enumerate() {
            if !region.has(point) {
                continue;
            }
            let [anomalous, sound] = self.inside.get(index).copied().unwrap_or_default();
            // A part of what the region holds, as far as is known; one of the two before anything is known.
            let (part, of) = (sound, anomalous + sound + 1);
            if !self.stream.chance(1, INSIDE_ONE_IN) && !self.stream.chance(part, of) {
                return false;
            }
        }
        true
    }

    /// The points of isolation, in order.
    fn isolating(&mut self, ground: &Ground<'_>) -> VecDeque<Point> {
        let mild: Vec<Point> = ground.mild_of_all();
        let mut points: VecDeque<Point> = mild.iter().cloned().collect();
        points.extend(self.topologies(ground, &mild));
        let varied = ground.space.varied().into_iter();
        let others = varied
            .filter(|factor| !matches!(factor, Factor::One(feature) if TOPOLOGY.contains(feature)));
        for factor in others {
            for point in &mild {
                let moved = ground.space.deviate(point, point, factor, &mut self.stream);
                points.extend(moved);
            }
        }
        points
    }

    /// Topologies of mild workloads that show every pair of levels, and every level with every service.
    fn topologies(&mut self, ground: &Ground<'_>, mild: &[Point]) -> Vec<Point> {
        let mut shown: BTreeSet<[(usize, u64); 2]> = BTreeSet::new();
        let pairs = |point: &Point| {
            let levels: Vec<(usize, u64)> = TOPOLOGY
                .iter()
                .enumerate()
                .map(|(index, feature)| (index, feature.of(point)))
                .collect();
            [(0, 1), (0, 2), (1, 2)].map(|(a, b)| [levels[a], levels[b]])
        };
        let mut points = Vec::new();
        for turn in 0.. {
            let Some(base) = mild.get(turn % mild.len().max(1)) else {
                break;
            };
            let mut best: Option<(usize, Point)> = None;
            for _ in 0..TOPOLOGIES {
                let mut point = base.clone();
                for feature in TOPOLOGY {
                    let grid = ground.space.allowed(feature).grid();
                    let value = grid[self.stream.below(grid.len() as u64) as usize];
                    point = ground.space.with(&point, feature, value).unwrap_or(point);
                }
                let new = pairs(&point)
                    .iter()
                    .filter(|pair| !shown.contains(*pair))
                    .count();
                if best.as_ref().is_none_or(|(most, _)| new > *most) {
                    best = Some((new, point));
                }
            }
            match best {
                Some((new, point)) if new > 0 => {
                    shown.extend(pairs(&point));
                    points.push(point);
                }
                _ => break,
            }
        }
        points
    }

    /// A point that is new and outside of all known regions.
    fn next(&mut self, ground: &Ground<'_>) -> Option<Point> {
        for _ in 0..ATTEMPTS_MAX {
            let point = match self.isolation.as_mut().and_then(VecDeque::pop_front) {
                Some(point) => Some(point),
                None => self.drawn(ground),
            };
            let Some(point) = point.filter(|point| !self.proposed.contains(point)) else {
                continue;
            };
            if self.admits(ground, &point) {
                self.proposed.insert(point.clone());
                return Some(point);
            }
        }
        // Everything near the mild workloads was proposed or is known; the rest of the space is not.
        ground.draw(&mut self.stream)
    }

    fn drawn(&mut self, ground: &Ground<'_>) -> Option<Point> {
        if self.stages.feedback {
            let turn = self.stream.below(SHARES);
            let point = match turn {
                0 => self.grown(ground),
                turn if turn < OTHERS => self.raised(ground),
                _ => None,
            };
            if point.is_some() {
                return point;
            }
        }
        if self.stream.chance(1, UNIFORM_ONE_IN) {
            return self.uniform(ground);
        }
        let all = ground.mild_of_all();
        let mild = all.get(self.stream.below(all.len().max(1) as u64) as usize)?;
        let count = 1 + self.stream.below(FACTORS_MAX);
        Some(self.deviated(ground, mild.clone(), mild, count))
    }

    /// A uniform point, one with rare pairs of values where that stage takes part.
    fn uniform(&mut self, ground: &Ground<'_>) -> Option<Point> {
        let covering = self.stages.coverage.then(|| {
            let is_fresh = |point: &Point| ground.is_fresh(point);
            self.coverage.draw(ground.space, is_fresh, &mut self.stream)
        });
        let point = covering.flatten();
        point.or_else(|| ground.space.draw(&mut self.stream).ok())
    }

    /// Of two objectives the one that led somewhere more lately.
    fn objective(&mut self) -> usize {
        let count = self.barren.len().max(1) as u64;
        let [one, other] = [0; 2].map(|_| self.stream.below(count) as usize);
        let of = |place: usize| self.barren.get(place).copied();
        if of(other) < of(one) { other } else { one }
    }

    /// `point` was made to follow `objective`.
    fn follows(&mut self, point: Option<Point>, objective: usize) -> Option<Point> {
        if let Some(times) = self.barren.get_mut(objective) {
            *times += 1;
        }
        let point = point?;
        self.pending.insert(point.clone(), objective);
        Some(point)
    }

    /// A uniform point with the levels that raise a counter.
    fn raised(&mut self, ground: &Ground<'_>) -> Option<Point> {
        let start = self.uniform(ground)?;
        let objective = self.objective();
        let point = self
            .effects
            .raised(ground.space, &start, objective, &mut self.stream);
        self.follows(point, objective)
    }

    /// The least used of a few seeds with one or two more deviations, sometimes in another service.
    fn grown(&mut self, ground: &Ground<'_>) -> Option<Point> {
        let count = self.seeds.len() as u64;
        if count == 0 {
            return None;
        }
        let places: Vec<usize> = (0..SEEDS)
            .map(|_| self.stream.below(count) as usize)
            .collect();
        let place = places
            .into_iter()
            .min_by_key(|&place| (self.seeds[place].used, place))?;
        self.seeds[place].used += 1;
        let mut point = self.seeds[place].point.clone();
        if self.stream.chance(1, 4) {
            let services = ground.space.allowed(Feature::Service).grid();
            let service = services[self.stream.below(services.len() as u64) as usize];
            point = ground.space.changed(&point, Feature::Service, service)?;
        }
        let mild = ground.mild(point.service)?;
        let count = 1 + self.stream.below(2);
        Some(self.deviated(ground, point, &mild, count))
    }

    /// `point` with up to `count` factors deviated.
    fn deviated(
        &mut self,
        ground: &Ground<'_>,
        mut point: Point,
        mild: &Point,
        count: u64,
    ) -> Point {
        let mut pool = ground.space.varied();
        for _ in 0..count {
            if pool.is_empty() {
                break;
            }
            let place = self.stream.below(pool.len() as u64) as usize;
            let factor = pool.swap_remove(place);
            let next = ground.space.deviate(&point, mild, factor, &mut self.stream);
            point = next.unwrap_or(point);
        }
        point
    }

    /// Keeps `seen` as a seed where one of its counters is at a level that its service did not show yet.
    fn learn(&mut self, ground: &Ground<'_>, seen: &Observed) {
        let mut new = false;
        let service = seen.point.service;
        for (index, counter) in ground.counters.iter().enumerate() {
            let value = seen.measured.counter(&counter.name);
            if value > 0.0 {
                // Powers of two, which distinguish counts and ratios alike.
                let level = libm::floor(libm::log2(value)) as i64;
                new |= self.seen.insert((service, index, level));
            }
        }
        let level = (reached(seen) * RATIO_LEVELS) as i64;
        new |= self.seen.insert((service, usize::MAX, level));
        if new {
            self.seeds.push(Seed {
                point: seen.point.clone(),
                used: 0,
            });
        }
    }
}

/// Part of the nearest bound that was reached, 0 to 1.
fn reached(seen: &Observed) -> f64 {
    let judged = &seen.judgement;
    let most = judged.of_bits.max(judged.of_packets).max(judged.of_offer);
    most.clamp(0.0, 1.0)
}

impl Searcher for Factors {
    fn propose(&mut self, ground: &Ground<'_>) -> Vec<Point> {
        if self.isolation.is_none() {
            let points = match self.stages.isolation {
                true => self.isolating(ground),
                false => VecDeque::new(),
            };
            self.isolation = Some(points);
        }
        (0..BATCH).map_while(|_| self.next(ground)).collect()
    }

    fn observe(&mut self, ground: &Ground<'_>, observed: &[Observed]) {
        let discovered = ground.known.len() > self.inside.len();
        self.inside.resize(ground.known.len(), [0, 0]);
        for seen in observed {
            for (counts, region) in self.inside.iter_mut().zip(ground.known) {
                counts[usize::from(!seen.anomalous)] += u64::from(region.has(&seen.point));
            }
            let counters = ground.counters.iter();
            let mut values: Vec<f64> = counters
                .map(|counter| seen.measured.counter(&counter.name))
                .collect();
            values.push(1.0 - reached(seen));
            self.barren.resize(values.len(), 0);
            self.most.resize(values.len(), 0.0);
            let pending = self.pending.remove(&seen.point);
            if let Some(objective) = pending {
                let more = values[objective] > self.most[objective];
                if seen.anomalous && discovered {
                    self.barren[objective] += FOUND;
                } else if more {
                    self.barren[objective] = 0;
                }
            }
            if !seen.anomalous {
                for (most, value) in self.most.iter_mut().zip(&values) {
                    *most = most.max(*value);
                }
            }
            self.coverage.learn(ground.space, &seen.point);
            self.effects.learn(ground.space, &seen.point, &values);
            if !seen.anomalous {
                self.learn(ground, seen);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Space;
    use crate::space::factor::VARIED;
    use crate::space::tests::profile;

    #[test]
    fn isolation_shows_every_pair_of_topology_levels_and_every_factor_alone() {
        let space = Space::of(&profile("cx6-200g-roce"));
        let ground = Ground::unknown(&space);
        let mut factors = Factors::new(1, Stages::default());
        let points = factors.isolating(&ground);
        let mut pairs = BTreeSet::new();
        for point in &points {
            pairs.insert((0, point.direction, point.memory_a));
            pairs.insert((1, point.direction, point.memory_b));
            pairs.insert((2, point.memory_a, point.memory_b));
        }
        assert_eq!(pairs.len(), 27);
        for service in 0..6 {
            let mild = ground.mild(service).unwrap();
            for factor in VARIED {
                if matches!(factor, Factor::One(feature) if TOPOLOGY.contains(&feature)) {
                    continue;
                }
                let alone = |point: &&Point| {
                    let moved = factor.features().iter();
                    point.service == service && moved.clone().any(|f| f.of(point) != f.of(&mild))
                };
                assert!(points.iter().any(|p| alone(&p)), "{service} {factor:?}");
            }
        }
        assert!(points.len() < 80, "{}", points.len());
    }
}

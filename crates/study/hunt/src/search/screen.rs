//! Screening: breadth first, then up from many places at once, and around what is known. Ours.
//!
//! Problem: an anomaly is a conjunction of a few conditions, each on the high or the low side of a feature. A chain that
//! climbs one counter spends its time in the structure (transport, direction, memory) where it happens to be. Method: a
//! proposal has points of three kinds.
//!
//! * *Design*: of some random corner points (numbers on their low or high side, patterns of distinct kinds) the one
//!   whose combinations of the service with three other feature levels were shown least often. That is a covering array
//!   of strength four that goes on to balance once all is covered: an anomaly with few conditions is met in a number of
//!   experiments that grows with the largest features only, and an anomaly with more conditions is met more often than
//!   by chance.
//! * *Climb*: an archive keeps for each structure and each objective the best sound experiment. An objective is a
//!   counter or the margin to an anomaly (how little of the bounds was reached). Of a few archived points the one that
//!   has disappointed least takes one to three mutations; each may be a feature of another archived point.
//! * *Relatives*: a finite resource is often used by more than one service. The witness of a known anomaly takes another
//!   service, direction or MTU, and up to two mutations.
//!
//! Known regions are left out of all. Limits: levels are coarse (three to a number), so thresholds between two levels are
//! left to climbing; shares and sizes below are round numbers, not tuned. Source: covering arrays by Cohen et al.
//! (AETG, 1997); the archive by Mouret and Clune (MAP-Elites, 2015).

use super::{Ground, Observed, Searcher};
use crate::space::{Allowed, Feature, Point, Space};
use isolane_common_quantities::rng::Stream;
use std::collections::BTreeMap;

/// Designed points of a proposal.
const DESIGNED: usize = 4;
/// Climbing points of a proposal.
const CLIMBING: usize = 2;
/// Relatives of known anomalies in a proposal.
const RELATIVES: usize = 2;
/// Number of corner points; the one that shows most new combinations is taken.
const CANDIDATES: usize = 16;
/// Number of archived points; the one with the fewest failed mutations is taken.
const CELLS: usize = 6;
/// Mutations of an archived point at most.
const STEPS_MAX: u64 = 3;
/// Attempts for a child outside the known anomalies.
const ATTEMPTS_MAX: usize = 20;
/// Levels of a number: the lower, the middle and the upper third of its grid.
const LEVELS: usize = 3;

/// A level of a feature, as a small number.
type Level = u16;
/// What an archived point is the best of.
type Cell = ([u64; 5], usize);

/// An archived point.
struct Best {
    score: f64,
    point: Point,
    /// Children of it since it became the best.
    disappointed: u32,
}

/// See the module.
pub struct Screen {
    stream: Stream,
    /// How often combinations of levels were shown.
    shown: BTreeMap<[Level; 4], u32>,
    archive: BTreeMap<Cell, Best>,
}

impl Screen {
    /// With the stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            stream: Stream::named(seed, "hunt/screen"),
            shown: BTreeMap::new(),
            archive: BTreeMap::new(),
        }
    }

    /// The corner point that shows most that is rare.
    fn design(&mut self, ground: &Ground<'_>) -> Option<Point> {
        let mut best: Option<(f64, Point)> = None;
        for _ in 0..CANDIDATES {
            let Ok(point) = ground.space.draw_corner(&mut self.stream) else {
                continue;
            };
            if !ground.is_fresh(&point) {
                continue;
            }
            let combinations = combinations(ground.space, &point);
            let rare = |combination: &[Level; 4]| match self.shown.get(combination) {
                None => 1.0,
                Some(&times) => 1.0 / f64::from(times + 1),
            };
            let rare: f64 = combinations.iter().map(rare).sum();
            if best.as_ref().is_none_or(|(most, _)| rare > *most) {
                best = Some((rare, point));
            }
        }
        match best {
            Some((_, point)) => Some(point),
            None => ground.draw(&mut self.stream),
        }
    }

    /// A child of an archived point.
    fn climb(&mut self, ground: &Ground<'_>) -> Option<Point> {
        let cells: Vec<Cell> = self.archive.keys().copied().collect();
        if cells.is_empty() {
            return self.design(ground);
        }
        for _ in 0..ATTEMPTS_MAX {
            let mut pick = || cells[self.stream.below(cells.len() as u64) as usize];
            let other = pick();
            let few = (0..CELLS).map(|_| pick());
            let cell = few.min_by_key(|cell| self.archive[cell].disappointed);
            let best = self.archive.get_mut(&cell?)?;
            best.disappointed += 1;
            let mut point = best.point.clone();
            for _ in 0..=self.stream.below(STEPS_MAX) {
                point = match self.stream.chance(1, 3) {
                    true => self.taken(ground.space, &point, &self.archive[&other].point.clone()),
                    false => ground.space.mutate(&point, &mut self.stream).ok()?,
                };
            }
            if ground.is_fresh(&point) {
                return Some(point);
            }
        }
        self.design(ground)
    }

    /// A relative of a known anomaly.
    fn relative(&mut self, ground: &Ground<'_>) -> Option<Point> {
        for _ in 0..ATTEMPTS_MAX {
            if ground.witnesses.is_empty() {
                break;
            }
            let of = self.stream.below(ground.witnesses.len() as u64) as usize;
            let witness = &ground.witnesses[of];
            let feature = KIN[self.stream.below(KIN.len() as u64) as usize];
            let grid = ground.space.allowed(feature).grid();
            let value = grid[self.stream.below(grid.len() as u64) as usize];
            let Some(mut point) = ground.space.changed(witness, feature, value) else {
                continue;
            };
            for _ in 0..self.stream.below(STEPS_MAX) {
                point = ground.space.mutate(&point, &mut self.stream).ok()?;
            }
            if ground.is_fresh(&point) {
                return Some(point);
            }
        }
        self.design(ground)
    }

    /// `point` with one feature of `other`, where that is valid.
    fn taken(&mut self, space: &Space, point: &Point, other: &Point) -> Point {
        let all = space.features();
        let feature = all[self.stream.below(all.len() as u64) as usize];
        let taken = space.with(point, feature, feature.of(other));
        taken.unwrap_or_else(|| point.clone())
    }
}

/// In what relatives differ.
const KIN: [Feature; 4] = [
    Feature::Service,
    Feature::Service,
    Feature::Direction,
    Feature::Mtu,
];

impl Searcher for Screen {
    fn propose(&mut self, ground: &Ground<'_>) -> Vec<Point> {
        let mut batch = Vec::new();
        for _ in 0..DESIGNED {
            let point = self.design(ground);
            // The next one is to show something else.
            let shown = point.iter().flat_map(|p| combinations(ground.space, p));
            for combination in shown {
                *self.shown.entry(combination).or_default() += 1;
            }
            batch.extend(point);
        }
        for _ in 0..CLIMBING {
            batch.extend(self.climb(ground));
        }
        for _ in 0..RELATIVES {
            batch.extend(self.relative(ground));
        }
        batch
    }

    fn observe(&mut self, ground: &Ground<'_>, observed: &[Observed]) {
        for seen in observed {
            if seen.anomalous {
                continue;
            }
            let structure = structure(&seen.point);
            let reached = [
                seen.judgement.of_bits,
                seen.judgement.of_packets,
                seen.judgement.of_offer,
            ];
            let margin =
                -reached.into_iter().fold(0.0, f64::max) + seen.judgement.pause_ratio * 1e3;
            let scores = ground
                .counters
                .iter()
                .map(|counter| counter.score(&seen.measured));
            for (objective, score) in std::iter::once(margin).chain(scores).enumerate() {
                let better = |best: &Best| score > best.score;
                let cell = (structure, objective);
                if self.archive.get(&cell).is_none_or(better) {
                    let best = Best {
                        score,
                        point: seen.point.clone(),
                        disappointed: 0,
                    };
                    self.archive.insert(cell, best);
                }
            }
        }
        self.archive.retain(|_, best| ground.is_fresh(&best.point));
    }
}

/// The choices that make the structure of a workload.
fn structure(point: &Point) -> [u64; 5] {
    [
        point.service,
        point.direction,
        point.memory_a.max(point.memory_b),
        point.control,
        point.receives,
    ]
}

/// The level of every feature that `point` has, numbered so that no two features share one.
fn levels(space: &Space, point: &Point) -> Vec<Level> {
    let all = space.features().iter().copied();
    let active = all.filter(|f| f.is_active(point));
    let level = active.map(|feature| {
        let value = feature.of(point);
        let level = match space.allowed(feature) {
            Allowed::Set(_) if feature.names().is_some() => value as usize,
            Allowed::Set(values) => values.iter().position(|&v| v == value).unwrap_or(0),
            range @ Allowed::Range(..) => {
                let grid = range.grid();
                let below = grid.iter().filter(|&&other| other < value).count();
                (below * LEVELS / grid.len()).min(LEVELS - 1)
            }
        };
        (feature as u16) << 4 | level as u16
    });
    level.collect()
}

/// Combinations of the service's level with three others.
fn combinations(space: &Space, point: &Point) -> Vec<[Level; 4]> {
    let service = (Feature::Service as u16) << 4 | point.service as u16;
    let levels = levels(space, point);
    let others: Vec<Level> = levels.into_iter().filter(|&l| l != service).collect();
    let mut all = Vec::new();
    for (i, &a) in others.iter().enumerate() {
        for (j, &b) in others.iter().enumerate().skip(i + 1) {
            all.extend(others[j + 1..].iter().map(|&c| [service, a, b, c]));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::tests::profile;
    use std::collections::BTreeSet;

    /// Combinations of levels that `points` show.
    fn shown(space: &Space, points: &[Point]) -> usize {
        let all = points.iter().flat_map(|point| combinations(space, point));
        all.collect::<BTreeSet<_>>().len()
    }

    #[test]
    fn a_design_shows_more_combinations_than_chance() {
        let space = Space::of(&profile("cx6-200g-roce"));
        let ground = Ground::unknown(&space);
        let mut screen = Screen::new(1);
        let proposals = (0..12).flat_map(|_| screen.propose(&ground));
        // Without an archive and without witnesses all are designed.
        let designed: Vec<Point> = proposals.take(60).collect();
        let mut stream = Stream::named(1, "test");
        let drawn: Vec<Point> = (0..60).map(|_| space.draw(&mut stream).unwrap()).collect();
        let (designed, drawn) = (shown(&space, &designed), shown(&space, &drawn));
        assert!(designed > drawn + drawn / 20, "{designed} {drawn}");
    }

    #[test]
    fn corners_are_valid_and_at_the_ends() {
        let space = Space::of(&profile("cx6-200g-roce"));
        let mut stream = Stream::named(2, "test");
        let ends = (0..300)
            .filter(|_| {
                let point = space.draw_corner(&mut stream).unwrap();
                assert_eq!(space.check(&point), Ok(()));
                let grid = space.allowed(Feature::PostList).grid();
                [grid[0], grid[grid.len() - 1]].contains(&point.post_list)
            })
            .count();
        assert!(ends > 120, "{ends}");
    }
}

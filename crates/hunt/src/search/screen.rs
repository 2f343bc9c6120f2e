//! Screening: breadth first, then up from many places at once. Ours.
//!
//! Problem: an anomaly is a conjunction of a few conditions, each on the high or the low side of a feature. A chain that
//! climbs one counter spends its time in the structure (transport, direction, memory) where it happens to be. Method: a
//! proposal is one half of each of two kinds.
//!
//! * *Design*: of some random corner points (features at or near their ends, patterns of distinct kinds) the one that
//!   shows most combinations of three feature levels that no experiment has shown. That is a greedy covering array of
//!   strength three: whatever needs three conditions is met in a number of experiments that grows with the largest
//!   three features only, and what needs more is met more often than by chance.
//! * *Climb*: an archive keeps for each structure and each objective the best sound experiment. An objective is a counter
//!   or the margin to an anomaly (how little of the bounds was reached). A structure and an objective are drawn, and the
//!   archived point takes one to three mutations, of which each may be a feature of another archived point.
//!
//! Known regions are left out of both. Limits: levels are coarse (three to a number), so thresholds between two levels are
//! left to climbing; shares and sizes below are round numbers, not tuned. Source: covering arrays by Cohen et al.
//! (AETG, 1997); the archive by Mouret and Clune (MAP-Elites, 2015).

use super::{Ground, Observed, Searcher};
use crate::space::{Allowed, Feature, Point, Space};
use isolane_core::rng::Stream;
use std::collections::{BTreeMap, BTreeSet};

/// Points of a proposal of each kind.
const HALF: usize = 4;
/// Corner points of which the one that shows most new combinations is taken.
const CANDIDATES: usize = 24;
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

/// See the module.
pub struct Screen {
    stream: Stream,
    shown: BTreeSet<[Level; 3]>,
    archive: BTreeMap<Cell, (f64, Point)>,
}

impl Screen {
    /// With the stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            stream: Stream::named(seed, "hunt/screen"),
            shown: BTreeSet::new(),
            archive: BTreeMap::new(),
        }
    }

    /// The corner point that shows most that is new.
    fn design(&mut self, ground: &Ground<'_>) -> Option<Point> {
        let mut best: Option<(usize, Point)> = None;
        for _ in 0..CANDIDATES {
            let Ok(point) = ground.space.draw_corner(&mut self.stream) else {
                continue;
            };
            if !ground.is_fresh(&point) {
                continue;
            }
            let combinations = combinations(&levels(ground.space, &point));
            let new = combinations
                .iter()
                .filter(|c| !self.shown.contains(*c))
                .count();
            if best.as_ref().is_none_or(|(most, _)| new > *most) {
                best = Some((new, point));
            }
        }
        let (_, point) = match best {
            Some(best) => best,
            None => (0, ground.draw(&mut self.stream)?),
        };
        self.shown
            .extend(combinations(&levels(ground.space, &point)));
        Some(point)
    }

    /// A child of an archived point.
    fn climb(&mut self, ground: &Ground<'_>) -> Option<Point> {
        let cells: Vec<Cell> = self.archive.keys().copied().collect();
        if cells.is_empty() {
            return self.design(ground);
        }
        for _ in 0..ATTEMPTS_MAX {
            let mut pick = || cells[self.stream.below(cells.len() as u64) as usize];
            let (cell, other) = (pick(), pick());
            let mut point = self.archive[&cell].1.clone();
            for _ in 0..=self.stream.below(STEPS_MAX) {
                point = match self.stream.chance(1, 3) {
                    true => self.taken(ground.space, &point, &self.archive[&other].1.clone()),
                    false => ground.space.mutate(&point, &mut self.stream).ok()?,
                };
            }
            if ground.is_fresh(&point) {
                return Some(point);
            }
        }
        self.design(ground)
    }

    /// `point` with one feature of `other`, where that is valid.
    fn taken(&mut self, space: &Space, point: &Point, other: &Point) -> Point {
        let feature = Feature::ALL[self.stream.below(Feature::ALL.len() as u64) as usize];
        let taken = space.with(point, feature, feature.of(other));
        taken.unwrap_or_else(|| point.clone())
    }
}

impl Searcher for Screen {
    fn propose(&mut self, ground: &Ground<'_>) -> Vec<Point> {
        let mut batch = Vec::new();
        for _ in 0..HALF {
            batch.extend(self.design(ground));
        }
        for _ in 0..HALF {
            batch.extend(self.climb(ground));
        }
        batch
    }

    fn observe(&mut self, ground: &Ground<'_>, observed: &[Observed]) {
        for seen in observed {
            self.shown
                .extend(combinations(&levels(ground.space, &seen.point)));
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
                let place = self.archive.entry((structure, objective));
                let best = place.or_insert_with(|| (score, seen.point.clone()));
                if score > best.0 {
                    *best = (score, seen.point.clone());
                }
            }
        }
        self.archive.retain(|_, (_, point)| ground.is_fresh(point));
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
    let active = Feature::ALL.into_iter().filter(|f| f.is_active(point));
    let level = active.map(|feature| {
        let value = feature.of(point);
        let level = match space.allowed(feature) {
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

fn combinations(levels: &[Level]) -> Vec<[Level; 3]> {
    let mut all = Vec::new();
    for (i, &a) in levels.iter().enumerate() {
        for (j, &b) in levels.iter().enumerate().skip(i + 1) {
            all.extend(levels[j + 1..].iter().map(|&c| [a, b, c]));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::tests::profile;

    /// Combinations of three levels that `points` show.
    fn shown(space: &Space, points: &[Point]) -> usize {
        let all = points
            .iter()
            .flat_map(|point| combinations(&levels(space, point)));
        all.collect::<BTreeSet<_>>().len()
    }

    #[test]
    fn a_design_shows_more_combinations_than_chance() {
        let space = Space::of(&profile("cx6-200g-roce"));
        let ground = Ground {
            space: &space,
            known: &[],
            counters: &[],
        };
        let mut screen = Screen::new(1);
        let designed: Vec<Point> = (0..60).filter_map(|_| screen.design(&ground)).collect();
        let mut stream = Stream::named(1, "test");
        let drawn: Vec<Point> = (0..60).map(|_| space.draw(&mut stream).unwrap()).collect();
        let (designed, drawn) = (shown(&space, &designed), shown(&space, &drawn));
        assert!(designed as f64 > 1.1 * drawn as f64, "{designed} {drawn}");
    }

    #[test]
    fn corners_are_valid_and_lie_at_the_ends() {
        let space = Space::of(&profile("cx6-200g-roce"));
        let mut stream = Stream::named(2, "test");
        let ends = (0..300)
            .filter(|_| {
                let point = space.draw_corner(&mut stream).unwrap();
                assert_eq!(space.check(&point), Ok(()));
                let grid = space.allowed(Feature::PostList).grid();
                let place = grid.iter().position(|&v| v == point.post_list);
                place.is_some_and(|place| place < 2 || place + 2 >= grid.len())
            })
            .count();
        assert!(ends > 200, "{ends}");
    }
}

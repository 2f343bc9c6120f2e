//! Main effects: which levels of which features raise a counter, learned from all experiments of a search.
//!
//! Problem: an anomaly with five conditions is met by one point of thousands, but the resource that runs out often has a
//! counter that rises with each condition. Method: numbers have three levels, choices one per value. For every counter and
//! level the mean of a score is kept: the logarithm of one plus the counter over its mean, so that scales do not matter and
//! products become sums. A level whose mean lies more than two standard errors above that of all points raises the counter. A
//! proposal takes a given workload and moves most of the features that have such a level to it. Limits: effects are taken as
//! independent; a counter that moves at a cliff only says nothing before. Source: the analysis of factorial designs (Box, Hunter
//! and Hunter).

use crate::space::{Allowed, Feature, Point, Space};
use isolane_common_quantities::rng::Stream;
use std::collections::BTreeMap;

/// Levels of a number.
const LEVELS: usize = 3;
/// The highest level of a number.
const LAST: usize = LEVELS - 1;
/// Experiments at a level before it counts.
const LEAST: f64 = 4.0;
/// Standard errors above the mean from which on a level counts.
const ERRORS: f64 = 2.0;
/// One in so many raising levels is left out of a proposal, in case it is none.
const LEFT_OUT_ONE_IN: u64 = 6;

/// Sums over experiments.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Sums {
    fn add(&mut self, score: f64) {
        self.count += 1.0;
        self.sum += score;
        self.squares += score * score;
    }

    fn mean(&self) -> f64 {
        self.sum / self.count.max(1.0)
    }

    fn variance(&self) -> f64 {
        (self.squares / self.count.max(1.0) - self.mean() * self.mean()).max(0.0)
    }
}

/// What is known of one counter.
#[derive(Clone, Debug, Default)]
struct Learned {
    /// Sum and number of the raw values.
    raw: (f64, f64),
    all: Sums,
    levels: BTreeMap<(Feature, usize), Sums>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Effects {
    counters: Vec<Learned>,
}

impl Effects {
    /// Takes in the `values` of all counters at `point`.
    pub(super) fn learn(&mut self, space: &Space, point: &Point, values: &[f64]) {
        self.counters.resize_with(values.len(), Learned::default);
        let levels: Vec<(Feature, usize)> = Feature::ALL
            .into_iter()
            .filter(|feature| feature.is_active(point))
            .map(|feature| (feature, level(space, feature, feature.of(point))))
            .collect();
        for (learned, &value) in self.counters.iter_mut().zip(values) {
            learned.raw.0 += value;
            learned.raw.1 += 1.0;
            let mean = learned.raw.0 / learned.raw.1;
            if mean <= 0.0 {
                continue;
            }
            let score = libm::log1p(value / mean);
            learned.all.add(score);
            for &level in &levels {
                learned.levels.entry(level).or_default().add(score);
            }
        }
    }

    /// Levels that raise `counter`, one per feature at most.
    fn raising(&self, counter: usize) -> BTreeMap<Feature, usize> {
        let Some(learned) = self.counters.get(counter) else {
            return BTreeMap::new();
        };
        let mut best: BTreeMap<Feature, (f64, usize)> = BTreeMap::new();
        for (&(feature, level), sums) in &learned.levels {
            let error = libm::sqrt(learned.all.variance() / sums.count);
            let over = sums.mean() - learned.all.mean();
            if sums.count < LEAST || error <= 0.0 || over < ERRORS * error {
                continue;
            }
            if best.get(&feature).is_none_or(|(most, _)| over > *most) {
                best.insert(feature, (over, level));
            }
        }
        best.into_iter().map(|(f, (_, level))| (f, level)).collect()
    }

    /// `start` with most of the levels that raise `counter`; none where no level does.
    pub(super) fn raised(
        &self,
        space: &Space,
        start: &Point,
        counter: usize,
        stream: &mut Stream,
    ) -> Option<Point> {
        let raising = self.raising(counter);
        if raising.is_empty() {
            return None;
        }
        let mut point = start.clone();
        for (&feature, &wanted) in &raising {
            if stream.chance(1, LEFT_OUT_ONE_IN) {
                continue;
            }
            let next = moved(space, &point, (feature, wanted), stream);
            point = next.unwrap_or(point);
        }
        (point != *start).then_some(point)
    }
}

/// The sound point with the most of one counter, and the changes of one feature that were not tried from there.
#[derive(Clone, Debug)]
pub(super) struct Summit {
    score: f64,
    point: Point,
    untried: Vec<(Feature, usize)>,
}

/// Summits of all counters: each is left by one change at a time, none twice, until a change gives more.
#[derive(Clone, Debug, Default)]
pub(super) struct Summits(Vec<Option<Summit>>);

impl Summits {
    /// Takes in the `values` of all counters at the sound `point`.
    pub(super) fn learn(&mut self, space: &Space, point: &Point, values: &[f64]) {
        self.0.resize(values.len(), None);
        for (summit, &score) in self.0.iter_mut().zip(values) {
            let more = summit.as_ref().is_none_or(|summit| score > summit.score);
            if score > 0.0 && more {
                *summit = Some(Summit {
                    score,
                    point: point.clone(),
                    untried: changes(space, point),
                });
            }
        }
    }

    /// A change of the summit of `counter` that was not tried; none where there is none.
    pub(super) fn step(
        &mut self,
        space: &Space,
        counter: usize,
        stream: &mut Stream,
    ) -> Option<Point> {
        let summit = self.0.get_mut(counter)?.as_mut()?;
        while !summit.untried.is_empty() {
            let place = stream.below(summit.untried.len() as u64) as usize;
            let (feature, wanted) = summit.untried.swap_remove(place);
            if let Some(point) = moved(space, &summit.point, (feature, wanted), stream) {
                return Some(point);
            }
        }
        None
    }
}

/// Every level of every feature that `point` does not have.
fn changes(space: &Space, point: &Point) -> Vec<(Feature, usize)> {
    let mut all = Vec::new();
    for feature in Feature::ALL {
        let levels = space.allowed(feature).grid().into_iter();
        let mut levels: Vec<usize> = levels.map(|v| level(space, feature, v)).collect();
        levels.dedup();
        let own = level(space, feature, feature.of(point));
        // Within the level of a number there are other values, which may be what is missing.
        let number = matches!(space.allowed(feature), Allowed::Range(..));
        levels.retain(|&level| number || level != own);
        all.extend(levels.into_iter().map(|level| (feature, level)));
    }
    all
}

/// `point` with a value of the level `wanted` for `feature`.
fn moved(
    space: &Space,
    point: &Point,
    (feature, wanted): (Feature, usize),
    stream: &mut Stream,
) -> Option<Point> {
    let mut grid = space.allowed(feature).grid();
    grid.retain(|&value| level(space, feature, value) == wanted);
    // Half of the time the end of a number's range, where a resource is used most.
    let value = match (wanted, stream.chance(1, 2)) {
        _ if grid.is_empty() => return None,
        (0, true) => grid[0],
        (LAST, true) => grid[grid.len() - 1],
        _ => grid[stream.below(grid.len() as u64) as usize],
    };
    match feature {
        Feature::Smallest | Feature::Largest => sized(space, point, feature, value),
        _ => space.changed(point, feature, value),
    }
    .filter(|next| next != point)
}

/// `point` whose smallest or largest element has `value`, mixed where the other end stays.
fn sized(space: &Space, point: &Point, feature: Feature, value: u64) -> Option<Point> {
    let mut next = point.clone();
    if next.is_uniform() {
        if next.requests.iter().map(Vec::len).sum::<usize>() < 2 {
            let own = next.requests[0][0];
            next.requests = vec![vec![own, own]];
        }
        let first = next.requests.iter_mut().flatten().next()?;
        *first = value;
    } else {
        next = feature.set(&next, value);
    }
    // A repair holds the largest element.
    let largest = Feature::Largest.of(&next).next_power_of_two();
    let length = next.region_bytes.max(largest);
    space.changed(&next, Feature::RegionBytes, length)
}

/// The level of `value`.
fn level(space: &Space, feature: Feature, value: u64) -> usize {
    match space.allowed(feature) {
        Allowed::Set(values) => values.iter().position(|&v| v == value).unwrap_or(0),
        range @ Allowed::Range(..) => {
            let grid = range.grid();
            let below = grid.iter().filter(|&&other| other < value).count();
            (below * LEVELS / grid.len()).min(LEVELS - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::tests::profile;

    #[test]
    fn levels_that_raise_a_counter_are_found_and_combined() {
        let space = Space::of(&profile("cx6-200g-roce"));
        let mut stream = Stream::named(1, "test");
        let mut effects = Effects::default();
        let value = |point: &Point| {
            let long = f64::from(point.post_list >= 32);
            let many = f64::from(point.queue_pairs >= 512);
            1.0 + long + many + f64::from(point.direction == 1)
        };
        for _ in 0..150 {
            let point = space.draw(&mut stream).unwrap();
            effects.learn(&space, &point, &[value(&point), 3.0]);
        }
        let mut best = 0;
        for _ in 0..30 {
            let start = space.draw(&mut stream).unwrap();
            let point = effects.raised(&space, &start, 0, &mut stream);
            best += usize::from(point.is_some_and(|point| value(&point) == 4.0));
        }
        assert!(best >= 8, "{best}");
        let start = space.draw(&mut stream).unwrap();
        assert_eq!(effects.raised(&space, &start, 1, &mut stream), None);
    }
}

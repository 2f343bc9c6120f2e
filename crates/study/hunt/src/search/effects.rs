//! Main effects: which levels of which features raise a counter, learned from all experiments of a search.
//!
//! Problem: an anomaly with five conditions is met by one point of thousands, but the resource that runs out often has a
//! counter that rises with each condition. Method: numbers have three levels, choices one per value. The score of a counter is the
//! logarithm of one plus the counter over its mean, so scales do not matter and products become sums. An additive model of
//! the levels is fitted to the scores by backfitting. Plain means per level would not do: proposals set many raising levels together, and
//! a level that got among them by chance would keep its high mean. A level that lies more than three standard errors above the mean of its feature raises the
//! counter. A proposal takes a given workload and moves most of the features that have such a level to it, mostly to the end of
//! a number's range. What excludes a level makes room for it (`space/place.rs`), unless it is at such a level itself. Limits:
//! effects are taken as independent; a counter that moves at a cliff only says nothing before.
//! Source: the analysis of factorial designs (Box, Hunter and Hunter); backfitting by Breiman and Friedman (1985).

use crate::space::{Allowed, Feature, Point, Space};
use isolane_common_quantities::rng::Stream;
use std::collections::BTreeMap;

/// Levels of a number.
const LEVELS: usize = 3;
/// The highest level of a number.
const LAST: usize = LEVELS - 1;
/// Experiments at a level before it counts.
const LEAST: f64 = 4.0;
/// Passes over all levels of a fit.
const SWEEPS: usize = 10;
/// Experiments without effect that each level is given, so that rare ones have small effects.
const SHRINK: f64 = 2.0;
/// Standard errors above the mean from which on a level counts.
const ERRORS: f64 = 3.0;
/// Effects below this are rounding: a counter that never changes has no raising level.
const OVER_LEAST: f64 = 1e-6;
/// One in so many raising levels is left out of a proposal, in case it is none.
const LEFT_OUT_ONE_IN: u64 = 12;
/// Part of the values of the lowest and of the highest level that are the end of the range.
const ENDS: (u64, u64) = (3, 4);

/// One experiment: its levels, as numbers, and a value per counter.
#[derive(Clone, Debug)]
struct Row {
    levels: Vec<usize>,
    values: Vec<f64>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Effects {
    /// Every level that was seen, with its number.
    numbers: BTreeMap<(Feature, usize), usize>,
    rows: Vec<Row>,
}

impl Effects {
    /// Takes in the `values` of all counters at `point`.
    pub(super) fn learn(&mut self, space: &Space, point: &Point, values: &[f64]) {
        let all = space.features().iter().copied();
        let active = all.filter(|feature| feature.is_active(point));
        let levels = active.map(|feature| {
            let key = (feature, level(space, feature, feature.of(point)));
            let next = self.numbers.len();
            *self.numbers.entry(key).or_insert(next)
        });
        let levels = levels.collect();
        self.rows.push(Row {
            levels,
            values: values.to_vec(),
        });
    }

    /// Levels that raise `counter`, one per feature at most.
    fn raising(&self, counter: usize) -> BTreeMap<Feature, usize> {
        let Some(fit) = self.fit(counter) else {
            return BTreeMap::new();
        };
        // The mean effect of a feature over the experiments in which it is active.
        let mut means: BTreeMap<Feature, (f64, f64)> = BTreeMap::new();
        for (&(feature, _), &number) in &self.numbers {
            let mean = means.entry(feature).or_default();
            mean.0 += fit.effects[number] * fit.counts[number];
            mean.1 += fit.counts[number];
        }
        let mut best: BTreeMap<Feature, (f64, usize)> = BTreeMap::new();
        for (&(feature, level), &number) in &self.numbers {
            let count = fit.counts[number];
            let (sum, all) = means[&feature];
            let over = fit.effects[number] - sum / all.max(1.0);
            let error = libm::sqrt(fit.variance / count.max(1.0));
            if count < LEAST || over <= (ERRORS * error).max(OVER_LEAST) {
                continue;
            }
            if best.get(&feature).is_none_or(|(most, _)| over > *most) {
                best.insert(feature, (over, level));
            }
        }
        best.into_iter().map(|(f, (_, level))| (f, level)).collect()
    }

    /// An additive model of the scores of `counter`; none where it never counts.
    fn fit(&self, counter: usize) -> Option<Fit> {
        let value = |row: &Row| row.values.get(counter).copied().unwrap_or(0.0);
        let count = self.rows.len() as f64;
        let mean = self.rows.iter().map(value).sum::<f64>() / count.max(1.0);
        if mean <= 0.0 {
            return None;
        }
        let mut left: Vec<f64> = self
            .rows
            .iter()
            .map(|row| libm::log1p(value(row) / mean))
            .collect();
        let level = left.iter().sum::<f64>() / count;
        left.iter_mut().for_each(|score| *score -= level);
        let mut with: Vec<Vec<usize>> = vec![Vec::new(); self.numbers.len()];
        for (index, row) in self.rows.iter().enumerate() {
            for &number in &row.levels {
                with[number].push(index);
            }
        }
        let mut effects = vec![0.0; with.len()];
        for _ in 0..SWEEPS {
            for (effect, rows) in effects.iter_mut().zip(&with) {
                let count = rows.len() as f64;
                let sum: f64 = rows.iter().map(|&row| left[row]).sum();
                let next = (sum + count * *effect) / (count + SHRINK);
                for &row in rows {
                    left[row] -= next - *effect;
                }
                *effect = next;
            }
        }
        Some(Fit {
            effects,
            counts: with.iter().map(|rows| rows.len() as f64).collect(),
            variance: left.iter().map(|rest| rest * rest).sum::<f64>() / count,
        })
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
        let mut open: Vec<(Feature, usize)> =
            raising.iter().map(|(&f, &level)| (f, level)).collect();
        let mut point = start.clone();
        let mut done: Vec<(Feature, usize)> = Vec::new();
        while !open.is_empty() {
            let wanted = open.swap_remove(stream.below(open.len() as u64) as usize);
            // A service that is wanted itself does not change for the sake of receives.
            let idle = !wanted.0.is_active(&point) && raising.contains_key(&Feature::Service);
            if idle || stream.chance(1, LEFT_OUT_ONE_IN) {
                continue;
            }
            let next = moved(space, &point, wanted, stream);
            let keeps = |next: &Point| {
                let mut all = done.iter();
                all.all(|&(f, kept)| f.is_active(next) && level(space, f, f.of(next)) == kept)
            };
            if let Some(next) = next.filter(keeps) {
                point = next;
                done.push(wanted);
            }
        }
        (point != *start).then_some(point)
    }
}

/// An additive model of one counter.
struct Fit {
    /// Of each level.
    effects: Vec<f64>,
    /// Experiments with each level.
    counts: Vec<f64>,
    /// What the model leaves unexplained.
    variance: f64,
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
    // Mostly the end of a number's range, where a resource is used most.
    let value = match (wanted, stream.chance(ENDS.0, ENDS.1)) {
        _ if grid.is_empty() => return None,
        (0, true) => grid[0],
        (LAST, true) => grid[grid.len() - 1],
        _ => grid[stream.below(grid.len() as u64) as usize],
    };
    space
        .placed(point, feature, value)
        .filter(|next| next != point)
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

//! One step from a point to a neighbour: one feature of one search dimension changes.
//!
//! Half of the steps of a number go to a grid value next to the old one, the others anywhere: the first follow a
//! slope of a counter, the second leave a plain. A pattern changes by one request, one element or one size as often
//! as in a whole feature. Source: collie 3.5.1 ("mutate the workload in one of our search dimensions"); the step
//! sizes are ours, for the paper gives none.

use super::{Allowed, Dimension, Feature, Point, Space, kind};
use isolane_common_quantities::rng::Stream;

/// Attempts before a mutation gives up and the caller draws a new point.
const ATTEMPTS_MAX: u32 = 200;

const DIMENSIONS: [Dimension; 4] = [
    Dimension::Topology,
    Dimension::Memory,
    Dimension::Transport,
    Dimension::Pattern,
];

impl Space {
    /// A valid neighbour of `point`; a random point where none is found. Fails as [`Space::draw`] does.
    pub fn mutate(&self, point: &Point, stream: &mut Stream) -> Result<Point, super::Broken> {
        for _ in 0..ATTEMPTS_MAX {
            let next = self.repaired(self.step(point, stream));
            if next != *point && self.check(&next).is_ok() {
                return Ok(next);
            }
        }
        self.draw(stream)
    }

    /// Each feature from one of two points, as evolution crosses parents; the pattern stays in one piece. Fails as
    /// [`Space::draw`] does.
    pub fn cross(
        &self,
        left: &Point,
        right: &Point,
        stream: &mut Stream,
    ) -> Result<Point, super::Broken> {
        for _ in 0..ATTEMPTS_MAX {
            let mut child = match stream.chance(1, 2) {
                true => left.clone(),
                false => right.clone(),
            };
            for &feature in self.features() {
                if feature.dimension() == Dimension::Pattern || feature.of_first().is_some() {
                    continue;
                }
                let parent = if stream.chance(1, 2) { left } else { right };
                match feature {
                    // A second kind stays in one piece.
                    Feature::Second => child.second.clone_from(&parent.second),
                    _ => child = feature.set(&child, feature.of(parent)),
                }
            }
            let child = self.repaired(child);
            if self.check(&child).is_ok() {
                return Ok(child);
            }
        }
        self.draw(stream)
    }

    fn step(&self, point: &Point, stream: &mut Stream) -> Point {
        if self.has_two_kinds() && stream.chance(1, 3) {
            return self.step_of_second(point, stream);
        }
        let dimension = DIMENSIONS[stream.below(DIMENSIONS.len() as u64) as usize];
        let has_pattern = Feature::Requests.is_active(point);
        if dimension == Dimension::Pattern && has_pattern && stream.chance(1, 2) {
            return self.pattern_step(point, stream);
        }
        let features: Vec<Feature> = Feature::ALL
            .into_iter()
            .filter(|feature| !feature.is_of_second())
            .filter(|feature| feature.dimension() == dimension && feature.is_active(point))
            .filter(|&feature| !feature.is_of_attackers() || self.allowed(feature).grid().len() > 1)
            .collect();
        if features.is_empty() {
            return point.clone();
        }
        let feature = features[stream.below(features.len() as u64) as usize];
        let value = self.next_value(feature, feature.of(point), stream);
        feature.set(point, value)
    }

    /// One step of the second kind, which comes, goes or changes.
    fn step_of_second(&self, point: &Point, stream: &mut Stream) -> Point {
        if point.second.is_none() || stream.chance(1, 4) {
            let bare = Feature::Second.set(point, 0);
            return self.with_drawn_kind(bare, stream);
        }
        let (space, exchanged) = (self.swapped(), point.swapped());
        if Feature::Requests.is_active(&exchanged) && stream.chance(1, 2) {
            return space.pattern_step(&exchanged, stream).swapped();
        }
        let features: Vec<Feature> = kind::PAIRS
            .into_iter()
            .map(|(first, _)| first)
            .chain([Feature::Service])
            .filter(|f| f.dimension() != Dimension::Pattern && f.is_active(&exchanged))
            .collect();
        let feature = features[stream.below(features.len() as u64) as usize];
        let value = space.next_value(feature, feature.of(&exchanged), stream);
        feature.set(&exchanged, value).swapped()
    }

    fn next_value(&self, feature: Feature, old: u64, stream: &mut Stream) -> u64 {
        let allowed = self.allowed(feature);
        let grid = allowed.grid();
        let near = stream.chance(1, 2) && feature.names().is_none();
        if !near {
            return grid[stream.below(grid.len() as u64) as usize];
        }
        let up = stream.chance(1, 2);
        let next = match up {
            true => grid.iter().copied().find(|&value| value > old),
            false => grid.iter().copied().rev().find(|&value| value < old),
        };
        next.unwrap_or(old)
    }

    fn pattern_step(&self, point: &Point, stream: &mut Stream) -> Point {
        let mut point = point.clone();
        let sizes = self.sizes();
        let size = sizes[stream.below(sizes.len() as u64) as usize];
        let bound = |feature: Feature| match self.allowed(feature) {
            Allowed::Range(_, most) => *most as usize,
            Allowed::Set(values) => values.last().map_or(1, |&most| most as usize),
        };
        let index = stream.below(point.requests.len() as u64) as usize;
        match stream.below(6) {
            0 if point.requests.len() < bound(Feature::Requests) => {
                point.requests.insert(index, vec![size]);
            }
            1 if point.requests.len() > 1 => {
                point.requests.remove(index);
            }
            2 if point.requests[index].len() < bound(Feature::Elements) => {
                point.requests[index].push(size);
            }
            3 if point.requests[index].len() > 1 => {
                point.requests[index].pop();
            }
            4 => point.requests = vec![vec![size]],
            _ => {
                let request = &mut point.requests[index];
                let element = stream.below(request.len() as u64) as usize;
                request[element] = size;
            }
        }
        point
    }
}

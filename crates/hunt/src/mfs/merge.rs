//! Two minimal feature sets of one cause become one.
//!
//! A new set that lies inside a known one is that one. Otherwise the smallest region around both is sampled between
//! the two, outside of all other known ones: where every sample shows the symptom, the region is one anomaly. Limits: two causes whose regions touch
//! look like one, as they would to anybody who sees the device from outside. Source: collie 3.5.2 names the problem
//! (several sets may belong to one fault) and leaves it open.

use super::{FIRST_REPEAT, FeatureSet};
use crate::bench::{Bench, Stop};
use crate::region::Region;
use crate::space::{Point, Space};
use isolane_core::rng::Stream;

/// Points between two regions that have to show the symptom.
const BETWEEN: usize = 6;
/// Draws to find them.
const DRAWS_MAX: usize = 200;

/// What became of a new set.
#[derive(Clone, Debug, PartialEq)]
pub enum Merged {
    /// It is another anomaly.
    New,
    /// It is the known set with this index.
    Known(usize),
    /// Together with the known set of this index it is one anomaly of this region.
    Joined(usize, Region),
}

/// Compares `new` with `known`.
///
/// # Errors
/// As [`Bench::measure`].
pub fn merge(
    bench: &mut Bench<'_>,
    space: &Space,
    known: &[&FeatureSet],
    new: &FeatureSet,
    stream: &mut Stream,
) -> Result<Merged, Stop> {
    let same = || {
        known
            .iter()
            .enumerate()
            .filter(|(_, old)| old.symptom == new.symptom)
    };
    if let Some((index, _)) = same().find(|(_, old)| old.region.covers(&new.region)) {
        return Ok(Merged::Known(index));
    }
    for (index, old) in same() {
        let Some(hull) = old.region.hull(&new.region) else {
            continue;
        };
        let all: Vec<&Region> = known.iter().map(|set| &set.region).collect();
        let between = between(space, &hull, (old, new), &all, stream);
        if between.len() < BETWEEN {
            // A region hardly larger than the two: nothing lies between them.
            if new.region.covers(&old.region) {
                return Ok(Merged::Joined(index, hull));
            }
            continue;
        }
        let decisions = bench.confirm(&between, new.symptom, FIRST_REPEAT)?;
        if decisions.iter().all(|decision| decision.present) {
            return Ok(Merged::Joined(index, hull));
        }
    }
    Ok(Merged::New)
}

fn between(
    space: &Space,
    hull: &Region,
    (old, new): (&FeatureSet, &FeatureSet),
    known: &[&Region],
    stream: &mut Stream,
) -> Vec<Point> {
    let mut found: Vec<Point> = Vec::new();
    for draw in 0..DRAWS_MAX {
        let start = if draw % 2 == 0 {
            &old.witness
        } else {
            &new.witness
        };
        let point = hull.sample(space, start, stream);
        // A point of a third anomaly shows the symptom and says nothing of these two.
        let elsewhere = known.iter().any(|region| region.has(&point));
        let outside = !elsewhere && !new.region.has(&point);
        if outside && !found.contains(&point) {
            found.push(point);
        }
        if found.len() == BETWEEN {
            break;
        }
    }
    found
}

//! Two minimal feature sets of one cause become one.
//!
//! A new set inside a known one is the known one. Otherwise the smallest region around both is sampled between the two,
//! outside of all other known ones: where every sample shows the symptom, the region is one anomaly. A region with a
//! workload that was tested and found sound is none: anomalies inside it would be skipped and lost. Limits: two causes
//! whose regions touch look like one, as for every observer of the device from outside. Source: collie 3.5.2 names the
//! problem (several sets may belong to one fault) and leaves it open.

use super::{Checks, FIRST_REPEAT, FeatureSet};
use crate::bench::{Bench, Stop};
use crate::region::Region;
use crate::space::{Feature, Point, Space};
use isolane_common_quantities::rng::Stream;

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
    /// Together with the known set of this index it is this one.
    Joined(usize, Box<FeatureSet>),
}

/// Compares `new` with `known`. Fails as [`Bench::measure`] does.
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
        let hull = old.region.hull(&new.region);
        let Some(hull) = hull.map(|hull| hull.bare(space)) else {
            continue;
        };
        if hull.features.is_empty() || sound(old).chain(sound(new)).any(|point| hull.has(point)) {
            continue;
        }
        let all: Vec<&Region> = known.iter().map(|set| &set.region).collect();
        let between = between(space, &hull, (old, new), &all, stream);
        if between.len() < BETWEEN {
            // A region hardly larger than the two: nothing is between them.
            if new.region.covers(&old.region) {
                return Ok(Merged::Joined(index, joined((old, new), hull, 0)));
            }
            continue;
        }
        let decisions = bench.confirm(&between, new.symptom, FIRST_REPEAT)?;
        if decisions.iter().all(|decision| decision.present) {
            return Ok(Merged::Joined(
                index,
                joined((old, new), hull, BETWEEN as u32),
            ));
        }
    }
    Ok(Merged::New)
}

/// Workloads just outside of `set` that were tested and are sound.
fn sound(set: &FeatureSet) -> impl Iterator<Item = &Point> {
    let without_effect = |feature: &Feature| {
        let checks = set.checks.as_ref();
        checks.is_some_and(|checks| checks.broken_without_effect.contains(feature))
    };
    let outside = set.outside.iter();
    outside
        .filter(move |(feature, _)| !without_effect(feature))
        .flat_map(|(_, points)| points)
}

/// Both as one set of `region`; so many workloads `between` them showed the symptom too.
fn joined((old, new): (&FeatureSet, &FeatureSet), region: Region, between: u32) -> Box<FeatureSet> {
    let mut set = old.clone();
    for (&feature, points) in &new.outside {
        set.outside
            .entry(feature)
            .or_default()
            .extend(points.clone());
    }
    set.outside.retain(|feature, points| {
        points.retain(|point| !region.has(point));
        region.features.contains_key(feature) && !points.is_empty()
    });
    set.unsure.extend(&new.unsure);
    set.unsure.sort_unstable();
    set.unsure.dedup();
    set.checks = old
        .checks
        .as_ref()
        .zip(new.checks.as_ref())
        .map(|(old, new)| {
            let mut broken = [&old.broken_without_effect[..], &new.broken_without_effect].concat();
            broken.retain(|feature| region.features.contains_key(feature));
            broken.sort_unstable();
            broken.dedup();
            Checks {
                reproduces: old.reproduces && new.reproduces,
                broken_without_effect: broken,
                tried: old.tried + new.tried + between,
                shown: old.shown + new.shown + between,
            }
        });
    set.region = region;
    Box::new(set)
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

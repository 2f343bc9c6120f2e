//! The last look at a minimal feature set, with random numbers that it has not seen.
//!
//! The witness has to show the symptom, and no point of `outside` may: both are sequential tests. How many random points
//! inside show it too, `refine` has counted.

use super::refine::Inside;
use super::{Checks, FRESH_REPEAT, FeatureSet};
use crate::bench::{Bench, Stop};
use crate::space::{Feature, Point};

/// See the module.
pub(super) fn verify(
    bench: &mut Bench<'_>,
    set: &FeatureSet,
    inside: Inside,
) -> Result<Checks, Stop> {
    let outside: Vec<(Feature, &Point)> = set
        .outside
        .iter()
        .flat_map(|(&feature, points)| points.iter().map(move |point| (feature, point)))
        .collect();
    let mut points = vec![set.witness.clone()];
    points.extend(outside.iter().map(|(_, point)| (*point).clone()));
    let decisions = bench.confirm(&points, set.symptom, FRESH_REPEAT)?;
    let mut broken: Vec<Feature> = outside
        .iter()
        .zip(&decisions[1..])
        .filter(|(_, decision)| decision.present)
        .map(|((feature, _), _)| *feature)
        .collect();
    broken.dedup();
    Ok(Checks {
        reproduces: decisions[0].present,
        broken_without_effect: broken,
        tried: inside.tried,
        shown: inside.shown,
    })
}

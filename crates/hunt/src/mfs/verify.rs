//! The last look at a minimal feature set, with random numbers that it has not seen.
//!
//! The witness has to show the symptom, and no point of `outside` may: both are sequential tests. Some random points
//! inside are run once each, to say how much of the region is as anomalous as the witness.

use super::{Checks, FRESH_REPEAT, FeatureSet};
use crate::bench::{Bench, Stop};
use crate::space::{Feature, Point, Space};
use isolane_core::rng::Stream;

/// Random points inside.
const INSIDE: u32 = 8;

/// See the module.
pub(super) fn verify(
    bench: &mut Bench<'_>,
    space: &Space,
    set: &FeatureSet,
    stream: &mut Stream,
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
    let inside: Vec<(Point, u32)> = (0..INSIDE)
        .map(|_| (set.region.sample(space, &set.witness, stream), FRESH_REPEAT))
        .collect();
    let results = bench.measure(&inside)?;
    let shown = inside
        .iter()
        .zip(&results)
        .filter(|((point, _), measured)| bench.judge(point, measured).symptom == Some(set.symptom));
    Ok(Checks {
        reproduces: decisions[0].present,
        broken_without_effect: broken,
        tried: INSIDE,
        shown: shown.count() as u32,
    })
}

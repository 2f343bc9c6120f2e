//! The conditions of a finding of a search, tested feature by feature from the corner of its region.
//!
//! Problem: a search reduces in about ten runs. The limits of its numbers are then rough, its witness may be far inside the region,
//! where other conditions are weak (with 8,192 queue pairs a depth of 8 suffices), and a condition that the mild workload meets is not
//! seen. Method: every number that deviates goes towards its mild value as far as the symptom stays, queue pairs first. The witness is
//! then at the corner: no number can go further, so other conditions are at their strictest. From there `limits` moves every
//! feature to each other value, also features that the mild workload has. The service and choices that deviate keep the value of the
//! witness, with which everything else is tested. A workload in the region of another anomaly counts as one without the symptom. Limits: some 60 runs; a number that trades against another has the
//! limit that it has beside the mild value of the other. Source: ours.

use super::FeatureSet;
use super::limits::{Tests, limits};
use crate::bench::{Bench, Stop};
use crate::region::Region;
use crate::space::{Allowed, Feature, Point, Space};

/// Numbers that go towards their mild values, in this order: queue pairs first, since they limit the depth.
const NUMBERS: [Feature; 9] = [
    Feature::QueuePairs,
    Feature::Regions,
    Feature::PostList,
    Feature::ReceiveBatch,
    Feature::Depth,
    Feature::ReceiveDepth,
    Feature::Requests,
    Feature::Elements,
    Feature::Smallest,
];

/// The conditions of `found`, a finding with one kind of traffic, tested from its corner. Other anomalies of its symptom have the
/// regions `known`. Fails as [`Bench::measure`] does.
pub fn corner(
    bench: &mut Bench<'_>,
    space: &Space,
    found: &FeatureSet,
    known: &[&Region],
) -> Result<FeatureSet, Stop> {
    let known: Vec<&Region> = known
        .iter()
        .copied()
        .filter(|region| !region.has(&found.witness))
        .collect();
    let mut witness = found.witness.clone();
    let mild = space.mild(witness.service).into_iter().next();
    let mild = mild.unwrap_or_else(|| witness.clone());
    let mut tests = Tests {
        bench,
        symptom: found.symptom,
        known: &known,
    };
    for feature in NUMBERS {
        // A mixed pattern has no size that could go to the mild one, and with fewer elements it is not mixed.
        let mixes = [Feature::Elements, Feature::Smallest].contains(&feature);
        if feature.is_active(&witness) && (witness.is_uniform() || !mixes) {
            witness = nearer(&mut tests, space, witness, (feature, feature.of(&mild)))?;
        }
    }
    let mut set = limits(bench, space, witness, found.symptom, &known)?;
    let own = |feature: Feature| Allowed::Set(vec![feature.of(&found.witness)]);
    let deviates = |f: &Feature| f.names().is_some() && f.of(&found.witness) != f.of(&mild);
    let choices = found.region.features.keys().copied().filter(deviates);
    for feature in choices.chain([Feature::Service]) {
        set.region.features.insert(feature, own(feature));
    }
    Ok(set)
}

/// `witness` with `feature` as near to `mild` as the symptom stays, by bisection of the grid.
fn nearer(
    tests: &mut Tests<'_, '_>,
    space: &Space,
    witness: Point,
    (feature, mild): (Feature, u64),
) -> Result<Point, Stop> {
    let own = feature.of(&witness);
    let mut values = space.allowed(feature).grid();
    values.retain(|&v| own.min(mild) < v && v < own.max(mild));
    if own > mild {
        values.reverse();
    }
    values.extend((own != mild).then_some(mild));
    let points = values
        .into_iter()
        .filter_map(|v| space.with(&witness, feature, v));
    let points: Vec<Point> = points.collect();
    let Some(last) = points.last() else {
        return Ok(witness);
    };
    if tests.shows(last)? {
        return Ok(last.clone());
    }
    // Points below `shown` show the symptom, those from `sound` on do not.
    let (mut shown, mut sound) = (0, points.len() - 1);
    while shown < sound {
        let middle = shown.midpoint(sound);
        match tests.shows(&points[middle])? {
            true => shown = middle + 1,
            false => sound = middle,
        }
    }
    let reached = shown.checked_sub(1).map(|index| points[index].clone());
    Ok(reached.unwrap_or(witness))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::Symptom;
    use crate::synthetic::{Synthetic, bench, fault, space};

    /// The search saw neither the short lists nor the receive queue, which the mild workload has, and left many queue pairs.
    #[test]
    fn conditions_that_the_mild_workload_meets_are_named_with_their_limits() {
        let space = space();
        let conditions = [
            (Feature::Service, Allowed::Set(vec![5])),
            (Feature::QueuePairs, Allowed::Range(64, 20_000)),
            (Feature::PostList, Allowed::Range(1, 16)),
            (Feature::ReceiveDepth, Allowed::Range(256, 8_192)),
        ];
        let target = Synthetic {
            faults: vec![fault(Symptom::PauseFrames, &conditions)],
            ..Synthetic::default()
        };
        let found = FeatureSet {
            region: Region {
                features: [conditions[0].clone()].into(),
            },
            ..FeatureSet::of(
                Symptom::PauseFrames,
                Point {
                    queue_pairs: 8_192,
                    depth: 128,
                    ..space.mild(5)[0].clone()
                },
            )
        };
        let mut bench = bench(&target, u64::MAX, 1);
        let set = corner(&mut bench, &space, &found, &[]).unwrap();
        assert_eq!(
            set.region.text(&space),
            "service = ud-send, queue_pairs >= 64, post_list <= 16, receive_depth >= 256"
        );
        assert_eq!(set.witness.queue_pairs, 64);
        let runs = bench.spent().experiments;
        assert!(runs <= 90, "{runs}");
    }
}

//! Conditions that the tests of single features missed, found by points inside that do not show the symptom.
//!
//! Problem: features are tested one at a time around one witness, so a condition that only shows together with another
//! (deep queues matter once there are many) is not seen, and a simplification that slid into another anomaly leaves a
//! region that covers both. Either hides what is left in it, since known regions are skipped. Method: random points
//! inside are run. Where more than one does not show the symptom, the features in which it differs from the witness are
//! carried over half by half, until one is left whose change ends the symptom; the region loses that value and the
//! values beyond it. A few rounds of that are made, each with new points. Source: ours; counterexamples refine
//! abstractions in the same way.

use super::{FRESH_REPEAT, FeatureSet};
use crate::bench::{Bench, Stop};
use crate::monitor::Judgement;
use crate::space::{Allowed, Feature, Point, Space};
use isolane_common_quantities::rng::Stream;

/// Random points inside, each round.
pub(super) const INSIDE: u32 = 8;
/// Of them those that may not show the symptom.
const SILENT_MAX: u32 = 1;
/// Rounds at most: every one may take a dozen experiments.
const ROUNDS_MAX: u32 = 4;

/// How many random points inside show the symptom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inside {
    pub(super) tried: u32,
    pub(super) shown: u32,
}

/// Narrows the region of `set` until random points inside show its symptom, or rounds end.
pub(super) fn refine(
    bench: &mut Bench<'_>,
    space: &Space,
    set: &mut FeatureSet,
    stream: &mut Stream,
) -> Result<Inside, Stop> {
    let mut round = 0;
    loop {
        let batch: Vec<(Point, u32)> = (0..INSIDE)
            .map(|_| (set.region.sample(space, &set.witness, stream), FRESH_REPEAT))
            .collect();
        let results = bench.measure(&batch)?;
        let points = batch.iter().map(|(point, _)| point);
        let seen: Vec<Judgement> = points
            .zip(&results)
            .map(|(point, measured)| bench.judge(point, measured))
            .collect();
        let silent: Vec<usize> = (0..seen.len()).filter(|&i| seen[i].is_sound()).collect();
        let shown = seen.iter().filter(|one| one.symptom == Some(set.symptom));
        let inside = Inside {
            tried: INSIDE,
            shown: shown.count() as u32,
        };
        if silent.len() as u32 <= SILENT_MAX || round == ROUNDS_MAX {
            return Ok(inside);
        }
        round += 1;
        let mut narrowed = false;
        for &index in &silent {
            let point = &batch[index].0;
            // An earlier one of this round may have put it outside.
            if set.region.has(point) {
                narrowed |= exclude(bench, space, set, point)?;
            }
        }
        if !narrowed {
            return Ok(inside);
        }
    }
}

/// Takes the change that ends the symptom on the way from the witness to `silent` out of the region; false where the way
/// does not end it.
fn exclude(
    bench: &mut Bench<'_>,
    space: &Space,
    set: &mut FeatureSet,
    silent: &Point,
) -> Result<bool, Stop> {
    let steps = path(space, &set.witness, silent);
    let (mut shows, mut sound) = (0, steps.len());
    if sound < 2 {
        return Ok(false);
    }
    sound -= 1;
    let last = (steps[sound].1.clone(), FRESH_REPEAT);
    let measured = bench.measure(std::slice::from_ref(&last))?;
    if bench.judge(&last.0, &measured[0]).symptom.is_some() {
        // Not every change could be carried over, and the one that matters was not.
        return Ok(false);
    }
    while sound - shows > 1 {
        let middle = shows.midpoint(sound);
        let point = &steps[middle].1;
        let measured = bench.measure(&[(point.clone(), FRESH_REPEAT)])?;
        match bench.judge(point, &measured[0]).symptom {
            Some(_) => shows = middle,
            None => sound = middle,
        }
    }
    let (feature, point) = &steps[sound];
    let Some(feature) = *feature else {
        return Ok(false);
    };
    let (own, other) = (feature.of(&set.witness), feature.of(point));
    let known = set.region.features.get(&feature);
    let Some(allowed) = without(known.unwrap_or(space.allowed(feature)), own, other) else {
        return Ok(false);
    };
    set.region.features.insert(feature, allowed);
    set.outside.entry(feature).or_default().push(point.clone());
    Ok(true)
}

/// Points from `from` towards `to`, one feature more at a time, with the feature that the step changed; the first is
/// `from`. A change that is not valid where it comes is left out.
pub(super) fn path(space: &Space, from: &Point, to: &Point) -> Vec<(Option<Feature>, Point)> {
    let mut steps = vec![(None, from.clone())];
    for feature in Feature::ALL {
        let last = &steps[steps.len() - 1].1;
        let value = feature.of(to);
        if !feature.is_active(to) || feature.of(last) == value {
            continue;
        }
        if let Some(next) = space.with(last, feature, value) {
            steps.push((Some(feature), next));
        }
    }
    steps
}

/// `allowed` without `other` and the values beyond it, seen from `own`; none where nothing changes.
pub(super) fn without(allowed: &Allowed, own: u64, other: u64) -> Option<Allowed> {
    match allowed {
        Allowed::Set(values) => {
            let rest: Vec<u64> = values.iter().copied().filter(|&v| v != other).collect();
            let fewer = rest.len() < values.len() && rest.contains(&own);
            fewer.then_some(Allowed::Set(rest))
        }
        Allowed::Range(least, most) => {
            let grid = allowed.grid();
            let range = match other > own {
                true => (
                    *least,
                    grid.into_iter().filter(|&v| v < other).max()?.max(own),
                ),
                false => (grid.into_iter().find(|&v| v > other)?.min(own), *most),
            };
            (range != (*least, *most)).then_some(Allowed::Range(range.0, range.1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::Symptom;
    use crate::region::Region;
    use crate::space::tests::plain;
    use crate::synthetic::{Synthetic, bench, fault, space};
    use std::collections::BTreeMap;

    #[test]
    fn the_value_and_the_values_beyond_it_leave() {
        let range = Allowed::Range(1, 128);
        assert_eq!(without(&range, 64, 4), Some(Allowed::Range(8, 128)));
        assert_eq!(without(&range, 4, 64), Some(Allowed::Range(1, 32)));
        assert_eq!(without(&range, 3, 4), Some(Allowed::Range(1, 3)));
        let set = Allowed::Set(vec![0, 2]);
        assert_eq!(without(&set, 0, 2), Some(Allowed::Set(vec![0])));
        assert_eq!(without(&set, 0, 1), None);
    }

    #[test]
    fn a_region_that_is_too_broad_is_cut_to_the_fault() {
        let conditions = [
            (Feature::Service, Allowed::Set(vec![1])),
            (Feature::PostList, Allowed::Range(16, 128)),
            (Feature::QueuePairs, Allowed::Range(1, 64)),
        ];
        let target = Synthetic {
            faults: vec![fault(Symptom::PauseFrames, &conditions)],
            ..Synthetic::default()
        };
        let space = space();
        let witness = Point {
            post_list: 64,
            ..plain()
        };
        let mut set = FeatureSet {
            symptom: Symptom::PauseFrames,
            region: Region::default(),
            witness,
            outside: BTreeMap::new(),
            unsure: Vec::new(),
            checks: None,
        };
        set.region
            .features
            .insert(Feature::Service, Allowed::Set(vec![1]));
        let mut bench = bench(&target, u64::MAX, 1);
        let mut stream = Stream::named(1, "test");
        let inside = refine(&mut bench, &space, &mut set, &mut stream).unwrap();
        assert!(inside.shown >= inside.tried - SILENT_MAX, "{inside:?}");
        for (feature, allowed) in &conditions {
            let found = set.region.features.get(feature).expect("it is a condition");
            let missed = |value: &u64| found.has(*value) && !allowed.has(*value);
            let grid = space.allowed(*feature).grid();
            assert!(
                grid.iter().filter(|v| missed(v)).count() <= 2,
                "{feature:?} {found:?}"
            );
        }
        assert!(bench.spent().experiments < 90, "{:?}", bench.spent());
    }
}

//! The values of every feature for which the symptom stays, the others as they are.
//!
//! A choice keeps the alternatives that show the symptom. A number has two sides, down and up to the ends of its
//! grid as far as they are valid; an end that shows the symptom frees the side, another is bisected. All features
//! are tested in the same batches, so that many cores help.

use super::{FIRST_REPEAT, FeatureSet};
use crate::bench::{Bench, Stop};
use crate::monitor::Symptom;
use crate::space::{Allowed, Feature, Point, Space};
use crate::sprt::Decision;
use std::collections::BTreeSet;

/// One side of a number's range: values from the witness outwards.
struct Side {
    feature: Feature,
    /// The witness's own value first; every one gives a valid point.
    values: Vec<u64>,
    /// Index of the last value known to show the symptom.
    shows: usize,
    /// Index of the first known not to; the length where the whole side shows it.
    sound: usize,
}

/// See the module.
pub(super) fn limits(
    bench: &mut Bench<'_>,
    space: &Space,
    witness: Point,
    symptom: Symptom,
) -> Result<FeatureSet, Stop> {
    let mut set = FeatureSet::of(symptom, witness);
    let mut unsure = BTreeSet::new();
    choices(bench, space, &mut set, &mut unsure)?;
    let sides = numbers(bench, space, &set.witness, symptom, &mut unsure)?;
    for feature in numeric(&set.witness) {
        let own: Vec<&Side> = sides
            .iter()
            .filter(|side| side.feature == feature)
            .collect();
        take(space, &mut set, feature, &own);
    }
    set.unsure = unsure.into_iter().collect();
    Ok(set)
}

/// Features that are choices, MTUs among them.
fn is_choice(space: &Space, feature: Feature) -> bool {
    matches!(space.allowed(feature), Allowed::Set(_))
}

/// Features that are ranges for `witness`. In a uniform pattern the smallest element represents all.
fn numeric(witness: &Point) -> Vec<Feature> {
    let uniform = witness.is_uniform();
    Feature::ALL
        .into_iter()
        .filter(|feature| feature.is_active(witness))
        .filter(|&feature| !(uniform && feature == Feature::Largest))
        .collect()
}

fn choices(
    bench: &mut Bench<'_>,
    space: &Space,
    set: &mut FeatureSet,
    unsure: &mut BTreeSet<Feature>,
) -> Result<(), Stop> {
    let mut tried: Vec<(Feature, u64, Point)> = Vec::new();
    for feature in Feature::ALL.into_iter().filter(|&f| is_choice(space, f)) {
        let own = feature.of(&set.witness);
        let others = space
            .allowed(feature)
            .grid()
            .into_iter()
            .filter(|&value| value != own);
        let valid =
            others.filter_map(|value| Some((value, space.with(&set.witness, feature, value)?)));
        tried.extend(valid.map(|(value, point)| (feature, value, point)));
    }
    let points: Vec<Point> = tried.iter().map(|(_, _, point)| point.clone()).collect();
    let decisions = bench.confirm(&points, set.symptom, FIRST_REPEAT)?;
    for feature in Feature::ALL.into_iter().filter(|&f| is_choice(space, f)) {
        let mine = || {
            tried
                .iter()
                .zip(&decisions)
                .filter(|((f, ..), _)| *f == feature)
        };
        note(unsure, feature, mine().map(|(_, decision)| decision));
        let sound = mine().filter(|(_, decision)| !decision.present);
        let Some(((_, _, outside), _)) = sound.clone().next() else {
            continue;
        };
        let mut values = vec![feature.of(&set.witness)];
        values.extend(
            mine()
                .filter(|(_, d)| d.present)
                .map(|((_, value, _), _)| *value),
        );
        values.sort_unstable();
        set.region.features.insert(feature, Allowed::Set(values));
        set.outside.insert(feature, vec![outside.clone()]);
    }
    Ok(())
}

fn note<'a>(
    unsure: &mut BTreeSet<Feature>,
    feature: Feature,
    mut decisions: impl Iterator<Item = &'a Decision>,
) {
    if decisions.any(|decision| !decision.sure) {
        unsure.insert(feature);
    }
}

/// Both sides of every numeric feature, bisected.
fn numbers(
    bench: &mut Bench<'_>,
    space: &Space,
    witness: &Point,
    symptom: Symptom,
    unsure: &mut BTreeSet<Feature>,
) -> Result<Vec<Side>, Stop> {
    let mut sides: Vec<Side> = numeric(witness)
        .into_iter()
        .filter(|&feature| !is_choice(space, feature))
        .flat_map(|feature| [false, true].map(|up| side(space, witness, feature, up)))
        .filter(|side| side.values.len() > 1)
        .collect();
    let at = |side: &Side, index: usize| side.feature.set(witness, side.values[index]);
    let ends: Vec<Point> = sides
        .iter()
        .map(|side| at(side, side.values.len() - 1))
        .collect();
    let decisions = bench.confirm(&ends, symptom, FIRST_REPEAT)?;
    for (side, decision) in sides.iter_mut().zip(&decisions) {
        note(unsure, side.feature, std::iter::once(decision));
        match decision.present {
            true => side.shows = side.values.len() - 1,
            false => side.sound = side.values.len() - 1,
        }
    }
    loop {
        let open: Vec<usize> = (0..sides.len())
            .filter(|&index| sides[index].sound - sides[index].shows > 1)
            .filter(|&index| sides[index].sound < sides[index].values.len())
            .collect();
        if open.is_empty() {
            break;
        }
        let middle = |side: &Side| side.shows.midpoint(side.sound);
        let batch: Vec<(Point, u32)> = open
            .iter()
            .map(|&index| (at(&sides[index], middle(&sides[index])), FIRST_REPEAT))
            .collect();
        let results = bench.measure(&batch)?;
        for ((&index, (point, _)), measured) in open.iter().zip(&batch).zip(&results) {
            let middle = middle(&sides[index]);
            match bench.judge(point, measured).symptom == Some(symptom) {
                true => sides[index].shows = middle,
                false => sides[index].sound = middle,
            }
        }
    }
    // The last values that showed it did so once; where that was luck, only the witness's own value counts.
    let moved: Vec<usize> = (0..sides.len())
        .filter(|&index| sides[index].shows > 0 && sides[index].sound < sides[index].values.len())
        .collect();
    let points: Vec<Point> = moved
        .iter()
        .map(|&index| at(&sides[index], sides[index].shows))
        .collect();
    let decisions = bench.confirm(&points, symptom, FIRST_REPEAT)?;
    for (&index, decision) in moved.iter().zip(&decisions) {
        note(unsure, sides[index].feature, std::iter::once(decision));
        if !decision.present {
            sides[index].shows = 0;
        }
    }
    Ok(sides)
}

fn side(space: &Space, witness: &Point, feature: Feature, up: bool) -> Side {
    let own = feature.of(witness);
    let mut values: Vec<u64> = space
        .allowed(feature)
        .grid()
        .into_iter()
        .filter(|&value| if up { value > own } else { value < own })
        .filter(|&value| space.with(witness, feature, value).is_some())
        .collect();
    if !up {
        values.reverse();
    }
    values.insert(0, own);
    Side {
        feature,
        sound: values.len(),
        values,
        shows: 0,
    }
}

/// The condition that the sides of `feature` make, if any.
fn take(space: &Space, set: &mut FeatureSet, feature: Feature, sides: &[&Side]) {
    let grid = match space.allowed(feature) {
        Allowed::Set(_) => return,
        Allowed::Range(least, most) => (*least, *most),
    };
    let own = feature.of(&set.witness);
    let mixed = !set.witness.is_uniform();
    // The end of a free side is the space's, except where a mixed pattern would become a uniform one.
    let mut range = grid;
    if mixed && feature == Feature::Smallest {
        range.1 = own;
    }
    if mixed && feature == Feature::Largest {
        range.0 = own;
    }
    let mut outside = Vec::new();
    for side in sides {
        let up = side.values[side.values.len() - 1] > own;
        let reached = side.values[side.shows];
        if side.sound < side.values.len() {
            outside.push(feature.set(&set.witness, side.values[side.sound]));
            match up {
                true => range.1 = reached,
                false => range.0 = reached,
            }
        } else if mixed && feature == Feature::Smallest && up {
            range.1 = reached;
        } else if mixed && feature == Feature::Largest && !up {
            range.0 = reached;
        }
    }
    if range == grid {
        return;
    }
    let allowed = Allowed::Range(range.0, range.1);
    if !mixed && feature == Feature::Smallest {
        set.region
            .features
            .insert(Feature::Largest, allowed.clone());
    }
    set.region.features.insert(feature, allowed);
    if !outside.is_empty() {
        set.outside.insert(feature, outside);
    }
}

//! The values of every feature for which the symptom stays, the others as they are.
//!
//! A choice keeps the alternatives that show the symptom. A number has two sides, down and up to the ends of its
//! grid as far as they are valid; an end that shows the symptom frees the side, another is bisected. All features
//! are tested in the same batches, so that many cores help.

use super::{FIRST_REPEAT, FeatureSet};
use crate::bench::{Bench, Stop};
use crate::monitor::Symptom;
use crate::region::Region;
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
///
/// A number that leads into one of the regions `known` counts as sound there: another anomaly shows the symptom.
pub(super) fn limits(
    bench: &mut Bench<'_>,
    space: &Space,
    witness: Point,
    symptom: Symptom,
    known: &[&Region],
) -> Result<FeatureSet, Stop> {
    let mut set = FeatureSet::of(symptom, witness);
    let mut unsure = BTreeSet::new();
    let mut tests = Tests {
        bench,
        symptom,
        known,
    };
    choices(&mut tests, space, &mut set, &mut unsure)?;
    let sides = numbers(&mut tests, space, &set.witness, &mut unsure)?;
    for feature in numeric(&set.witness) {
        let own: Vec<&Side> = sides
            .iter()
            .filter(|side| side.feature == feature)
            .collect();
        take(space, &mut set, feature, &own);
    }
    fewer_receives(&mut tests, space, &mut set)?;
    set.unsure = unsure.into_iter().collect();
    Ok(set)
}

/// Whether points show one symptom, outside of known regions.
pub(super) struct Tests<'a, 'b> {
    pub(super) bench: &'a mut Bench<'b>,
    pub(super) symptom: Symptom,
    pub(super) known: &'a [&'a Region],
}

impl Tests<'_, '_> {
    fn is_known(&self, point: &Point) -> bool {
        self.known.iter().any(|region| region.has(point))
    }

    /// Of one run of each point, in their order.
    fn each_shows(&mut self, points: &[Point]) -> Result<Vec<bool>, Stop> {
        let batch: Vec<(Point, u32)> = points.iter().map(|p| (p.clone(), FIRST_REPEAT)).collect();
        let results = self.bench.measure(&batch)?;
        let each = points.iter().zip(&results).map(|(point, measured)| {
            let symptom = self.bench.judge(point, measured).symptom;
            symptom == Some(self.symptom) && !self.is_known(point)
        });
        Ok(each.collect())
    }

    /// Of one run.
    pub(super) fn shows(&mut self, point: &Point) -> Result<bool, Stop> {
        Ok(!self.is_known(point) && self.each_shows(std::slice::from_ref(point))?[0])
    }

    /// Tested sequentially.
    fn confirm(&mut self, points: &[Point]) -> Result<Vec<Decision>, Stop> {
        let decisions = self.bench.confirm(points, self.symptom, FIRST_REPEAT)?;
        let each = points
            .iter()
            .zip(decisions)
            .map(|(point, decision)| Decision {
                present: decision.present && !self.is_known(point),
                ..decision
            });
        Ok(each.collect())
    }
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
    tests: &mut Tests<'_, '_>,
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
    // Another value may show another anomaly: this says nothing against the value.
    let decisions = tests.bench.confirm(&points, set.symptom, FIRST_REPEAT)?;
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
    tests: &mut Tests<'_, '_>,
    space: &Space,
    witness: &Point,
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
    let decisions = tests.confirm(&ends)?;
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
        let points = open
            .iter()
            .map(|&index| at(&sides[index], middle(&sides[index])));
        let points: Vec<Point> = points.collect();
        for (&index, shows) in open.iter().zip(tests.each_shows(&points)?) {
            let middle = middle(&sides[index]);
            match shows {
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
    let decisions = tests.confirm(&points)?;
    for (&index, decision) in moved.iter().zip(&decisions) {
        note(unsure, sides[index].feature, std::iter::once(decision));
        if !decision.present {
            sides[index].shows = 0;
        }
    }
    Ok(sides)
}

/// Looks for the least receives, where the depth of the witness excludes fewer than it has. Each shorter receive queue gets the
/// deepest send queue that it holds. It is a condition where the witness with the same send queue shows the symptom.
fn fewer_receives(
    tests: &mut Tests<'_, '_>,
    space: &Space,
    set: &mut FeatureSet,
) -> Result<(), Stop> {
    let feature = Feature::ReceiveDepth;
    let witness = set.witness.clone();
    if !feature.is_active(&witness) || set.outside.contains_key(&feature) {
        return Ok(());
    }
    let own = feature.of(&witness);
    let (grid, mut reached) = (space.allowed(feature).grid(), own);
    for value in grid.into_iter().rev().filter(|&value| value < own) {
        if space.with(&witness, feature, value).is_some() {
            reached = value;
            continue;
        }
        let depths = space.allowed(Feature::Depth).grid().into_iter().rev();
        let mut shallower = depths
            .filter(|&depth| depth < witness.depth)
            .filter_map(|depth| {
                let same = space.with(&witness, Feature::Depth, depth)?;
                Some((space.with(&same, feature, value)?, same))
            });
        let Some((fewer, same)) = shallower.next() else {
            break;
        };
        if tests.shows(&fewer)? {
            reached = value;
            continue;
        }
        if let Allowed::Range(_, most) = *space.allowed(feature)
            && tests.shows(&same)?
        {
            let allowed = Allowed::Range(reached, most);
            set.region.features.insert(feature, allowed);
            set.outside.insert(feature, vec![fewer]);
        }
        break;
    }
    Ok(())
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

//! A first idea of an anomaly's region, at a third of what the tested one costs.
//!
//! Problem: a hunt that reduces with tests as it goes spends most of its experiments on reductions, and what is left
//! finds few anomalies. For the search a rough region of a known anomaly is enough, so the search continues elsewhere;
//! that the conditions are right can be tested when the search is over. Method: every feature goes to its mildest value
//! where that keeps the symptom. What would not go has its limit towards the mild side, found by bisection; its other
//! choices are tried. Everything else counts as free until a random point inside is sound: on the way there from the
//! witness one feature ends it, and its limit is found likewise. Three points in a row that show it end this. A point
//! inside with another symptom says nothing: there something else comes first.
//!
//! All of it is single runs, without error rates; `crate::mfs::reduce` starts from the witness and tests. Limits: points of
//! other known anomalies of the symptom are left out, those of unknown ones make the region too broad until it is tested.
//! Source: ours; group testing (Dorfman, 1943).

use super::refine::{path, without};
use super::simplify::{mildest, simplify};
use super::{FIRST_REPEAT, FeatureSet};
use crate::bench::{Bench, Stop};
use crate::monitor::Symptom;
use crate::region::Region;
use crate::space::{Allowed, Feature, Point, Space};
use isolane_common_quantities::rng::Stream;

/// Points inside that have to show the symptom one after the other.
const IN_A_ROW: u32 = 3;
/// Points inside that are tried at most.
const TRIED_MAX: u32 = 24;
/// Draws for a point inside that is in no other known anomaly.
const DRAWS_MAX: u32 = 30;

/// Reduces `point`, an experiment that showed `symptom`, roughly; none where it does not show it again. `known` are regions
/// of the same symptom. Fails as [`Bench::measure`] does.
pub fn rough(
    bench: &mut Bench<'_>,
    space: &Space,
    (point, symptom): (&Point, Symptom),
    known: &[&Region],
    stream: &mut Stream,
) -> Result<Option<FeatureSet>, Stop> {
    let witness = simplify(bench, space, point, symptom, known)?;
    let shown = bench.confirm(std::slice::from_ref(&witness), symptom, FIRST_REPEAT)?;
    if !shown[0].present {
        return Ok(None);
    }
    let set = FeatureSet::of(symptom, witness);
    let mut rough = Rough {
        bench,
        space,
        set,
        known,
    };
    rough.stubborn()?;
    rough.others(stream)?;
    Ok(Some(rough.set))
}

/// One under way.
struct Rough<'a, 'b> {
    bench: &'a mut Bench<'b>,
    space: &'a Space,
    set: FeatureSet,
    known: &'a [&'a Region],
}

impl Rough<'_, '_> {
    fn is_known(&self, point: &Point) -> bool {
        self.known.iter().any(|region| region.has(point))
    }

    fn seen(&mut self, point: &Point) -> Result<Option<Symptom>, Stop> {
        let measured = self.bench.measure(&[(point.clone(), FIRST_REPEAT)])?;
        Ok(self.bench.judge(point, &measured[0]).symptom)
    }

    fn shows(&mut self, point: &Point) -> Result<bool, Stop> {
        Ok(self.seen(point)? == Some(self.set.symptom))
    }

    /// Features that would not go to their mildest value.
    fn stubborn(&mut self) -> Result<(), Stop> {
        let witness = self.set.witness.clone();
        for feature in Feature::ALL.into_iter().filter(|f| f.is_active(&witness)) {
            let own = feature.of(&witness);
            match self.space.allowed(feature).clone() {
                Allowed::Set(values) => {
                    let mild = mildest(feature);
                    let wants = mild.is_none_or(|mild| {
                        let nearest = values.iter().min_by_key(|v| v.abs_diff(mild));
                        nearest.is_some_and(|&value| value != own)
                    });
                    if wants && values.len() > 1 {
                        self.choices(feature, &values)?;
                    }
                }
                range @ Allowed::Range(..) => {
                    let Some(mild) = mildest(feature).map(|mild| range.nearest(mild)) else {
                        continue;
                    };
                    if mild != own {
                        self.limit(feature, mild)?;
                    }
                }
            }
        }
        if !witness.is_uniform() {
            self.mixed();
        }
        Ok(())
    }

    /// Keeps those of `values` that show the symptom.
    fn choices(&mut self, feature: Feature, values: &[u64]) -> Result<(), Stop> {
        let own = feature.of(&self.set.witness);
        let mut kept = vec![own];
        let mut outside = Vec::new();
        for &value in values.iter().filter(|&&value| value != own) {
            let Some(point) = self.space.with(&self.set.witness, feature, value) else {
                continue;
            };
            if self.is_known(&point) {
                continue;
            }
            match self.shows(&point)? {
                true => kept.push(value),
                false => outside.push(point),
            }
        }
        if !outside.is_empty() {
            kept.sort_unstable();
            self.set.region.features.insert(feature, Allowed::Set(kept));
            self.set.outside.insert(feature, outside);
        }
        Ok(())
    }

    /// Bisects `feature` from the witness's value towards `far`, where the symptom ends if it does.
    fn limit(&mut self, feature: Feature, far: u64) -> Result<bool, Stop> {
        let witness = self.set.witness.clone();
        let own = feature.of(&witness);
        let (low, high) = (own.min(far), own.max(far));
        let mut values: Vec<u64> = self.space.allowed(feature).grid();
        values.retain(|&v| low <= v && v <= high && v != own);
        values.retain(|&v| self.space.with(&witness, feature, v).is_some());
        if far < own {
            values.reverse();
        }
        // Values below `shown` show the symptom, those from `sound` on do not.
        let (mut shown, mut sound) = (0, values.len());
        let at = |value: u64| feature.set(&witness, value);
        match values.last() {
            Some(&last) if !self.shows(&at(last))? => sound -= 1,
            _ => return Ok(false),
        }
        while shown < sound {
            let middle = shown.midpoint(sound);
            match self.shows(&at(values[middle]))? {
                true => shown = middle + 1,
                false => sound = middle,
            }
        }
        let reached = match shown {
            0 => own,
            some => values[some - 1],
        };
        let known = self.set.region.features.get(&feature);
        let Allowed::Range(least, most) = *known.unwrap_or(self.space.allowed(feature)) else {
            return Ok(false);
        };
        let allowed = match far < own {
            true => Allowed::Range(reached, most),
            false => Allowed::Range(least, reached),
        };
        self.condition(feature, allowed);
        let outside = self.set.outside.entry(feature).or_default();
        outside.push(at(values[sound]));
        Ok(true)
    }

    fn condition(&mut self, feature: Feature, allowed: Allowed) {
        let features = &mut self.set.region.features;
        // The elements of a uniform pattern are its smallest and its largest.
        if feature == Feature::Smallest && self.set.witness.is_uniform() {
            features.insert(Feature::Largest, allowed.clone());
        }
        features.insert(feature, allowed);
    }

    /// A mixed pattern that would not become uniform stays mixed.
    fn mixed(&mut self) {
        let (small, large) = (
            Feature::Smallest.of(&self.set.witness),
            Feature::Largest.of(&self.set.witness),
        );
        if let Allowed::Range(least, _) = *self.space.allowed(Feature::Smallest) {
            self.condition(Feature::Smallest, Allowed::Range(least, small));
        }
        if let Allowed::Range(_, most) = *self.space.allowed(Feature::Largest) {
            self.condition(Feature::Largest, Allowed::Range(large, most));
        }
    }

    /// Conditions that the witness meets at its mildest, found by points inside that do not show the symptom.
    fn others(&mut self, stream: &mut Stream) -> Result<(), Stop> {
        let mut row = 0;
        for _ in 0..TRIED_MAX {
            let (region, witness) = (&self.set.region, &self.set.witness);
            let mut drawn = (0..DRAWS_MAX).map(|_| region.sample(self.space, witness, stream));
            let Some(point) = drawn.find(|point| !self.is_known(point)) else {
                return Ok(());
            };
            match self.seen(&point)? {
                Some(symptom) if symptom == self.set.symptom => row += 1,
                Some(_) => continue,
                None => {
                    row = 0;
                    self.exclude(&point)?;
                }
            }
            if row == IN_A_ROW {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Finds the feature that ends the symptom on the way to `silent`, and its limit.
    fn exclude(&mut self, silent: &Point) -> Result<(), Stop> {
        let steps = path(self.space, &self.set.witness, silent);
        let (mut shows, mut sound) = (0, steps.len() - 1);
        if sound == 0 || self.seen(&steps[sound].1)?.is_some() {
            // Not every change could be carried over, and the one that matters was not.
            return Ok(());
        }
        while sound - shows > 1 {
            let middle = shows.midpoint(sound);
            match self.seen(&steps[middle].1)? {
                Some(_) => shows = middle,
                None => sound = middle,
            }
        }
        let (Some(feature), point) = (steps[sound].0, &steps[sound].1) else {
            return Ok(());
        };
        let (own, other) = (feature.of(&self.set.witness), feature.of(point));
        if let Allowed::Range(..) = self.space.allowed(feature)
            && self.limit(feature, other)?
        {
            return Ok(());
        }
        // A choice, or a number that ends it only together with what changed before.
        let known = self.set.region.features.get(&feature);
        if let Some(allowed) = without(known.unwrap_or(self.space.allowed(feature)), own, other) {
            self.condition(feature, allowed);
            let outside = self.set.outside.entry(feature).or_default();
            outside.push(point.clone());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::tests::plain;
    use crate::synthetic::{Synthetic, bench, five_faults, space};

    /// A point of fault `index`, otherwise as a hunt would come upon it.
    fn inside(index: usize, stream: &mut Stream) -> Point {
        let (space, fault) = (space(), five_faults().swap_remove(index));
        let start = |stream: &mut Stream| {
            let mut point = space.draw(stream).expect("the space is not empty");
            for (&feature, allowed) in &fault.region.features {
                let mut grid = space.allowed(feature).grid();
                grid.retain(|&value| allowed.has(value));
                let value = grid[stream.below(grid.len() as u64) as usize];
                point = space.with(&point, feature, value).unwrap_or(point);
            }
            point
        };
        let mut drawn = (0..100_000).map(|_| start(stream));
        let found = drawn.find(|point| fault.region.has(point));
        found.expect("the fault is in the space")
    }

    #[test]
    fn a_rough_region_names_the_conditions_for_a_third_of_the_experiments() {
        let mut costs = (0, 0);
        for index in 0..5 {
            let fault = five_faults().swap_remove(index);
            let conditions = fault.region.clone();
            let symptom = fault.symptom;
            let target = Synthetic {
                faults: vec![fault],
                ..Synthetic::default()
            };
            for seed in 0..6 {
                let mut stream = Stream::named(seed, "test");
                let point = inside(index, &mut stream);
                let mut rough_bench = bench(&target, u64::MAX, 1);
                let found = (&point, symptom);
                let set = rough(&mut rough_bench, &space(), found, &[], &mut stream);
                let set = set.unwrap().expect("it shows always");
                let text = format!("{index}, {seed}: {}", set.region.text(&space()));
                assert!(conditions.has(&set.witness), "{text}");
                for feature in conditions.features.keys() {
                    assert!(set.region.features.contains_key(feature), "{text}");
                }
                let mut tested = bench(&target, u64::MAX, 1);
                let full =
                    super::super::reduce(&mut tested, &space(), &point, symptom, &mut stream);
                assert!(full.unwrap().is_some());
                costs.0 += rough_bench.spent().experiments;
                costs.1 += tested.spent().experiments;
            }
        }
        assert!(costs.0 * 5 < costs.1 * 2, "{costs:?}");
    }

    #[test]
    fn what_does_not_show_again_is_dropped() {
        let target = Synthetic::default();
        let mut bench = bench(&target, u64::MAX, 1);
        let mut stream = Stream::named(1, "test");
        let found = (&plain(), Symptom::PauseFrames);
        let set = rough(&mut bench, &space(), found, &[], &mut stream);
        assert!(set.unwrap().is_none());
    }
}

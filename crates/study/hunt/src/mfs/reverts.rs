//! A first idea of an anomaly's region from what deviates, in about ten runs.
//!
//! Problem: a reduction that tries every feature takes some 30 runs, and a hunt then spends nine tenths of its budget on
//! reductions. Method: the point is a mild workload with some deviating factors ([`crate::space::factor`]). Each factor is
//! taken back once; where the symptom stays, so does the mild value. What remains are conditions. The limit of a number is
//! looked for between the witness and the mild value with two runs, and a uniform size is tried at the far end of its
//! range as well, since sizes often matter within a band. All of it is single runs; `crate::mfs::reduce` starts from the
//! witness and tests. Limits: a condition that the mild workload meets is not seen here, so the region may be too broad; a
//! limit is where the last run that showed the symptom was, so it may be too narrow. Source: ours.

use super::{FIRST_REPEAT, FeatureSet};
use crate::bench::{Bench, Stop};
use crate::monitor::Symptom;
use crate::region::Region;
use crate::space::factor::{Factor, OF_A_KIND, REVERTED};
use crate::space::{Allowed, Feature, Point, Space};
use std::collections::BTreeMap;

/// Runs per number in search of its limit.
const LIMIT_RUNS: u32 = 2;

/// Features whose deviation has a limit.
const NUMBERS: [Feature; 16] = [
    Feature::Regions,
    Feature::RegionBytes,
    Feature::QueuePairs,
    Feature::Mtu,
    Feature::PostList,
    Feature::Depth,
    Feature::ReceiveDepth,
    Feature::ReceiveBatch,
    Feature::Requests,
    Feature::SecondQueuePairs,
    Feature::SecondMtu,
    Feature::SecondPostList,
    Feature::SecondDepth,
    Feature::SecondReceiveDepth,
    Feature::SecondReceiveBatch,
    Feature::SecondRequests,
];

/// Features that are choices.
const CHOICES: [Feature; 5] = [
    Feature::Direction,
    Feature::MemoryA,
    Feature::MemoryB,
    Feature::Control,
    Feature::Receives,
];

/// What a reduction starts from.
pub struct Start<'a> {
    /// The workload that showed the symptom.
    pub point: &'a Point,
    /// The symptom.
    pub symptom: Symptom,
    /// The mild workload of its service.
    pub mild: &'a Point,
    /// Regions of the same symptom: workloads inside show it for another reason.
    pub known: &'a [&'a Region],
}

/// Reduces `start` by taking back what deviates. Fails as [`Bench::measure`] does.
pub fn reverts(
    bench: &mut Bench<'_>,
    space: &Space,
    start: &Start<'_>,
) -> Result<FeatureSet, Stop> {
    let mut reverts = Reverts {
        bench,
        space,
        start,
        mild: start.mild.clone(),
        witness: start.point.clone(),
        region: Region::default(),
        outside: BTreeMap::new(),
    };
    reverts.take_back()?;
    reverts.simplify_pattern(false)?;
    reverts.take_back_of_second()?;
    reverts.conditions()?;
    Ok(FeatureSet {
        symptom: start.symptom,
        region: reverts.region,
        witness: reverts.witness,
        outside: reverts.outside,
        unsure: Vec::new(),
        checks: None,
    })
}

/// One under way.
struct Reverts<'a, 'b> {
    bench: &'a mut Bench<'b>,
    space: &'a Space,
    start: &'a Start<'a>,
    /// The mild workload, with a second kind where the witness needs one.
    mild: Point,
    witness: Point,
    region: Region,
    outside: BTreeMap<Feature, Vec<Point>>,
}

impl Reverts<'_, '_> {
    /// Whether `point` shows the symptom, and not because it is in a known region.
    fn shows(&mut self, point: &Point) -> Result<bool, Stop> {
        if self.start.known.iter().any(|region| region.has(point)) {
            return Ok(false);
        }
        let measured = self.bench.measure(&[(point.clone(), FIRST_REPEAT)])?;
        let symptom = self.bench.judge(point, &measured[0]).symptom;
        let same = self.bench.same_resource(self.start.point, point);
        Ok(symptom == Some(self.start.symptom) && same)
    }

    /// Makes every factor mild where the symptom stays.
    fn take_back(&mut self) -> Result<(), Stop> {
        for factor in REVERTED {
            if !factor.deviates(&self.witness, self.start.mild) {
                continue;
            }
            let next = self.space.revert(&self.witness, self.start.mild, factor);
            if let Some(next) = next
                && self.shows(&next)?
            {
                self.witness = next;
            }
        }
        Ok(())
    }

    /// The same for the second kind of traffic, if it stayed.
    fn take_back_of_second(&mut self) -> Result<(), Stop> {
        if self.witness.second.is_none() {
            return Ok(());
        }
        self.mild = self.space.mild_beside(&self.mild, &self.witness);
        let (space, mild) = (self.space.swapped(), self.mild.swapped());
        for &factor in OF_A_KIND {
            let exchanged = self.witness.swapped();
            if !factor.deviates(&exchanged, &mild) {
                continue;
            }
            let next = space.revert(&exchanged, &mild, factor);
            if let Some(next) = next.map(|next| next.swapped())
                && self.shows(&next)?
            {
                self.witness = next;
            }
        }
        self.simplify_pattern(true)
    }

    /// Takes the first of some simpler patterns that shows the symptom, of the second kind of traffic or of the first.
    fn simplify_pattern(&mut self, of_second: bool) -> Result<(), Stop> {
        let exchanged = |point: &Point| match of_second {
            true => point.swapped(),
            false => point.clone(),
        };
        let (own, mild) = (exchanged(&self.witness), exchanged(&self.mild));
        if !Factor::Pattern.deviates(&own, &mild) {
            return Ok(());
        }
        let (small, large) = (Feature::Smallest.of(&own), Feature::Largest.of(&own));
        let elements = Feature::Elements.of(&own) as usize;
        let all = |pattern: &[Vec<u64>]| pattern.iter().map(Vec::len).sum::<usize>();
        let now = all(&own.requests);
        let mild = Feature::Largest.of(&mild);
        let candidates = [
            vec![vec![small]],
            vec![vec![large]],
            vec![vec![small, large]],
            vec![vec![mild; elements]],
            vec![vec![small; elements]],
            vec![vec![large; elements]],
            vec![vec![small], vec![large]],
        ];
        for (index, requests) in candidates.iter().enumerate() {
            let known = candidates[..index].contains(requests);
            let simpler = all(requests) < now
                || (all(requests) == now && requests.len() == 1 && small != large);
            if known || !simpler || *requests == own.requests {
                continue;
            }
            let next = exchanged(&Point {
                requests: requests.clone(),
                ..own.clone()
            });
            if self.space.check(&next).is_ok() && self.shows(&next)? {
                self.witness = next;
                return Ok(());
            }
        }
        Ok(())
    }

    /// What still deviates is a condition.
    fn conditions(&mut self) -> Result<(), Stop> {
        let (witness, mild) = (self.witness.clone(), self.mild.clone());
        let own = |feature: Feature| Allowed::Set(vec![feature.of(&witness)]);
        let deviates = |f: &Feature| f.is_active(&witness) && f.of(&witness) != f.of(&mild);
        self.region
            .features
            .insert(Feature::Service, own(Feature::Service));
        for feature in CHOICES.into_iter().filter(deviates) {
            self.region.features.insert(feature, own(feature));
        }
        if witness.second.is_some() {
            let second = own(Feature::Second);
            self.region.features.insert(Feature::Second, second);
        }
        for feature in NUMBERS.into_iter().filter(deviates) {
            if feature == Feature::RegionBytes && !Factor::One(feature).deviates(&witness, &mild) {
                continue;
            }
            let limit = self.limit(feature)?;
            self.condition(feature, limit);
        }
        if Factor::Pattern.deviates(&witness, &mild) {
            self.pattern(|feature| feature)?;
        }
        if witness.second.is_some() && Factor::Pattern.deviates(&witness.swapped(), &mild.swapped())
        {
            self.pattern(Feature::of_second)?;
        }
        Ok(())
    }

    /// The value nearest to the mild one at which a run showed the symptom.
    fn limit(&mut self, feature: Feature) -> Result<u64, Stop> {
        let (own, mild) = (feature.of(&self.witness), feature.of(&self.mild));
        let (low, high) = (own.min(mild), own.max(mild));
        let mut between = self.space.allowed(feature).grid();
        between.retain(|&value| low < value && value < high);
        let mut reached = own;
        for _ in 0..LIMIT_RUNS {
            let Some(&middle) = between.get(between.len() / 2) else {
                break;
            };
            let Some(point) = self.space.with(&self.witness, feature, middle) else {
                between.retain(|&value| value != middle);
                continue;
            };
            let shown = self.shows(&point)?;
            if shown {
                reached = middle;
            } else {
                self.outside.entry(feature).or_default().push(point);
            }
            // Towards the mild value after the symptom, away from it else.
            let lower = shown == (mild < own);
            between.retain(|&value| value != middle && (value < middle) == lower);
        }
        Ok(reached)
    }

    /// Everything from `limit` away from the mild value.
    fn condition(&mut self, feature: Feature, limit: u64) {
        let mild = feature.of(&self.mild);
        let far = self.space.far_end(feature, feature.of(&self.witness), mild);
        let (low, high) = (limit.min(far), limit.max(far));
        self.within(feature, low, high);
    }

    fn within(&mut self, feature: Feature, low: u64, high: u64) {
        let allowed = match self.space.allowed(feature) {
            Allowed::Range(..) => Allowed::Range(low, high),
            Allowed::Set(values) => {
                let inside = |value: &u64| (low..=high).contains(value);
                Allowed::Set(values.iter().copied().filter(inside).collect())
            }
        };
        self.region.features.insert(feature, allowed);
    }

    /// The conditions of a pattern that differs from the mild one; `of` makes a feature that of the kind of traffic.
    fn pattern(&mut self, of: impl Fn(Feature) -> Feature) -> Result<(), Stop> {
        let [elements, smallest, largest] =
            [Feature::Elements, Feature::Smallest, Feature::Largest].map(of);
        if elements.of(&self.witness) > elements.of(&self.mild) {
            let limit = self.limit(elements)?;
            self.condition(elements, limit);
        }
        let (small, large) = (smallest.of(&self.witness), largest.of(&self.witness));
        let mild = largest.of(&self.mild);
        let ends = (
            self.space.far_end(smallest, 0, 1),
            self.space.far_end(largest, 1, 0),
        );
        if small != large {
            self.within(smallest, ends.0, small);
            self.within(largest, large, ends.1);
            return Ok(());
        }
        if large == mild {
            return Ok(());
        }
        let limit = self.limit(largest)?;
        let far = if large < mild { ends.0 } else { ends.1 };
        let beyond = match self.space.with(&self.witness, largest, far) {
            Some(point) if far != large => self.shows(&point)?,
            _ => true,
        };
        let far = if beyond { far } else { large };
        self.within(smallest, limit.min(far), ends.1);
        self.within(largest, ends.0, limit.max(far));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{Synthetic, bench, fault, space};

    fn start<'a>(point: &'a Point, mild: &'a Point) -> Start<'a> {
        Start {
            point,
            symptom: Symptom::PauseFrames,
            mild,
            known: &[],
        }
    }

    /// SENDs with long lists beside many queue pairs of READs; what else both have is taken back.
    #[test]
    fn conditions_on_both_kinds_of_traffic_are_kept() {
        let conditions = [
            (Feature::Service, Allowed::Set(vec![1])),
            (Feature::PostList, Allowed::Range(16, 128)),
            (Feature::Second, Allowed::Set(vec![3])),
            (Feature::SecondQueuePairs, Allowed::Range(64, 20_000)),
        ];
        let target = Synthetic {
            faults: vec![fault(Symptom::PauseFrames, &conditions)],
            ..Synthetic::default()
        };
        let space = space().with_two_kinds();
        let (mild, reads) = (space.mild(1)[0].clone(), space.mild(2)[0].clone());
        let point = Point {
            direction: 1,
            post_list: 64,
            ..mild.beside(&Point {
                queue_pairs: 1_024,
                depth: 16,
                requests: vec![vec![64, 1_024]; 4],
                ..reads.clone()
            })
        };
        let mut bench = bench(&target, u64::MAX, 1);
        let set = reverts(&mut bench, &space, &start(&point, &mild)).unwrap();
        let expected = Point {
            post_list: 64,
            ..mild.beside(&Point {
                queue_pairs: 1_024,
                ..reads
            })
        };
        assert_eq!(set.witness, expected);
        assert_eq!(
            set.region.text(&space),
            "service = rc-send, post_list >= 32, second = rc-read, second_queue_pairs >= 128"
        );
        assert!(bench.spent().experiments <= 16, "{:?}", bench.spent());
    }

    #[test]
    fn what_deviates_without_effect_is_taken_back() {
        let conditions = [
            (Feature::Service, Allowed::Set(vec![1])),
            (Feature::PostList, Allowed::Range(16, 128)),
            (Feature::QueuePairs, Allowed::Range(64, 20_000)),
        ];
        let target = Synthetic {
            faults: vec![fault(Symptom::PauseFrames, &conditions)],
            ..Synthetic::default()
        };
        let space = space();
        let mild = space.mild(1)[0].clone();
        let point = Point {
            direction: 1,
            mtu: 1_024,
            queue_pairs: 1_024,
            post_list: 64,
            requests: vec![vec![64, 1_024]; 4],
            ..mild.clone()
        };
        let mut bench = bench(&target, u64::MAX, 1);
        let set = reverts(&mut bench, &space, &start(&point, &mild)).unwrap();
        let expected = Point {
            queue_pairs: 1_024,
            post_list: 64,
            ..mild
        };
        assert_eq!(set.witness, expected);
        assert_eq!(
            set.region.text(&space),
            "service = rc-send, queue_pairs >= 128, post_list >= 32"
        );
        assert!(bench.spent().experiments <= 12, "{:?}", bench.spent());
    }
}

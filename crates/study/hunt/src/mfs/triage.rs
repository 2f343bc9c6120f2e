//! Whether an anomalous workload is a known anomaly again, before it is reduced.
//!
//! Problem: most anomalous workloads that a search meets are known anomalies beside the border of their rough regions, and
//! a reduction of each takes ten runs. Method: the workload is projected onto a known anomaly: the mild workload of its
//! service with only those features that the known anomaly names, as the new workload has them. If that shows the symptom,
//! the workload is the known anomaly, whose region then takes in the projection. What is left of the workload without
//! those features is run once, since a second anomaly may hide behind the first. A projection outside of the known region may
//! show an anomaly that needs fewer features: each factor of it is taken back once, and where the symptom stays, it is one.
//! Attacks on a victim are the same only if the same resource ran out.
//! Limits: single runs; the two known anomalies that share most with the workload are tried. Source: ours; deduplication by
//! signature is what fuzzers do.

use super::{FIRST_REPEAT, FeatureSet};
use crate::bench::{Bench, Stop};
use crate::monitor::Symptom;
use crate::region::Region;
use crate::space::factor::REVERTED;
use crate::space::{Allowed, Feature, Point, Space};

/// Known anomalies that a workload is projected onto.
const PROJECTIONS_MAX: usize = 2;

/// What an anomalous workload is.
#[derive(Clone, Debug, PartialEq)]
pub enum Triage {
    /// The known anomaly with this index, with a region that takes the workload in.
    Known(usize, Region),
    /// The known anomaly with this index, and behind it a workload that shows a symptom without its features.
    Behind(usize, Region, Point, Symptom),
    /// None that is known; this simpler workload shows it too.
    Beside(Point),
    /// None that is known.
    New,
}

/// Holds `point`, which shows `symptom`, against `known`; `mild` is the mild workload of its service. With `border`, what is
/// beside a known region is looked at more closely. Fails as [`Bench::measure`] does.
pub fn triage(
    bench: &mut Bench<'_>,
    space: &Space,
    (point, symptom): (&Point, Symptom),
    mild: &Point,
    (known, border): (&[Option<&FeatureSet>], bool),
) -> Result<Triage, Stop> {
    let usual = space.mild_beside(mild, point);
    for index in candidates((point, symptom), (mild, &usual), known) {
        let set = known[index].expect("candidates have conditions");
        if !bench.same_resource(point, &set.witness) {
            continue;
        }
        let named = || {
            let all = set.region.features.keys().copied();
            all.filter(|&feature| feature != Feature::Service)
        };
        let Some(projected) = space.projected(point, mild, named()) else {
            continue;
        };
        if seen(bench, &projected)? != Some(symptom) || !bench.same_resource(point, &projected) {
            continue;
        }
        if border
            && !set.region.has(&projected)
            && let Some(simpler) = simpler(bench, space, (&projected, symptom), mild, known)?
        {
            return Ok(Triage::Beside(simpler));
        }
        let region = widened(&set.region, &projected);
        let others = Feature::ALL
            .into_iter()
            .filter(|&f| f.is_active(point) && f.of(point) != f.of(mild))
            .filter(|f| !is_named(&set.region, *f));
        let rest = space.projected(point, mild, others);
        let fresh = |rest: &Point| {
            let inside = |set: &&FeatureSet| set.region.has(rest);
            *rest != *mild && !known.iter().flatten().any(inside)
        };
        if let Some(rest) = rest.filter(fresh)
            && let Some(behind) = seen(bench, &rest)?
        {
            return Ok(Triage::Behind(index, region, rest, behind));
        }
        return Ok(Triage::Known(index, region));
    }
    Ok(Triage::New)
}

/// `point`, which is beside a known region, with one factor mild, where that shows the symptom outside of all known regions:
/// the known anomaly needs all of its features, so this is another one.
fn simpler(
    bench: &mut Bench<'_>,
    space: &Space,
    (point, symptom): (&Point, Symptom),
    mild: &Point,
    known: &[Option<&FeatureSet>],
) -> Result<Option<Point>, Stop> {
    for factor in REVERTED.into_iter().filter(|one| one.deviates(point, mild)) {
        let Some(next) = space.revert(point, mild, factor) else {
            continue;
        };
        let mut sets = known.iter().flatten();
        if *mild != next
            && !sets.any(|set| set.region.has(&next))
            && seen(bench, &next)? == Some(symptom)
            && bench.same_resource(point, &next)
        {
            return Ok(Some(next));
        }
    }
    Ok(None)
}

fn seen(bench: &mut Bench<'_>, point: &Point) -> Result<Option<Symptom>, Stop> {
    let measured = bench.measure(&[(point.clone(), FIRST_REPEAT)])?;
    Ok(bench.judge(point, &measured[0]).symptom)
}

/// Whether `region` has a condition on `feature`; the pattern of a kind is one thing.
fn is_named(region: &Region, feature: Feature) -> bool {
    let pattern = |f: Feature| f.dimension() == crate::space::Dimension::Pattern;
    let mut named = region.features.keys();
    let of_one = |other: Feature| other.is_of_second() == feature.is_of_second();
    named.any(|&other| other == feature || (of_one(other) && pattern(other) && pattern(feature)))
}

/// Places of the known anomalies that the workload may be: of the same symptom, with conditions only on what deviates in
/// the workload, on the same side of the mild value; those whose conditions it meets most come first.
fn candidates(
    (point, symptom): (&Point, Symptom),
    (mild, mild_of_both): (&Point, &Point),
    known: &[Option<&FeatureSet>],
) -> Vec<usize> {
    let mut scored: Vec<(usize, usize)> = Vec::new();
    for (index, set) in known.iter().enumerate() {
        let Some(set) = set.filter(|set| set.symptom == symptom) else {
            continue;
        };
        let conditions = || {
            let all = set.region.features.iter();
            all.filter(|(feature, _)| **feature != Feature::Service)
        };
        let fits = conditions().all(|(&feature, _)| {
            let pattern = feature.dimension() == crate::space::Dimension::Pattern;
            // That there is a second kind deviates; its features deviate from those of a mild one.
            let usual = match feature.of_first() {
                Some(_) => feature.of(mild_of_both),
                None => feature.of(mild),
            };
            let own = feature.of(point);
            let of_known = feature.of(&set.witness);
            match pattern {
                true if feature.is_of_second() => {
                    let requests = |point: &Point| point.swapped().requests;
                    feature.is_active(point) && requests(point) != requests(mild_of_both)
                }
                true => point.requests != mild.requests,
                false => {
                    feature.is_active(point) && own != usual && (own > usual) == (of_known > usual)
                }
            }
        });
        if fits && conditions().next().is_some() {
            let met = set.region.features.iter();
            let met = met.filter(|(f, allowed)| f.is_active(point) && allowed.has(f.of(point)));
            scored.push((met.count(), index));
        }
    }
    scored.sort_by_key(|&(met, index)| (std::cmp::Reverse(met), index));
    scored.truncate(PROJECTIONS_MAX);
    scored.into_iter().map(|(_, index)| index).collect()
}

/// `region` with `point` inside.
pub(crate) fn widened(region: &Region, point: &Point) -> Region {
    let mut region = region.clone();
    for (feature, allowed) in &mut region.features {
        if !feature.is_active(point) {
            continue;
        }
        let value = feature.of(point);
        match allowed {
            Allowed::Range(least, most) => {
                (*least, *most) = ((*least).min(value), (*most).max(value));
            }
            Allowed::Set(values) if !values.contains(&value) => {
                values.push(value);
                values.sort_unstable();
            }
            Allowed::Set(_) => {}
        }
    }
    region
}

#[cfg(test)]
mod tests {
    use super::super::reverts::{Start, reverts};
    use super::*;
    use crate::synthetic::{Synthetic, bench, fault, space};

    fn target() -> Synthetic {
        let deep = [
            (Feature::Depth, Allowed::Range(512, 4_096)),
            (Feature::QueuePairs, Allowed::Range(32, 20_000)),
        ];
        let remote = [(Feature::MemoryB, Allowed::Set(vec![1]))];
        Synthetic {
            faults: vec![
                fault(Symptom::PauseFrames, &deep),
                fault(Symptom::PauseFrames, &remote),
            ],
            ..Synthetic::default()
        }
    }

    #[test]
    fn a_known_anomaly_of_another_service_takes_one_run_and_what_hides_behind_it_is_seen() {
        let target = target();
        let space = space();
        let mut bench = bench(&target, u64::MAX, 1);
        let mild = space.mild(0)[0].clone();
        let deep = Point {
            depth: 4_096,
            queue_pairs: 128,
            ..mild.clone()
        };
        let start = Start {
            point: &deep,
            symptom: Symptom::PauseFrames,
            mild: &mild,
            known: &[],
        };
        let set = reverts(&mut bench, &space, &start).unwrap();
        let before = bench.spent().experiments;
        let mild = space.mild(1)[0].clone();
        let again = Point {
            depth: 1_024,
            receive_depth: 2_048,
            queue_pairs: 64,
            ..mild.clone()
        };
        let found = (&again, Symptom::PauseFrames);
        let known = [Some(&set)];
        let told = triage(&mut bench, &space, found, &mild, (&known, false)).unwrap();
        let Triage::Known(0, region) = told else {
            panic!("{told:?}");
        };
        assert!(region.has(&again));
        assert!(bench.spent().experiments - before <= 2);
        let both = Point {
            memory_b: 1,
            ..again
        };
        let found = (&both, Symptom::PauseFrames);
        let told = triage(&mut bench, &space, found, &mild, (&known, true)).unwrap();
        let Triage::Behind(0, _, rest, Symptom::PauseFrames) = told else {
            panic!("{told:?}");
        };
        assert_eq!((rest.memory_b, rest.depth), (1, mild.depth));
    }

    /// The known anomaly needs pairs and depth; with SENDs pairs suffice, which a projection onto both alone does not tell.
    #[test]
    fn beside_a_known_region_an_anomaly_that_needs_less_is_another() {
        let pairs = (Feature::QueuePairs, Allowed::Range(32, 20_000));
        let deep = (Feature::Depth, Allowed::Range(512, 4_096));
        let sends = (Feature::Service, Allowed::Set(vec![1]));
        let target = Synthetic {
            faults: vec![
                fault(Symptom::PauseFrames, &[deep, pairs.clone()]),
                fault(Symptom::PauseFrames, &[sends, pairs]),
            ],
            ..Synthetic::default()
        };
        let space = space();
        let mut bench = bench(&target, u64::MAX, 1);
        let writes = space.mild(0)[0].clone();
        let start = Start {
            point: &Point {
                depth: 4_096,
                queue_pairs: 128,
                ..writes.clone()
            },
            symptom: Symptom::PauseFrames,
            mild: &writes,
            known: &[],
        };
        let set = reverts(&mut bench, &space, &start).unwrap();
        let mild = space.mild(1)[0].clone();
        let point = Point {
            depth: 1_024,
            receive_depth: 2_048,
            queue_pairs: 256,
            ..mild.clone()
        };
        let found = (&point, Symptom::PauseFrames);
        let known = [Some(&set)];
        let told = triage(&mut bench, &space, found, &mild, (&known, true)).unwrap();
        let Triage::Beside(simpler) = told else {
            panic!("{told:?}");
        };
        assert_eq!((simpler.queue_pairs, simpler.depth), (256, mild.depth));
        let told = triage(&mut bench, &space, found, &mild, (&known, false)).unwrap();
        assert!(matches!(told, Triage::Known(0, _)), "{told:?}");
    }

    #[test]
    fn an_anomaly_with_other_conditions_is_new() {
        let target = target();
        let space = space();
        let mut bench = bench(&target, u64::MAX, 1);
        let mild = space.mild(0)[0].clone();
        let point = Point {
            memory_b: 1,
            ..mild.clone()
        };
        let found = (&point, Symptom::PauseFrames);
        let told = triage(&mut bench, &space, found, &mild, (&[], true)).unwrap();
        assert_eq!((told, bench.spent().experiments), (Triage::New, 0));
    }
}

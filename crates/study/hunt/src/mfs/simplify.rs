//! The simplest point that still shows the symptom.
//!
//! Candidates are tried in a fixed order, queue pairs and whole dimensions before single features, one run each; the
//! symptom's staying adopts the candidate. Where the symptom needs queue pairs, bisection finds how many, and the point
//! keeps one step of the grid more than that: each later test sets up hundreds of them and not thousands, which costs
//! less budget and less simulation time. The resulting point is tested sequentially; where it fails, the start is kept,
//! which was tested.

use super::FIRST_REPEAT;
use crate::bench::{Bench, Stop};
use crate::monitor::Symptom;
use crate::region::Region;
use crate::space::{Dimension, Feature, Point, Space};

/// What a feature is where it does not matter: nothing special, and enough to fill the link.
pub(super) fn mildest(feature: Feature) -> Option<u64> {
    Some(match feature {
        Feature::Direction | Feature::MemoryA | Feature::MemoryB => 0,
        Feature::Service => return None,
        Feature::Regions | Feature::RegionBytes | Feature::QueuePairs => 1,
        Feature::Mtu => u64::MAX,
        Feature::PostList | Feature::ReceiveBatch => 1,
        Feature::Depth => 128,
        Feature::ReceiveDepth => 256,
        Feature::Requests | Feature::Elements => 1,
        Feature::Control | Feature::Receives => 0,
        Feature::Smallest | Feature::Largest => return None,
        Feature::Second => 0,
        _ => return feature.of_first().and_then(mildest),
    })
}

/// See the module; points inside `known` are left out, since they show the symptom for another reason.
pub(super) fn simplify(
    bench: &mut Bench<'_>,
    space: &Space,
    start: &Point,
    symptom: Symptom,
    known: &[&Region],
) -> Result<Point, Stop> {
    let mut point = start.clone();
    let mut shows = |candidate: &Point| -> Result<bool, Stop> {
        if known.iter().any(|region| region.has(candidate)) || space.check(candidate).is_err() {
            return Ok(false);
        }
        let measured = bench.measure(&[(candidate.clone(), FIRST_REPEAT)])?;
        Ok(bench.judge(candidate, &measured[0]).symptom == Some(symptom))
    };
    for step in steps() {
        let candidate = step.apply(space, &point);
        if candidate != point && shows(&candidate)? {
            point = candidate;
        }
    }
    let point = leaner(space, point, &mut shows)?;
    if point == *start {
        return Ok(point);
    }
    let confirmed = bench.confirm(std::slice::from_ref(&point), symptom, FIRST_REPEAT)?;
    Ok(match confirmed[0].present {
        true => point,
        false => start.clone(),
    })
}

/// `point` with hardly more queue pairs than the symptom needs.
fn leaner(
    space: &Space,
    point: Point,
    shows: &mut dyn FnMut(&Point) -> Result<bool, Stop>,
) -> Result<Point, Stop> {
    let feature = Feature::QueuePairs;
    let grid = space.allowed(feature).grid();
    let fewer = grid
        .into_iter()
        .filter(|&value| value <= feature.of(&point));
    let points: Vec<Point> = fewer
        .filter_map(|value| space.with(&point, feature, value))
        .collect();
    // The first is too few, or the step for single features would have taken it.
    let (mut few, mut enough) = (0, points.len().saturating_sub(1));
    while enough > few + 1 {
        let middle = few.midpoint(enough);
        match shows(&points[middle])? {
            true => enough = middle,
            false => few = middle,
        }
    }
    Ok(points.get(enough + 1).cloned().unwrap_or(point))
}

/// One way to make a point simpler.
enum Step {
    /// The second kind of traffic without the first.
    Alone,
    /// All features of a dimension to their mildest values.
    Whole(Dimension),
    One(Feature),
    /// All elements as small as the smallest.
    AllSmall,
    /// All elements as large as the largest.
    AllLarge,
    /// Every element as the nearer of the two.
    TwoSizes,
    /// One request of the smallest and the largest element.
    Pair,
    /// The same of the second kind of traffic.
    OfSecond(Box<Self>),
}

fn steps() -> Vec<Step> {
    let mut steps = vec![
        Step::One(Feature::Second),
        Step::Alone,
        Step::One(Feature::QueuePairs),
        Step::Whole(Dimension::Topology),
        Step::Whole(Dimension::Memory),
        Step::One(Feature::Requests),
        Step::One(Feature::Elements),
        Step::AllSmall,
        Step::AllLarge,
        Step::Pair,
        Step::TwoSizes,
    ];
    let single = [Dimension::Topology, Dimension::Memory, Dimension::Transport];
    let features = Feature::ALL.into_iter();
    steps.extend(
        features
            .filter(|feature| single.contains(&feature.dimension()))
            .map(Step::One),
    );
    let patterns = [
        Step::One(Feature::Requests),
        Step::One(Feature::Elements),
        Step::AllSmall,
        Step::AllLarge,
    ];
    steps.extend(patterns.map(|step| Step::OfSecond(Box::new(step))));
    steps
}

impl Step {
    fn apply(&self, space: &Space, point: &Point) -> Point {
        let (small, large) = (Feature::Smallest.of(point), Feature::Largest.of(point));
        let sized = |size: &dyn Fn(u64) -> u64| {
            let mut point = point.clone();
            for element in point.requests.iter_mut().flatten() {
                *element = size(*element);
            }
            point
        };
        match self {
            Self::Alone => {
                let alone = point.single_kinds().pop();
                alone.map_or_else(|| point.clone(), |alone| space.repaired(alone))
            }
            Self::OfSecond(step) if point.second.is_some() => {
                let exchanged = step.apply(&space.swapped(), &point.swapped());
                exchanged.swapped()
            }
            Self::OfSecond(_) => point.clone(),
            Self::Whole(dimension) => Feature::ALL
                .into_iter()
                .filter(|feature| feature.dimension() == *dimension)
                .fold(point.clone(), |point, feature| {
                    milder(space, &point, feature)
                }),
            Self::One(feature) => milder(space, point, *feature),
            Self::AllSmall => sized(&|_| small),
            Self::AllLarge => sized(&|_| large),
            Self::Pair => Point {
                requests: vec![vec![small, large]],
                ..point.clone()
            },
            // Nearer on a logarithmic scale: x < sqrt(small x large).
            Self::TwoSizes => sized(&|x| if x * x < small * large { small } else { large }),
        }
    }
}

/// `point` with `feature` as mild as it can be with everything else as it is.
fn milder(space: &Space, point: &Point, feature: Feature) -> Point {
    let Some(mild) = mildest(feature).filter(|_| feature.is_active(point)) else {
        return point.clone();
    };
    let mut grid = space.allowed(feature).grid();
    grid.sort_by_key(|&value| value.abs_diff(mild));
    let mut candidates = grid
        .into_iter()
        .filter_map(|value| space.with(point, feature, value));
    candidates.next().unwrap_or_else(|| point.clone())
}

//! Factors: a workload as a few deviations from a mild one of its service.
//!
//! Problem: a uniform point differs from a plain workload in everything, so several anomalies show at once and cannot
//! be distinguished. Method: every service has a mild workload that fills the link and has no special feature. A
//! *factor* is what varies as one: a feature, both lists, both queues, or the message pattern. A point is then a set of
//! deviating factors; one may be added ([`Space::deviate`]) or taken back ([`Space::revert`]). A value that is set last
//! stays, and values that exclude it change: a deep queue takes fewer pairs, and many regions are short. Limits: what a
//! mild workload has counts as no deviation, so a condition that the mild workload meets stays unseen until conditions
//! are tested. Source: ours; one factor at a time, then few at once, is what screening designs do.

use super::{Allowed, Feature, MEMORY_MAX, Point, Space, WORK_REQUESTS_MAX, point};
use isolane_common_quantities::rng::Stream;

/// Queue pairs of a mild workload.
const MILD_QUEUE_PAIRS: u64 = 8;
/// Outstanding requests of a mild workload.
const MILD_DEPTH: u64 = 128;
/// Message size and region length of a mild workload.
const MILD_BYTES: u64 = 64 << 10;
/// Draws for a deviation before it counts as impossible.
const DRAWS_MAX: u32 = 20;
/// A draw that costs the most time is kept once in so many.
const COSTLY_ONE_IN: u64 = 4;
/// Queue pairs from which on an experiment takes seconds of processor time and not tenths.
const COSTLY_QUEUE_PAIRS: u64 = 4_096;
/// Regions from which on an experiment takes longer on real hardware.
const COSTLY_REGIONS: u64 = 100_000;

/// What varies as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Factor {
    /// A feature by itself.
    One(Feature),
    /// Send and receive requests per doorbell.
    Lists,
    /// Send and receive queue.
    Queues,
    /// Requests, elements and sizes.
    Pattern,
}

/// What a search varies, topology first.
pub const VARIED: [Factor; 10] = [
    Factor::One(Feature::Direction),
    Factor::One(Feature::MemoryA),
    Factor::One(Feature::MemoryB),
    Factor::One(Feature::Regions),
    Factor::One(Feature::RegionBytes),
    Factor::One(Feature::QueuePairs),
    Factor::One(Feature::Mtu),
    Factor::Lists,
    Factor::Queues,
    Factor::Pattern,
];

/// What only attackers of a victim vary: verbs in place of data, and receives that are missing.
const OF_ATTACKERS: [Factor; 2] = [
    Factor::One(Feature::Control),
    Factor::One(Feature::Receives),
];

/// The second kind of traffic, which comes and goes as a whole.
pub(crate) const SECOND: Factor = Factor::One(Feature::Second);

/// What a second kind varies by itself: all but what both kinds share.
pub(crate) const OF_A_KIND: &[Factor] = REVERTED.split_at(8).1;
/// Factors of a new second kind that deviate at most.
const SECOND_FACTORS_MAX: u64 = 3;

/// What a reduction takes back, in this order: what many factors hide behind first, both of a kind before each alone, and queue
/// pairs before the depth that they limit.
pub const REVERTED: [Factor; 17] = [
    SECOND,
    Factor::One(Feature::Control),
    Factor::One(Feature::Receives),
    Factor::One(Feature::MemoryA),
    Factor::One(Feature::MemoryB),
    Factor::One(Feature::Direction),
    Factor::One(Feature::RegionBytes),
    Factor::One(Feature::Regions),
    Factor::One(Feature::Mtu),
    Factor::One(Feature::QueuePairs),
    Factor::Lists,
    Factor::Queues,
    Factor::One(Feature::PostList),
    Factor::One(Feature::ReceiveBatch),
    Factor::One(Feature::Depth),
    Factor::One(Feature::ReceiveDepth),
    Factor::Pattern,
];

impl Factor {
    /// The features that it moves.
    pub const fn features(self) -> &'static [Feature] {
        match self {
            Self::One(Feature::Direction) => &[Feature::Direction],
            Self::One(Feature::MemoryA) => &[Feature::MemoryA],
            Self::One(Feature::MemoryB) => &[Feature::MemoryB],
            Self::One(Feature::Regions) => &[Feature::Regions],
            Self::One(Feature::RegionBytes) => &[Feature::RegionBytes],
            Self::One(Feature::QueuePairs) => &[Feature::QueuePairs],
            Self::One(Feature::Mtu) => &[Feature::Mtu],
            Self::One(Feature::PostList) => &[Feature::PostList],
            Self::One(Feature::ReceiveBatch) => &[Feature::ReceiveBatch],
            Self::One(Feature::Depth) => &[Feature::Depth],
            Self::One(Feature::ReceiveDepth) => &[Feature::ReceiveDepth],
            Self::One(Feature::Service) => &[Feature::Service],
            Self::One(Feature::Control) => &[Feature::Control],
            Self::One(Feature::Receives) => &[Feature::Receives],
            // A second kind comes and goes as a whole.
            Self::One(
                Feature::Second
                | Feature::SecondQueuePairs
                | Feature::SecondMtu
                | Feature::SecondPostList
                | Feature::SecondDepth
                | Feature::SecondReceiveDepth
                | Feature::SecondReceiveBatch
                | Feature::SecondRequests
                | Feature::SecondElements
                | Feature::SecondSmallest
                | Feature::SecondLargest,
            ) => &[Feature::Second],
            Self::Lists => &[Feature::PostList, Feature::ReceiveBatch],
            Self::Queues => &[Feature::Depth, Feature::ReceiveDepth],
            Self::Pattern
            | Self::One(
                Feature::Requests | Feature::Elements | Feature::Smallest | Feature::Largest,
            ) => &[
                Feature::Requests,
                Feature::Elements,
                Feature::Smallest,
                Feature::Largest,
            ],
        }
    }

    /// Whether `point` differs from `mild` in it; a pair of features only where both differ.
    pub fn deviates(self, point: &Point, mild: &Point) -> bool {
        match self {
            Self::Pattern => Feature::Largest.is_active(point) && point.requests != mild.requests,
            // A longer region that holds a longer element is no deviation of its own.
            Self::One(Feature::RegionBytes) => {
                let needed = holding(point).max(mild.region_bytes);
                point.region_bytes != needed && point.region_bytes != holding(point)
            }
            _ => {
                let differs = |f: &Feature| f.is_active(point) && f.of(point) != f.of(mild);
                self.features().iter().all(differs)
            }
        }
    }
}

/// The shortest usual region that holds the largest element of `point`.
fn holding(point: &Point) -> u64 {
    let largest = Feature::Largest
        .of(point)
        .max(Feature::SecondLargest.of(point));
    largest.next_power_of_two().max(4_096)
}

impl Space {
    /// What a search of this space varies, topology first.
    pub(crate) fn varied(&self) -> Vec<Factor> {
        let mut all = VARIED.to_vec();
        let attackers = OF_ATTACKERS.into_iter().filter(|factor| {
            let mut features = factor.features().iter();
            features.all(|&feature| self.allowed(feature).grid().len() > 1)
        });
        all.extend(attackers);
        all.extend(self.has_two_kinds().then_some(SECOND));
        all
    }

    /// `point` with another second kind of traffic: a mild one of a random service, with up to three deviating factors.
    fn accompanied(&self, point: &Point, stream: &mut Stream) -> Option<Point> {
        let mut seconds = self.allowed(Feature::Second).grid();
        seconds.retain(|&second| second > 0);
        let second = seconds.get(stream.below(seconds.len().max(1) as u64) as usize)?;
        let space = self.swapped();
        let mild = space.mild(second - 1).into_iter().next()?;
        let mut other = mild.clone();
        for _ in 0..stream.below(SECOND_FACTORS_MAX + 1) {
            let factor = OF_A_KIND[stream.below(OF_A_KIND.len() as u64) as usize];
            let next = space.deviate(&other, &mild, factor, stream);
            other = next.unwrap_or(other);
        }
        Some(point.beside(&other))
    }

    /// `mild` with the mild form of the second kind of `point`, where that has one.
    pub(crate) fn mild_beside(&self, mild: &Point, point: &Point) -> Point {
        let second = point.second.as_ref().and_then(|second| {
            let all = self.swapped().mild(second.service);
            all.into_iter().next()
        });
        second.map_or_else(|| mild.clone(), |second| mild.beside(&second))
    }

    /// The mild workloads of `service`, the mildest first: long messages that fill the link, and short ones; none where the
    /// space allows neither.
    pub fn mild(&self, service: u64) -> Vec<Point> {
        if !self.allowed(Feature::Service).has(service) {
            return Vec::new();
        }
        let sizes = [MILD_BYTES, 64];
        let points = sizes.into_iter().filter_map(|size| {
            let near = |feature: Feature, value: u64| self.allowed(feature).nearest(value);
            let mtu = near(Feature::Mtu, u64::MAX);
            let size = match service {
                point::DATAGRAM => size.min(mtu / 2),
                _ => size,
            };
            let size = near(Feature::Largest, near(Feature::Smallest, size));
            let point = Point {
                direction: near(Feature::Direction, point::ONE_WAY),
                memory_a: near(Feature::MemoryA, 0),
                memory_b: near(Feature::MemoryB, 0),
                regions: near(Feature::Regions, 1),
                region_bytes: near(Feature::RegionBytes, MILD_BYTES.max(size)),
                service,
                queue_pairs: near(Feature::QueuePairs, MILD_QUEUE_PAIRS),
                mtu,
                post_list: near(Feature::PostList, 1),
                depth: near(Feature::Depth, MILD_DEPTH),
                receive_depth: near(Feature::ReceiveDepth, 4 * MILD_DEPTH),
                receive_batch: near(Feature::ReceiveBatch, 1),
                requests: vec![vec![size]],
                control: 0,
                receives: near(Feature::Receives, 0),
                second: None,
            };
            let point = self.repaired(point);
            self.check(&point).is_ok().then_some(point)
        });
        let mut points: Vec<Point> = points.collect();
        points.dedup();
        points
    }

    /// `point` with one factor moved to a random other value than that of `mild`; none where there is none.
    pub fn deviate(
        &self,
        point: &Point,
        mild: &Point,
        factor: Factor,
        stream: &mut Stream,
    ) -> Option<Point> {
        (0..DRAWS_MAX).find_map(|_| {
            let next = match factor {
                Factor::Pattern => self.patterned(point, mild, stream),
                SECOND => self.accompanied(point, stream)?,
                _ => self.moved(point, mild, factor, stream)?,
            };
            let next = self.repaired(next);
            let moved = factor
                .features()
                .iter()
                .any(|f| f.is_active(&next) && f.of(&next) != f.of(mild));
            (moved && next != *point && self.check(&next).is_ok()).then_some(next)
        })
    }

    /// `point` with a random other value than that of `mild` for the features of `factor`; of a pair one of them, the other,
    /// or both alike.
    fn moved(
        &self,
        point: &Point,
        mild: &Point,
        factor: Factor,
        stream: &mut Stream,
    ) -> Option<Point> {
        let active: Vec<Feature> = factor
            .features()
            .iter()
            .copied()
            .filter(|feature| feature.is_active(point))
            .collect();
        let first = *active.first()?;
        let mut grid = self.allowed(first).grid();
        grid.retain(|&value| value != first.of(mild));
        let value = *grid.get(stream.below(grid.len().max(1) as u64) as usize)?;
        let costly = match first {
            Feature::QueuePairs => value >= COSTLY_QUEUE_PAIRS,
            Feature::Regions => value >= COSTLY_REGIONS,
            _ => false,
        };
        if costly && !stream.chance(1, COSTLY_ONE_IN) {
            return Some(point.clone());
        }
        let which = match active.len() {
            2 => stream.below(6),
            _ => 0,
        };
        let mut next = point.clone();
        // One in six is the second alone, one in six the first alone, the others both.
        if which != 5 {
            next = first.set(&next, value);
        }
        if let (Some(&second), true) = (active.get(1), which != 4) {
            let twice = match second {
                Feature::ReceiveDepth => 2 * value,
                _ => value,
            };
            next = second.set(&next, self.allowed(second).nearest(twice));
        }
        self.make_room(&mut next, first);
        Some(next)
    }

    /// Changes the values that exclude the value of `kept`.
    fn make_room(&self, point: &mut Point, kept: Feature) {
        if kept == Feature::Depth && point.queue_pairs * point.depth > WORK_REQUESTS_MAX {
            let room = WORK_REQUESTS_MAX / point.depth;
            point.queue_pairs = self.allowed(Feature::QueuePairs).nearest(room);
        }
        if kept == Feature::Regions {
            let room = MEMORY_MAX / point.regions.max(1);
            if point.region_bytes > room {
                point.region_bytes = self.allowed(Feature::RegionBytes).nearest(holding(point));
            }
        }
    }

    /// `point` with a random pattern of a distinct kind: all small, all of a middle size, all large, small and large mixed,
    /// or the size of `mild` in more elements.
    fn patterned(&self, point: &Point, mild: &Point, stream: &mut Stream) -> Point {
        let sizes = self.sizes();
        let third = sizes.len().div_ceil(3);
        let parts: Vec<&[u64]> = sizes.chunks(third.max(1)).collect();
        let mut pick = |part: &[u64]| part[stream.below(part.len() as u64) as usize];
        let (small, middle, large) = (
            pick(parts[0]),
            pick(parts[parts.len() / 2]),
            pick(parts[parts.len() - 1]),
        );
        let count = |feature: Feature, stream: &mut Stream| {
            let grid = self.allowed(feature).grid();
            match stream.chance(1, 2) {
                true => grid[0],
                false => grid[stream.below(grid.len() as u64) as usize],
            }
        };
        let requests = count(Feature::Requests, stream) as usize;
        let mut elements = count(Feature::Elements, stream) as usize;
        let kind = stream.below(5);
        if kind == 3 && requests * elements < 2 {
            elements = self.allowed(Feature::Elements).nearest(2) as usize;
        }
        let size = |index: usize| match kind {
            0 => small,
            1 => middle,
            2 => large,
            3 if index.is_multiple_of(2) => small,
            3 => large,
            _ => Feature::Largest.of(mild),
        };
        let all: Vec<u64> = (0..requests * elements).map(size).collect();
        Point {
            requests: all.chunks(elements.max(1)).map(<[u64]>::to_vec).collect(),
            ..point.clone()
        }
    }

    /// `point` with `factor` as in `mild`; none where that is not valid.
    pub fn revert(&self, point: &Point, mild: &Point, factor: Factor) -> Option<Point> {
        let mut next = point.clone();
        match factor {
            Factor::Pattern => next.requests.clone_from(&mild.requests),
            _ => {
                for feature in factor.features().iter().filter(|f| f.is_active(point)) {
                    next = feature.set(&next, feature.of(mild));
                }
            }
        }
        if matches!(
            factor,
            Factor::Pattern | Factor::One(Feature::Regions | Feature::RegionBytes)
        ) {
            let hold = holding(&next).max(mild.region_bytes);
            let room = MEMORY_MAX / next.regions.max(1);
            let length = if hold <= room { hold } else { holding(&next) };
            next.region_bytes = self.allowed(Feature::RegionBytes).nearest(length);
        }
        let next = self.repaired(next);
        (next != *point && self.check(&next).is_ok()).then_some(next)
    }

    /// The mild workload `mild` with what `point` has in `features`; none where that is not valid.
    pub fn projected(
        &self,
        point: &Point,
        mild: &Point,
        features: impl Iterator<Item = Feature>,
    ) -> Option<Point> {
        let mut next = mild.clone();
        for feature in features {
            match feature {
                Feature::Second => next = self.mild_beside(&next, point),
                Feature::SecondRequests
                | Feature::SecondElements
                | Feature::SecondSmallest
                | Feature::SecondLargest => {
                    if let (Some(second), Some(own)) = (&mut next.second, &point.second) {
                        second.requests.clone_from(&own.requests);
                    }
                }
                Feature::Requests | Feature::Elements | Feature::Smallest | Feature::Largest => {
                    next.requests.clone_from(&point.requests);
                }
                _ if feature.is_active(point) => next = feature.set(&next, feature.of(point)),
                _ => {}
            }
        }
        next.region_bytes = next.region_bytes.max(holding(&next));
        if next.regions.saturating_mul(next.region_bytes) > MEMORY_MAX {
            next.region_bytes = holding(&next);
        }
        let next = self.repaired(next);
        self.check(&next).is_ok().then_some(next)
    }

    /// The side of a number's range of `value`, seen from `mild`, and the far end of that side.
    pub(crate) fn far_end(&self, feature: Feature, value: u64, mild: u64) -> u64 {
        let (least, most) = match self.allowed(feature) {
            Allowed::Range(least, most) => (*least, *most),
            Allowed::Set(values) => (
                values.first().copied().unwrap_or(value),
                values.last().copied().unwrap_or(value),
            ),
        };
        if value < mild { least } else { most }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::tests::profile;

    #[test]
    fn every_service_has_a_mild_workload_without_deviations() {
        let space = Space::of(&profile("cx6-200g-roce"));
        for service in 0..point::ORDINARY_SERVICES {
            let mild = &space.mild(service)[0];
            assert_eq!(space.check(mild), Ok(()), "{mild:?}");
            assert!(REVERTED.iter().all(|factor| !factor.deviates(mild, mild)));
        }
    }

    #[test]
    fn a_deviation_is_seen_and_taken_back() {
        let space = Space::of(&profile("cx6-200g-roce"));
        let mut stream = Stream::named(1, "test");
        for service in 0..point::ORDINARY_SERVICES {
            let mild = space.mild(service)[0].clone();
            for factor in VARIED {
                let moved = space.deviate(&mild, &mild, factor, &mut stream);
                let moved = moved.expect("every factor has another value");
                assert_eq!(space.check(&moved), Ok(()), "{factor:?} {moved:?}");
                let back = REVERTED.iter().fold(moved.clone(), |point, &factor| {
                    let next = space.revert(&point, &mild, factor);
                    next.unwrap_or(point)
                });
                assert_eq!(back, mild, "{factor:?} {moved:?}");
            }
        }
    }

    #[test]
    fn a_projection_keeps_what_it_names_and_nothing_else() {
        let space = Space::of(&profile("cx6-200g-roce"));
        let mild = space.mild(1)[0].clone();
        let point = Point {
            queue_pairs: 64,
            post_list: 32,
            mtu: 1_024,
            ..mild.clone()
        };
        let kept = [Feature::QueuePairs, Feature::Mtu].into_iter();
        let projected = space.projected(&point, &mild, kept).unwrap();
        let expected = Point {
            queue_pairs: 64,
            mtu: 1_024,
            ..mild
        };
        assert_eq!(projected, expected);
    }
}

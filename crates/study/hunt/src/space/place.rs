//! One feature set to a value that stays, where others make room.
//!
//! Problem: some values exclude each other, and a repair of a point takes back the rarer one: 200,000 regions fit the memory
//! only if they are short, so a random point hardly ever has so many. Method: the features that exclude the value move as far as
//! they have to, those that cost least of the point first. Source: ours.

use super::rules::receives_least;
use super::{Feature, MEMORY_MAX, Point, Space, WORK_REQUESTS_MAX, point};

impl Space {
    /// `point` with `value` for `feature`; what excludes it changes. None where that is not valid.
    ///
    /// A new smallest or largest element bounds all elements; a pattern of one size gets a second one where the other end stays.
    pub(crate) fn placed(&self, point: &Point, feature: Feature, value: u64) -> Option<Point> {
        let mut next = point.clone();
        if let Some(first) = feature.of_first() {
            if next.second.is_none() {
                let second = self.allowed(Feature::Second).nearest(next.service + 1);
                next = self.repaired(Feature::Second.set(&next, second));
            }
            next.second.as_ref()?;
            let placed = self.swapped().placed(&next.swapped(), first, value)?;
            return Some(placed.swapped());
        }
        if !feature.is_active(&next) && !next.has_receives() {
            next = self.with_receives(next)?;
        }
        next = match feature {
            Feature::Smallest | Feature::Largest => self.sized(next, feature, value)?,
            _ => feature.set(&next, value),
        };
        match feature {
            Feature::Regions => self.shorten(&mut next, MEMORY_MAX / value.max(1)),
            Feature::RegionBytes => self.shorten(&mut next, value),
            Feature::PostList | Feature::Depth => {
                if feature == Feature::Depth {
                    next.post_list = next.post_list.min(value);
                }
                let most = WORK_REQUESTS_MAX / next.depth.max(next.post_list);
                let room = self.grid_below(Feature::QueuePairs, most);
                next.queue_pairs = next.queue_pairs.min(room);
            }
            Feature::ReceiveDepth => self.need_receives(&mut next, value),
            _ => {}
        }
        let next = self.repaired(next);
        let kept = feature.of(&next) == value && feature.is_active(&next);
        (kept && self.check(&next).is_ok()).then_some(next)
    }

    /// The largest usual value of `feature` that is at most `most`, or the smallest of all.
    fn grid_below(&self, feature: Feature, most: u64) -> u64 {
        let grid = self.allowed(feature).grid();
        let below = grid.iter().rev().find(|&&value| value <= most);
        below.or(grid.first()).copied().unwrap_or(most)
    }

    /// `point` with SENDs, of its own transport where there are some: that is the nearest service.
    fn with_receives(&self, point: Point) -> Option<Point> {
        let services = self.allowed(Feature::Service);
        let sends = point::SENDS.into_iter().filter(|one| services.has(*one));
        let service = sends.min_by_key(|one| one.abs_diff(point.service))?;
        Some(self.repaired(Feature::Service.set(&point, service)))
    }

    /// Shortens the send queue or the list of receives, the longer one first, until `room` receives suffice.
    fn need_receives(&self, point: &mut Point, room: u64) {
        while receives_least(point) > room {
            let longer = match point.depth >= point.receive_batch {
                true => Feature::Depth,
                false => Feature::ReceiveBatch,
            };
            let value = longer.of(point);
            let less = self.grid_below(longer, value.saturating_sub(1));
            if less >= value {
                return;
            }
            *point = longer.set(point, less);
            point.post_list = point.post_list.min(point.depth);
        }
    }

    /// Makes regions, and where they have to be the elements in them, no longer than `room`.
    fn shorten(&self, point: &mut Point, room: u64) {
        let room = self.grid_below(Feature::RegionBytes, room);
        let longest = self.grid_below(Feature::Largest, room);
        let second = point.second.as_mut().map(|kind| &mut kind.requests);
        let patterns = std::iter::once(&mut point.requests).chain(second);
        for size in patterns.flatten().flatten() {
            *size = (*size).min(longest);
        }
        point.region_bytes = point.region_bytes.min(room);
    }

    /// `point` whose smallest or largest element has `value`, with another service where a datagram is too short for it.
    fn sized(&self, mut point: Point, feature: Feature, value: u64) -> Option<Point> {
        let request = value * Feature::Elements.of(&point);
        if point.service == point::DATAGRAM && request > point.mtu {
            point = Feature::Service.set(&point, self.allowed(Feature::Service).grid()[0]);
            point = self.repaired(point);
        }
        let elements = || point.requests.iter().flatten().copied();
        // All elements are at least, or at most, so large; one of them is exactly.
        let bounded = |size: u64| match feature {
            Feature::Smallest => size.max(value),
            _ => size.min(value),
        };
        if elements().any(|size| bounded(size) != size) {
            for size in point.requests.iter_mut().flatten() {
                *size = bounded(*size);
            }
            return Some(point);
        }
        if elements().count() < 2 {
            let own = point.requests.first()?.first().copied()?;
            point.requests = vec![vec![own, own]];
        }
        *point.requests.iter_mut().flatten().next()? = value;
        Some(point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::tests::profile;
    use isolane_common_quantities::rng::Stream;

    /// Nearly every value of every feature can be placed at any point; a repair alone keeps far fewer of the ends.
    #[test]
    fn a_placed_value_stays_and_the_point_is_valid() {
        let space = Space::of(&profile("cx6-200g-roce"));
        check(&space);
        check(&space.with_two_kinds());
    }

    fn check(space: &Space) {
        let mut stream = Stream::named(1, "test");
        let (mut placed, mut all) = (0, 0);
        for _ in 0..200 {
            let point = space.draw(&mut stream).expect("the space is not empty");
            let features = space.features().iter().copied();
            for feature in features.filter(|f| !f.is_of_attackers()) {
                for value in space.allowed(feature).grid() {
                    all += 1;
                    if let Some(next) = space.placed(&point, feature, value) {
                        assert_eq!(feature.of(&next), value, "{next:?}");
                        assert_eq!(space.check(&next), Ok(()), "{next:?}");
                        placed += 1;
                    }
                }
            }
            for (feature, value) in [(Feature::Regions, 200_000), (Feature::ReceiveDepth, 4)] {
                let next = space.placed(&point, feature, value);
                assert!(next.is_some(), "{feature:?} {point:?}");
            }
        }
        assert!(placed * 100 > all * 94, "{placed} of {all}");
    }
}

//! Two kinds of traffic at once: queue pairs with another operation, size and depth beside the first ones.
//!
//! Problem: some anomalies need two operations at once, such as small WRITEs that arrive while long READs leave. Method: a point
//! has a second kind or none. Its features are those of the first kind's transport and pattern; topology and regions are common,
//! and each kind has as many regions as the point says. One way, both kinds go from host A to host B. Bidirectional, the first goes
//! from A to B and the second from B to A. On the loopback path the first comes from B and the second stays inside A. What holds for
//! one kind is applied to the second by exchanging the two ([`Point::swapped`]). Limits: two kinds, not more; attackers of a victim
//! have one. Source: the public engine of Collie, whose points are always two flows of this form, without one way.

use super::point::{self, Feature, Kind, Point};
use super::{Allowed, Space};
use isolane_common_quantities::rng::Stream;
use isolane_rdma_scenario::model::Host;

/// The features of a first kind with those of a second.
pub(crate) const PAIRS: [(Feature, Feature); 10] = [
    (Feature::QueuePairs, Feature::SecondQueuePairs),
    (Feature::Mtu, Feature::SecondMtu),
    (Feature::PostList, Feature::SecondPostList),
    (Feature::Depth, Feature::SecondDepth),
    (Feature::ReceiveDepth, Feature::SecondReceiveDepth),
    (Feature::ReceiveBatch, Feature::SecondReceiveBatch),
    (Feature::Requests, Feature::SecondRequests),
    (Feature::Elements, Feature::SecondElements),
    (Feature::Smallest, Feature::SecondSmallest),
    (Feature::Largest, Feature::SecondLargest),
];

impl Feature {
    /// The same of the first kind; none for what is not of a second kind, and for [`Feature::Second`], which has one more value
    /// than [`Feature::Service`].
    pub const fn of_first(self) -> Option<Self> {
        Some(match self {
            Self::SecondQueuePairs => Self::QueuePairs,
            Self::SecondMtu => Self::Mtu,
            Self::SecondPostList => Self::PostList,
            Self::SecondDepth => Self::Depth,
            Self::SecondReceiveDepth => Self::ReceiveDepth,
            Self::SecondReceiveBatch => Self::ReceiveBatch,
            Self::SecondRequests => Self::Requests,
            Self::SecondElements => Self::Elements,
            Self::SecondSmallest => Self::Smallest,
            Self::SecondLargest => Self::Largest,
            _ => return None,
        })
    }

    /// The same of a second kind; itself where a second kind has no such feature.
    pub(crate) fn of_second(self) -> Self {
        let mut pairs = PAIRS.into_iter();
        pairs
            .find(|(first, _)| *first == self)
            .map_or(self, |(_, second)| second)
    }

    /// True where only points with two kinds of traffic have it.
    pub const fn is_of_second(self) -> bool {
        matches!(self, Self::Second) || self.of_first().is_some()
    }
}

impl Point {
    /// What its first queue pairs do.
    fn kind(&self) -> Kind {
        Kind {
            service: self.service,
            queue_pairs: self.queue_pairs,
            mtu: self.mtu,
            post_list: self.post_list,
            depth: self.depth,
            receive_depth: self.receive_depth,
            receive_batch: self.receive_batch,
            requests: self.requests.clone(),
        }
    }

    /// The point with `kind` as its first.
    fn with_kind(&self, kind: &Kind) -> Self {
        Self {
            service: kind.service,
            queue_pairs: kind.queue_pairs,
            mtu: kind.mtu,
            post_list: kind.post_list,
            depth: kind.depth,
            receive_depth: kind.receive_depth,
            receive_batch: kind.receive_batch,
            requests: kind.requests.clone(),
            ..self.clone()
        }
    }

    /// The point with its kinds exchanged; itself where it has one.
    #[must_use]
    pub fn swapped(&self) -> Self {
        match &self.second {
            None => self.clone(),
            Some(second) => Self {
                second: Some(Box::new(self.kind())),
                ..self.with_kind(second)
            },
        }
    }

    /// The points that conditions are held against. With conditions `of_two` kinds these are the point itself and, where there is one,
    /// the same traffic with the other kind as the first one. Otherwise each kind counts by itself, in the direction that it has: both
    /// directions of one kind are not one direction of each.
    pub(crate) fn views(&self, of_two: bool) -> Vec<Self> {
        if !of_two {
            return self.parts().into_iter().map(Self::forward).collect();
        }
        let exchanged = match self.direction {
            point::ONE_WAY => Some(self.swapped()),
            // Hosts change their names with the kinds.
            point::BIDIRECTIONAL => Some(self.swapped().with_hosts_exchanged()),
            // One kind crosses the wire, and the other does not.
            _ => None,
        };
        std::iter::once(self.clone()).chain(exchanged).collect()
    }

    /// Traffic from B to A as that from A to B, which it is with the names of the hosts exchanged.
    fn forward(self) -> Self {
        match self.direction {
            point::BACKWARD => Self {
                direction: point::ONE_WAY,
                ..self.with_hosts_exchanged()
            },
            _ => self,
        }
    }

    fn with_hosts_exchanged(self) -> Self {
        Self {
            memory_a: self.memory_b,
            memory_b: self.memory_a,
            ..self
        }
    }

    /// The point with the first kind of `other` as its second.
    #[must_use]
    pub fn beside(&self, other: &Self) -> Self {
        Self {
            second: Some(Box::new(other.kind())),
            ..self.clone()
        }
    }

    /// The first kind alone, then the second one, in the directions that they have at this point; the point itself where it has
    /// one kind.
    pub fn parts(&self) -> Vec<Self> {
        let Some(second) = &self.second else {
            return vec![self.clone()];
        };
        let (of_first, of_second) = match self.direction {
            point::BIDIRECTIONAL => (point::ONE_WAY, point::BACKWARD),
            point::LOOPBACK => (point::BACKWARD, point::INSIDE_A),
            other => (other, other),
        };
        let alone = |point: Self, direction: u64| Self {
            direction,
            second: None,
            ..point
        };
        vec![
            alone(self.clone(), of_first),
            alone(self.with_kind(second), of_second),
        ]
    }

    /// The host that its data arrives at, where it has one kind in one direction.
    pub(crate) fn data_flows_to(&self) -> Host {
        let (here, there) = match self.direction {
            point::BACKWARD => (Host::B, Host::A),
            point::INSIDE_A => (Host::A, Host::A),
            point::INSIDE_B => (Host::B, Host::B),
            _ => (Host::A, Host::B),
        };
        match self.service {
            point::READ => here,
            _ => there,
        }
    }

    /// The kinds of a point with two, each as a point of the same direction.
    pub fn single_kinds(&self) -> Vec<Self> {
        match &self.second {
            None => Vec::new(),
            Some(second) => [self.clone(), self.with_kind(second)]
                .map(|point| Self {
                    second: None,
                    ..point
                })
                .into(),
        }
    }
}

impl Space {
    /// The same space with points of two kinds of traffic as well.
    #[must_use]
    pub fn with_two_kinds(mut self) -> Self {
        let services = self.allowed(Feature::Service).grid();
        let seconds = services.into_iter().map(|service| service + 1);
        let all: Vec<u64> = std::iter::once(0).chain(seconds).collect();
        self.narrow(Feature::Second, Allowed::Set(all));
        self
    }

    /// Whether some of its points have two kinds of traffic.
    pub fn has_two_kinds(&self) -> bool {
        self.allowed(Feature::Second).grid() != [0]
    }

    /// The features that its points vary: without those of a second kind where there is none.
    pub(crate) fn features(&self) -> &'static [Feature] {
        match self.has_two_kinds() {
            true => &Feature::ALL,
            false => &Feature::ALL[..Feature::OF_ONE_KIND],
        }
    }

    /// The space of points whose kinds are exchanged.
    pub(crate) fn swapped(&self) -> Self {
        let mut space = self.clone();
        for (first, second) in PAIRS {
            space.narrow(first, self.allowed(second).clone());
            space.narrow(second, self.allowed(first).clone());
        }
        let firsts = self.allowed(Feature::Service).grid();
        let seconds = self.allowed(Feature::Second).grid();
        let services = seconds.into_iter().filter(|&value| value > 0);
        space.narrow(
            Feature::Service,
            Allowed::Set(services.map(|value| value - 1).collect()),
        );
        space.narrow(
            Feature::Second,
            Allowed::Set(firsts.into_iter().map(|value| value + 1).collect()),
        );
        space
    }

    /// `point` with a second kind half of the time, where the space has some: one that is drawn as a first one is.
    pub(super) fn with_drawn_kind(&self, point: Point, stream: &mut Stream) -> Point {
        let grid = self.allowed(Feature::Second).grid();
        if !self.has_two_kinds() || (grid.contains(&0) && stream.chance(1, 2)) {
            return point;
        }
        point.beside(&self.swapped().raw_kind(stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::tests::{plain, profile};

    fn reads() -> Point {
        let reads = Feature::Service.set(&plain(), point::READ);
        Feature::Depth.set(&reads, 4)
    }

    #[test]
    fn each_kind_has_its_own_direction() {
        let hosts = |direction: u64| {
            let point = Feature::Direction.set(&plain().beside(&reads()), direction);
            let parts = point.parts();
            assert_eq!((parts[0].service, parts[1].service), (1, point::READ));
            [parts[0].data_flows_to(), parts[1].data_flows_to()]
        };
        // SENDs end at the other host, READs at their own.
        assert_eq!(hosts(point::ONE_WAY), [Host::B, Host::A]);
        assert_eq!(hosts(point::BIDIRECTIONAL), [Host::B, Host::B]);
        assert_eq!(hosts(point::LOOPBACK), [Host::A, Host::A]);
        assert_eq!(plain().parts(), [plain()]);
    }

    #[test]
    fn an_exchange_of_kinds_is_its_own_opposite() {
        let both = plain().beside(&reads());
        assert_eq!(both.swapped().service, point::READ);
        assert_eq!(both.swapped().swapped(), both);
        let alone = both.single_kinds();
        assert_eq!(alone, [plain(), both.swapped().single_kinds()[0].clone()]);
        assert!(plain().single_kinds().is_empty());
    }

    #[test]
    fn conditions_are_held_against_the_same_traffic_only() {
        let near = |direction: u64| Point {
            direction,
            memory_a: 2,
            ..plain().beside(&reads())
        };
        let seen = |direction: u64, of_two: bool| {
            let views = near(direction).views(of_two);
            let views = views.iter();
            let seen = views.map(|p| (p.direction, p.service, p.memory_a, p.memory_b));
            seen.collect::<Vec<_>>()
        };
        assert_eq!(seen(point::ONE_WAY, true), [(0, 1, 2, 0), (0, 2, 2, 0)]);
        assert_eq!(
            seen(point::BIDIRECTIONAL, true),
            [(1, 1, 2, 0), (1, 2, 0, 2)]
        );
        assert_eq!(seen(point::LOOPBACK, true), [(2, 1, 2, 0)]);
        // The second kind comes from B, as traffic from A does with the names of the hosts exchanged.
        assert_eq!(
            seen(point::BIDIRECTIONAL, false),
            [(0, 1, 2, 0), (0, 2, 0, 2)]
        );
        assert_eq!(seen(point::LOOPBACK, false), [(0, 1, 0, 2), (4, 2, 2, 0)]);
    }

    #[test]
    fn a_space_of_one_kind_draws_no_second_and_one_of_two_draws_it_half_of_the_time() {
        let space = Space::of(&profile("cx6-200g-roce"));
        let two = space.clone().with_two_kinds();
        let count = |space: &Space| {
            let mut stream = Stream::named(1, "test");
            let draws = (0..200).map(|_| space.draw(&mut stream).unwrap());
            draws.filter(|point| point.second.is_some()).count()
        };
        assert_eq!(count(&space), 0);
        assert!((70..130).contains(&count(&two)), "{}", count(&two));
    }
}

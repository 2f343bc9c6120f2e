//! The search space: which workloads there are, and how one is drawn or changed.
//!
//! Method: every feature has the list or the range of its allowed values, and a grid over it (powers of two and the two
//! ends) from which points are drawn. Rules name the combinations that no application can request. A drawn point is
//! repaired towards the rules and drawn again where that is not enough, so every point that leaves here is valid.
//! Limits: inter-arrival time, control verbs and the network's behaviour are outside, as in the paper; elements per
//! request and requests per vector are bounded by 16 (the paper's bound is units times pipeline stages, which no device
//! reports). Source: collie 3.4; ranges by 3.4 (20,000 queue pairs, 200,000 regions) and 3.11 (depth, batches, sizes).

pub(crate) mod benchmark;
pub mod convert;
pub mod factor;
pub mod kind;
pub mod point;
pub mod restrict;

mod mutate;
mod place;
mod rules;

#[cfg(test)]
pub(crate) mod tests;

use isolane_common_quantities::rng::Stream;
use isolane_rdma_scenario::check::DeviceLimits;
use isolane_rdma_scenario::model::MTUS;
use isolane_rdma_scenario::profile::{LinkLayer, Profile};
pub use point::{Dimension, Feature, Kind, Point};
pub use rules::{Broken, MEMORY_MAX, WORK_REQUESTS_MAX};
use rules::{receives_least, rules};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Queue pairs of an attacker at most: what providers grant a tenant is of this order, and a search of more finds the
/// same causes more slowly.
pub const ATTACKER_QUEUE_PAIRS: u64 = 1_024;
/// Regions of an attacker at most, likewise.
pub const ATTACKER_REGIONS: u64 = 65_536;
/// Draws before a space counts as empty.
const DRAWS_MAX: u32 = 4_000;

/// The values that a feature may take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Allowed {
    /// These, ascending.
    Set(Vec<u64>),
    /// All from the first to the second.
    Range(u64, u64),
}

impl Allowed {
    /// Whether `value` is one of them.
    pub fn has(&self, value: u64) -> bool {
        match self {
            Self::Set(values) => values.contains(&value),
            Self::Range(least, most) => (*least..=*most).contains(&value),
        }
    }

    /// What points are drawn from: the set, or the ends and the powers of two between them.
    pub fn grid(&self) -> Vec<u64> {
        match self {
            Self::Set(values) => values.clone(),
            Self::Range(least, most) => {
                let mut grid = vec![*least];
                let powers = (0..63).map(|bit| 1u64 << bit);
                grid.extend(powers.filter(|power| least < power && power < most));
                if least < most {
                    grid.push(*most);
                }
                grid
            }
        }
    }

    /// The allowed value next to `value`.
    pub fn nearest(&self, value: u64) -> u64 {
        match self {
            Self::Set(values) => {
                let near = values.iter().min_by_key(|&&v| v.abs_diff(value));
                near.copied().unwrap_or(value)
            }
            Self::Range(least, most) => value.clamp(*least, *most),
        }
    }
}

/// The space of one device, perhaps restricted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    allowed: BTreeMap<Feature, Allowed>,
}

impl Space {
    /// All workloads that the device of `profile` accepts.
    pub fn of(profile: &Profile) -> Self {
        let limits = DeviceLimits::of(profile);
        let named = |feature: Feature| first(feature.names().map_or(0, <[&str]>::len) as u64);
        let services = match profile.link_layer {
            LinkLayer::Iwarp => Allowed::Set(vec![0, 1, 2]),
            LinkLayer::Roce | LinkLayer::Infiniband => first(point::ORDINARY_SERVICES),
        };
        let mtus = MTUS.into_iter().filter(|&mtu| mtu <= limits.mtu_max);
        let allowed = Feature::ALL.into_iter().map(|feature| {
            let allowed = match feature {
                Feature::Direction => first(point::LOOPBACK + 1),
                Feature::MemoryA | Feature::MemoryB => named(feature),
                Feature::Control | Feature::Receives => first(1),
                Feature::Service => services.clone(),
                Feature::Mtu => Allowed::Set(mtus.clone().map(u64::from).collect()),
                Feature::Regions => Allowed::Range(1, 200_000),
                Feature::RegionBytes => Allowed::Range(4 << 10, 1 << 30),
                Feature::QueuePairs => Allowed::Range(1, 20_000),
                Feature::PostList | Feature::ReceiveBatch => Allowed::Range(1, 128),
                Feature::Depth => Allowed::Range(1, 4_096),
                Feature::ReceiveDepth => Allowed::Range(2, 8_192),
                Feature::Requests | Feature::Elements => Allowed::Range(1, 16),
                Feature::Smallest | Feature::Largest => {
                    Allowed::Range(point::ELEMENT_LEAST, 4 << 20)
                }
                // One kind of traffic, unless `with_two_kinds` allows a second; its ranges are those of the first.
                _ => first(1),
            };
            (feature, allowed)
        });
        let mut space = Self {
            allowed: allowed.collect(),
        };
        for (first, second) in kind::PAIRS {
            space.narrow(second, space.allowed(first).clone());
        }
        space
    }

    /// What a tenant beside a victim may do on the device of `profile`: besides data also control verbs, atomics, SENDs
    /// that meet no receive, and either host as the sender. Memory is at the card's socket; queue pairs and regions end
    /// at what a tenant is granted ([`ATTACKER_QUEUE_PAIRS`], [`ATTACKER_REGIONS`]).
    pub fn attackers(profile: &Profile) -> Self {
        let mut space = Self::of(profile);
        let all = |feature: Feature| first(feature.names().map_or(0, <[&str]>::len) as u64);
        for feature in [Feature::Direction, Feature::Control, Feature::Receives] {
            space.narrow(feature, all(feature));
        }
        if profile.link_layer == LinkLayer::Iwarp {
            space.narrow(Feature::Receives, first(1));
        } else if DeviceLimits::of(profile).atomics {
            space.narrow(Feature::Service, first(point::ATOMIC + 1));
        }
        for feature in [Feature::MemoryA, Feature::MemoryB] {
            space.narrow(feature, first(1));
        }
        space.narrow(Feature::QueuePairs, Allowed::Range(1, ATTACKER_QUEUE_PAIRS));
        space.narrow(Feature::Regions, Allowed::Range(1, ATTACKER_REGIONS));
        space
    }

    /// Whether it was made by [`Space::attackers`]; known until restrictions narrow it.
    fn is_of_attackers(&self) -> bool {
        let backward = self.allowed(Feature::Direction).has(point::BACKWARD);
        backward || self.allowed(Feature::Control).grid() != [0]
    }

    /// The values that `feature` may take.
    pub fn allowed(&self, feature: Feature) -> &Allowed {
        &self.allowed[&feature]
    }

    /// Whether every workload of this space has `feature`.
    pub(crate) fn is_everywhere(&self, feature: Feature) -> bool {
        let data = self.allowed(Feature::Control).grid() == [0];
        let atomics = self.allowed(Feature::Service).has(point::ATOMIC);
        match feature {
            _ if feature.of_first().is_some() => false,
            Feature::Second => data,
            _ if feature.dimension() == Dimension::Pattern && atomics => false,
            Feature::Direction | Feature::QueuePairs | Feature::Regions | Feature::Control => true,
            Feature::ReceiveDepth | Feature::ReceiveBatch | Feature::Receives => false,
            _ => data,
        }
    }

    /// The same space with fewer values of `feature`.
    pub(crate) fn narrow(&mut self, feature: Feature, allowed: Allowed) {
        self.allowed.insert(feature, allowed);
    }

    /// This space without the named choices that a target refuses for every simple workload: `runs` says which it takes.
    pub fn kept(mut self, runs: impl Fn(&Point) -> bool) -> Self {
        for feature in Feature::ALL {
            let Allowed::Set(values) = self.allowed(feature).clone() else {
                continue;
            };
            let plain = |value: u64| match feature {
                Feature::Receives => feature.set(&benchmark::simple(1, 1, 1), value),
                _ => feature.set(&benchmark::simple(0, 2, 1), value),
            };
            let taken: Vec<u64> = values
                .iter()
                .copied()
                .filter(|&v| runs(&plain(v)))
                .collect();
            // Where nothing is taken, the choice is not the cause: the run itself reports the error.
            if !taken.is_empty() {
                self.narrow(feature, Allowed::Set(taken));
            }
        }
        self
    }

    /// Whether `point` is in the space; the rule that it breaks if not.
    pub fn check(&self, point: &Point) -> Result<(), Broken> {
        self.limits(point)?;
        rules(point)?;
        match point.second {
            None => Ok(()),
            Some(_) => rules(&point.swapped()),
        }
    }

    /// Whether every feature of `point` has an allowed value; the first that has none if not.
    pub(crate) fn limits(&self, point: &Point) -> Result<(), Broken> {
        for feature in Feature::ALL.into_iter().filter(|f| f.is_active(point)) {
            let value = feature.of(point);
            if !self.allowed(feature).has(value) {
                return Err(format!(
                    "{} = {} is not in the space",
                    feature.name(),
                    feature.shown(value)
                ));
            }
        }
        Ok(())
    }

    /// A random valid point. The error is the rule that the last of many draws broke, when no draw is valid.
    pub fn draw(&self, stream: &mut Stream) -> Result<Point, Broken> {
        let mut broken = String::new();
        for _ in 0..DRAWS_MAX {
            let point = self.repaired(self.raw_draw(stream));
            match self.check(&point) {
                Ok(()) => return Ok(point),
                Err(rule) => broken = rule,
            }
        }
        Err(broken)
    }

    /// A random valid point whose numbers are on their low or on their high side, with a pattern of a distinct kind:
    /// all small, all of a middle size, all large, or small and large mixed. Where two numbers exclude each other,
    /// either one changes. Fails as [`Space::draw`] does.
    pub fn draw_corner(&self, stream: &mut Stream) -> Result<Point, Broken> {
        for _ in 0..DRAWS_MAX {
            let mut point = self.raw_draw(stream);
            for &feature in self.features() {
                if let Allowed::Range(..) = self.allowed(feature)
                    && feature.dimension() != Dimension::Pattern
                {
                    let grid = self.allowed(feature).grid();
                    point = feature.set(&point, side(feature, &grid, stream));
                }
            }
            if stream.chance(4, 5) {
                let usual = USUAL_MTUS[stream.below(USUAL_MTUS.len() as u64) as usize];
                point.mtu = self.allowed(Feature::Mtu).nearest(usual);
            }
            self.corner_pattern(&mut point, stream);
            if stream.chance(1, 2) {
                self.give_way(&mut point);
            }
            let point = self.repaired(point);
            if self.check(&point).is_ok() {
                return Ok(point);
            }
        }
        self.draw(stream)
    }

    /// Makes room for a deep queue by fewer pairs, and for many regions by short ones; a repair does the opposite.
    fn give_way(&self, point: &mut Point) {
        if point.queue_pairs * point.depth > WORK_REQUESTS_MAX {
            let pairs = self.allowed(Feature::QueuePairs);
            point.queue_pairs = pairs.nearest(WORK_REQUESTS_MAX / point.depth);
        }
        let room = MEMORY_MAX / point.regions.max(1);
        if point.region_bytes > room {
            let shortest = Feature::Largest.of(point).next_power_of_two();
            point.region_bytes = self
                .allowed(Feature::RegionBytes)
                .nearest(shortest.max(room.next_power_of_two() / 2));
        }
    }

    /// `point` with `value` for `feature`, and what that makes invalid repaired; none where it cannot be.
    pub fn changed(&self, point: &Point, feature: Feature, value: u64) -> Option<Point> {
        let point = self.repaired(feature.set(point, value));
        let kept = feature.of(&point) == value && self.check(&point).is_ok();
        kept.then_some(point)
    }

    fn corner_pattern(&self, point: &mut Point, stream: &mut Stream) {
        let sizes = self.sizes();
        let part = |from: usize, to: usize| &sizes[from.min(sizes.len() - 1)..to.min(sizes.len())];
        let third = sizes.len().div_ceil(3);
        let (small, large) = (part(0, third), part(2 * third, sizes.len()));
        let kind = stream.below(4);
        let long = |feature: Feature, stream: &mut Stream| {
            let grid = self.allowed(feature).grid();
            match stream.chance(1, 2) {
                true => grid[0],
                false => side(feature, &grid, stream),
            }
        };
        let (requests, elements) = (
            long(Feature::Requests, stream),
            long(Feature::Elements, stream),
        );
        *point = Feature::Requests.set(point, requests);
        *point = Feature::Elements.set(point, elements);
        let mut of = |sizes: &[u64]| sizes[stream.below(sizes.len() as u64) as usize];
        let (low, middle, high) = (of(small), of(part(third, 2 * third)), of(large));
        if kind > 2 && point.requests.iter().map(Vec::len).sum::<usize>() == 1 {
            point.requests = vec![vec![low, high]];
        }
        for (index, size) in point.requests.iter_mut().flatten().enumerate() {
            *size = match kind {
                0 => low,
                1 => middle,
                2 => high,
                _ if index % 2 == 0 => low,
                _ => high,
            };
        }
    }

    /// `point` with `value` for `feature` and nothing else changed; none where that is not valid.
    pub fn with(&self, point: &Point, feature: Feature, value: u64) -> Option<Point> {
        if !feature.is_active(point) || !self.allowed(feature).has(value) {
            return None;
        }
        let point = feature.set(point, value);
        let kept = feature.of(&point) == value && self.check(&point).is_ok();
        kept.then_some(point)
    }

    fn raw_draw(&self, stream: &mut Stream) -> Point {
        let point = self.raw_kind(stream);
        self.with_drawn_kind(point, stream)
    }

    /// A random point of one kind of traffic, not yet valid.
    fn raw_kind(&self, stream: &mut Stream) -> Point {
        let mut pick = |feature: Feature| {
            let grid = self.allowed(feature).grid();
            grid[stream.below(grid.len() as u64) as usize]
        };
        let mut point = Point {
            direction: pick(Feature::Direction),
            memory_a: pick(Feature::MemoryA),
            memory_b: pick(Feature::MemoryB),
            regions: pick(Feature::Regions),
            region_bytes: pick(Feature::RegionBytes),
            service: pick(Feature::Service),
            queue_pairs: pick(Feature::QueuePairs),
            mtu: pick(Feature::Mtu),
            post_list: pick(Feature::PostList),
            depth: pick(Feature::Depth),
            receive_depth: pick(Feature::ReceiveDepth),
            receive_batch: pick(Feature::ReceiveBatch),
            requests: Vec::new(),
            control: 0,
            receives: 0,
            second: None,
        };
        let (requests, elements) = (pick(Feature::Requests), pick(Feature::Elements));
        let sizes = self.sizes();
        let uniform = stream.chance(1, 2);
        let one = sizes[stream.below(sizes.len() as u64) as usize];
        let size = |stream: &mut Stream| match uniform {
            true => one,
            false => sizes[stream.below(sizes.len() as u64) as usize],
        };
        point.requests = (0..requests)
            .map(|_| (0..elements).map(|_| size(stream)).collect())
            .collect();
        // Drawn only where there is a choice, so that spaces without one are drawn from as they always were.
        for feature in [Feature::Control, Feature::Receives] {
            let grid = self.allowed(feature).grid();
            if grid.len() > 1 {
                point = feature.set(&point, grid[stream.below(grid.len() as u64) as usize]);
            }
        }
        point
    }

    /// The grid of element sizes.
    fn sizes(&self) -> Vec<u64> {
        let mut sizes = self.allowed(Feature::Smallest).grid();
        sizes.extend(self.allowed(Feature::Largest).grid());
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// `point` moved towards the rules where that is simple, each of its kinds.
    pub(crate) fn repaired(&self, mut point: Point) -> Point {
        if !self.allowed(Feature::Second).has(0) && point.second.is_none() {
            let least = self.allowed(Feature::Second).nearest(0);
            point = Feature::Second.set(&point, least);
        }
        let point = self.repaired_first(point);
        match point.second {
            None => point,
            Some(_) => self.swapped().repaired_first(point.swapped()).swapped(),
        }
    }

    /// `point` with its first kind moved towards the rules.
    fn repaired_first(&self, mut point: Point) -> Point {
        let to = |feature: Feature, value: u64| self.allowed(feature).nearest(value);
        if point.service == point::ATOMIC {
            point.requests = point::atomic_pattern();
        }
        if point.service == point::DATAGRAM {
            for request in &mut point.requests {
                let room = (point.mtu / request.len() as u64).max(1);
                for size in request.iter_mut() {
                    *size = (*size).min(room);
                }
            }
        }
        if point.direction == point::LOOPBACK && point.second.is_none() {
            point.queue_pairs = to(Feature::QueuePairs, point.queue_pairs.max(2));
        }
        point.depth = to(Feature::Depth, point.depth.max(point.post_list));
        if point.queue_pairs * point.depth > WORK_REQUESTS_MAX {
            point.depth = to(Feature::Depth, WORK_REQUESTS_MAX / point.queue_pairs);
            point.post_list = to(Feature::PostList, point.post_list.min(point.depth));
        }
        if point.control != 0 {
            point = plain_data(point);
        }
        if point.receives == point::NEVER && !point.has_receives() {
            point.receives = 0;
        }
        match point.has_receives() && point.receives != point::NEVER {
            true => {
                let least = receives_least(&point);
                point.receive_depth = to(Feature::ReceiveDepth, point.receive_depth.max(least));
            }
            false if point.has_receives() => {}
            false => (point.receive_depth, point.receive_batch) = (0, 0),
        }
        let largest = Feature::Largest.of(&point);
        let hold = point.region_bytes.max(largest.next_power_of_two());
        point.region_bytes = to(Feature::RegionBytes, hold);
        if point.regions.saturating_mul(point.region_bytes) > MEMORY_MAX {
            point.regions = to(Feature::Regions, (MEMORY_MAX / point.region_bytes).max(1));
        }
        point
    }
}

/// A value of `grid` on its low or its high side: a third of the time the end itself, else any of that half. Many queue
/// pairs and regions cost time, and the most of them show little that half as many do not.
fn side(feature: Feature, grid: &[u64], stream: &mut Stream) -> u64 {
    let last = grid.len() - 1;
    let high = stream.chance(1, 2);
    let costs = matches!(feature, Feature::QueuePairs | Feature::Regions);
    let place = match stream.chance(1, 3) && !(high && costs) {
        true => 0,
        false => stream.below(grid.len().div_ceil(2) as u64) as usize,
    };
    grid[if high { last - place } else { place }]
}

/// The largest MTUs that Ethernet frames of 1,500 and of 9,000 B hold.
const USUAL_MTUS: [u64; 2] = [1_024, 4_096];

/// The first `count` values of a choice.
fn first(count: u64) -> Allowed {
    Allowed::Set((0..count).collect())
}

/// `point` with the data side of a point that posts no data: one form of it, so that equal attacks are equal points.
fn plain_data(point: Point) -> Point {
    Point {
        memory_a: 0,
        memory_b: 0,
        service: 0,
        mtu: CONTROL_MTU,
        post_list: 1,
        depth: 1,
        receive_depth: 0,
        receive_batch: 0,
        requests: vec![vec![CONTROL_SIZE]],
        receives: 0,
        ..point
    }
}

/// MTU and size that a point of control verbs carries: every device has them, and no code reads them.
const CONTROL_MTU: u64 = 1_024;
const CONTROL_SIZE: u64 = 64;

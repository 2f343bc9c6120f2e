//! Devices with planted mechanisms: random, hidden, and known to the judge alone.
//!
//! Problem: a searcher that is developed on one device is good at that device. Method: a numbered device has four to ten
//! mechanisms drawn from its number. Each has one to five conditions on different features, which hold for up to half of a
//! feature's values: some of a choice, one side of a number, small or large elements, or both in one pattern. Half of the mechanisms are cliffs, which show in full
//! where all conditions hold; the others are ramps, whose loss grows with each step of the grid behind the conditions and
//! passes the monitor's threshold somewhere behind them. A counter of occupancy rises with the conditions that hold (three of
//! five mechanisms), only shortly before the last one (one of five), or never (one of five); some counters say nothing. A
//! mechanism that holds for a plain benchmark workload, for more than a third of all workloads or for hardly any is drawn
//! again. Mechanisms may overlap; one that another hides wherever it holds is left out. A finding belongs to a mechanism when removing it ends the symptom.
//! Limits: an experiment has no noise. Which devices a searcher was developed on is said in `docs/internals/hunt-figures.md`. Source:
//! ours.

use crate::HuntError;
use crate::bounds::Bounds;
use crate::counters::Counter;
use crate::experiment::{Arrived, Measured, Target};
use crate::monitor::{Symptom, judge};
use crate::space::benchmark::simple;
use crate::space::point::ORDINARY_SERVICES;
use crate::space::{Allowed, Dimension, Feature, Point, Space};
use isolane_common_quantities::rng::Stream;
use std::collections::BTreeMap;

/// Mechanisms of a device at least and at most.
const MECHANISMS: (u64, u64) = (4, 10);
/// Conditions of a mechanism at most.
const CONDITIONS_MAX: u64 = 5;
/// Workloads with which it is estimated how many a mechanism holds for.
const SAMPLES: usize = 600;
/// Of these it holds for one in so many at most.
const COMMON_ONE_IN: usize = 3;
/// Steps from a workload towards a mechanism after which it counts as out of reach.
const REACH_STEPS: usize = 50;
/// Counters that say nothing.
const IDLE_COUNTERS: u64 = 4;
/// Link of every planted device, Gb/s.
const LINK_GBPS: f64 = 200.0;
/// What a cliff does: the time paused, or the part of the throughput that is lost.
const FULL: f64 = 0.5;

/// How a counter follows a mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    /// It rises with every condition that holds.
    Early,
    /// It rises when one condition is missing.
    Late,
    /// It does not.
    Never,
}

/// A hidden mechanism.
#[derive(Clone, Debug, PartialEq)]
pub struct Planted {
    /// What is seen.
    pub symptom: Symptom,
    /// When.
    pub conditions: BTreeMap<Feature, Allowed>,
    /// Loss per step behind the conditions; none for a cliff.
    slope: Option<f64>,
    shown: Shown,
}

/// A device with planted mechanisms.
#[derive(Clone, Debug, PartialEq)]
pub struct PlantedDevice {
    name: String,
    number: u64,
    /// The mechanisms.
    pub mechanisms: Vec<Planted>,
    bounds: Bounds,
}

impl PlantedDevice {
    /// The device with this number, in `space`.
    pub fn new(number: u64, space: &Space) -> Self {
        let mut stream = Stream::indexed(number, "hunt/planted", 0);
        let samples: Vec<Point> = (0..SAMPLES)
            .filter_map(|_| space.draw(&mut stream).ok())
            .collect();
        let count = MECHANISMS.0 + stream.below(MECHANISMS.1 - MECHANISMS.0 + 1);
        let mut mechanisms = Vec::new();
        while (mechanisms.len() as u64) < count {
            let one = Planted::draw(space, &mut stream);
            if one.is_fair(space, &samples, &mut stream) {
                mechanisms.push(one);
            }
        }
        let mut device = Self {
            name: format!("planted:{number}"),
            number,
            mechanisms,
            bounds: Bounds {
                link_gbps: LINK_GBPS,
                packets_per_s: 1e8,
                services: Vec::new(),
            },
        };
        let alone: Vec<bool> = (0..device.mechanisms.len())
            .map(|index| device.shows_alone(index, space, &samples, &mut stream))
            .collect();
        let mut alone = alone.into_iter();
        device.mechanisms.retain(|_| alone.next().unwrap_or(false));
        device
    }

    /// Whether some workload shows the mechanism with this index, and none of the others beside it.
    fn shows_alone(
        &self,
        index: usize,
        space: &Space,
        samples: &[Point],
        stream: &mut Stream,
    ) -> bool {
        let one = &self.mechanisms[index];
        let own = [(index + 1).to_string()];
        samples.iter().any(|start| {
            let point = one.reached(space, start, stream);
            point.is_some_and(|point| self.causes(&point, one.symptom) == own)
        })
    }

    /// What its experiments are held against.
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Names of the mechanisms, in their order.
    pub fn names(&self) -> Vec<String> {
        (1..=self.mechanisms.len()).map(|n| n.to_string()).collect()
    }

    /// The mechanisms without which `point` does not show `symptom`.
    pub fn causes(&self, point: &Point, symptom: Symptom) -> Vec<String> {
        let shows = |without: Option<usize>| {
            let measured = self.measured(point, without);
            judge(point, &measured, &self.bounds).symptom == Some(symptom)
        };
        if !shows(None) {
            return Vec::new();
        }
        let names = self.names().into_iter().enumerate();
        names
            .filter(|&(index, _)| !shows(Some(index)))
            .map(|(_, name)| name)
            .collect()
    }

    /// The counters that a search follows, in an order that says nothing.
    pub fn counters(&self) -> Vec<Counter> {
        let count = self.mechanisms.len() as u64 + IDLE_COUNTERS;
        let mut numbers: Vec<u64> = (0..count).collect();
        let mut stream = Stream::indexed(self.number, "hunt/planted", 1);
        for place in (1..numbers.len()).rev() {
            numbers.swap(place, stream.below(place as u64 + 1) as usize);
        }
        let counter = |number: u64| Counter {
            name: format!("counter_{number}"),
            up: true,
        };
        numbers.into_iter().map(counter).collect()
    }

    fn measured(&self, point: &Point, without: Option<usize>) -> Measured {
        let (mut paused, mut lost) = (0.0f64, 0.0f64);
        let mut counters = BTreeMap::new();
        for (index, mechanism) in self.mechanisms.iter().enumerate() {
            if without == Some(index) {
                continue;
            }
            let loss = mechanism.loss(point);
            match mechanism.symptom {
                Symptom::PauseFrames => paused = paused.max(loss),
                _ => lost = lost.max(loss),
            }
            let occupancy = mechanism.occupancy(point);
            if occupancy > 0.0 {
                counters.insert(format!("counter_{index}"), occupancy);
            }
        }
        // What says nothing moves with features all the same.
        let base = self.mechanisms.len() as u64;
        for idle in 0..IDLE_COUNTERS {
            let feature = Feature::ALL[((self.number + idle * 5) % 12) as usize];
            let value = 1.0 + feature.of(point) as f64;
            counters.insert(format!("counter_{}", base + idle), value);
        }
        Measured {
            pause_ratio: paused,
            slowest: Arrived {
                gbps: LINK_GBPS * (1.0 - lost),
                packets_per_s: 1e6,
            },
            steady: true,
            counters,
            ..Measured::default()
        }
    }
}

impl Target for PlantedDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn measure(&self, point: &Point, _: u64) -> Result<Measured, HuntError> {
        Ok(self.measured(point, None))
    }
}

impl Planted {
    fn draw(space: &Space, stream: &mut Stream) -> Self {
        let symptom = match stream.chance(1, 2) {
            true => Symptom::PauseFrames,
            false => Symptom::LowThroughput,
        };
        let mut conditions = BTreeMap::new();
        let count = 1 + stream.below(CONDITIONS_MAX);
        // Where points may have two kinds of traffic, half of the mechanisms may need both.
        let both = space.has_two_kinds() && stream.chance(1, 2);
        let mut features: Vec<Feature> = space
            .features()
            .iter()
            .copied()
            .filter(|feature| !feature.is_of_attackers() && (both || !feature.is_of_second()))
            .collect();
        for _ in 0..count {
            let place = stream.below(features.len() as u64) as usize;
            let feature = features.swap_remove(place);
            condition(space, feature, &mut conditions, stream);
        }
        let slope = stream
            .chance(1, 2)
            .then(|| [0.02, 0.05, 0.1, 0.2][stream.below(4) as usize]);
        let shown = match stream.below(5) {
            0..=2 => Shown::Early,
            3 => Shown::Late,
            _ => Shown::Never,
        };
        Self {
            symptom,
            conditions,
            slope,
            shown,
        }
    }

    fn holds(&self, point: &Point) -> bool {
        self.met(point) == self.conditions.len()
    }

    /// Conditions that hold.
    fn met(&self, point: &Point) -> usize {
        match point.second {
            None => self.met_as_it_is(point),
            Some(_) => self.met_as_it_is(&self.seen(point)),
        }
    }

    /// The view of `point` of which most conditions hold; the point itself where it has one kind of traffic.
    fn seen(&self, point: &Point) -> Point {
        let of_two = self.conditions.keys().any(|feature| feature.is_of_second());
        // Of equals the first.
        let views = point.views(of_two).into_iter().rev();
        let most = views.max_by_key(|view| self.met_as_it_is(view));
        most.expect("a point has a view at least")
    }

    fn met_as_it_is(&self, point: &Point) -> usize {
        let all = self.conditions.iter();
        all.filter(|(f, allowed)| f.is_active(point) && allowed.has(f.of(point)))
            .count()
    }

    /// Part of the time paused, or of the throughput lost.
    fn loss(&self, point: &Point) -> f64 {
        match self.slope {
            _ if !self.holds(point) => 0.0,
            None => FULL,
            // Pauses are counted from a thousandth on, losses from a fifth on.
            Some(slope) => (slope * (1.0 + self.steps_behind(point))).min(FULL),
        }
    }

    /// Doublings behind the limits of all numbers.
    fn steps_behind(&self, point: &Point) -> f64 {
        let point = &self.seen(point);
        let steps = self.conditions.iter().map(|(feature, allowed)| {
            let Allowed::Range(least, most) = allowed else {
                return 0.0;
            };
            let value = feature.of(point).max(1) as f64;
            let from_low = libm::log2(value / (*least).max(1) as f64);
            let from_high = libm::log2((*most).max(1) as f64 / value);
            // The limit is the end of the range that is not an end of the space, the nearer one.
            from_low.min(from_high).max(0.0)
        });
        steps.sum()
    }

    fn occupancy(&self, point: &Point) -> f64 {
        let (met, all) = (self.met(point), self.conditions.len());
        let part = met as f64 / all as f64;
        match self.shown {
            Shown::Early => part * (1.0 + self.steps_behind(point)),
            Shown::Late if met + 1 >= all && all > 1 => part,
            Shown::Late | Shown::Never => 0.0,
        }
    }

    /// Whether plain benchmarks are sound, the mechanism is no commonplace, and some workload meets it.
    fn is_fair(&self, space: &Space, samples: &[Point], stream: &mut Stream) -> bool {
        let benchmarks = (0..ORDINARY_SERVICES)
            .filter(|&service| space.allowed(Feature::Service).has(service))
            .flat_map(|service| [(1, 1), (1, 32), (64, 32)].map(|(q, l)| simple(service, q, l)));
        if benchmarks.into_iter().any(|point| self.holds(&point)) {
            return false;
        }
        let held = samples.iter().filter(|point| self.holds(point)).count();
        if held * COMMON_ONE_IN > samples.len() {
            return false;
        }
        let anomalous = |point: &Point| match self.symptom {
            Symptom::PauseFrames => self.loss(point) > crate::monitor::PAUSE_RATIO_MAX,
            _ => 1.0 - self.loss(point) < crate::monitor::REACHED_MIN,
        };
        samples.iter().take(REACH_STEPS).any(|start| {
            self.reached(space, start, stream)
                .is_some_and(|p| anomalous(&p))
        })
    }

    /// `start` moved inside, feature by feature, to the far side of every condition.
    fn reached(&self, space: &Space, start: &Point, stream: &mut Stream) -> Option<Point> {
        let mut point = start.clone();
        // Twice, since a condition may only be valid after another.
        for _ in 0..2 {
            for (&feature, allowed) in &self.conditions {
                if allowed.has(feature.of(&point)) && feature.is_active(&point) {
                    continue;
                }
                let grid = allowed.grid();
                let value = grid[stream.below(grid.len() as u64) as usize];
                if feature.of_first().is_some() && point.second.is_none() {
                    let some = space.allowed(Feature::Second).nearest(u64::MAX);
                    let with = space.changed(&point, Feature::Second, some);
                    point = with.unwrap_or(point);
                }
                point = space.changed(&point, feature, value).unwrap_or(point);
            }
        }
        self.holds(&point).then_some(point)
    }
}

/// Adds a condition on `feature` to `conditions`.
fn condition(
    space: &Space,
    feature: Feature,
    conditions: &mut BTreeMap<Feature, Allowed>,
    stream: &mut Stream,
) {
    let grid = space.allowed(feature).grid();
    // A condition holds for up to half of a feature's values, as most of the published ones do.
    let half = (grid.len() as u64 / 2).max(1);
    let count = (1 + stream.below(half)) as usize;
    let side = |stream: &mut Stream| match stream.chance(1, 2) {
        true => grid[..count].to_vec(),
        false => grid[grid.len() - count..].to_vec(),
    };
    match space.allowed(feature) {
        // A number of few values: one side of it.
        Allowed::Set(_) if matches!(feature, Feature::Mtu | Feature::SecondMtu) => {
            conditions.insert(feature, Allowed::Set(side(stream)));
        }
        Allowed::Set(_) => {
            let mut values = grid;
            while values.len() > count {
                values.remove(stream.below(values.len() as u64) as usize);
            }
            conditions.insert(feature, Allowed::Set(values));
        }
        Allowed::Range(least, most)
            if feature.dimension() == Dimension::Pattern && feature.is_size() =>
        {
            let third = grid.len() as u64 / 3;
            let low = grid[(1 + stream.below(third + 1)) as usize];
            let high = grid[grid.len() - 2 - stream.below(third + 1) as usize];
            let [smallest, largest] = match feature.is_of_second() {
                true => [Feature::SecondSmallest, Feature::SecondLargest],
                false => [Feature::Smallest, Feature::Largest],
            };
            // All short, all long, or both in one pattern.
            let (small, large) = ((*least, low), (high, *most));
            match stream.below(3) {
                0 => conditions.insert(largest, Allowed::Range(small.0, small.1)),
                1 => conditions.insert(smallest, Allowed::Range(large.0, large.1)),
                _ => {
                    conditions.insert(smallest, Allowed::Range(small.0, small.1));
                    conditions.insert(largest, Allowed::Range(large.0, large.1))
                }
            };
        }
        Allowed::Range(..) => {
            let side = side(stream);
            let (least, most) = (side[0], side[side.len() - 1]);
            conditions.insert(feature, Allowed::Range(least, most));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::space;

    #[test]
    fn a_number_names_one_device_and_plain_benchmarks_are_sound_on_it() {
        let space = space();
        for number in 1_000..1_010 {
            let device = PlantedDevice::new(number, &space);
            assert_eq!(device, PlantedDevice::new(number, &space));
            assert!((2..=10).contains(&device.mechanisms.len()));
            for service in 0..ORDINARY_SERVICES {
                let point = simple(service, 64, 32);
                let measured = device.measure(&point, 1).unwrap();
                let judged = judge(&point, &measured, device.bounds());
                assert_eq!(judged.symptom, None, "{number} {point:?}");
            }
        }
    }

    #[test]
    fn a_finding_belongs_to_the_mechanism_without_which_it_ends() {
        let space = space();
        let device = PlantedDevice::new(1_000, &space);
        let mut stream = Stream::named(1, "test");
        let mut named = 0;
        for (index, mechanism) in device.mechanisms.iter().enumerate() {
            for _ in 0..200 {
                let start = space.draw(&mut stream).unwrap();
                let Some(point) = mechanism.reached(&space, &start, &mut stream) else {
                    continue;
                };
                let measured = device.measure(&point, 1).unwrap();
                let Some(symptom) = judge(&point, &measured, device.bounds()).symptom else {
                    continue;
                };
                let causes = device.causes(&point, symptom);
                let own = (index + 1).to_string();
                if causes == [own] {
                    named += 1;
                    break;
                }
            }
        }
        assert_eq!(named, device.mechanisms.len());
    }
}

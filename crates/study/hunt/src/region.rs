//! A region of the search space: for some features the values that belong to it, all values for the others.
//!
//! A minimal feature set is such a region; a point inside of one is skipped. Limits: a region is a product, so
//! conditions that hang together (many queue pairs or deep queues) become a smaller box around the witness. Source:
//! collie 3.5.1 (a list of parameter ranges that a point has to match in all).

use crate::space::{Allowed, Feature, Point, Space};
use isolane_common_quantities::rng::Stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Region {
    /// The values of each feature that matters.
    pub features: BTreeMap<Feature, Allowed>,
}

impl Region {
    /// Whether `point` is inside; of two kinds of traffic, either may meet the conditions (`Point::views`).
    pub fn has(&self, point: &Point) -> bool {
        let holds = |point: &Point| {
            let mut all = self.features.iter();
            all.all(|(feature, allowed)| feature.is_active(point) && allowed.has(feature.of(point)))
        };
        if point.second.is_none() {
            return holds(point);
        }
        let of_two = self.features.keys().any(|feature| feature.is_of_second());
        point.views(of_two).iter().any(holds)
    }

    /// Whether all of `other` is inside.
    pub fn covers(&self, other: &Self) -> bool {
        self.features.iter().all(|(feature, ours)| {
            let theirs = other.features.get(feature);
            theirs.is_some_and(|theirs| match (ours, theirs) {
                (Allowed::Range(a, b), Allowed::Range(c, d)) => a <= c && d <= b,
                (ours, Allowed::Set(values)) => values.iter().all(|&value| ours.has(value)),
                (Allowed::Set(_), Allowed::Range(..)) => false,
            })
        })
    }

    /// The smallest region around both; none where no condition is left.
    pub fn hull(&self, other: &Self) -> Option<Self> {
        let both = self.features.iter().filter_map(|(feature, ours)| {
            let theirs = other.features.get(feature)?;
            let hull = match (ours, theirs) {
                (Allowed::Range(a, b), Allowed::Range(c, d)) => {
                    Allowed::Range(*a.min(c), *b.max(d))
                }
                (ours, theirs) => {
                    let mut values = ours.grid();
                    values.extend(theirs.grid());
                    values.sort_unstable();
                    values.dedup();
                    Allowed::Set(values)
                }
            };
            Some((*feature, hull))
        });
        let features: BTreeMap<Feature, Allowed> = both.collect();
        (!features.is_empty()).then_some(Self { features })
    }

    /// The same without conditions that every workload of `space` meets.
    #[must_use]
    pub fn bare(mut self, space: &Space) -> Self {
        self.features.retain(|&feature, allowed| {
            let whole = space.allowed(feature).grid();
            !space.is_everywhere(feature) || whole.iter().any(|&value| !allowed.has(value))
        });
        self
    }

    /// `start`, a point inside, moved to a random place inside; the features outside of the conditions move freely.
    ///
    /// Features change one after the other, each only where the point stays valid, so combinations that need two
    /// changes at once are rarer than others.
    pub fn sample(&self, space: &Space, start: &Point, stream: &mut Stream) -> Point {
        let mut point = start.clone();
        for &feature in space.features() {
            let grid = match self.features.get(&feature) {
                Some(allowed) => allowed.grid(),
                None => space.allowed(feature).grid(),
            };
            let value = grid[stream.below(grid.len() as u64) as usize];
            if let Some(next) = space
                .with(&point, feature, value)
                .filter(|next| self.has(next))
            {
                point = next;
            }
        }
        point
    }

    /// The conditions as people read them, those of `space` left out that every value meets.
    pub fn text(&self, space: &Space) -> String {
        let words: Vec<String> = self
            .clone()
            .bare(space)
            .features
            .iter()
            .map(|(&feature, allowed)| condition(feature, allowed, space))
            .collect();
        match words.is_empty() {
            true => "everything".to_owned(),
            false => words.join(", "),
        }
    }
}

/// One condition: `queue_pairs >= 16`.
pub fn condition(feature: Feature, allowed: &Allowed, space: &Space) -> String {
    let name = feature.name();
    let whole = space.allowed(feature).grid();
    let (first, last) = (whole.first().copied(), whole.last().copied());
    match allowed {
        Allowed::Set(values) => {
            let shown = |values: &[u64], word: &str| {
                let words: Vec<String> = values.iter().map(|&value| feature.shown(value)).collect();
                words.join(word)
            };
            let others: Vec<u64> = whole
                .into_iter()
                .filter(|value| !values.contains(value))
                .collect();
            // Of five choices four are longer to say than the one that is left.
            match !others.is_empty() && others.len() + 2 <= values.len() {
                true => format!("{name} = all but {}", shown(&others, " and ")),
                false => format!("{name} = {}", shown(values, " or ")),
            }
        }
        Allowed::Range(least, most) if least == most => {
            format!("{name} = {}", feature.shown(*least))
        }
        Allowed::Range(least, most) => {
            let (low, high) = (feature.shown(*least), feature.shown(*most));
            match (
                first.is_none_or(|first| *least <= first),
                last.is_none_or(|last| *most >= last),
            ) {
                (true, _) => format!("{name} <= {high}"),
                (false, true) => format!("{name} >= {low}"),
                (false, false) => format!("{low} <= {name} <= {high}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::tests::{plain, profile};

    fn region(pairs: (u64, u64), services: &[u64]) -> Region {
        Region {
            features: BTreeMap::from([
                (Feature::QueuePairs, Allowed::Range(pairs.0, pairs.1)),
                (Feature::Service, Allowed::Set(services.to_vec())),
            ]),
        }
    }

    #[test]
    fn hulls_cover_both_and_drop_what_one_lacks() {
        let (left, mut right) = (region((16, 20_000), &[1]), region((4, 8), &[5]));
        let hull = left.hull(&right).unwrap();
        assert_eq!(hull, region((4, 20_000), &[1, 5]));
        assert!(hull.covers(&left) && hull.covers(&right) && !left.covers(&hull));
        right.features.remove(&Feature::Service);
        let hull = left.hull(&right).unwrap();
        assert!(!hull.features.contains_key(&Feature::Service) && hull.covers(&left));
        assert_eq!(left.hull(&Region::default()), None);
    }

    #[test]
    fn samples_stay_inside_and_move() {
        let space = Space::of(&profile("cx6-200g-roce"));
        let region = region((4, 64), &[1, 5]);
        let mut stream = Stream::named(1, "test");
        let samples: Vec<Point> = (0..50)
            .map(|_| region.sample(&space, &plain(), &mut stream))
            .collect();
        for sample in &samples {
            assert!(
                region.has(sample) && space.check(sample).is_ok(),
                "{sample:?}"
            );
        }
        assert!(samples.iter().any(|sample| sample.mtu != plain().mtu));
    }

    #[test]
    fn either_kind_of_traffic_may_meet_the_conditions() {
        let region = region((16, 20_000), &[1, 5]);
        let writes = Feature::Service.set(&plain(), 0);
        let many = Point {
            queue_pairs: 64,
            ..plain()
        };
        assert!(region.has(&many) && !region.has(&writes) && !region.has(&plain()));
        assert!(region.has(&writes.beside(&many)) && region.has(&many.beside(&writes)));
        assert!(!region.has(&writes.beside(&plain())));
        // Many queue pairs in both directions are another workload than many in one.
        let both_ways = Feature::Direction.set(&many, 1);
        let mut bidirectional = region;
        let direction = (Feature::Direction, Allowed::Set(vec![1]));
        bidirectional.features.extend([direction]);
        assert!(bidirectional.has(&both_ways) && !bidirectional.has(&both_ways.beside(&writes)));
    }

    #[test]
    fn conditions_read_like_the_papers_table() {
        let space = Space::of(&profile("cx6-200g-roce"));
        assert_eq!(
            region((16, 20_000), &[5]).text(&space),
            "service = ud-send, queue_pairs >= 16"
        );
        assert_eq!(
            region((1, 16), &[1, 4]).text(&space),
            "service = rc-send or uc-send, queue_pairs <= 16"
        );
        let both = condition(Feature::Largest, &Allowed::Range(2_048, 8_192), &space);
        assert_eq!(both, "2KiB <= largest <= 8KiB");
    }
}

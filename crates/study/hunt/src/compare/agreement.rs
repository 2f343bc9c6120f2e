//! How far the conditions of findings agree with published ones.
//!
//! A condition is a choice of a feature's values, or one end of a number's range that differs from the end of the space. It is
//! *named* where the finding has a condition on the same feature and, of a number, on the same side. It is *equal* where the
//! values of the finding are also among the published ones, or its limit is at most a factor of two away, one step of the grid.

use crate::region::Region;
use crate::space::{Allowed, Feature, Space};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// Conditions, counted over findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Agreement {
    /// Published conditions of the anomalies that were found.
    pub published: u32,
    /// Published conditions that the findings name too.
    pub named: u32,
    /// Named conditions with equal values.
    pub equal: u32,
    /// Conditions of the findings that were not published.
    pub further: u32,
}

/// Which condition of a feature it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Choice,
    Least,
    Most,
}

impl Agreement {
    /// Of a finding with the conditions `found`, which is an anomaly with the conditions `published`.
    pub fn of(found: &Region, published: &Region, space: &Space) -> Self {
        let further = own_conditions(found, space);
        let (found, published) = (conditions(found, space), own_conditions(published, space));
        let mut counted = Self {
            published: published.len() as u32,
            ..Self::default()
        };
        for (place, values) in &published {
            if let Some(own) = found.get(place) {
                counted.named += 1;
                counted.equal += u32::from(is_equal(own, values, place.1));
            }
        }
        let further = further
            .keys()
            .filter(|place| !published.contains_key(place));
        counted.further = further.count() as u32;
        counted
    }

    /// The published conditions that those of the finding do not equal, as `feature least`, with `(not named)` or `(another limit)`.
    pub(super) fn differing(found: &Region, published: &Region, space: &Space) -> Vec<String> {
        let (found, published) = (conditions(found, space), own_conditions(published, space));
        let mut all = Vec::new();
        for (place, values) in &published {
            let how = match found.get(place) {
                None => "not named",
                Some(own) if is_equal(own, values, place.1) => continue,
                Some(_) => "another limit",
            };
            let side = match place.1 {
                Side::Choice => "",
                Side::Least => " least",
                Side::Most => " most",
            };
            all.push(format!("{}{side} ({how})", place.0.name()));
        }
        all
    }

    /// Whether there is nothing to compare.
    pub(crate) fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// One line of text with counts and percentages.
    pub(crate) fn text(&self, of: &str) -> String {
        let percent = |part: u32| f64::from(part) / f64::from(self.published.max(1)) * 100.0;
        format!(
            "  published conditions of {of}: {} in all; it names {} ({:.0} %), {} of them with equal values \
             ({:.0} %), and {} others\n",
            self.published,
            self.named,
            percent(self.named),
            self.equal,
            percent(self.equal),
            self.further,
        )
    }
}

impl AddAssign for Agreement {
    fn add_assign(&mut self, other: Self) {
        self.published += other.published;
        self.named += other.named;
        self.equal += other.equal;
        self.further += other.further;
    }
}

/// The conditions of `region`: the values of a choice, or one limit.
fn conditions(region: &Region, space: &Space) -> BTreeMap<(Feature, Side), Vec<u64>> {
    let mut all = BTreeMap::new();
    for (&feature, allowed) in &region.features {
        let whole = space.allowed(feature).grid();
        match allowed {
            Allowed::Set(values) => {
                if whole.iter().any(|value| !values.contains(value)) {
                    all.insert((feature, Side::Choice), values.clone());
                }
            }
            &Allowed::Range(least, most) => {
                if whole.first().is_some_and(|&first| first < least) {
                    all.insert((feature, Side::Least), vec![least]);
                }
                if whole.last().is_some_and(|&last| most < last) {
                    all.insert((feature, Side::Most), vec![most]);
                }
            }
        }
    }
    all
}

/// The conditions of `region` that do not follow from others of it.
fn own_conditions(region: &Region, space: &Space) -> BTreeMap<(Feature, Side), Vec<u64>> {
    let mut all = conditions(region, space);
    all.retain(|&place, values| !follows(region, place, values[0]));
    all
}

/// Whether a limit of an element's size follows from that of another size: no element is smaller than the smallest.
fn follows(region: &Region, (feature, side): (Feature, Side), limit: u64) -> bool {
    match (feature, side) {
        (Feature::Smallest, Side::Most) => matches!(
            region.features.get(&Feature::Largest),
            Some(&Allowed::Range(_, most)) if most <= limit
        ),
        (Feature::Largest, Side::Least) => matches!(
            region.features.get(&Feature::Smallest),
            Some(&Allowed::Range(least, _)) if least >= limit
        ),
        _ => false,
    }
}

fn is_equal(found: &[u64], published: &[u64], side: Side) -> bool {
    match (side, found, published) {
        (Side::Choice, ..) => found.iter().all(|value| published.contains(value)),
        (_, [own], [other]) => *own.max(other) <= 2 * *own.min(other),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::tests::profile;

    #[test]
    fn a_limit_that_follows_from_that_of_another_size_is_no_condition_of_its_own() {
        let space = Space::of(&profile("cx6-200g-roce"));
        let sizes = |smallest: Allowed, largest: Allowed| Region {
            features: [(Feature::Smallest, smallest), (Feature::Largest, largest)].into(),
        };
        let band = || Allowed::Range(2_048, 8_192);
        let published = sizes(band(), band());
        let count = |found: &Region| Agreement::of(found, &published, &space);
        assert_eq!(
            (count(&published).published, count(&published).equal),
            (2, 2)
        );
        let all = *space.allowed(Feature::Largest).grid().last().unwrap();
        // Equal elements of at least 2 KiB and at most 8 KiB, in other words.
        let other_words = sizes(Allowed::Range(2_048, all), Allowed::Range(32, 8_192));
        assert_eq!(
            (count(&other_words).equal, count(&other_words).further),
            (2, 0)
        );
        // Only the largest was published; equal elements have the smallest at the same limit.
        let long = Region {
            features: [(Feature::Largest, Allowed::Range(16_384, all))].into(),
        };
        let equal = sizes(Allowed::Range(16_384, all), Allowed::Range(16_384, all));
        assert_eq!(Agreement::of(&equal, &long, &space).equal, 1);
        // A short element beside a long one are two conditions.
        let mixed = sizes(Allowed::Range(32, 1_024), Allowed::Range(65_536, all));
        assert_eq!(Agreement::of(&mixed, &mixed, &space).published, 2);
        let differing = Agreement::differing(&mixed, &published, &space);
        assert_eq!(
            differing,
            ["smallest least (not named)", "largest most (not named)"]
        );
    }

    #[test]
    fn conditions_are_named_by_feature_and_side_and_equal_within_a_step_of_the_grid() {
        let space = Space::of(&profile("cx6-200g-roce"));
        let most = |feature| *space.allowed(feature).grid().last().unwrap();
        let region = |conditions: &[(Feature, Allowed)]| Region {
            features: conditions.iter().cloned().collect(),
        };
        let (depth, pairs) = (most(Feature::Depth), most(Feature::QueuePairs));
        let published = region(&[
            (Feature::Service, Allowed::Set(vec![2, 5])),
            (Feature::Depth, Allowed::Range(256, depth)),
            (Feature::QueuePairs, Allowed::Range(16, pairs)),
            (Feature::Largest, Allowed::Range(32, 1_024)),
        ]);
        let found = region(&[
            (Feature::Service, Allowed::Set(vec![5])),
            (Feature::Depth, Allowed::Range(128, depth)),
            // A limit far away.
            (Feature::QueuePairs, Allowed::Range(128, pairs)),
            // The other side.
            (Feature::Largest, Allowed::Range(64, most(Feature::Largest))),
            // No condition: all values.
            (Feature::PostList, space.allowed(Feature::PostList).clone()),
        ]);
        let mut counted = Agreement::of(&found, &published, &space);
        let expected = Agreement {
            published: 4,
            named: 3,
            equal: 2,
            further: 1,
        };
        assert_eq!(counted, expected);
        counted += Agreement::of(&published, &published, &space);
        assert_eq!(
            (counted.published, counted.equal, counted.further),
            (8, 6, 1)
        );
    }
}

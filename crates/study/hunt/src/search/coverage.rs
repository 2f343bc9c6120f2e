//! How often each pair of values was met, and uniform points that show the rare ones.
//!
//! Problem: uniform points meet the ends of ranges rarely, since other features of the point often exclude them, and two such
//! ends together hardly ever. Method: of some uniform points, each with a few values placed
//! ([`Space::placed`](crate::space::Space)), the one is taken whose pairs of values of two features were met least often: a greedy
//! covering array of strength two over the grid that continues when each pair was met. Source: Cohen et al. (AETG, 1997).

use crate::space::{Feature, Point, Space};
use isolane_common_quantities::rng::Stream;
use std::collections::BTreeMap;

/// Points of which the one with the rarest pairs is taken.
const CANDIDATES: usize = 30;
/// Features of each that get a value that stays.
const PLACED: usize = 3;

/// Values of two features, as places in their grids.
type Pair = [(Feature, usize); 2];

/// How often the search met each pair of values of two features.
#[derive(Clone, Debug, Default)]
pub(super) struct Coverage {
    /// How often each pair was met.
    met: BTreeMap<Pair, u32>,
}

impl Coverage {
    /// `point` was run.
    pub(super) fn learn(&mut self, space: &Space, point: &Point) {
        for pair in pairs(space, point) {
            *self.met.entry(pair).or_default() += 1;
        }
    }

    /// A point that `is_fresh` accepts and whose pairs are rare; none where no draw is accepted.
    pub(super) fn draw(
        &self,
        space: &Space,
        is_fresh: impl Fn(&Point) -> bool,
        stream: &mut Stream,
    ) -> Option<Point> {
        let mut best: Option<(f64, Point)> = None;
        for _ in 0..CANDIDATES {
            let mut point = space.draw(stream).ok()?;
            for _ in 0..PLACED {
                let all = space.features();
                let feature = all[stream.below(all.len() as u64) as usize];
                let grid = space.allowed(feature).grid();
                let value = grid[stream.below(grid.len() as u64) as usize];
                point = space.placed(&point, feature, value).unwrap_or(point);
            }
            if !is_fresh(&point) {
                continue;
            }
            let rarity = self.rarity(space, &point);
            if best.as_ref().is_none_or(|(most, _)| rarity > *most) {
                best = Some((rarity, point));
            }
        }
        best.map(|(_, point)| point)
    }

    /// The sum over the pairs of `point`: one for a new pair, a half for one that was met once, and so on.
    fn rarity(&self, space: &Space, point: &Point) -> f64 {
        let met = |pair: Pair| self.met.get(&pair).copied().unwrap_or(0);
        let pairs = pairs(space, point);
        pairs.map(|pair| 1.0 / f64::from(1 + met(pair))).sum()
    }
}

/// All pairs of values of `point`, as places in the grids.
fn pairs(space: &Space, point: &Point) -> impl Iterator<Item = Pair> {
    let all = space.features().iter().copied();
    let active = all.filter(|f| f.is_active(point));
    let places: Vec<(Feature, usize)> = active
        .map(|feature| {
            let grid = space.allowed(feature).grid();
            let place = grid.partition_point(|&value| value < feature.of(point));
            (feature, place)
        })
        .collect();
    let count = places.len();
    (0..count).flat_map(move |one| {
        let places = places.clone();
        (one + 1..count).map(move |other| [places[one], places[other]])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::tests::profile;

    /// 150 covering draws show more pairs than 150 uniform ones, and some that uniform ones do not.
    #[test]
    fn rare_pairs_of_values_are_met() {
        let space = Space::of(&profile("cx6-200g-roce"));
        let rare = |point: &Point| point.regions == 200_000 && point.queue_pairs <= 16;
        let mut stream = Stream::named(1, "test");
        let (mut coverage, mut usual) = (Coverage::default(), Coverage::default());
        let (mut covering, mut uniform) = (0, 0);
        for _ in 0..150 {
            let point = coverage.draw(&space, |_| true, &mut stream);
            let point = point.expect("every point is accepted");
            coverage.learn(&space, &point);
            covering += usize::from(rare(&point));
            let point = space.draw(&mut stream).expect("the space is not empty");
            usual.learn(&space, &point);
            uniform += usize::from(rare(&point));
        }
        assert!(covering > uniform, "{covering} {uniform}");
        let (more, fewer) = (coverage.met.len(), usual.met.len());
        assert!(more > fewer, "{more} {fewer}");
    }
}

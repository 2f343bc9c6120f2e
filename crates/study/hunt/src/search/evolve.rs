//! Evolution: the best points of the current counter have children.
//!
//! Method: a population of sound points; each child crosses two parents, each the better of two random members, and
//! mutates once. Children join, and the worst leave. One counter is followed at a time, and the population stays
//! when it changes. An anomalous child never joins: its place would draw all others to a known anomaly. Limits:
//! standard settings (a tournament of two, one mutation), not tuned. It has no counterpart in the paper.

use super::{Ground, Observed, Searcher};
use crate::counters::Counter;
use crate::experiment::Measured;
use crate::space::Point;
use isolane_common_quantities::rng::Stream;

/// Members.
const POPULATION: usize = 24;
/// Children per generation.
const CHILDREN: usize = 8;
/// Attempts for a child outside the known anomalies, before a random point takes its place.
const ATTEMPTS_MAX: usize = 20;

/// See the module.
pub struct Evolve {
    stream: Stream,
    members: Vec<(Point, Measured)>,
    experiments: usize,
}

impl Evolve {
    /// With the stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            stream: Stream::named(seed, "hunt/evolve"),
            members: Vec::new(),
            experiments: 0,
        }
    }

    fn parent(&mut self, counter: Option<&Counter>) -> Point {
        let count = self.members.len() as u64;
        let mut pick = || &self.members[self.stream.below(count) as usize];
        let (left, right) = (pick(), pick());
        let worth = |member: &(Point, Measured)| counter.map_or(0.0, |c| c.score(&member.1));
        if worth(left) >= worth(right) {
            left.0.clone()
        } else {
            right.0.clone()
        }
    }

    fn child(&mut self, ground: &Ground<'_>) -> Option<Point> {
        let counter = ground.counter_after(self.experiments);
        for _ in 0..ATTEMPTS_MAX {
            if self.members.len() < 2 {
                break;
            }
            let (left, right) = (self.parent(counter), self.parent(counter));
            let crossed = ground.space.cross(&left, &right, &mut self.stream).ok()?;
            let child = ground.space.mutate(&crossed, &mut self.stream).ok()?;
            if ground.is_fresh(&child) {
                return Some(child);
            }
        }
        ground.draw(&mut self.stream)
    }
}

impl Searcher for Evolve {
    fn propose(&mut self, ground: &Ground<'_>) -> Vec<Point> {
        (0..CHILDREN).map_while(|_| self.child(ground)).collect()
    }

    fn observe(&mut self, ground: &Ground<'_>, observed: &[Observed]) {
        let sound = observed.iter().filter(|seen| !seen.anomalous);
        self.members
            .extend(sound.map(|seen| (seen.point.clone(), seen.measured.clone())));
        self.members.retain(|(point, _)| ground.is_fresh(point));
        self.experiments += observed.len();
        if let Some(counter) = ground.counter_after(self.experiments) {
            // Stable: of equals the older stays.
            self.members
                .sort_by(|left, right| counter.score(&right.1).total_cmp(&counter.score(&left.1)));
        }
        self.members.truncate(POPULATION);
    }
}

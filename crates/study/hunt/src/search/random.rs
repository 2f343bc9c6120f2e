//! Random points, the baseline: black-box fuzzing outside the known anomalies.

use super::{Ground, Observed, Searcher};
use crate::space::Point;
use isolane_common_quantities::rng::Stream;

/// Points per proposal.
const BATCH: usize = 4;

/// See the module.
pub struct Random {
    stream: Stream,
}

impl Random {
    /// With the stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            stream: Stream::named(seed, "hunt/random"),
        }
    }
}

impl Searcher for Random {
    fn propose(&mut self, ground: &Ground<'_>) -> Vec<Point> {
        (0..BATCH)
            .map_while(|_| ground.draw(&mut self.stream))
            .collect()
    }

    fn observe(&mut self, _: &Ground<'_>, _: &[Observed]) {}
}

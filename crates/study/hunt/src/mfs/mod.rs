//! From an anomalous point to its minimal feature set: the conditions without which the anomaly does not appear.
//!
//! Four steps. `simplify` moves every feature that does not matter to its mildest value; where the others are
//! mild, a condition is at its strictest, and the region that comes out is the one that other workloads share.
//! `limits` then tests every feature by itself: a choice by all its alternatives, a number by both ends of its
//! range and, where an end is sound, by bisection of the grid. `refine` runs random points inside and cuts off what does
//! not show the symptom. `verify` repeats the result with fresh random numbers: the simplified point has to show the symptom, and a point just outside each condition must not.
//! Decisions are sequential tests (`sprt`); steps inside a bisection are single runs, whose outcome the
//! sequential test of the last anomalous value confirms. It works alike for both symptoms.
//!
//! Limits: features are varied one at a time, so the region is a box through one point; [`FeatureSet::checks`] says how
//! many random points inside of it are anomalous. A number that is anomalous at both ends counts as free, with any
//! result between. If a simplification shows another anomaly with the same symptom, it counts as this anomaly. Source:
//! collie 3.5.2.

mod corner;
mod limits;
mod merge;
mod refine;
pub mod reverts;
mod rough;
mod simplify;
pub mod triage;
mod verify;

#[cfg(test)]
mod tests;

use crate::bench::{Bench, Stop};
use crate::monitor::Symptom;
use crate::region::Region;
use crate::space::{Feature, Point, Space};
pub use corner::corner;
use isolane_common_quantities::rng::Stream;
pub use merge::{Merged, merge};
pub use rough::rough;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Repeats of the tests begin here; 0 is the search's own.
pub(crate) const FIRST_REPEAT: u32 = 1;
/// Repeats of the verification begin here: none of them was seen before.
const FRESH_REPEAT: u32 = 100;

/// A minimal feature set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FeatureSet {
    /// What is seen.
    pub symptom: Symptom,
    /// The conditions.
    pub region: Region,
    /// The simplest point that shows it.
    pub witness: Point,
    /// For each condition a sound point that breaks it and no other; the edges of a range have one each.
    pub outside: BTreeMap<Feature, Vec<Point>>,
    /// Features whose test ran out of repeats: here the symptom is not stable.
    pub unsure: Vec<Feature>,
    /// The verification; absent where the budget ended before it.
    pub checks: Option<Checks>,
}

impl FeatureSet {
    /// A set without conditions.
    pub fn of(symptom: Symptom, witness: Point) -> Self {
        Self {
            symptom,
            region: Region::default(),
            witness,
            outside: BTreeMap::new(),
            unsure: Vec::new(),
            checks: None,
        }
    }
}

/// What the verification found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Checks {
    /// The witness shows the symptom.
    pub reproduces: bool,
    /// Conditions that can be broken without effect; empty when each is necessary.
    pub broken_without_effect: Vec<Feature>,
    /// Random points inside that were tried, one run each.
    pub tried: u32,
    /// Those of them that showed the symptom.
    pub shown: u32,
}

impl Checks {
    /// True where the witness reproduces and every condition is necessary.
    pub fn hold(&self) -> bool {
        self.reproduces && self.broken_without_effect.is_empty()
    }
}

/// Reduces `point`, an experiment that showed `symptom`; none where it does not show it again. Fails as
/// [`Bench::measure`] does.
pub fn reduce(
    bench: &mut Bench<'_>,
    space: &Space,
    point: &Point,
    symptom: Symptom,
    stream: &mut Stream,
) -> Result<Option<FeatureSet>, Stop> {
    let first = bench.confirm(std::slice::from_ref(point), symptom, FIRST_REPEAT)?;
    if !first[0].present {
        return Ok(None);
    }
    let witness = simplify::simplify(bench, space, point, symptom, &[])?;
    let mut set = limits::limits(bench, space, witness, symptom, &[])?;
    let refined = refine::refine(bench, space, &mut set, stream);
    let verified = refined.and_then(|inside| verify::verify(bench, &set, inside));
    match verified {
        Ok(checks) => set.checks = Some(checks),
        Err(Stop::Budget) => {}
        Err(other) => return Err(other),
    }
    Ok(Some(set))
}

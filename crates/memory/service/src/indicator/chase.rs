//! The pointer chase as an indicator: what a dependent load of each tier takes now, beside the applications.
//!
//! Method: a region of `REGION` bytes on each tier, larger than most last-level caches' share of one core; every call
//! walks half of the tiers for half a millisecond each and returns the last median of all, so that on two tiers calls
//! every 100 ms cost half a percent of a core, and no value is older than a period. Where a load takes 1 us or more, the
//! walk is up to four times as long, and the cost too. The kernel moves our pages like all others (Linux 6.12 promoted a sixteenth of a far
//! region in half a minute); so they are bound and locked. Where this process may not lock them, the probe checks the
//! nodes of its pages at every eighth walk, and makes a region again if its pages moved.
//!
//! Units: picoseconds. Limits: it measures the load of a tier, not the latency of an application's own loads; in an
//! emulated machine all tiers take the same. Source: Mercury 5.3.1 (LS).

use super::machine::Chase;
use crate::bench::Nodes;
use crate::bench::chase::{self, Extent};
use crate::bench::region::Region;
use crate::tiers::Tiers;
use isolane_common_quantities::units::{Bytes, Duration as Latency};
use isolane_memory_policy::mercury::TIERS_MAX;
use std::time::Duration;

/// Memory on each tier.
const REGION: Bytes = Bytes::from_mib(32);

/// How long one walk lasts: longer where a loaded tier gives too few samples, or others have the processor meanwhile.
const WALK: Extent = Extent {
    length: Duration::from_micros(500),
    enough: SAMPLES_MIN,
    most: Duration::from_millis(2),
    passed: Duration::from_millis(20),
};

/// A median of fewer samples says nothing: the walk was interrupted again and again.
const SAMPLES_MIN: u64 = 8;

/// Walks between two checks of the nodes of our pages, where all of them are locked and where some are not.
const ASK: u32 = 64;
const ASK_UNLOCKED: u32 = 8;

/// Percent of a region that may be elsewhere.
const STRAY_PERCENT: f64 = 5.0;

struct Place {
    /// Its own nodes are near, those of other tiers far.
    nodes: Nodes,
    region: Option<Region>,
    locked: bool,
    last: Option<Latency>,
}

/// Regions on the tiers, walked in turn.
pub struct TierChase {
    places: Vec<Place>,
    calls: u32,
}

impl TierChase {
    /// Takes memory on every tier; a tier that has none for us is not measured.
    pub fn new(tiers: &Tiers) -> Self {
        let place = |index: usize| {
            let nodes = &tiers.tiers[index].nodes;
            let others = tiers
                .tiers
                .iter()
                .flat_map(|tier| &tier.nodes)
                .filter(|node| !nodes.contains(node));
            let mut place = Place {
                nodes: Nodes {
                    far: others.copied().collect(),
                    near: nodes.clone(),
                },
                region: None,
                locked: false,
                last: None,
            };
            place.take();
            place
        };
        Self {
            places: (0..tiers.len().min(TIERS_MAX)).map(place).collect(),
            calls: 0,
        }
    }
}

impl Place {
    /// Takes the memory again.
    fn take(&mut self) {
        // The old memory goes first: a full tier has no room for both.
        self.region = None;
        if let Ok((region, locked)) = Region::pinned(REGION, &self.nodes.near) {
            (self.region, self.locked) = (Some(region), locked);
        }
    }

    fn has_strayed(&self) -> bool {
        let region = self.region.as_ref();
        let percent = region.and_then(|region| region.far_percent(&self.nodes));
        percent.is_none_or(|percent| percent > STRAY_PERCENT) && !self.nodes.far.is_empty()
    }
}

impl Chase for TierChase {
    fn latencies(&mut self) -> [Option<Latency>; TIERS_MAX] {
        // Two calls walk every tier, so that no value is older than a period of the policy.
        for _ in 0..self.places.len().div_ceil(2) {
            self.walk();
        }
        std::array::from_fn(|tier| self.places.get(tier).and_then(|place| place.last))
    }
}

impl TierChase {
    /// Walks the tier whose turn it is.
    fn walk(&mut self) {
        let count = self.places.len().max(1);
        let turn = self.calls as usize % count;
        self.calls = self.calls.wrapping_add(1);
        let Some(place) = self.places.get_mut(turn) else {
            return;
        };
        let every = if place.locked { ASK } else { ASK_UNLOCKED };
        let asks = self.calls.wrapping_rem(every) < u32::try_from(count).unwrap_or(1);
        if asks && place.has_strayed() {
            place.take();
        }
        place.last = place.region.as_ref().and_then(|region| {
            let samples = chase::run_within(region, &WALK).samples;
            let enough = samples.count() >= SAMPLES_MIN;
            samples
                .quantile(0.5)
                .filter(|_| enough)
                .map(Latency::from_ps)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::MemoryHost;

    #[test]
    fn every_tier_has_its_turn() {
        let tiers = Tiers::read(&MemoryHost::machine());
        let mut chase = TierChase::new(&tiers);
        let mut seen = [None; TIERS_MAX];
        for _ in 0..tiers.len() {
            seen = chase.latencies();
        }
        if tiers.is_empty() || seen[0].is_none() {
            isolane_common_linux::skip::skip("no memory could be placed on this machine's nodes");
            return;
        }
        assert!(
            seen[..tiers.len()]
                .iter()
                .all(|latency| latency.is_some_and(|value| !value.is_zero()))
        );
    }
}

//! Admission of calls by measured latency, for each caller, called host and class.
//!
//! Problem: two algorithms with different state, called at the same places.
//! Method: [`algorithm2`] has a probability per pair (the paper's algorithm), [`ports`] a level per called host. Here is the
//! choice between them. The lowest class is never gated, and calls that are not admitted run there, never in a class
//! between.

mod algorithm2;
mod ports;

use super::groups::Peer;
use super::objective::Objective;
use super::slab::Call;
use algorithm2::Probabilities;
use isolane_common_quantities::OptionError;
use isolane_common_quantities::units::{Duration, Instant};
use isolane_network_scenario::model::{FabricPolicyKind, FabricScenario};
use ports::Ports;

/// The learned state of a run.
#[derive(Clone, Debug)]
pub(super) enum Admission {
    /// Aequitas.
    Algorithm2(Probabilities),
    /// Aequitas 2.
    Ports(Ports),
}

impl Admission {
    /// The admission of `scenario`'s policy, if the policy has one. `pairs` are (caller, called host). Fails if a
    /// parameter controls nothing.
    pub(super) fn new(
        scenario: &FabricScenario,
        objectives: &[Option<Objective>],
        pairs: &[(u16, u16)],
        generators: usize,
    ) -> Result<Option<Self>, OptionError> {
        Ok(match scenario.policy.kind {
            FabricPolicyKind::Aequitas => {
                let probabilities =
                    Probabilities::new(scenario, objectives, pairs.len(), generators)?;
                Some(Self::Algorithm2(probabilities))
            }
            FabricPolicyKind::Aequitas2 => {
                Some(Self::Ports(Ports::new(scenario, objectives, pairs)?))
            }
            _ => None,
        })
    }

    /// The class in which a call of `mtus` MTUs runs that asks for `class`.
    #[inline]
    pub(super) fn decide(
        &mut self,
        now: Instant,
        generator: u32,
        peer: Peer,
        class: u8,
        mtus: u32,
    ) -> u8 {
        match self {
            Self::Algorithm2(all) => all.decide(now, generator, peer.pair, class),
            Self::Ports(all) => all.decide(now, peer, class, mtus),
        }
    }

    /// `call` of `mtus` MTUs is over.
    #[inline]
    pub(super) fn on_completion(&mut self, now: Instant, call: &Call, met: bool, mtus: u32) {
        match self {
            Self::Algorithm2(all) => all.on_completion(now, call.pair, call.ran, met, mtus),
            Self::Ports(all) => all.on_completion(now, call, met),
        }
    }

    /// The admit probability of a pair and class; none where nothing is gated.
    #[inline]
    pub(super) fn probability(&self, pair: u32, class: u8) -> Option<f64> {
        match self {
            Self::Algorithm2(all) => all.probability(pair, class),
            Self::Ports(all) => all.probability(pair, class),
        }
    }
}

/// The policy's parameter `name`.
fn parameter(scenario: &FabricScenario, name: &str) -> Option<f64> {
    scenario.policy.parameters.get(name).copied()
}

/// The policy's idle time.
fn idle_after(scenario: &FabricScenario) -> Option<Duration> {
    parameter(scenario, "idle_after_us").map(|us| Duration::from_secs_f64(us / 1e6))
}

//! Calls: when they begin, how large they are, in which class they run, how long they took.

use crate::network::Network;
use crate::packet::Timer;
use crate::transport::{Ended, Transport};
use isolane_scenario::fabric::model::FabricScenario;
use isolane_scenario::fabric::result::FabricResult;

/// The calls of a run.
#[derive(Debug)]
pub struct Calls {
    scenario: FabricScenario,
}

impl Calls {
    /// The calls of `scenario`.
    pub fn new(scenario: &FabricScenario) -> Self {
        Self {
            scenario: scenario.clone(),
        }
    }

    /// Sets the first timers.
    pub fn start(&mut self, _network: &mut Network) {}

    /// A timer of the calls is due.
    pub fn on_timer<T: Transport>(
        &mut self,
        _network: &mut Network,
        _transport: &mut T,
        _timer: Timer,
    ) {
    }

    /// A message is over.
    pub fn on_ended<T: Transport>(
        &mut self,
        _network: &mut Network,
        _transport: &mut T,
        _ended: Ended,
    ) {
    }

    /// What became of them; `None` until there is a result to show.
    pub fn result(&self, _network: &Network) -> Option<FabricResult> {
        let _ = &self.scenario;
        None
    }
}

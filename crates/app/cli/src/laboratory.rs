//! The laboratory of claims with equipment of its own: hunts and proofs that are done, a card that is no model.
//!
//! Method: questions about the equipment's own quantities go to the equipment, all others to the laboratory behind it.
//! Errors are messages for people, as everywhere in a [`World`].

use isolane_ethernet_scenario::model::NicStudy;
use isolane_rdma_scenario::library::Library;
use isolane_rdma_scenario::model::Scenario;
use isolane_study_claims::audit::{AuditRequest, Findings};
use isolane_study_claims::hunt::{HuntNumbers, HuntRun};
use isolane_study_claims::lab::{LabNumbers, LabResults, LabRun};
use isolane_study_claims::laboratory::Laboratory;
use isolane_study_claims::world::RequestBytes;
use isolane_study_claims::world::World;
use isolane_study_results::ethernet::NicResult;
use isolane_study_results::memory::MemResult;
use isolane_study_results::network::FabricResult;
use isolane_study_results::rdma::RunResult;
use isolane_study_testbed_simulator::SimTestbed;

/// What a hunt with a seed gave.
type Hunts<'a> = &'a (dyn Fn(&HuntRun, u64) -> Result<HuntNumbers, String> + Sync);
/// Runs a study of a network card.
type Cards<'a> = &'a (dyn Fn(&NicStudy) -> Result<NicResult, String> + Sync);

/// See the module.
pub(crate) struct Equipped<'a> {
    laboratory: Laboratory<'a>,
    hunts: Option<Hunts<'a>>,
    cards: Option<Cards<'a>>,
    lab: Option<&'a LabResults>,
}

impl<'a> Equipped<'a> {
    /// A laboratory that simulates, and takes hunts from `hunts`.
    pub(crate) fn with_hunts(library: &'a Library, hunts: Hunts<'a>) -> Self {
        Self {
            hunts: Some(hunts),
            ..Self::simulated(library)
        }
    }

    /// A laboratory that simulates all but network cards, for which it has `cards`.
    #[cfg(any(feature = "nic-hosts", test))]
    pub(crate) fn with_cards(library: &'a Library, cards: Cards<'a>) -> Self {
        Self {
            cards: Some(cards),
            ..Self::simulated(library)
        }
    }

    /// A laboratory that simulates, and has what the lab measured on real devices.
    pub(crate) fn with_lab(library: &'a Library, lab: &'a LabResults) -> Self {
        Self {
            lab: Some(lab),
            ..Self::simulated(library)
        }
    }

    fn simulated(library: &'a Library) -> Self {
        Self {
            laboratory: Laboratory {
                library,
                testbed: &SimTestbed,
            },
            hunts: None,
            cards: None,
            lab: None,
        }
    }
}

impl World for Equipped<'_> {
    fn hunt(&self, run: &HuntRun, seed: u64) -> Result<HuntNumbers, String> {
        match self.hunts {
            Some(hunts) => hunts(run, seed),
            None => self.laboratory.hunt(run, seed),
        }
    }

    fn lab(&self, run: &LabRun) -> Result<LabNumbers, String> {
        match self.lab {
            Some(lab) => lab.numbers(run),
            None => self.laboratory.lab(run),
        }
    }

    fn nic(&self, study: &NicStudy) -> Result<NicResult, String> {
        match self.cards {
            Some(cards) => cards(study),
            None => self.laboratory.nic(study),
        }
    }

    fn scenario(&self, text: &str, file: &str) -> Result<Scenario, String> {
        self.laboratory.scenario(text, file)
    }

    fn run(&self, scenario: &Scenario) -> Result<RunResult, String> {
        self.laboratory.run(scenario)
    }

    fn network(&self, text: &str, file: &str) -> Result<FabricResult, String> {
        self.laboratory.network(text, file)
    }

    fn memory(&self, text: &str, file: &str) -> Result<MemResult, String> {
        self.laboratory.memory(text, file)
    }

    fn audit(
        &self,
        request: &AuditRequest,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Findings, String> {
        self.laboratory.audit(request, progress)
    }

    fn model(&self, system: &str, name: &str, list: &[(String, f64)]) -> Result<f64, String> {
        self.laboratory.model(system, name, list)
    }

    fn parameter(&self, profile: &str, section: &str, name: &str) -> Result<f64, String> {
        self.laboratory.parameter(profile, section, name)
    }

    fn network_bytes(&self, request: &RequestBytes) -> Result<u64, String> {
        self.laboratory.network_bytes(request)
    }

    fn pcie_bytes(&self, request: &RequestBytes) -> Result<u64, String> {
        self.laboratory.pcie_bytes(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs;
    use std::collections::BTreeMap;

    #[test]
    fn equipment_is_asked_for_what_it_is_there_for_and_nothing_else() {
        let library = inputs::library();
        let run = HuntRun {
            searcher: "anneal".to_owned(),
            counters: "diag".to_owned(),
            reduces: true,
        };
        let hunts = |_: &HuntRun, seed: u64| {
            Ok(HuntNumbers(BTreeMap::from([(
                "found".to_owned(),
                seed as f64,
            )])))
        };
        let cards = |study: &NicStudy| Err(format!("no card for {}", study.name));
        let hunting = Equipped::with_hunts(&library, &hunts);
        let carded = Equipped::with_cards(&library, &cards);
        assert_eq!(hunting.hunt(&run, 7).unwrap().0["found"], 7.0);
        assert!(carded.hunt(&run, 7).is_err());
        let link = |world: &Equipped<'_>| world.parameter("cx5-100g-roce", "link", "rate_gbps");
        assert_eq!(link(&hunting), link(&carded));
        assert!(hunting.scenario("nonsense", "x.toml").is_err());
    }
}

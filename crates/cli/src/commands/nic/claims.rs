//! `isolane nic study --check-claims`: the claims that are made for the soft network card.

use crate::inputs;
use crate::output;
use crate::progress;
use crate::status::Status;
use crate::target::cancel_on_signal;
use anyhow::Result;
use isolane_claims::audit::{AuditRequest, Findings};
use isolane_claims::claim::{Claim, ClaimTestbed};
use isolane_claims::expression::RequestBytes;
use isolane_claims::laboratory::Laboratory;
use isolane_claims::plan;
use isolane_claims::report::{self, Tally};
use isolane_claims::world::World;
use isolane_scenario::fabric::result::FabricResult;
use isolane_scenario::measure::RunResult;
use isolane_scenario::model::Scenario;
use isolane_scenario::nic::model::NicStudy;
use isolane_scenario::nic::result::NicResult;
use isolane_soft_nic::testbed::{self, TestbedOptions};
use isolane_testbed::SimTestbed;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The laboratory with the soft card in the place of the simulated one.
struct Bench<'a> {
    laboratory: Laboratory<'a>,
    cancel: &'a AtomicBool,
    /// The machine runs one at a time.
    machine: Mutex<()>,
}

impl World for Bench<'_> {
    fn nic(&self, study: &NicStudy) -> Result<NicResult, String> {
        let _machine = self
            .machine
            .lock()
            .map_err(|_| "a run before this failed")?;
        if self.cancel.load(Ordering::Relaxed) {
            return Err("interrupted".to_owned());
        }
        testbed::run(study, &TestbedOptions::new(self.cancel), &mut |_| {})
            .map_err(|error| error.to_string())
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

pub(super) fn run(json: bool, fail_on_miss: bool) -> Result<Status> {
    let claims = isolane_claims::embedded_claims()?;
    let soft: Vec<&Claim> = claims
        .iter()
        .filter(|claim| claim.testbed == ClaimTestbed::SoftNic)
        .collect();
    let library = inputs::library();
    let cancel = cancel_on_signal()?;
    let bench = Bench {
        laboratory: Laboratory {
            library: &library,
            testbed: &SimTestbed,
        },
        cancel: &cancel,
        machine: Mutex::new(()),
    };
    let bar = progress::bar();
    let files = isolane_claims::embedded_scenarios();
    let reports = plan::check(&soft, &files, &bench, &|done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    if cancel.load(Ordering::Relaxed) {
        return Ok(Status::Interrupted);
    }
    match json {
        true => output::print_json(&reports)?,
        false => output::print(&report::table(&reports))?,
    }
    let missed = Tally::of(&reports).missed > 0;
    Ok(match fail_on_miss && missed {
        true => Status::No,
        false => Status::Done,
    })
}

//! `isolane nic study --check-claims`: the claims that are made for the soft network card.

use crate::inputs;
use crate::laboratory::Equipped;
use crate::output;
use crate::progress::Bar;
use crate::status::Status;
use crate::target::cancel_on_signal;
use anyhow::Result;
use isolane_ethernet_scenario::model::NicStudy;
use isolane_ethernet_software_card::testbed::{self, TestbedOptions};
use isolane_study_claims::claim::{Claim, ClaimTestbed};
use isolane_study_claims::plan;
use isolane_study_claims::report::{self, Tally};
use std::sync::Mutex;
use std::sync::atomic::Ordering;

pub(super) fn run(json: bool, fail_on_miss: bool) -> Result<Status> {
    let claims = isolane_study_claims::embedded_claims()?;
    let soft: Vec<&Claim> = claims
        .iter()
        .filter(|claim| claim.testbed == ClaimTestbed::SoftNic)
        .collect();
    let library = inputs::library();
    let cancel = cancel_on_signal()?;
    // The machine runs one at a time.
    let machine = Mutex::new(());
    let cards = |study: &NicStudy| {
        let _machine = machine.lock().map_err(|_| "a run before this failed")?;
        if cancel.load(Ordering::Relaxed) {
            return Err("interrupted".to_owned());
        }
        testbed::run(study, &TestbedOptions::new(&cancel), &mut |_| {})
            .map_err(|error| error.to_string())
    };
    let laboratory = Equipped::with_cards(&library, &cards);
    let bar = Bar::of_runs();
    let files = isolane_study_claims::embedded_scenarios();
    let reports = plan::check(&soft, &files, &laboratory, &|done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    if cancel.load(Ordering::Relaxed) {
        return Ok(Status::Interrupted);
    }
    match json {
        true => output::print_json(&reports)?,
        false => output::print(&report::table(&reports, output::width()))?,
    }
    let missed = Tally::of(&reports).missed > 0;
    Ok(match fail_on_miss && missed {
        true => Status::No,
        false => Status::Done,
    })
}

//! `isolane nic study --paired`: what ours costs over the soft card, beside plain `mq` and the best of Linux.

use super::rounds::{Measured, Rounds};
use crate::card_study::table::Paired;
use crate::output;
use crate::report;
use crate::status::Status;
use crate::target::cancel_on_signal;
use anyhow::{Context, Result};
use isolane_ethernet_scenario::model::NicStudy;
use isolane_ethernet_software_card::paired;
use isolane_ethernet_software_card::testbed::TestbedOptions;
use isolane_study_results::ethernet::paired::{PairedSummary, summaries};
use serde::Serialize;
use std::path::Path;

/// What is printed as JSON: what was found, and the runs it was found in.
#[derive(Serialize)]
struct Report<'a> {
    summaries: &'a [PairedSummary],
    #[serde(flatten)]
    measured: Measured<'a>,
}

pub(super) struct Answer<'a> {
    pub(super) json: bool,
    pub(super) out: Option<&'a Path>,
}

/// Runs `studies` for so many rounds and says what came out.
pub(super) fn run(studies: &[NicStudy], rounds: u64, answer: &Answer<'_>) -> Result<Status> {
    let cancel = cancel_on_signal()?;
    let loads = paired::loads(studies);
    let mut ended = Rounds::new(rounds * loads as u64, studies.len() / loads);
    let outcome = paired::run(studies, rounds, &TestbedOptions::new(&cancel), &mut |run| {
        ended.ended(run);
    });
    let outcome = outcome.context("paired runs need a real kernel");
    ended.finish(outcome, |measured| write(measured, rounds, answer))
}

/// `rounds` were requested for each number of flows.
fn write(measured: Measured<'_>, rounds: u64, answer: &Answer<'_>) -> Result<()> {
    let summaries = summaries(measured.runs);
    let report = Report {
        summaries: &summaries,
        measured,
    };
    match answer.json {
        true => output::print_json(&report)?,
        false => {
            let table = Paired {
                summaries: &summaries,
                runs: measured.runs,
                rounds,
            };
            output::show(&table.text())?;
        }
    }
    if let Some(directory) = answer.out {
        let path = report::write_nic(directory, measured.runs)?;
        output::note(&format!("wrote {}", path.display()));
    }
    Ok(())
}

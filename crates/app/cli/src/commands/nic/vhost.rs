//! `isolane nic study --card vhost`: Linux' queueing disciplines, and Titan over each, in a virtual machine whose NIC this
//! process is.

use super::rounds::Rounds;
use super::study::once;
use crate::card_study::table;
use crate::inputs::bad;
use crate::output;
use crate::status::Status;
use crate::target::cancel_on_signal;
use anyhow::{Result, bail};
use isolane_common_quantities::units::{BitRate, Duration};
use isolane_ethernet_software_card::machine::{self, MachineStudy};
use std::path::Path;

/// Disciplines below `mq`.
const DISCIPLINES: [&str; 4] = ["pfifo_fast", "fq_codel", "fq", "cake"];
/// What may stand behind a discipline.
const OURS: [&str; 3] = ["", "+titan", "+isolane"];
/// Without `--configs`: every discipline, and Titan over each.
const OURS_BY_DEFAULT: usize = 2;
/// What an emulated machine with two processors fills.
const GBPS: f64 = 0.04;
const FLOWS: u32 = 12;
const ROUNDS: u64 = 7;
const QUEUES_MAX: u16 = 8;
const WARMUP_S: u64 = 2;
const DURATION_S: u64 = 5;

/// What the command line chose.
pub(super) struct Choice<'a> {
    pub(super) lab: &'a Path,
    pub(super) configs: &'a [String],
    pub(super) flows: &'a [u32],
    pub(super) rounds: Option<u64>,
    pub(super) duration: Option<Duration>,
    pub(super) rate: Option<f64>,
    pub(super) queues: u16,
    pub(super) json: bool,
}

pub(super) fn run(choice: &Choice<'_>) -> Result<Status> {
    let flows = match choice.flows {
        [] => FLOWS,
        [flows] => *flows,
        _ => bail!(bad("--flows: with --card vhost name one number")),
    };
    if !(2..=QUEUES_MAX).contains(&choice.queues) {
        bail!(bad(format!(
            "--queues {}: with --card vhost 2 to {QUEUES_MAX} are possible",
            choice.queues
        )));
    }
    let cancel = cancel_on_signal()?;
    let study = MachineStudy {
        lab: choice.lab.canonicalize().unwrap_or(choice.lab.to_owned()),
        isolane: std::env::current_exe()?,
        configs: configs(choice.configs)?,
        flows,
        rounds: choice.rounds.unwrap_or(ROUNDS),
        queues: choice.queues,
        rate: BitRate::from_gbps_f64(choice.rate.unwrap_or(GBPS)),
        warmup: Duration::from_secs(WARMUP_S),
        duration: choice.duration.unwrap_or(Duration::from_secs(DURATION_S)),
        interrupted: &cancel,
    };
    let mut rounds = Rounds::new(study.rounds, study.configs.len());
    let outcome = machine::run(&study, &mut |result| rounds.ended(result));
    rounds.finish(outcome.map_err(Into::into), |measured| match choice.json {
        true => output::print_json(&measured),
        false => output::show(&table::machine(measured.runs, study.rounds)),
    })
}

fn configs(named: &[String]) -> Result<Vec<String>> {
    let every = |ours: &[&str]| -> Vec<String> {
        let of = |kind: &&str| {
            ours.iter()
                .map(move |word| format!("{kind}{word}"))
                .collect::<Vec<_>>()
        };
        DISCIPLINES.iter().flat_map(of).collect()
    };
    if named.is_empty() {
        return Ok(every(&OURS[..OURS_BY_DEFAULT]));
    }
    once("configs", named.iter())?;
    let known = every(&OURS);
    if let Some(name) = named.iter().find(|name| !known.contains(name)) {
        bail!(bad(format!(
            "there is no configuration {name:?} with --card vhost; there are {}",
            known.join(", ")
        )));
    }
    Ok(named.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disciplines_run_alone_and_below_titan() {
        let names = configs(&[]).expect("the defaults");
        assert_eq!(names.len(), 8);
        assert_eq!(names[..3], ["pfifo_fast", "pfifo_fast+titan", "fq_codel"]);
        let one = ["cake+isolane".to_owned()];
        assert_eq!(configs(&one).expect("known"), one);
        let error = configs(&["C6".to_owned()]).expect_err("of another testbed");
        assert!(
            error
                .to_string()
                .contains("there are pfifo_fast, pfifo_fast+titan, "),
            "{error}"
        );
    }
}

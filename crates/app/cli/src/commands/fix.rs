//! `isolane fix`: what ends an anomaly that a hunt found, on the device or host and in the workload.

use super::hunt::found;
use crate::inputs::{self, bad};
use crate::output;
use crate::progress::ProgressArguments;
use crate::status::Status;
use anyhow::{Result, bail};
use isolane_study_hunt::fix::Subject;
use isolane_study_hunt::hunt::{Anomaly, HuntResult};
use isolane_study_testbed_simulator::SimTestbed;
use std::path::PathBuf;

/// Arguments of `isolane fix`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// A hunt on a simulated device: its directory or its hunt.json
    #[arg(value_name = "DIR|FILE")]
    hunt: PathBuf,
    /// Number of the anomaly, as the hunt printed it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = crate::numbers::whole::<u32>(1..=100_000))]
    anomaly: u32,
    /// The hunt's device, a profile's name or file; needed where the hunt's profile was a file
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,
    /// Random numbers of the experiments
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    progress: ProgressArguments,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let result = found::read(&arguments.hunt)?;
    let name = result.target.strip_prefix("sim:");
    let (Some(name), Some(bounds)) = (name, &result.bounds) else {
        bail!(bad(format!(
            "{}: a hunt on {}{}: must be one on a simulated device without --victim; `isolane advise` names the changes of \
             the workload for the others",
            arguments.hunt.display(),
            result.target,
            result.victim.as_ref().map_or("", |_| " with a victim"),
        )));
    };
    let name = arguments.profile.as_deref().unwrap_or(name);
    let profile = inputs::profile(&mut inputs::library(), name)?;
    let subject = Subject {
        testbed: &SimTestbed,
        profile: &profile,
        bounds,
        seed: arguments.seed,
    };
    let bar = arguments.progress.part();
    let watch = |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    };
    let fix = subject.fix(anomaly(arguments, &result)?, &watch);
    bar.finish_and_clear();
    let fix = fix?;
    match arguments.json {
        true => output::print_json(&fix)?,
        false => output::show(&fix.text())?,
    }
    let ends = !fix.device.is_empty() || !fix.changes.is_empty();
    Ok(if ends { Status::Done } else { Status::No })
}

/// The anomaly that the arguments name.
fn anomaly<'a>(arguments: &Arguments, result: &'a HuntResult) -> Result<&'a Anomaly> {
    let mut all = result.anomalies.iter();
    let Some(one) = all.find(|one| one.number == arguments.anomaly) else {
        let count = result.anomalies.len();
        bail!(bad(format!(
            "--anomaly {}: {} has {}",
            arguments.anomaly,
            arguments.hunt.display(),
            match count {
                0 => "none".to_owned(),
                count => format!("1 to {count}: give one of these"),
            }
        )));
    };
    Ok(one)
}

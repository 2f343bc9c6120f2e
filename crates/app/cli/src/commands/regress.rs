//! `isolane regress`: known reproducers as a suite, on one simulated device or on several states of it.

use super::hunt::found;
use crate::inputs::{self, bad};
use crate::output;
use crate::status::Status;
use anyhow::{Result, bail};
use isolane_rdma_scenario::profile::Profile;
use isolane_study_hunt::known::KnownSet;
use isolane_study_hunt::regress::{Reproducer, of_hunt, published, regress};
use isolane_study_testbed_simulator::SimTestbed;
use std::path::PathBuf;

/// Arguments of `isolane regress`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Hunts whose anomalies are the reproducers: directories or hunt.json [default: the published triggers of the first profile]
    #[arg(value_name = "DIR|FILE")]
    hunts: Vec<PathBuf>,
    /// Profiles, names or files, the baseline first: a device with its firmware, driver and settings each
    #[arg(
        long,
        value_delimiter = ',',
        required = true,
        value_name = "NAME|FILE,..."
    )]
    profile_matrix: Vec<String>,
    /// Runs of each reproducer on each profile
    #[arg(long, default_value_t = 2, value_parser = crate::numbers::whole::<u64>(1..=1000))]
    seeds: u64,
    /// Also write the result as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let mut library = inputs::library();
    let profiles = arguments.profile_matrix.iter().map(|name| {
        let profile = inputs::profile(&mut library, name)?;
        Ok((name.clone(), profile))
    });
    let profiles: Vec<(String, Profile)> = profiles.collect::<Result<_>>()?;
    let corpus = corpus(arguments, &profiles)?;
    let result = regress(&SimTestbed, &profiles, &corpus, arguments.seeds)?;
    if let Some(path) = &arguments.junit {
        output::write_file(path, &result.junit())?;
    }
    match arguments.json {
        true => output::print_json(&result)?,
        false => output::print(&result.text())?,
    }
    let bad = match profiles.len() {
        1 => result.shows(),
        _ => !result.regressions.is_empty(),
    };
    Ok(if bad { Status::No } else { Status::Done })
}

/// The reproducers.
fn corpus(arguments: &Arguments, profiles: &[(String, Profile)]) -> Result<Vec<Reproducer>> {
    let mut all = Vec::new();
    for path in &arguments.hunts {
        let result = found::read(path)?;
        if result.victim.is_some() {
            bail!(bad(format!(
                "{}: a hunt with a victim: must be one on a device alone; repeat such attacks with `isolane sim`",
                path.display()
            )));
        }
        all.extend(of_hunt(&result, &path.to_string_lossy()));
    }
    if arguments.hunts.is_empty() {
        let first = profiles.first().map_or("", |(_, profile)| &profile.name);
        all = published(first);
    }
    if all.is_empty() {
        let known: Vec<&str> = KnownSet::published_profiles().collect();
        bail!(bad(format!(
            "no reproducers: give the directory of a hunt that found an anomaly, or begin --profile-matrix with {}, of which \
             triggers were published",
            known.join(" or ")
        )));
    }
    Ok(all)
}

//! `isolane advise`: which known anomalies an application can reach, and what gets it out.
//!
//! Known is what a hunt found (`--anomalies` with its directory or its `hunt.json`), what a file of published anomalies says
//! (`--anomalies FILE`), or what was published of the devices whose profiles come with the program.

use super::hunt::found;
use crate::file_kind::Wanted;
use crate::inputs::{self, bad};
use crate::output;
use crate::status::Status;
use anyhow::{Result, bail};
use isolane_study_hunt::advise::{Advice, advise};
use isolane_study_hunt::known::KnownSet;
use isolane_study_hunt::space::Space;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Arguments of `isolane advise`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// What the application may request from the RDMA NIC (TOML, the keys of `isolane hunt --restrict`; ranges are allowed)
    file: PathBuf,
    /// Known anomalies: the directory or the JSON of a hunt, or a file of published ones [default: the published ones we have]
    #[arg(long, value_name = "DIR|FILE")]
    anomalies: Option<PathBuf>,
    /// Only this device, a profile's name or file; for a hunt it names the hunt's own profile where that was a file
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The advice for one device.
#[derive(Debug, Serialize)]
struct Answer {
    profile: String,
    #[serde(flatten)]
    advice: Advice,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let text = inputs::read(&arguments.file, &inputs::RESTRICTION)?;
    let file = arguments.file.to_string_lossy();
    let mut answers = Vec::new();
    let sets = known(arguments.anomalies.as_deref(), arguments.profile.as_deref())?;
    for (profile, device, set) in sets {
        let application = device.clone().restricted(&text, &file)?;
        let advice = advise(&application, &device, &set);
        answers.push(Answer { profile, advice });
    }
    match arguments.json {
        true => output::print_json(&answers)?,
        false => {
            let texts = answers
                .iter()
                .map(|answer| format!("{}, {}", answer.profile, answer.advice.text()));
            output::show(&texts.collect::<Vec<_>>().join("\n"))?;
        }
    }
    let reaches = answers
        .iter()
        .any(|answer| !answer.advice.reached.is_empty());
    Ok(if reaches { Status::No } else { Status::Done })
}

/// What `--anomalies` takes besides a hunt.
const KNOWN: Wanted = Wanted {
    kind: |_| false,
    words: "known anomalies (the directory of `isolane hunt --report`, or TOML with [[anomaly]], docs/guides/hunt.md)",
};

/// What is known: of `anomalies`, or what was published of the device `profile` or of all.
pub(crate) fn known(
    anomalies: Option<&Path>,
    profile: Option<&str>,
) -> Result<Vec<(String, Space, KnownSet)>> {
    let mut library = inputs::library();
    let mut space = |name: &str| -> Result<(String, Space)> {
        let profile = inputs::profile(&mut library, name)?;
        Ok((profile.name.clone(), Space::of(&profile)))
    };
    let Some(path) = anomalies else {
        if let Some(name) = profile {
            // A profile that is not there has no anomalies either, but that is not what is wrong.
            space(name)?;
        }
        let mut sets = Vec::new();
        for name in KnownSet::published_profiles() {
            let (name, device) = space(name)?;
            if profile.is_none_or(|only| only == name) {
                let set = KnownSet::published(&name, &device)?;
                sets.extend(set.map(|set| (name, device, set)));
            }
        }
        if let (true, Some(name)) = (sets.is_empty(), profile) {
            bail!(bad(format!(
                "--profile {name}: no anomalies were published of it; search for some with `isolane hunt --target sim:{name}`, \
                 then give --anomalies DIR"
            )));
        }
        return Ok(sets);
    };
    let is_hunt = path.is_dir() || path.extension().is_some_and(|name| name == "json");
    if is_hunt {
        let found = found::read(path)?;
        let own = found.target.rsplit(':').next().unwrap_or_default();
        let (name, device) = space(profile.unwrap_or(own))?;
        return Ok(vec![(name, device, KnownSet::of(&found))]);
    }
    let text = inputs::read(path, &KNOWN)?;
    let file = path.to_string_lossy();
    let own = KnownSet::profile_of(&text, &file)?;
    let (name, device) = space(profile.unwrap_or(&own))?;
    let set = KnownSet::parse(&text, &file, &device)?;
    Ok(vec![(name, device, set)])
}

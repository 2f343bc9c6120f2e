//! `--target`: the simulator, or real devices here and elsewhere.

use crate::devices::{self, Stage, VerbsTestbed};
use crate::inputs::{Names, bad};
use anyhow::{Context, Result};
use isolane_study_testbed::Testbed;
use isolane_study_testbed_simulator::SimTestbed;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The simulator's name.
const SIMULATOR: &str = "sim";

/// Where a scenario runs.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TargetArguments {
    /// Where to run: sim, verbs:DEVICE,DEVICE, or verbs:HOST:DEVICE,HOST:DEVICE with an agent on each host
    #[arg(long, default_value = SIMULATOR, value_parser = names(), hide_possible_values = true)]
    target: String,
    /// Certificates for agents that listen; without them agents are reached by ssh
    #[arg(long, value_name = "DIR")]
    identity: Option<PathBuf>,
}

fn names() -> Names {
    Names(|| [SIMULATOR, "verbs:"].map(str::to_owned).to_vec())
}

/// A testbed of either kind.
pub(crate) enum Bed {
    /// The simulator.
    Sim(SimTestbed),
    /// Real devices.
    Verbs(Box<VerbsTestbed>),
}

impl Bed {
    /// As a trait object.
    pub(crate) fn testbed(&self) -> &dyn Testbed {
        match self {
            Self::Sim(testbed) => testbed,
            Self::Verbs(testbed) => testbed.as_ref(),
        }
    }

    /// The real devices, if it is such.
    pub(crate) fn devices(&self) -> Option<&VerbsTestbed> {
        match self {
            Self::Sim(_) => None,
            Self::Verbs(testbed) => Some(testbed),
        }
    }

    /// Whether it runs every part of the policy called `name`, or what runs the part that it does not.
    pub(crate) fn runs_policy(&self, name: &str) -> Result<(), String> {
        match self {
            Self::Sim(testbed) => {
                let known = testbed.policies();
                let missing = name
                    .split('+')
                    .find(|part| known.is_some_and(|known| !known.contains(part)));
                match missing {
                    Some(part) => Err(format!("the simulator does not run {part} yet")),
                    None => Ok(()),
                }
            }
            Self::Verbs(testbed) => testbed.runs_policy(name),
        }
    }
}

impl TargetArguments {
    /// The target that the words `target` and `identity` name.
    pub(crate) fn of(target: &str, identity: Option<PathBuf>) -> Self {
        Self {
            target: target.to_owned(),
            identity,
        }
    }

    /// Whether the target is the simulator, without further options.
    pub(crate) fn is_simulator(&self) -> bool {
        self.target == SIMULATOR && self.identity.is_none()
    }

    /// The words for the same target; none for the simulator.
    pub(crate) fn words(&self) -> Vec<(&'static str, String)> {
        let mut words = Vec::new();
        if self.target != SIMULATOR {
            words.push(("target", self.target.clone()));
            if let Some(identity) = &self.identity {
                words.push(("identity", identity.to_string_lossy().into_owned()));
            }
        }
        words
    }

    /// The testbed. Runs on real devices stop when the flag that `cancel` gives is set, and report their stage to
    /// `stage`.
    pub(crate) fn bed(
        &self,
        cancel: impl FnOnce() -> Result<Arc<AtomicBool>>,
        stage: impl Fn(Stage) + Send + Sync + 'static,
    ) -> Result<Bed> {
        if self.target == SIMULATOR {
            return match self.identity {
                None => Ok(Bed::Sim(SimTestbed)),
                Some(_) => Err(bad("--identity is for --target verbs:HOST:DEVICE,...")),
            };
        }
        if let Some(profile) = self.target.strip_prefix("sim:") {
            let target = &self.target;
            return Err(bad(format!(
                "--target {target}: the simulator is --target sim, and --profile {profile} is its device"
            )));
        }
        let testbed = devices::open(&self.target, self.identity.as_ref(), cancel, stage)?;
        Ok(Bed::Verbs(Box::new(testbed)))
    }
}

/// A flag that Ctrl-C, SIGTERM and SIGHUP set. A second signal ends the program at once.
pub(crate) fn cancel_on_signal() -> Result<Arc<AtomicBool>> {
    let cancel = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&cancel);
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(crate::status::INTERRUPTED));
        }
    })
    .context("cannot catch Ctrl-C")?;
    Ok(cancel)
}

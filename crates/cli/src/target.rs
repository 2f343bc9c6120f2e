//! `--target`: the simulator, or real devices here and elsewhere.
//!
//! Environment: `ISOLANE_SSH` names the program that is called as ssh is.

use crate::inputs::{Names, bad};
use crate::output;
use anyhow::{Context, Result};
use isolane_core::units::Duration;
use isolane_scenario::model::Scenario;
use isolane_testbed::{SimTestbed, Testbed};
use isolane_verbs_testbed::testbed::{WARMUP_MIN, lengthen, settle};
use isolane_verbs_testbed::{Reach, Stage, Target, VerbsTestbed};
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
    /// What the words `target` and `identity` ask for.
    pub(crate) fn of(target: &str, identity: Option<PathBuf>) -> Self {
        Self {
            target: target.to_owned(),
            identity,
        }
    }

    /// Whether it is the simulator, with nothing else asked for.
    pub(crate) fn is_simulator(&self) -> bool {
        self.target == SIMULATOR && self.identity.is_none()
    }

    /// The words that ask for the same target; none for the simulator.
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

    /// The testbed. Runs on real devices stop when the flag that `cancel` gives is set, and tell `stage` where they
    /// stand.
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
        let target: Target = self
            .target
            .parse()
            .map_err(|error: isolane_verbs_testbed::target::TargetError| bad(error.to_string()))?;
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let mut reach = Reach::of(program);
        if let Some(ssh) = std::env::var_os("ISOLANE_SSH").filter(|name| !name.is_empty()) {
            reach.ssh = ssh;
        }
        reach.identity.clone_from(&self.identity);
        let testbed = VerbsTestbed::new(target, reach, cancel()?, Box::new(stage));
        Ok(Bed::Verbs(Box::new(testbed)))
    }
}

/// Gives `scenario` times that suit real devices; a measured time of the user's own stays as it is.
pub(crate) fn suit(scenario: &mut Scenario, own: Option<Duration>) {
    let grown = match own {
        Some(_) => {
            settle(scenario);
            false
        }
        None => lengthen(scenario),
    };
    if grown {
        output::note(&format!(
            "isolane: {}'s times are a simulator's; real devices are measured for {} after at least {WARMUP_MIN} \
             (--duration sets another time)",
            scenario.name, scenario.duration
        ));
    }
    output::note(&format!(
        "isolane: profile {} is not applied: real devices are as they are",
        scenario.profile
    ));
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

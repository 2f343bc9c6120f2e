//! What a hunt is on: a device alone, or a victim on it; simulated, or real.
//!
//! `--target sim:PROFILE` is a simulated device; `verbs:...` are real ones, whose rates are measured first and whose space
//! is cut down to what they run. With `--victim` the device is the victim's own unless `--target` names another.

use super::Arguments;
use crate::devices;
use crate::inputs::{self, bad};
use crate::target::{Bed, TargetArguments};
use anyhow::{Context, Result, bail};
use isolane_common_quantities::units::Duration;
use isolane_rdma_scenario::Overrides;
use isolane_rdma_scenario::model::{Scenario, Tenant};
use isolane_rdma_scenario::profile::Profile;
use isolane_rdma_scenario::stack;
use isolane_study_hunt::HuntError;
use isolane_study_hunt::bench::Bench;
use isolane_study_hunt::experiment::{Lab, Target, inventory};
use isolane_study_hunt::rule::Rule;
use isolane_study_hunt::session::device_start;
use isolane_study_hunt::space::convert::{scenario_text, tenants};
use isolane_study_hunt::space::{Point, Space};
use isolane_study_hunt::state::Start;
use isolane_study_hunt::victim::{Alone, RETAINED, Siege, SiegeOptions};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What simulated targets begin with.
const SIMULATED: &str = "sim:";
/// What real ones begin with.
const REAL: &str = "verbs:";
/// Profile of real devices where none is named: it says which transports and MTUs there are.
const REAL_PROFILE: &str = inputs::DEFAULT_PROFILE;

/// Where a hunt takes place.
pub(crate) struct Place {
    /// The device.
    pub(super) profile: Profile,
    /// What the profile was called by: the target without `sim:`.
    pub(crate) profile_name: String,
    pub(super) bed: Bed,
    /// Measured time of an experiment on real devices, where the user names one.
    pub(crate) measure: Option<Duration>,
    /// The victim's file, where there is one.
    pub(super) victim: Option<Victim>,
}

/// A victim, as its file says.
pub(super) struct Victim {
    pub(super) text: String,
    pub(super) scenario: Scenario,
}

impl Place {
    pub(super) fn of(arguments: &Arguments, cancel: &Arc<AtomicBool>) -> Result<Self> {
        let mut library = inputs::library();
        let target = arguments.target.as_deref();
        if let Some(target) = target.filter(|target| target.starts_with(REAL)) {
            return Self::real(arguments, target, cancel);
        }
        if arguments.identity.is_some() {
            bail!(bad("--identity is for --target verbs:HOST:DEVICE,..."));
        }
        if arguments.measure.is_some() {
            bail!(bad("--measure is for real devices: --target verbs:..."));
        }
        let named = match target {
            Some(target) => Some(target.strip_prefix(SIMULATED).ok_or_else(|| {
                bad(format!(
                    "--target {target}: must be sim: and a profile, like sim:cx5-100g-roce, or verbs: and devices, like \
                     verbs:r0,r1"
                ))
            })?),
            None => None,
        };
        if arguments.profile.is_some() {
            bail!(bad(
                "--profile says what real devices (--target verbs:...) are like; a simulated one is named in --target"
            ));
        }
        let profile = named
            .map(|name| inputs::profile(&mut library, name))
            .transpose()?;
        let victim = match &arguments.victim {
            Some(path) => Some(victim(arguments, path, &library, profile.as_ref())?),
            None => None,
        };
        let profile = match (profile, &victim) {
            (Some(profile), _) => profile,
            (None, Some(victim)) => library
                .profile(&victim.scenario.profile)
                .context("a parsed scenario names a profile of its library")?
                .clone(),
            (None, None) => bail!(bad(format!(
                "hunt needs a device to search: give --target sim:PROFILE, where PROFILE is a file or one of {}; or give \
                 --victim FILE to search the attackers of the tenant in it",
                library.profile_names().collect::<Vec<_>>().join(", ")
            ))),
        };
        Ok(Self {
            profile_name: named.unwrap_or(&profile.name).to_owned(),
            profile,
            bed: Bed::Sim(isolane_study_testbed_simulator::SimTestbed),
            measure: None,
            victim,
        })
    }

    fn real(arguments: &Arguments, target: &str, cancel: &Arc<AtomicBool>) -> Result<Self> {
        let mut place = Self::alone(
            target,
            arguments.identity.clone(),
            arguments.profile.as_deref(),
            cancel,
        )?;
        place.measure = arguments.measure;
        if let Some(path) = &arguments.victim {
            let mut library = inputs::library();
            let profile = inputs::profile(&mut library, &place.profile_name)?;
            place.victim = Some(victim(arguments, path, &library, Some(&profile))?);
        }
        Ok(place)
    }

    /// Real devices without a victim; `profile` says which transports and MTUs they have.
    pub(crate) fn alone(
        target: &str,
        identity: Option<PathBuf>,
        profile: Option<&str>,
        cancel: &Arc<AtomicBool>,
    ) -> Result<Self> {
        let name = profile.unwrap_or(REAL_PROFILE);
        let profile = inputs::profile(&mut inputs::library(), name)?;
        let flag = Arc::clone(cancel);
        let bed = TargetArguments::of(target, identity).bed(move || Ok(flag), |_| {})?;
        let devices = bed.devices().ok_or_else(|| {
            bad(format!(
                "--target {target}: must be verbs: and devices, like verbs:r0,r1"
            ))
        })?;
        let profile = devices::measured(devices, &profile)?;
        Ok(Self {
            profile_name: name.to_owned(),
            profile,
            bed,
            measure: None,
            victim: None,
        })
    }

    /// What runs take place on; nothing for a simulated device.
    pub(crate) fn environment(&self) -> Result<BTreeMap<String, String>> {
        match self.bed.devices() {
            Some(devices) => devices::environment(devices),
            None => Ok(BTreeMap::new()),
        }
    }

    /// The whole space, before restrictions.
    pub(super) fn space(&self) -> Space {
        let space = match self.victim {
            Some(_) => Space::attackers(&self.profile),
            None => Space::of(&self.profile),
        };
        match self.bed.devices() {
            Some(devices) => {
                let runs = |one: &Tenant| devices.runs_tenant(one).is_ok();
                space.kept(|point| tenants(point).iter().all(runs))
            }
            None => space,
        }
    }

    /// The device alone.
    pub(crate) fn lab(&self) -> Lab<'_> {
        let mut lab = Lab::simulated(self.bed.testbed(), &self.profile);
        if let Some(devices) = self.bed.devices() {
            self.bed.testbed().name().clone_into(&mut lab.name);
            lab.times = devices::times(devices);
            lab.is_noisy = true;
            if let Some(measure) = self.measure {
                // A slower device takes longer to become steady too.
                lab.times.warmup = lab.times.warmup.max(measure / WARMUP_PART);
                lab.times.duration = measure;
            }
        }
        lab
    }

    /// The siege of the victim; `known` is what it does alone, where that was measured before.
    pub(super) fn siege(
        &self,
        arguments: &Arguments,
        victim: &Victim,
        known: Option<Alone>,
    ) -> Result<Siege<'_>, HuntError> {
        let lab = self.lab();
        let options = SiegeOptions {
            testbed: self.bed.testbed(),
            profile: &self.profile,
            victim: tenant_of(&victim.scenario),
            policy: victim.scenario.policy.clone(),
            alpha: arguments.alpha,
            beyond: arguments.beyond_guarantee,
            times: match lab.is_noisy {
                true => lab.times,
                false => Siege::SIMULATED,
            },
            is_noisy: lab.is_noisy,
        };
        Siege::lay(options, arguments.seed, known)
    }

    /// What is measured before the first experiment.
    pub(super) fn first(&self, arguments: &Arguments, space: &Space) -> Result<Start, HuntError> {
        let lab = self.lab();
        match &self.victim {
            None => device_start(&lab, space, arguments.seed, arguments.latency),
            Some(victim) => {
                let siege = self.siege(arguments, victim, None)?;
                Ok(Start {
                    bounds: None,
                    latency: None,
                    alone: Some(siege.alone().clone()),
                    counters: self.counters()?,
                })
            }
        }
    }

    /// The counters that experiments report.
    pub(super) fn counters(&self) -> Result<Vec<String>, HuntError> {
        let mut counters = inventory(&self.lab())?;
        if self.victim.is_some() {
            counters.insert(0, RETAINED.to_owned());
        }
        Ok(counters)
    }

    /// Runs `work` with the target and the rule that `start` makes.
    pub(super) fn with<T>(
        &self,
        arguments: &Arguments,
        start: &Start,
        work: impl FnOnce(&dyn Target, Rule, &dyn Fn(&Point, &Named<'_>) -> Result<String>) -> Result<T>,
    ) -> Result<T> {
        match (&self.victim, &start.bounds) {
            (None, Some(bounds)) => {
                let lab = self.lab();
                let rule = Rule::Device(bounds.clone(), start.latency.clone());
                let text = |point: &Point, named: &Named<'_>| {
                    let names = (named.name, named.description);
                    let profile = &lab.profile.name;
                    let mut times = lab.times_of(point);
                    times.duration = times.duration * REPRODUCED;
                    Ok(scenario_text(point, names, profile, named.seed, times))
                };
                work(&lab, rule, &text)
            }
            (Some(victim), _) => {
                let siege = self.siege(arguments, victim, start.alone.clone())?;
                let rule = Rule::Victim(Box::new(siege.owed().clone()));
                let text = |point: &Point, named: &Named<'_>| {
                    let names = (named.name, named.description);
                    let text = siege.scenario_text(point, &victim.text, names, named.seed);
                    text.map_err(|error| bad(format!("the victim's file: {error}")))
                };
                work(&siege, rule, &text)
            }
            (None, None) => bail!(bad("the journal belongs to a hunt with a victim")),
        }
    }
}

/// Part of a measured time of the user's own that the warm-up takes at least.
const WARMUP_PART: u64 = 3;

/// A measured time for real devices: at least what covers the apart starts of the workers.
pub(crate) fn measured_time(text: &str) -> Result<Duration, String> {
    let time = inputs::duration(text)?;
    match time >= MEASURED_LEAST {
        true => Ok(time),
        false => Err(format!("must be at least {MEASURED_LEAST}")),
    }
}

/// The shortest measured time on real devices: counters are refreshed every 10 ms.
const MEASURED_LEAST: Duration = Duration::from_ms(100);

/// A reproducer runs so many times longer than an experiment is measured at first: it neither waits for the device to settle nor
/// is measured again.
const REPRODUCED: u64 = 15;

/// What a reproducer is called, and the seed of its run.
pub(super) struct Named<'a> {
    pub(super) name: &'a str,
    pub(super) description: &'a str,
    pub(super) seed: u64,
}

impl<'a> Named<'a> {
    /// Of the first run that looked whether an anomaly is there again.
    pub(super) fn of(name: &'a str, description: &'a str, bench: &Bench<'_>) -> Self {
        Self {
            name,
            description,
            seed: bench.run_seed(1),
        }
    }
}

/// The one tenant of a victim's file.
fn tenant_of(scenario: &Scenario) -> Tenant {
    scenario.tenants[0].clone()
}

fn victim(
    arguments: &Arguments,
    path: &Path,
    library: &isolane_rdma_scenario::library::Library,
    profile: Option<&Profile>,
) -> Result<Victim> {
    let (text, file) = inputs::scenario_text(path)?;
    let policy = match &arguments.policy {
        Some(name) => Some(inputs::policy(name)?.name),
        None => None,
    };
    let overrides = Overrides {
        profile: profile.map(|profile| profile.name.clone()),
        policy,
        seed: None,
    };
    let scenario = isolane_rdma_scenario::parse_with(&text, &file, library, &overrides)?;
    if scenario.tenants.len() != 1 {
        bail!(bad(format!(
            "{file}: has {} tenants, and a victim is one: leave out the others, since the hunt looks for them",
            scenario.tenants.len()
        )));
    }
    let device = library.profile(&scenario.profile);
    let device = device.context("a parsed scenario names a profile of its library")?;
    stack::check_device(&scenario.policy.name, device, 2)
        .map_err(|error| bad(format!("policy {error}")))?;
    Ok(Victim { text, scenario })
}

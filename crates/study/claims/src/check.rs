//! The change under which, if the reason of a miss is true, its claim holds.
//!
//! Problem: a reason without a run is a guess. So a claim's file has `[check]` beside `miss_reason`, and
//! [`Check::apply`] gives the changed claim, which is run like any other. Units: those of the claim.

use crate::claim::{Claim, ClaimRun};
use crate::device::DeviceChanges;
use crate::expression;
use crate::nic::NicRun;
use isolane_common_toml_input::glob;
use serde::Deserialize;

/// What must change for the claim to hold, if its reason is true.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Replaces the formula.
    #[serde(default)]
    pub metric: Option<String>,
    /// Replaces the seeds.
    #[serde(default)]
    pub seeds: Option<Vec<u64>>,
    /// Changes of runs and audits.
    #[serde(default, rename = "change")]
    pub changes: Vec<Change>,
}

/// One change of some runs and audits.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Glob of their labels; all unless given.
    #[serde(default = "every_run")]
    pub runs: String,
    /// As in a run.
    #[serde(default)]
    pub policy: Option<String>,
    /// As in a run.
    #[serde(default)]
    pub profile: Option<String>,
    /// As in a run.
    #[serde(default)]
    pub only: Vec<String>,
    /// As in a run; entries are added to those of the run.
    #[serde(default)]
    pub copies: toml::Table,
    /// As in a run; entries are added to those of the run.
    #[serde(default)]
    pub set: toml::Table,
    /// As in a run; entries are added to those of the run.
    #[serde(default)]
    pub device: DeviceChanges,
    /// Keys of `nic` in a run, added to those of the run.
    #[serde(default)]
    pub nic: toml::Table,
}

fn every_run() -> String {
    "*".to_owned()
}

impl Check {
    /// `claim` with the changes. Fails for no change at all, a label that no run has, or a formula or key that is not
    /// valid.
    pub fn apply(&self, claim: &Claim) -> Result<Claim, String> {
        if self.metric.is_none() && self.seeds.is_none() && self.changes.is_empty() {
            return Err("check: give a change, a metric or seeds".to_owned());
        }
        let mut changed = claim.clone();
        changed.check = None;
        for change in &self.changes {
            change.apply(&mut changed)?;
        }
        if let Some(text) = &self.metric {
            changed.metric =
                expression::parse(text).map_err(|error| format!("check: metric: {error}"))?;
            let labels = changed.metric.labels();
            let unknown = |label: &&str| !claim.runs.iter().any(|run| run.label == **label);
            if let Some(label) = labels.iter().copied().find(|label| unknown(label)) {
                return Err(format!("check: metric: no [[run]] has the label {label:?}"));
            }
            if changed.metric.is_ordering() != claim.metric.is_ordering() {
                return Err("check: metric: must be a comparison where the claim's is".to_owned());
            }
            changed.metric_text.clone_from(text);
        }
        if let Some(seeds) = &self.seeds {
            if seeds.is_empty() {
                return Err("check: seeds: name at least one".to_owned());
            }
            changed.seeds.clone_from(seeds);
        }
        Ok(changed)
    }
}

impl Change {
    fn apply(&self, claim: &mut Claim) -> Result<(), String> {
        let mut matched = false;
        for run in &mut claim.runs {
            if glob::matches(&self.runs, &run.label) {
                matched = true;
                self.apply_to_run(run)?;
            }
        }
        for audit in &mut claim.audits {
            if glob::matches(&self.runs, &audit.label) {
                matched = true;
                if let Some(policy) = &self.policy {
                    audit.policy.clone_from(policy);
                }
                if let Some(profile) = &self.profile {
                    audit.profile.clone_from(profile);
                }
                audit.device.merge(&self.device);
                for (name, value) in &self.set {
                    let number = value.as_float().or(value.as_integer().map(|n| n as f64));
                    let number = number.ok_or_else(|| format!("check: {name}: give a number"))?;
                    audit.set.insert(name.clone(), number);
                }
            }
        }
        match matched {
            true => Ok(()),
            false => Err(format!("check: no run has the label {:?}", self.runs)),
        }
    }

    fn apply_to_run(&self, run: &mut ClaimRun) -> Result<(), String> {
        if let Some(policy) = &self.policy {
            run.policy = Some(policy.clone());
        }
        if let Some(profile) = &self.profile {
            run.profile = Some(profile.clone());
        }
        if !self.only.is_empty() {
            run.only.clone_from(&self.only);
        }
        let entries = |table: &toml::Table| table.clone().into_iter();
        run.copies.extend(entries(&self.copies));
        run.set.extend(entries(&self.set));
        run.device.merge(&self.device);
        if self.nic.is_empty() {
            return Ok(());
        }
        let nic = run.nic.as_ref();
        let nic = nic.ok_or_else(|| format!("check: run {:?} has no nic", run.label))?;
        let mut table = toml::Table::try_from(nic).map_err(|error| error.to_string())?;
        table.extend(entries(&self.nic));
        let changed: NicRun = table
            .try_into()
            .map_err(|error: toml::de::Error| format!("check: nic: {}", error.message()))?;
        changed.study(1)?;
        run.nic = Some(changed);
        Ok(())
    }
}

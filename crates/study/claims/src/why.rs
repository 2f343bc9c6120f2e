//! Reasons of misses, checked: the change under which, if the reason is true, the claim holds.
//!
//! Problem: a reason that nobody runs is a guess, and some guesses contradict the model they explain. So a claim names its
//! reason as data, `[check]` with changes of its runs, and `isolane claims --why` runs the claim with them. If the claim then
//! holds, the reason is confirmed; if not, it is refuted, and the file is wrong. A miss without `[check]` has no known cause.
//!
//! Units: those of the claim. Method: [`Check::apply`] gives the changed claim; [`check`] runs the misses among `claims` with
//! and without their changes. Limits: a confirmed reason is sufficient, not necessary: another change may do the same.

use crate::claim::{Claim, ClaimRun};
use crate::device::DeviceChanges;
use crate::expression;
use crate::nic::NicRun;
use crate::plan::{self, ScenarioFiles};
use crate::report::ClaimReport;
use crate::world::World;
use isolane_common_text_output::counted;
use isolane_common_toml_input::glob;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

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
    /// `claim` with the changes.
    ///
    /// # Errors
    /// No change at all, a label that no run has, or a formula or key that is not valid.
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

/// What became of one miss's reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reason {
    /// The miss.
    pub id: String,
    /// Its system.
    pub system: String,
    /// Our value, as people read it.
    pub ours: String,
    /// What is published.
    pub published: String,
    /// The reason; absent when the cause is unknown and nothing is supposed.
    pub because: Option<String>,
    /// Our value with the change; absent without a check.
    pub changed: Option<String>,
    /// Whether the claim holds with the change; absent without a check.
    pub confirmed: Option<bool>,
}

/// Runs `claims`, and the misses among them again with what their reasons change; `progress` as in [`plan::check`].
pub fn check(
    claims: &[&Claim],
    files: &ScenarioFiles<'_>,
    world: &dyn World,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Vec<Reason> {
    let reports = plan::check(claims, files, world, progress);
    let missed: Vec<(&Claim, &ClaimReport)> = claims
        .iter()
        .copied()
        .zip(&reports)
        .filter(|(_, report)| report.within == Some(false))
        .collect();
    let changed: Vec<Claim> = missed
        .iter()
        .filter_map(|(claim, _)| {
            let check = claim.check.as_ref()?;
            Some(check.apply(claim).expect("reading the claim applied it"))
        })
        .collect();
    let checked = plan::check(&changed.iter().collect::<Vec<_>>(), files, world, progress);
    missed
        .into_iter()
        .map(|(claim, report)| {
            let checked = checked.iter().find(|checked| checked.id == claim.id);
            Reason {
                id: claim.id.clone(),
                system: claim.system.clone(),
                ours: report.ours_text(),
                published: report.published_text(),
                because: report.because.clone(),
                changed: checked.map(ClaimReport::ours_text),
                confirmed: checked.map(|checked| checked.within == Some(true)),
            }
        })
        .collect()
}

/// The reasons for a terminal: a block for each miss, then their number.
pub fn text(reasons: &[Reason]) -> String {
    let mut text = String::new();
    for reason in reasons {
        let (system, id) = (&reason.system, &reason.id);
        let _ = write!(
            text,
            "{system}/{id}: {}, published {}",
            reason.ours, reason.published
        );
        let changed = reason.changed.as_deref().unwrap_or_default();
        let because = reason.because.as_deref();
        let _ = match (reason.confirmed, because) {
            (Some(true), Some(because)) => write!(
                text,
                "; with the change {changed}: confirmed\n    {because}\n"
            ),
            (Some(_), because) => write!(
                text,
                "; with the change {changed}: refuted\n    {}\n",
                because.unwrap_or_default()
            ),
            (None, Some(because)) => {
                write!(text, "\n    cause unknown; not checked: {because}\n")
            }
            (None, None) => write!(text, "\n    cause unknown\n"),
        };
    }
    let count = |confirmed| {
        let of = |reason: &&Reason| reason.confirmed == confirmed;
        reasons.iter().filter(of).count()
    };
    let _ = writeln!(
        text,
        "{}: {} confirmed, {} refuted, {} of unknown cause",
        counted(reasons.len() as u64, "miss"),
        count(Some(true)),
        count(Some(false)),
        count(None)
    );
    text
}

#[cfg(test)]
mod tests;

//! Fitting the calibrated parameters of a profile to its calibration claims.
//!
//! Problem: a few parameters of a device are not published, but numbers they influence are. Method: coordinate descent
//! over the parameters marked `calibrated` (Justitia's own section is measured, not fitted): each in turn is tried a
//! factor smaller and larger and the better value kept; when a round improves nothing the factor's logarithm is halved.
//! The misfit is the mean squared logarithm of ours / published over the claims marked `calibration` that run on this
//! profile, so that a factor of two too much and too little count alike. Limits: a local search from the present
//! values; a bound counts only while it is broken; claims without a published number, with orderings or with a value of
//! zero do not take part.

use crate::CalibrationError;
use isolane_common_toml_input::sourced::SourceKind;
use isolane_rdma_scenario::library::Library;
use isolane_rdma_scenario::profile::{PARAMETERS, Profile};
use isolane_study_claims::claim::{Claim, ClaimKind};
use isolane_study_claims::expression::Value;
use isolane_study_claims::laboratory::Laboratory;
use isolane_study_claims::plan::{self, ScenarioFiles};
use isolane_study_claims::report::{ClaimReport, Relation};
use isolane_study_claims::verdict::Published;
use isolane_study_testbed::Testbed;
use serde::Serialize;

/// First step: 25 % up or down.
const FIRST_STEP: f64 = 1.25;
/// Improvements of the misfit below this share are chance: a parameter without influence must not drift.
const WORTH: f64 = 2e-3;
/// Steps below this are not worth a run.
const LAST_STEP: f64 = 1.03;

/// One parameter's change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Section of the profile.
    pub section: String,
    /// Parameter.
    pub name: String,
    /// Value before.
    pub before: f64,
    /// Value after.
    pub after: f64,
}

/// The result of a fit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// The profile.
    pub profile: String,
    /// Claims fitted to: id, published, ours before, ours after.
    pub claims: Vec<(String, f64, f64, f64)>,
    /// Root mean square of the logarithm of ours / published, before and after; 0.1 is about 10 %.
    pub misfit: (f64, f64),
    /// Every calibrated parameter, changed or not.
    pub parameters: Vec<Change>,
    /// Evaluations of all claims that were needed.
    pub evaluations: usize,
}

/// Fits `profile`; `progress` is called before each evaluation with the number so far and the best misfit. Fails if the
/// profile has nothing to fit, no calibration claim runs on it, or a claim's run fails.
pub fn fit(
    profile: &Profile,
    claims: &[Claim],
    files: &ScenarioFiles<'_>,
    testbed: &dyn Testbed,
    evaluations_max: usize,
    progress: &dyn Fn(usize, f64),
) -> Result<Fit, CalibrationError> {
    let nothing = |what, remedy| CalibrationError::Nothing {
        profile: profile.name.clone(),
        what,
        remedy,
    };
    let claims: Vec<&Claim> = claims
        .iter()
        .filter(|claim| takes_part(claim, profile, files))
        .collect();
    if claims.is_empty() {
        return Err(nothing(
            "calibration claim",
            "mark a claim that runs on it `calibration`",
        ));
    }
    let names = calibrated(profile);
    if names.is_empty() {
        return Err(nothing(
            "calibrated parameter",
            "mark a parameter `calibrated` in the profile",
        ));
    }
    let mut search = Search {
        claims,
        files,
        testbed,
        evaluations: 0,
        progress,
    };
    let before = search.evaluate(profile, f64::INFINITY)?;
    let (best, last) = search.descend(profile, &before, &names, evaluations_max)?;
    let value = |profile: &Profile, section: &str, name: &str| profile.value(section, name);
    Ok(Fit {
        profile: profile.name.clone(),
        claims: before
            .values
            .iter()
            .zip(&last.values)
            .map(|(old, new)| (old.0.clone(), old.1, old.2, new.2))
            .collect(),
        misfit: (before.misfit, last.misfit),
        parameters: names
            .iter()
            .map(|&(section, name)| Change {
                section: section.to_owned(),
                name: name.to_owned(),
                before: value(profile, section, name),
                after: value(&best, section, name),
            })
            .collect(),
        evaluations: search.evaluations,
    })
}

/// Claims that count: marked calibration, with a number, all of whose runs are on this profile.
fn takes_part(claim: &Claim, profile: &Profile, files: &ScenarioFiles<'_>) -> bool {
    let on_profile = |text: Result<String, String>| {
        text.is_ok_and(|text| {
            text.lines()
                .any(|line| line.trim() == format!("profile = {:?}", profile.name))
        })
    };
    claim.kind == ClaimKind::Calibration
        && matches!(claim.published,
            Published::Value(number) | Published::AtLeast(number) | Published::AtMost(number) if number > 0.0)
        && !claim.runs.is_empty()
        && claim
            .runs
            .iter()
            .all(|run| on_profile(plan::run_text(run, claim.seeds[0], files)))
}

/// Section and name of every calibrated parameter outside Justitia's own section.
fn calibrated(profile: &Profile) -> Vec<(&'static str, &'static str)> {
    let fitted = PARAMETERS.iter().filter(|parameter| {
        !matches!(parameter.section, "justitia" | "harmonic")
            && profile
                .section(parameter.section)
                .and_then(|section| section.get(parameter.name))
                .is_some_and(|sourced| sourced.kind == SourceKind::Calibrated)
    });
    fitted
        .map(|parameter| (parameter.section, parameter.name))
        .collect()
}

/// `profile` with one parameter scaled, within its range; `None` when rounding leaves it as it was.
fn scaled(profile: &Profile, section: &str, name: &str, factor: f64) -> Option<Profile> {
    let parameter = PARAMETERS
        .iter()
        .find(|known| known.section == section && known.name == name)?;
    let old = profile.value(section, name);
    let whole = !(name.ends_with("_ns") || name.ends_with("_us") || name.ends_with("_gbps"));
    let mut new = (old * factor).clamp(parameter.min, parameter.max);
    if whole {
        new = new.round();
        if new == old {
            new = old + (factor - 1.0).signum();
        }
    } else {
        new = significant(new);
    }
    let new = new.clamp(parameter.min, parameter.max);
    if new == old {
        return None;
    }
    let mut profile = profile.clone();
    set(&mut profile, section, name, new);
    Some(profile)
}

/// Three significant digits: what a fit can support.
fn significant(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let scale = 10f64.powi(2 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

fn set(profile: &mut Profile, section: &str, name: &str, value: f64) {
    let section = profile
        .section_mut(section)
        .expect("the section was found before");
    section
        .get_mut(name)
        .expect("the parameter was found before")
        .value = value;
}

struct Search<'a> {
    claims: Vec<&'a Claim>,
    files: &'a ScenarioFiles<'a>,
    testbed: &'a dyn Testbed,
    evaluations: usize,
    progress: &'a dyn Fn(usize, f64),
}

#[derive(Clone)]
struct Outcome {
    misfit: f64,
    values: Vec<(String, f64, f64)>,
}

impl Search<'_> {
    /// Moves one of the parameters `names` after the other as long as that lowers the misfit of `profile`, `before`; the
    /// best profile and its outcome.
    fn descend(
        &mut self,
        profile: &Profile,
        before: &Outcome,
        names: &[(&str, &str)],
        evaluations_max: usize,
    ) -> Result<(Profile, Outcome), CalibrationError> {
        let (mut best, mut last) = (profile.clone(), before.clone());
        let mut step = FIRST_STEP;
        while step > LAST_STEP && self.evaluations < evaluations_max {
            let mut improved = false;
            for &(section, name) in names {
                for factor in [1.0 / step, step] {
                    if self.evaluations >= evaluations_max {
                        break;
                    }
                    let Some(trial) = scaled(&best, section, name, factor) else {
                        continue;
                    };
                    let outcome = self.evaluate(&trial, last.misfit)?;
                    if outcome.misfit < last.misfit * (1.0 - WORTH) {
                        (best, last, improved) = (trial, outcome, true);
                        break;
                    }
                }
            }
            if !improved {
                step = step.sqrt();
            }
        }
        Ok((best, last))
    }

    fn evaluate(&mut self, profile: &Profile, best: f64) -> Result<Outcome, CalibrationError> {
        (self.progress)(self.evaluations, best);
        self.evaluations += 1;
        let mut library = Library::embedded();
        library.add_profile(profile.clone());
        let laboratory = Laboratory {
            library: &library,
            testbed: self.testbed,
        };
        let reports = plan::check(&self.claims, self.files, &laboratory, &|_, _| ());
        let mut values = Vec::new();
        let mut sum = 0.0;
        for report in &reports {
            let (published, ours) = numbers(report).ok_or_else(|| CalibrationError::Run {
                profile: profile.name.clone(),
                reason: format!(
                    "claim {}: {}",
                    report.id,
                    report.reason.clone().unwrap_or_default()
                ),
            })?;
            // A run that delivers nothing is as wrong as a factor of a thousand; a bound that holds is not wrong.
            let ratio = match (report.relation, (ours / published).max(1e-3).ln()) {
                (Relation::AtLeast, ratio) => ratio.min(0.0),
                (Relation::AtMost, ratio) => ratio.max(0.0),
                (_, ratio) => ratio,
            };
            sum += ratio * ratio;
            values.push((report.id.clone(), published, ours));
        }
        Ok(Outcome {
            misfit: (sum / reports.len() as f64).sqrt(),
            values,
        })
    }
}

fn numbers(report: &ClaimReport) -> Option<(f64, f64)> {
    match (report.published, report.ours) {
        (Some(Value::Number(published)), Some(Value::Number(ours))) => Some((published, ours)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_keep_three_digits() {
        assert_eq!(significant(1234.5), 1230.0);
        assert_eq!(significant(0.012_345), 0.0123);
    }

    #[test]
    fn whole_parameters_move_by_at_least_one() {
        let library = Library::embedded();
        let profile = library.profile("cx3pro-56g-ib").expect("shipped");
        let engines =
            scaled(profile, "scheduler", "engines", 1.25).expect("two engines can become three");
        assert_eq!(engines.value("scheduler", "engines"), 3.0);
    }

    #[test]
    fn only_calibrated_parameters_are_fitted() {
        let library = Library::embedded();
        for profile in library.profiles() {
            for (section, name) in calibrated(profile) {
                assert_eq!(
                    profile.section(section).expect("known")[name].kind,
                    SourceKind::Calibrated
                );
                assert_ne!(section, "justitia");
            }
        }
    }
}

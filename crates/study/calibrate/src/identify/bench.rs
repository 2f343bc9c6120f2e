//! The proof: devices with random parameters, hidden behind the testbed trait.

use super::{Identified, KNOWN_WITHIN, Method, identify, solve};
use crate::CalibrationError;
use isolane_rdma_scenario::model::Scenario;
use isolane_rdma_scenario::profile::Profile;
use isolane_study_results::rdma::RunResult;
use isolane_study_testbed::{Testbed, TestbedError};
use serde::Serialize;

/// Parameters change by at most this factor, up or down.
const MUTATION: f64 = 1.6;

/// A device with hidden parameters: it runs on its own profile and ignores the profile that a caller passes.
pub struct Hidden<'a> {
    profile: Profile,
    testbed: &'a dyn Testbed,
}

impl<'a> Hidden<'a> {
    /// A device of `profile`.
    pub fn new(profile: Profile, testbed: &'a dyn Testbed) -> Self {
        Self { profile, testbed }
    }
}

impl Testbed for Hidden<'_> {
    fn name(&self) -> &str {
        "hidden"
    }

    fn run(&self, scenario: &Scenario, given: &Profile) -> Result<RunResult, TestbedError> {
        let mut scenario = scenario.clone();
        scenario.profile.clone_from(&self.profile.name);
        let mut result = self.testbed.run(&scenario, &self.profile)?;
        result.profile.clone_from(&given.name);
        Ok(result)
    }
}

/// One hidden device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trial {
    /// Its number, which draws its parameters.
    pub number: u64,
    /// What was found.
    pub identified: Identified,
    /// The true values, in the order of `identified.parameters`.
    pub truth: Vec<f64>,
}

impl Trial {
    /// Parameters that are reported as known, and how many of them are within 15 % of the truth.
    pub fn score(&self) -> (usize, usize) {
        let pairs = self.identified.parameters.iter().zip(&self.truth);
        let known: Vec<bool> = pairs
            .filter(|(found, _)| found.known())
            .map(|(found, truth)| (found.value / truth - 1.0).abs() <= KNOWN_WITHIN)
            .collect();
        (known.len(), known.iter().filter(|&&right| right).count())
    }
}

/// Identifies the hidden device `number`, a mutation of `start`.
pub fn trial(start: &Profile, number: u64, model: &dyn Testbed) -> Result<Trial, CalibrationError> {
    let hidden = mutated(start, number);
    let device = Hidden::new(hidden.clone(), model);
    let identified = identify(start, &device, model, &|_, _| {})?;
    let value = |found: &super::Found| hidden.value(found.section, found.name);
    let truth = identified.parameters.iter().map(value).collect();
    Ok(Trial {
        number,
        identified,
        truth,
    })
}

/// `start` with all examined parameters changed by a random factor.
fn mutated(start: &Profile, number: u64) -> Profile {
    let mut profile = start.clone();
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d;
    for experiment in Method::of(start).experiments {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let unit = (state >> 11) as f64 / (1u64 << 53) as f64;
        let factor = MUTATION.powf(2.0 * unit - 1.0);
        let (section, name) = experiment.parameter;
        let value = start.value(section, name) * factor;
        let value = match experiment.whole {
            true => value.round().max(1.0),
            false => value,
        };
        solve::set(&mut profile, experiment.parameter, value);
    }
    profile
}

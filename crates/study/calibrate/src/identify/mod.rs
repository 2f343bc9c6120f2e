//! A device's parameters from experiments on it.
//!
//! Problem: find the profile of a device without published parameters. Method: each [`Experiment`] is a small scenario whose result
//! depends on one parameter more than on the others, such as the message rate of two senders to one receiver for the cost
//! of a received WRITE. The device runs every experiment twice, with two seeds. Then the model runs it with candidate values,
//! and the value is kept for which the model measures what the device measured. The other parameters keep the values found
//! so far, starting with those of a profile of a similar device; three rounds make them agree. A device in software may be far
//! faster or slower than the start. Its measured slowness is a factor for the starts of the search and for the time that the model runs.
//!
//! The interval of a value has all values for which the model stays within the device's own spread. A parameter that
//! hardly changes the result, because another resource bounds the experiment, has no finite interval: it is reported as not
//! told apart, with the side that is known. A [`Method`] names the experiments, and the parameters that they do not separate.
//!
//! Units: those of the profile; rates in million messages per second, latencies in microseconds, goodput in Gb/s.
//! Limits: the model's mechanisms are assumed to be the device's. A program that polls takes time from
//! a device in software if they share a processor: programs of the lowest scheduling class do not.

pub mod bench;
mod experiments;
mod solve;

use crate::CalibrationError;
use crate::edit;
pub use experiments::{Experiment, Method};
use isolane_rdma_scenario::profile::Profile;
use isolane_study_testbed::Testbed;
use serde::Serialize;

/// Rounds over all experiments.
const ROUNDS: usize = 3;
/// A value is known if its interval is at most this far above and below it.
pub const KNOWN_WITHIN: f64 = 0.15;

/// What became of one parameter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    /// Section of the profile.
    pub section: &'static str,
    /// Parameter.
    pub name: &'static str,
    /// The value with which the model measures what the device did.
    pub value: f64,
    /// Least value that does within the device's spread; none if smaller values make no difference.
    pub low: Option<f64>,
    /// Largest such value; none if larger values make no difference.
    pub high: Option<f64>,
    /// What the device measured.
    pub measured: f64,
    /// What the model measures with the values found.
    pub modelled: f64,
}

impl Found {
    /// Whether the experiments determine the value.
    pub fn known(&self) -> bool {
        let close = |end: f64| (end / self.value - 1.0).abs() <= KNOWN_WITHIN;
        let agrees = (self.modelled / self.measured - 1.0).abs() <= solve::AGREES;
        agrees && self.low.is_some_and(close) && self.high.is_some_and(close)
    }
}

/// What became of a device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Identified {
    /// The profile that the values started from.
    pub start: String,
    /// One per experiment.
    pub parameters: Vec<Found>,
    /// Groups of parameters of which the experiments show one sum.
    pub together: &'static [&'static str],
    /// Runs on the device.
    pub device_runs: usize,
    /// Runs of the model.
    pub model_runs: usize,
}

impl Identified {
    /// `text`, a profile's, with the values that are known and their intervals. Fails if the text has no line for a
    /// parameter.
    pub fn write_into(&self, text: &str) -> Result<String, CalibrationError> {
        let mut text = text.to_owned();
        for found in self.parameters.iter().filter(|found| found.known()) {
            let (low, high) = (found.low.unwrap_or(0.0), found.high.unwrap_or(0.0));
            let source = format!("measured by calibrate --identify: {low} to {high}");
            text = edit::set_measured(&text, (found.section, found.name), found.value, &source)?;
        }
        Ok(text)
    }
}

/// Finds the parameters of the device behind `device`; `model` is the simulator, `start` a profile of a similar device.
/// `progress` is called after each step with (done, all). Fails if a run fails, or completes nothing.
pub fn identify(
    start: &Profile,
    device: &dyn Testbed,
    model: &dyn Testbed,
    progress: &dyn Fn(usize, usize),
) -> Result<Identified, CalibrationError> {
    let method = Method::of(start);
    let experiments: Vec<&Experiment> = method
        .experiments
        .iter()
        .filter(|one| start.atomics || !one.needs_atomics)
        .collect();
    let all = experiments.len() * (ROUNDS + 2);
    let mut targets = Vec::new();
    for (number, experiment) in experiments.iter().enumerate() {
        targets.push(solve::observe(experiment, start, device)?);
        progress(number + 1, all);
    }
    let mut search = solve::Search::new(start.clone(), model);
    for (experiment, target) in experiments.iter().zip(&mut targets) {
        search.move_start(experiment);
        if method.any_speed {
            search.match_speed(experiment, target)?;
        }
    }
    let mut done = experiments.len();
    for round in 0..ROUNDS {
        for (experiment, target) in experiments.iter().zip(&targets) {
            search.fit(experiment, target, round)?;
            done += 1;
            progress(done, all);
        }
    }
    let mut parameters = Vec::new();
    for (experiment, target) in experiments.iter().zip(&targets) {
        parameters.push(search.interval(experiment, target)?);
        done += 1;
        progress(done, all);
    }
    Ok(Identified {
        start: start.name.clone(),
        parameters,
        together: method.together,
        device_runs: solve::SEEDS.len() * experiments.len(),
        model_runs: search.runs,
    })
}

#[cfg(test)]
mod tests;

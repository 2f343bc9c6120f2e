//! Running an experiment, and the value of its parameter that explains a result.

use super::Found;
use super::experiments::{Experiment, Measure};
use crate::CalibrationError;
use crate::oracle::failed;
use isolane_rdma_scenario::catalogue::Catalogue;
use isolane_rdma_scenario::library::Library;
use isolane_rdma_scenario::profile::{MICROARCHITECTURE, PARAMETERS, Profile};
use isolane_study_testbed::Testbed;

/// Seeds of the device's runs; the model has the first.
pub(super) const SEEDS: [u64; 2] = [1, 2];
/// The model and the device agree if their results differ by at most this share.
pub(super) const AGREES: f64 = 0.02;
/// Least spread of a device's results, as a share: two seeds may agree by chance.
const SPREAD_MIN: f64 = 0.005;
/// Values tried are within this factor of the start.
const REACH: f64 = 16.0;
/// The model runs at most this many times longer or shorter: 100 ms become 100 s or 100 us.
const LONGER_MAX: f64 = 1e3;
/// Halvings of the range, on a logarithmic scale: a factor of 256 becomes one of 1.0014.
const HALVINGS: usize = 12;
/// Change of a parameter whose effect says how wide its interval is.
const STEP: f64 = 1.15;
/// A share of the result below this is no effect.
const NO_EFFECT: f64 = 1e-4;

/// What a device measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    /// Mean of the seeds.
    value: f64,
    /// Half of the difference between seeds, as a share, and not below [`SPREAD_MIN`].
    spread: f64,
    /// How many times longer the model runs than the experiment says.
    longer: f64,
}

/// Runs `experiment` on the device.
pub(super) fn observe(
    experiment: &Experiment,
    start: &Profile,
    device: &dyn Testbed,
) -> Result<Target, CalibrationError> {
    let mut results = Vec::new();
    for seed in SEEDS {
        results.push(run(experiment, start, device, seed, 1.0)?);
    }
    let value = results.iter().sum::<f64>() / results.len() as f64;
    let spread = (results[0] - results[1]).abs() / 2.0 / value;
    Ok(Target {
        value,
        spread: spread.max(SPREAD_MIN),
        longer: 1.0,
    })
}

/// The profile so far and the model that it is tried on.
pub(super) struct Search<'a> {
    profile: Profile,
    model: &'a dyn Testbed,
    pub(super) runs: usize,
}

impl<'a> Search<'a> {
    pub(super) fn new(profile: Profile, model: &'a dyn Testbed) -> Self {
        Self {
            profile,
            model,
            runs: 0,
        }
    }

    /// Puts the parameter of `experiment` where its search starts.
    pub(super) fn move_start(&mut self, experiment: &Experiment) {
        let (section, name) = experiment.parameter;
        let value = self.profile.value(section, name) * experiment.start_at;
        self.set(experiment, value);
    }

    /// Changes the start of `experiment` by the factor by which the device is slower than the model, and how long the model runs.
    pub(super) fn match_speed(
        &mut self,
        experiment: &Experiment,
        target: &mut Target,
    ) -> Result<(), CalibrationError> {
        let (section, name) = experiment.parameter;
        let start = self.profile.value(section, name);
        let model = self.modelled(experiment, target, start)?;
        let slower = match experiment.measure {
            Measure::Goodput | Measure::Rate => model / target.value,
            Measure::Mean | Measure::Median => target.value / model,
        };
        target.longer = slower.clamp(1.0 / LONGER_MAX, LONGER_MAX);
        let change = match name.ends_with("_gbps") {
            true => 1.0 / slower,
            false => slower,
        };
        let range = range(experiment);
        self.set(experiment, (start * change).clamp(range.0, range.1));
        Ok(())
    }

    /// Moves the parameter of `experiment` to the value with which the model measures `target`. The first round reaches
    /// far, the later ones correct.
    pub(super) fn fit(
        &mut self,
        experiment: &Experiment,
        target: &Target,
        round: usize,
    ) -> Result<(), CalibrationError> {
        let (section, name) = experiment.parameter;
        let start = self.profile.value(section, name);
        let here = self.modelled(experiment, target, start)?;
        if (here / target.value - 1.0).abs() <= SPREAD_MIN / 2.0 {
            return Ok(());
        }
        let reach = if round == 0 { REACH } else { REACH.sqrt() };
        let range = range(experiment);
        let mut low = (start / reach).max(range.0);
        let mut high = (start * reach).min(range.1);
        let (at_low, at_high) = (
            self.modelled(experiment, target, low)?,
            self.modelled(experiment, target, high)?,
        );
        let (end_low, end_high) = (low, high);
        if (at_high / at_low - 1.0).abs() < NO_EFFECT {
            return Ok(());
        }
        let rises = at_high > at_low;
        for _ in 0..HALVINGS {
            let middle = whole(experiment, (low * high).sqrt());
            if middle <= low || middle >= high {
                break;
            }
            let there = self.modelled(experiment, target, middle)?;
            if (there < target.value) == rises {
                low = middle;
            } else {
                high = middle;
            }
        }
        // A value that explains the result as well as another does not bound the experiment: it stays, or goes to the end of
        // the range where it bounds nothing.
        let mut candidates = vec![(start, here), (end_low, at_low), (end_high, at_high)];
        for value in [low, high, whole(experiment, (low * high).sqrt())] {
            candidates.push((value, self.modelled(experiment, target, value)?));
        }
        let off = |modelled: f64| (modelled / target.value - 1.0).abs();
        let least = candidates
            .iter()
            .map(|one| off(one.1))
            .fold(f64::INFINITY, f64::min);
        let best = candidates
            .iter()
            .find(|one| off(one.1) <= least + target.spread);
        let best = *best.expect("one candidate has the least difference");
        self.set(experiment, best.0);
        Ok(())
    }

    /// The value found and how far it may be off.
    pub(super) fn interval(
        &mut self,
        experiment: &Experiment,
        target: &Target,
    ) -> Result<Found, CalibrationError> {
        let (section, name) = experiment.parameter;
        let value = self.profile.value(section, name);
        let modelled = self.modelled(experiment, target, value)?;
        let low = self.end(experiment, target, (value, modelled), 1.0 / STEP)?;
        let high = self.end(experiment, target, (value, modelled), STEP)?;
        Ok(Found {
            section,
            name,
            value: rounded(value),
            low: low.map(rounded),
            high: high.map(rounded),
            measured: rounded(target.value),
            modelled: rounded(modelled),
        })
    }

    /// How far the value may move towards `factor` within the device's spread; none if it makes no difference.
    fn end(
        &mut self,
        experiment: &Experiment,
        target: &Target,
        (value, modelled): (f64, f64),
        factor: f64,
    ) -> Result<Option<f64>, CalibrationError> {
        let range = range(experiment);
        let step = if factor > 1.0 { 1.0 } else { -1.0 };
        let mut moved = whole(experiment, value * factor);
        if experiment.whole && (moved - value).abs() < 1.0 {
            moved = value + step;
        }
        if moved < range.0 {
            return Ok(Some(value));
        }
        let effect = (self.modelled(experiment, target, moved)? / modelled)
            .ln()
            .abs();
        if effect < NO_EFFECT {
            return Ok(None);
        }
        // A whole number is exact if its neighbour is visibly different.
        if experiment.whole && (moved - value).abs() <= 1.0 && effect > 2.0 * target.spread {
            return Ok(Some(value));
        }
        let share = target.spread / effect;
        Ok((share <= 4.0).then(|| value * (moved / value).powf(share)))
    }

    fn set(&mut self, experiment: &Experiment, value: f64) {
        set(&mut self.profile, experiment.parameter, value);
    }

    fn modelled(
        &mut self,
        experiment: &Experiment,
        target: &Target,
        value: f64,
    ) -> Result<f64, CalibrationError> {
        self.runs += 1;
        let mut profile = self.profile.clone();
        set(&mut profile, experiment.parameter, value);
        run(experiment, &profile, self.model, SEEDS[0], target.longer)
    }
}

/// Changes a parameter of a profile.
pub(super) fn set(profile: &mut Profile, (section, name): (&str, &str), value: f64) {
    let section = profile
        .section_mut(section)
        .expect("an experiment names a section");
    section
        .get_mut(name)
        .expect("a profile has all parameters")
        .value = value;
}

fn range(experiment: &Experiment) -> (f64, f64) {
    let (section, name) = experiment.parameter;
    let parameter = PARAMETERS
        .iter()
        .chain(MICROARCHITECTURE)
        .find(|one| one.section == section && one.name == name)
        .expect("an experiment names a parameter");
    let least = if experiment.whole { 1.0 } else { 1e-3 };
    (parameter.min.max(least), parameter.max)
}

fn whole(experiment: &Experiment, value: f64) -> f64 {
    if experiment.whole {
        value.round()
    } else {
        value
    }
}

/// Four significant digits.
fn rounded(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let scale = 10f64.powi(3 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

/// One run of an experiment, `longer` times as long as it says: its result.
fn run(
    experiment: &Experiment,
    profile: &Profile,
    testbed: &dyn Testbed,
    seed: u64,
    longer: f64,
) -> Result<f64, CalibrationError> {
    let duration = (f64::from(experiment.duration_us) * longer).round();
    let warmup = (f64::from(experiment.warmup_us) * longer).round();
    let text = format!(
        "profile = {:?}\ntopology = \"switch\"\nseed = {seed}\nwarmup = \"{warmup}us\"\nduration = \"{duration}us\"\n{}",
        profile.name, experiment.tenants
    );
    let library = Library::new(vec![profile.clone()], Catalogue::default());
    let scenario = isolane_rdma_scenario::parse(&text, "identify", &library)
        .map_err(|error| failed(profile, &error.to_string()))?;
    let result = testbed.run(&scenario, profile)?;
    let first = result.tenants[0].latency_us.as_ref();
    let value = match experiment.measure {
        Measure::Goodput => result.tenants.iter().map(|one| one.goodput_gbps).sum(),
        Measure::Rate => {
            let rates = result.tenants.iter().map(|one| one.message_rate_per_s);
            rates.sum::<f64>() / 1e6
        }
        Measure::Mean => first.map_or(0.0, |latency| latency.mean),
        Measure::Median => first.map_or(0.0, |latency| latency.p50),
    };
    if value <= 0.0 {
        let reason = format!("{}: nothing completed", experiment.what);
        return Err(failed(profile, &reason));
    }
    Ok(value)
}

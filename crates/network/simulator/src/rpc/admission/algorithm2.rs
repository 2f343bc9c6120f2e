//! Admission of calls by measured latency, for each caller, called host and class (Aequitas algorithm 2).
//!
//! Problem: the scenario's policy and promises as the library's options, and one state for each caller and class.
//! Method: [`isolane_rpc_policy::aequitas`] decides; here are the table of states and the random stream of each
//! calling host. The lowest class is never gated, and calls that are not admitted run there, never in a class between.
//! Choice: a promise for a whole call is judged here, and its window is that of the whole call's target
//! (`target / (1 - percentile)`), as the published simulator has it; one per MTU has the window of the paper's line 4.
//! Limits: 24 bytes for each caller and class with a promise.

use super::super::objective::Objective;
use super::{idle_after, parameter};
use isolane_common_quantities::OptionError;
use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::units::{Duration, Instant};
use isolane_network_scenario::model::FabricScenario;
use isolane_rpc_policy::aequitas::{AdmitState, AequitasOptions, Decision, Probability};

/// The admit probabilities of a run.
#[derive(Clone, Debug)]
pub(in crate::rpc) struct Probabilities {
    /// By class; none for classes that are not gated.
    options: Vec<Option<AequitasOptions>>,
    /// By caller, then class.
    states: Vec<AdmitState>,
    /// By generator.
    streams: Vec<Stream>,
    lowest: u8,
}

impl Probabilities {
    /// The options of `scenario`, with all states new. Fails if a parameter controls nothing.
    pub(super) fn new(
        scenario: &FabricScenario,
        objectives: &[Option<Objective>],
        callers: usize,
        generators: usize,
    ) -> Result<Self, OptionError> {
        let lowest = scenario.classes.len() - 1;
        let mut options = Vec::new();
        for (class, objective) in objectives.iter().enumerate() {
            options.push(match objective {
                Some(objective) if class < lowest => Some(options_of(scenario, objective)?),
                _ => None,
            });
        }
        let stream = |index| Stream::indexed(scenario.seed, "calls/admission", index as u64);
        Ok(Self {
            states: vec![AdmitState::new(Instant::ZERO); callers * lowest],
            streams: (0..generators).map(stream).collect(),
            lowest: lowest as u8,
            options,
        })
    }

    /// The class in which a call runs that requests `class`.
    #[inline]
    pub(super) fn decide(&mut self, now: Instant, generator: u32, caller: u32, class: u8) -> u8 {
        let Some(Some(options)) = self.options.get(class as usize) else {
            return class;
        };
        let random = (self.streams[generator as usize].next_u64() >> 32) as u32;
        let state = &mut self.states[caller as usize * self.lowest as usize + class as usize];
        match state.decide(options, now, random) {
            Decision::Admit => class,
            Decision::Downgrade => self.lowest,
        }
    }

    /// A call that ran in `class` is over.
    #[inline]
    pub(super) fn on_completion(
        &mut self,
        now: Instant,
        caller: u32,
        class: u8,
        met: bool,
        mtus: u32,
    ) {
        if let Some(Some(options)) = self.options.get(class as usize) {
            let state = &mut self.states[caller as usize * self.lowest as usize + class as usize];
            state.on_outcome(options, now, met, mtus);
        }
    }

    /// The admit probability of a caller and class; none where nothing is gated.
    #[inline]
    pub(super) fn probability(&self, caller: u32, class: u8) -> Option<f64> {
        self.options.get(class as usize)?.as_ref()?;
        let state = &self.states[caller as usize * self.lowest as usize + class as usize];
        Some(state.probability().as_f64())
    }
}

fn options_of(
    scenario: &FabricScenario,
    objective: &Objective,
) -> Result<AequitasOptions, OptionError> {
    let part =
        |name: &str, or: Probability| parameter(scenario, name).map_or(or, Probability::from_f64);
    let mut options = AequitasOptions::new(objective.target, objective.percentile);
    options.increment = part("increment", options.increment);
    options.decrement_per_mtu = part("decrement_per_mtu", options.decrement_per_mtu);
    options.floor = part("floor", options.floor);
    if let Some(idle_after) = idle_after(scenario) {
        options.idle_after = idle_after;
    }
    let window = parameter(scenario, "window_us").map(|us| Duration::from_secs_f64(us / 1e6));
    options.window = Some(window.unwrap_or_else(|| options.increment_window()));
    options.window_restarts_on_miss =
        parameter(scenario, "window_restarts_on_miss").unwrap_or(0.0) != 0.0;
    options.check()?;
    Ok(options)
}

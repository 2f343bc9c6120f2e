//! The results of a lab, as written to JSON.
//!
//! Units end the names; shares and mixes are fractions of one. Class 0 is the highest.

use crate::fleet::Language;
use crate::measure::{ClassFigures, Misses};
use crate::network::ClassCount;
use crate::plan::{CLASSES, Plan, Theory};
use serde::Serialize;

/// Results of a whole lab.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Version of this format.
    pub version: u32,
    /// Whether every verdict passed.
    pub passed: bool,
    /// The verdicts with sentences.
    pub verdicts: Vec<Verdict>,
    /// Languages of the clients.
    pub clients: Vec<Language>,
    /// The objectives that the lab derived.
    pub objectives: Vec<Objective>,
    /// The runs in order.
    pub runs: Vec<RunReport>,
    /// The lab's parameters.
    pub plan: Plan,
    /// Duration of the whole lab.
    pub seconds: f64,
    /// Command to enter the namespaces, if they were kept.
    pub kept: Option<String>,
}

/// One check of the lab.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Short name of the check.
    pub name: &'static str,
    /// Whether it passed.
    pub passed: bool,
    /// False if the machine was too busy for a verdict; `passed` is then false.
    pub judged: bool,
    /// Whether the run was long enough: chance alone stays below what the check allows. `None` for exact checks.
    pub settled: Option<bool>,
    /// Number of calls behind the check; `None` for exact checks.
    pub calls: Option<usize>,
    /// A sentence with the figures.
    pub words: String,
}

/// The latency objective of the admitted calls of a class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Objective {
    /// Number of the class.
    pub class: usize,
    /// Objective for a whole call.
    pub slo_ms: f64,
    /// Latency at the percentile in the run at the target mix.
    pub measured_ms: f64,
    /// Smallest objective by theory.
    pub theory_ms: f64,
    /// Latency at the percentile of the same calls on an ideal port, without a kernel or a processor.
    pub model_ms: f64,
    /// Objective per MTU of a call, as the algorithm uses it.
    pub per_mtu_us: f64,
    /// Percentage of calls that must meet it.
    pub percentile: f64,
    /// Increase of the admit probability after a window without a miss.
    pub increment: f64,
}

impl Objective {
    /// Objective for a whole call, microseconds.
    pub fn slo_us(&self) -> u64 {
        (self.slo_ms * 1000.0) as u64
    }

    /// Fraction of calls that may miss it.
    pub fn allowed(&self) -> f64 {
        1.0 - self.percentile / 100.0
    }
}

/// Kind of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunKind {
    /// The mix that the port was planned for.
    Target,
    /// The requested mix, every call in the requested class.
    Without,
    /// The requested mix under Aequitas.
    With,
    /// The requested mix in shadow mode.
    Shadow,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunReport {
    /// Which.
    pub kind: RunKind,
    /// Earlier calls are not counted in latencies and mixes.
    pub from_ms: u64,
    /// Latencies by class.
    pub classes: [ClassFigures; CLASSES],
    /// Fraction of the calls of each controlled class that missed its objective.
    pub misses: Vec<Misses>,
    /// Fraction of the calls that requested each class.
    pub mix_asked: [f64; CLASSES],
    /// Fraction of the calls that ran in each class.
    pub mix_ran: [f64; CLASSES],
    /// The same in the first and the second half of the calls.
    pub mix_halves: [[f64; CLASSES]; 2],
    /// Random differences between runs and between clients; `None` without admission control.
    pub chance: Option<Chance>,
    /// Calls issued in the whole run; so are all counts below.
    pub issued: u64,
    /// Calls answered.
    pub answered: u64,
    /// Calls that ended in an error.
    pub failed: u64,
    /// Calls without an answer in time.
    pub unanswered: u64,
    /// The first error, if any.
    pub first_error: Option<String>,
    /// Calls that ran in another class than the requested one.
    pub moved: u64,
    /// Calls whose application received a downgrade.
    pub notified: u64,
    /// Calls that servers answered.
    pub served: u64,
    /// Calls whose server received a downgrade.
    pub seen_downgraded: u64,
    /// Calls that ran in each class.
    pub ran: [u64; CLASSES],
    /// Traffic of each class at the port.
    pub port: Vec<ClassCount>,
    /// Largest delay of a call's issue.
    pub late_ms_max: f64,
    /// Predictions of theory for the requested mix.
    pub theory: Theory,
    /// Results by client.
    pub clients: Vec<ClientReport>,
}

/// Root mean squares of random differences, from replays in a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Chance {
    /// Difference of the mixes of a run's halves.
    pub halves: [f64; CLASSES],
    /// Difference of a run's mix from the mean of the replays.
    pub mix: [f64; CLASSES],
    /// Largest difference of a client's part of a class from the clients' mean, relative to this mean.
    pub clients: [f64; CLASSES],
}

/// Results of one client.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClientReport {
    /// Its language.
    pub language: Language,
    /// Language of its server.
    pub server: Language,
    /// Fraction of its calls that ran in each class.
    pub mix_ran: [f64; CLASSES],
    /// Its latencies.
    pub classes: [ClassFigures; CLASSES],
    /// Its final admit probabilities.
    pub probability: Vec<f64>,
    /// Largest delay of a call's issue.
    pub late_ms_max: f64,
}

//! What a lab found, as it goes into JSON.
//!
//! Units end the names; shares and mixes are parts of one. Class 0 is the highest.

use crate::fleet::Language;
use crate::measure::{ClassFigures, Misses};
use crate::network::ClassCount;
use crate::plan::{CLASSES, Plan, Theory};
use serde::Serialize;

/// A whole lab.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Of this form.
    pub version: u32,
    /// True when every verdict is yes.
    pub passed: bool,
    /// The answers in words.
    pub verdicts: Vec<Verdict>,
    /// In what the clients and servers were written.
    pub clients: Vec<Language>,
    /// What the lab derived as objectives.
    pub objectives: Vec<Objective>,
    /// The runs in order.
    pub runs: Vec<RunReport>,
    /// What was asked for.
    pub plan: Plan,
    /// How long all of it took.
    pub seconds: f64,
    /// How to look into the namespaces, if they were kept.
    pub kept: Option<String>,
}

/// One question and its answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Short name of the question.
    pub name: &'static str,
    /// The answer.
    pub passed: bool,
    /// False when the machine was too busy for an answer; `passed` is false then.
    pub judged: bool,
    /// The answer as a sentence with its figures.
    pub words: String,
}

/// The latency that admitted calls of a class are to keep.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Objective {
    /// Which class.
    pub class: usize,
    /// For a whole call.
    pub slo_ms: f64,
    /// What the percentile of the calls kept at the target mix.
    pub measured_ms: f64,
    /// What theory asks for at least.
    pub theory_ms: f64,
    /// What the percentile of the same calls keeps on an ideal port, without a kernel or a processor.
    pub model_ms: f64,
    /// For each MTU of a call, as the algorithm takes it.
    pub per_mtu_us: f64,
    /// How many calls of a hundred must keep it.
    pub percentile: f64,
    /// What a window without a miss adds to the admit probability.
    pub increment: f64,
}

impl Objective {
    /// For a whole call, in microseconds.
    pub fn slo_us(&self) -> u64 {
        (self.slo_ms * 1000.0) as u64
    }

    /// The part of calls that may miss it.
    pub fn allowed(&self) -> f64 {
        1.0 - self.percentile / 100.0
    }
}

/// Which of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunKind {
    /// The mix that the port was planned for.
    Target,
    /// The mix that applications ask for, every call in the class it asks for.
    Without,
    /// The same under Aequitas.
    With,
    /// The same with decisions reported, not acted on.
    Shadow,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunReport {
    /// Which.
    pub kind: RunKind,
    /// Calls issued earlier are not in latencies and mixes.
    pub from_ms: u64,
    /// Latencies by class.
    pub classes: [ClassFigures; CLASSES],
    /// Part of the calls of each controlled class that missed its objective.
    pub misses: Vec<Misses>,
    /// Part of the calls that asked for each class.
    pub mix_asked: [f64; CLASSES],
    /// Part of the calls that ran in each class.
    pub mix_ran: [f64; CLASSES],
    /// The same in the first and the second half of the calls.
    pub mix_halves: [[f64; CLASSES]; 2],
    /// How far the two halves differ by chance, as root mean square; nothing without admission control.
    pub mix_halves_error: Option<[f64; CLASSES]>,
    /// Calls issued, of the whole run as everything below.
    pub issued: u64,
    /// Calls answered.
    pub answered: u64,
    /// Calls that ended in an error.
    pub failed: u64,
    /// Calls whose answer did not come in time.
    pub unanswered: u64,
    /// The first error, if any.
    pub first_error: Option<String>,
    /// Calls that ran in another class than they asked for.
    pub moved: u64,
    /// Calls whose application was told of a downgrade.
    pub told: u64,
    /// Calls that servers answered.
    pub served: u64,
    /// Calls that told the server of a downgrade.
    pub seen_downgraded: u64,
    /// Calls that ran in each class.
    pub ran: [u64; CLASSES],
    /// What passed the classes of the port.
    pub port: Vec<ClassCount>,
    /// The longest that a call was issued after its time.
    pub late_ms_max: f64,
    /// What theory says of the mix that was asked for.
    pub theory: Theory,
    /// By client.
    pub clients: Vec<ClientReport>,
}

/// One client of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClientReport {
    /// Its language.
    pub language: Language,
    /// The language of the server it called.
    pub server: Language,
    /// Part of its calls that ran in each class.
    pub mix_ran: [f64; CLASSES],
    /// Its latencies.
    pub classes: [ClassFigures; CLASSES],
    /// Its admit probabilities at the end.
    pub probability: Vec<f64>,
    /// The longest that a call was issued after its time.
    pub late_ms_max: f64,
}

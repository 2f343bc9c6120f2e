//! The hunt: which workloads make an RDMA subsystem misbehave, and under which conditions (collie, chapter 3).
//!
//! A search draws workloads from a space, runs each as a short experiment on a testbed, and follows the device's
//! counters towards extremes. An experiment whose result breaks one of two rules - the device pauses its link
//! though nothing is congested, or throughput stays under every bound that explains it - is an anomaly; it is
//! reduced to its minimal feature set, and the search goes on outside of it.
//!
//! * [`space`] - the workloads;
//! * [`bounds`], [`monitor`] - what a sound device reaches, and when an experiment is anomalous;
//! * `latency` - the same of latencies; [`victim`] - of a victim beside an attacker; [`rule`] - which of them counts;
//! * [`counters`] - which counters guide the search; `vocabulary` - by which names testbeds report them.
//! * `sprt`, [`region`], [`mfs`] - how an anomaly becomes its minimal feature set;
//! * [`search`] - where to look next; [`hunt`] - the whole;
//! * [`known`], [`advise`] - what is known of a device, and what an application has to do with it; [`fix`] - what ends one anomaly; [`regress`], [`triggers`], `perftest` - known reproducers as a suite;
//! * [`compare`] - searchers side by side; [`knockout`], [`planted`] - what a finding belongs to, on simulated and on drawn devices;
//! * [`mod@bench`], [`state`], [`session`] - experiments in batches, counted and kept; [`table`] - the result as text.
#![forbid(unsafe_code)]

pub mod advise;
pub mod bench;
pub mod bounds;
pub mod compare;
pub mod counters;
pub mod experiment;
pub mod fix;
pub mod hunt;
pub mod knockout;
pub mod known;
mod latency;
pub mod mfs;
pub mod monitor;
mod perftest;
pub mod planted;
pub mod region;
pub mod regress;
pub mod rule;
pub mod running;
pub mod search;
pub mod session;
pub mod space;
mod sprt;
pub mod state;
pub mod table;
pub mod triggers;
pub mod victim;
pub(crate) mod vocabulary;

#[cfg(test)]
mod synthetic;

use std::path::PathBuf;

/// Why a hunt could not run.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum HuntError {
    /// A mistake in the file of `--restrict`.
    #[error(transparent)]
    Input(#[from] isolane_common_toml_input::error::InputError),
    /// Restrictions that leave nothing.
    #[error(
        "{file}: the restricted search space is empty: no workload meets all of it; the last one tried failed because \
         {rule}; widen one of the two"
    )]
    Empty {
        file: String,
        /// The rule that the last draw broke.
        rule: String,
    },
    #[error("counter {name}: target {target} has no such counter{}", counter_note(.nearest, .known))]
    NoCounter {
        name: String,
        target: String,
        nearest: Option<String>,
        known: Vec<String>,
    },
    #[error(
        "target {target}: the benchmark {benchmark} moved no data, so no bound is known; check the device first"
    )]
    NoBound {
        target: String,
        benchmark: &'static str,
    },
    /// A target on which no plain workload ended enough messages.
    #[error(
        "target {target}: no plain workload ended enough messages for a 99th percentile, so no latency is known: hunt \
         without --latency"
    )]
    NoLatency { target: String },
    /// A victim that cannot be hunted for.
    #[error("victim {victim}: {problem}")]
    Victim {
        victim: String,
        /// What is wrong, and the remedy.
        problem: String,
    },
    #[error("{} holds a hunt: go on with it by --resume, or use another --report", .path.display())]
    Exists { path: PathBuf },
    #[error("cannot read {}: {source}; a hunt without --resume starts a new one", .path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot write {}: {source}; free space or use another --report", .path.display())]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("another hunt writes {}: wait for it, or use another --report", .path.display())]
    Busy { path: PathBuf },
    #[error("journal {} was written by {found}, this is {ours}: use another --report", .path.display())]
    OtherVersion {
        path: PathBuf,
        found: String,
        ours: String,
    },
    #[error("journal {} belongs to a hunt with other settings ({found}; these are {ours}): resume with those, or use another --report",
        .path.display())]
    OtherHunt {
        path: PathBuf,
        found: String,
        ours: String,
    },
    #[error("journal {} is damaged at line {line}: use another --report", .path.display())]
    Damaged { path: PathBuf, line: usize },
    #[error("no workload of the search space could be drawn: {rule}")]
    NoPoint {
        /// The rule that the last draw broke.
        rule: String,
    },
    #[error("searcher {name}: unknown; must be one of {}", crate::search::NAMES.join(", "))]
    NoSearcher { name: String },
    #[error(
        "anomaly {number}: its workload shows no {symptom} on {target} with this seed: give another --seed; if no seed shows it, the hunt was on another device or of another build, so hunt again"
    )]
    NotShown {
        number: u32,
        target: String,
        symptom: &'static str,
    },
    /// A run failed.
    #[error(transparent)]
    Testbed(#[from] isolane_study_testbed::TestbedError),
}

fn counter_note(nearest: &Option<String>, known: &[String]) -> String {
    match nearest {
        Some(name) => format!("; did you mean {name}?"),
        None => format!("; it has {}", known.join(", ")),
    }
}

/// Words less alike than this are not offered as what was meant (Jaro-Winkler similarity, 0 to 1).
const SIMILARITY_MIN: f64 = 0.7;

/// The member of `known` most like `word`.
pub(crate) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let alike = known.map(|name| (strsim::jaro_winkler(name, word), name));
    let best = alike.filter(|(likeness, _)| *likeness >= SIMILARITY_MIN);
    let best = best.max_by(|left, right| left.0.total_cmp(&right.0));
    best.map(|(_, name)| name.to_owned())
}

//! The audit: which attacker breaks which victim under which isolation policy, and why (husky 4.4).
//!
//! Every victim runs alone and under every attacker, under every policy, with several seeds. A cell's verdict
//! compares what the victim got with what it was owed; the counters of both NICs say which resource ran out.
//!
//! * [`select`] - victims and attackers of the catalogue by glob; [`tenants`] - those of a scenario;
//! * [`plan`] - the ordered list of runs; [`constants`] - what each has to wait for before it says anything,
//!   [`settled`] - a run that waits for it;
//! * [`run`] - runs it: in parallel, stoppable, resumable ([`journal`]); [`place`] - the directory it writes into;
//! * [`predicate`] - what a victim is owed;
//! * [`exhaustion`] - which resource ran out;
//! * [`figures`] - what a policy costs and what it leaves of the NIC;
//! * [`matrix`] - the result; [`cell`] - one pair of it;
//! * [`comparison`] - the policies side by side, as the answer to "which isolation should I buy or build?";
//! * [`stability`] - whether verdicts depend on times and seeds;
//! * [`table`], [`junit`] - the result for a terminal and for a test dashboard.
#![forbid(unsafe_code)]

mod assemble;
mod hash;
mod outcome;
mod seeds;
mod summary;
mod why;

pub mod cell;
pub mod comparison;
pub mod constants;
pub mod exhaustion;
pub mod figures;
pub mod journal;
pub mod junit;
pub mod matrix;
pub mod place;
pub mod plan;
pub mod predicate;
pub mod run;
pub mod select;
pub mod settled;
pub mod stability;
pub mod table;
pub mod tenants;

use std::path::PathBuf;

/// Why an audit could not run.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum AuditError {
    #[error("an audit needs at least one victim, one policy and one seed")]
    Empty,
    #[error("no {role} matches {pattern:?}{}; {}", nearest_note(.nearest), all_names(.tenants))]
    NoMatch {
        role: &'static str,
        pattern: String,
        nearest: Option<String>,
        /// The names that there are, where these are a scenario's tenants and not the catalogue's workloads.
        tenants: Option<Vec<String>>,
    },
    /// A scenario whose tenants cannot be audited.
    #[error("scenario {scenario}: {problem}")]
    Tenants {
        scenario: String,
        problem: &'static str,
    },
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot write {}: {source}; free space or choose another --report", .path.display())]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A journal of another version or build.
    #[error(
        "journal {} was written by isolane {found}, this is {ours}: run without --resume to start over, \
         or use another --report",
        .path.display()
    )]
    JournalVersion {
        path: PathBuf,
        found: String,
        ours: String,
    },
    #[error(
        "journal {} holds {runs} runs of another audit ({found}), none of which this one needs: resume with its \
         settings, use another --report, or start over with --force in place of --resume",
        .path.display()
    )]
    JournalOther {
        path: PathBuf,
        runs: usize,
        /// The command line that it was written for.
        found: String,
    },
    #[error(
        "{} holds an audit with other settings ({found}): choose another --report, or replace it with --force",
        .directory.display()
    )]
    OtherAudit {
        directory: PathBuf,
        /// The command line of the audit that it holds.
        found: String,
    },
    #[error("another audit is running in {}: wait for it, or choose another --report", .directory.display())]
    Busy { directory: PathBuf },
    #[error(
        "journal {} is damaged at line {line}: run without --resume to start over, or use another --report",
        .path.display()
    )]
    JournalDamaged { path: PathBuf, line: usize },
    #[error("cannot start {jobs} workers: {reason}; try a smaller --jobs")]
    Workers { jobs: usize, reason: String },
    #[error("the testbed reported no tenant for {scenario}")]
    NoTenant { scenario: String },
    #[error(transparent)]
    Testbed(#[from] isolane_study_testbed::TestbedError),
}

fn all_names(tenants: &Option<Vec<String>>) -> String {
    match tenants {
        Some(names) => format!("the scenario has {}", names.join(", ")),
        None => "`isolane catalog workloads` names them all, and --scenario FILE adds tenants of your own".to_owned(),
    }
}

fn nearest_note(nearest: &Option<String>) -> String {
    let note = nearest.as_ref().map(|name| format!(" (nearest: {name})"));
    note.unwrap_or_default()
}

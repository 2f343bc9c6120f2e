//! Histories of the quota server over a real etcd: real processes, sockets and clocks, with random faults.
//!
//! Problem: [`crate::vopr`] simulates the store; whether etcd, TCP and the kernel behave as simulated, only they can
//! show. Method: a run has one etcd, two places for quota servers, and five clients with the product's client code. All
//! connections go through links of the run. A seed chooses the faults and their times: servers and etcd are killed or
//! stopped for a time, links hold, delay or end connections in one direction or both, servers take over from each other,
//! clients end, clocks jump, and an operator changes terms. Then the faults end, a new server starts, and each tenant
//! must get its guarantee. What happened is recorded and checked afterwards ([`history`]). Limits: a seed fixes the
//! faults, not the order in which processes run; one member of etcd; clients share the clock of the run.

mod broken;
mod clients;
mod faults;
pub mod history;
mod links;
mod processes;
mod world;

#[cfg(test)]
mod late;

pub use processes::{Clocks, Etcd, print_wall, serve};

use history::History;
use std::path::Path;

/// What is wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Nothing.
    None,
    /// A server goes on when a write fails, and so also after another one took the store over.
    KeepsGranting,
    /// A server that starts does not read the leases.
    ForgetsLeases,
    /// A server acknowledges terms that it could not store.
    LosesTerms,
    /// A client uses its lease after the end.
    KeepsRate,
}

impl Defect {
    /// Every defect.
    pub const PLANTED: [Self; 4] = [
        Self::KeepsGranting,
        Self::ForgetsLeases,
        Self::LosesTerms,
        Self::KeepsRate,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::KeepsGranting => "keeps-granting",
            Self::ForgetsLeases => "forgets-leases",
            Self::LosesTerms => "loses-terms",
            Self::KeepsRate => "keeps-rate",
        }
    }

    /// The defect of this name.
    pub fn named(name: &str) -> Option<Self> {
        let all = [&[Self::None], &Self::PLANTED[..]].concat();
        all.into_iter().find(|defect| defect.name() == name)
    }
}

/// What a run has to work with.
#[derive(Debug)]
pub struct Place<'a> {
    /// The program whose role is a server: see [`serve`].
    pub program: &'a Path,
    /// The clocks that can be changed.
    pub clocks: Clocks,
}

crate::counts! {
    /// Servers that took the store over.
    starts,
    /// Kills of servers and of etcd.
    kills,
    /// Stops of servers and of etcd that ended again.
    stops,
    /// Faults of links.
    partitions,
    /// Jumps of the servers' wall clock.
    jumps,
    /// Uses of leases.
    leases,
    /// Acknowledged changes of terms.
    changes,
}

/// Why a run has no good end.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum RunError {
    #[error("seed {seed}: {what}")]
    Broken {
        seed: u64,
        what: String,
        /// What was recorded.
        history: Box<History>,
    },
    /// The machine prevents the run.
    #[error("the run cannot go on: {0}")]
    System(#[from] std::io::Error),
}

/// Runs one history by a seed.
pub fn run(
    seed: u64,
    defect: Defect,
    etcd: &mut Etcd,
    place: &Place<'_>,
) -> Result<Report, RunError> {
    let (history, report) = faults::play(seed, defect, etcd, place)?;
    match history.check() {
        Ok(()) => Ok(report),
        Err(what) => Err(RunError::Broken {
            seed,
            what,
            history: Box::new(history),
        }),
    }
}

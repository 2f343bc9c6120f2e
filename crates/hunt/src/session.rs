//! A hunt and its directory: where it begins, and how one goes on.

use crate::HuntError;
use crate::bench::Experiment;
use crate::bounds::Bounds;
use crate::experiment::{Lab, Measured, inventory};
use crate::state::{Header, Journal, Start};
use std::collections::BTreeMap;
use std::path::Path;

/// A hunt that is ready to search.
#[derive(Debug)]
pub struct Session {
    /// Where results go.
    pub journal: Journal,
    /// What the benchmarks gave.
    pub start: Start,
    /// Results of experiments that were done before.
    pub known: BTreeMap<Experiment, Measured>,
}

impl Session {
    /// Begins the hunt of `header` on `lab` in `directory`, or goes on with it where `resume` says so.
    ///
    /// # Errors
    /// Where the directory holds another hunt, or a benchmark fails.
    pub fn open(
        directory: &Path,
        header: &Header,
        resume: bool,
        lab: &Lab<'_>,
        seed: u64,
    ) -> Result<Self, HuntError> {
        let (mut journal, known) = match resume {
            true => Journal::resume(directory, header)?,
            false => (Journal::create(directory, header)?, Default::default()),
        };
        let start = match known.start {
            Some(start) => start,
            None => {
                let start = Start {
                    bounds: Bounds::measure(lab, lab.profile, seed)?,
                    counters: inventory(lab)?,
                };
                journal.begin(&start)?;
                start
            }
        };
        Ok(Self {
            journal,
            start,
            known: known.experiments,
        })
    }
}

//! A hunt and its directory: where it begins, and how one goes on.

use crate::HuntError;
use crate::bench::Experiment;
use crate::bounds::Bounds;
use crate::experiment::{Lab, Measured, inventory};
use crate::latency::Baseline;
use crate::space::Space;
use crate::state::{Header, Journal, Start};
use std::collections::BTreeMap;
use std::path::Path;

/// A hunt that is ready to search.
#[derive(Debug)]
pub struct Session {
    /// Where results go.
    pub journal: Journal,
    /// What was measured before the first experiment.
    pub start: Start,
    /// Results of experiments that were done before.
    pub known: BTreeMap<Experiment, Measured>,
}

impl Session {
    /// Begins the hunt of `header` in `directory` with the measurements of `first`, or resumes it with `resume`. Fails
    /// if the directory holds another hunt, or `first` fails.
    pub fn open(
        directory: &Path,
        header: &Header,
        resume: bool,
        first: impl FnOnce() -> Result<Start, HuntError>,
    ) -> Result<Self, HuntError> {
        let (mut journal, known) = match resume {
            true => Journal::resume(directory, header)?,
            false => (Journal::create(directory, header)?, Default::default()),
        };
        let start = match known.start {
            Some(start) => start,
            None => {
                let start = first()?;
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

/// What a hunt of `space` on a device alone measures first; its latencies only where they count. Fails if a benchmark fails.
pub fn device_start(
    lab: &Lab<'_>,
    space: &Space,
    seed: u64,
    latency: bool,
) -> Result<Start, HuntError> {
    let bounds = Bounds::measure(lab, lab.profile, space, seed)?;
    let latency = match latency {
        true => Some(Baseline::measure(lab, &bounds, seed)?),
        false => None,
    };
    Ok(Start {
        bounds: Some(bounds),
        latency,
        alone: None,
        counters: inventory(lab)?,
    })
}

//! Indicators: what is measured of tiers and applications, each number with its source and age.
//!
//! A [`Sensors`] puts together what its sources saw. A value that a source cannot give is absent, never zero: the policy
//! takes no action on what it does not know.
//!
//! * [`machine`] - all readings of a machine; [`files`], [`pmu`] and [`pressure`] - its parts; [`chase`] - the pointer chase;
//!   [`background`] - its thread;
//! * [`fake`] - one for tests: returns preset values.
//!
//! Units: bytes, bytes per second, picoseconds, thousandths of a core. Source: Mercury 5.4.1, 5.5.4.

pub mod background;
pub mod chase;
pub mod fake;
pub mod files;
pub mod machine;
pub mod pmu;
pub mod pressure;

use crate::cgroup::Cgroup;
use crate::error::MemError;
use isolane_common_quantities::units::{Bytes, Duration, Instant};
use isolane_memory_policy::mercury::{AppId, Observation, Source, TIERS_MAX};
use pressure::Pressure;
use serde::Serialize;
use std::collections::BTreeMap;

/// What one source can measure here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct SourceInfo {
    /// Its name: `resctrl`, `perf`, `vmstat`, `numa_stat`, `cpu.stat`, `memory.pressure`, `probe`.
    pub name: &'static str,
    /// What it measures, in words with units.
    pub measures: &'static str,
    /// Whether it works here.
    pub works: bool,
    /// What was seen, or why it does not work.
    pub seen: String,
    /// What to do about it; none where nothing is to be done.
    pub remedy: Option<String>,
}

/// The name of a source, as people see it beside a number.
pub const fn source_name(source: Source) -> &'static str {
    match source {
        Source::Model => "model",
        Source::Resctrl => "resctrl",
        Source::Pmu => "perf",
        Source::Kernel => "kernel",
        Source::Probe => "probe",
        Source::Application => "application",
    }
}

/// Measures tiers and applications.
pub trait Sensors: Send {
    /// Begins to measure an application. Fails for a control group that is gone. A source that fails is no error:
    /// [`Sensors::sources`] reports it.
    fn adopt(&mut self, app: AppId, cgroup: &Cgroup) -> Result<(), MemError>;

    /// Stops measuring an application; unknown ones are ignored.
    fn release(&mut self, app: AppId);

    /// What can be seen now. Takes less than 10 ms; slower sources work beside and are read here.
    fn observe(&mut self, now: Instant) -> Observation;

    /// What a control group holds in each tier, read at once: for one that was not adopted, or just now. None where
    /// that is not known.
    fn held(&self, _cgroup: &Cgroup) -> Option<[Bytes; TIERS_MAX]> {
        None
    }

    /// The memory pressure of each application where the kernel counts it, as old as [`Sensors::age`].
    fn pressures(&self) -> BTreeMap<AppId, Pressure>;

    /// How old what [`Sensors::observe`] returns now would be, pages and memory in use included.
    fn age(&self) -> Duration {
        Duration::ZERO
    }

    /// What each source can measure here.
    fn sources(&self) -> Vec<SourceInfo>;
}

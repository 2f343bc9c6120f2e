//! Mercury: keeps objectives of applications that share tiered memory, in order of priority.
//!
//! Problem: the kernel moves hot pages near and cold pages far, for any owner. So an unimportant application with hot
//! pages takes the near memory of an important one, and an application that streams slows those on its own tier and,
//! through request slots that both tiers share, those on the other one (mercury 5.2, 5.3).
//!
//! Method: a policy sees what a host can measure ([`Observation`]) and answers with [`Action`]s: how many bytes of each
//! memory tier an application may hold, and how much processor time it gets. It never measures and never migrates.
//!
//! Driving one: [`MemoryPolicy::arrive`] and [`MemoryPolicy::depart`] when applications come and go,
//! [`MemoryPolicy::step`] once per [`PERIOD`]; after each, take [`MemoryPolicy::poll_action`] until there are none.
//!
//! Units: bytes; bytes per second; picoseconds ([`Duration`]); processor time in thousandths of the application's
//! request. A larger priority is more important; priorities are unique. Limits: at most [`TIERS_MAX`] tiers, tier 0
//! being the nearest. Source: Mercury 5.5, algorithm 4, figure 5.8. Ours: several far tiers, weights, what-if
//! questions.

mod adapt;
mod admission;
mod controller;
mod estimate;
mod fixed;
mod fleet;
mod options;
#[cfg(test)]
mod plant;
#[cfg(test)]
mod properties;
mod sharing;
mod spare;
mod squeeze;
mod state;
#[cfg(test)]
mod tests;
mod tiers;
#[cfg(test)]
mod unreached;

pub use admission::{Plan, Yield};
pub use controller::Mercury;
pub use fixed::{Fcfs, Fixed};
pub use fleet::{Suitability, suitability};
pub use options::{MercuryOptions, Sharing};
pub use sharing::{Want, water_fill};

use isolane_common_quantities::units::{Bytes, Duration, Instant};
use std::fmt;

/// Most tiers of one machine.
pub const TIERS_MAX: usize = 4;

/// Time between two steps (mercury 5.5.4).
pub const PERIOD: Duration = Duration::from_ms(200);

/// Processor time without a limit, in thousandths.
pub const CPU_ONE: u32 = 1000;

/// An application under control. Identifiers are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppId(pub u32);

/// The objective of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// Latency-sensitive (LS): a mean latency of its memory accesses, at most.
    Latency(Duration),
    /// Bandwidth-intensive (BI): memory bandwidth in bytes per second, at least while the application requests that
    /// much.
    Bandwidth(u64),
    /// No objective: gets memory that no other application needs.
    BestEffort,
}

/// What an application says of itself, and what profiling it alone has found (mercury 5.4.2, 5.5.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppSpec {
    /// Its identifier.
    pub id: AppId,
    /// Its name, for reasons and messages.
    pub name: String,
    /// Its objective.
    pub objective: Objective,
    /// Larger is more important; unique on a machine.
    pub priority: u32,
    /// Shares what is left among applications without need of strictness; 1000 is ordinary.
    pub weight: u32,
    /// The memory it uses at most, over all tiers.
    pub footprint: Bytes,
    /// What profiling found; `None` if it was not profiled, and then it is admitted on trial with its footprint.
    pub profile: Option<Profile>,
    /// Upper limits set by hand: bytes of each tier it may never exceed.
    pub caps: TierLimits,
    /// Tiers its far pages may use, nearest first; empty means any.
    pub far_tiers: Vec<u8>,
}

impl AppSpec {
    /// An application with ordinary weight, without profile and limits, and without a name.
    pub fn new(id: AppId, objective: Objective, priority: u32, footprint: Bytes) -> Self {
        Self {
            id,
            name: String::new(),
            objective,
            priority,
            weight: 1_000,
            footprint,
            profile: None,
            caps: [None; TIERS_MAX],
            far_tiers: Vec::new(),
        }
    }
}

/// What an application needs when it runs alone (mercury 5.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Whether the objective can be met at all here.
    pub admissible: bool,
    /// Near memory that just meets the objective.
    pub local: Bytes,
    /// Processor time that just meets it, in thousandths.
    pub cpu: u32,
    /// Bandwidth at that point, in bytes per second.
    pub bandwidth: u64,
    /// Bandwidth or latency at its best, without any limit: for messages.
    pub best: Objective,
}

/// The most bytes of each tier; `None` is no limit.
pub type TierLimits = [Option<Bytes>; TIERS_MAX];

/// What an application may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of each tier.
    pub tiers: TierLimits,
    /// Processor time, in thousandths of its cores.
    pub cpu: u32,
}

impl Limits {
    /// Everything.
    pub const NONE: Self = Self {
        tiers: [None; TIERS_MAX],
        cpu: CPU_ONE,
    };
}

/// The source of a reading; every output shows it beside the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The model knows.
    Model,
    /// Resource-control counters of the processor (resctrl).
    Resctrl,
    /// Sampled memory accesses (IBS, PEBS).
    Pmu,
    /// Counters of the kernel (`vmstat`, `memory.numa_stat`).
    Kernel,
    /// A pointer chase beside the application: measures the load of the tier, not of the application.
    Probe,
    /// The application's own report.
    Application,
}

/// A measured value, its age and its source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading<T> {
    /// The value.
    pub value: T,
    /// Since it was measured.
    pub age: Duration,
    /// By what.
    pub source: Source,
}

/// Oldest reading that may lead to an action: two periods.
pub const STALE: Duration = Duration::from_ms(400);

impl<T: Copy> Reading<T> {
    /// The value if it is fresh enough to act upon.
    pub fn fresh(&self) -> Option<T> {
        (self.age <= STALE).then_some(self.value)
    }
}

/// What can be seen of one tier.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TierView {
    /// Memory that applications may use.
    pub capacity: Bytes,
    /// Memory in use, by any process.
    pub used: Bytes,
    /// Bandwidth in bytes per second.
    pub bandwidth: Option<Reading<u64>>,
}

/// What can be seen of one application.
#[derive(Clone, Debug, PartialEq)]
pub struct AppView {
    /// Which.
    pub id: AppId,
    /// Bytes it holds in each tier.
    pub held: [Bytes; TIERS_MAX],
    /// Mean latency of its accesses.
    pub latency: Option<Reading<Duration>>,
    /// Its bandwidth in bytes per second.
    pub bandwidth: Option<Reading<u64>>,
    /// Processor time it used, in thousandths of its cores.
    pub cpu_used: Option<Reading<u32>>,
}

/// What a host can see at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// The tiers, nearest first.
    pub tiers: Vec<TierView>,
    /// Remote hint faults per second (mercury 5.5.2).
    pub hint_faults_per_s: Option<Reading<f64>>,
    /// The applications, in order of their identifiers.
    pub apps: Vec<AppView>,
}

/// Thresholds of one machine (mercury 5.5.2): where other applications begin to suffer by a tenth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// Healthy bandwidth of the near tier, in bytes per second.
    pub local_bandwidth: u64,
    /// Healthy rate of remote hint faults, per second.
    pub hint_faults_per_s: f64,
}

/// Why limits change; shown to people as "why it changed last".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It was admitted.
    Admitted,
    /// It left; limits are lifted.
    Departed,
    /// It gives memory to a more important application.
    YieldsMemory(AppId),
    /// It gives bandwidth to a more important application.
    YieldsBandwidth(AppId),
    /// It has more than its objective needs.
    Surplus,
    /// It has less than its objective needs.
    Shortage,
    /// Too many accesses go far.
    InterTier,
    /// The application gets its share of unneeded memory.
    Leftover,
    /// Its limits are fixed by hand.
    Fixed,
}

impl Reason {
    /// For people; `name` gives an application's name.
    pub fn text(self, name: impl Fn(AppId) -> String) -> String {
        match self {
            Self::Admitted => "admitted".to_owned(),
            Self::Departed => "left".to_owned(),
            Self::YieldsMemory(to) => format!("gives memory to {}", name(to)),
            Self::YieldsBandwidth(to) => format!("gives bandwidth to {}", name(to)),
            Self::Surplus => "has more than its objective needs".to_owned(),
            Self::Shortage => "has less than its objective needs".to_owned(),
            Self::InterTier => "too many accesses go far".to_owned(),
            Self::Leftover => "gets unneeded memory".to_owned(),
            Self::Fixed => "set by hand".to_owned(),
        }
    }
}

/// Change an application's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// Whose.
    pub app: AppId,
    /// The new limits, whole.
    pub limits: Limits,
    /// Why.
    pub reason: Reason,
}

/// Whether an application may run.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It may; the objective is expected to hold.
    Admitted,
    /// It may, with less than its objective needs, because more important ones hold the rest: what is short.
    BestEffort(Shortfall),
    /// It may not: why.
    Refused(Refusal),
}

/// What a best-effort application lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shortfall {
    /// Near memory.
    pub local: Bytes,
    /// Bandwidth in bytes per second.
    pub bandwidth: u64,
}

/// Why an application may not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The objective cannot be met on this machine, not even alone; its best.
    Inadmissible(Objective),
    /// Another application has this priority.
    DuplicatePriority(AppId),
    /// This application is here already.
    Duplicate,
    /// It needs more memory than all tiers have.
    TooLarge {
        /// What it needs.
        footprint: Bytes,
        /// What there is.
        capacity: Bytes,
    },
    /// What is left does not suffice, and this policy takes nothing back: what is short.
    Exhausted(Shortfall),
}

impl fmt::Display for AppId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "application {}", self.0)
    }
}

/// A policy of tiered memory. One instance serves one machine.
pub trait MemoryPolicy {
    /// An application asks to run.
    fn arrive(&mut self, now: Instant, spec: AppSpec, seen: &Observation) -> Verdict;

    /// An application has gone. Unknown ones are ignored.
    fn depart(&mut self, now: Instant, app: AppId);

    /// A period has passed.
    fn step(&mut self, now: Instant, seen: &Observation);

    /// The next change to perform.
    fn poll_action(&mut self) -> Option<Action>;

    /// The limits in force for an application.
    fn limits(&self, app: AppId) -> Option<Limits>;

    /// Who would yield what if this application came now; changes nothing. None where the policy takes nothing back.
    fn yields(&self, _spec: &AppSpec, _seen: &Observation) -> Vec<Yield> {
        Vec::new()
    }
}

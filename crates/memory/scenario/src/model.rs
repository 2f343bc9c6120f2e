//! The checked scenario of applications on one machine with tiered memory.
//!
//! A value is valid by construction of the parser. Units: the types say them; shares are 0 to 1.
//! Source: Mercury 5.2 to 5.6 (what the experiments vary).

use isolane_common_quantities::units::{Bytes, Duration};
use isolane_memory_policy::mercury::{CPU_ONE, Objective};

/// One experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct MemScenario {
    /// Name, for reports.
    pub name: String,
    /// The machine's profile, by name.
    pub machine: String,
    /// Memory of each tier, where the scenario gives another than the machine has.
    pub capacity: Vec<Option<Bytes>>,
    /// Who moves pages and sets limits.
    pub policy: MemPolicyName,
    /// Applications, in the order of the file.
    pub apps: Vec<MemApp>,
    /// Time before measuring.
    pub warmup: Duration,
    /// Time measured.
    pub duration: Duration,
    /// Time between two points of the series; `None` for no series.
    pub sample_interval: Option<Duration>,
    /// Run seed.
    pub seed: u64,
}

/// Who moves pages and sets limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemPolicyName {
    /// No policy: pages stay where they were first touched.
    None,
    /// The kernel: hot pages near, cold pages far, for any owner.
    Tpp,
    /// The kernel below limits that Mercury sets.
    Mercury,
    /// The kernel below limits that the scenario gives.
    Static,
    /// The kernel below limits by profile, first come, first served.
    Fcfs,
    /// As [`Self::Mercury`], but no application is reduced below its share by weight.
    Weighted,
    /// Memtis: the pages near that are sampled most often, for any owner.
    Memtis,
    /// Colloid above Memtis: hot pages where near and far memory have equal latencies.
    Colloid,
}

/// The names of [`MemPolicyName`], in its order.
pub const MEM_POLICIES: [&str; 8] = [
    "none", "tpp", "mercury", "static", "fcfs", "weighted", "memtis", "colloid",
];

/// What each of [`MEM_POLICIES`] does.
pub const MEM_POLICIES_ABOUT: [&str; 8] = [
    "no policy: pages stay where they were first touched",
    "the kernel: hot pages near, cold pages far, for any owner",
    "limits by objectives and strict priorities: admission, then adaptation every 200 ms",
    "limits by hand: local_limit and cpu_limit of each application",
    "limits by profile, first come, first served: an application that finds no room is rejected",
    "as mercury, but no application is reduced below its share of near memory by weight",
    "Memtis (SOSP 2023): the pages near that are sampled most often, as many as fit, for any owner",
    "Colloid (SOSP 2024) above memtis: hot pages are divided so that near and far memory have equal latencies",
];

impl MemPolicyName {
    /// As written.
    pub fn name(self) -> &'static str {
        MEM_POLICIES[self as usize]
    }

    /// The policy called `name`.
    pub fn named(name: &str) -> Option<Self> {
        let all = [
            Self::None,
            Self::Tpp,
            Self::Mercury,
            Self::Static,
            Self::Fcfs,
            Self::Weighted,
            Self::Memtis,
            Self::Colloid,
        ];
        all.into_iter().find(|policy| policy.name() == name)
    }

    /// Whether limits are in force under it.
    pub fn has_limits(self) -> bool {
        !matches!(self, Self::None | Self::Tpp | Self::Memtis | Self::Colloid)
    }
}

impl MemScenario {
    /// What of the scenario has no effect under its policy, a sentence each with the remedy.
    pub fn idle_limits(&self) -> Vec<String> {
        let policy = self.policy.name();
        let by_hand = |app: &&MemApp| app.local_limit.is_some() || app.cpu_limit != CPU_ONE;
        if self.policy == MemPolicyName::Static {
            return match self.apps.iter().find(by_hand) {
                Some(_) => Vec::new(),
                None => vec![format!(
                    "policy {policy}: no application has a local_limit or cpu_limit, so that nothing differs from tpp; give \
                     at least one a limit"
                )],
            };
        }
        let mut remarks = Vec::new();
        for app in &self.apps {
            let name = &app.name;
            if app.local_limit.is_some() && !self.policy.has_limits() {
                remarks.push(format!(
                    "local_limit of application {name:?} has no effect under {policy}, which sets no limits; drop it, or \
                     choose static, mercury, weighted or fcfs"
                ));
            }
            if app.cpu_limit != CPU_ONE {
                remarks.push(format!(
                    "cpu_limit of application {name:?} has no effect under {policy}; drop it, or choose static"
                ));
            }
        }
        remarks
    }
}

/// An application.
#[derive(Clone, Debug, PartialEq)]
pub struct MemApp {
    /// Unique in its scenario.
    pub name: String,
    /// The model of its accesses, by name.
    pub kind: String,
    /// Processor cores it runs on.
    pub cores: u32,
    /// Its objective.
    pub objective: Objective,
    /// Larger is more important; unique in its scenario.
    pub priority: u32,
    /// Shares what is left; 1000 is ordinary.
    pub weight: u32,
    /// Memory it uses at most, over its life.
    pub footprint: Bytes,
    /// What it does when it starts.
    pub initial: Load,
    /// How that changes, in order of time.
    pub changes: Vec<Change>,
    /// The tiers of its pages.
    pub placement: Placement,
    /// Set by hand: most bytes of the near tier, under every policy that sets limits.
    pub local_limit: Option<Bytes>,
    /// Under `static`: processor time, in thousandths.
    pub cpu_limit: u32,
    /// When it starts.
    pub start: Duration,
    /// When it ends; `None` never.
    pub stop: Option<Duration>,
}

/// How much an application does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Memory in use.
    pub working_set: Bytes,
    /// Share of its cores that have work.
    pub activity: f64,
}

/// Another load, reached in a straight line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// When it begins.
    pub at: Duration,
    /// When it is reached; `at` for a step.
    pub until: Duration,
    /// The load then.
    pub to: Load,
}

/// The tiers of pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Placement {
    /// Where the kernel and the policy put them.
    Managed,
    /// Interleaved over the first two tiers and kept there: the far tier's share.
    Interleaved(f64),
}

impl MemApp {
    /// Its load at `now`, counted from the start of the run.
    pub fn load(&self, now: Duration) -> Load {
        let mut load = self.initial;
        for change in self.changes.iter().take_while(|change| change.at <= now) {
            let length = change.until.saturating_sub(change.at);
            let passed = now.saturating_sub(change.at);
            let part = match length.is_zero() || passed >= length {
                true => 1.0,
                false => passed.as_secs_f64() / length.as_secs_f64(),
            };
            let between = |from: f64, to: f64| from + (to - from) * part;
            let bytes = between(
                load.working_set.get() as f64,
                change.to.working_set.get() as f64,
            );
            load = Load {
                working_set: Bytes::new(bytes.round() as u64),
                activity: between(load.activity, change.to.activity),
            };
        }
        load
    }

    /// Whether it runs at `now`.
    pub fn is_running(&self, now: Duration) -> bool {
        self.start <= now && self.stop.is_none_or(|stop| now < stop)
    }
}

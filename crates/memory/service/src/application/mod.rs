//! An application as people and programs name it: what it is, its objective, what it may hold.
//!
//! Problem: the same application comes as options of a command, as a file, as annotations of a pod and over a socket.
//! Method: all of them make one [`Application`], which defines its form on the socket and in the journal.
//! [`Application::check`] applies the same rules to all of them. [`Application::spec`] is the policy's view. Units:
//! picoseconds, bytes, bytes per second, millionths of the application's memory; names end in them. Limits: a
//! percentage is one of the application's own memory, so it needs that to be known. Source: mercury 5.4.2 (what a user
//! submits); fractions and explicit far tiers are ours.

pub mod amounts;
mod file;
pub mod pod;

pub use file::parse;

use amounts::Amount;
use isolane_common_quantities::units::{Bytes, Duration};
use isolane_memory_policy::mercury;
use isolane_memory_policy::mercury::{AppId, AppSpec, CPU_ONE, TIERS_MAX};
use serde::{Deserialize, Serialize};

/// Longest name, in bytes: it names a cgroup too.
pub const NAME_MAX: usize = 64;
/// Highest priority.
pub const PRIORITY_MAX: u32 = 1_000_000;
/// Largest weight.
pub const WEIGHT_MAX: u32 = 10_000;
/// An ordinary weight.
pub const WEIGHT: u32 = 1_000;
/// Least latency that an objective may have: no memory answers faster than a cache.
pub const LATENCY_MIN: Duration = Duration::from_ns(1);
/// Greatest latency that an objective may have.
pub const LATENCY_MAX: Duration = Duration::from_ms(1);
/// Least bandwidth that an objective may have, bytes per second.
pub const BANDWIDTH_MIN: u64 = 1_000_000;
/// Greatest bandwidth that an objective may have, bytes per second.
pub const BANDWIDTH_MAX: u64 = 100_000_000_000_000;
/// Least memory of an application.
pub const MEMORY_MIN: u64 = 1 << 20;
/// Most memory of an application.
pub const MEMORY_MAX: u64 = 1 << 50;

/// An application, from any source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Application {
    /// Unique name on a machine; letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// Its objective. Journals of form 1 call it `promise`.
    #[serde(alias = "promise")]
    pub slo: Slo,
    /// Larger is more important; unique on a machine.
    pub priority: u32,
    /// Its part of what is shared without strictness; 1000 is ordinary.
    #[serde(default = "ordinary")]
    pub weight: u32,
    /// The memory that it uses at most, over all tiers; absent: found out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// What it may hold of tiers, set by hand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caps: Vec<Cap>,
    /// Tiers that its far pages may use, nearest first; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub far_tiers: Vec<u8>,
    /// Memory that the kernel leaves to it.
    #[serde(default, skip_serializing_if = "Floors::is_none")]
    pub floors: Floors,
    /// What profiling found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
}

/// Memory that the kernel leaves to an application, over all tiers; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Floors {
    /// While memory without a floor can be freed (`memory.low`).
    #[serde(default)]
    pub low_bytes: u64,
    /// Always, even if a program is killed for it (`memory.min`).
    #[serde(default)]
    pub min_bytes: u64,
}

impl Floors {
    /// Whether there is no floor.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// The objective of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Slo {
    /// A mean latency of memory accesses, at most (`ls`).
    LatencyPs(u64),
    /// Memory bandwidth, at least, while the application requests that much (`bi`).
    BandwidthBytesPerS(u64),
    /// No objective: it gets memory that no other application needs.
    BestEffort,
}

/// The most of one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cap {
    /// The number of the tier; 0 is the nearest.
    pub tier: u8,
    /// How much.
    pub most: Amount,
}

/// What profiling the application alone has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Whether the objective can be kept at all.
    pub admissible: bool,
    /// Near memory that just keeps it.
    pub local_bytes: u64,
    /// Processor time that just keeps it, thousandths of its cores.
    pub cpu_per_mille: u32,
    /// Bandwidth at that point.
    pub bandwidth_bytes_per_s: u64,
    /// The best that was measured without limits.
    pub best: Slo,
}

/// Why a description is no application.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} = {value}: {expected}")]
pub struct ApplicationError {
    /// Which part.
    pub key: &'static str,
    /// The value.
    pub value: String,
    /// What is allowed.
    pub expected: String,
}

impl ApplicationError {
    pub(crate) fn new(
        key: &'static str,
        value: impl ToString,
        expected: impl Into<String>,
    ) -> Self {
        Self {
            key,
            value: value.to_string(),
            expected: expected.into(),
        }
    }
}

fn ordinary() -> u32 {
    WEIGHT
}

impl Slo {
    /// The type's short name: `ls`, `bi` or `best-effort`.
    pub fn kind(self) -> &'static str {
        match self {
            Self::LatencyPs(_) => "ls",
            Self::BandwidthBytesPerS(_) => "bi",
            Self::BestEffort => "best-effort",
        }
    }

    /// As policies know it.
    pub fn objective(self) -> mercury::Objective {
        match self {
            Self::LatencyPs(ps) => mercury::Objective::Latency(Duration::from_ps(ps)),
            Self::BandwidthBytesPerS(rate) => mercury::Objective::Bandwidth(rate),
            Self::BestEffort => mercury::Objective::BestEffort,
        }
    }

    /// From what policies know.
    pub fn of(objective: mercury::Objective) -> Self {
        match objective {
            mercury::Objective::Latency(latency) => Self::LatencyPs(latency.as_ps()),
            mercury::Objective::Bandwidth(rate) => Self::BandwidthBytesPerS(rate),
            mercury::Objective::BestEffort => Self::BestEffort,
        }
    }

    fn check(self, key: &'static str) -> Result<(), ApplicationError> {
        match self {
            Self::LatencyPs(ps) if !(LATENCY_MIN.as_ps()..=LATENCY_MAX.as_ps()).contains(&ps) => {
                let expected = format!("must be {LATENCY_MIN} to {LATENCY_MAX}");
                Err(ApplicationError::new(
                    key,
                    amounts::latency_text(ps),
                    expected,
                ))
            }
            Self::BandwidthBytesPerS(rate) if !(BANDWIDTH_MIN..=BANDWIDTH_MAX).contains(&rate) => {
                Err(ApplicationError::new(
                    key,
                    amounts::bandwidth_text(rate),
                    "must be 1MB/s to 100000GB/s",
                ))
            }
            _ => Ok(()),
        }
    }
}

impl Profile {
    /// As policies know it.
    pub fn of_policy(self) -> mercury::Profile {
        mercury::Profile {
            admissible: self.admissible,
            local: Bytes::new(self.local_bytes),
            cpu: self.cpu_per_mille,
            bandwidth: self.bandwidth_bytes_per_s,
            best: self.best.objective(),
        }
    }

    /// From what profiling found.
    pub fn of(profile: &mercury::Profile) -> Self {
        Self {
            admissible: profile.admissible,
            local_bytes: profile.local.get(),
            cpu_per_mille: profile.cpu,
            bandwidth_bytes_per_s: profile.bandwidth,
            best: Slo::of(profile.best),
        }
    }
}

impl Application {
    /// Holds the description to the rules. The error is the first part that breaks one, with what is allowed.
    pub fn check(&self) -> Result<(), ApplicationError> {
        check_name(&self.name)?;
        self.slo.check("slo")?;
        if self.priority > PRIORITY_MAX {
            let expected = format!("must be 0 to {PRIORITY_MAX}; larger is more important");
            return Err(ApplicationError::new("priority", self.priority, expected));
        }
        if !(1..=WEIGHT_MAX).contains(&self.weight) {
            let expected = format!("must be 1 to {WEIGHT_MAX}; {WEIGHT} is ordinary");
            return Err(ApplicationError::new("weight", self.weight, expected));
        }
        if let Some(memory) = self.memory_bytes
            && !(MEMORY_MIN..=MEMORY_MAX).contains(&memory)
        {
            let expected = "must be 1 MiB to 1 PiB";
            return Err(ApplicationError::new("memory", memory, expected));
        }
        self.check_floors()?;
        self.check_tiers()?;
        match &self.profile {
            Some(profile) if profile.cpu_per_mille > CPU_ONE => Err(ApplicationError::new(
                "measured.cpu",
                format!("{}/1000", profile.cpu_per_mille),
                "must be at most 100 %",
            )),
            Some(profile) if profile.local_bytes > MEMORY_MAX => Err(ApplicationError::new(
                "measured.local",
                profile.local_bytes,
                "must be at most 1 PiB",
            )),
            _ => Ok(()),
        }
    }

    fn check_floors(&self) -> Result<(), ApplicationError> {
        let most = self.memory_bytes.unwrap_or(MEMORY_MAX);
        let floors = [
            ("memory-low", self.floors.low_bytes),
            ("memory-min", self.floors.min_bytes),
        ];
        match floors.into_iter().find(|(_, bytes)| *bytes > most) {
            None => Ok(()),
            Some((key, bytes)) => {
                let expected = format!(
                    "must be at most the application's memory, {}",
                    amounts::size_text(most)
                );
                Err(ApplicationError::new(
                    key,
                    amounts::size_text(bytes),
                    expected,
                ))
            }
        }
    }

    fn check_tiers(&self) -> Result<(), ApplicationError> {
        let last = TIERS_MAX - 1;
        for (index, cap) in self.caps.iter().enumerate() {
            if usize::from(cap.tier) > last {
                let expected = format!("tiers are 0 (the nearest) to {last}");
                return Err(ApplicationError::new("caps", cap.tier, expected));
            }
            if self.caps[..index]
                .iter()
                .any(|other| other.tier == cap.tier)
            {
                let expected = "one limit for each tier: leave one out";
                return Err(ApplicationError::new("caps", cap.tier, expected));
            }
            match cap.most {
                Amount::Millionths(share) if share > amounts::WHOLE => {
                    let expected = "must be at most 100%";
                    return Err(ApplicationError::new("caps", cap.most.text(), expected));
                }
                Amount::Millionths(_) if self.memory_bytes.is_none() => {
                    let expected = "a percentage is one of the application's memory: say how much that is (memory)";
                    return Err(ApplicationError::new("caps", cap.most.text(), expected));
                }
                _ => {}
            }
        }
        for (index, &tier) in self.far_tiers.iter().enumerate() {
            if tier == 0 || usize::from(tier) > last {
                let expected = format!("far tiers are 1 to {last}");
                return Err(ApplicationError::new("far_tiers", tier, expected));
            }
            if self.far_tiers[..index].contains(&tier) {
                let expected = "is named twice";
                return Err(ApplicationError::new("far_tiers", tier, expected));
            }
        }
        Ok(())
    }

    /// The policy's view of the application; `memory` is the default where the application has no size.
    pub fn spec(&self, id: AppId, memory: Bytes) -> AppSpec {
        let footprint = self.memory_bytes.map_or(memory, Bytes::new);
        let mut caps = [None; TIERS_MAX];
        for cap in &self.caps {
            caps[usize::from(cap.tier)] = Some(cap.most.of(footprint));
        }
        AppSpec {
            id,
            name: self.name.clone(),
            objective: self.slo.objective(),
            priority: self.priority,
            weight: self.weight,
            footprint,
            profile: self.profile.map(Profile::of_policy),
            caps,
            far_tiers: self.far_tiers.clone(),
        }
    }
}

/// Whether `name` can name an application: it becomes a directory's name too. The error says what is allowed.
pub fn check_name(name: &str) -> Result<(), ApplicationError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let is_good = !name.is_empty()
        && name.len() <= NAME_MAX
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(plain);
    match is_good {
        true => Ok(()),
        false => Err(ApplicationError::new(
            "name",
            format!("{name:?}"),
            format!(
                "must be 1 to {NAME_MAX} letters, digits, '.', '_' or '-', beginning with a letter or digit"
            ),
        )),
    }
}

#[cfg(test)]
pub(crate) mod tests;

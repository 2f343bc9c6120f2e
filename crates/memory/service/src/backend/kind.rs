//! The names of the mechanisms that keep tier limits, best first.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A mechanism that can keep tier limits.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum BackendKind {
    /// `memory.per_numa_high` of the patched kernel.
    PerNumaHigh,
    /// DAMON schemes that tune themselves to a share of a node for one control group (7.2).
    DamosGoal,
    /// DAMON schemes whose quota we set from what is held (6.11).
    DamosQuota,
    /// `memory.reclaim` on a machine that demotes (5.19).
    Reclaim,
    /// `move_pages` on the processes of the control group.
    MovePages,
    /// `cpuset.mems`: all near or all far.
    Cpuset,
    /// No mechanism: for tests.
    Fake,
}

impl BackendKind {
    /// Best first; the fake one is never chosen. Reclaim comes before quotas of our own: it kept limits twelve times as fast
    /// in the lab, and needs no kernel thread that others may want.
    pub const PREFERENCE: [Self; 6] = [
        Self::PerNumaHigh,
        Self::DamosGoal,
        Self::Reclaim,
        Self::DamosQuota,
        Self::MovePages,
        Self::Cpuset,
    ];

    /// Its name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PerNumaHigh => "per_numa_high",
            Self::DamosGoal => "damos_goal",
            Self::DamosQuota => "damos_quota",
            Self::Reclaim => "reclaim",
            Self::MovePages => "move_pages",
            Self::Cpuset => "cpuset",
            Self::Fake => "fake",
        }
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for BackendKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::PREFERENCE.into_iter().chain([Self::Fake]);
        known
            .clone()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| {
                let names: Vec<&str> = known.map(Self::name).collect();
                format!(
                    "no backend is named `{text}`; there are: {}",
                    names.join(", ")
                )
            })
    }
}

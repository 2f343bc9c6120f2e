//! The settings of classes: names, marks, objectives, and the mode.
//!
//! Units: durations in picoseconds (checked types), sizes in bytes, marks are DSCP values, 0 to 63. Method: [`parse()`]
//! makes checked values of a TOML text; later code never checks again. Limits: 2 to 8 classes; the last one is the
//! lowest and has no objective.

mod parse;
pub(crate) mod read;

pub use parse::parse;

use crate::quota::line::Address;
use isolane_common_quantities::units::Duration;
use isolane_rpc_policy::aequitas::{AequitasOptions, Probability};

/// Whether decisions are applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Calls that are not admitted run in the lowest class.
    #[default]
    Enforce = 0,
    /// All calls run in the requested class; downgrades are only counted.
    Shadow = 1,
    /// No decisions and no learning; calls are counted and measured.
    Off = 2,
}

impl Mode {
    /// The name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Off => "off",
        }
    }
}

/// How calls are admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// The paper's algorithm 2: an admit probability for each destination and class.
    #[default]
    Aequitas,
    /// Aequitas 2: a level for each host and class ([`isolane_rpc_policy::aequitas2`]).
    Aequitas2,
}

/// One class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassSettings {
    /// Name in applications and metrics.
    pub name: String,
    /// DSCP of its packets.
    pub dscp: u8,
    /// Parameters of its control; `None` for the lowest class.
    pub options: Option<AequitasOptions>,
    /// Relative change of the level by one congestion, for [`Algorithm::Aequitas2`].
    pub cut: Probability,
}

/// Destinations that share a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    /// Name at the quota server.
    pub name: String,
    /// Patterns of its destinations' names: `*`, `?`, separated by commas.
    pub destinations: String,
}

/// The quota server and the client's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaSettings {
    /// Address of the server.
    pub server: Address,
    /// File of the server's key.
    pub key_file: Option<std::path::PathBuf>,
    /// Tenant that this process sends for.
    pub tenant: String,
}

/// Everything.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Whether decisions are applied.
    pub mode: Mode,
    /// How calls are admitted.
    pub algorithm: Algorithm,
    /// Payload of one packet, bytes; sizes are counted in packets.
    pub mtu_bytes: u32,
    /// How long a destination without calls keeps its state and its place.
    pub idle_after: Duration,
    /// Largest number of destinations with their own place.
    pub destinations_max: usize,
    /// Largest number of destinations with their own metrics.
    pub metrics_destinations: usize,
    /// Classes from the highest to the lowest.
    pub classes: Vec<ClassSettings>,
    /// Groups of destinations with quotas; the first matching group counts.
    pub groups: Vec<GroupSettings>,
    /// The quota server, if one is used.
    pub quota: Option<QuotaSettings>,
}

impl Settings {
    /// Parameters of class `class`; `None` for the lowest one.
    pub fn options(&self, class: usize) -> Option<AequitasOptions> {
        let options = self.classes.get(class)?.options?;
        Some(AequitasOptions {
            idle_after: self.idle_after,
            ..options
        })
    }

    /// The class of that name.
    pub fn class(&self, name: &str) -> Option<u8> {
        let found = self.classes.iter().position(|class| class.name == name);
        found.map(|class| class as u8)
    }

    /// The keys of `next` that cannot change while calls run; empty if all can.
    pub fn needs_restart(&self, next: &Self) -> Vec<&'static str> {
        let marks = |settings: &Self| -> Vec<(String, u8)> {
            let classes = settings.classes.iter();
            classes
                .map(|class| (class.name.clone(), class.dscp))
                .collect()
        };
        let mut keys = Vec::new();
        if marks(self) != marks(next) {
            keys.push("class (number, name, dscp)");
        }
        if self.algorithm != next.algorithm {
            keys.push("algorithm");
        }
        if self.destinations_max != next.destinations_max {
            keys.push("destinations_max");
        }
        if self.groups != next.groups {
            keys.push("group");
        }
        if self.quota != next.quota {
            keys.push("quota");
        }
        keys
    }
}

#[cfg(test)]
mod tests;

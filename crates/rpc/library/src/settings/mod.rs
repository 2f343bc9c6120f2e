//! What an operator says of classes: names, marks, objectives, and whether decisions are acted upon.
//!
//! Units: durations in picoseconds (checked types), sizes in bytes, marks are DSCP values, 0 to 63.
//! Method: [`parse()`] makes checked values of a TOML text; later code never checks again.
//! Limits: 2 to 8 classes, the last one is the lowest and has no objective.

mod parse;
pub(crate) mod read;

pub use parse::parse;

use crate::quota::line::Address;
use isolane_common_quantities::units::Duration;
use isolane_rpc_policy::aequitas::AequitasOptions;

/// Whether decisions are acted upon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Calls that are not admitted run in the lowest class.
    #[default]
    Enforce = 0,
    /// All calls run in the class they ask for; what would happen is counted and reported.
    Shadow = 1,
    /// Nothing is decided or learned; calls are counted and measured.
    Off = 2,
}

impl Mode {
    /// As the file has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
            Self::Off => "off",
        }
    }
}

/// One class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassSettings {
    /// As applications and metrics call it.
    pub name: String,
    /// The mark of its packets.
    pub dscp: u8,
    /// How it is controlled; none for the lowest one.
    pub options: Option<AequitasOptions>,
}

/// Destinations that share a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    /// As the quota server knows it.
    pub name: String,
    /// Patterns of its destinations' names: `*`, `?`, separated by commas.
    pub destinations: String,
}

/// Where quotas come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaSettings {
    /// The server.
    pub server: Address,
    /// The file of the key that it asks for.
    pub key_file: Option<std::path::PathBuf>,
    /// For whom this process sends.
    pub tenant: String,
}

/// Everything.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Whether decisions are acted upon.
    pub mode: Mode,
    /// Payload of one packet: sizes are counted in it.
    pub mtu_bytes: u32,
    /// How long a destination keeps what it learned, and its place, without calls.
    pub idle_after: Duration,
    /// Most destinations with a place of their own.
    pub destinations_max: usize,
    /// Most destinations that metrics show one by one.
    pub metrics_destinations: usize,
    /// From the highest to the lowest.
    pub classes: Vec<ClassSettings>,
    /// Destinations that quotas are about; the first group that fits a destination has it.
    pub groups: Vec<GroupSettings>,
    /// Where quotas come from, and for whom this process sends.
    pub quota: Option<QuotaSettings>,
}

impl Settings {
    /// How class `class` is controlled; none for the lowest one.
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

    /// What of `next` cannot be taken over while calls run, as keys of the file; empty: all of it can.
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

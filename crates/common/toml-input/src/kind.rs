//! Detects the kind of a scenario by the table that only this kind has.

use crate::error::InputError;
use crate::table::Source;

/// The kinds of scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScenarioKind {
    /// RDMA hosts: `[[tenant]]` and none of the other kinds' tables.
    Rdma,
    /// A network: `[fabric]`.
    Network,
    /// Hosts with Ethernet NICs: `[nic]`.
    Ethernet,
    /// Tiered memory: `[memory]`.
    Memory,
}

impl ScenarioKind {
    /// The kind of the scenario in `text`, which `file` names in messages.
    ///
    /// # Errors
    /// The text is not TOML.
    pub fn of(text: &str, file: &str) -> Result<Self, InputError> {
        let tree = Source { file, text }.tree()?;
        let has = |table: &str| tree.get_ref().contains_key(table);
        Ok(match () {
            () if has("memory") => Self::Memory,
            () if has("nic") => Self::Ethernet,
            () if has("fabric") => Self::Network,
            () => Self::Rdma,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_decides_the_kind() {
        for (text, kind) in [
            ("[memory]", ScenarioKind::Memory),
            ("[nic]", ScenarioKind::Ethernet),
            ("[fabric]", ScenarioKind::Network),
            ("profile = \"cx5-100g-roce\"", ScenarioKind::Rdma),
        ] {
            assert_eq!(ScenarioKind::of(text, "x.toml"), Ok(kind), "{text}");
        }
        assert!(ScenarioKind::of("[", "x.toml").is_err());
    }
}

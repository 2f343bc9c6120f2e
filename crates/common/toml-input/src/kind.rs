//! Detects the kind of a scenario by the table that only this kind has.

use crate::error::InputError;
use crate::table::Source;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

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
    /// The kind of the scenario in `text`, which `file` names in messages. Fails if the text is not TOML.
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

    /// The kind of the scenario in `text`; `None` where the text may be another kind of file, or is not TOML.
    pub fn certain(text: &str) -> Option<Self> {
        let keys = TopLevel::of(text)?;
        match () {
            () if keys.is_table("memory") => Some(Self::Memory),
            () if keys.is_table("nic") => Some(Self::Ethernet),
            () if keys.is_table("fabric") => Some(Self::Network),
            () if keys.has("profile") && keys.has("tenant") => Some(Self::Rdma),
            () => None,
        }
    }

    /// What such a scenario describes.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Rdma => "RDMA hosts",
            Self::Network => "a network",
            Self::Ethernet => "Ethernet NICs",
            Self::Memory => "tiered memory",
        }
    }
}

/// The keys at the top level of a text.
#[derive(Clone, Debug)]
pub struct TopLevel<'a>(Spanned<DeTable<'a>>);

impl<'a> TopLevel<'a> {
    /// The keys of `text`; `None` where the text is not TOML.
    pub fn of(text: &'a str) -> Option<Self> {
        Source { file: "", text }.tree().ok().map(Self)
    }

    /// True where the text has the key `name`.
    pub fn has(&self, name: &str) -> bool {
        self.0.get_ref().contains_key(name)
    }

    /// True where `name` is a table: `[name]`.
    pub fn is_table(&self, name: &str) -> bool {
        self.value(name).is_some_and(DeValue::is_table)
    }

    /// True where `name` is a list or an array of tables: `[[name]]`.
    pub fn is_list(&self, name: &str) -> bool {
        self.value(name).is_some_and(DeValue::is_array)
    }

    fn value(&self, name: &str) -> Option<&DeValue<'a>> {
        self.0.get_ref().get(name).map(Spanned::get_ref)
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

    #[test]
    fn files_of_other_forms_are_no_scenario() {
        for (text, kind) in [
            ("[memory]", Some(ScenarioKind::Memory)),
            ("[fabric]", Some(ScenarioKind::Network)),
            ("profile = \"x\"\n[[tenant]]", Some(ScenarioKind::Rdma)),
            ("memory = \"4GiB\"", None),
            ("[[tenant]]", None),
            ("[", None),
        ] {
            assert_eq!(ScenarioKind::certain(text), kind, "{text}");
        }
    }
}

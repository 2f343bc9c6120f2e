//! An application as the memory system sees it: how it reaches for memory, and what one operation of it takes.
//!
//! As with machines, a number has a value, a kind and a source. [`APPLICATION_PARAMETERS`] is the list. Units end the
//! names. Method: a core has some requests on their way at once; when one returns, the core works for a while and sends the
//! next. Which page it goes to: the hottest share `f` of the pages gets the share `f^skew` of the visits.
//! Limits: no reads apart from writes; no phases within an operation.
//! Source: Mercury 5.3.1, 5.6.1, table 5.1.

use isolane_common_toml_input::error::ProfileError;
use isolane_common_toml_input::keys::{Key, Kind, required};
use isolane_common_toml_input::sourced::{
    Parameter, Sections, embedded, parameter, profile_of, value_in,
};
use isolane_common_toml_input::table::Table;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An application's model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemApplication {
    /// Short name: what a scenario calls `kind`.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// What one operation is called, in the plural: `operations`, `queries`, `tokens`.
    pub operation: String,
    /// Parameters by section and name.
    pub sections: Sections,
}

/// Every parameter.
#[rustfmt::skip]
pub const APPLICATION_PARAMETERS: &[Parameter] = &[
    parameter("access", "requests_per_core", (0.1, 256.0), "cache lines that a core has on their way at once"),
    parameter("access", "think_ns", (0.0, 1e6), "work of a core between a line's return and the request that follows it"),
    parameter("access", "lines_per_visit", (1.0, 64.0), "lines of a page that one visit reads"),
    parameter("access", "skew", (0.01, 1.0), "the hottest share f of the pages gets the share f^skew of the visits; 1 is uniform"),
    parameter("access", "hidden_percent", (0.0, 99.0), "of the latency that prefetching hides from a load, on average"),
    parameter("access", "hinted", (0.0, 1.0), "1: the kernel sets hint faults on its pages; 0: read-only mapped files, which it leaves alone"),
    parameter("work", "lines_per_operation", (0.001, 1e12), "cache lines from memory that one operation needs"),
    parameter("work", "parallel", (0.0, 1.0), "1: all cores work on one operation at a time; 0: each has its own"),
];

const KEYS: &[Key] = &[
    required("name", Kind::Text, "short name"),
    required("title", Kind::Text, "one line for people"),
    required("operation", Kind::Text, "what one operation is called"),
    required("access", Kind::Table, "section"),
    required("work", Kind::Table, "section"),
];

macro_rules! applications {
    ($($name:literal),*) => {
        const EMBEDDED: &[(&str, &str)] = &[$((
            concat!("machines/applications/", $name, ".toml"),
            include_str!(concat!("../../../../machines/applications/", $name, ".toml")),
        )),*];

        /// Names of the applications compiled in.
        pub const KINDS: &[&str] = &[$($name),*];
    };
}

applications!(
    "bandwidth",
    "dlrm",
    "dlrm-serving",
    "latency",
    "llama",
    "redis",
    "vector-flat",
    "vector-hnsw"
);

impl MemApplication {
    /// The application written in `text`; `file` names it in messages. The error is the first mistake, with its line.
    pub fn parse(text: &str, file: &str) -> Result<Self, ProfileError> {
        Table::read(file, text, KEYS, |top| {
            let (name, title, sections) =
                profile_of(top, &["access", "work"], APPLICATION_PARAMETERS)?;
            let operation = top.text("operation")?;
            Ok(Self {
                name,
                title,
                operation: operation
                    .expect("opening checked that it is there")
                    .to_owned(),
                sections,
            })
        })
    }

    /// The application compiled in under this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::embedded().into_iter().find(|one| one.name == name)
    }

    /// Every application compiled in.
    pub fn embedded() -> Vec<Self> {
        embedded(EMBEDDED, Self::parse)
    }

    /// The parameter `name` of `section`. Panics if there is none: a loaded application has every member of
    /// [`APPLICATION_PARAMETERS`].
    pub fn value(&self, section: &str, name: &str) -> f64 {
        value_in(&self.sections, &self.name, section, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_applications_are_valid_and_named_by_kind() {
        let names: Vec<String> = MemApplication::embedded()
            .into_iter()
            .map(|one| one.name)
            .collect();
        assert_eq!(names, KINDS);
    }
}

//! Numbers with their sources, the content of profiles of devices, cards, machines and applications.

use crate::error::{InputError, Problem, ProfileError, nearest};
use crate::keys::{Key, Kind, required};
use crate::table::{Table, number};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use toml::Spanned;
use toml::de::DeValue;

/// A parameter that every profile must give.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Section of the profile.
    pub section: &'static str,
    /// Name; its unit ends it.
    pub name: &'static str,
    /// Smallest sensible value.
    pub min: f64,
    /// Largest sensible value.
    pub max: f64,
    /// Help text.
    pub about: &'static str,
}

/// A parameter `name` of `section` within `range`.
pub const fn parameter(
    section: &'static str,
    name: &'static str,
    range: (f64, f64),
    about: &'static str,
) -> Parameter {
    Parameter {
        section,
        name,
        min: range.0,
        max: range.1,
        about,
    }
}

/// The numbers of a profile, by section and name.
pub type Sections = BTreeMap<String, BTreeMap<String, Sourced>>;

/// The number `name` of `section` of the profile called `profile`. Panics if there is none: reading a profile checks
/// that no parameter of its sections is missing.
pub fn value_in(sections: &Sections, profile: &str, section: &str, name: &str) -> f64 {
    let found = sections.get(section).and_then(|map| map.get(name));
    found
        .unwrap_or_else(|| panic!("profile {profile} has no {section}.{name}"))
        .value
}

/// A number and its source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sourced {
    /// The value, in the unit that ends the parameter's name.
    pub value: f64,
    /// Kind of the source.
    pub kind: SourceKind,
    /// Paper and section, standard, or the derivation in one line.
    pub source: String,
}

/// Kinds of sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// Printed in a paper or data sheet.
    Published,
    /// Fixed by a standard.
    Standard,
    /// Computed from published numbers; `source` gives the computation.
    Derived,
    /// Fitted to claims marked `calibration`.
    Calibrated,
}

#[rustfmt::skip]
const SOURCED: &[Key] = &[
    required("value", Kind::Text, "the number, in the unit that ends the name"),
    required(
        "kind",
        Kind::Choice(&["published", "standard", "derived", "calibrated"]),
        "how it is known: published, standard, derived or calibrated",
    ),
    required("source", Kind::Text, "paper and section, standard, or the derivation"),
];

/// The name of a profile: lower-case letters, digits and dashes. Fails for text of another form.
pub fn profile_name(top: &Table<'_>) -> Result<String, InputError> {
    let name = top.text("name")?.expect("opening checked that it is there");
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    match !name.is_empty() && name.chars().all(plain) {
        true => Ok(name.to_owned()),
        false => Err(top.wrong("name", "must be lower-case letters, digits and dashes")),
    }
}

/// Name, title and the sections `names` of the profile `top`. Fails as [`profile_name`] and [`section_of`] do.
pub fn profile_of(
    top: &Table<'_>,
    names: &[&'static str],
    parameters: &[Parameter],
) -> Result<(String, String, Sections), InputError> {
    let title = top
        .text("title")?
        .expect("opening checked that it is there");
    let name = profile_name(top)?;
    Ok((name, title.to_owned(), sections_of(top, names, parameters)?))
}

/// The profiles of `files`, names and texts that are compiled in. Panics for a file with a mistake: tests read all of
/// them.
pub fn embedded<T>(
    files: &[(&str, &str)],
    parse: fn(&str, &str) -> Result<T, ProfileError>,
) -> Vec<T> {
    let profiles = files.iter().map(|(file, text)| parse(text, file));
    profiles
        .map(|profile| profile.expect("tests parse every embedded file"))
        .collect()
}

/// Gives `$type`, a profile of `name`, `title` and `sections`, its readers: the text's keys are `$keys`, its sections `$sections`
/// with `$parameters`, and the profiles `$embedded` are compiled in.
#[macro_export]
macro_rules! sourced_profile {
    ($type:ident, $keys:ident, $sections:ident, $parameters:ident, $embedded:ident) => {
        impl $type {
            /// What `text` says; `file` names the text in messages. The error is the first mistake, with its line: a parameter
            /// that is missing, unknown, out of range or without a source.
            pub fn parse(text: &str, file: &str) -> Result<Self, $crate::error::ProfileError> {
                $crate::table::Table::read(file, text, $keys, |top| {
                    let (name, title, sections) =
                        $crate::sourced::profile_of(top, &$sections, $parameters)?;
                    Ok(Self {
                        name,
                        title,
                        sections,
                    })
                })
            }

            /// The one that is compiled in under this name.
            pub fn named(name: &str) -> Option<Self> {
                Self::embedded().into_iter().find(|one| one.name == name)
            }

            /// All that are compiled in.
            pub fn embedded() -> Vec<Self> {
                $crate::sourced::embedded($embedded, Self::parse)
            }

            /// The parameter `name` of `section`. Panics if there is none: what was loaded has each parameter of its sections.
            pub fn value(&self, section: &str, name: &str) -> f64 {
                $crate::sourced::value_in(&self.sections, &self.name, section, name)
            }
        }
    };
}

/// The sections `names` of `top` that the text has. Fails as [`section_of`] does.
pub fn sections_of(
    top: &Table<'_>,
    names: &[&'static str],
    parameters: &[Parameter],
) -> Result<Sections, InputError> {
    let mut sections = Sections::new();
    for &name in names.iter().filter(|name| top.has(name)) {
        sections.insert(name.to_owned(), section_of(top, name, parameters)?);
    }
    Ok(sections)
}

/// The table `name` of `top`: those of `parameters` that belong there, all of them, nothing else. The error is the
/// first parameter that is unknown, missing, out of range, or has no source.
pub fn section_of(
    top: &Table<'_>,
    name: &'static str,
    parameters: &[Parameter],
) -> Result<BTreeMap<String, Sourced>, InputError> {
    let value = top.raw(name).expect("opening checked that it is there");
    let DeValue::Table(map) = value.get_ref() else {
        return Err(top.wrong(name, format!("must be a table, [{name}]")));
    };
    let place = top.clone().placed(name.to_owned());
    let known: Vec<&Parameter> = parameters
        .iter()
        .filter(|parameter| parameter.section == name)
        .collect();
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let mut section = BTreeMap::new();
    for (key, value) in entries {
        let Some(parameter) = known
            .iter()
            .find(|known| known.name == key.get_ref().as_ref())
        else {
            let names = known.iter().map(|known| known.name);
            let problem = Problem::UnknownKey {
                key: key.get_ref().to_string(),
                nearest: nearest(key.get_ref(), names.clone()).map(str::to_owned),
                known: names.map(str::to_owned).collect(),
            };
            return Err(place.error(key.span().start, problem));
        };
        section.insert(
            parameter.name.to_owned(),
            sourced(&place, parameter, value)?,
        );
    }
    if let Some(absent) = known.iter().find(|known| !section.contains_key(known.name)) {
        let problem = Problem::Missing {
            key: absent.name.to_owned(),
            expected: format!("{}, {} to {}", absent.about, absent.min, absent.max),
        };
        return Err(place.error(value.span().start, problem));
    }
    Ok(section)
}

fn sourced<'a>(
    place: &Table<'a>,
    parameter: &Parameter,
    value: &'a Spanned<DeValue<'a>>,
) -> Result<Sourced, InputError> {
    let DeValue::Table(map) = value.get_ref() else {
        let shown = place.source().shown(value.span());
        let expected = "must be { value = ..., kind = \"published\", source = \"...\" }";
        return Err(place.error(
            value.span().start,
            Problem::value(parameter.name, shown, expected),
        ));
    };
    let name = format!("{}.{}", parameter.section, parameter.name);
    let table = Table::open(place.source(), map, value.span().start, SOURCED, Some(name))?;
    let range = parameter.min..=parameter.max;
    let number = table.raw("value").and_then(|value| number(value.get_ref()));
    let Some(number) = number.filter(|number| range.contains(number)) else {
        let expected = format!(
            "must be a number, {} to {} ({})",
            parameter.min, parameter.max, parameter.about
        );
        return Err(table.wrong("value", expected));
    };
    let source = table
        .text("source")?
        .expect("opening checked that it is there");
    if source.trim().is_empty() {
        return Err(table.wrong("source", "must say where the number comes from"));
    }
    let kind: SourceKind = table
        .choice("kind")?
        .expect("opening checked that it is there");
    Ok(Sourced {
        value: number,
        kind,
        source: source.to_owned(),
    })
}

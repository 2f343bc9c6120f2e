//! `[policy]`: a name and numeric parameters.

use crate::model::PolicySpec;
use crate::stack::{self, StackError};
use isolane_common_toml_input::error::{InputError, Problem, nearest};
use isolane_common_toml_input::table::{Table, number};
use std::collections::BTreeMap;
use toml::de::DeValue;

/// The policy of a scenario that names none.
const DEFAULT: &str = "none";

/// Reads `[policy]` of the top level.
pub(crate) fn read(top: &Table<'_>) -> Result<PolicySpec, InputError> {
    let Some(value) = top.raw("policy") else {
        return Ok(PolicySpec::named(DEFAULT));
    };
    let DeValue::Table(map) = value.get_ref() else {
        return Err(top.wrong("policy", "must be a table: [policy] with name = ..."));
    };
    let top = top.clone().placed("policy".to_owned());
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let name = entries
        .iter()
        .find(|(key, _)| key.get_ref().as_ref() == "name");
    let Some((_, name)) = name else {
        let problem = Problem::Missing {
            key: "name".to_owned(),
            expected: format!(
                "must be one of {}",
                stack::part_names().collect::<Vec<_>>().join(", ")
            ),
        };
        return Err(top.error(value.span().start, problem));
    };
    let at = name.span();
    let Some(name) = name.get_ref().as_str() else {
        let shown = top.source().shown(at.clone());
        return Err(top.error(
            at.start,
            Problem::value("name", shown, "must be text in quotes"),
        ));
    };
    let name =
        stack::canonical(name).map_err(|error| top.error(at.start, refused("name", &error)))?;
    let known = stack::parameters(&name);
    let mut parameters = BTreeMap::new();
    for (key, value) in entries {
        if key.get_ref().as_ref() == "name" {
            continue;
        }
        let names = known.iter().map(|parameter| parameter.name);
        let Some(parameter) = known
            .iter()
            .find(|parameter| parameter.name == key.get_ref().as_ref())
        else {
            let problem = Problem::UnknownKey {
                key: key.get_ref().to_string(),
                nearest: nearest(key.get_ref(), names.clone()).map(str::to_owned),
                known: names.map(str::to_owned).collect(),
            };
            return Err(top.error(key.span().start, problem));
        };
        let number = match value.get_ref() {
            DeValue::Boolean(flag) => Some(f64::from(u8::from(*flag))),
            other => number(other),
        };
        let range = parameter.min..=parameter.max;
        let Some(number) = number.filter(|number| range.contains(number)) else {
            let shown = top.source().shown(value.span());
            let expected = format!("must be a number, {} to {}", parameter.min, parameter.max);
            let problem = Problem::value(parameter.name, shown, expected);
            return Err(top.error(value.span().start, problem));
        };
        parameters.insert(parameter.name.to_owned(), number);
    }
    Ok(PolicySpec { name, parameters })
}

/// A name that is no policy, or none for this device, as a mistake of the key `key`.
pub(crate) fn refused(key: &str, error: &StackError) -> Problem {
    match error {
        StackError::UnknownPart { part } => Problem::unknown_name(key, part, stack::part_names()),
        other => Problem::Policy(other.to_string()),
    }
}

//! What the command line names: profiles, policies with parameters, durations.

use crate::status::BadInput;
use anyhow::{Context, Result, bail};
use isolane_core::units::Duration;
use isolane_scenario::POLICIES;
use isolane_scenario::library::Library;
use isolane_scenario::model::PolicySpec;
use isolane_scenario::profile::Profile;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The profile that the documents use.
pub(crate) const DEFAULT_PROFILE: &str = "cx5-100g-roce";

/// Names less alike than this are not offered as what was meant (Jaro-Winkler similarity, 0 to 1).
const SIMILARITY_MIN: f64 = 0.7;

/// A wrong value on the command line.
pub(crate) fn bad(message: impl Into<String>) -> anyhow::Error {
    BadInput(message.into()).into()
}

/// Reads the file at `path`. A file that is not there, or no text, is a wrong argument.
pub(crate) fn read(path: &Path) -> Result<String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) => {
            let reason = format!("cannot read {}: {error}", path.display());
            Err(bad(reason))
        }
    }
}

/// The profile called `name`, or the one in the file `name` when it looks like a path; added to `library`.
pub(crate) fn profile(library: &mut Library, name: &str) -> Result<Profile> {
    if name.ends_with(".toml") || name.contains('/') {
        let text = read(Path::new(name))?;
        let profile = Profile::parse(&text, name)?;
        library.add_profile(profile.clone());
        return Ok(profile);
    }
    let found = library.profile(name).cloned();
    found.ok_or_else(|| {
        let known = library.profile_names();
        bad(format!(
            "--profile {name}: unknown{}",
            suggestion(name, known)
        ))
    })
}

/// `; did you mean X?`, or the list of what there is.
pub(crate) fn suggestion<'a>(word: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let alike = known
        .clone()
        .map(|name| (strsim::jaro_winkler(name, word), name))
        .filter(|(similarity, _)| *similarity >= SIMILARITY_MIN)
        .max_by(|left, right| left.0.total_cmp(&right.0));
    match alike {
        Some((_, name)) => format!("; did you mean {name}?"),
        None => format!("; must be one of {}", known.collect::<Vec<_>>().join(", ")),
    }
}

/// The policy called `name`, without parameters.
pub(crate) fn policy(name: &str) -> Result<PolicySpec> {
    let names = POLICIES.iter().map(|(known, _)| *known);
    if !names.clone().any(|known| known == name) {
        bail!(bad(format!(
            "policy {name}: unknown{}",
            suggestion(name, names)
        )));
    }
    Ok(PolicySpec {
        name: name.to_owned(),
        parameters: BTreeMap::new(),
    })
}

/// Sets each `key=value` of `settings` in `policy`.
pub(crate) fn set_parameters(policy: &mut PolicySpec, settings: &[String]) -> Result<()> {
    let parameters = POLICIES.iter().find(|(name, _)| *name == policy.name);
    let parameters = parameters.map_or(&[][..], |(_, parameters)| parameters);
    for setting in settings {
        let Some((key, value)) = setting.split_once('=') else {
            bail!(bad(format!("--set {setting}: must be key=value")));
        };
        let Some(parameter) = parameters.iter().find(|known| known.name == key.trim()) else {
            let names = parameters.iter().map(|known| known.name);
            let hint = match parameters.is_empty() {
                true => "; it has none".to_owned(),
                false => suggestion(key, names),
            };
            bail!(bad(format!(
                "--set {setting}: policy {} has no parameter {key}{hint}",
                policy.name
            )));
        };
        let number = match value.trim() {
            "true" => Some(1.0),
            "false" => Some(0.0),
            text => text.parse::<f64>().ok(),
        };
        let range = parameter.min..=parameter.max;
        let Some(number) = number.filter(|number| range.contains(number)) else {
            bail!(bad(format!(
                "--set {setting}: {key} must be a number, {} to {}",
                parameter.min, parameter.max
            )));
        };
        policy.parameters.insert(parameter.name.to_owned(), number);
    }
    Ok(())
}

/// Longest run that the command line accepts; as in scenario files.
const DURATION_MAX: Duration = Duration::from_secs(100);

/// A duration with a unit, above zero: `150us`, `1.5 ms`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let form = || {
        format!(
            "{text:?} must be a number and a unit of ns, us, ms or s, above 0 and up to 100s, like \"2ms\""
        )
    };
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| c.is_ascii_alphabetic());
    let (number, unit) = trimmed.split_at(split.ok_or_else(form)?);
    let seconds_per_unit = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return Err(form()),
    };
    let number: f64 = number.trim().parse().map_err(|_| form())?;
    let duration = Duration::from_secs_f64(number * seconds_per_unit);
    match duration {
        Duration::ZERO => Err(form()),
        duration if duration > DURATION_MAX => Err(form()),
        duration => Ok(duration),
    }
}

/// The embedded library and `profile_files`, whose profiles replace embedded ones of the same name.
pub(crate) fn library() -> Library {
    Library::embedded()
}

/// Reads and checks a scenario file with the command line's replacements.
pub(crate) fn scenario(
    library: &Library,
    path: &Path,
    overrides: &isolane_scenario::Overrides,
) -> Result<isolane_scenario::model::Scenario> {
    let text = read(path)?;
    let file = path.to_str().context("a scenario's path must be UTF-8")?;
    Ok(isolane_scenario::parse_with(
        &text, file, library, overrides,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit_and_a_positive_number() {
        assert_eq!(duration("150us").unwrap(), Duration::from_us(150));
        assert_eq!(duration("1.5 ms").unwrap(), Duration::from_us(1500));
        for wrong in ["", "5", "0us", "-1ms", "5m", "101s", "ms", "NaNs", "1e99s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn policy_parameters_are_checked_by_name_and_range() {
        let mut justitia = policy("justitia").unwrap();
        set_parameters(&mut justitia, &["target_us=3.5".into()]).unwrap();
        assert_eq!(justitia.parameters["target_us"], 3.5);
        let wrong = |setting: &str| {
            let mut policy = justitia.clone();
            set_parameters(&mut policy, &[setting.to_owned()])
                .unwrap_err()
                .to_string()
        };
        assert!(wrong("taget_us=1").contains("did you mean target_us?"));
        assert!(wrong("target_us=soon").contains("must be a number"));
        assert!(wrong("target_us").contains("key=value"));
        assert!(
            policy("justicia")
                .unwrap_err()
                .to_string()
                .contains("did you mean justitia?")
        );
    }
}

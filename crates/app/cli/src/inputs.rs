//! What the command line names: profiles, policies with parameters, durations.

use crate::file_kind::{FileKind, Wanted};
use crate::policy_kinds::{self, Kind};
use crate::status::BadInput;
use anyhow::{Context, Result, bail};
use clap::builder::{PossibleValue, TypedValueParser};
use isolane_common_quantities::units::Duration;
use isolane_memory_scenario::machine::MemMachine;
use isolane_rdma_scenario::device_name::unknown_profile;
use isolane_rdma_scenario::library::Library;
use isolane_rdma_scenario::model::PolicySpec;
use isolane_rdma_scenario::profile::Profile;
use isolane_rdma_scenario::stack;
use isolane_rdma_scenario::stack::StackError;
use isolane_study_audit::matrix::LeftOut;
use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// The profile that the documents use.
pub(crate) const DEFAULT_PROFILE: &str = "cx5-100g-roce";

/// Names less alike than this are not offered as what was meant (Jaro-Winkler similarity, 0 to 1).
const SIMILARITY_MIN: f64 = 0.7;

/// The same for files: a directory has many names that begin alike.
const FILE_SIMILARITY_MIN: f64 = 0.9;

/// The word for every policy that the device can run.
const ALL: &str = "all";

/// What commands with `--profile` take.
const SCENARIO: Wanted = Wanted {
    kind: |kind| matches!(kind, FileKind::Scenario(_)),
    words: "a scenario (TOML, docs/reference/scenario.md; give a profile with --profile)",
};

/// What `--profile` takes.
pub(crate) const PROFILE: Wanted = Wanted {
    kind: |kind| matches!(kind, FileKind::Profile),
    words: "the profile of an RDMA NIC (TOML, docs/guides/adding-a-profile.md)",
};

/// What an application may request: `isolane advise` and `--restrict`.
pub(crate) const RESTRICTION: Wanted = Wanted {
    kind: |kind| matches!(kind, FileKind::Restriction),
    words: "what an application may request from the RDMA NIC (TOML with the keys of `isolane hunt --restrict`, docs/guides/hunt.md)",
};

/// A wrong value on the command line.
pub(crate) fn bad(message: impl Into<String>) -> anyhow::Error {
    BadInput(message.into()).into()
}

/// Accepts any name. Help and the shells' completion list the known names. The user of the name checks it, because our
/// messages name the nearest known name. The list is made on demand: every start sets up the options of every command,
/// and reading the profiles for the list took ten times as long as all else.
#[derive(Clone, Debug)]
pub(crate) struct Names(pub(crate) fn() -> Vec<String>);

/// The policies, for `--policy`.
pub(crate) fn policy_names() -> Names {
    Names(|| stack::ALL.iter().copied().map(str::to_owned).collect())
}

/// The policies of RDMA hosts, of networks and of tiered memory, for `isolane sim --policy`.
pub(crate) fn every_policy_name() -> Names {
    Names(|| {
        let networks = isolane_network_scenario::parameters::POLICY.iter();
        let others = networks.chain(&isolane_memory_scenario::model::MEM_POLICIES);
        let mut names = (policy_names().0)();
        for name in others.copied() {
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        names
    })
}

/// The policies and `all`, for `--policies`.
pub(crate) fn policies_or_all() -> Names {
    Names(|| {
        let all = [ALL].into_iter().chain(stack::ALL.iter().copied());
        all.map(str::to_owned).collect()
    })
}

/// The compiled-in profiles, for `--profile`, which takes paths too.
pub(crate) fn profile_names() -> Names {
    Names(|| library().profile_names().map(str::to_owned).collect())
}

/// The catalogue's victims, for `isolane explain`.
pub(crate) fn victim_names() -> Names {
    Names(|| {
        let catalogue = library().catalogue;
        catalogue.victims().map(|one| one.name.clone()).collect()
    })
}

/// The catalogue's attackers.
pub(crate) fn attacker_names() -> Names {
    Names(|| {
        let catalogue = library().catalogue;
        catalogue.attackers().map(|one| one.name.clone()).collect()
    })
}

pub(crate) fn workload_names() -> Names {
    Names(|| {
        let catalogue = library().catalogue;
        catalogue
            .entries
            .iter()
            .map(|one| one.name.clone())
            .collect()
    })
}

impl TypedValueParser for Names {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        _: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        let text = value.to_str().map(|text| text.trim().to_owned());
        text.ok_or_else(|| clap::Error::new(clap::error::ErrorKind::InvalidUtf8).with_cmd(command))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.0)().into_iter().map(PossibleValue::new)))
    }
}

/// Reads the file at `path`. A file that is not there, or no text, is a wrong argument.
pub(crate) fn read(path: &Path, wanted: &Wanted) -> Result<String> {
    let file = path.display();
    if path.is_dir() {
        return Err(bad(format!(
            "{file}: is a directory, and this command takes {}; give a file in it",
            wanted.words
        )));
    }
    let content = fs::read(path).map_err(|error| unreadable(path, &error))?;
    wanted.check(&content, &file.to_string())?;
    String::from_utf8(content).with_context(|| format!("cannot read {file}"))
}

/// Opens the file at `path`. A file that is not there is a wrong argument.
#[cfg(feature = "rpc")]
pub(crate) fn open(path: &Path) -> Result<fs::File> {
    fs::File::open(path).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &std::io::Error) -> anyhow::Error {
    let remedy = match error.kind() {
        ErrorKind::IsADirectory => "; give a file in it".to_owned(),
        ErrorKind::NotFound => {
            nearest_file(path).unwrap_or_else(|| "; give the path of a file that exists".to_owned())
        }
        ErrorKind::PermissionDenied => {
            "; change its mode, or run the command as a user who may read it".to_owned()
        }
        _ => String::new(),
    };
    bad(format!("cannot read {}: {error}{remedy}", path.display()))
}

/// `; did you mean X?`, where the directory has a file of nearly that name.
fn nearest_file(path: &Path) -> Option<String> {
    let folder = match path.parent()? {
        here if here.as_os_str().is_empty() => Path::new("."),
        folder => folder,
    };
    let wanted = path.file_name()?.to_str()?;
    let mut names: Vec<String> = fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    let alike = |name: &String| strsim::jaro_winkler(name, wanted);
    let near = names
        .iter()
        .filter(|name| alike(name) >= FILE_SIMILARITY_MIN);
    let name = near.max_by(|left, right| alike(left).total_cmp(&alike(right)))?;
    Some(format!(
        "; did you mean {}?",
        path.with_file_name(name).display()
    ))
}

/// The profile called `name`, or the one in the file `name` when it looks like a path; added to `library`.
pub(crate) fn profile(library: &mut Library, name: &str) -> Result<Profile> {
    if name.ends_with(".toml") || name.contains('/') {
        let text = read(Path::new(name), &PROFILE)?;
        let profile = Profile::parse(&text, name)?;
        library.add_profile(profile.clone());
        return Ok(profile);
    }
    let found = library.profile(name).cloned();
    found.ok_or_else(|| {
        let known = library.profile_names();
        let hint = match MemMachine::named(name) {
            Some(_) => {
                "; it is a machine with tiered memory, for the key machine of [memory]".to_owned()
            }
            None => unknown_profile(name, known),
        };
        bad(format!("profile {name}: unknown{hint}"))
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
    let canonical = stack::canonical(name).map_err(|error| match error {
        StackError::UnknownPart { part } => match policy_kinds::elsewhere(&part, Kind::Rdma) {
            Some(kinds) => bad(format!("policy {part}: {kinds}")),
            None if name == ALL => bad(format!(
                "policy {ALL}: only isolane audit and isolane recommend take it; must be one of {}",
                stack::ALL.join(", ")
            )),
            None if name.eq_ignore_ascii_case(ALL) => {
                bad(format!("policy {name}: unknown; did you mean {ALL}?"))
            }
            None => {
                let stacks = stack::ALL.iter().copied().filter(|name| name.contains('+'));
                let known = suggestion(&part, stack::part_names().chain(stacks));
                bad(match part == name {
                    true => format!("policy {name}: unknown{known}"),
                    false => format!("policy {name}: {part:?}: unknown{known}"),
                })
            }
        },
        other => bad(format!("policy {other}")),
    });
    Ok(PolicySpec::named(canonical?))
}

/// The value of `--policies`.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// In the order of the option.
    pub(crate) policies: Vec<PolicySpec>,
    /// Those of `all` that the device cannot run.
    pub(crate) left_out: Vec<LeftOut>,
}

/// The policies called `names` for so many tenants on the device of `profile`, where `runs` says whether the testbed
/// runs a policy. `all` is every policy in [`stack::ALL`] that can run; a policy that cannot run is an error where the
/// user names it. A policy that is both in `all` and named appears once, at its first place.
pub(crate) fn policies(
    names: &[String],
    profile: &Profile,
    tenants: usize,
    runs: &dyn Fn(&str) -> Result<(), String>,
) -> Result<Chosen> {
    let mut chosen = Chosen {
        policies: Vec::new(),
        left_out: Vec::new(),
    };
    let mut named: Vec<String> = Vec::new();
    for name in names {
        let known = |chosen: &Chosen, policy: &PolicySpec| {
            chosen
                .policies
                .iter()
                .any(|other| other.name == policy.name)
        };
        if name == ALL {
            for name in stack::ALL {
                let policy = policy(name)?;
                let fits = stack::check_device(name, profile, tenants);
                let fits = fits.map_err(|error| error.to_string());
                match fits.and_then(|()| runs(name)) {
                    Ok(()) if known(&chosen, &policy) => {}
                    Ok(()) => chosen.policies.push(policy),
                    Err(reason) => chosen.left_out.push(LeftOut {
                        // The reason names the part, which may be the whole policy.
                        reason: match reason.strip_prefix(&format!("{name}: ")) {
                            Some(rest) => rest.to_owned(),
                            None => reason,
                        },
                        policy: policy.name,
                    }),
                }
            }
            continue;
        }
        let policy = policy(name)?;
        stack::check_device(&policy.name, profile, tenants)
            .map_err(|error| bad(format!("policy {error}")))?;
        runs(&policy.name).map_err(|reason| bad(format!("policy {}: {reason}", policy.name)))?;
        if named.contains(&policy.name) {
            bail!(bad(format!("--policies names {name} twice")));
        }
        named.push(policy.name.clone());
        if !known(&chosen, &policy) {
            chosen.policies.push(policy);
        }
    }
    Ok(chosen)
}

/// Sets each `key=value` of `settings` in those of `policies` that have the parameter; one has to.
pub(crate) fn set_parameters(policies: &mut [&mut PolicySpec], settings: &[String]) -> Result<()> {
    for setting in settings {
        let Some((key, value)) = setting.split_once('=') else {
            bail!(bad(format!("--set {setting}: must be key=value")));
        };
        let key = key.trim();
        let mut known = false;
        for policy in policies.iter_mut() {
            let parameters = stack::parameters(&policy.name);
            let Some(parameter) = parameters.iter().find(|known| known.name == key) else {
                continue;
            };
            known = true;
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
        if !known {
            let all: Vec<&str> = policies.iter().map(|policy| policy.name.as_str()).collect();
            let names = all.iter().flat_map(|name| stack::parameters(name));
            let names = names.map(|parameter| parameter.name);
            let hint = match names.clone().next() {
                None => "; this policy has no parameters".to_owned(),
                Some(_) => suggestion(key, names),
            };
            bail!(bad(format!(
                "--set {setting}: policy {} has no parameter {key}{hint}",
                all.join(", ")
            )));
        }
    }
    Ok(())
}

/// Longest run that the command line accepts; as in scenario files of hosts and networks.
const DURATION_MAX: Duration = Duration::from_secs(100);
/// The same of tiered memory, whose model steps in tenths of seconds.
const LONG_DURATION_MAX: Duration = Duration::from_secs(100_000);

/// A duration with a unit, above zero: `150us`, `1.5 ms`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    duration_up_to(text, DURATION_MAX)
}

/// As [`duration`], for what may be a scenario of tiered memory: `2400s`. A command for another kind of scenario checks
/// the value with [`short`].
pub(crate) fn long_duration(text: &str) -> Result<Duration, String> {
    duration_up_to(text, LONG_DURATION_MAX)
}

/// Refuses a duration of `option` that only tiered memory may have.
pub(crate) fn short(option: &str, given: Option<Duration>) -> Result<()> {
    match given {
        Some(duration) if duration > DURATION_MAX => bail!(bad(format!(
            "{option} {duration}: must be up to {DURATION_MAX}; only scenarios of tiered memory ([memory]) run longer"
        ))),
        _ => Ok(()),
    }
}

fn duration_up_to(text: &str, most: Duration) -> Result<Duration, String> {
    let form = || {
        format!(
            "{text:?} must be a number and a unit of ns, us, ms or s, above 0 and up to {most}, like \"2ms\""
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
        duration if duration > most => Err(form()),
        duration => Ok(duration),
    }
}

/// The embedded library and `profile_files`, whose profiles replace embedded ones of the same name.
pub(crate) fn library() -> Library {
    Library::embedded()
}

/// A scenario's text and the name that messages call it by; `-` reads stdin. For commands with `--profile`.
pub(crate) fn scenario_text(path: &Path) -> Result<(String, String)> {
    document_text(path, &SCENARIO)
}

/// As [`scenario_text`], for commands that take another kind of file.
pub(crate) fn document_text(path: &Path, wanted: &Wanted) -> Result<(String, String)> {
    if path == Path::new("-") {
        let mut text = String::new();
        let read = std::io::stdin().read_to_string(&mut text);
        read.map_err(|error| bad(format!("cannot read stdin: {error}; give {}", wanted.words)))?;
        wanted.check(text.as_bytes(), "stdin")?;
        return Ok((text, "stdin".to_owned()));
    }
    let file = path.to_str().context("the path of a file must be UTF-8")?;
    Ok((read(path, wanted)?, file.to_owned()))
}

/// `word` so that a POSIX shell reads it back as it is.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
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
        let long = long_duration("2400s").unwrap();
        assert_eq!(long, Duration::from_secs(2_400));
        assert!(long_duration("100001s").is_err());
        let said = short("--duration", Some(long)).unwrap_err().to_string();
        assert!(
            said.starts_with("--duration 2400s: must be up to 100s"),
            "{said}"
        );
        assert!(short("--duration", Some(Duration::from_secs(100))).is_ok());
    }

    #[test]
    fn policy_parameters_are_checked_by_name_and_range() {
        let mut justitia = policy("justitia").unwrap();
        set_parameters(&mut [&mut justitia], &["target_us=3.5".into()]).unwrap();
        assert_eq!(justitia.parameters["target_us"], 3.5);
        let wrong = |setting: &str| {
            let mut policy = justitia.clone();
            set_parameters(&mut [&mut policy], &[setting.to_owned()])
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

    #[test]
    fn all_and_names_merge_in_any_order() {
        let library = library();
        let profile = library.profile(DEFAULT_PROFILE).unwrap();
        let names = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let chosen = policies(&words, profile, 2, &|_| Ok(()))?;
            anyhow::Ok(chosen.policies.into_iter().map(|p| p.name).collect())
        };
        let all: Vec<String> = names(&["all"]).unwrap();
        assert_eq!(names(&["all", "none"]).unwrap(), all);
        assert_eq!(names(&["none", "all"]).unwrap(), all);
        let mut palos_first = names(&["palos", "all"]).unwrap();
        assert_eq!(palos_first.remove(0), "palos");
        assert_eq!(palos_first.len() + 1, all.len());
        let twice = names(&["all", "none", "none"]).unwrap_err();
        assert!(twice.to_string().contains("names none twice"));
        assert!(names(&["sriov+hw-tc", "hw-tc+sriov"]).is_err());
    }

    #[test]
    fn a_setting_reaches_the_policies_that_know_it() {
        let (mut none, mut justitia) = (policy("none").unwrap(), policy("justitia").unwrap());
        set_parameters(&mut [&mut none, &mut justitia], &["target_us=4".into()]).unwrap();
        assert!(none.parameters.is_empty() && justitia.parameters["target_us"] == 4.0);
    }
}

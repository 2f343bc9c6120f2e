//! What clap found wrong, in one line of the same form as every other error: object, value, what is allowed, what to do.

use super::{called, value_names};
use crate::inputs;
use crate::numbers;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};
use std::error::Error;
use std::num::{ParseFloatError, ParseIntError};

/// Names of commands that a line lists; more are left to `--help`.
const COMMANDS_MAX: usize = 24;

/// The line on `error`, which the words caused.
pub(crate) fn line(error: &clap::Error, root: &Command, words: &[String]) -> String {
    let (path, command) = called(root, words);
    let help = format!("(`{path} --help` says more)");
    let text = |kind| text(error, kind);
    let object = text(ContextKind::InvalidArg);
    let what = match error.kind() {
        ErrorKind::ValueValidation => bad_value(error, command, &object),
        ErrorKind::InvalidValue => bad_choice(error, command, &object),
        ErrorKind::UnknownArgument => unknown(error, command, &path, &object),
        ErrorKind::InvalidSubcommand => {
            let name = text(ContextKind::InvalidSubcommand);
            match name.as_str() {
                "help" => return help_word(words),
                _ => unknown_command(error, command, &path, &name),
            }
        }
        ErrorKind::ArgumentConflict => match text(ContextKind::InvalidSubcommand) {
            name if name.is_empty() => conflict(error, &object),
            name if command.get_name() == name || command.find_subcommand(&name).is_some() => {
                conflict(error, &name)
            }
            name => unknown_command(error, command, &path, &name),
        },
        ErrorKind::MissingRequiredArgument => {
            let needed = strings(error, ContextKind::InvalidArg);
            // clap joins the members of a group.
            let needed = needed.iter().map(|one| plain(one).replace("|--", " or --"));
            let needed = needed.collect::<Vec<_>>().join(" and ");
            let before = std::iter::once("").chain(words.iter().map(String::as_str));
            let bare = before
                .zip(words)
                .filter(|(before, _)| !before.starts_with('-'));
            let meant = bare
                .map(|(_, word)| word)
                .find_map(|word| option_for(command, word));
            let hint = match meant {
                Some(option) => format!("; did you mean {option}?"),
                None => choices(command, &needed),
            };
            format!("{path} needs {needed}{hint}")
        }
        ErrorKind::NoEquals => format!("{object}: needs = between name and value"),
        ErrorKind::TooManyValues => {
            let value = text(ContextKind::InvalidValue);
            format!("{}: takes no further value {value:?}", plain(&object))
        }
        ErrorKind::TooFewValues | ErrorKind::WrongNumberOfValues => {
            let (has, needs) = (
                text(ContextKind::ActualNumValues),
                match text(ContextKind::ExpectedNumValues) {
                    none if none.is_empty() => text(ContextKind::MinValues),
                    some => some,
                },
            );
            format!("{object}: has {has} values and needs {needs}")
        }
        ErrorKind::InvalidUtf8 => "an argument is no UTF-8 text".to_owned(),
        _ => folded(&error.to_string()),
    };
    format!("{what} {help}")
}

/// A value that the option's parser refuses.
fn bad_value(error: &clap::Error, command: &Command, object: &str) -> String {
    let value = text(error, ContextKind::InvalidValue);
    let own = text(error, ContextKind::Custom);
    // Messages of Rust's and clap's own parsers, which say nothing of what is allowed.
    let is_terse = error.source().is_some_and(|source| {
        source.is::<ParseIntError>()
            || source.is::<ParseFloatError>()
            || source.to_string().contains(" is not in ")
    });
    let number = || {
        argument(command, object)
            .filter(|_| is_terse)
            .and_then(numbers::allowed)
    };
    let reason = match own.is_empty() {
        false => own,
        true => number()
            .or_else(|| error.source().map(ToString::to_string))
            .unwrap_or_else(|| "is not allowed".to_owned()),
    };
    // Messages of parsers for values that are also in files begin with the value.
    let reason = match reason.strip_prefix(&format!("{value:?}")) {
        Some(rest) => rest.trim_start_matches([':', ' ']).to_owned(),
        None => reason,
    };
    format!("{} {}: {reason}", name(object), shown(&value))
}

/// A value that is none of a list, or that is not there.
fn bad_choice(error: &clap::Error, command: &Command, object: &str) -> String {
    let value = text(error, ContextKind::InvalidValue);
    let choices = strings(error, ContextKind::ValidValue);
    let likely = strings(error, ContextKind::SuggestedValue);
    let allowed = match choices.is_empty() {
        true => argument(command, object).map_or_else(
            || "a value".to_owned(),
            |argument| value_names(argument).clone(),
        ),
        false => format!("one of {}", choices.join(", ")),
    };
    if value.is_empty() {
        return format!("{}: a value is missing; give {allowed}", name(object));
    }
    let hint = match likely.first() {
        Some(likely) => format!("; did you mean {likely}?"),
        None => String::new(),
    };
    format!(
        "{} {}: must be {allowed}{hint}",
        name(object),
        shown(&value)
    )
}

/// A word that begins with a minus and is no option, or a word too many.
fn unknown(error: &clap::Error, command: &Command, path: &str, object: &str) -> String {
    let likely = option_for(command, object).unwrap_or_else(|| {
        let near = likely_option(error, command, object);
        name(&near).to_owned()
    });
    let hint = match likely.is_empty() {
        true => String::new(),
        false => format!("; did you mean {likely}?"),
    };
    if object.starts_with('-') {
        return format!("{object}: {path} has no such option{hint}");
    }
    // A program and its arguments come after `--`.
    let (last, most): (Vec<_>, Vec<_>) =
        command.get_positionals().partition(|one| one.is_last_set());
    if let [program] = &last[..] {
        let program = value_names(program);
        return format!("{object}: one word too many; write -- before {program}");
    }
    let takes = match most.len() {
        0 => format!("{path} takes options only"),
        1 => format!("{path} takes one argument without an option"),
        more => format!("{path} takes {more} arguments without an option"),
    };
    format!("{object}: one word too many; {takes}{hint}")
}

/// The option that is meant: `--report` where other programs say `--out`, else the one of the nearest name.
fn likely_option(error: &clap::Error, command: &Command, object: &str) -> String {
    let has_report = command
        .get_arguments()
        .any(|one| one.get_long() == Some("report"));
    match has_report && matches!(object, "--out" | "--output" | "--output-dir" | "-o") {
        true => "--report".to_owned(),
        false => {
            let likely = text(error, ContextKind::SuggestedArg);
            // clap also suggests options that share letters alone, such as `--json` for `--sceonds`.
            let edits = strsim::damerau_levenshtein(name(object), name(&likely));
            match edits <= likely.len().div_ceil(3) {
                true => likely,
                false => String::new(),
            }
        }
    }
}

/// The option and the word, where a bare word is the name of a profile, of a claim or of a system, a target, or the file of a scenario.
fn option_for(command: &Command, word: &str) -> Option<String> {
    let has = |option: &str| {
        command
            .get_arguments()
            .any(|one| one.get_long() == Some(option))
    };
    let option = match () {
        () if word.ends_with(".toml") => "scenario",
        () if word.starts_with("sim:") || word.starts_with("verbs:") => "target",
        // A claim, or the system whose claims are meant.
        () if command.get_name() == "claims" && !word.starts_with('-') => {
            let rest = if word.contains('/') { "" } else { "/*" };
            return Some(format!("--only '{word}{rest}'"));
        }
        () if !(inputs::profile_names().0)()
            .iter()
            .any(|name| name == word) =>
        {
            return None;
        }
        // A hunt's profile is what real devices are like.
        () if command.get_name() == "hunt" => return Some(format!("--target sim:{word}")),
        () if has("profile-matrix") => "profile-matrix",
        () => "profile",
    };
    has(option).then(|| format!("--{option} {}", inputs::quoted(word)))
}

/// The commands of families that are called `name`, as ` or ` joins them.
fn of_families(command: &Command, path: &str, name: &str) -> Option<String> {
    let families = command.get_subcommands().filter(|one| !one.is_hide_set());
    let found = families.filter(|family| family.find_subcommand(name).is_some());
    let found = found.map(|family| format!("{path} {} {name}", family.get_name()));
    let found: Vec<String> = found.collect();
    (!found.is_empty()).then(|| found.join(" or "))
}

fn unknown_command(error: &clap::Error, command: &Command, path: &str, name: &str) -> String {
    if command.find_subcommand(name).is_some() {
        return format!("{name}: comes after its family; write {path} {name}");
    }
    let joined = || {
        let (family, rest) = name.split_once('-')?;
        command.find_subcommand(family)?.find_subcommand(rest)?;
        Some(format!("{path} {family} {rest}"))
    };
    let meant = of_families(command, path, name).or_else(joined);
    if let Some(meant) = meant.or_else(|| option_for(command, name)) {
        return format!("{name}: {path} has no such command; did you mean {meant}?");
    }
    // clap also suggests names that share letters alone, such as `explain` for `pipeline`.
    let likely = strings(error, ContextKind::SuggestedSubcommand);
    let likely = likely
        .iter()
        .rev()
        .find(|one| one.chars().next() == name.chars().next());
    let known = command.get_subcommands().filter(|one| !one.is_hide_set());
    let known: Vec<&str> = known.map(Command::get_name).collect();
    let hint = match likely {
        Some(likely) => format!("; did you mean {likely}?"),
        None if known.is_empty() => {
            return format!("{name}: stands before the command; write {path} {name}");
        }
        None if known.len() <= COMMANDS_MAX => format!("; must be one of {}", known.join(", ")),
        None => String::new(),
    };
    format!("{name}: {path} has no such command{hint}")
}

/// `isolane help sim`, as other programs take it.
fn help_word(words: &[String]) -> String {
    let others = words.iter().filter(|word| *word != "help");
    let asked: Vec<&str> = others.map(String::as_str).collect();
    let space = if asked.is_empty() { "" } else { " " };
    format!(
        "help: is no command; use isolane{space}{} --help",
        asked.join(" ")
    )
}

fn conflict(error: &clap::Error, object: &str) -> String {
    let others = strings(error, ContextKind::PriorArg);
    let others: Vec<&str> = others.iter().map(|one| name(one)).collect();
    match others.iter().all(|other| *other == name(object)) {
        true => format!("{}: is given twice; give it once", name(object)),
        false if name(object) == "--scenario" && others == ["VICTIM", "ATTACKER"] => {
            "--scenario and VICTIM, ATTACKER: do not go together; write --scenario FILE --victim NAME --attacker NAME".to_owned()
        }
        false => format!(
            "{} and {}: do not go together; drop one",
            name(object),
            others.join(", ")
        ),
    }
}

/// The option or argument that clap calls `object`, like `--seed <SEED>` or `<FILE>`.
fn argument<'a>(command: &'a Command, object: &str) -> Option<&'a Arg> {
    command
        .get_arguments()
        .find(|argument| argument.to_string() == object)
}

/// `, one of A, B`: what the argument called `needed` takes; empty for another than a few names.
fn choices(command: &Command, needed: &str) -> String {
    let known = command.get_arguments();
    let known = known.filter(|one| plain(&one.to_string()) == needed);
    let values = known.flat_map(Arg::get_possible_values);
    let names: Vec<String> = values.map(|value| value.get_name().to_owned()).collect();
    match (1..=CHOICES_MAX).contains(&names.len()) {
        true => format!(", one of {}", names.join(", ")),
        false => String::new(),
    }
}

/// Longer lists are left to the help.
const CHOICES_MAX: usize = 12;

/// `--seed` of `--seed <SEED>`; `FILE` of `<FILE>`.
fn name(object: &str) -> &str {
    let first = object.split([' ', '=']).next().unwrap_or(object);
    first.trim_matches(['<', '>', '[', ']', '.'])
}

/// `--seed SEED` of `--seed <SEED>`.
fn plain(object: &str) -> String {
    object.replace(['<', '>'], "")
}

/// A value as it was written; quoted where it has a space or is empty.
fn shown(value: &str) -> String {
    match value.is_empty() || value.contains(char::is_whitespace) {
        true => format!("{value:?}"),
        false => value.to_owned(),
    }
}

/// One string of the error's context; empty where there is none.
fn text(error: &clap::Error, kind: ContextKind) -> String {
    error
        .get(kind)
        .map_or_else(String::new, |value| match value {
            ContextValue::String(one) => one.clone(),
            ContextValue::Strings(all) => all.join(", "),
            other => other.to_string(),
        })
}

/// The strings of the error's context.
fn strings(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::Strings(all)) => all.clone(),
        Some(ContextValue::String(one)) => vec![one.clone()],
        _ => Vec::new(),
    }
}

/// The first paragraph of `text` on one line, without the word that clap begins with.
fn folded(text: &str) -> String {
    let first = text.split("\n\n").next().unwrap_or(text);
    let line = first.split_whitespace().collect::<Vec<_>>().join(" ");
    line.trim_start_matches("error: ").to_owned()
}

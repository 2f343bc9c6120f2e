//! Values of the command line in place of the text's.
//!
//! Method: a value is written below the text as a line of its own, parsed as TOML (or taken as text where it is none),
//! and put into the tree at its path; positions stay valid, so an error in a value shows the value, and names the
//! setting instead of a line. A path names tables by key and members of arrays by their `name` or position from 0:
//! `traffic.all.load`. One word is a parameter of the policy or the transport, or a key of the top level.

use super::FabricOverrides;
use crate::keys::{TOP, TRANSPORT};
use crate::model::{Congestion, FabricPolicyKind};
use crate::parameters;
use crate::parameters::{POLICY, spelled};
use isolane_common_toml_input::error::{InputError, Problem};
use isolane_common_toml_input::keys::Kind;
use isolane_common_toml_input::table::Source;
use std::borrow::Cow;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The text before a value in the line that is parsed.
const PREFIX: &str = "v = ";

/// Paths of names that have parameters of their own.
const NAMES: [&str; 3] = ["policy.name", "transport.congestion", "congestion"];

struct Setting {
    path: String,
    /// Spaces up to the line's place in the whole, and the line.
    padded: String,
    at: usize,
}

/// Settings, and the text that their positions belong to.
pub(super) struct Settings {
    file: String,
    text: String,
    lines: usize,
    list: Vec<Setting>,
}

impl Settings {
    /// Those of `overrides` for `text`.
    pub(super) fn new(text: &str, file: &str, overrides: &FabricOverrides) -> Self {
        let mut settings = Self {
            file: file.to_owned(),
            text: text.to_owned(),
            lines: text.lines().count().max(1),
            list: Vec::new(),
        };
        if overrides.is_empty() {
            return settings;
        }
        settings.text.push('\n');
        if let Some(seed) = overrides.seed {
            settings.add("seed", &seed.to_string());
        }
        if let Some(duration) = overrides.duration {
            settings.add("duration", &format!("{}ps", duration.as_ps()));
        }
        // Before the settings, which may be parameters of this policy.
        if let Some(policy) = &overrides.policy {
            settings.add("policy.name", policy);
        }
        for (path, value) in &overrides.settings {
            settings.add(path, value);
        }
        settings
    }

    fn add(&mut self, path: &str, value: &str) {
        let as_toml = format!("{PREFIX}{value}");
        let plain = DeTable::parse(&as_toml).is_ok_and(|tree| tree.get_ref().len() == 1);
        let line = match plain && !value.contains('\n') {
            true => as_toml,
            // A JSON string is a TOML string, but for a character that TOML forbids and JSON does not.
            false => {
                let text = value.replace('\u{7f}', " ");
                let quoted = serde_json::Value::String(text).to_string();
                format!("{PREFIX}{quoted}")
            }
        };
        let at = self.text.len();
        self.text.push_str(&line);
        self.text.push('\n');
        self.list.push(Setting {
            path: path.trim().to_owned(),
            padded: format!("{}{line}", " ".repeat(at)),
            at,
        });
    }

    /// The scenario's text with a line for each setting below it.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// `error`, with the name of the setting on whose line it is.
    pub(super) fn located(&self, mut error: InputError) -> InputError {
        let line = error.line.filter(|&line| line > self.lines);
        if let Some(line) = line {
            let source = Source {
                file: "",
                text: &self.text,
            };
            let setting = self.list.iter().find(|one| source.line(one.at) == line);
            if let Some(setting) = setting {
                error.line = None;
                error.file = format!("{} with {} set", self.file, setting.path);
            }
        }
        error
    }

    /// Puts every value into `tree`.
    pub(super) fn apply<'a>(&'a self, tree: &mut DeTable<'a>) -> Result<(), InputError> {
        // What names a policy or a control decides what single words mean.
        let names = |setting: &&Setting| NAMES.contains(&setting.path.as_str());
        let first = self.list.iter().filter(names);
        let others = self.list.iter().filter(|setting| !names(setting));
        for setting in first.chain(others) {
            let refuse = |problem: Problem| InputError {
                file: self.file.clone(),
                line: None,
                place: Some(format!("setting {}", setting.path)),
                problem: Box::new(problem),
            };
            let source = Source {
                file: &self.file,
                text: &setting.padded,
            };
            let mut value = source.tree().map_err(|error| refuse(*error.problem))?;
            let value = value.get_mut().remove("v").expect("the line has this key");
            let path = full_path(&setting.path, tree).map_err(refuse)?;
            if path == "policy.name" {
                forget_parameters(tree, value.get_ref().as_str());
            }
            put(tree, &path, value, setting.at).map_err(refuse)?;
        }
        Ok(())
    }
}

impl FabricOverrides {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Parameters belong to the policy that they are written for.
fn forget_parameters(tree: &mut DeTable<'_>, name: Option<&str>) {
    let Some(DeValue::Table(policy)) = tree.get_mut("policy").map(Spanned::get_mut) else {
        return;
    };
    let written = policy.get("name").and_then(|name| name.get_ref().as_str());
    if written.unwrap_or(POLICY[0]) != name.unwrap_or("") {
        policy.clear();
    }
}

/// `word` alone as the path of what it names.
fn full_path(word: &str, tree: &DeTable<'_>) -> Result<String, Problem> {
    if word.contains('.') {
        return Ok(word.to_owned());
    }
    let named = |table: &str, key: &str| {
        let table = tree.get(table).and_then(|value| value.get_ref().as_table());
        table.and_then(|table| table.get(key)?.get_ref().as_str())
    };
    let policy = named("policy", "name").and_then(spelled::<FabricPolicyKind>);
    let policy = parameters::policy(policy.unwrap_or(FabricPolicyKind::None));
    let congestion = named("transport", "congestion").and_then(spelled::<Congestion>);
    let congestion = parameters::congestion(congestion.unwrap_or(Congestion::Swift));
    if parameters::describe(policy, word).is_some() {
        return Ok(format!("policy.{word}"));
    }
    let own = TRANSPORT.iter().any(|key| key.name == word);
    if own || parameters::describe(congestion, word).is_some() {
        return Ok(format!("transport.{word}"));
    }
    let plain = TOP
        .iter()
        .filter(|key| !matches!(key.kind, Kind::Table | Kind::Tables))
        .map(|key| key.name);
    if plain.clone().any(|name| name == word) {
        return Ok(word.to_owned());
    }
    let known = policy
        .iter()
        .chain(congestion)
        .map(|parameter| parameter.name)
        .chain(TRANSPORT.iter().map(|key| key.name))
        .chain(plain);
    Err(Problem::UnknownKey {
        key: word.to_owned(),
        nearest: isolane_common_toml_input::error::nearest(word, known.clone()).map(str::to_owned),
        known: known.map(str::to_owned).collect(),
    })
}

fn put<'a>(
    tree: &mut DeTable<'a>,
    path: &str,
    value: Spanned<DeValue<'a>>,
    at: usize,
) -> Result<(), Problem> {
    let (key, rest) = match path.split_once('.') {
        Some((key, rest)) => (key, Some(rest)),
        None => (path, None),
    };
    let absent = |key: &str| Problem::Missing {
        key: key.to_owned(),
        expected: "a path is keys with dots between, like traffic.all.load".to_owned(),
    };
    if key.is_empty() {
        return Err(absent(path));
    }
    let Some(rest) = rest else {
        let key: Cow<'a, str> = Cow::Owned(key.to_owned());
        tree.remove(key.as_ref());
        tree.insert(Spanned::new(at..at, key), value);
        return Ok(());
    };
    if !tree.contains_key(key) {
        let table = Spanned::new(at..at, DeValue::Table(DeTable::new()));
        tree.insert(Spanned::new(at..at, Cow::Owned(key.to_owned())), table);
    }
    let below = tree.get_mut(key).expect("it was put there if it was not");
    match below.get_mut() {
        DeValue::Table(table) => put(table, rest, value, at),
        DeValue::Array(list) => {
            let (name, rest) = rest.split_once('.').ok_or_else(|| absent(path))?;
            let names: Vec<String> = list.iter().enumerate().map(member_name).collect();
            let index = names.iter().position(|one| one == name);
            let index = index.or_else(|| name.parse().ok().filter(|&index| index < names.len()));
            let Some(index) = index else {
                let names = names.iter().map(String::as_str);
                return Err(Problem::unknown_name(key, name, names));
            };
            let member = list.get_mut(index).expect("the index is one of the list's");
            match member.get_mut() {
                DeValue::Table(table) => put(table, rest, value, at),
                _ => Err(absent(path)),
            }
        }
        _ => Err(Problem::value(
            key,
            rest,
            "is no table: nothing can be set below it",
        )),
    }
}

fn member_name((index, value): (usize, &Spanned<DeValue<'_>>)) -> String {
    let name = value
        .get_ref()
        .as_table()
        .and_then(|table| table.get("name"));
    let name = name.and_then(|name| name.get_ref().as_str());
    name.map_or_else(|| index.to_string(), str::to_owned)
}

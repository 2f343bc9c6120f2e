//! What kind of file a text is, from its content, and the command that takes such a file.
//!
//! Limits: a kind is known by its top-level keys. A file with few keys, or with a mistake in its syntax, has no kind, and
//! the reader of the file says what is wrong.

use crate::inputs::{bad, quoted};
use anyhow::Result;
use isolane_common_toml_input::kind::{ScenarioKind, TopLevel};
use isolane_rdma_scenario::profile::Profile;
use serde_json::Value;

/// The kinds of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// A scenario: `isolane sim`.
    Scenario(ScenarioKind),
    /// The profile of an RDMA NIC: `--profile`.
    Profile,
    /// A port with its traffic and classes: `isolane net plan`.
    Port,
    /// Settings of a quota server.
    Quota,
    /// Settings of the admission library.
    Admission,
    /// An application with an objective for its memory: `isolane mem submit`.
    Application,
    /// The policy of an RDMA device: `isolane rdma plan`.
    DevicePolicy,
    /// What an application may request of an RDMA NIC: `isolane advise`.
    Restriction,
    /// A claim of a paper.
    Claim,
    /// A query, YAML: `isolane edge plan`.
    Query,
    /// Tiers and links, YAML: `isolane edge plan --infra`.
    Tiers,
    /// YAML of a kind that no command takes.
    Yaml,
    /// The plan of a query, JSON: `isolane edge run`.
    Plan,
    /// A hunt's result, JSON: `isolane fix`.
    Hunt,
    /// Points of a sweep, JSON: `isolane sweep --merge`.
    Sweep,
    /// The devices of a host, JSON: `isolane rdma plan --devices`.
    Devices,
    /// The result of a run, JSON.
    RunResult,
    /// JSON of a kind that no command takes.
    Json,
    /// A web page, such as a report.
    Page,
    /// Bytes that are not UTF-8 text.
    Binary,
    /// Nothing but white space.
    Empty,
}

/// The kind of file that a command takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Files of this kind pass.
    pub(crate) kind: fn(FileKind) -> bool,
    /// The kind in words, with the page that describes it.
    pub(crate) words: &'static str,
}

impl Wanted {
    /// Fails where the content of `file` is another kind of file.
    pub(crate) fn check(&self, content: &[u8], file: &str) -> Result<()> {
        match FileKind::of(content) {
            Some(kind) if !(self.kind)(kind) => Err(bad(format!(
                "{file}: is {}, and this command takes {}{}",
                kind.words(),
                self.words,
                kind.remedy(file)
            ))),
            _ => Ok(()),
        }
    }
}

impl FileKind {
    /// The kind of file with this content; `None` where the content does not say.
    pub(crate) fn of(content: &[u8]) -> Option<Self> {
        let Ok(text) = str::from_utf8(content) else {
            return Some(Self::Binary);
        };
        let begin = text.trim_start();
        if text.contains('\0') {
            return Some(Self::Binary);
        }
        if begin.is_empty() {
            return Some(Self::Empty);
        }
        if let Some(page) = begin.get(..9) {
            let page = page.to_ascii_lowercase();
            if page == "<!doctype" || page.starts_with("<html") {
                return Some(Self::Page);
            }
        }
        if begin.starts_with(['{', '['])
            && let Ok(value) = serde_json::from_str(begin)
        {
            return Some(of_json(&value));
        }
        match TopLevel::of(text) {
            Some(keys) => of_toml(text, &keys),
            None => of_yaml(text),
        }
    }

    pub(crate) fn words(self) -> String {
        let words = match self {
            Self::Scenario(kind) => return format!("a scenario of {}", kind.words()),
            Self::Profile => "the profile of an RDMA NIC",
            Self::Port => "a port with its traffic and classes",
            Self::Quota => "the settings of a quota server",
            Self::Admission => "the settings of the admission library",
            Self::Application => "an application with an objective for its memory",
            Self::DevicePolicy => "the policy of an RDMA device",
            Self::Restriction => "a list of what an application may request of an RDMA NIC",
            Self::Claim => "a claim of a paper",
            Self::Query => "an ML query",
            Self::Tiers => "a file of tiers and links",
            Self::Yaml => "YAML",
            Self::Plan => "the plan of an ML query",
            Self::Hunt => "the result of a hunt",
            Self::Sweep => "the result of a sweep",
            Self::Devices => "a list of devices",
            Self::RunResult => "the result of a run",
            Self::Json => "JSON of an unknown kind",
            Self::Page => "a web page",
            Self::Binary => "binary data",
            Self::Empty => "empty",
        };
        words.to_owned()
    }

    /// The command that takes `file`, or what to give instead of it; begins with a semicolon.
    fn remedy(self, file: &str) -> String {
        let file = quoted(file);
        let command = match self {
            Self::Scenario(_) => return format!("; run a scenario with isolane sim {file}"),
            Self::RunResult => {
                return "; give the file that the run was made from".to_owned();
            }
            Self::Profile => format!("isolane catalog profiles {file}"),
            Self::Port => format!("isolane net plan {file}"),
            Self::Quota => format!("isolane rpc quota serve {file}"),
            Self::Admission => format!("isolane rpc enforce {file}"),
            Self::Application => format!("isolane mem submit {file}"),
            Self::DevicePolicy => format!("isolane rdma plan {file}"),
            Self::Restriction => format!("isolane advise {file}"),
            Self::Claim => "isolane claims".to_owned(),
            Self::Query => format!("isolane edge plan {file} --infra TIERS"),
            Self::Tiers => format!("isolane edge plan QUERY --infra {file}"),
            Self::Plan => format!("isolane edge run {file}"),
            Self::Hunt => format!("isolane fix {file}"),
            Self::Sweep => format!("isolane sweep --merge {file}"),
            Self::Devices => format!("isolane rdma plan POLICY --devices {file}"),
            Self::Yaml | Self::Json | Self::Page | Self::Binary | Self::Empty => {
                return String::new();
            }
        };
        format!("; {command} takes the file")
    }
}

fn of_json(value: &Value) -> FileKind {
    let has = |key: &str| value.get(key).is_some();
    match () {
        () if value["format"] == "isolane-plan" => FileKind::Plan,
        () if has("searcher") && has("spent") => FileKind::Hunt,
        () if has("points") && has("digest") => FileKind::Sweep,
        () if has("devices") && has("rdma_controller") => FileKind::Devices,
        () if has("version") && (has("seed") || has("seeds")) => FileKind::RunResult,
        () => FileKind::Json,
    }
}

fn of_toml(text: &str, keys: &TopLevel<'_>) -> Option<FileKind> {
    let has = |name: &str| keys.has(name);
    let is_list = |name: &str| keys.is_list(name);
    if let Some(kind) = ScenarioKind::certain(text) {
        return Some(FileKind::Scenario(kind));
    }
    match () {
        () if keys.is_table("port") => Some(FileKind::Port),
        () if has("published") && has("metric") => Some(FileKind::Claim),
        () if (has("mode") || has("mtu_bytes")) && is_list("class") => Some(FileKind::Admission),
        () if has("listen") || is_list("group") && is_list("class") => Some(FileKind::Quota),
        () if has("type") && has("priority") => Some(FileKind::Application),
        () if is_list("tenant") && is_list("class") => Some(FileKind::DevicePolicy),
        () if has("service") || has("post_list") || has("memory_a") => Some(FileKind::Restriction),
        () if Profile::parse(text, "").is_ok() => Some(FileKind::Profile),
        () => None,
    }
}

/// By lines without indentation like `key: value`: this crate reads no YAML.
fn of_yaml(text: &str) -> Option<FileKind> {
    let lines = || text.lines().filter(|line| !line.trim().is_empty());
    let is_key = |line: &str| {
        let key = line
            .split_once(':')
            .map(|(key, rest)| (key, rest.chars().next()));
        key.is_some_and(|(key, next)| {
            let is_word = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
            !key.is_empty() && key.chars().all(is_word) && next.is_none_or(|next| next == ' ')
        })
    };
    let is_yaml = lines().all(|line| line.starts_with([' ', '#', '-', '}', ']']) || is_key(line));
    let has = |key: &str| lines().any(|line| line.starts_with(key));
    match is_yaml && lines().any(is_key) {
        true if has("query:") => Some(FileKind::Query),
        true if has("tiers:") => Some(FileKind::Tiers),
        true => Some(FileKind::Yaml),
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_decides_the_kind() {
        for (content, kind) in [
            ("[fabric]", Some(FileKind::Scenario(ScenarioKind::Network))),
            ("[port]\nrate = \"1Gb/s\"\n[[class]]", Some(FileKind::Port)),
            ("listen = \"127.0.0.1:1\"", Some(FileKind::Quota)),
            ("mode = \"shadow\"\n[[class]]", Some(FileKind::Admission)),
            (
                "type = \"ls\"\nmemory = \"1GiB\"\npriority = 1",
                Some(FileKind::Application),
            ),
            ("[[class]]\n[[tenant]]", Some(FileKind::DevicePolicy)),
            ("service = \"rc-write\"", Some(FileKind::Restriction)),
            (
                "version: 1\nquery: a\noperators:\n  - {}",
                Some(FileKind::Query),
            ),
            ("tiers:\n- {name: a}", Some(FileKind::Tiers)),
            ("apiVersion: v1\nkind: Pod", Some(FileKind::Yaml)),
            ("{\"format\": \"isolane-plan\"}", Some(FileKind::Plan)),
            ("{\"version\": 1, \"seed\": 1}", Some(FileKind::RunResult)),
            ("[1]", Some(FileKind::Json)),
            ("<!DOCTYPE html>", Some(FileKind::Page)),
            (" \n", Some(FileKind::Empty)),
            ("a\0b", Some(FileKind::Binary)),
            // A mistake in the syntax is for the reader of the file.
            ("[fabric", None),
            ("name = \"x\"", None),
            ("text", None),
        ] {
            assert_eq!(FileKind::of(content.as_bytes()), kind, "{content}");
        }
        assert_eq!(FileKind::of(&[0xff, 0xfe]), Some(FileKind::Binary));
    }
}

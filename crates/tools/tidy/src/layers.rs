//! Which crate may depend on which, and what every crate says of itself.
//!
//! `ROOMS` lists every arrow: one that it does not list is a breach, so a new arrow is a decision that a reviewer sees, and
//! one that no crate uses is a breach too. Development dependencies follow the same table, except that tests of every crate
//! that is not pure may use `common/linux`, which says what a machine lacks.

use crate::finding::{Finding, Rule};
use crate::rooms::{ROOMS, Room};
use crate::tree::Tree;
use std::collections::BTreeSet;

/// What pure crates may use of the world's crates: arithmetic, data and text only.
const PURE_DEPENDENCIES: [&str; 9] = [
    "libm",
    "rand_core",
    "rand_xoshiro",
    "schemars",
    "serde",
    "serde_json",
    "strsim",
    "thiserror",
    "toml",
];

/// What the tests of every crate that is not pure may use: `skip` is there.
const TESTS_MAY_USE: &str = "common/linux";

/// What turns the bans of `clippy.toml` on.
const PURE_ATTRIBUTE: &str =
    "#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]";

const FORBID_UNSAFE: &str = "#![forbid(unsafe_code)]";

/// What a crate with `unsafe` code says instead; clippy wants a SAFETY comment at each block.
const DENY_BARE_UNSAFE: &str = "#![deny(unsafe_op_in_unsafe_fn)]";

/// The layering rules over every crate, and the workspace's own lints.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for folder in folders(tree) {
        match ROOMS.iter().find(|room| room.folder == folder) {
            Some(room) => check_room(tree, room, &mut findings),
            None => findings.push(Finding::new(
                Rule::UnknownRoom,
                &manifest_path(&folder),
                1,
                format!("crate directory `{folder}` has no place in the layers"),
            )),
        }
    }
    check_workspace(tree, &mut findings);
    findings
}

fn folders(tree: &Tree) -> BTreeSet<String> {
    tree.files()
        .filter_map(|(path, _)| path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml"))
        .filter(|folder| folder.matches('/').count() == 1)
        .map(str::to_owned)
        .collect()
}

fn manifest_path(folder: &str) -> String {
    format!("crates/{folder}/Cargo.toml")
}

fn check_room(tree: &Tree, room: &Room, findings: &mut Vec<Finding>) {
    check_manifest(tree, room, findings);
    check_root(tree, room, findings);
}

fn check_manifest(tree: &Tree, room: &Room, findings: &mut Vec<Finding>) {
    let path = manifest_path(room.folder);
    let text = tree.text(&path).unwrap_or_default();
    let manifest: toml::Table = match text.parse() {
        Ok(manifest) => manifest,
        Err(error) => {
            let message = format!("not a TOML file: {}", error.message());
            findings.push(Finding::new(Rule::WorkspaceLints, &path, 1, message));
            return;
        }
    };
    let inherits_lints = manifest
        .get("lints")
        .and_then(|lints| lints.get("workspace"))
        .and_then(toml::Value::as_bool)
        == Some(true);
    if !inherits_lints {
        let message = "no `[lints] workspace = true`";
        findings.push(Finding::new(Rule::WorkspaceLints, &path, 1, message));
    }
    let mut used = BTreeSet::new();
    for section in ["dependencies", "build-dependencies", "dev-dependencies"] {
        let dependencies = manifest.get(section).and_then(toml::Value::as_table);
        for (name, value) in dependencies.into_iter().flatten() {
            let line = line_of_key(text, name);
            let mut report = |rule, message| {
                findings.push(Finding::new(rule, &path, line, message));
            };
            if value.get("workspace").and_then(toml::Value::as_bool) != Some(true) {
                let message = format!("`{name}` does not say `workspace = true`");
                report(Rule::LocalVersion, message);
            }
            let other = ROOMS.iter().find(|other| other.package() == *name);
            let ours = other.is_some();
            if let Some(other) = other {
                used.insert(other.folder);
                let is_for_tests = section == "dev-dependencies"
                    && other.folder == TESTS_MAY_USE
                    && !room.kind.is_pure();
                if !room.may_use.contains(&other.folder) && !is_for_tests {
                    let message = format!("`{}` must not depend on `{name}`", room.package());
                    report(Rule::UpwardDependency, message);
                }
            }
            let foreign = !ours && section != "dev-dependencies";
            if room.kind.is_pure() && foreign && !PURE_DEPENDENCIES.contains(&name.as_str()) {
                let message = format!("pure crate `{}` depends on `{name}`", room.package());
                report(Rule::PureDependency, message);
            }
        }
    }
    for arrow in room.may_use.iter().filter(|arrow| !used.contains(*arrow)) {
        let message = format!(
            "the table lets `{}` use `{arrow}`, and it does not",
            room.package()
        );
        findings.push(Finding::new(Rule::UnusedArrow, &path, 1, message));
    }
}

fn check_root(tree: &Tree, room: &Room, findings: &mut Vec<Finding>) {
    for file in ["lib.rs", "main.rs"] {
        let path = format!("crates/{}/src/{file}", room.folder);
        let Some(text) = tree.text(&path) else {
            continue;
        };
        let says = |attribute: &str| text.lines().any(|line| line.trim() == attribute);
        if room.kind.is_pure() && !says(PURE_ATTRIBUTE) {
            let message = format!("pure crate without `{PURE_ATTRIBUTE}`");
            findings.push(Finding::new(Rule::PureAttribute, &path, 1, message));
        }
        let guard = match room.kind.may_unsafe() {
            true => DENY_BARE_UNSAFE,
            false => FORBID_UNSAFE,
        };
        if !says(guard) {
            let message = format!("crate root without `{guard}`");
            findings.push(Finding::new(Rule::ForbidUnsafe, &path, 1, message));
        }
    }
}

/// Lints that the workspace must not lose, each with the levels that keep it.
const WORKSPACE_LINTS: [(&str, &str, &[&str]); 5] = [
    ("rust", "missing_docs", &["warn", "deny"]),
    ("rust", "unsafe_code", &["deny", "forbid"]),
    ("clippy", "unwrap_used", &["warn", "deny"]),
    ("clippy", "todo", &["deny"]),
    ("clippy", "unimplemented", &["deny"]),
];

fn check_workspace(tree: &Tree, findings: &mut Vec<Finding>) {
    const PATH: &str = "Cargo.toml";
    let text = tree.text(PATH).unwrap_or_default();
    let manifest: toml::Table = text.parse().unwrap_or_default();
    let lints = manifest
        .get("workspace")
        .and_then(|workspace| workspace.get("lints"));
    for (tool, lint, levels) in WORKSPACE_LINTS {
        let level = lints
            .and_then(|lints| lints.get(tool)?.get(lint))
            .and_then(toml::Value::as_str)
            .unwrap_or("absent");
        if !levels.contains(&level) {
            let message = format!("workspace lint {tool}::{lint} is {level}, not {levels:?}");
            let line = line_of_key(text, lint);
            findings.push(Finding::new(Rule::WorkspaceLints, PATH, line, message));
        }
    }
}

/// The line on which a table's `key` begins; 1 when it is not found.
fn line_of_key(text: &str, key: &str) -> usize {
    let is_key = |line: &str| {
        line.trim_start()
            .strip_prefix(key)
            .is_some_and(|rest| rest.trim_start().starts_with(['=', '.']))
    };
    text.lines().position(is_key).map_or(1, |index| index + 1)
}

//! Which crate may depend on which, and what every crate says of itself.
//!
//! [`ROOMS`] is the table of `ARCHITECTURE.md` as data: an arrow that it does not list is a breach, so a new arrow
//! is a decision that a reviewer sees. Development dependencies follow the same table.

use crate::finding::{Finding, Rule};
use crate::tree::Tree;
use std::collections::BTreeSet;

/// A crate and its place.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Folder below `crates/`.
    pub folder: &'static str,
    /// Name of the package.
    pub package: &'static str,
    /// Takes time, randomness and input as arguments.
    pub pure: bool,
    /// May hold `unsafe` code, because it speaks to the processor, the kernel, a foreign ABI or through shared memory.
    pub may_unsafe: bool,
    /// Workspace packages it may depend on, each one listed above it.
    pub may_use: &'static [&'static str],
}

/// Every crate, from the bottom up.
pub const ROOMS: &[Room] = &[
    Room {
        folder: "ahead",
        package: "isolane-ahead",
        pure: true,
        may_unsafe: true,
        may_use: &[],
    },
    Room {
        folder: "core",
        package: "isolane-core",
        pure: true,
        may_unsafe: false,
        may_use: &[],
    },
    Room {
        folder: "proto",
        package: "isolane-proto",
        pure: false,
        may_unsafe: true,
        may_use: &[],
    },
    Room {
        folder: "verbs-sys",
        package: "isolane-verbs-sys",
        pure: false,
        may_unsafe: true,
        may_use: &[],
    },
    Room {
        folder: "scenario",
        package: "isolane-scenario",
        pure: true,
        may_unsafe: false,
        may_use: &["isolane-core"],
    },
    Room {
        folder: "host",
        package: "isolane-host",
        pure: false,
        may_unsafe: true,
        may_use: &["isolane-core", "isolane-scenario"],
    },
    Room {
        folder: "verbs",
        package: "isolane-verbs",
        pure: false,
        may_unsafe: true,
        may_use: &[
            "isolane-core",
            "isolane-scenario",
            "isolane-verbs-sys",
            "isolane-host",
        ],
    },
    Room {
        folder: "shim",
        package: "isolane-shim",
        pure: false,
        may_unsafe: true,
        may_use: &["isolane-core", "isolane-proto", "isolane-verbs-sys"],
    },
    Room {
        folder: "ebpf",
        package: "isolane-ebpf",
        pure: false,
        may_unsafe: true,
        may_use: &["isolane-core"],
    },
    Room {
        folder: "nic",
        package: "isolane-nic",
        pure: false,
        may_unsafe: false,
        may_use: &[
            "isolane-core",
            "isolane-scenario",
            "isolane-ebpf",
            "isolane-host",
        ],
    },
    Room {
        folder: "mem",
        package: "isolane-mem",
        pure: false,
        may_unsafe: true,
        may_use: &["isolane-core", "isolane-scenario", "isolane-host"],
    },
    Room {
        folder: "enforce",
        package: "isolane-enforce",
        pure: false,
        may_unsafe: true,
        may_use: &[
            "isolane-core",
            "isolane-scenario",
            "isolane-proto",
            "isolane-verbs-sys",
            "isolane-host",
        ],
    },
    Room {
        folder: "daemon",
        package: "isolaned",
        pure: false,
        may_unsafe: false,
        may_use: &[
            "isolane-core",
            "isolane-scenario",
            "isolane-proto",
            "isolane-verbs-sys",
            // Only in tests: applications that run the shim are killed, and held to an enforcer's limits.
            "isolane-shim",
            "isolane-enforce",
            "isolane-host",
            "isolane-nic",
            "isolane-mem",
        ],
    },
    Room {
        folder: "soft-nic",
        package: "isolane-soft-nic",
        pure: false,
        may_unsafe: true,
        may_use: &[
            "isolane-core",
            "isolane-scenario",
            "isolane-host",
            "isolane-ebpf",
        ],
    },
    Room {
        folder: "sim",
        package: "isolane-sim",
        pure: true,
        may_unsafe: false,
        may_use: &["isolane-ahead", "isolane-core", "isolane-scenario"],
    },
    Room {
        folder: "fabric",
        package: "isolane-fabric",
        pure: true,
        may_unsafe: false,
        may_use: &["isolane-core", "isolane-scenario", "isolane-sim"],
    },
    Room {
        folder: "nic-sim",
        package: "isolane-nic-sim",
        pure: true,
        may_unsafe: false,
        may_use: &["isolane-core", "isolane-scenario", "isolane-sim"],
    },
    Room {
        folder: "mem-sim",
        package: "isolane-mem-sim",
        pure: true,
        may_unsafe: false,
        may_use: &["isolane-core", "isolane-scenario"],
    },
    Room {
        folder: "rpc",
        package: "isolane-rpc",
        pure: false,
        may_unsafe: true,
        may_use: &["isolane-core", "isolane-scenario", "isolane-host"],
    },
    Room {
        folder: "testbed",
        package: "isolane-testbed",
        pure: false,
        may_unsafe: false,
        may_use: &[
            "isolane-core",
            "isolane-scenario",
            "isolane-sim",
            "isolane-fabric",
        ],
    },
    Room {
        folder: "verbs-testbed",
        package: "isolane-verbs-testbed",
        pure: false,
        may_unsafe: false,
        may_use: &[
            "isolane-core",
            "isolane-scenario",
            "isolane-testbed",
            "isolane-proto",
            "isolane-host",
            "isolane-verbs",
        ],
    },
    Room {
        folder: "audit",
        package: "isolane-audit",
        pure: false,
        may_unsafe: false,
        may_use: &["isolane-core", "isolane-scenario", "isolane-testbed"],
    },
    Room {
        folder: "hunt",
        package: "isolane-hunt",
        pure: false,
        may_unsafe: false,
        may_use: &[
            "isolane-core",
            "isolane-scenario",
            "isolane-testbed",
            "isolane-audit",
        ],
    },
    Room {
        folder: "recommend",
        package: "isolane-recommend",
        pure: false,
        may_unsafe: false,
        may_use: &[
            "isolane-core",
            "isolane-scenario",
            "isolane-testbed",
            "isolane-audit",
        ],
    },
    Room {
        folder: "explain",
        package: "isolane-explain",
        pure: false,
        may_unsafe: false,
        may_use: &[
            "isolane-core",
            "isolane-scenario",
            "isolane-sim",
            "isolane-testbed",
            "isolane-audit",
        ],
    },
    Room {
        folder: "claims",
        package: "isolane-claims",
        pure: false,
        may_unsafe: false,
        may_use: &[
            "isolane-core",
            "isolane-scenario",
            "isolane-sim",
            "isolane-fabric",
            "isolane-nic-sim",
            "isolane-mem-sim",
            "isolane-testbed",
            "isolane-audit",
        ],
    },
    Room {
        folder: "calibrate",
        package: "isolane-calibrate",
        pure: false,
        may_unsafe: false,
        may_use: &[
            "isolane-core",
            "isolane-scenario",
            "isolane-testbed",
            "isolane-claims",
        ],
    },
    Room {
        folder: "report",
        package: "isolane-report",
        pure: false,
        may_unsafe: false,
        may_use: &[
            "isolane-scenario",
            "isolane-audit",
            "isolane-hunt",
            "isolane-recommend",
            "isolane-explain",
            "isolane-claims",
        ],
    },
    Room {
        folder: "python",
        package: "isolane-python",
        pure: false,
        may_unsafe: true,
        may_use: &["isolane-rpc"],
    },
    Room {
        folder: "rpc-lab",
        package: "isolane-rpc-lab",
        pure: false,
        may_unsafe: false,
        may_use: &[
            "isolane-core",
            "isolane-scenario",
            "isolane-rpc",
            "isolane-host",
        ],
    },
    Room {
        folder: "cli",
        package: "isolane",
        pure: false,
        may_unsafe: false,
        may_use: &[
            "isolane-core",
            "isolane-scenario",
            "isolane-sim",
            "isolane-fabric",
            "isolane-nic-sim",
            "isolane-mem-sim",
            "isolane-testbed",
            "isolane-audit",
            "isolane-hunt",
            "isolane-recommend",
            "isolane-explain",
            "isolane-claims",
            "isolane-calibrate",
            "isolane-report",
            "isolane-proto",
            "isolane-verbs-sys",
            "isolane-host",
            "isolane-verbs",
            "isolane-verbs-testbed",
            "isolaned",
            "isolane-enforce",
            "isolane-rpc",
            "isolane-rpc-lab",
            "isolane-nic",
            "isolane-mem",
            "isolane-soft-nic",
        ],
    },
    Room {
        folder: "tidy",
        package: "isolane-tidy",
        pure: false,
        may_unsafe: false,
        may_use: &[],
    },
];

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
                format!("crate folder `{folder}` has no place in the layers"),
            )),
        }
    }
    check_workspace(tree, &mut findings);
    findings
}

fn folders(tree: &Tree) -> BTreeSet<String> {
    tree.files()
        .filter_map(|(path, _)| path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml"))
        .filter(|folder| !folder.contains('/'))
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
            let ours = ROOMS.iter().any(|other| other.package == name);
            if ours && !room.may_use.contains(&name.as_str()) {
                let message = format!("`{}` must not depend on `{name}`", room.package);
                report(Rule::UpwardDependency, message);
            }
            let foreign = !ours && section != "dev-dependencies";
            if room.pure && foreign && !PURE_DEPENDENCIES.contains(&name.as_str()) {
                let message = format!("pure crate `{}` depends on `{name}`", room.package);
                report(Rule::PureDependency, message);
            }
        }
    }
}

fn check_root(tree: &Tree, room: &Room, findings: &mut Vec<Finding>) {
    for file in ["lib.rs", "main.rs"] {
        let path = format!("crates/{}/src/{file}", room.folder);
        let Some(text) = tree.text(&path) else {
            continue;
        };
        let says = |attribute: &str| text.lines().any(|line| line.trim() == attribute);
        if room.pure && !says(PURE_ATTRIBUTE) {
            let message = format!("pure crate without `{PURE_ATTRIBUTE}`");
            findings.push(Finding::new(Rule::PureAttribute, &path, 1, message));
        }
        let guard = match room.may_unsafe {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arrow_of_the_table_points_down() {
        for (index, room) in ROOMS.iter().enumerate() {
            for package in room.may_use {
                let lower = ROOMS[..index].iter().any(|other| other.package == *package);
                assert!(lower, "{} -> {package}", room.package);
            }
        }
    }

    #[test]
    fn pure_rooms_use_pure_rooms_only() {
        for room in ROOMS.iter().filter(|room| room.pure) {
            for package in room.may_use {
                let used = ROOMS.iter().find(|other| other.package == *package);
                assert!(
                    used.is_some_and(|used| used.pure),
                    "{} -> {package}",
                    room.package
                );
            }
        }
    }
}

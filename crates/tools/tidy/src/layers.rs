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
    /// Folder below `crates/`: the wing and the room.
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
        folder: "common/linux",
        package: "isolane-common-linux",
        pure: false,
        may_unsafe: true,
        may_use: &[],
    },
    Room {
        folder: "common/quantities",
        package: "isolane-common-quantities",
        pure: true,
        may_unsafe: false,
        may_use: &[],
    },
    Room {
        folder: "common/events",
        package: "isolane-common-events",
        pure: true,
        may_unsafe: true,
        may_use: &["isolane-common-quantities"],
    },
    Room {
        folder: "common/text-output",
        package: "isolane-common-text-output",
        pure: true,
        may_unsafe: false,
        may_use: &[],
    },
    Room {
        folder: "common/toml-input",
        package: "isolane-common-toml-input",
        pure: true,
        may_unsafe: false,
        may_use: &["isolane-common-quantities"],
    },
    Room {
        folder: "rdma/inventory",
        package: "isolane-rdma-inventory",
        pure: false,
        may_unsafe: true,
        may_use: &["isolane-common-linux"],
    },
    Room {
        folder: "rdma/policy",
        package: "isolane-rdma-policy",
        pure: true,
        may_unsafe: false,
        may_use: &["isolane-common-quantities"],
    },
    Room {
        folder: "rdma/session",
        package: "isolane-rdma-session",
        pure: false,
        may_unsafe: true,
        may_use: &[],
    },
    Room {
        folder: "rdma/verbs-sys",
        package: "isolane-rdma-verbs-sys",
        pure: false,
        may_unsafe: true,
        may_use: &[],
    },
    Room {
        folder: "rdma/preload",
        package: "isolane-rdma-preload",
        pure: false,
        may_unsafe: true,
        may_use: &["isolane-rdma-session", "isolane-rdma-verbs-sys"],
    },
    Room {
        folder: "network/scenario",
        package: "isolane-network-scenario",
        pure: true,
        may_unsafe: false,
        may_use: &["isolane-common-quantities", "isolane-common-toml-input"],
    },
    Room {
        folder: "rdma/scenario",
        package: "isolane-rdma-scenario",
        pure: true,
        may_unsafe: false,
        may_use: &[
            "isolane-common-quantities",
            "isolane-common-toml-input",
            "isolane-network-scenario",
        ],
    },
    Room {
        folder: "rdma/enforcer",
        package: "isolane-rdma-enforcer",
        pure: false,
        may_unsafe: true,
        may_use: &[
            "isolane-common-linux",
            "isolane-common-quantities",
            "isolane-rdma-inventory",
            "isolane-rdma-policy",
            "isolane-rdma-session",
            "isolane-rdma-scenario",
        ],
    },
    Room {
        folder: "rdma/traffic",
        package: "isolane-rdma-traffic",
        pure: false,
        may_unsafe: true,
        may_use: &[
            "isolane-common-quantities",
            "isolane-rdma-verbs-sys",
            "isolane-rdma-scenario",
        ],
    },
    Room {
        folder: "rpc/policy",
        package: "isolane-rpc-policy",
        pure: true,
        may_unsafe: false,
        may_use: &["isolane-common-quantities"],
    },
    Room {
        folder: "rpc/library",
        package: "isolane-rpc-library",
        pure: false,
        may_unsafe: true,
        may_use: &[
            "isolane-common-linux",
            "isolane-common-quantities",
            "isolane-common-toml-input",
            "isolane-rpc-policy",
        ],
    },
    Room {
        folder: "rpc/demo",
        package: "isolane-rpc-demo",
        pure: false,
        may_unsafe: false,
        may_use: &[
            "isolane-common-linux",
            "isolane-common-quantities",
            "isolane-rpc-policy",
            "isolane-rpc-library",
        ],
    },
    Room {
        folder: "rpc/python",
        package: "isolane-rpc-python",
        pure: false,
        may_unsafe: true,
        may_use: &["isolane-rpc-library"],
    },
    Room {
        folder: "ethernet/policy",
        package: "isolane-ethernet-policy",
        pure: true,
        may_unsafe: false,
        may_use: &["isolane-common-quantities"],
    },
    Room {
        folder: "ethernet/bpf",
        package: "isolane-ethernet-bpf",
        pure: false,
        may_unsafe: true,
        may_use: &["isolane-ethernet-policy"],
    },
    Room {
        folder: "ethernet/attach",
        package: "isolane-ethernet-attach",
        pure: false,
        may_unsafe: false,
        may_use: &[
            "isolane-common-linux",
            "isolane-common-quantities",
            "isolane-ethernet-policy",
            "isolane-ethernet-bpf",
        ],
    },
    Room {
        folder: "ethernet/scenario",
        package: "isolane-ethernet-scenario",
        pure: true,
        may_unsafe: false,
        may_use: &[
            "isolane-common-quantities",
            "isolane-common-toml-input",
            "isolane-ethernet-policy",
        ],
    },
    Room {
        folder: "memory/policy",
        package: "isolane-memory-policy",
        pure: true,
        may_unsafe: false,
        may_use: &["isolane-common-quantities"],
    },
    Room {
        folder: "memory/scenario",
        package: "isolane-memory-scenario",
        pure: true,
        may_unsafe: false,
        may_use: &[
            "isolane-common-quantities",
            "isolane-common-toml-input",
            "isolane-memory-policy",
        ],
    },
    Room {
        folder: "memory/service",
        package: "isolane-memory-service",
        pure: false,
        may_unsafe: true,
        may_use: &[
            "isolane-common-linux",
            "isolane-common-quantities",
            "isolane-common-toml-input",
            "isolane-rdma-inventory",
            "isolane-memory-policy",
        ],
    },
    Room {
        folder: "rdma/daemon",
        package: "isolaned",
        pure: false,
        may_unsafe: false,
        may_use: &[
            "isolane-common-linux",
            "isolane-common-quantities",
            "isolane-common-toml-input",
            "isolane-rdma-policy",
            "isolane-rdma-session",
            "isolane-rdma-verbs-sys",
            "isolane-rdma-preload",
            "isolane-rdma-enforcer",
            "isolane-ethernet-attach",
            "isolane-memory-service",
        ],
    },
    Room {
        folder: "study/results",
        package: "isolane-study-results",
        pure: true,
        may_unsafe: false,
        may_use: &[
            "isolane-common-quantities",
            "isolane-rdma-scenario",
            "isolane-ethernet-scenario",
        ],
    },
    Room {
        folder: "rdma/simulator",
        package: "isolane-rdma-simulator",
        pure: true,
        may_unsafe: false,
        may_use: &[
            "isolane-common-quantities",
            "isolane-common-events",
            "isolane-rdma-policy",
            "isolane-rdma-scenario",
            "isolane-study-results",
        ],
    },
    Room {
        folder: "network/simulator",
        package: "isolane-network-simulator",
        pure: true,
        may_unsafe: false,
        may_use: &[
            "isolane-common-quantities",
            "isolane-common-events",
            "isolane-network-scenario",
            "isolane-rdma-scenario",
            "isolane-rpc-policy",
            "isolane-study-results",
            "isolane-rdma-simulator",
        ],
    },
    Room {
        folder: "ethernet/simulator",
        package: "isolane-ethernet-simulator",
        pure: true,
        may_unsafe: false,
        may_use: &[
            "isolane-common-quantities",
            "isolane-common-events",
            "isolane-ethernet-policy",
            "isolane-ethernet-scenario",
            "isolane-study-results",
        ],
    },
    Room {
        folder: "ethernet/software-card",
        package: "isolane-ethernet-software-card",
        pure: false,
        may_unsafe: true,
        may_use: &[
            "isolane-common-linux",
            "isolane-common-quantities",
            "isolane-ethernet-policy",
            "isolane-ethernet-bpf",
            "isolane-ethernet-scenario",
            "isolane-study-results",
        ],
    },
    Room {
        folder: "memory/simulator",
        package: "isolane-memory-simulator",
        pure: true,
        may_unsafe: false,
        may_use: &[
            "isolane-common-quantities",
            "isolane-memory-policy",
            "isolane-memory-scenario",
            "isolane-study-results",
        ],
    },
    Room {
        folder: "study/testbed",
        package: "isolane-study-testbed",
        pure: false,
        may_unsafe: false,
        may_use: &[
            "isolane-common-quantities",
            "isolane-rdma-scenario",
            "isolane-study-results",
        ],
    },
    Room {
        folder: "study/testbed-simulator",
        package: "isolane-study-testbed-simulator",
        pure: false,
        may_unsafe: false,
        may_use: &[
            "isolane-common-quantities",
            "isolane-rdma-scenario",
            "isolane-study-results",
            "isolane-rdma-simulator",
            "isolane-network-simulator",
            "isolane-study-testbed",
        ],
    },
    Room {
        folder: "study/audit",
        package: "isolane-study-audit",
        pure: false,
        may_unsafe: false,
        may_use: &[
            "isolane-common-quantities",
            "isolane-common-text-output",
            "isolane-common-toml-input",
            "isolane-rdma-policy",
            "isolane-rdma-scenario",
            "isolane-study-results",
            "isolane-study-testbed",
            "isolane-study-testbed-simulator",
        ],
    },
    Room {
        folder: "study/claims",
        package: "isolane-study-claims",
        pure: false,
        may_unsafe: false,
        may_use: &[
            "isolane-common-quantities",
            "isolane-common-text-output",
            "isolane-common-toml-input",
            "isolane-rdma-policy",
            "isolane-network-scenario",
            "isolane-rdma-scenario",
            "isolane-rpc-policy",
            "isolane-ethernet-scenario",
            "isolane-memory-scenario",
            "isolane-study-results",
            "isolane-rdma-simulator",
            "isolane-network-simulator",
            "isolane-ethernet-simulator",
            "isolane-memory-simulator",
            "isolane-study-testbed",
            "isolane-study-testbed-simulator",
            "isolane-study-audit",
        ],
    },
    Room {
        folder: "study/calibrate",
        package: "isolane-study-calibrate",
        pure: false,
        may_unsafe: false,
        may_use: &[
            "isolane-common-toml-input",
            "isolane-rdma-scenario",
            "isolane-study-results",
            "isolane-study-testbed",
            "isolane-study-testbed-simulator",
            "isolane-study-claims",
        ],
    },
    Room {
        folder: "study/explain",
        package: "isolane-study-explain",
        pure: false,
        may_unsafe: false,
        may_use: &[
            "isolane-common-quantities",
            "isolane-rdma-scenario",
            "isolane-study-results",
            "isolane-rdma-simulator",
            "isolane-study-testbed",
            "isolane-study-testbed-simulator",
            "isolane-study-audit",
        ],
    },
    Room {
        folder: "study/hunt",
        package: "isolane-study-hunt",
        pure: false,
        may_unsafe: false,
        may_use: &[
            "isolane-common-quantities",
            "isolane-common-text-output",
            "isolane-common-toml-input",
            "isolane-rdma-scenario",
            "isolane-study-results",
            "isolane-study-testbed",
            "isolane-study-testbed-simulator",
            "isolane-study-audit",
        ],
    },
    Room {
        folder: "study/recommend",
        package: "isolane-study-recommend",
        pure: false,
        may_unsafe: false,
        may_use: &[
            "isolane-common-quantities",
            "isolane-common-text-output",
            "isolane-rdma-scenario",
            "isolane-study-results",
            "isolane-study-testbed",
            "isolane-study-audit",
        ],
    },
    Room {
        folder: "study/testbed-verbs",
        package: "isolane-study-testbed-verbs",
        pure: false,
        may_unsafe: false,
        may_use: &[
            "isolane-common-linux",
            "isolane-common-quantities",
            "isolane-common-toml-input",
            "isolane-rdma-inventory",
            "isolane-rdma-scenario",
            "isolane-rdma-traffic",
            "isolane-study-results",
            "isolane-study-testbed",
            "isolane-study-testbed-simulator",
        ],
    },
    Room {
        folder: "app/report",
        package: "isolane-app-report",
        pure: false,
        may_unsafe: false,
        may_use: &[
            "isolane-network-scenario",
            "isolane-rdma-scenario",
            "isolane-ethernet-scenario",
            "isolane-study-results",
            "isolane-study-audit",
            "isolane-study-explain",
            "isolane-study-hunt",
            "isolane-study-recommend",
        ],
    },
    Room {
        folder: "app/cli",
        package: "isolane",
        pure: false,
        may_unsafe: false,
        may_use: &[
            "isolane-common-linux",
            "isolane-common-quantities",
            "isolane-common-text-output",
            "isolane-common-toml-input",
            "isolane-rdma-inventory",
            "isolane-rdma-session",
            "isolane-network-scenario",
            "isolane-rdma-scenario",
            "isolane-rdma-enforcer",
            "isolane-rdma-traffic",
            "isolane-rpc-policy",
            "isolane-rpc-library",
            "isolane-rpc-demo",
            "isolane-ethernet-attach",
            "isolane-ethernet-scenario",
            "isolane-memory-policy",
            "isolane-memory-scenario",
            "isolane-memory-service",
            "isolaned",
            "isolane-study-results",
            "isolane-network-simulator",
            "isolane-ethernet-simulator",
            "isolane-ethernet-software-card",
            "isolane-memory-simulator",
            "isolane-study-testbed",
            "isolane-study-testbed-simulator",
            "isolane-study-audit",
            "isolane-study-claims",
            "isolane-study-calibrate",
            "isolane-study-explain",
            "isolane-study-hunt",
            "isolane-study-recommend",
            "isolane-study-testbed-verbs",
            "isolane-app-report",
        ],
    },
    Room {
        folder: "tools/tidy",
        package: "isolane-tools-tidy",
        pure: false,
        may_unsafe: false,
        may_use: &["isolane-common-quantities"],
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

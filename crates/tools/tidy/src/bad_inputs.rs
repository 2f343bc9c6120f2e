//! Each rule on a small input that breaches it: a check that cannot fail is a defect.

use crate::check;
use crate::diagram;
use crate::finding::Rule;
use crate::tree::Tree;
use expect_test::{Expect, expect};

/// A tree that keeps every rule.
const GOOD: &[(&str, &str)] = &[
    ("Cargo.toml", GOOD_WORKSPACE),
    ("crates/common/quantities/Cargo.toml", GOOD_MANIFEST),
    ("crates/common/quantities/src/lib.rs", GOOD_ROOT),
    ("CHANGELOG.md", "## [Unreleased]\n"),
    ("Makefile", "test:\n\tcargo test\n"),
    ("README.md", "# Title\n`make test` [below](#title)\n"),
];

const GOOD_WORKSPACE: &str = "\
[workspace.lints.rust]
missing_docs = \"warn\"
unsafe_code = \"deny\"
[workspace.lints.clippy]
unwrap_used = \"warn\"
todo = \"deny\"
unimplemented = \"deny\"
";

const GOOD_MANIFEST: &str = "\
[lints]
workspace = true
[dependencies]
serde.workspace = true
";

const GOOD_ROOT: &str = "\
//! A module.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]
#![forbid(unsafe_code)]
";

/// The good tree with these files put in place of its own.
fn tree_with(files: &[(&str, &str)]) -> Tree {
    let kept = GOOD
        .iter()
        .filter(|(path, _)| files.iter().all(|(other, _)| other != path));
    let mut all: Vec<(&str, &str)> = kept.chain(files).copied().collect();
    let architecture = format!("{}{}{}", diagram::BEGIN, diagram::text(), diagram::END);
    if files.iter().all(|(path, _)| *path != "ARCHITECTURE.md") {
        all.push(("ARCHITECTURE.md", &architecture));
    }
    Tree::from_files(&all)
}

/// Findings as text, without the reasons.
fn check_with(files: &[(&str, &str)], expected: Expect) {
    let lines = check(&tree_with(files)).into_iter().map(|finding| {
        let rule = finding.rule.name();
        format!(
            "{}:{} {rule}: {}\n",
            finding.path, finding.line, finding.message
        )
    });
    expected.assert_eq(&lines.collect::<String>());
}

/// A rule, and files that breach it.
type Breach = (Rule, Vec<(&'static str, &'static str)>);

fn breaches() -> Vec<Breach> {
    [rooms(), sources(), documents()].concat()
}

/// Breaches of the rules of manifests and modules.
fn rooms() -> Vec<Breach> {
    let manifest = |text| vec![("crates/common/quantities/Cargo.toml", text)];
    vec![
        (
            Rule::UpwardDependency,
            manifest(
                "[lints]\nworkspace = true\n[dev-dependencies]\nisolane-rdma-simulator.workspace = true\n",
            ),
        ),
        (
            Rule::Circle,
            vec![
                (
                    "crates/common/quantities/src/lib.rs",
                    "//! A.\n#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]\n\
                     #![forbid(unsafe_code)]\nmod a;\nmod b;\nmod c;\n",
                ),
                (
                    "crates/common/quantities/src/a.rs",
                    "//! A.\nuse crate::b;\n",
                ),
                (
                    "crates/common/quantities/src/b.rs",
                    "//! B.\nuse crate::c;\n",
                ),
                (
                    "crates/common/quantities/src/c.rs",
                    "//! C.\nuse super::a;\n",
                ),
            ],
        ),
        (
            Rule::NoCaller,
            vec![
                (
                    "crates/common/quantities/src/lib.rs",
                    "//! A.\n#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]\n\
                     #![forbid(unsafe_code)]\nmod a;\n",
                ),
                (
                    "crates/common/quantities/src/a.rs",
                    "//! A.\npub fn alone() {}\n",
                ),
            ],
        ),
        (
            Rule::UnusedArrow,
            vec![(
                "crates/common/toml-input/Cargo.toml",
                "[lints]\nworkspace = true\n",
            )],
        ),
        (Rule::UnknownRoom, vec![("crates/new/room/Cargo.toml", "")]),
        (
            Rule::PureDependency,
            manifest("[lints]\nworkspace = true\n[dependencies]\nrayon.workspace = true\n"),
        ),
        (
            Rule::LocalVersion,
            manifest("[lints]\nworkspace = true\n[dependencies]\nserde = \"1\"\n"),
        ),
        (Rule::WorkspaceLints, manifest("[dependencies]\n")),
    ]
}

/// Breaches of the rules of source files.
fn sources() -> Vec<Breach> {
    let source = |text| vec![("crates/common/quantities/src/other.rs", text)];
    let long: &'static str = Box::leak(format!("//! Long.\n{}", "\n".repeat(600)).into_boxed_str());
    vec![
        (
            Rule::PureAttribute,
            vec![(
                "crates/common/quantities/src/lib.rs",
                "//! A module.\n#![forbid(unsafe_code)]\n",
            )],
        ),
        (
            Rule::ForbidUnsafe,
            vec![("crates/common/quantities/src/lib.rs", "//! A module.\n")],
        ),
        (Rule::PureBan, source("//! A module.\nuse std::fs::File;\n")),
        (Rule::FileLength, source(long)),
        (Rule::ModuleComment, source("fn f() {}\n")),
        (
            Rule::Unfinished,
            source(concat!("//! A module.\nfn f() { to", "do!() }\n")),
        ),
        (
            Rule::SilentIgnore,
            source("//! A module.\n#[test]\n#[ignore]\nfn f() {}\n"),
        ),
    ]
}

/// Breaches of the rules of documents and scripts.
fn documents() -> Vec<Breach> {
    vec![
        (
            Rule::OutsidePath,
            vec![("notes.txt", concat!("see /ho", "me/someone\n"))],
        ),
        (
            Rule::RegistryHost,
            vec![("notes.txt", concat!("from crates", ".io\n"))],
        ),
        (
            Rule::ShellStrict,
            vec![("run", "#!/usr/bin/env bash\nset -e\n")],
        ),
        (Rule::BrokenLink, vec![("README.md", "[gone](gone.md)\n")]),
        (
            Rule::MissingPath,
            vec![("README.md", "`isolane sim scenarios/gone.toml`\n")],
        ),
        (
            Rule::Promise,
            vec![(
                "docs/internals/threat-model.md",
                "# T\n## Guarantees\n| a | b |\n|---|---|\n| secrets | `no_such_test` |\n",
            )],
        ),
        (Rule::MissingTarget, vec![("README.md", "`make tea`\n")]),
        (
            Rule::MissingUnit,
            vec![(
                "packaging/debian/isolaned.prerm",
                "systemctl stop isolane-tea.service\n",
            )],
        ),
        (Rule::Changelog, vec![("CHANGELOG.md", "# Changes\n")]),
        (
            Rule::ProfileList,
            vec![("README.md", "# Title\n`cx9-900g-roce`\n")],
        ),
        (Rule::ProfileList, vec![("profiles/cx5-100g-roce.toml", "")]),
        (Rule::UndocumentedRoom, vec![("ARCHITECTURE.md", "\n")]),
    ]
}

#[test]
fn a_tree_that_keeps_every_rule_has_no_findings() {
    check_with(&[], expect![""]);
}

#[test]
fn every_rule_can_fail() {
    for (rule, files) in breaches() {
        let found = check(&tree_with(&files));
        assert!(
            found.iter().any(|finding| finding.rule == rule),
            "{rule:?} does not see {files:?}"
        );
    }
    let shown: Vec<Rule> = breaches().into_iter().map(|(rule, _)| rule).collect();
    for rule in Rule::ALL {
        // Its table is a constant of the crate, so it has a test of its own.
        assert!(
            shown.contains(rule) || *rule == Rule::StaleException,
            "{rule:?} has no bad input"
        );
    }
}

#[test]
fn an_exception_that_nothing_needs_is_found() {
    let tree = tree_with(&[("short.rs", "//! Short.\n")]);
    let mut findings = Vec::new();
    crate::sources::check_exceptions(&tree, &[("short.rs", 700, "a table")], &mut findings);
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].rule, Rule::StaleException);
}

#[test]
fn findings_name_the_line() {
    check_with(
        &[
            (
                "crates/common/quantities/src/a.rs",
                "//! A module.\n\nuse std::collections::HashMap;\nuse std::{env, fs::read};\n",
            ),
            (
                "README.md",
                "# Title\n\n[a](#nowhere) [b](../up.md)\n```sh\nmake coffee\n```\n",
            ),
        ],
        expect![[r#"
            README.md:3 broken-link: link to `#nowhere`: `README.md` has no heading `#nowhere`
            README.md:3 broken-link: link to `../up.md`: it leaves the repository
            README.md:5 missing-target: there is no `make coffee`
            crates/common/quantities/src/a.rs:3 pure-ban: `HashMap` in a pure crate: use BTreeMap: its order is the same in each run
            crates/common/quantities/src/a.rs:4 pure-ban: `fs::` in a pure crate: let the caller pass the text
        "#]],
    );
}

#[test]
fn a_weakened_workspace_lint_is_found() {
    let weak = GOOD_WORKSPACE.replace("missing_docs = \"warn\"", "missing_docs = \"allow\"");
    check_with(
        &[("Cargo.toml", &weak)],
        expect![[r#"
            Cargo.toml:2 workspace-lints: workspace lint rust::missing_docs is allow, not ["warn", "deny"]
        "#]],
    );
}

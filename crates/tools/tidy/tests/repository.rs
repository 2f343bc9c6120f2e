//! This repository keeps its own rules.

use isolane_tools_tidy::finding::Finding;
use isolane_tools_tidy::tree::Tree;
use isolane_tools_tidy::{callers, circles, documents, layers, promises, sources};
use std::path::Path;

fn repository() -> Tree {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let tree = Tree::load(&root).expect("the repository is readable");
    assert!(
        tree.has("crates/common/quantities/src/lib.rs"),
        "{} is not the root of the repository",
        root.display()
    );
    tree
}

fn assert_none(mut findings: Vec<Finding>) {
    findings.sort();
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(
        lines.is_empty(),
        "{} findings:\n{}",
        lines.len(),
        lines.join("\n")
    );
}

#[test]
fn crates_depend_downwards_and_say_what_they_are() {
    assert_none(layers::check(&repository()));
}

#[test]
fn sources_keep_the_bans_and_the_shape() {
    assert_none(sources::check(&repository()));
}

#[test]
fn files_use_each_other_in_no_circle_that_is_not_listed() {
    assert_none(circles::check(&repository()));
}

#[test]
fn every_module_has_a_caller() {
    assert_none(callers::check(&repository()));
}

#[test]
fn documents_name_only_what_exists() {
    assert_none(documents::check(&repository()));
}

#[test]
fn every_guarantee_names_a_test() {
    assert_none(promises::check(&repository()));
}

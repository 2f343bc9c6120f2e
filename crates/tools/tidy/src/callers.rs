//! No module without a caller outside its own tests.
//!
//! A module has a caller if another file of the workspace, tests aside, has the name of one of its visible items. A module
//! without visible items only implements traits and methods, and is free. Limits: equal names of other things hide a
//! module without a caller.

use crate::finding::{Finding, Rule};
use crate::modules;
use crate::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

/// The text before the name of an item.
const ITEMS: [&str; 9] = [
    "fn", "struct", "enum", "const", "static", "type", "trait", "union", "mod",
];

/// The rule over every crate.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let crates = modules::of_crates(tree);
    let modules = || crates.values().flat_map(BTreeMap::iter);
    let mut files_with: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, module) in modules() {
        for word in modules::words(&module.code) {
            *files_with.entry(word).or_default() += 1;
        }
    }
    let mut findings = Vec::new();
    for (path, module) in modules() {
        let items = visible(&module.code);
        let is_called = items
            .iter()
            .any(|name| files_with.get(name).is_some_and(|count| *count > 1));
        if !path.is_empty() && !items.is_empty() && !is_called {
            let names: Vec<&str> = items.into_iter().take(3).collect();
            let message = format!(
                "no other file has a name of this one, such as {}",
                names.join(", ")
            );
            findings.push(Finding::new(Rule::NoCaller, &module.file, 1, message));
        }
    }
    findings
}

/// The names of items that other files can see.
fn visible(code: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    for line in code.lines().map(str::trim) {
        let is_macro = line.starts_with("macro_rules!");
        if !is_macro && !line.starts_with("pub ") && !line.starts_with("pub(") {
            continue;
        }
        let mut words = line
            .split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .filter(|word| !word.is_empty());
        let is_item = |word: &str| ITEMS.contains(&word) || word == "macro_rules";
        while let Some(word) = words.next() {
            // `const fn` names a function.
            if is_item(word)
                && let Some(name) = words
                    .clone()
                    .find(|next| !is_item(next) && *next != "unsafe")
            {
                found.insert(name);
                break;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_only_tests_name_has_no_caller() {
        let files = [
            (
                "crates/a/b/src/lib.rs",
                "mod c;\nmod d;\nfn f() { d(); }\n#[cfg(test)]\nmod tests { use c::one; }\n",
            ),
            ("crates/a/b/src/c.rs", "pub const fn one() {}\n"),
            ("crates/a/b/src/d.rs", "pub(crate) fn d() {}\n"),
        ];
        let found = check(&Tree::from_files(&files));
        let text: Vec<String> = found
            .iter()
            .map(|one| format!("{} {}", one.path, one.message))
            .collect();
        assert_eq!(
            text,
            ["crates/a/b/src/c.rs no other file has a name of this one, such as one"]
        );
    }
}

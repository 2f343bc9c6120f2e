//! The files of each crate as modules, with the paths that the code of each names.
//!
//! Method: the masked text is read word by word, not parsed. A path is the argument of a `use` or the text on both
//! sides of `::`. Items for tests are left out, and so are modules that a `cfg` with `test` declares.

use crate::mask::{code_only, without_tests};
use crate::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

/// The names from the root of the crate to a module; empty for the root.
pub(crate) type Path = Vec<String>;

#[derive(Clone, Debug)]
pub(crate) struct Module {
    /// Path of the file.
    pub file: String,
    /// Its text without comments, literals and tests.
    pub code: String,
}

/// What a `use` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    /// Its parts, as they are written.
    pub path: Path,
    /// The name that it gets, which `as` can change.
    pub name: String,
    /// Others may use the name too.
    pub is_public: bool,
}

/// The modules of each crate, by directory of the crate.
pub(crate) fn of_crates(tree: &Tree) -> BTreeMap<String, BTreeMap<Path, Module>> {
    let mut crates: BTreeMap<String, BTreeMap<Path, Module>> = BTreeMap::new();
    for (file, text) in tree.files() {
        let Some((folder, path)) = place(file) else {
            continue;
        };
        let code = without_tests(&code_only(text));
        let module = Module {
            file: file.to_owned(),
            code,
        };
        crates.entry(folder).or_default().insert(path, module);
    }
    for modules in crates.values_mut() {
        leave_out_tests(modules);
    }
    crates
}

/// The crate of a source file and the module that it is.
fn place(file: &str) -> Option<(String, Path)> {
    let (folder, inner) = file.strip_prefix("crates/")?.split_once("/src/")?;
    let mut path: Path = inner
        .strip_suffix(".rs")?
        .split('/')
        .map(str::to_owned)
        .collect();
    if path.last().is_some_and(|last| last == "mod") {
        path.pop();
    }
    if path == ["lib"] || path == ["main"] {
        path.clear();
    }
    let is_test = path.iter().any(|name| name == "tests");
    (!is_test).then(|| (folder.to_owned(), path))
}

/// Takes out the modules that exist in tests alone, and the modules below them.
fn leave_out_tests(modules: &mut BTreeMap<Path, Module>) {
    let mut out = BTreeSet::new();
    for (path, module) in modules.iter() {
        for (name, is_for_tests) in declared(&module.code) {
            if is_for_tests {
                out.insert([&path[..], &[name]].concat());
            }
        }
    }
    // `without_tests` blanks a `mod` behind `#[cfg(test)]`: a module without a declaration is for tests.
    let all: BTreeSet<Path> = modules
        .iter()
        .flat_map(|(path, module)| {
            declared(&module.code)
                .into_iter()
                .map(|(name, _)| [&path[..], &[name]].concat())
        })
        .collect();
    modules.retain(|path, _| {
        let above =
            |known: &BTreeSet<Path>| (1..=path.len()).any(|end| known.contains(&path[..end]));
        let is_declared = (1..=path.len()).all(|end| all.contains(&path[..end]));
        !above(&out) && is_declared
    });
}

/// The modules that this text declares, and whether for tests alone.
fn declared(code: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let mut attributes = String::new();
    for line in code.lines().map(str::trim) {
        if line.starts_with("#[") {
            attributes.push_str(line);
            continue;
        }
        let words: Vec<&str> = line.split([' ', ';']).collect();
        if let Some(at) = words.iter().position(|word| *word == "mod")
            && let Some(name) = words.get(at + 1)
            && line.ends_with(';')
        {
            let is_for_tests = attributes.contains("cfg(") && attributes.contains("test");
            found.push(((*name).to_owned(), is_for_tests));
        }
        if !line.is_empty() {
            attributes.clear();
        }
    }
    found
}

/// What the `use` declarations of this text name.
pub(crate) fn uses(code: &str) -> Vec<Use> {
    let mut found = Vec::new();
    for statement in statements(code) {
        let (before, tree) = statement;
        let is_public = before.contains("pub");
        expand(tree, &[], is_public, &mut found);
    }
    found
}

/// Visibility and tree of each `use`.
fn statements(code: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for (start, _) in code.match_indices("use ") {
        let line = code[..start].rfind('\n').map_or(0, |at| at + 1);
        let before = code[line..start].trim();
        let is_declaration = before.is_empty() || before.starts_with("pub");
        if let Some(end) = code[start..].find(';')
            && is_declaration
        {
            found.push((before, &code[start + 4..start + end]));
        }
    }
    found
}

fn expand(tree: &str, before: &[String], is_public: bool, found: &mut Vec<Use>) {
    let tree = tree.trim();
    if let Some(open) = tree.find('{') {
        let mut path = before.to_vec();
        path.extend(parts(&tree[..open]));
        let close = tree.rfind('}').unwrap_or(tree.len());
        for branch in branches(&tree[open + 1..close]) {
            expand(branch, &path, is_public, found);
        }
        return;
    }
    let (path, name) = match tree.split_once(" as ") {
        Some((path, name)) => (path, Some(name.trim().to_owned())),
        None => (tree, None),
    };
    let mut all = before.to_vec();
    all.extend(parts(path));
    if all.last().is_some_and(|last| last == "self") {
        all.pop();
    }
    if let Some(last) = all.last() {
        found.push(Use {
            name: name.unwrap_or_else(|| last.clone()),
            path: all,
            is_public,
        });
    }
}

fn parts(path: &str) -> impl Iterator<Item = String> + '_ {
    path.split("::")
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
}

/// The parts between the commas of the outermost braces.
fn branches(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (at, character) in text.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(&text[start..]);
    found
}

/// Paths of at least two parts in the code, `use` declarations included.
pub(crate) fn paths(code: &str) -> BTreeSet<Path> {
    let mut found = BTreeSet::new();
    for run in code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')) {
        if run.contains("::") {
            found.insert(parts(run).collect());
        }
    }
    found
}

pub(crate) fn words(code: &str) -> BTreeSet<&str> {
    code.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_names_each_of_its_branches() {
        let found = uses("pub(crate) use a::{b, c::{D, self}, e as f};\nuse crate::g;\n");
        let text: Vec<String> = found
            .iter()
            .map(|one| format!("{} {} {}", one.path.join("::"), one.name, one.is_public))
            .collect();
        let expected = [
            "a::b b true",
            "a::c::D D true",
            "a::c c true",
            "a::e f true",
            "crate::g g false",
        ];
        assert_eq!(text, expected);
    }

    #[test]
    fn modules_of_tests_are_left_out() {
        let tree = Tree::from_files(&[
            (
                "crates/a/b/src/lib.rs",
                "mod used;\n#[cfg(test)]\nmod alone;\n#[cfg(any(test, feature = \"x\"))]\npub mod fake;\n",
            ),
            ("crates/a/b/src/used.rs", ""),
            ("crates/a/b/src/alone.rs", ""),
            ("crates/a/b/src/fake.rs", ""),
        ]);
        let crates = of_crates(&tree);
        let found: Vec<String> = crates["a/b"].keys().map(|path| path.join("::")).collect();
        assert_eq!(found, ["", "used"]);
    }
}

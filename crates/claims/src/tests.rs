//! The repository's own claims: all are embedded, all read, all runs can be written out.

use crate::plan::run_text;
use expect_test::expect_file;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Paths of all TOML files below `folder`, relative to the repository, sorted.
fn toml_files(folder: &str) -> Vec<String> {
    let mut files = Vec::new();
    let mut open = vec![root().join(folder)];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "toml")
            {
                let relative = path.strip_prefix(root()).unwrap();
                files.push(relative.to_str().unwrap().to_owned());
            }
        }
    }
    files.sort();
    files
}

/// Whether claims may need the scenario at `path`: all of the folder that only they use, and what a file names.
fn is_used(path: &str) -> bool {
    if path.starts_with(crate::SCENARIO_FOLDER) {
        return true;
    }
    let name = format!("\"{}\"", path.trim_start_matches("scenarios/"));
    toml_files("claims").iter().any(|claim| {
        std::fs::read_to_string(root().join(claim)).is_ok_and(|text| text.contains(&name))
    })
}

/// `UPDATE_EXPECT=1 cargo test -p isolane-claims` rewrites the list after a claim was added.
#[test]
fn every_claim_and_scenario_is_embedded() {
    let mut text = String::from(
        "//! The repository's claims and their scenarios, inside the binary.\n\
         //!\n\
         //! Generated: `UPDATE_EXPECT=1 cargo test -p isolane-claims` writes this file after one was added.\n\n",
    );
    for (name, folder, about) in [
        (
            "CLAIMS",
            "claims",
            "Every claim: path inside the repository, text.",
        ),
        (
            "SCENARIOS",
            "scenarios",
            "Every scenario that some claim runs: path, text.",
        ),
    ] {
        let _ = writeln!(
            text,
            "/// {about}\n#[rustfmt::skip]\npub const {name}: &[(&str, &str)] = &["
        );
        for file in toml_files(folder) {
            if folder == "scenarios" && !is_used(&file) {
                continue;
            }
            let _ = writeln!(text, "    ({file:?}, include_str!(\"../../../{file}\")),");
        }
        text.push_str("];\n\n");
    }
    let text = format!("{}\n", text.trim_end());
    expect_file!["embedded.rs"].assert_eq(&text);
}

#[test]
fn every_claim_reads() {
    let files: Vec<(String, String)> = toml_files("claims")
        .into_iter()
        .map(|file| {
            let text = std::fs::read_to_string(root().join(&file)).unwrap();
            (file, text)
        })
        .collect();
    let claims = crate::read(
        files
            .iter()
            .map(|(file, text)| (file.as_str(), text.as_str())),
    );
    if let Err(error) = claims {
        panic!("{error}");
    }
}

#[test]
fn every_run_has_its_scenario() {
    let scenarios = crate::embedded_scenarios();
    for claim in crate::embedded_claims().unwrap() {
        for run in &claim.runs {
            if let Err(error) = run_text(run, 1, &scenarios) {
                panic!("{}: {error}", claim.file);
            }
        }
    }
}

#[test]
fn every_scenario_is_used() {
    let claims = crate::embedded_claims().unwrap();
    for name in crate::embedded_scenarios().keys() {
        let used = claims
            .iter()
            .flat_map(|claim| &claim.runs)
            .any(|run| run.scenario.as_deref() == Some(*name));
        assert!(used, "scenarios/claims/{name} is used by no claim");
    }
}

#[test]
fn a_selection_matches_ids_and_systems() {
    let claims = crate::embedded_claims().unwrap();
    let palos = crate::select(&claims, &["palos/*".to_owned()]).unwrap();
    assert!(palos.iter().all(|claim| claim.system == "palos"));
    assert!(!palos.is_empty());
    assert_eq!(crate::select(&claims, &[]).unwrap().len(), claims.len());
    let error = crate::select(&claims, &["nothing-like-this".to_owned()]).unwrap_err();
    assert!(error.to_string().starts_with("no claim matches"), "{error}");
}

/// Scenarios with every change a claim makes still read, on the profile they end up with.
#[test]
fn every_run_is_a_valid_scenario() {
    let library = isolane_scenario::library::Library::embedded();
    let scenarios = crate::embedded_scenarios();
    let mut problems = String::new();
    for claim in crate::embedded_claims().unwrap() {
        for run in &claim.runs {
            let text = run_text(run, 1, &scenarios).unwrap();
            let parsed = match isolane_scenario::fabric::is_network(&text, &claim.file) {
                Ok(true) => isolane_scenario::fabric::parse(&text, &claim.file).map(|_| ()),
                Ok(false) => isolane_scenario::parse(&text, &claim.file, &library).map(|_| ()),
                Err(error) => Err(error),
            };
            if let Err(error) = parsed {
                let _ = writeln!(problems, "run {:?}: {error}", run.label);
            }
        }
    }
    assert!(problems.is_empty(), "{problems}");
}

//! The repository's own claims: all are embedded, all read, all runs can be written out.

use crate::claim::ClaimRun;
use crate::plan::run_text;
use isolane_common_toml_input::kind::ScenarioKind;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
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

#[test]
fn every_claim_is_embedded() {
    let embedded: Vec<&str> = crate::embedded::CLAIMS
        .iter()
        .map(|(file, _)| *file)
        .collect();
    assert_eq!(embedded, toml_files("claims"));
}

#[test]
fn every_claim_reads() {
    if let Err(error) = crate::embedded_claims() {
        panic!("{error}");
    }
}

/// Whether `run` is one of a scenario, as a file or as text.
fn is_scenario(run: &ClaimRun) -> bool {
    run.scenario.is_some() || run.inline.is_some()
}

#[test]
fn every_run_has_its_scenario() {
    let scenarios = crate::embedded_scenarios();
    for claim in crate::embedded_claims().unwrap() {
        for run in claim.runs.iter().filter(|run| is_scenario(run)) {
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
    let error = crate::select(&claims, &["justitia".to_owned()]).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("did you mean \"justitia/*\"") && text.contains("aequitas, collie"),
        "{text}"
    );
}

/// Scenarios with every change a claim makes still read, on the profile they end up with.
#[test]
fn every_run_is_a_valid_scenario() {
    let library = isolane_rdma_scenario::library::Library::embedded();
    let scenarios = crate::embedded_scenarios();
    let mut problems = String::new();
    for claim in crate::embedded_claims().unwrap() {
        for run in claim.runs.iter().filter(|run| is_scenario(run)) {
            let text = run_text(run, 1, &scenarios).unwrap();
            let parsed = ScenarioKind::of(&text, &claim.file).and_then(|kind| match kind {
                ScenarioKind::Ethernet => {
                    isolane_ethernet_scenario::parse::parse(&text, &claim.file).map(drop)
                }
                ScenarioKind::Memory => {
                    isolane_memory_scenario::parse::parse(&text, &claim.file).map(drop)
                }
                ScenarioKind::Network => {
                    isolane_network_scenario::parse(&text, &claim.file).map(drop)
                }
                ScenarioKind::Rdma => {
                    isolane_rdma_scenario::parse(&text, &claim.file, &library).map(drop)
                }
            });
            if let Err(error) = parsed {
                let _ = writeln!(problems, "run {:?}: {error}", run.label);
            }
        }
    }
    assert!(problems.is_empty(), "{problems}");
}

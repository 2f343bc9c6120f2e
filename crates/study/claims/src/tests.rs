//! The repository's own claims: all are embedded, all read, all runs can be written out.

use crate::claim::ClaimRun;
use crate::plan::run_text;
use expect_test::expect_file;
use isolane_common_toml_input::kind::ScenarioKind;
use std::collections::BTreeMap;
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

/// A generated file: what it is about, then `name` with the text of each of `files`.
fn embedded_text(about: &str, name: &str, files: &[String]) -> String {
    let visibility = match name {
        "CLAIMS" => "pub(super)",
        _ => "pub",
    };
    let mut text = format!(
        "//! {about}, inside the binary.\n//!\n//! {GENERATED}\n\n\
         /// Path inside the repository, text.\n#[rustfmt::skip]\n\
         {visibility} const {name}: &[(&str, &str)] = &[\n"
    );
    for file in files {
        let _ = writeln!(
            text,
            "    ({file:?}, include_str!(\"../../../../../{file}\")),"
        );
    }
    text.push_str("];\n");
    text
}

/// The folder's own file: its modules and the list of all claims.
fn embedded_root(systems: &[String]) -> String {
    let mut text = format!(
        "//! The repository's claims and their scenarios, inside the binary: a file for each system.\n//!\n\
         //! {GENERATED}\n\n"
    );
    let mut modules: Vec<&str> = systems.iter().map(String::as_str).collect();
    modules.push("scenarios");
    modules.sort_unstable();
    for module in modules {
        let _ = writeln!(text, "mod {module};");
    }
    text.push_str(
        "\npub use scenarios::SCENARIOS;\n\n\
         /// Every claim, a list for each system: path inside the repository, text.\n\
         #[rustfmt::skip]\n\
         pub const CLAIMS: &[&[(&str, &str)]] = &[\n",
    );
    for system in systems {
        let _ = writeln!(text, "    {system}::CLAIMS,");
    }
    text.push_str("];\n");
    text
}

const GENERATED: &str = "Generated: `UPDATE_EXPECT=1 cargo test -p isolane-study-claims` writes this file after one was added.";

/// `UPDATE_EXPECT=1 cargo test -p isolane-study-claims` rewrites the lists after a claim was added.
#[test]
fn every_claim_and_scenario_is_embedded() {
    let mut by_system: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in toml_files("claims") {
        let system = file.split('/').nth(1).unwrap().to_owned();
        by_system.entry(system).or_default().push(file);
    }
    let systems: Vec<String> = by_system.keys().cloned().collect();
    let mut scenarios = toml_files("scenarios");
    scenarios.retain(|file| is_used(file));
    let about = "Every scenario that some claim runs";
    let mut expected = BTreeMap::from([
        ("mod.rs".to_owned(), embedded_root(&systems)),
        (
            "scenarios.rs".to_owned(),
            embedded_text(about, "SCENARIOS", &scenarios),
        ),
    ]);
    for (system, files) in &by_system {
        let text = embedded_text(&format!("The claims of {system}"), "CLAIMS", files);
        expected.insert(format!("{system}.rs"), text);
    }
    for (name, text) in &expected {
        expect_file![format!("embedded/{name}")].assert_eq(text);
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/embedded");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            expected.contains_key(&name),
            "src/embedded/{name} belongs to no folder of claims: delete it"
        );
    }
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

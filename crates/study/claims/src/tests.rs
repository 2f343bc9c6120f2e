//! The repository's own claims: all are embedded, all read, all runs can be written out.

use crate::claim::{Claim, ClaimRun};
use crate::device::DeviceChanges;
use crate::plan::run_text;
use isolane_common_toml_input::kind::ScenarioKind;
use isolane_common_toml_input::sourced::{SourceKind, Sourced};
use isolane_ethernet_scenario::profile::NicProfile;
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

/// The commands of `docs/papers` select claims, so a figure that a page names has claims.
#[test]
fn the_pages_of_papers_name_figures_that_have_claims() {
    let claims = crate::embedded_claims().unwrap();
    let mut commands = 0;
    for page in std::fs::read_dir(root().join("docs/papers")).unwrap() {
        let shown = std::fs::read_to_string(page.unwrap().path()).unwrap();
        for command in shown
            .split('`')
            .filter(|code| code.starts_with("isolane claims --only '"))
        {
            let patterns = command.split('\'').nth(1).unwrap().split(',');
            let patterns: Vec<String> = patterns.map(|one| one.trim().to_owned()).collect();
            if let Err(error) = crate::select(&claims, &patterns) {
                panic!("{command}: {error}");
            }
            commands += 1;
        }
    }
    assert!(commands > 80, "{commands}");
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
    let error = crate::select(&claims, &["justitia/fig3".to_owned()]).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("did you mean \"justitia/fig3*\";"),
        "{error}"
    );
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

/// What `claim`'s check changes although its paper states it: parameters, and settings of the experiment.
fn replaced_by_check(claim: &Claim) -> Vec<String> {
    let mut found = replaced_parameters(claim);
    found.extend(replaced_settings(claim));
    found
}

/// Keys of `nic` that Titan's paper states of each experiment.
const STATED_OF_NIC: [&str; 5] = ["config", "flows", "hosts", "queues", "processors"];

/// Settings that `claim`'s check changes although its paper states them: keys of `nic`, and Justitia's target where the
/// paper of the claim publishes it for the profile.
fn replaced_settings(claim: &Claim) -> Vec<String> {
    let library = isolane_rdma_scenario::library::Library::embedded();
    let scenarios = crate::embedded_scenarios();
    let Some(check) = &claim.check else {
        return Vec::new();
    };
    let changed = check.apply(claim).expect("a claim that reads");
    let mut found = Vec::new();
    for (run, before) in changed.runs.iter().zip(&claim.runs) {
        let keys = |run: &ClaimRun| toml::Table::try_from(run.nic.as_ref()?).ok();
        if let (Some(new), Some(old)) = (keys(run), keys(before)) {
            let replaced = STATED_OF_NIC
                .iter()
                .filter(|key| new.get(**key) != old.get(**key));
            found.extend(replaced.map(|key| format!("nic.{key}")));
        }
        if run.set.get(TARGET) == before.set.get(TARGET) {
            continue;
        }
        let text = run_text(run, 1, &scenarios).expect("it is valid");
        let table: toml::Table = text.parse().expect("TOML");
        let profile = table.get("profile").and_then(toml::Value::as_str);
        let target = profile.and_then(|profile| {
            let sections = library.profile(profile).expect("shipped");
            sections.section("justitia")?.get("target_us")
        });
        let target = target.filter(|target| target.kind == SourceKind::Published);
        if let Some(target) = target.filter(|target| target.source.starts_with(&claim.system)) {
            found.push(format!("{TARGET} ({})", target.source));
        }
    }
    found
}

/// Justitia's latency target.
const TARGET: &str = "policy.target_us";

/// What `claim`'s check changes although a publication or a standard states it: `section.name`, with its source. What
/// another paper states of the same device may be changed, since the claim's own experiment may differ from it.
fn replaced_parameters(claim: &Claim) -> Vec<String> {
    let library = isolane_rdma_scenario::library::Library::embedded();
    let scenarios = crate::embedded_scenarios();
    let Some(check) = &claim.check else {
        return Vec::new();
    };
    let changed = check
        .apply(claim)
        .expect("a claim that reads has a valid check");
    let mut found = Vec::new();
    let mut look = |parameter: Option<&Sourced>, path: &str| {
        let Some(parameter) = parameter else { return };
        let stated = matches!(parameter.kind, SourceKind::Published | SourceKind::Standard);
        let elsewhere = PAPERS.iter().any(|paper| {
            *paper != claim.system && parameter.source.to_lowercase().starts_with(paper)
        });
        if stated && !elsewhere {
            found.push(format!("{path} ({})", parameter.source));
        }
    };
    let split = |path: &str| {
        let (section, name) = path.split_once('.').expect("paths have a section");
        (section.to_owned(), name.to_owned())
    };
    let own = |all: &DeviceChanges, before: &DeviceChanges| -> Vec<String> {
        let before: Vec<&str> = before.paths().collect();
        let new = all.paths().filter(|path| !before.contains(path));
        new.map(str::to_owned).collect()
    };
    for (run, before) in changed.runs.iter().zip(&claim.runs) {
        let paths = own(&run.device, &before.device);
        let text = is_scenario(run).then(|| run_text(run, 1, &scenarios).expect("it is valid"));
        let table: toml::Table =
            text.map_or_else(toml::Table::new, |text| text.parse().expect("TOML"));
        for path in paths {
            let (section, name) = split(&path);
            match table.get("profile").and_then(toml::Value::as_str) {
                Some(profile) => {
                    let profile = library.profile(profile).expect("shipped");
                    look(
                        profile.section(&section).and_then(|map| map.get(&name)),
                        &path,
                    );
                }
                None => {
                    let card = NicProfile::of_paper();
                    look(
                        card.sections.get(&section).and_then(|map| map.get(&name)),
                        &path,
                    );
                }
            }
        }
    }
    for (audit, before) in changed.audits.iter().zip(&claim.audits) {
        let profile = library.profile(&audit.profile).expect("shipped");
        for path in own(&audit.device, &before.device) {
            let (section, name) = split(&path);
            look(
                profile.section(&section).and_then(|map| map.get(&name)),
                &path,
            );
        }
    }
    found
}

/// The papers that sources of parameters name.
const PAPERS: [&str; 6] = ["collie", "harmonic", "husky", "justitia", "palos", "titan"];

/// Other settings of a policy than Justitia's target are not compared, since no file has their sources.
#[test]
fn no_reason_of_a_miss_replaces_what_its_paper_states() {
    let claims = crate::embedded_claims().unwrap();
    assert!(claims.iter().filter(|claim| claim.check.is_some()).count() > 50);
    for claim in &claims {
        assert_eq!(
            replaced_by_check(claim),
            Vec::<String>::new(),
            "{}",
            claim.file
        );
    }
}

/// The frame size of a ConnectX-5 is published by husky, so a claim of husky may not change it; one of palos may.
#[test]
fn a_check_that_replaces_a_published_parameter_is_found() {
    let claim = |system: &str, check: &str| {
        let text = format!(
            "id = \"one\"\nsystem = \"{system}\"\npaper = \"a paper, 1\"\nstatement = \"It is fast.\"\n\
             kind = \"prediction\"\nunit = \"Gb/s\"\nat_most = 7.0\nmiss_reason = \"Headers.\"\n\
             metric = 'units:units.wire_gbps'\n[[run]]\nlabel = \"units\"\nscenario = \"husky-attackers.toml\"\n\
             only = [\"units\"]\n[check]\n[[check.change]]\ndevice = {{ {check} }}\n"
        );
        replaced_by_check(&Claim::parse(&text, &format!("claims/{system}/one.toml")).unwrap())
    };
    let frame = claim("husky", "\"link.frame_bytes\" = 24");
    assert!(
        frame[0].starts_with("link.frame_bytes (husky 4.10"),
        "{frame:?}"
    );
    assert!(claim("palos", "\"link.frame_bytes\" = 24").is_empty());
    assert!(claim("husky", "\"cache.translation_miss_slots\" = 2").is_empty());
}

/// Figure 8 has 56 queues, and section 6.1 of Justitia a target of 2 us on ConnectX-3.
#[test]
fn a_check_that_replaces_a_stated_setting_is_found() {
    let claim = |system: &str, run: &str, change: &str| {
        let text = format!(
            "id = \"one\"\nsystem = \"{system}\"\npaper = \"a paper, 1\"\nstatement = \"It is fast.\"\n\
             kind = \"prediction\"\nunit = \"Gb/s\"\nat_most = 7.0\nmiss_reason = \"Queues.\"\n\
             {run}\n[check]\n[[check.change]]\n{change}\n"
        );
        replaced_by_check(&Claim::parse(&text, &format!("claims/{system}/one.toml")).unwrap())
    };
    let nic = "metric = 'r:nic.throughput_gbps'\n[[run]]\nlabel = \"r\"\n\
               nic = { config = \"C6\", hosts = 6, queues = 56 }";
    assert_eq!(claim("titan", nic, "nic = { queues = 8 }"), ["nic.queues"]);
    assert!(claim("titan", nic, "nic = { megabytes = 1000 }").is_empty());
    let pacer = "metric = 'r:bulk.goodput_gbps'\n[[run]]\nlabel = \"r\"\n\
                 scenario = \"latency-vs-bulk.toml\"\npolicy = \"justitia\"";
    let target = claim("justitia", pacer, "set = { \"policy.target_us\" = 3.0 }");
    assert_eq!(target, ["policy.target_us (justitia 6.1: 2 us)"]);
    assert!(claim("justitia", pacer, "set = { \"policy.ref_count\" = 500 }").is_empty());
}

//! The paper's experiments in `scenarios/aequitas`: each file is taken by the parser, and its first half millisecond
//! runs twice to the same bytes, under each policy that the simulator has.

use isolane_network_scenario::parameters::POLICY;
use isolane_network_scenario::{FabricOverrides, parse_with};
use isolane_network_simulator::run::{Observers, RunError, run};
use std::path::PathBuf;

fn files() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../scenarios/aequitas");
    let entries = std::fs::read_dir(folder).expect("the directory of scenarios");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a readable directory").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .collect();
    files.sort();
    files
}

/// The beginning of a file's experiment under `policy`, as JSON.
fn beginning(file: &PathBuf, policy: &str) -> String {
    let text = std::fs::read_to_string(file).expect("a readable scenario");
    let name = file.display().to_string();
    let settings = [
        ("warmup", "\"100us\"".to_owned()),
        ("duration", "\"400us\"".to_owned()),
        ("drain", "\"1ms\"".to_owned()),
    ];
    let settings = settings.map(|(key, value)| (key.to_owned(), value));
    let overrides = FabricOverrides {
        policy: (policy != "own").then(|| policy.to_owned()),
        settings: settings.into(),
        ..FabricOverrides::default()
    };
    let scenario = parse_with(&text, &name, &overrides).unwrap_or_else(|error| panic!("{error}"));
    let outcome =
        run(&scenario, Observers::default()).unwrap_or_else(|error| panic!("{name}: {error}"));
    serde_json::to_string(&outcome.result).expect("plain data")
}

#[test]
fn every_experiment_runs_twice_to_the_same_bytes() {
    let files = files();
    assert!(files.len() >= 11, "{files:?}");
    for file in files {
        let first = beginning(&file, "own");
        assert!(first.contains("\"issued\":"), "{first}");
        assert_eq!(first, beginning(&file, "own"), "{}", file.display());
    }
}

#[test]
fn the_comparison_runs_under_every_policy() {
    let files = files();
    let file = files
        .iter()
        .find(|file| file.ends_with("related-work.toml"))
        .expect("the comparison");
    let mut seen = std::collections::BTreeSet::new();
    for policy in POLICY {
        assert!(
            seen.insert(beginning(file, policy)),
            "{policy} changes nothing"
        );
    }
}

/// Who copies the manual's example sees promises kept, not a network that is still learning.
#[test]
fn the_manuals_example_keeps_its_promises() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../docs/reference/fabric-scenario.md"
    );
    let manual = std::fs::read_to_string(file).expect("the manual");
    let (_, rest) = manual.split_once("```toml\n").expect("an example");
    let (example, _) = rest.split_once("```").expect("its end");
    let scenario = parse_with(example, "example.toml", &FabricOverrides::default())
        .unwrap_or_else(|error| panic!("{error}"));
    let outcome = run(&scenario, Observers::default()).unwrap_or_else(|error| panic!("{error}"));
    for (class, spec) in outcome.result.classes.iter().zip(&scenario.classes) {
        let Some(slo) = spec.slo else { continue };
        let kept = class.ran_met_slo_share.expect("calls ran in it");
        assert!(
            kept * 100.0 >= slo.percentile,
            "{}: {kept}, seed {}",
            class.name,
            scenario.seed
        );
    }
}

#[test]
fn a_cancelled_run_has_no_result() {
    let text = std::fs::read_to_string(&files()[0]).expect("a readable scenario");
    let scenario = parse_with(&text, "first", &FabricOverrides::default())
        .unwrap_or_else(|error| panic!("{error}"));
    let cancel = std::sync::atomic::AtomicBool::new(true);
    let mut heard = Vec::new();
    let mut progress = |part: f64| heard.push(part);
    let observers = Observers {
        cancel: Some(&cancel),
        progress: Some(&mut progress),
        tap: None,
    };
    assert!(matches!(
        run(&scenario, observers),
        Err(RunError::Cancelled)
    ));
    assert_eq!(heard.len(), 1, "it ends at the first check");
}

#[test]
fn two_channels_get_equal_parts_within_20_ms_under_aequitas_2() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../scenarios/aequitas");
    let text = std::fs::read_to_string(format!("{folder}/fairness.toml")).expect("a scenario");
    // The channels ask for 40 and 80 Gb/s of the high class from the first instant.
    let text = text.replace(
        "name = \"aequitas\"\nwindow_us = 2_000",
        "name = \"aequitas-2\"",
    );
    let settings = [("warmup", "\"20ms\""), ("duration", "\"20ms\"")];
    let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let overrides = FabricOverrides {
        settings: settings.into(),
        ..FabricOverrides::default()
    };
    let scenario = parse_with(&text, "fairness.toml", &overrides).expect("a valid scenario");
    let result = run(&scenario, Observers::default())
        .expect("a valid run")
        .result;
    let of = |from| {
        let mut pairs = result.pairs.iter();
        let pair = pairs.find(|pair| pair.from == from && pair.class == "high");
        pair.expect("its calls").goodput_gbps
    };
    let (one, other) = (of(0), of(1));
    assert!(
        one > 5.0 && (one / other - 1.0).abs() < 0.05,
        "{one} {other}"
    );
}

/// The calls of the high class on 33 hosts under `aequitas-2`, after a short warm-up: issued, and the part that missed.
fn high_class_of_processes(settings: &[(&str, &str)]) -> (u64, f64) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../scenarios/aequitas");
    let text = std::fs::read_to_string(format!("{folder}/33-node.toml")).expect("a scenario");
    let time = [("warmup", "\"20ms\""), ("duration", "\"5ms\"")];
    let settings = time.iter().chain(settings);
    let overrides = FabricOverrides {
        policy: Some("aequitas-2".to_owned()),
        settings: settings
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        ..FabricOverrides::default()
    };
    let scenario = parse_with(&text, "33-node.toml", &overrides).expect("a valid scenario");
    let outcome = run(&scenario, Observers::default()).expect("a valid run");
    let high = &outcome.result.classes[0];
    (
        high.issued,
        1.0 - high.ran_met_slo_share.expect("calls ran"),
    )
}

#[test]
fn processes_that_exchange_evidence_miss_less_than_processes_alone() {
    let (issued, alone) = high_class_of_processes(&[("shared", "0"), ("processes", "8")]);
    let exchange = [("shared", "2"), ("processes", "8"), ("exchange_us", "1000")];
    let (as_many, together) = high_class_of_processes(&exchange);
    assert_eq!(issued, as_many, "processes do not change the calls");
    assert!(together < 0.9 * alone, "{together} {alone}");
}

#[test]
fn a_host_that_grants_two_calls_of_a_class_keeps_the_objective() {
    let (_, learned) = high_class_of_processes(&[]);
    let (_, granted) = high_class_of_processes(&[("grants", "2")]);
    let (_, late) = high_class_of_processes(&[("grants", "2"), ("ask_us", "20")]);
    assert!(granted <= 0.001 && granted < learned, "{granted} {learned}");
    assert!(
        late > 0.5,
        "a request of 20 us is part of the latency: {late}"
    );
}

#[test]
fn parameters_of_processes_that_cannot_act_are_refused() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../scenarios/aequitas");
    let text = std::fs::read_to_string(format!("{folder}/33-node.toml")).expect("a scenario");
    for (name, value, remedy) in [
        ("processes", "1.5", "give a whole number"),
        ("exchange_us", "500", "add shared = 2"),
        ("grants", "1.5", "give a whole number"),
        ("ask_us", "5", "add grants = 2"),
    ] {
        let overrides = FabricOverrides {
            policy: Some("aequitas-2".to_owned()),
            settings: [(name.to_owned(), value.to_owned())].into(),
            ..FabricOverrides::default()
        };
        let scenario = parse_with(&text, "33-node.toml", &overrides).expect("in its range");
        let error = run(&scenario, Observers::default()).expect_err(name);
        assert!(error.to_string().contains(remedy), "{error}");
    }
}

//! The Helm chart of `packaging/kubernetes` fits the programs: its version, the options that it gives, its default
//! configuration, and the names in the guide. Helm's own engine renders the chart in `packaging/kubernetes/check`.
#![allow(clippy::unwrap_used)]

use crate::support::check;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    fs::read_to_string(root.join(path)).unwrap()
}

fn chart(name: &str) -> String {
    read(&format!("packaging/kubernetes/isolane/{name}"))
}

#[test]
fn the_chart_has_the_version_of_the_programs() {
    let text = chart("Chart.yaml");
    let version = env!("CARGO_PKG_VERSION");
    assert!(text.contains(&format!("\nversion: {version}\n")), "{text}");
    assert!(
        text.contains(&format!("\nappVersion: \"{version}\"\n")),
        "{text}"
    );
}

/// The options that the container's block of the DaemonSet gives.
fn options(container: &str) -> BTreeSet<String> {
    let text = chart("templates/daemonset.yaml");
    let (_, block) = text.split_once(&format!("- name: {container}\n")).unwrap();
    let block = block.split("- name: ").next().unwrap();
    let lines = block
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- --"));
    lines
        .map(|line| format!("--{}", line.split('=').next().unwrap()))
        .collect()
}

#[test]
fn every_option_of_the_chart_is_one_of_the_command() {
    for (container, command, count) in [("library", "cdi", 3), ("pods", "pods", 3)] {
        let (help, _) = check(&["rdma", command, "--help"], 0);
        let options = options(container);
        assert_eq!(options.len(), count, "{options:?}");
        for option in options {
            assert!(
                help.contains(&option),
                "isolane rdma {command} has no {option}"
            );
        }
    }
}

#[test]
fn the_default_configuration_of_the_chart_is_valid() {
    let text = chart("values.yaml");
    let (_, block) = text.split_once("config: |\n").unwrap();
    let lines = block
        .lines()
        .take_while(|line| line.is_empty() || line.starts_with("  "));
    let config: Vec<&str> = lines.map(str::trim_start).collect();
    let settings = isolaned::settings::parse("values.yaml", &config.join("\n")).unwrap();
    assert!(settings.metrics.is_some());
    assert_eq!(
        settings.assignments(),
        Path::new(isolaned::assignments::FOLDER)
    );
}

#[test]
fn guide_notes_and_program_use_the_same_names() {
    let (help, _) = check(&["rdma", "pods", "--help"], 0);
    for label in [
        "isolane.dev/class",
        "isolane.dev/weight",
        "isolane.dev/tenant",
    ] {
        assert!(help.contains(label) && read("docs/guides/kubernetes.md").contains(label));
    }
    let annotation = "cdi.k8s.io/isolane: isolane.dev/rdma=paced";
    assert!(chart("templates/NOTES.txt").contains(annotation));
    assert!(read("docs/guides/kubernetes.md").contains(annotation));
    let (help, _) = check(&["rdma", "cdi", "--help"], 0);
    assert!(help.contains("isolane.dev/rdma=paced"));
}

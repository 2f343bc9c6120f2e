//! Every scenario that is shipped, short, in every form of output.
//!
//! Goal: no shipped file makes the program panic, with any output option. Method: a copy of each file with a short
//! warm-up and short connections; a short measured time; text, JSON, a report, and what only networks have. Limits: what the figures are is
//! for other tests.
#![allow(clippy::unwrap_used)]

use crate::support::check;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

const SCENARIOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../scenarios");

/// A scenario that runs only as its claims run it: with loads of their own.
const WITH_MORE: &[(&str, &[&str])] = &[("wfq-three-classes.toml", &["--set", "overload=true"])];

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Rdma,
    Network,
    Card,
    Memory,
}

impl Kind {
    fn of(text: &str) -> Self {
        let has = |table: &str| text.lines().any(|line| line.starts_with(table));
        match (has("[fabric"), has("[nic"), has("[memory")) {
            (true, _, _) => Self::Network,
            (_, true, _) => Self::Card,
            (_, _, true) => Self::Memory,
            _ => Self::Rdma,
        }
    }

    /// A measured time in which something happens.
    fn duration(self) -> &'static str {
        match self {
            Self::Rdma | Self::Network => "50us",
            Self::Card => "2ms",
            Self::Memory => "100ms",
        }
    }
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, found),
            false if path.extension().is_some_and(|end| end == "toml") => found.push(path),
            false => {}
        }
    }
}

/// The scenario with a warm-up of 10 us and connections of 200 KB, in a file of the same name.
fn shortened(path: &Path, folder: &Path) -> (String, Kind, bool) {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| match line.split_once(" = ") {
        Some(("warmup", _)) => "warmup = \"10us\"",
        Some(("bytes", _)) => "bytes = \"200KB\"",
        _ => line,
    });
    let copy = folder.join(path.file_name().unwrap());
    fs::write(&copy, lines.collect::<Vec<_>>().join("\n")).unwrap();
    // Where tenants start later, the scenario's own time must stay.
    let starts_later = text.lines().any(|line| line.starts_with("start = "));
    (
        copy.to_str().unwrap().to_owned(),
        Kind::of(&text),
        starts_later,
    )
}

#[test]
fn every_shipped_scenario_runs_in_every_form() {
    let mut found = Vec::new();
    files(Path::new(SCENARIOS), &mut found);
    found.sort();
    assert!(found.len() > 80, "{} scenarios", found.len());
    let folder = tempfile::tempdir().unwrap();
    for path in found {
        let (file, kind, starts_later) = shortened(&path, folder.path());
        let name = path.file_name().unwrap().to_str().unwrap();
        let mut words = vec!["sim", file.as_str()];
        if !starts_later {
            words.extend(["--duration", kind.duration()]);
        }
        let more = WITH_MORE.iter().find(|(known, _)| *known == name);
        words.extend(more.map_or(&[][..], |(_, more)| more));
        forms(&words, kind, folder.path());
    }
}

fn forms(words: &[&str], kind: Kind, folder: &Path) {
    let run = |more: &[&str]| check(&[words, more].concat(), 0).0;
    let out = folder.join("report");
    let out = out.to_str().unwrap();
    assert!(!run(&[]).is_empty());
    let text = run(&["--verbose", "--report", out]);
    assert!(!text.is_empty());
    let page = fs::read_to_string(Path::new(out).join("report.html")).unwrap();
    assert!(page.contains("</html>"));
    fs::remove_dir_all(out).unwrap();
    let json: Value = serde_json::from_str(&run(&["--json"])).unwrap();
    assert!(json.is_object() || json.is_array());
    if kind == Kind::Network {
        let trace = folder.join("trace.pcap");
        let trace = trace.to_str().unwrap();
        run(&["--per-pair", "--series", "--trace", trace]);
        assert!(
            fs::metadata(trace).unwrap().len() >= 24,
            "a header at least"
        );
    }
}

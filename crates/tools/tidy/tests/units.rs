//! The rights of each systemd unit, as `systemd-analyze security` rates them: 0 is none, 10 is all.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each unit and its largest exposure. Services that need no device or other process of the host are below 3.0. The
/// others are root: they open devices, see the processes of all users (CAP_SYS_PTRACE) and use the host's network; the
/// enforcer also writes to cgroups and sends raw packets, and a network card's service loads programs into the kernel
/// and must share the host's mounts.
const UNITS: [(&str, f64); 7] = [
    ("isolane-agent.service", 4.5),
    ("isolane-enforce.service", 5.0),
    ("isolane-mem-extender.service", 3.0),
    ("isolane-mem.service", 4.5),
    ("isolane-nic@.service", 6.0),
    ("isolane-quota.service", 3.0),
    ("isolaned.service", 4.5),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging/units")
}

/// The exposure of a unit's text; an error says why it cannot be rated here.
fn exposure(name: &str, text: &str) -> Result<f64, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    fs::write(&path, text).unwrap();
    let output = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager"])
        .arg(&path)
        .output()
        .map_err(|error| format!("no systemd-analyze: {error}"))?;
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = shown.lines().find(|line| line.contains("Overall exposure"));
    let number = line.and_then(|line| line.rsplit(": ").next()?.split(' ').next()?.parse().ok());
    number.ok_or_else(|| {
        format!(
            "systemd-analyze rates no unit: {}",
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

#[test]
fn every_unit_has_the_rights_that_it_needs() {
    if let Err(reason) = exposure("x.service", "[Service]\nExecStart=/bin/true\n") {
        println!("skipped: {reason}");
        return;
    }
    let mut rated = Vec::new();
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let name = name.strip_suffix(".in").unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        let text = text
            .replace("@BINDIR@", "/usr/bin")
            .replace("@SYSCONFDIR@", "/etc");
        rated.push((name.clone(), exposure(&name, &text).unwrap()));
    }
    rated.sort_by(|one, other| one.0.cmp(&other.0));
    println!("{rated:?}");
    let names: Vec<&str> = rated.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, UNITS.map(|(name, _)| name));
    for ((name, exposure), (_, most)) in rated.iter().zip(UNITS) {
        assert!(*exposure <= most, "{name} has {exposure}, at most {most}");
    }
    // A unit without limits is rated worse than each of ours.
    let open = exposure("open.service", "[Service]\nExecStart=/bin/true\n").unwrap();
    assert!(open > 9.0, "{open}");
}

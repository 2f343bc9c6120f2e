//! The rights of each systemd unit, as `systemd-analyze security` rates them: 0 is none, 10 is all.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The largest exposure of a unit. `lab/proofs/units` shows that each works with the rights that are left.
const MOST: f64 = 3.0;

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
fn no_unit_has_an_exposure_above_three() {
    if let Err(reason) = exposure("x.service", "[Service]\nExecStart=/bin/true\n") {
        assert!(std::env::var_os("CI").is_none(), "must run in CI: {reason}");
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
    assert!(rated.len() >= 7, "{rated:?}");
    for (name, exposure) in rated {
        assert!(exposure <= MOST, "{name} has {exposure}, at most {MOST}");
    }
    // A unit without limits is rated worse than each of ours.
    let open = exposure("open.service", "[Service]\nExecStart=/bin/true\n").unwrap();
    assert!(open > 9.0, "{open}");
}

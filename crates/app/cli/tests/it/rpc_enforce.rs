//! `isolane rpc enforce` from the command line: what it refuses, and a view on a real kernel.
#![allow(clippy::unwrap_used)]

use crate::support::outcome;
use isolane_common_linux::skip::skip;
use isolane_common_linux::{Root, cgroup, namespaces};
use std::path::Path;
use std::process::Command;

const SETTINGS: &str = "[[class]]\nname = \"high\"\ndscp = 46\ntarget_per_mtu = \"1ms\"\npercentile = 99\n\
                        [[class]]\nname = \"low\"\ndscp = 8\n";

fn enforce(settings: &Path, more: &[&str]) -> (Option<i32>, String, String) {
    let first = ["rpc", "enforce", settings.to_str().unwrap()];
    outcome(&[first.as_slice(), more].concat())
}

#[test]
fn what_has_no_effect_is_refused_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rpc.toml");
    let place = folder.path().to_str().unwrap();
    let check = |settings: &str, more: &[&str], part: &str| {
        std::fs::write(&file, settings).unwrap();
        let (code, text, said) = enforce(&file, more);
        assert_eq!((code, text.as_str()), (Some(2), ""), "{said}");
        assert!(said.contains(part), "{part:?} is not in {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    };
    check(
        SETTINGS,
        &["--cgroup", place],
        "give --port PORT=CLASS or --other-ports CLASS",
    );
    check(
        SETTINGS,
        &["--cgroup", place, "--port", "443=hihg"],
        "--port 443=hihg: class is \"hihg\"; must be one of high, low",
    );
    check(
        SETTINGS,
        &["--cgroup", place, "--other-ports", "none"],
        "--other-ports none: must be one of high, low",
    );
    let high = ["--cgroup", place, "--other-ports", "high"];
    check(SETTINGS, &high, "not a directory of version 2 cgroups");
    check(
        &format!("algorithm = \"aequitas-2\"\n{SETTINGS}"),
        &high,
        "rpc.toml: algorithm = \"aequitas-2\" has no effect on messages that the kernel decides: set algorithm",
    );
    check("[[class]]\n", &high, "rpc.toml:1");
}

#[test]
fn a_view_has_the_fields_of_its_schema() {
    let Some(mount) = cgroup::mount(&Root::machine()).filter(|_| namespaces::is_root()) else {
        skip("needs root and cgroups of version 2");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rpc.toml");
    std::fs::write(&file, SETTINGS).unwrap();
    let group = Path::new(&mount).join(format!("isolane-rpc-enforce-{}", std::process::id()));
    std::fs::create_dir(&group).unwrap();
    let place = group.to_str().unwrap();
    let arguments = ["--cgroup", place, "--port", "443=high", "--count", "1"];
    let shown = enforce(&file, &[&arguments[..], &["--interval", "100ms"]].concat());
    let more = ["--interval", "100ms", "--json"];
    let (code, text, said) = enforce(&file, &[&arguments[..], &more].concat());
    std::fs::remove_dir(&group).unwrap();
    assert_eq!(shown.0, Some(0), "{}", shown.2);
    assert!(shown.1.contains("No message ended."), "{}", shown.1);
    assert_eq!(code, Some(0), "{said}");
    let view: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(view["mode"], "enforce");
    let schema = Command::new(env!("CARGO_BIN_EXE_isolane"))
        .args(["catalog", "schema", "rpc-enforce"])
        .output()
        .unwrap();
    let schema: serde_json::Value = serde_json::from_slice(&schema.stdout).unwrap();
    let required = schema["required"].as_array().unwrap();
    let named = |key: &str| required.iter().any(|name| name == key);
    let keys = view.as_object().unwrap();
    assert!(keys.keys().all(|key| named(key)), "{view}");
    assert_eq!(keys.len(), required.len());
}

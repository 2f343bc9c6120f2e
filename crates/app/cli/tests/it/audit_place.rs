//! Audits of own tenants, and audits that meet another one in their directory.
#![allow(clippy::unwrap_used)]

use crate::support::{check, refuses};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Two tenants that own a file.
fn own(directory: &Path) -> String {
    let path = directory.join("own.toml");
    let text = "profile = \"cx4-40g-roce\"\nduration = \"200us\"\nwarmup = \"50us\"\n\
                [[tenant]]\nname = \"cache\"\nclass = \"latency\"\nperftest = \"ib_read_lat -s 4096\"\n\
                [[tenant]]\nname = \"backup\"\nperftest = \"ib_write_bw -s 1048576 -q 4\"\n";
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn own_tenants_are_audited_with_the_files_profile_and_times() {
    let directory = tempfile::tempdir().unwrap();
    let file = own(directory.path());
    let out = directory.path().join("out");
    let out_text = out.to_str().unwrap();
    let audit = [
        "audit",
        "--scenario",
        &file,
        "--seeds",
        "2",
        "--report",
        out_text,
    ];
    let (text, _) = check(&audit, 0);
    assert!(text.contains("policy none on cx4-40g-roce"), "{text}");
    let value: Value =
        serde_json::from_str(&fs::read_to_string(out.join("audit.json")).unwrap()).unwrap();
    assert_eq!(value["measured_us"], 200.0);
    assert_eq!(value["warmup_us"], 50.0);
    assert_eq!(value["cells"].as_array().unwrap().len(), 2 * 2 * 2);
    assert_eq!(value["victims"][0]["kind"], "latency");
    assert_eq!(value["cells"][0]["verdict"], "not-applicable");
    assert!(value["rerun"].as_str().unwrap().contains("--scenario"));
    for name in ["audit.xml", "report.html"] {
        assert!(
            fs::read_to_string(out.join(name))
                .unwrap()
                .contains("backup"),
            "{name}"
        );
    }
    let longer = [
        "--duration",
        "300us",
        "--victims",
        "cache",
        "--force",
        "--json",
    ];
    let (json, _) = check(&[&audit[..], &longer].concat(), 0);
    let value: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["measured_us"], 300.0);
    assert_eq!(value["victims"].as_array().unwrap().len(), 1);
    refuses(
        &[&audit[..], &["--victims", "cash"]].concat(),
        &["no victim matches"],
    );
    check(&[&audit[..], &["--quick"]].concat(), 2);
}

#[test]
fn another_audits_directory_is_not_replaced_silently() {
    let directory = tempfile::tempdir().unwrap();
    let file = own(directory.path());
    let out = directory.path().join("out");
    let out = out.to_str().unwrap();
    let with = |more: &[&str], code: i32| {
        let fixed = [
            "audit",
            "--scenario",
            &file,
            "--policies",
            "none",
            "--report",
            out,
        ];
        check(&[&fixed, more].concat(), code)
    };
    let (_, stderr) = with(&["--resume"], 0);
    assert!(stderr.contains("no journal to resume"), "{stderr}");
    with(&[], 0);
    let (_, stderr) = with(&["--seeds", "2"], 2);
    assert!(
        stderr.contains(out) && stderr.contains("--force"),
        "{stderr}"
    );
    let (_, stderr) = with(&["--resume", "--duration", "100us"], 2);
    assert!(stderr.contains("none of which this one needs"), "{stderr}");
    // Runs of pairs end when the limit decides, and the limit is a median over the seeds: only solo runs are the same.
    let (_, stderr) = with(&["--resume", "--seeds", "4"], 0);
    assert!(stderr.contains("reused 6 of 16 runs"), "{stderr}");
    with(&["--seeds", "2", "--force"], 0);
}

#[test]
fn a_second_audit_in_one_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = own(directory.path());
    let out = directory.path().to_str().unwrap();
    let lock = fs::File::create(directory.path().join("audit.lock")).unwrap();
    lock.lock().unwrap();
    refuses(
        &["audit", "--scenario", &file, "--report", out],
        &["another audit is running", out],
    );
}

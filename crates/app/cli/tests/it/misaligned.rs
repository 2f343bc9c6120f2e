//! `isolane rpc misaligned` from the command line: exit codes, the table, and what it refuses.
#![allow(clippy::unwrap_used)]

use crate::support::outcome;
use std::path::{Path, PathBuf};

/// A capture of raw IPv4: one segment of 5 bytes from port 40000 to port 443, with this code point.
fn capture(folder: &Path, dscp: u8) -> PathBuf {
    let mut file = Vec::new();
    file.extend(0xa1b2_c3d4u32.to_le_bytes());
    file.extend([2, 0, 4, 0]);
    for word in [0u32, 0, 65_535, 101, 1, 0, 45, 45] {
        file.extend(word.to_le_bytes());
    }
    file.extend([0x45, dscp << 2, 0, 45, 0, 0, 0, 0, 64, 6, 0, 0]);
    file.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    file.extend(40_000u16.to_be_bytes());
    file.extend(443u16.to_be_bytes());
    file.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x10, 255, 255, 0, 0, 0, 0]);
    file.extend(b"hello");
    let path = folder.join(format!("{dscp}.pcap"));
    std::fs::write(&path, file).unwrap();
    path
}

fn misaligned(file: &Path, more: &[&str]) -> (Option<i32>, String, String) {
    let first = ["rpc", "misaligned", file.to_str().unwrap()];
    outcome(&[first.as_slice(), more].concat())
}

#[test]
fn the_exit_code_is_the_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let critical = ["--class", "critical=46", "--port", "443=critical"];
    let (code, text, _) = misaligned(&capture(folder.path(), 46), &critical);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("aligned: 1 row"), "{text}");
    let (code, text, _) = misaligned(&capture(folder.path(), 0), &critical);
    assert_eq!(code, Some(1));
    assert!(text.starts_with("MISALIGNED: 1 row of 1"), "{text}");
    assert!(text.contains("10.0.0.2:443"), "{text}");
    let json = [&critical[..], &["--json"]].concat();
    let (code, text, _) = misaligned(&capture(folder.path(), 0), &json);
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(code, Some(1));
    assert_eq!(report["verdict"], "misaligned");
    assert_eq!(report["rows"][0]["misaligned_bytes"], 5);
    let (code, text, _) = misaligned(&capture(folder.path(), 0), &critical[..2]);
    assert_eq!(code, Some(3));
    assert!(text.contains("give --port or --connections"), "{text}");
}

#[test]
fn what_cannot_be_judged_is_refused_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let good = capture(folder.path(), 46);
    let check = |file: &Path, more: &[&str], part: &str| {
        let (code, text, said) = misaligned(file, more);
        assert_eq!((code, text.as_str()), (Some(2), ""), "{said}");
        assert!(said.contains(part), "{part:?} is not in {said}");
    };
    check(&good, &[], "no classes: give --settings FILE");
    check(
        &good,
        &["--class", "critical=64"],
        "code point from 0 to 63",
    );
    let one = ["--class", "critical=46"];
    check(
        &good,
        &[&one[..], &["--port", "443=critcal"]].concat(),
        "class is \"critcal\"; must be one of critical",
    );
    check(
        &good,
        &[&one[..], &["--tolerance", "-1"]].concat(),
        "--tolerance -1: must be 0 to 100",
    );
    let text = folder.path().join("text");
    std::fs::write(&text, "not a capture, but long enough to be one").unwrap();
    check(&text, &one, "not a capture: give a pcap or pcapng file");
    check(&folder.path().join("46.pcpa"), &one, "46.pcap");
}

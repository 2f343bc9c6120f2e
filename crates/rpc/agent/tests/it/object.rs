//! The committed object comes from the committed sources.
//!
//! Method: recorded hashes of the sources, and with the same compiler the same bytes.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf")
}

fn origin() -> String {
    std::fs::read_to_string(sources().join("agent.bpf.origin")).expect("it is committed")
}

#[test]
fn the_object_comes_from_the_sources() {
    for line in origin().lines().skip(1) {
        let (recorded, name) = line.split_once("  ").expect("hash and name");
        let bytes = std::fs::read(sources().join(name)).expect("a source");
        let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
        let mut hash = String::new();
        for byte in digest.as_ref() {
            write!(hash, "{byte:02x}").expect("strings grow");
        }
        assert_eq!(hash, recorded, "{name} has changed: run `make bpf`");
    }
    let names = origin().lines().count() - 1;
    let files = std::fs::read_dir(sources()).expect("the folder").count();
    assert_eq!(files, names + 2, "sources, object and origin, nothing else");
}

#[test]
fn the_same_compiler_makes_the_same_object() {
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let version = Command::new(&clang).arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let here = version.as_deref().ok().and_then(|text| text.lines().next());
    let origin = origin();
    let recorded = origin.lines().next();
    if here != recorded {
        println!("skipped: the object was made by {recorded:?}, here is {here:?}");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let made = folder.path().join("agent.bpf.o");
    let ended = Command::new(sources().join("compile")).arg(&made).status();
    assert!(ended.expect("runs").success());
    let bytes = std::fs::read(&made).expect("made");
    let committed = std::fs::read(sources().join("agent.bpf.o")).expect("it is committed");
    assert!(
        bytes == committed,
        "the object is not what its sources make: run `make bpf`"
    );
}

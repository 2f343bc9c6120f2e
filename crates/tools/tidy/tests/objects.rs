//! The committed BPF objects come from the committed sources: recorded hashes of the sources, and with the same compiler
//! the same bytes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const FOLDERS: [&str; 2] = ["crates/ethernet/bpf/bpf", "crates/rpc/agent/bpf"];
const SHARED: &str = "crates/common/linux/bpf";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// The only file of `folder` whose name ends in `end`.
fn only(folder: &str, end: &str) -> PathBuf {
    let mut found = fs::read_dir(root().join(folder))
        .expect("the directory")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.to_string_lossy().ends_with(end));
    let path = found.next().expect("a file");
    assert_eq!(found.next(), None, "{folder} has one *{end}");
    path
}

/// The compiler, and the lines of hash and path.
fn origin(folder: &str) -> (String, String) {
    let text = fs::read_to_string(only(folder, ".origin")).expect("it is committed");
    let (compiler, hashes) = text.split_once('\n').expect("a line");
    (compiler.to_owned(), hashes.to_owned())
}

fn files_in(folder: &str) -> usize {
    fs::read_dir(root().join(folder))
        .expect("the directory")
        .count()
}

#[test]
fn objects_come_from_their_sources() {
    for folder in FOLDERS {
        let (_, hashes) = origin(folder);
        for line in hashes.lines() {
            let (recorded, path) = line.split_once("  ").expect("hash and path");
            let output = Command::new("sha256sum").arg(root().join(path)).output();
            let output = String::from_utf8(output.expect("coreutils").stdout).expect("text");
            let hash = output.split(' ').next();
            assert_eq!(hash, Some(recorded), "{path} has changed: run `make bpf`");
        }
        let sources = files_in(folder) + files_in(SHARED) - 2;
        assert_eq!(
            hashes.lines().count(),
            sources,
            "{folder}: sources, object and origin"
        );
    }
}

#[test]
fn the_same_compiler_makes_the_same_objects() {
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let version = Command::new(clang).arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let here = version.as_deref().ok().and_then(|text| text.lines().next());
    let made = tempfile::NamedTempFile::new().expect("a file");
    for folder in FOLDERS {
        let (recorded, _) = origin(folder);
        if here != Some(&recorded) {
            println!("skipped: {recorded} made the object of {folder}, here is {here:?}");
            continue;
        }
        let mut compile = Command::new(root().join(SHARED).join("compile"));
        let ended = compile.arg(root().join(folder)).arg(made.path()).status();
        assert!(ended.expect("runs").success());
        assert!(
            fs::read(made.path()).expect("made")
                == fs::read(only(folder, ".bpf.o")).expect("committed"),
            "the object of {folder} is not what its sources make: run `make bpf`"
        );
    }
}

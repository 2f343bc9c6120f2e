//! The committed object: made from the committed sources, laid out as user space reads it, cheap to verify.
//!
//! Method: recorded hashes of the sources, and with the same compiler the same bytes; offsets from the object's type
//! information (BTF) against those of `src/intf.rs` are in that file's tests; the verifier's own count of instructions.
#![allow(unsafe_code)]

use crate::support::{ifindex, in_lab};
use isolane_ethernet_bpf::{Completion, Dqa, DqaSettings, LoadOptions};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Far below the limit of a million, with room for kernels that follow more paths than 6.18 (which needs 50,000).
const VERIFIED_AT_MOST: u32 = 150_000;

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf")
}

fn origin() -> String {
    std::fs::read_to_string(sources().join("dqa.bpf.origin")).expect("it is committed")
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
    let made = std::env::temp_dir().join(format!("dqa-{}.o", std::process::id()));
    let ended = Command::new(sources().join("compile")).arg(&made).status();
    assert!(ended.expect("runs").success());
    let bytes = std::fs::read(&made).expect("made");
    std::fs::remove_file(&made).expect("ours");
    let committed = std::fs::read(sources().join("dqa.bpf.o")).expect("it is committed");
    assert!(
        bytes == committed,
        "the object is not what its sources make: run `make bpf`"
    );
}

#[test]
fn the_verifier_has_little_to_do() {
    in_lab("the_verifier", |pins| {
        println!("completion   program    verified instructions (at most {VERIFIED_AT_MOST})");
        for completion in [Completion::Freed, Completion::HandedOver] {
            let options = LoadOptions {
                ifindex: ifindex("lo"),
                queues: 64,
                completion,
                hardware_segmentation: false,
                pins: pins.into(),
                flows: 0,
            };
            let dqa = Dqa::load(&options, &DqaSettings::default()).expect("loads");
            let cost = dqa.run_time().expect("readable");
            for (name, program) in [
                ("egress", cost.egress),
                ("completed", cost.completed),
                ("dropped", cost.dropped),
                ("steer", cost.steer),
            ] {
                let verified = program.verified_instructions;
                println!("{completion:<11?}  {name:<9}  {verified:>7}");
                assert!(
                    (1..=VERIFIED_AT_MOST).contains(&verified),
                    "{name}: {verified}"
                );
            }
            dqa.detach().expect("detaches");
        }
    });
}

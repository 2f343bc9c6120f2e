//! A gRPC program in C++ compiled against `isolane_rpc_grpc.h`; skipped where Debian's `libgrpc++-dev` is missing.
#![allow(clippy::unwrap_used)]

use crate::interface::{SANITIZERS, check_program, library};
use isolane_common_linux::skip::skip;
use std::path::PathBuf;
use std::process::Command;

/// The compiler's options for gRPC in C++; none if the machine has no compiler or no headers.
fn options() -> Option<Vec<String>> {
    Command::new("c++").arg("--version").output().ok()?;
    let said = Command::new("pkg-config")
        .args(["--cflags", "--libs", "grpc++"])
        .output()
        .ok()?;
    let words = String::from_utf8(said.stdout).ok()?;
    let words = words.split_whitespace().map(str::to_owned).collect();
    said.status.success().then_some(words)
}

#[test]
fn a_cpp_client_of_grpc_is_marked_measured_and_downgraded() {
    let Some(options) = options() else {
        skip("C++ gRPC (no c++, or pkg-config finds no grpc++; install libgrpc++-dev)");
        return;
    };
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("grpc");
    let library = library();
    let compiled = Command::new("c++")
        .args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-O0"])
        .arg("-I")
        .arg(here.join("include"))
        .arg(here.join("tests/grpc.cpp"))
        .arg("-L")
        .arg(&library)
        .arg("-lisolane_rpc")
        .args(options)
        .args(SANITIZERS)
        .arg("-pthread")
        .arg(format!("-Wl,-rpath,{}", library.display()))
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    check_program(&compiled, &program);
}

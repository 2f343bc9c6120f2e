//! A C program compiled against the header and the shared library, and random inputs of the whole interface.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks, clippy::unwrap_used)]

use isolane_rpc::ffi::*;
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Options of the compilers for C and C++ in `make sanitize`.
#[allow(unexpected_cfgs, reason = "`make sanitize` sets isolane_sanitizer")]
pub(crate) const SANITIZERS: &[&str] = if cfg!(isolane_sanitizer) {
    &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
} else {
    &[]
};

/// The directory with the shared library that was built for this test.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap();
    for folder in [folder, folder.parent().unwrap()] {
        if folder.join("libisolane_rpc.so").exists() {
            return folder.to_owned();
        }
    }
    panic!("no libisolane_rpc.so beside {}", test.display());
}

#[test]
fn a_c_program_uses_it_and_survives_its_own_mistakes() {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("interface");
    let library = library();
    let compiled = Command::new("cc")
        .args([
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pedantic",
            "-O1",
        ])
        .arg("-I")
        .arg(here.join("include"))
        .arg(here.join("tests/interface.c"))
        .arg("-L")
        .arg(&library)
        .args(["-lisolane_rpc", "-lm", "-pthread"])
        .args(SANITIZERS)
        .arg(format!("-Wl,-rpath,{}", library.display()))
        .arg("-o")
        .arg(&program)
        .output()
        .expect("cc runs: Rust needs it too");
    check_program(&compiled, &program);
}

/// Runs a compiled test program.
pub(crate) fn check_program(compiled: &Output, program: &Path) {
    let errors = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{errors}");
    let ran = Command::new(program).output().unwrap();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{:?}: {errors}", ran.status);
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "all is well\n");
}

const SETTINGS: &str = include_str!("../data/two-classes.toml");

/// A pointer and a length: valid, or invalid in a detectable way.
#[derive(Clone, Debug)]
enum Bytes {
    Sound(Vec<u8>),
    Null(usize),
    Long(usize),
}

impl Bytes {
    fn parts(&self) -> (*const u8, usize) {
        match self {
            Self::Sound(bytes) => (bytes.as_ptr(), bytes.len()),
            Self::Null(len) => (std::ptr::null(), *len),
            // Never read: the length alone is rejected.
            Self::Long(len) => (
                [].as_ptr(),
                LENGTH_MAX.saturating_add(1).saturating_add(*len),
            ),
        }
    }
}

fn some_bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::Sound),
        1 => any::<usize>().prop_map(Bytes::Null),
        1 => any::<usize>().prop_map(Bytes::Long),
    ]
}

fn settings_text() -> impl Strategy<Value = Bytes> {
    let cut = (0..SETTINGS.len(), 0..SETTINGS.len(), any::<u8>()).prop_map(|(from, at, byte)| {
        let mut text = SETTINGS.as_bytes()[from..].to_vec();
        if let Some(place) = text.get_mut(at) {
            *place = byte;
        }
        Bytes::Sound(text)
    });
    prop_oneof![some_bytes(), cut]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Every input gets an answer, and the handle keeps working.
    #[test]
    fn every_input_is_answered(
        text in settings_text(),
        destination in some_bytes(),
        class in prop_oneof![0u32..3, any::<u32>()],
        size in any::<u64>(),
        ticket in any::<u64>(),
        latency in any::<u64>(),
        capacity in 0usize..100,
        odd in any::<usize>(),
    ) {
        unsafe {
            let (start, len) = text.parts();
            let opened = isolane_rpc_open(start.cast(), len);
            let handle = isolane_rpc_open(SETTINGS.as_ptr().cast(), SETTINGS.len());
            prop_assert!(!handle.is_null());
            let reloaded = isolane_rpc_reload(handle, start.cast(), len);
            prop_assert!(reloaded == 0 || reloaded == Code::BadSettings as i32 || opened.is_null());
            isolane_rpc_close(opened);

            let (start, len) = destination.parts();
            let mut decision = CDecision::default();
            let code = isolane_rpc_decide(handle, start, len, class, size, &mut decision);
            let sound = matches!(destination, Bytes::Sound(_)) && class < 2;
            prop_assert_eq!(code == 0, sound);
            prop_assert_eq!(decision.ticket != 0, sound);
            if sound {
                prop_assert_eq!(isolane_rpc_complete(handle, decision.ticket, latency), 0);
            }
            prop_assert!(isolane_rpc_complete(handle, ticket, latency) <= 0);
            let mut probability = -1.0;
            let code = isolane_rpc_probability(handle, start, len, class, &mut probability);
            prop_assert_eq!(code == 0, sound);
            isolane_rpc_class_index(handle, start.cast(), len);
            isolane_rpc_forget(handle, start, len);
            isolane_rpc_class_dscp(handle, class);

            let mut buffer = [0x55u8; 100];
            let mut length = 0;
            let code = isolane_rpc_metrics(handle, buffer.as_mut_ptr().cast(), capacity, &mut length);
            prop_assert_eq!(code, 0);
            prop_assert!(length > 100);
            prop_assert!(buffer[capacity..].iter().all(|&byte| byte == 0x55), "wrote beyond the end");
            if capacity > 0 {
                prop_assert_eq!(buffer[capacity - 1], 0);
            }
            // An invented handle; it is valid with a probability of 2^-60.
            let invented = std::ptr::without_provenance_mut(odd);
            if invented != handle {
                let code = isolane_rpc_complete(invented, ticket, latency);
                prop_assert_eq!(code, Code::BadHandle as i32);
            }
            isolane_rpc_close(handle);
            prop_assert_eq!(isolane_rpc_complete(handle, ticket, 0), Code::BadHandle as i32);
            let error = std::ffi::CStr::from_ptr(isolane_rpc_last_error());
            prop_assert!(error.to_string_lossy().contains("handle"));
        }
    }
}

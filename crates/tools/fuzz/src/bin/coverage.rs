//! The program that `make fuzz` runs: libFuzzer with the target that `ISOLANE_FUZZ_TARGET` names.
//!
//! `ISOLANE_FUZZ_LIST` prints the names of all targets. `ISOLANE_FUZZ_SEEDS=DIR` writes the target's seeds into a directory,
//! where libFuzzer begins. SAFETY: the macro defines the C function that libFuzzer calls, under the name that it needs.
#![no_main]
#![allow(unsafe_code, missing_docs)]

use isolane_tools_fuzz::targets::ALL;
use isolane_tools_fuzz::{Target, target};
use std::sync::OnceLock;

static CHOSEN: OnceLock<&'static Target> = OnceLock::new();

fn chosen() -> &'static Target {
    let name = std::env::var("ISOLANE_FUZZ_TARGET").unwrap_or_default();
    target(&name).unwrap_or_else(|| panic!("ISOLANE_FUZZ_TARGET = {name:?} names no target"))
}

libfuzzer_sys::fuzz_target!(init: {
    if std::env::var_os("ISOLANE_FUZZ_LIST").is_some() {
        for target in ALL.iter().copied().flatten() {
            println!("{}", target.name);
        }
        std::process::exit(0);
    }
    let target = CHOSEN.get_or_init(chosen);
    if let Some(folder) = std::env::var_os("ISOLANE_FUZZ_SEEDS") {
        for (number, input) in target.inputs().iter().enumerate() {
            let path = std::path::Path::new(&folder).join(format!("seed-{number}"));
            std::fs::write(path, input).expect("the directory of seeds takes files");
        }
        std::process::exit(0);
    }
}, |data: &[u8]| {
    (CHOSEN.get_or_init(chosen).run)(data);
});

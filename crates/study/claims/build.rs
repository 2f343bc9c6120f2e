//! Lists every claim, and every scenario that a claim runs, for `src/embedded.rs`: a new file needs no line of code.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let root = package.join("../../..");
    let mut claims = Vec::new();
    collect(&root, "claims", &mut claims);
    let texts: String = claims.iter().map(|file| read(&root.join(file))).collect();
    let mut scenarios = Vec::new();
    collect(&root, "scenarios", &mut scenarios);
    scenarios.retain(|file| {
        let name = file.trim_start_matches("scenarios/");
        name.starts_with("claims/") || texts.contains(&format!("\"{name}\""))
    });
    let list = format!(
        "{}{}",
        constant("Every claim", "CLAIMS", claims),
        constant("Every scenario that a claim runs", "SCENARIOS", scenarios)
    );
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("embedded.rs"), list).expect("cargo makes the directory");
}

/// Appends the paths of all TOML files below `folder`, relative to `root`.
fn collect(root: &Path, folder: &str, files: &mut Vec<String>) {
    println!("cargo:rerun-if-changed={}", root.join(folder).display());
    for entry in fs::read_dir(root.join(folder)).expect("the directory is in the repository") {
        let entry = entry.expect("the directory can be read");
        let name = entry.file_name().into_string().expect("names are UTF-8");
        let path = format!("{folder}/{name}");
        if entry.path().is_dir() {
            collect(root, &path, files);
        } else if name.ends_with(".toml") {
            files.push(path);
        }
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("claims are UTF-8")
}

/// The constant `name`, described by `about`, with path and text of each of `files`, sorted by path.
fn constant(about: &str, name: &str, mut files: Vec<String>) -> String {
    files.sort();
    let mut text = format!(
        "/// {about}: path inside the repository, text.\npub(crate) const {name}: &[(&str, &str)] = &[\n"
    );
    for file in files {
        let _ = writeln!(
            text,
            "({file:?}, include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/../../../{file}\"))),"
        );
    }
    text + "];\n"
}

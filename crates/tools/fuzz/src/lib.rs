//! Fuzz targets: every decoder, journal, page and message that this project reads from others.
//!
//! Problem: a program that stops or takes all memory on bytes from a tenant, a peer or a file harms all its users.
//! Method: a [`Target`] takes any bytes, gives them to one decoder as the product does, and checks what must hold of
//! the result, such as "an encoded value decodes to itself". Two drivers run the targets:
//!
//! * [`driver`] - deterministic: it changes seeds at random, with a seed of its own. `make test` runs it for seconds;
//! * `src/bin/coverage.rs` (feature `coverage`) - libFuzzer, which keeps the inputs that reach new code. `make fuzz
//!   MINUTES=60` runs it.
//!
//! Both begin with the same seeds: files of this repository, messages from our own encoders, and the files below
//! `corpus/NAME`, among them each input that once stopped a decoder. Units: bytes. Limits: a target covers decoding, not
//! what a service does afterwards; the tests of the services do that.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod driver;
pub mod targets;

use std::path::{Path, PathBuf};

/// One decoder under test.
#[derive(Clone, Copy)]
pub struct Target {
    /// Name on the command line and of the directory below `corpus`.
    pub name: &'static str,
    /// Gives the bytes to the decoder; a defect is a panic.
    pub run: fn(&[u8]),
    /// Valid inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

impl Target {
    /// Valid inputs and the files of the corpus, in a stable order. Panics if a file of the corpus cannot be read.
    pub fn inputs(&self) -> Vec<Vec<u8>> {
        let mut inputs = (self.seeds)();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("corpus")
            .join(self.name);
        inputs.extend(files(&folder).iter().map(|path| read(path)));
        inputs
    }
}

/// The target called `name`.
pub fn target(name: &str) -> Option<&'static Target> {
    targets::ALL
        .iter()
        .copied()
        .flatten()
        .find(|target| target.name == name)
}

/// Files in a directory, sorted; none without the directory.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.is_file());
    paths.sort();
    paths
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Files of this repository: all in a directory, or one.
pub(crate) fn of_repository(paths: &[&str]) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let all = paths.iter().flat_map(|path| match root.join(path) {
        folder if folder.is_dir() => files(&folder),
        file => vec![file],
    });
    all.map(|path| read(&path)).collect()
}

//! Printing and writing files: whole documents or nothing.

use anyhow::{Context, Result};
use serde::Serialize;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

/// Prints `text` on stdout.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    written.context("cannot write to stdout")
}

/// Prints `value` on stdout as one JSON document that ends in a newline.
pub(crate) fn print_json(value: &impl Serialize) -> Result<()> {
    print(&json(value)?)
}

/// `value` as a JSON document, indented, ending in a newline.
pub(crate) fn json(value: &impl Serialize) -> Result<String> {
    let mut text = serde_json::to_string_pretty(value).context("cannot make JSON")?;
    text.push('\n');
    Ok(text)
}

/// `value` as a JSON document on one line, ending in a newline: for thousands of cells with series.
pub(crate) fn compact_json(value: &impl Serialize) -> Result<String> {
    let mut text = serde_json::to_string(value).context("cannot make JSON")?;
    text.push('\n');
    Ok(text)
}

/// Says `line` on stderr. Nobody may be listening there, which is no reason to fail.
pub(crate) fn note(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// True when stdout takes colours: a terminal, unless NO_COLOR is set to anything (no-color.org).
pub(crate) fn colour() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !refused
}

/// Makes the directory `path` with its parents.
pub(crate) fn make_directory(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| {
        format!(
            "cannot make the directory {}; choose another",
            path.display()
        )
    })
}

/// Writes `text` to `path` so that the file is never half there: under another name first, then renamed.
pub(crate) fn write_file(path: &Path, text: &str) -> Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part = path.with_file_name(name);
    let written = fs::write(&part, text).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        // Best effort: on a full disk the partial file is what fills it.
        let _ = fs::remove_file(&part);
    }
    written.with_context(|| {
        format!(
            "cannot write {}; free space or choose another place",
            path.display()
        )
    })
}

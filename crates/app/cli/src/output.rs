//! Printing and writing files: whole documents or nothing.

use crate::inputs::bad;
use anyhow::{Context, Result};
use isolane_common_text_output::wrapped;
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

/// Prints sentences and tables for people on stdout: on a terminal, lines that are too wide are broken.
pub(crate) fn show(text: &str) -> Result<()> {
    print(&wrapped(text, width()))
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

/// Says `line` on stderr. A closed stderr is no error.
pub(crate) fn note(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// True when stdout takes colours: a terminal, unless NO_COLOR is set to anything (no-color.org).
pub(crate) fn colour() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !refused
}

/// Narrower terminals are treated as this wide.
const WIDTH_MIN: u16 = 40;

/// Columns of the terminal that stdout is. Elsewhere the environment variable COLUMNS, if it is a number; otherwise none:
/// lines in files and pipes are whole. None in tests, whose output must not be wrapped.
pub(crate) fn width() -> Option<usize> {
    if cfg!(test) {
        return None;
    }
    let columns = match io::stdout().is_terminal() {
        true => rustix::termios::tcgetwinsize(io::stdout()).ok()?.ws_col,
        false => std::env::var("COLUMNS").ok()?.trim().parse().ok()?,
    };
    (columns > 0).then(|| usize::from(columns.max(WIDTH_MIN)))
}

/// Makes the directory `path` with its parents. A file in its place is bad input.
pub(crate) fn make_directory(path: &Path) -> Result<()> {
    no_file_in_place_of(path)?;
    fs::create_dir_all(path).with_context(|| {
        format!(
            "cannot make the directory {}; choose another",
            path.display()
        )
    })
}

/// Fails where the directory `path` cannot be made and written to. Called before a long run; leaves no file behind.
pub(crate) fn check_directory(path: &Path) -> Result<()> {
    no_file_in_place_of(path)?;
    probe(nearest(path)).with_context(|| {
        format!(
            "cannot write into the directory {}; choose another",
            path.display()
        )
    })
}

/// Fails where the file `path` cannot be written. Called before a long run; leaves no file behind.
pub(crate) fn check_file(path: &Path) -> Result<()> {
    let name = match path.as_os_str().is_empty() {
        true => "\"\"".to_owned(),
        false => path.display().to_string(),
    };
    if path.is_dir() || path.file_name().is_none() {
        return Err(bad(format!(
            "{name} is a directory, and a file is needed; name a file in it"
        )));
    }
    if is_stream(path) {
        return Ok(());
    }
    let parent = parent(path);
    no_file_in_place_of(parent)?;
    if !parent.exists() {
        return Err(bad(format!(
            "{name}: there is no directory {}; make it, or choose another place",
            parent.display()
        )));
    }
    probe(parent).with_context(|| no_place(path))
}

/// The directory that `path` is in.
fn parent(path: &Path) -> &Path {
    let parent = path.parent().filter(|part| !part.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// The part of `path` that exists: itself, or the nearest directory above it.
fn nearest(path: &Path) -> &Path {
    let there = path.ancestors().find(|part| part.exists());
    let nearest = there.filter(|part| !part.as_os_str().is_empty());
    nearest.unwrap_or(Path::new("."))
}

/// Fails where `path`, or what should be a directory above it, is a file.
fn no_file_in_place_of(path: &Path) -> Result<()> {
    let there = nearest(path);
    match (there.is_dir(), there == path) {
        (true, _) => Ok(()),
        (false, true) => Err(bad(format!(
            "{} is a file, and a directory is needed; name a directory, which is made if it does not exist",
            path.display()
        ))),
        (false, false) => Err(bad(format!(
            "cannot make the directory {}: {} is a file; choose another place",
            path.display(),
            there.display()
        ))),
    }
}

/// Makes a file in `directory`, and removes it.
fn probe(directory: &Path) -> io::Result<()> {
    let path = directory.join(format!(".isolane-{}.part", std::process::id()));
    create_new(&path)?;
    fs::remove_file(&path)
}

/// True of a pipe or a device, like /dev/null: written to as it is, for a rename would put a file in its place. A link to a device
/// counts in /dev alone, where only root makes links: elsewhere another user can have put it there.
fn is_stream(path: &Path) -> bool {
    let link = path.is_symlink() && !path.starts_with("/dev");
    let stream = |found: fs::Metadata| !found.is_file() && !found.is_dir();
    !link && path.metadata().is_ok_and(stream)
}

/// Makes a file in place of an old one of this name. Whatever another user puts there meanwhile, a link above all, is an
/// error and is not written to.
fn create_new(path: &Path) -> io::Result<fs::File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => fs::File::create_new(path),
    }
}

fn no_place(path: &Path) -> String {
    format!(
        "cannot write {}; free space or choose another place",
        path.display()
    )
}

/// Writes `text` to `path` so that the file is never half there: under another name first, then renamed.
pub(crate) fn write_file(path: &Path, text: &str) -> Result<()> {
    if is_stream(path) {
        return fs::write(path, text).with_context(|| no_place(path));
    }
    replace(path, |file| file.write_all(text.as_bytes())).with_context(|| no_place(path))
}

/// Puts a new file at `path` when `fill` has written all of it. Neither a link at `path` nor one at its name while it is
/// written is followed.
pub(crate) fn replace(
    path: &Path,
    fill: impl FnOnce(&mut fs::File) -> io::Result<()>,
) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part = path.with_file_name(name);
    let written = create_new(&part)
        .and_then(|mut file| fill(&mut file))
        .and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        // Best effort: on a full disk the partial file is what fills it.
        let _ = fs::remove_file(&part);
    }
    written
}

/// `error` with its causes on one line; a cause that the text before it has said already is left out.
pub(crate) fn error_line(error: &anyhow::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    for cause in error.chain() {
        let text = cause.to_string().replace('\n', " ");
        if parts.last().is_none_or(|said| !said.contains(&text)) {
            parts.push(text);
        }
    }
    parts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_planted_link_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("precious"), "kept").unwrap();
        for link in ["out", "out.part"] {
            symlink(at("precious"), at(link)).unwrap();
        }
        symlink("/dev/full", at("device")).unwrap();
        write_file(&at("out"), "new").unwrap();
        write_file(&at("device"), "new").unwrap();
        check_file(&at("device")).unwrap();
        assert_eq!(fs::read_to_string(at("precious")).unwrap(), "kept");
        for name in ["out", "device"] {
            assert!(at(name).symlink_metadata().unwrap().is_file(), "{name}");
            assert_eq!(fs::read_to_string(at(name)).unwrap(), "new");
        }
    }

    #[test]
    fn places_that_cannot_be_written_are_known_before() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("file"), "kept").unwrap();
        assert!(check_directory(&at("new/deep")).is_ok() && check_file(&at("new")).is_ok());
        assert!(check_file(&at("file")).is_ok() && check_directory(directory.path()).is_ok());
        assert!(
            check_file(Path::new("bare")).is_ok() && check_directory(Path::new("bare")).is_ok()
        );
        for (refused, reason) in [
            (
                check_directory(&at("file")),
                "is a file, and a directory is needed",
            ),
            (
                make_directory(&at("file")),
                "is a file, and a directory is needed",
            ),
            (
                check_directory(&at("file/below")),
                "file is a file; choose another place",
            ),
            (
                check_file(&at("file/below")),
                "is a file, and a directory is needed",
            ),
            (check_file(&at("new/file")), "there is no directory"),
            (
                check_file(directory.path()),
                "is a directory, and a file is needed",
            ),
            (
                check_file(Path::new("")),
                "is a directory, and a file is needed",
            ),
        ] {
            let error = refused.unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
            assert_eq!(crate::status::exit_code(&error), crate::status::BAD_INPUT);
        }
        // The kernel makes no directory there, also not for root.
        let error = check_directory(Path::new("/proc/isolane")).unwrap_err();
        assert!(error.to_string().contains("choose another"), "{error}");
        assert_ne!(crate::status::exit_code(&error), crate::status::BAD_INPUT);
        let left = fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(
            (left, fs::read_to_string(at("file")).unwrap()),
            (1, "kept".to_owned())
        );
    }

    #[test]
    fn a_device_stays_a_device() {
        let null = Path::new("/dev/null");
        check_file(null).unwrap();
        write_file(null, "text").unwrap();
        assert!(is_stream(null));
    }

    #[test]
    fn a_cause_is_said_once() {
        let cause = || io::Error::other("the disk is full");
        let twice =
            anyhow::Error::new(cause()).context("cannot write a: the disk is full; free space");
        assert_eq!(
            error_line(&twice),
            "cannot write a: the disk is full; free space"
        );
        let once = anyhow::Error::new(cause()).context("cannot write a");
        assert_eq!(error_line(&once), "cannot write a: the disk is full");
    }
}

//! The journal: one JSON line per finished run, so that an interrupted audit can go on where it stopped.
//!
//! The first line says which build of which program wrote it, since any change of the simulator may change a
//! result; another build's journal is refused. A run is recognised by a hash of its scenario, profile, testbed
//! and program version, so a journal also serves an audit with more victims, policies or seeds. A last line cut
//! short by a kill or a full disk is dropped; damage elsewhere is an error.

use crate::AuditError;
use crate::hash::Fnv;
use crate::matrix::AUDIT_VERSION;
use crate::outcome::Outcome;
use crate::plan::PROGRAM_VERSION;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// File name within the output directory.
pub const JOURNAL_NAME: &str = "journal.jsonl";

/// An open journal.
pub(crate) struct Journal {
    file: File,
    path: PathBuf,
}

/// The first line.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    /// Always `isolane audit journal`.
    kind: String,
    /// The program's version.
    program: String,
    /// Which build of it, as the caller tells builds apart.
    build: String,
    /// [`AUDIT_VERSION`].
    audit_version: u32,
}

/// Every other line.
#[derive(Serialize, Deserialize)]
struct Line {
    /// The run's key, hexadecimal.
    key: String,
    /// What came out.
    outcome: Outcome,
}

impl Header {
    fn ours(build: &str) -> Self {
        Self {
            kind: "isolane audit journal".to_owned(),
            program: PROGRAM_VERSION.to_owned(),
            build: build.to_owned(),
            audit_version: AUDIT_VERSION,
        }
    }
}

impl std::fmt::Display for Header {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            program,
            build,
            audit_version,
            ..
        } = self;
        write!(
            f,
            "{program} (build {build}, result version {audit_version})"
        )
    }
}

impl Journal {
    /// Starts an empty journal at `path`, written by `build`.
    pub(crate) fn create(path: &Path, build: &str) -> Result<Self, AuditError> {
        let file = File::create(path).map_err(|source| write_error(path, source))?;
        let mut journal = Self {
            file,
            path: path.to_owned(),
        };
        journal.line(&Header::ours(build))?;
        Ok(journal)
    }

    /// Opens the journal at `path` to continue it, and returns the runs it holds. Without a file there, starts one.
    pub(crate) fn resume(
        path: &Path,
        build: &str,
    ) -> Result<(Self, BTreeMap<u64, Outcome>), AuditError> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok((Self::create(path, build)?, BTreeMap::new()));
            }
            Err(source) => {
                return Err(AuditError::Read {
                    path: path.to_owned(),
                    source,
                });
            }
        };
        // Whatever follows the last line end was being written when the program stopped.
        let complete = text.rfind('\n').map_or(0, |end| end + 1);
        if complete == 0 {
            return Ok((Self::create(path, build)?, BTreeMap::new()));
        }
        let outcomes = parse(path, &text[..complete], build)?;
        let file = OpenOptions::new().append(true).open(path);
        let file = file.map_err(|source| write_error(path, source))?;
        file.set_len(complete as u64)
            .map_err(|source| write_error(path, source))?;
        let path = path.to_owned();
        Ok((Self { file, path }, outcomes))
    }

    /// Adds one run.
    pub(crate) fn record(&mut self, key: u64, outcome: &Outcome) -> Result<(), AuditError> {
        self.line(&Line {
            key: format!("{key:016x}"),
            outcome: outcome.clone(),
        })
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), AuditError> {
        let mut text = serde_json::to_vec(value).expect("journal lines are plain data");
        text.push(b'\n');
        // One write per line: a kill can only cut the last one short.
        self.file
            .write_all(&text)
            .map_err(|source| write_error(&self.path, source))
    }
}

fn parse(path: &Path, text: &str, build: &str) -> Result<BTreeMap<u64, Outcome>, AuditError> {
    let mut lines = text.lines().enumerate();
    let header = lines.next().map_or("", |(_, line)| line);
    match serde_json::from_str::<Header>(header) {
        Ok(header) if header == Header::ours(build) => {}
        Ok(header) => {
            return Err(AuditError::JournalVersion {
                path: path.to_owned(),
                found: header.to_string(),
                ours: Header::ours(build).to_string(),
            });
        }
        Err(_) => return Err(damaged(path, 1)),
    }
    let mut outcomes = BTreeMap::new();
    for (index, line) in lines {
        let line: Line = serde_json::from_str(line).map_err(|_| damaged(path, index + 1))?;
        let key = u64::from_str_radix(&line.key, 16).map_err(|_| damaged(path, index + 1))?;
        outcomes.insert(key, line.outcome);
    }
    Ok(outcomes)
}

/// A short name for the build whose executable has these bytes.
pub fn build_of(executable: &[u8]) -> String {
    let mut hash = Fnv::default();
    hash.write(executable);
    format!("{:016x}", hash.finish())
}

fn damaged(path: &Path, line: usize) -> AuditError {
    AuditError::JournalDamaged {
        path: path.to_owned(),
        line,
    }
}

pub(crate) fn write_error(path: &Path, source: std::io::Error) -> AuditError {
    AuditError::Write {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Metrics;

    fn outcome(goodput_gbps: f64) -> Outcome {
        Outcome {
            victim: Metrics {
                goodput_gbps,
                ..Metrics::default()
            },
            attacker: None,
            detail: None,
        }
    }

    fn with_two_runs(directory: &tempfile::TempDir) -> PathBuf {
        let path = directory.path().join(JOURNAL_NAME);
        let mut journal = Journal::create(&path, "b1").unwrap();
        journal.record(1, &outcome(12.345_6)).unwrap();
        journal.record(u64::MAX, &outcome(0.1)).unwrap();
        path
    }

    #[test]
    fn a_journal_gives_back_what_it_was_given() {
        let directory = tempfile::tempdir().unwrap();
        let (_, outcomes) = Journal::resume(&with_two_runs(&directory), "b1").unwrap();
        let expected = BTreeMap::from([(1, outcome(12.345_6)), (u64::MAX, outcome(0.1))]);
        assert_eq!(outcomes, expected);
    }

    #[test]
    fn a_last_line_cut_short_anywhere_costs_one_run_at_most() {
        let directory = tempfile::tempdir().unwrap();
        let path = with_two_runs(&directory);
        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let (mut journal, before) = Journal::resume(&path, "b1").unwrap();
            let lines = whole[..length]
                .iter()
                .filter(|&&byte| byte == b'\n')
                .count();
            assert_eq!(before.len(), lines.saturating_sub(1), "cut at {length}");
            journal.record(7, &outcome(7.0)).unwrap();
            let (_, after) = Journal::resume(&path, "b1").unwrap();
            assert_eq!(after.len(), before.len() + 1, "cut at {length}");
        }
    }

    #[test]
    fn another_versions_journal_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = with_two_runs(&directory);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replacen(PROGRAM_VERSION, "0.0.9", 1)).unwrap();
        let error = Journal::resume(&path, "b1").err().unwrap().to_string();
        assert!(
            error.contains("0.0.9") && error.contains("without --resume"),
            "{error}"
        );
    }

    #[test]
    fn another_builds_journal_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = with_two_runs(&directory);
        let error = Journal::resume(&path, "b2").err().unwrap().to_string();
        assert!(
            error.contains("build b1") && error.contains("build b2"),
            "{error}"
        );
    }

    #[test]
    fn damage_in_the_middle_names_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = with_two_runs(&directory);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replacen("{\"key\"", "key", 1)).unwrap();
        let error = Journal::resume(&path, "b1").err().unwrap().to_string();
        assert!(error.contains("line 2"), "{error}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_an_error_that_says_so() {
        let error = Journal::create(Path::new("/dev/full"), "b1")
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("/dev/full") && error.contains("No space left"),
            "{error}"
        );
    }
}

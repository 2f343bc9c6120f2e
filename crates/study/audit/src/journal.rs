//! The journal: one JSON line per finished run, so that an interrupted audit can go on where it stopped.
//!
//! The first line says which build of which program wrote it, since any change of the simulator may change a result;
//! the journal of another build is rejected. A run is recognised by a hash of its scenario, profile, testbed and
//! program version, so a journal also serves an audit with more victims, policies or seeds. A last line cut short by a
//! kill or a full disk is dropped; damage elsewhere is an error.

use crate::AuditError;
use crate::hash::Fnv;
use crate::matrix::AUDIT_VERSION;
use crate::outcome::Outcome;
use crate::plan::PROGRAM_VERSION;
use isolane_common_journal as lines;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

/// File name within the output directory.
pub const JOURNAL_NAME: &str = "journal.jsonl";

pub(crate) struct Journal {
    file: lines::Journal,
    path: PathBuf,
}

/// The first line.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    /// Always `isolane audit journal`.
    kind: String,
    /// The program's version.
    program: String,
    /// The build of the program: any text by which the caller distinguishes builds.
    build: String,
    /// [`AUDIT_VERSION`].
    audit_version: u32,
    /// The options of the audit that started it; for people, and for who asks whose directory this is.
    #[serde(default)]
    settings: String,
}

#[derive(Serialize, Deserialize)]
struct Line {
    /// The run's key, hexadecimal.
    key: String,
    /// What came out.
    outcome: Outcome,
}

impl Header {
    fn ours(build: &str, settings: &str) -> Self {
        Self {
            kind: "isolane audit journal".to_owned(),
            program: PROGRAM_VERSION.to_owned(),
            build: build.to_owned(),
            audit_version: AUDIT_VERSION,
            settings: settings.to_owned(),
        }
    }

    /// True when the same build wrote both, for any audits.
    fn same_build(&self, other: &Self) -> bool {
        (&self.kind, &self.program, &self.build, self.audit_version)
            == (
                &other.kind,
                &other.program,
                &other.build,
                other.audit_version,
            )
    }
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Known {
    /// Runs by key.
    pub(crate) outcomes: BTreeMap<u64, Outcome>,
    /// The options of the audit that started it.
    pub(crate) settings: String,
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
    /// Starts an empty journal at `path`, written by `build` for the audit with `settings`.
    pub(crate) fn create(path: &Path, build: &str, settings: &str) -> Result<Self, AuditError> {
        let file = lines::Journal::create(path).map_err(|source| write_error(path, source))?;
        let mut journal = Self {
            file,
            path: path.to_owned(),
        };
        journal.line(&Header::ours(build, settings))?;
        Ok(journal)
    }

    /// Opens the journal at `path` to continue it, and returns what it holds. Without one there, starts one.
    pub(crate) fn resume(
        path: &Path,
        build: &str,
        settings: &str,
    ) -> Result<(Self, Option<Known>), AuditError> {
        let (file, known) = match lines::Journal::open(path) {
            Ok((_, known)) if known.is_empty() => {
                return Ok((Self::create(path, build, settings)?, None));
            }
            Ok(opened) => opened,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok((Self::create(path, build, settings)?, None));
            }
            Err(source) => {
                let path = path.to_owned();
                return Err(AuditError::Read { path, source });
            }
        };
        let known = parse(path, &String::from_utf8_lossy(&known), build)?;
        let path = path.to_owned();
        Ok((Self { file, path }, Some(known)))
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
        self.file
            .append(&text)
            .map_err(|source| write_error(&self.path, source))
    }
}

fn parse(path: &Path, text: &str, build: &str) -> Result<Known, AuditError> {
    let mut lines = text.lines().enumerate();
    let header = lines.next().map_or("", |(_, line)| line);
    let ours = Header::ours(build, "");
    let settings = match serde_json::from_str::<Header>(header) {
        Ok(header) if header.same_build(&ours) => header.settings,
        Ok(header) => {
            return Err(AuditError::JournalVersion {
                path: path.to_owned(),
                found: header.to_string(),
                ours: ours.to_string(),
            });
        }
        Err(_) => return Err(damaged(path, 1)),
    };
    let mut outcomes = BTreeMap::new();
    for (index, line) in lines {
        let line: Line = serde_json::from_str(line).map_err(|_| damaged(path, index + 1))?;
        let key = u64::from_str_radix(&line.key, 16).map_err(|_| damaged(path, index + 1))?;
        outcomes.insert(key, line.outcome);
    }
    Ok(Known { outcomes, settings })
}

/// The options of the audit that started the journal at `path`, whichever build wrote it; none if the file is no
/// journal.
pub(crate) fn settings_of(path: &Path) -> Option<String> {
    let mut line = String::new();
    let mut reader = BufReader::new(File::open(path).ok()?);
    reader.read_line(&mut line).ok()?;
    let header: Header = serde_json::from_str(&line).ok()?;
    Some(header.settings)
}

/// A short name for the build whose executable has these bytes.
pub fn build_of(executable: &[u8]) -> String {
    let mut hash = Fnv::default();
    hash.write_words(executable);
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
    use crate::cell::Metrics;

    fn outcome(goodput_gbps: f64) -> Outcome {
        Outcome {
            victim: Metrics {
                goodput_gbps,
                ..Metrics::default()
            },
            attacker: None,
            shares: vec![0.5],
            policy_cores: 0.25,
            settling: None,
            detail: None,
        }
    }

    fn with_two_runs(directory: &tempfile::TempDir) -> PathBuf {
        let path = directory.path().join(JOURNAL_NAME);
        let mut journal = Journal::create(&path, "b1", "audit").unwrap();
        journal.record(1, &outcome(12.345_6)).unwrap();
        journal.record(u64::MAX, &outcome(0.1)).unwrap();
        path
    }

    #[test]
    fn a_journal_gives_back_what_it_was_given() {
        let directory = tempfile::tempdir().unwrap();
        let path = with_two_runs(&directory);
        let (_, known) = Journal::resume(&path, "b1", "audit").unwrap();
        let expected = BTreeMap::from([(1, outcome(12.345_6)), (u64::MAX, outcome(0.1))]);
        let known = known.unwrap();
        assert_eq!(
            (known.outcomes, known.settings.as_str()),
            (expected, "audit")
        );
        assert_eq!(settings_of(&path).as_deref(), Some("audit"));
    }

    #[test]
    fn a_last_line_cut_short_anywhere_costs_one_run_at_most() {
        let directory = tempfile::tempdir().unwrap();
        let path = with_two_runs(&directory);
        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let (mut journal, before) = Journal::resume(&path, "b1", "audit").unwrap();
            let before = before.unwrap_or_default().outcomes;
            let lines = whole[..length]
                .iter()
                .filter(|&&byte| byte == b'\n')
                .count();
            assert_eq!(before.len(), lines.saturating_sub(1), "cut at {length}");
            journal.record(7, &outcome(7.0)).unwrap();
            let (_, after) = Journal::resume(&path, "b1", "audit").unwrap();
            let after = after.unwrap().outcomes;
            assert_eq!(after.len(), before.len() + 1, "cut at {length}");
        }
    }

    #[test]
    fn another_versions_journal_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = with_two_runs(&directory);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replacen(PROGRAM_VERSION, "0.0.9", 1)).unwrap();
        let error = Journal::resume(&path, "b1", "audit")
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("0.0.9") && error.contains("without --resume"),
            "{error}"
        );
    }

    #[test]
    fn another_builds_journal_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = with_two_runs(&directory);
        let error = Journal::resume(&path, "b2", "audit")
            .err()
            .unwrap()
            .to_string();
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
        let error = Journal::resume(&path, "b1", "audit")
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("line 2"), "{error}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_an_error_that_names_the_cause() {
        let error = Journal::create(Path::new("/dev/full"), "b1", "audit")
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("/dev/full") && error.contains("No space left"),
            "{error}"
        );
    }
}

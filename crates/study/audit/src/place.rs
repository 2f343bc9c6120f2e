//! The directory that an audit writes into: one audit at a time, and none that replaces another unasked.
//!
//! A lock on [`LOCK_NAME`] keeps a second audit out; the kernel releases the lock when the process ends, and the file
//! stays. The command line in the result names the audit of a directory; where there is no result yet, the journal
//! names the audit. Two audits are the same when all their options agree except the directory's own name, which has
//! several spellings.
//!
//! Limits: a file system without locks is used without one.

use crate::AuditError;
use crate::journal::{self, JOURNAL_NAME, write_error};
use serde::Deserialize;
use std::fs::{File, TryLockError};
use std::io::{BufReader, ErrorKind};
use std::path::Path;

/// File name of the lock within the directory.
pub const LOCK_NAME: &str = "audit.lock";

/// File name of the result within the directory.
pub const RESULT_NAME: &str = "audit.json";

/// What a new audit may do to the one that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Repeat it; another one is refused.
    Repeat,
    /// Go on with it; the journal says whether that is possible.
    Resume,
    /// Replace the audit in the directory.
    Replace,
}

/// A directory that is ours until this value is dropped.
#[derive(Debug)]
pub struct Place {
    _lock: File,
}

/// The part of a result that has the question.
#[derive(Deserialize)]
struct Asked {
    rerun: String,
}

impl Place {
    /// Takes `directory`, which exists, for the audit that `rerun` repeats.
    pub fn claim(directory: &Path, rerun: &str, intent: Intent) -> Result<Self, AuditError> {
        let path = directory.join(LOCK_NAME);
        // Not truncated: another user may have put a link to a file there.
        let mut options = File::options();
        options.write(true).create(true).truncate(false);
        let lock = options
            .open(&path)
            .map_err(|source| write_error(&path, source))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(AuditError::Busy {
                    directory: directory.to_owned(),
                });
            }
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {}
            Err(TryLockError::Error(source)) => return Err(write_error(&path, source)),
        }
        if intent == Intent::Repeat {
            refuse_another(directory, settings(rerun))?;
        }
        Ok(Self { _lock: lock })
    }
}

/// A command line without its last option, `--report`.
pub(crate) fn settings(rerun: &str) -> &str {
    rerun
        .rsplit_once(" --report ")
        .map_or(rerun, |(asked, _)| asked)
}

fn refuse_another(directory: &Path, ours: &str) -> Result<(), AuditError> {
    let (result, journal) = (directory.join(RESULT_NAME), directory.join(JOURNAL_NAME));
    let found = match () {
        () if result.exists() => asked_of(&result),
        () if journal.exists() => journal::settings_of(&journal),
        () => return Ok(()),
    };
    match found {
        Some(found) if found == ours => Ok(()),
        found => Err(AuditError::OtherAudit {
            directory: directory.to_owned(),
            found: found.unwrap_or_else(|| "an audit that this version cannot read".to_owned()),
        }),
    }
}

fn asked_of(result: &Path) -> Option<String> {
    let reader = BufReader::new(File::open(result).ok()?);
    let asked: Asked = serde_json::from_reader(reader).ok()?;
    Some(settings(&asked.rerun).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(directory: &Path, rerun: &str, intent: Intent) -> Result<Place, String> {
        Place::claim(directory, rerun, intent).map_err(|error| error.to_string())
    }

    #[test]
    fn a_directory_belongs_to_one_audit_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let first = claim(directory.path(), "audit", Intent::Repeat).unwrap();
        let refused = claim(directory.path(), "audit", Intent::Replace).unwrap_err();
        assert!(refused.contains("is running"), "{refused}");
        drop(first);
        claim(directory.path(), "audit", Intent::Repeat).unwrap();
    }

    #[test]
    fn a_file_that_a_planted_link_leads_to_keeps_its_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let precious = directory.path().join("precious");
        std::fs::write(&precious, "kept").unwrap();
        std::os::unix::fs::symlink(&precious, directory.path().join(LOCK_NAME)).unwrap();
        claim(directory.path(), "audit", Intent::Repeat).unwrap();
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "kept");
    }

    #[test]
    fn another_audits_result_is_replaced_only_on_demand() {
        let directory = tempfile::tempdir().unwrap();
        let result = directory.path().join(RESULT_NAME);
        std::fs::write(
            &result,
            r#"{"cells": [], "rerun": "isolane audit --seeds 5 --report a"}"#,
        )
        .unwrap();
        let same = "isolane audit --seeds 5 --report ./a/";
        let other = "isolane audit --seeds 6 --report a";
        claim(directory.path(), same, Intent::Repeat).unwrap();
        let refused = claim(directory.path(), other, Intent::Repeat).unwrap_err();
        assert!(
            refused.contains("--seeds 5") && refused.contains("--force"),
            "{refused}"
        );
        claim(directory.path(), other, Intent::Replace).unwrap();
        std::fs::write(&result, "no JSON").unwrap();
        let refused = claim(directory.path(), same, Intent::Repeat).unwrap_err();
        assert!(refused.contains("cannot read"), "{refused}");
    }
}

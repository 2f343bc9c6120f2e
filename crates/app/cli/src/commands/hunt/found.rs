//! The result of an earlier hunt, as `isolane advise`, `fix` and `regress` read it.

use crate::file_kind::{FileKind, Wanted};
use crate::inputs::{self, bad};
use anyhow::{Context, Result, bail};
use isolane_study_hunt::hunt::HuntResult;
use isolane_study_hunt::state::{HUNT_VERSION, JOURNAL_NAME};
use std::path::Path;

/// What `isolane fix`, `regress` and `advise --anomalies` take.
const HUNT: Wanted = Wanted {
    kind: |kind| matches!(kind, FileKind::Hunt),
    words: "the result of a hunt (the directory of `isolane hunt --report`, or the hunt.json in it)",
};

/// The result of the hunt in `given`, its directory or its JSON.
pub(crate) fn read(given: &Path) -> Result<HuntResult> {
    let within = given.join(super::RESULT_NAME);
    let path = match given.is_dir() {
        true => within.as_path(),
        false => given,
    };
    if !path.exists() && given.join(JOURNAL_NAME).exists() {
        bail!(bad(format!(
            "{}: the hunt there has found nothing yet (it goes on, or was stopped before it did); go on with \
             the command of that hunt and --resume",
            given.display()
        )));
    }
    if !given.exists() {
        bail!(bad(format!(
            "{}: does not exist; give the directory of `isolane hunt --report`, or the hunt.json in it",
            given.display()
        )));
    }
    if given.is_dir() && !within.exists() {
        bail!(bad(format!(
            "{}: has no {}; give the directory of `isolane hunt --report`",
            given.display(),
            super::RESULT_NAME
        )));
    }
    let text = inputs::read(path, &HUNT)?;
    let version: serde_json::Value = serde_json::from_str(&text)
        .with_context(|| {
            format!(
                "{}: not the result of a hunt (give the directory of `isolane hunt --report`)",
                path.display()
            )
        })
        .map_err(|error| bad(format!("{error:#}")))?;
    let found = version["version"].as_u64();
    if found != Some(u64::from(HUNT_VERSION)) {
        bail!(bad(format!(
            "{} has the form {}, this program reads {HUNT_VERSION}: hunt again",
            path.display(),
            found.map_or("of something else".to_owned(), |found| found.to_string())
        )));
    }
    serde_json::from_value(version).map_err(|error| {
        bad(format!(
            "{} is damaged: {error}; hunt again",
            path.display()
        ))
    })
}

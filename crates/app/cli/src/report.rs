//! The HTML reports, written beside the JSON.

use crate::output;
use anyhow::Result;
use isolane_app_report::WfqDelays;
use isolane_network_scenario::model::FabricScenario;
use isolane_study_audit::matrix::AuditResult;
use isolane_study_explain::Explanation;
use isolane_study_hunt::compare::Comparison;
use isolane_study_hunt::hunt::HuntResult;
use isolane_study_hunt::space::Space;
use isolane_study_recommend::result::Recommendation;
use isolane_study_results::ethernet::NicResult;
use isolane_study_results::memory::MemResult;
use isolane_study_results::network::FabricResult;
use isolane_study_results::rdma::RunResult;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// File name of a report within its directory.
const REPORT: &str = "report.html";
/// File name of the result of runs.
const RESULT: &str = "result.json";

/// Writes `page` into `directory`; returns its path.
fn write_page(directory: &Path, page: &str) -> Result<PathBuf> {
    let path = directory.join(REPORT);
    output::write_file(&path, page)?;
    Ok(path)
}

/// Writes `value` as the file `name`, and `page`, into `directory`, which is made if missing; returns the page's path.
fn write_with_json(
    directory: &Path,
    name: &str,
    value: &impl Serialize,
    page: &str,
) -> Result<PathBuf> {
    output::make_directory(directory)?;
    output::write_file(&directory.join(name), &output::json(value)?)?;
    write_page(directory, page)
}

/// Writes the report of one run, and its JSON, into `directory`; returns the report's path.
pub(crate) fn write_run(
    directory: &Path,
    result: &RunResult,
    remarks: &[String],
) -> Result<PathBuf> {
    let page = isolane_app_report::run(result, remarks);
    write_with_json(directory, RESULT, result, &page)
}

/// Writes the page of a comparison of searchers into `directory`; returns its path.
pub(crate) fn write_comparison(directory: &Path, comparison: &Comparison) -> Result<PathBuf> {
    write_page(directory, &isolane_app_report::comparison(comparison))
}

/// Writes the page of a hunt in `space` into `directory`; returns its path.
pub(crate) fn write_hunt(directory: &Path, result: &HuntResult, space: &Space) -> Result<PathBuf> {
    write_page(directory, &isolane_app_report::hunt(result, space))
}

/// Writes the report that compares `results`, and their JSON as a list, into `directory`; returns the report's path.
pub(crate) fn write_runs(
    directory: &Path,
    results: &[RunResult],
    remarks: &[Vec<String>],
) -> Result<PathBuf> {
    let page = isolane_app_report::runs(results, remarks);
    write_with_json(directory, RESULT, &results, &page)
}

/// Writes the page of runs on a network, and their JSON (a list in a comparison), into `directory`; returns its path.
pub(crate) fn write_network(
    directory: &Path,
    scenarios: &[FabricScenario],
    results: &[FabricResult],
    remarks: &[Vec<String>],
) -> Result<PathBuf> {
    let page = isolane_app_report::network(scenarios, results, remarks);
    match results {
        [one] => write_with_json(directory, RESULT, one, &page),
        _ => write_with_json(directory, RESULT, &results, &page),
    }
}

/// Writes the page of a study of network cards, and its JSON, a list, into `directory`; returns the page's path.
pub(crate) fn write_nic(directory: &Path, results: &[NicResult]) -> Result<PathBuf> {
    let page = isolane_app_report::nic(results);
    write_with_json(directory, RESULT, &results, &page)
}

/// Writes the page of runs of tiered memory, and their JSON, a list, into `directory`; returns the page's path.
pub(crate) fn write_memory(
    directory: &Path,
    results: &[MemResult],
    remarks: &[Vec<String>],
) -> Result<PathBuf> {
    let page = isolane_app_report::memory(results, remarks);
    write_with_json(directory, RESULT, &results, &page)
}

/// Writes the page of `delays`, and its JSON, into `directory`; returns the page's path.
pub(crate) fn write_wfq(directory: &Path, delays: &WfqDelays) -> Result<PathBuf> {
    write_with_json(
        directory,
        "wfq.json",
        delays,
        &isolane_app_report::wfq(delays),
    )
}

/// Writes the page of `explanation`, and its JSON, into `directory`; returns the page's path.
pub(crate) fn write_explanation(directory: &Path, explanation: &Explanation) -> Result<PathBuf> {
    let page = isolane_app_report::explanation(explanation);
    write_with_json(directory, "explain.json", explanation, &page)
}

/// Writes the report of `result` into `directory`; returns its path.
pub(crate) fn write_audit(directory: &Path, result: &AuditResult) -> Result<PathBuf> {
    write_page(directory, &isolane_app_report::audit(result))
}

/// Writes the report of `answer`, and its JSON, into `directory`; returns the report's path.
pub(crate) fn write_recommendation(directory: &Path, answer: &Recommendation) -> Result<PathBuf> {
    let page = isolane_app_report::recommendation(answer);
    write_with_json(directory, "recommendation.json", answer, &page)
}

//! Results as one self-contained HTML file: no network, no other file, readable for years.
//!
//! Every function here is pure: a result goes in, the text of a file comes out; equal results give equal bytes.
//! Styles, scripts and data are inlined; plots that never change are drawn here as SVG, plots that follow the
//! reader's clicks are drawn by the inlined script from the embedded data.
//!
//! * [`audit`] - the verdict matrix with a drill-down per pair;
//! * [`run`], [`runs`] - one simulated run, or the same scenario under several policies;
//! * [`network`] - one or several runs on a network;
//! * [`memory`] - applications that share tiered memory;
//! * [`nic`] - a study of network cards;
//! * [`recommendation`] - which policy meets a scenario's SLOs;
//! * [`comparison`] - searchers over seeds;
//! * [`hunt`] - a search for anomalies or attackers, with its trace;
//! * [`explanation`] - why one attacker hurts one victim, with a timeline;
//! * [`claims`] - the papers' claims, to filter;
//! * [`wfq`] - worst delays of a port under weighted fair queueing;
//! * `html`, [`number`], [`svg`] - page, numbers and plots, for other pages.
#![forbid(unsafe_code)]

mod audit_page;
mod claims_page;
mod explain_page;
mod html;
mod hunt_page;
mod memory_page;
mod network_page;
mod nic_page;
pub mod number;
mod recommend_page;
mod run_page;
pub mod svg;
#[cfg(test)]
#[path = "../tests/support/synthetic.rs"]
mod synthetic;
#[cfg(test)]
#[path = "../tests/support/synthetic_fabric.rs"]
mod synthetic_fabric;
#[cfg(test)]
#[path = "../tests/support/synthetic_hunt.rs"]
mod synthetic_hunt;
#[cfg(test)]
#[path = "../tests/support/synthetic_mem.rs"]
mod synthetic_mem;
#[cfg(test)]
#[path = "../tests/support/synthetic_nic.rs"]
mod synthetic_nic;
#[cfg(test)]
#[path = "../tests/support/synthetic_recommend.rs"]
mod synthetic_recommend;
#[cfg(test)]
#[path = "../tests/support/synthetic_wfq.rs"]
mod synthetic_wfq;
mod wfq_page;

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

pub use claims_page::ClaimRow;
pub use wfq_page::{WfqDelays, WfqPoint, intervals};

/// The audit as one HTML file.
///
/// A partial audit gives a readable page too: pairs not run yet are blank, and the page states this.
pub fn audit(result: &AuditResult) -> String {
    audit_page::page(result)
}

/// The story of one victim and one attacker as one HTML file.
pub fn explanation(explanation: &Explanation) -> String {
    explain_page::page(explanation)
}

/// A hunt in `space` as one HTML file.
pub fn hunt(result: &HuntResult, space: &Space) -> String {
    hunt_page::page(result, space)
}

/// A comparison of searchers as one HTML file.
pub fn comparison(comparison: &Comparison) -> String {
    hunt_page::comparison::page(comparison)
}

/// One run as one HTML file; `remarks` has what there is to say of it.
pub fn run(result: &RunResult, remarks: &[String]) -> String {
    run_page::page(std::slice::from_ref(result), &[remarks.to_vec()])
}

/// Several runs of one scenario, usually under different policies, as one HTML file: every plot once per run,
/// all with the same axes. With each run the remarks on it.
pub fn runs(results: &[RunResult], remarks: &[Vec<String>]) -> String {
    run_page::page(results, remarks)
}

/// One or several runs of one network as one HTML file; with each run its scenario and the remarks on it.
pub fn network(
    scenarios: &[FabricScenario],
    results: &[FabricResult],
    remarks: &[Vec<String>],
) -> String {
    network_page::page(scenarios, results, remarks)
}

/// A study of network cards, of one testbed, as one HTML file.
pub fn nic(results: &[NicResult]) -> String {
    nic_page::page(results)
}

/// One scenario of tiered memory, under one policy or several, as one HTML file; with each run the remarks on it.
pub fn memory(results: &[MemResult], remarks: &[Vec<String>]) -> String {
    memory_page::page(results, remarks)
}

/// A recommendation as one HTML file.
pub fn recommendation(answer: &Recommendation) -> String {
    recommend_page::page(answer)
}

/// Worst delays of a port under weighted fair queueing as one HTML file.
pub fn wfq(delays: &WfqDelays) -> String {
    wfq_page::page(delays)
}

/// The papers' claims as one HTML file.
pub fn claims(rows: &[ClaimRow]) -> String {
    claims_page::page(rows)
}

//! `isolane edge`: live ML queries over edge and cloud tiers, planned and run by the Python package.

pub(super) mod python;

use crate::status::Status;
use anyhow::Result;
use python::{Program, Words};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Action {
    /// Plan a query: order of filters, placement over tiers and configuration, within its objectives
    Plan(Words),
    /// Run a plan on its workload, one process per operator
    Run(Words),
    /// Run a plan and adapt it to changed conditions
    Watch(Words),
    /// Plan, run and disturb queries in network namespaces
    Lab(Words),
    /// Write the Kubernetes manifests of a plan
    Manifests(Words),
    /// Run a plan on Ray Serve
    Serve(Words),
}

pub(crate) fn run(action: &Action) -> Result<Status> {
    let (program, words) = match action {
        Action::Plan(words) => (Program::Plan, words),
        Action::Run(words) => (Program::Pipeline("run"), words),
        Action::Watch(words) => (Program::Pipeline("watch"), words),
        Action::Lab(words) => (Program::Pipeline("lab"), words),
        Action::Manifests(words) => (Program::Pipeline("manifests"), words),
        Action::Serve(words) => (Program::Pipeline("serve"), words),
    };
    python::run(program, words)
}

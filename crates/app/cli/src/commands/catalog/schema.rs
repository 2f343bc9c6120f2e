//! `isolane catalog schema`.

use crate::output;
use crate::status::Status;
use anyhow::Result;
use clap::ValueEnum;
#[cfg(feature = "rdma-hosts")]
use isolane_rdma_inventory::doctor::Examination;
use isolane_study_audit::matrix::AuditResult;
use isolane_study_explain::Explanation;
use isolane_study_hunt::fix::Fix;
use isolane_study_hunt::hunt::HuntResult;
use isolane_study_hunt::regress::Regression;
use isolane_study_hunt::regress::bisect::Bisection;
use isolane_study_hunt::regress::canary::Canary;
use isolane_study_hunt::regress::compare::Comparison;
use isolane_study_recommend::result::Recommendation;
use isolane_study_results::{memory::MemResult, network::FabricResult, rdma::RunResult};

/// Arguments of `isolane catalog schema`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Which document
    #[arg(value_enum)]
    document: Document,
}

/// A document with a schema.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Document {
    /// A scenario file (TOML of this shape)
    Scenario,
    /// What `isolane sim --json` prints
    Result,
    /// A network's scenario file (TOML of this shape)
    Network,
    /// What `isolane sim --json` prints for a network
    NetworkResult,
    /// A scenario file of tiered memory (TOML of this shape)
    Memory,
    /// What `isolane sim --json` prints for tiered memory
    MemoryResult,
    /// What `isolane audit --json` prints
    Audit,
    /// What `isolane recommend --json` prints
    Recommendation,
    /// What `isolane explain --json` prints
    Explanation,
    /// What `isolane hunt --json` prints
    Hunt,
    /// What `isolane fix --json` prints
    Fix,
    /// What `isolane regress --json` prints and `--record` writes
    Regress,
    /// What `isolane regress --compare --json` prints
    RegressCompare,
    /// What `isolane regress --bisect --json` prints
    RegressBisect,
    /// What `isolane regress --canary --json` prints and keeps in its file
    RegressCanary,
    /// A line of `isolane rpc enforce --json`
    #[cfg(feature = "rpc")]
    RpcEnforce,
    /// What `isolane rdma doctor --json` prints
    #[cfg(feature = "rdma-hosts")]
    Doctor,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let value = match arguments.document {
        Document::Scenario => isolane_rdma_scenario::schema::scenario(),
        Document::Result => schemars::schema_for!(RunResult).to_value(),
        Document::Network => isolane_network_scenario::schema::scenario(),
        Document::NetworkResult => schemars::schema_for!(FabricResult).to_value(),
        Document::Memory => isolane_memory_scenario::schema::scenario(),
        Document::MemoryResult => schemars::schema_for!(MemResult).to_value(),
        Document::Explanation => schemars::schema_for!(Explanation).to_value(),
        Document::Hunt => schemars::schema_for!(HuntResult).to_value(),
        Document::Fix => schemars::schema_for!(Fix).to_value(),
        Document::Regress => schemars::schema_for!(Regression).to_value(),
        Document::RegressCompare => schemars::schema_for!(Comparison).to_value(),
        Document::RegressBisect => schemars::schema_for!(Bisection).to_value(),
        Document::RegressCanary => schemars::schema_for!(Canary).to_value(),
        #[cfg(feature = "rpc")]
        Document::RpcEnforce => schemars::schema_for!(isolane_rpc_agent::view::View).to_value(),
        #[cfg(feature = "rdma-hosts")]
        Document::Doctor => schemars::schema_for!(Examination).to_value(),
        Document::Audit => schemars::schema_for!(AuditResult).to_value(),
        Document::Recommendation => schemars::schema_for!(Recommendation).to_value(),
    };
    output::print_json(&value)?;
    Ok(Status::Done)
}

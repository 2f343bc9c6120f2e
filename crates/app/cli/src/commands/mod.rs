//! The commands. A study command is a file here; a command of a family is a file of the family's directory. To add one: a file
//! with its arguments and `run`, a variant with the line that help shows, and an arm of `run`. A command that needs more
//! than the simulators belongs to a feature of the package ([`absent`]).

#[macro_use]
#[cfg_attr(
    all(
        feature = "mem-hosts",
        feature = "nic-hosts",
        feature = "rdma-hosts",
        feature = "rpc"
    ),
    allow(dead_code, unused_macros, reason = "this program leaves nothing out")
)]
mod absent;

mod advise;
mod audit;
mod catalog;
mod claims;
mod completions;
mod edge;
mod explain;
mod fix;
mod hunt;
mod man;
mod net;
mod overview;
mod rdma;
mod recommend;
mod regress;
mod sim;
mod sweep;

#[cfg(feature = "nic-hosts")]
mod nic;
#[cfg(not(feature = "nic-hosts"))]
absent!("", "nic-hosts": nic);

#[cfg(feature = "mem-hosts")]
mod mem;
#[cfg(not(feature = "mem-hosts"))]
absent!("", "mem-hosts": mem);

#[cfg(feature = "rpc")]
mod rpc;
#[cfg(not(feature = "rpc"))]
absent!("", "rpc": rpc);

#[cfg(not(feature = "rdma-hosts"))]
pub(crate) use absent::Absent;

use crate::status::Status;
use anyhow::Result;
use clap::Subcommand;

/// The commands as help shows them: those that this program was built without marked, and all of them in groups.
pub(crate) fn described(root: clap::Command) -> clap::Command {
    overview::grouped(absent::marked(root))
}

/// One command and its arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run each victim alone and beside each attacker: a verdict per pair
    Audit(audit::Arguments),
    /// Show why one attacker hurts one victim: the full resource, and who waits for it
    Explain(explain::Arguments),
    /// Run your tenants under each policy and name the best one
    Recommend(recommend::Arguments),
    /// Search for workloads that make a device misbehave
    Hunt(hunt::Arguments),
    /// List the known anomalies that an application can reach
    Advise(advise::Arguments),
    /// Find the changes that end an anomaly of a hunt
    Fix(fix::Arguments),
    /// Run known reproducers of anomalies on each state of a device
    Regress(regress::Arguments),
    /// Run one scenario: goodput, latency and share of each tenant
    Sim(sim::Arguments),
    /// Run a network scenario for each combination of settings
    Sweep(sweep::Arguments),
    /// Compare the published numbers of the papers with ours
    Claims(claims::Arguments),
    /// RDMA devices
    Rdma(rdma::Arguments),
    /// Ethernet NICs: share a NIC fairly among the flows of this host
    #[cfg_attr(feature = "nic-hosts", command(subcommand))]
    Nic(Box<nic::Arguments>),
    /// Switch ports under weighted fair queueing
    #[command(subcommand)]
    Net(net::Action),
    /// Remote procedure calls: admission control and quotas
    Rpc(rpc::Arguments),
    /// Tiered memory: objectives of latency or bandwidth
    #[cfg_attr(feature = "mem-hosts", command(subcommand))]
    Mem(Box<mem::Arguments>),
    /// Live ML queries over edge and cloud tiers
    #[command(subcommand)]
    Edge(edge::Action),
    /// Device profiles, policies, workloads and schemas
    #[command(subcommand)]
    Catalog(catalog::Action),
    /// Print the completion script of a shell
    Completions(completions::Arguments),
    /// Write the man pages into a directory
    Man(man::Arguments),
}

impl Command {
    pub(crate) fn run(self) -> Result<Status> {
        match self {
            Self::Audit(arguments) => audit::run(&arguments),
            Self::Explain(arguments) => explain::run(&arguments),
            Self::Recommend(arguments) => recommend::run(&arguments),
            Self::Hunt(arguments) => hunt::run(&arguments),
            Self::Advise(arguments) => advise::run(&arguments),
            Self::Fix(arguments) => fix::run(&arguments),
            Self::Regress(arguments) => regress::run(&arguments),
            Self::Sim(arguments) => sim::run(&arguments),
            Self::Sweep(arguments) => sweep::run(&arguments),
            Self::Claims(arguments) => claims::run(&arguments),
            Self::Rdma(arguments) => rdma::run(&arguments),
            Self::Nic(arguments) => nic::run(&arguments),
            Self::Net(action) => net::run(&action),
            Self::Rpc(arguments) => rpc::run(&arguments),
            Self::Mem(arguments) => mem::run(&arguments),
            Self::Edge(action) => edge::run(&action),
            Self::Catalog(action) => catalog::run(&action),
            Self::Completions(arguments) => completions::run(&arguments),
            Self::Man(arguments) => man::run(&arguments),
        }
    }
}

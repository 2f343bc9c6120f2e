//! The commands. To add one: a file with its arguments and `run`, a variant here with the line that help shows,
//! and an arm below. One that needs more than the simulators belongs to a feature of the package ([`absent`]).

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
mod calibrate;
mod claims;
mod completions;
mod explain;
mod hunt;
mod man;
mod planner;
mod policies;
mod profiles;
mod recommend;
mod schema;
mod sim;
mod sweep;
mod wfq;
mod wfq_plan;
mod workloads;

#[cfg(feature = "rdma-hosts")]
mod agent;
#[cfg(feature = "rdma-hosts")]
mod doctor;
#[cfg(feature = "rdma-hosts")]
mod enforce;
#[cfg(feature = "rdma-hosts")]
mod run;
#[cfg(feature = "rdma-hosts")]
mod top;
#[cfg(feature = "rdma-hosts")]
mod traffic;
#[cfg(feature = "rdma-hosts")]
mod traffic_work;
#[cfg(not(feature = "rdma-hosts"))]
absent!("rdma-hosts": agent, doctor, enforce, run, top, traffic);

#[cfg(feature = "nic-hosts")]
mod nic;
#[cfg(not(feature = "nic-hosts"))]
absent!("nic-hosts": nic);

#[cfg(feature = "mem-hosts")]
mod mem;
#[cfg(not(feature = "mem-hosts"))]
absent!("mem-hosts": mem);

#[cfg(feature = "rpc")]
mod quota;
#[cfg(feature = "rpc")]
mod rpc;
#[cfg(not(feature = "rpc"))]
absent!("rpc": quota, rpc);

#[cfg(not(feature = "rdma-hosts"))]
pub(crate) use absent::Absent;
pub(crate) use absent::marked;

use crate::status::Status;
use anyhow::Result;
use clap::Subcommand;

/// One command and its arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run one scenario, of RDMA hosts or of a network: goodput, latency and shares per tenant or class, and counters
    Sim(sim::Arguments),
    /// Run a network's scenario under every combination of settings and seeds, on all cores
    Sweep(sweep::Arguments),
    /// Run every victim alone and under every attacker: verdict and exhausted resource per pair
    Audit(audit::Arguments),
    /// Run your tenants under every policy: which one meets their SLOs, and what each cannot protect against
    Recommend(recommend::Arguments),
    /// Say why one attacker hurts one victim: what filled up, who waited for whom, for how long
    Explain(explain::Arguments),
    /// Search for workloads that make a device misbehave, and reduce each to the conditions that it needs
    Hunt(hunt::Arguments),
    /// Say which known anomalies of RDMA cards an application can reach, and which single change gets it out
    Advise(advise::Arguments),
    /// Measure the papers' quantitative claims: published value, ours, within tolerance or not
    Claims(claims::Arguments),
    /// Measure what Justitia needs to know of a device, or fit a profile to its calibration claims
    Calibrate(calibrate::Arguments),
    /// Compute delay bounds and admissible traffic of a switch port under weighted fair queueing
    Wfq(wfq::Arguments),
    /// Admission control for remote procedure calls: a lab with real gRPC programs
    Rpc(rpc::Arguments),
    /// Serve tenants' quotas of admitted calls, show them, change them
    Quota(quota::Arguments),
    /// Hold tenants that are not trusted to their guarantees: control verbs, objects, data
    Enforce(enforce::Arguments),
    /// Share an ordinary network card fairly among this host's flows: attach, watch, advise, study
    Nic(Box<nic::Arguments>),
    /// Plan a live ML query: order of filters, placement over edge and cloud tiers, configuration, within its objectives
    Plan(planner::Arguments),
    /// Run a planned pipeline, one process per operator, and adapt it while it runs
    Pipeline(planner::Arguments),
    /// Share tiered memory by promises of latency and bandwidth: run, submit, watch, plan
    Mem(Box<mem::Arguments>),
    /// Run any RDMA program under the shim, so that the daemon can pace it
    Run(run::Arguments),
    /// Make traffic on real RDMA devices, every dimension of a scenario's tenant, and measure it at both ends
    Traffic(Box<traffic::Arguments>),
    /// Show who uses the RDMA devices now, by tenant, process and queue pair, and what each may
    Top(top::Arguments),
    /// Start traffic workers for a controller on another machine, or make the certificates for that
    Agent(agent::Arguments),
    /// List the device profiles, or show one with the source of every number
    Profiles(profiles::Arguments),
    /// List the policies: what each does, controls, needs and can be set to
    Policies(policies::Arguments),
    /// List the victims and attackers of the catalogue, or show one
    Workloads(workloads::Arguments),
    /// Check this machine for RDMA: devices, links, lossless Ethernet, limits, versions, users; and what to fix
    Doctor(doctor::Arguments),
    /// Print the JSON schema of what goes in or comes out
    Schema(schema::Arguments),
    /// Print the completion script of a shell
    Completions(completions::Arguments),
    /// Write the man pages into a directory
    Man(man::Arguments),
}

impl Command {
    /// Runs the command.
    pub(crate) fn run(self) -> Result<Status> {
        match self {
            Self::Sim(arguments) => sim::run(&arguments),
            Self::Sweep(arguments) => sweep::run(&arguments),
            Self::Audit(arguments) => audit::run(&arguments),
            Self::Recommend(arguments) => recommend::run(&arguments),
            Self::Explain(arguments) => explain::run(&arguments),
            Self::Hunt(arguments) => hunt::run(&arguments),
            Self::Advise(arguments) => advise::run(&arguments),
            Self::Claims(arguments) => claims::run(&arguments),
            Self::Calibrate(arguments) => calibrate::run(&arguments),
            Self::Wfq(arguments) => wfq::run(&arguments),
            Self::Rpc(arguments) => rpc::run(&arguments),
            Self::Quota(arguments) => quota::run(&arguments),
            Self::Enforce(arguments) => enforce::run(&arguments),
            Self::Nic(arguments) => nic::run(&arguments),
            Self::Plan(arguments) => planner::run(planner::Program::Plan, &arguments),
            Self::Pipeline(arguments) => planner::run(planner::Program::Pipeline, &arguments),
            Self::Mem(arguments) => mem::run(&arguments),
            Self::Run(arguments) => run::run(&arguments),
            Self::Traffic(arguments) => traffic::run(&arguments),
            Self::Top(arguments) => top::run(&arguments),
            Self::Agent(arguments) => agent::run(&arguments),
            Self::Profiles(arguments) => profiles::run(&arguments),
            Self::Policies(arguments) => policies::run(&arguments),
            Self::Workloads(arguments) => workloads::run(&arguments),
            Self::Doctor(arguments) => doctor::run(&arguments),
            Self::Schema(arguments) => schema::run(&arguments),
            Self::Completions(arguments) => completions::run(&arguments),
            Self::Man(arguments) => man::run(&arguments),
        }
    }
}

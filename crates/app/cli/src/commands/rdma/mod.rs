//! `isolane rdma`: RDMA devices of real hosts, and what a policy must measure of a device.
//!
//! Commands that touch a host belong to the feature `rdma-hosts` ([`super::absent`]).

mod calibrate;

#[cfg(feature = "rdma-hosts")]
mod agent;
#[cfg(feature = "rdma-hosts")]
mod assign;
#[cfg(feature = "rdma-hosts")]
mod cdi;
#[cfg(feature = "rdma-hosts")]
mod doctor;
#[cfg(feature = "rdma-hosts")]
mod emulate;
#[cfg(feature = "rdma-hosts")]
mod enforce;
#[cfg(feature = "rdma-hosts")]
mod hardware;
#[cfg(feature = "rdma-hosts")]
mod pods;
#[cfg(feature = "rdma-hosts")]
pub(super) mod run;
#[cfg(feature = "rdma-hosts")]
pub(super) mod top;
#[cfg(feature = "rdma-hosts")]
mod traffic;
#[cfg(feature = "rdma-hosts")]
mod traffic_work;
#[cfg(feature = "rdma-hosts")]
mod watch;
#[cfg(not(feature = "rdma-hosts"))]
absent!("rdma ", "rdma-hosts": agent, apply, assign, cdi, diff, doctor, emulate, enforce, plan, pods, rollback, run, status, top, traffic, watch);

use crate::status::Status;
use anyhow::Result;
#[cfg(feature = "rdma-hosts")]
use hardware::{apply, diff, plan, rollback, status};

/// Arguments of `isolane rdma`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Check this machine for RDMA: devices, links, lossless Ethernet, limits, versions, users; and how to fix each fault
    Doctor(doctor::Arguments),
    /// Run an RDMA program with the preload library, so that the daemon paces its traffic
    Run(run::Arguments),
    /// Run any RDMA program on modelled RDMA NICs: no device, no kernel module, no root
    Emulate(emulate::Arguments),
    /// Show tenants, processes and queue pairs that use the RDMA devices now, and the rate of each
    Top(top::Arguments),
    /// Show who uses the RDMA devices and how near each limit is, from counters alone: no daemon, no root
    Watch(watch::Arguments),
    /// Hold untrusted tenants to their guarantees: control verbs, objects, data
    Enforce(enforce::Arguments),
    /// Give the processes of one job or pod a tenant, a class and a weight while it runs; for schedulers
    Assign(assign::Arguments),
    /// Assign tenant, class and weight to the pods of this Kubernetes machine, by their labels
    Pods(pods::Arguments),
    /// Print what a container runtime needs to give a container the preload library and the daemon's socket
    Cdi(cdi::Arguments),
    /// Compile a policy into settings of a device, and say what remains for software; changes nothing
    Plan(plan::Arguments),
    /// Make the settings of a policy's plan, with a journal of the previous values
    Apply(apply::Arguments),
    /// Compare a policy's plan with the settings of the device
    Diff(diff::Arguments),
    /// Restore the settings from before `apply`
    Rollback(rollback::Arguments),
    /// Say whether the settings that `apply` made are still in force
    Status(status::Arguments),
    /// Generate traffic on RDMA devices and measure it at both ends
    Traffic(Box<traffic::Arguments>),
    /// Start traffic workers for a controller on another machine, or make the certificates for it
    Agent(agent::Arguments),
    /// Measure the numbers that Justitia and Harmonic need, or fit a device profile to its calibration claims
    Calibrate(calibrate::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    match &arguments.action {
        Action::Doctor(arguments) => doctor::run(arguments),
        Action::Run(arguments) => run::run(arguments),
        Action::Emulate(arguments) => emulate::run(arguments),
        Action::Top(arguments) => top::run(arguments),
        Action::Watch(arguments) => watch::run(arguments),
        Action::Enforce(arguments) => enforce::run(arguments),
        Action::Assign(arguments) => assign::run(arguments),
        Action::Pods(arguments) => pods::run(arguments),
        Action::Cdi(arguments) => cdi::run(arguments),
        Action::Plan(arguments) => plan::run(arguments),
        Action::Apply(arguments) => apply::run(arguments),
        Action::Diff(arguments) => diff::run(arguments),
        Action::Rollback(arguments) => rollback::run(arguments),
        Action::Status(arguments) => status::run(arguments),
        Action::Traffic(arguments) => traffic::run(arguments),
        Action::Agent(arguments) => agent::run(arguments),
        Action::Calibrate(arguments) => calibrate::run(arguments),
    }
}

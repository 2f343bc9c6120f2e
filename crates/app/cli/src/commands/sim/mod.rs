//! `isolane sim`: one scenario, of RDMA hosts ([`rdma`]), of a network ([`network`]), of hosts with Ethernet NICs
//! ([`nic`]) or of tiered memory ([`memory`]), once per policy.
//!
//! What the file says decides: a network's has a `[fabric]` table, one of cards a `[nic]` table, one of tiered memory a
//! `[memory]` table. An option that the other kind has is an error, for it would do nothing.

mod memory;
mod network;
mod nic;
mod rdma;

use crate::inputs::{self, bad};
use crate::output;
use crate::policy_kinds::{self, Kind};
use crate::progress::ProgressArguments;
use crate::status::Status;
use crate::target::TargetArguments;
use anyhow::{Result, bail};
use isolane_common_quantities::units::Duration;
use isolane_common_toml_input::kind::ScenarioKind;
use std::path::PathBuf;

/// Arguments of `isolane sim`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Scenario file (TOML) of RDMA hosts, of a network, of Ethernet NICs or of tiered memory; - reads it from stdin
    scenario: PathBuf,
    /// Policy instead of the scenario's
    #[arg(long, value_parser = inputs::every_policy_name())]
    policy: Option<String>,
    /// Run once under each of these policies, and compare
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',')]
    #[arg(conflicts_with = "policy")]
    #[arg(value_parser = inputs::every_policy_name())]
    policies: Vec<String>,
    /// Device profile instead of the scenario's: a name, or the path of a TOML file
    #[arg(long, value_parser = inputs::profile_names(), hide_possible_values = true)]
    profile: Option<String>,
    /// Run seed instead of the scenario's
    #[arg(long)]
    seed: Option<u64>,
    /// Measured time instead of the scenario's, like 5ms
    #[arg(long, value_parser = inputs::long_duration)]
    duration: Option<Duration>,
    /// Of RDMA hosts: go on until every tenant's rates and latency have settled, at most until this simulated time; the scenario's times are the least
    #[arg(long, value_name = "CAP", num_args = 0..=1, require_equals = true, default_missing_value = "4ms", value_parser = inputs::duration)]
    settle: Option<Duration>,
    #[command(flatten)]
    target: TargetArguments,
    /// Set a parameter of the policy, like target_us=3; of a network any key, like traffic.all.load=0.9; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Also print the policy's figures, and the counters that are zero
    #[arg(long, short)]
    verbose: bool,
    /// Print JSON; with --policies a list of runs
    #[arg(long)]
    json: bool,
    /// Also write an HTML report into this directory
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    #[command(flatten)]
    progress: ProgressArguments,
    /// Of Ethernet NICs: configuration instead of the scenario's, like T1
    #[arg(long, value_name = "NAME")]
    config: Option<String>,
    #[command(flatten, next_help_heading = "Of networks")]
    network: NetworkArguments,
}

/// What only networks have.
#[derive(Debug, clap::Args)]
struct NetworkArguments {
    /// Report every pair of hosts and class too
    #[arg(long)]
    per_pair: bool,
    /// Report a time series of 50 points, unless the scenario says another interval (of tiered memory too)
    #[arg(long)]
    series: bool,
    /// Write the packets that hosts send into this file, for Wireshark (pcap with nanoseconds)
    #[arg(long, value_name = "FILE.pcap", conflicts_with = "policies")]
    trace: Option<PathBuf>,
    /// Trace the packets of this port instead, like switch->host7
    #[arg(long, value_name = "PORT", requires = "trace")]
    trace_port: Option<String>,
    /// Most packets of a trace; later ones are counted, not written
    #[arg(long, value_name = "N", requires = "trace", default_value_t = 100_000)]
    trace_packets: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let (text, file) = inputs::scenario_text(&arguments.scenario)?;
    if let Some(directory) = &arguments.report {
        output::check_directory(directory)?;
    }
    let kind = ScenarioKind::of(&text, &file)?;
    if arguments.settle.is_some() && kind != ScenarioKind::Rdma {
        bail!(bad(format!(
            "--settle: {file} describes no RDMA hosts, and only their runs go on until they settle; give --duration"
        )));
    }
    if arguments.config.is_some() && kind != ScenarioKind::Ethernet {
        bail!(bad(format!(
            "--config: {file} has no [nic] table, and only Ethernet NICs have configurations; drop the option"
        )));
    }
    if kind != ScenarioKind::Memory {
        inputs::short("--duration", arguments.duration)?;
    }
    match kind {
        ScenarioKind::Memory => {
            check_policies(arguments, &file, Kind::Memory)?;
            memory::run(arguments, &text, &file)
        }
        ScenarioKind::Ethernet => nic::run(arguments, &text, &file),
        ScenarioKind::Network => {
            let given = [
                (arguments.profile.is_some(), "--profile"),
                (!arguments.target.is_simulator(), "--target"),
            ];
            if let Some((_, option)) = given.iter().find(|(given, _)| *given) {
                bail!(bad(format!(
                    "{option}: {file} describes a network ([fabric]), which has no device profiles and only the simulator; \
                     drop the option"
                )));
            }
            check_policies(arguments, &file, Kind::Network)?;
            network::run(arguments, &text, &file)
        }
        ScenarioKind::Rdma => {
            let given = [
                (arguments.network.per_pair, "--per-pair"),
                (arguments.network.series, "--series"),
                (arguments.network.trace.is_some(), "--trace"),
            ];
            if let Some((_, option)) = given.iter().find(|(given, _)| *given) {
                bail!(bad(format!(
                    "{option}: {file} describes RDMA hosts, and only networks (files with [fabric]) have that; drop the option"
                )));
            }
            check_policies(arguments, &file, Kind::Rdma)?;
            rdma::run(arguments, &text, &file)
        }
    }
}

/// Refuses a policy that only other kinds of scenario than `here` have.
fn check_policies(arguments: &Arguments, file: &str, here: Kind) -> Result<()> {
    for name in arguments.policy.iter().chain(&arguments.policies) {
        if let Some(kinds) = policy_kinds::elsewhere(name, here) {
            let option = policy_option(arguments);
            bail!(bad(format!(
                "{option} {name}: {file} cannot run it: {name} {kinds}"
            )));
        }
    }
    Ok(())
}

/// The option that names the policies.
fn policy_option(arguments: &Arguments) -> &'static str {
    match arguments.policies.is_empty() {
        true => "--policy",
        false => "--policies",
    }
}

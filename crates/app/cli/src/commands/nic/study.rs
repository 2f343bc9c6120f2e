//! `isolane nic study`: the trade-off study, on a real kernel over the soft network card or in the simulator.
//!
//! Simulated runs share nothing and go over all cores; soft ones need the machine for themselves and go one by one.

use super::paired;
use crate::card_study::{simulate, table};
use crate::inputs::{self, bad};
use crate::interrupt;
use crate::output;
use crate::progress::Bar;
use crate::report;
use crate::status::Status;
use crate::target::cancel_on_signal;
use anyhow::{Context, Result, bail};
use isolane_common_quantities::units::{BitRate, Bytes, Duration};
use isolane_ethernet_scenario::config;
use isolane_ethernet_scenario::config::{CATALOGUE, NicConfig, PLAIN, Qdisc};
use isolane_ethernet_scenario::model::{NicStudy, NicTraffic};
use isolane_ethernet_software_card::SoftNicError;
use isolane_ethernet_software_card::testbed::{self, TestbedOptions};
use isolane_study_results::ethernet::NicResult;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// The configurations of `--quick` without `--configs`: Linux' best, Titan's first step, all of it, ours.
const QUICK_CONFIGS: [&str; 4] = ["C6", "T1", "T3", "isolane"];
const QUICK_FLOWS: [u32; 2] = [3, 12];
/// The configurations of `--paired` without `--configs`, beside plain `mq`: Linux with its defaults, its best, with
/// queues of processors; Titan's first step, all of it, ours.
const PAIRED_CONFIGS: [&str; 6] = ["C1", "C6", "XPS", "T1", "T3", "isolane"];
const PAIRED_FLOWS: [u32; 1] = [12];
/// What the paper varies.
const FLOWS: [u32; 4] = [3, 6, 12, 48];
/// Runs of one cell in the simulator, as in the paper.
const SIM_SEEDS: u64 = 5;
/// Most flows of one host.
const FLOWS_MAX: u64 = 4_096;
/// Most hosts of a cluster.
const HOSTS_MAX: u64 = 64;

/// Line rate over the soft card: what two processors carry beside a dozen senders and receivers, so that the card and
/// not the machine is the limit.
pub(super) const SOFT_GBPS: f64 = 0.5;

/// Arguments of `isolane nic study`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Configurations (with --card vhost: pfifo_fast, fq_codel, fq, cake, each also with +titan or +isolane): C1 to C9, XPS, T1 to T3, TX1 to TX3, fq_codel, fq, cake, isolane; all if not given
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    configs: Vec<String>,
    /// Numbers of long flows from one host to another
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = crate::numbers::whole::<u32>(1..=FLOWS_MAX))]
    flows: Vec<u32>,
    /// Sizes of clusters whose hosts all send to each other; simulated only
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = crate::numbers::whole::<u32>(2..=HOSTS_MAX))]
    hosts: Vec<u32>,
    /// Megabytes that each connection of a cluster sends
    #[arg(long, value_name = "MB", requires = "hosts", default_value_t = 100, value_parser = crate::numbers::whole::<u64>(1..=10_000))]
    megabytes: u64,
    /// Simulate: hosts, NICs and switches of the paper
    #[arg(long, conflicts_with = "soft")]
    sim: bool,
    /// Run real traffic of this kernel over a NIC in user space, in this process (as root); the default
    #[arg(long)]
    soft: bool,
    /// The NIC of the real kernel: a TUN device of this machine, or the virtio NIC of a virtual machine (needs QEMU and
    /// `lab/fetch`), whose kernel waits for the NIC; there 12 flows and 5 s if not given, and 2 to 8 queues
    #[arg(long, value_enum, default_value_t = CardKind::Tun, conflicts_with_all = ["sim", "hosts", "quick", "seeds", "check_claims", "report"])]
    card: CardKind,
    /// With --card vhost: the directory `lab` of a checkout of Isolane; `lab` if not given
    #[arg(long, value_name = "DIR")]
    lab: Option<PathBuf>,
    /// A few configurations and short runs: under a minute
    #[arg(long)]
    quick: bool,
    /// Rounds over the NIC in user space; each runs every configuration once, beside plain mq. Prints medians of the
    /// ratios of throughput and processor time; with --card vhost medians alone, of 7 rounds if not given
    #[arg(long, value_name = "ROUNDS", conflicts_with_all = ["sim", "hosts", "quick", "seeds"], value_parser = crate::numbers::whole::<u64>(1..=1_000))]
    paired: Option<u64>,
    /// Runs of each; 5 in the simulator and 1 over the NIC in user space if not given
    #[arg(long, value_name = "N", value_parser = crate::numbers::whole::<u64>(1..=1_000))]
    seeds: Option<u64>,
    /// Measured time of a run, like 2s
    #[arg(long, value_parser = inputs::duration)]
    duration: Option<Duration>,
    /// Line rate in Gb/s; 10 in the simulator, 0.5 over the NIC in user space and 0.04 with --card vhost if not given
    #[arg(long, value_name = "GBPS", value_parser = crate::numbers::real(0.01..=100.0))]
    rate: Option<f64>,
    /// Transmit queues of the NIC
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = crate::numbers::whole::<u16>(1..=64))]
    queues: u16,
    /// Check the claims about the NIC in user space instead, one by one
    #[arg(long, conflicts_with_all = ["sim", "configs", "flows", "hosts", "quick", "paired", "report"])]
    check_claims: bool,
    /// With --check-claims: exit with 1 when a claim misses
    #[arg(long, requires = "check_claims")]
    fail_on_miss: bool,
    /// Print JSON: a list of runs; in rounds an object with the runs and the numbers of rounds
    #[arg(long)]
    json: bool,
    /// Also write the results and an HTML page into this directory
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
}

/// What plays the NIC's driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum CardKind {
    Tun,
    Vhost,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    if arguments.card == CardKind::Vhost {
        return super::vhost::run(&super::vhost::Choice {
            lab: arguments.lab.as_deref().unwrap_or(Path::new("lab")),
            configs: &arguments.configs,
            flows: &arguments.flows,
            rounds: arguments.paired,
            duration: arguments.duration,
            rate: arguments.rate,
            queues: arguments.queues,
            json: arguments.json,
        });
    }
    if arguments.lab.is_some() {
        bail!(bad("--lab: it has an effect with --card vhost only"));
    }
    if arguments.check_claims {
        return super::claims::run(arguments.json, arguments.fail_on_miss);
    }
    let studies = plan(arguments)?;
    if let Some(directory) = &arguments.report {
        output::make_directory(directory)?;
    }
    if let Some(rounds) = arguments.paired {
        let answer = paired::Answer {
            json: arguments.json,
            out: arguments.report.as_deref(),
        };
        return paired::run(&studies, rounds, &answer);
    }
    let cancel = cancel_on_signal()?;
    let bar = Bar::of_runs();
    bar.set_length(studies.len() as u64);
    let results = match arguments.sim {
        true => simulate(&studies, &cancel, &bar),
        false => drive(&studies, &cancel, &bar),
    };
    bar.finish_and_clear();
    let Some(results) = results? else {
        return Ok(interrupt::stopped(&bar));
    };
    match arguments.json {
        true => output::print_json(&results)?,
        false => output::show(&table::study(&results))?,
    }
    if let Some(short) = arguments
        .duration
        .filter(|one| *one < Duration::from_ms(1_000))
    {
        output::note(&format!(
            "isolane nic study: runs of {short} are shorter than a second, so NFM (1 s) is the NFM over the whole run"
        ));
    }
    if let Some(directory) = &arguments.report {
        let path = report::write_nic(directory, &results)?;
        output::note(&format!("wrote {}", path.display()));
    }
    Ok(Status::Done)
}

/// The runs of `arguments`: by load, then configuration, then seed.
fn plan(arguments: &Arguments) -> Result<Vec<NicStudy>> {
    if !arguments.sim && !arguments.hosts.is_empty() {
        bail!(bad(
            "--hosts: the NIC in user space joins two hosts; clusters are simulated, so add --sim"
        ));
    }
    if let Some(short) = arguments.duration.filter(|one| *one < Duration::from_ms(1)) {
        bail!(bad(format!(
            "--duration {short}: must be at least 1ms, the shortest interval over which fairness is measured"
        )));
    }
    let configs = configs(arguments)?;
    let flows = match (arguments.flows.is_empty(), arguments.hosts.is_empty()) {
        (true, true) if arguments.quick => QUICK_FLOWS.to_vec(),
        (true, true) if arguments.paired.is_some() => PAIRED_FLOWS.to_vec(),
        (true, true) => FLOWS.to_vec(),
        _ => arguments.flows.clone(),
    };
    once("flows", flows.iter())?;
    once("hosts", arguments.hosts.iter())?;
    // The caller adds the rounds of paired runs.
    let seeds = match (arguments.seeds, arguments.sim && !arguments.quick) {
        (Some(seeds), _) => seeds,
        (None, true) => SIM_SEEDS,
        (None, false) => 1,
    };
    let mut studies = Vec::new();
    for flows in flows {
        for config in &configs {
            studies.extend((1..=seeds).map(|seed| of_flows(arguments, *config, flows, seed)));
        }
    }
    for hosts in &arguments.hosts {
        for config in &configs {
            studies.extend((1..=seeds).map(|seed| of_hosts(arguments, *config, *hosts, seed)));
        }
    }
    Ok(studies)
}

fn configs(arguments: &Arguments) -> Result<Vec<NicConfig>> {
    let names: Vec<&str> = match (arguments.configs.is_empty(), arguments.quick) {
        (false, _) => arguments.configs.iter().map(String::as_str).collect(),
        (true, true) => QUICK_CONFIGS.to_vec(),
        (true, false) if arguments.paired.is_some() => PAIRED_CONFIGS.to_vec(),
        (true, false) => CATALOGUE.iter().map(|config| config.name).collect(),
    };
    let mut configs: Vec<NicConfig> = names.into_iter().map(named).collect::<Result<_>>()?;
    once("configs", configs.iter().map(|config| config.name))?;
    if !arguments.sim {
        configs.retain(runs_over_the_soft_card);
        if configs.is_empty() {
            bail!(bad(
                "--configs: none is left to run over the NIC in user space; add --sim, which models all of them"
            ));
        }
    }
    if arguments.paired.is_some() {
        configs.insert(0, PLAIN);
    }
    Ok(configs)
}

/// Whether the software NIC can run this configuration as a distinct one; if not, the reason. Today's other
/// configurations only set a queueing discipline, and none acts above TUN, so their rows would repeat C1.
fn runs_over_the_soft_card(config: &NicConfig) -> bool {
    let is_discipline = matches!(config.qdisc, Qdisc::FqCodel | Qdisc::Fq | Qdisc::Cake);
    if is_discipline {
        output::note(&format!(
            "left out {}: TUN takes frames at once, so no queueing discipline acts over the NIC in user space; --sim models \
             it, and --card vhost runs it over the NIC of a virtual machine",
            config.name
        ));
    }
    !is_discipline
}

/// An error if one of `values` is there twice: its runs would be the same runs.
pub(super) fn once<T: PartialEq + std::fmt::Display>(
    option: &str,
    values: impl Iterator<Item = T>,
) -> Result<()> {
    let mut seen = Vec::new();
    for value in values {
        if seen.contains(&value) {
            bail!(bad(format!("--{option}: {value} is named twice")));
        }
        seen.push(value);
    }
    Ok(())
}

/// The configuration that the command line calls `name`.
pub(super) fn named(name: &str) -> Result<NicConfig> {
    config::named(name.trim()).copied().ok_or_else(|| {
        let known: Vec<&str> = CATALOGUE.iter().map(|config| config.name).collect();
        bad(format!(
            "there is no configuration {:?}; there are {}",
            name.trim(),
            known.join(", ")
        ))
    })
}

fn of_flows(arguments: &Arguments, config: NicConfig, flows: u32, seed: u64) -> NicStudy {
    let mut study = NicStudy::of_paper(config, flows, seed);
    study.card.queues = arguments.queues;
    let (warmup, duration, rate) = match (arguments.sim, arguments.quick) {
        (true, false) => (300, 2_000, 10.0),
        (true, true) => (100, 1_100, 10.0),
        (false, false) => (500, 3_000, SOFT_GBPS),
        (false, true) => (300, 1_500, SOFT_GBPS),
    };
    study.warmup = Duration::from_ms(warmup);
    study.duration = arguments.duration.unwrap_or(Duration::from_ms(duration));
    study.card.rate = BitRate::from_gbps_f64(arguments.rate.unwrap_or(rate));
    study
}

fn of_hosts(arguments: &Arguments, config: NicConfig, hosts: u32, seed: u64) -> NicStudy {
    let mut study = of_flows(arguments, config, 1, seed);
    study.name = format!("{}-{hosts}-hosts", config.name);
    study.warmup = Duration::ZERO;
    study.traffic = NicTraffic::AllToAll {
        hosts,
        // As in the paper: 20 of 24 hosts behind the second switch (titan 6).
        second_switch: match hosts {
            24 => 20,
            _ => 0,
        },
        bytes: Bytes::new(arguments.megabytes * 1_000_000),
    };
    study
}

/// Runs `studies` over the soft card, one by one; none if interrupted.
fn drive(studies: &[NicStudy], cancel: &AtomicBool, bar: &Bar) -> Result<Option<Vec<NicResult>>> {
    let options = TestbedOptions::new(cancel);
    let mut results = Vec::new();
    for study in studies {
        let result = testbed::run(study, &options, &mut |line| {
            bar.set_message(line.to_owned())
        });
        match result {
            Ok(result) => results.push(result),
            Err(SoftNicError::Interrupted) => return Ok(None),
            Err(error) => {
                let hint = "this machine cannot run the study (--sim simulates it)";
                return Err(error).context(hint);
            }
        }
        bar.inc(1);
    }
    Ok(Some(results))
}

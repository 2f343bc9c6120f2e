//! `isolane mem measure-machine`: where applications of this machine begin to hurt each other.

use super::bench::length;
use crate::interrupt;
use crate::output;
use crate::status::{BadInput, Status};
use anyhow::Result;
use isolane_memory_service::MemoryHost;
use isolane_memory_service::application::amounts::bandwidth_text;
use isolane_memory_service::bench::Nodes;
use isolane_memory_service::profile::Origin;
use isolane_memory_service::profile::live::LiveMachine;
use isolane_memory_service::profile::machine::{self, MachineProfile, Settings};
use isolane_memory_service::service::machine::MACHINE;
use isolane_memory_service::service::settings::PROFILES;
use isolane_memory_service::tiers::Tiers;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `isolane mem measure-machine`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How long each measurement takes
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = length)]
    length: Duration,
    /// Measure each point so often; the middle value counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = crate::numbers::whole::<u32>(1..=99))]
    repeats: u32,
    /// Where the service looks for it
    #[arg(long, value_name = "DIRECTORY", default_value = PROFILES)]
    directory: PathBuf,
    /// Say what would be measured and for how long at most, and end
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "dry_run")]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<Status> {
    let host = MemoryHost::machine();
    let settings = Settings {
        repeats: arguments.repeats,
        ..Settings::default()
    };
    let points = 2 + bisections(settings.rate_step) + 2 + 100 / settings.far_step.max(1);
    let seconds = f64::from(points * settings.repeats) * arguments.length.as_secs_f64();
    if seconds > PATIENCE_S {
        let what = format!(
            "would measure for {seconds:.0} s, more than an hour: choose a shorter --length or fewer --repeats"
        );
        return Err(BadInput(what).into());
    }
    if arguments.dry_run {
        output::print(&plan(arguments, points, seconds))?;
    }
    let tiers = Tiers::required(&host)?;
    if arguments.dry_run {
        return Ok(Status::Done);
    }
    // Before the hour, not after it.
    output::make_directory(&arguments.directory)?;
    output::note(&format!(
        "isolane mem: measures for about {seconds:.0} s with all cores busy"
    ));
    let mut live = LiveMachine::new(host.clone(), Nodes::of(&tiers), arguments.length);
    let stop = interrupt::at_once_during("isolane mem measure-machine")?;
    let profile = machine::search(&mut live, &settings, Origin::of(&host))?;
    stop.done();
    let path = arguments.directory.join(MACHINE);
    output::write_file(&path, &output::json(&profile)?)?;
    match arguments.json {
        true => output::print_json(&profile)?,
        false => output::print(&text(&profile))?,
    }
    output::note(&format!(
        "isolane mem: wrote {}; isolaned --mem reads it when it starts",
        path.display()
    ));
    Ok(Status::Done)
}

/// What would be measured, on a machine with two tiers.
fn plan(arguments: &Arguments, points: u32, seconds: f64) -> String {
    format!(
        "measures latency and bandwidth of the near and the far tier alone, then near memory under growing load, then far \
         memory in growing parts:\nat most {points} points, {} times each: about {seconds:.0} s, with all cores busy; into {}\n",
        arguments.repeats,
        arguments.directory.join(MACHINE).display()
    )
}

/// Longest measurement that is begun.
const PATIENCE_S: f64 = 3_600.0;

/// Steps until a bisection of a thousand is as fine as `step`.
fn bisections(step: u32) -> u32 {
    (1_000 / step.max(1)).max(1).ilog2() + 1
}

fn text(profile: &MachineProfile) -> String {
    let rate = |bytes: f64| bandwidth_text(bytes.max(0.0) as u64);
    let reached = |reached: bool| match reached {
        true => "",
        false => " (the highest load that could be made; no probe became slower)",
    };
    let mut text = format!(
        "near: {:.0} ns alone, {} at most\n",
        profile.near_latency_ns,
        rate(profile.near_bandwidth_bytes_per_s)
    );
    if let Some(far) = profile.far_latency_ns {
        let most = profile
            .far_bandwidth_bytes_per_s
            .map_or_else(|| "unknown".to_owned(), rate);
        text.push_str(&format!("far: {far:.0} ns alone, {most} at most\n"));
    }
    text.push_str(&format!(
        "near memory is healthy up to {}{}\n",
        rate(profile.local_threshold_bytes_per_s),
        reached(profile.local_threshold_reached)
    ));
    if let Some(threshold) = profile.far_threshold_bytes_per_s {
        text.push_str(&format!(
            "far traffic is healthy up to {}{}\n",
            rate(threshold),
            reached(profile.far_threshold_reached)
        ));
    }
    match profile.hint_fault_threshold_per_s {
        Some(faults) => text.push_str(&format!("which is {faults:.0} hint faults per second\n")),
        None => text.push_str(
            "this kernel counts no hint faults: echo 2 > /proc/sys/kernel/numa_balancing\n",
        ),
    }
    text
}

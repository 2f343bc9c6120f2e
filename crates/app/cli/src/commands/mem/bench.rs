//! `isolane mem bench`: latency and bandwidth of this machine's memory, by the paper's two microbenchmarks.

use crate::inputs;
use crate::interrupt;
use crate::output;
use crate::status::Status;
use crate::text::{Table, fitted, number};
use anyhow::Result;
use isolane_common_quantities::units::Bytes;
use isolane_memory_service::application::amounts::{self, bandwidth_text, size_text};
use isolane_memory_service::bench::{
    self, BandwidthResult, BandwidthSettings, LatencyResult, LatencySettings, Nodes,
};
use isolane_memory_service::tiers::Tiers;
use isolane_memory_service::{MemError, MemoryHost};
use serde::Serialize;
use std::time::Duration;

/// Least memory of a benchmark: a smaller region fits into caches.
const REGION_MIN: u64 = 1 << 20;

/// Arguments of `isolane mem bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// What to measure: latency (random accesses), bandwidth (streams on every core), or latency beside streams
    #[arg(value_parser = ["latency", "bandwidth", "together"], default_value = "latency")]
    what: String,
    /// Memory that random accesses go to [default: 4GiB]
    #[arg(long, value_name = "SIZE", value_parser = region)]
    region: Option<Bytes>,
    /// Memory of each stream [default: 128MiB]
    #[arg(long, value_name = "SIZE", value_parser = region)]
    stream_region: Option<Bytes>,
    /// Part of the memory in the far tier, percent
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = crate::numbers::whole::<u32>(0..=100))]
    far_percent: u32,
    /// Streams [default: one on each core]
    #[arg(long, value_name = "N", value_parser = crate::numbers::whole::<u32>(1..=1024))]
    cores: Option<u32>,
    /// For how long
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = length)]
    length: Duration,
    /// Print JSON, with the histogram
    #[arg(long)]
    json: bool,
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Results {
    latency: Option<LatencyResult>,
    bandwidth: Option<BandwidthResult>,
}

fn region(text: &str) -> Result<Bytes, String> {
    // Zero is as little without a unit.
    let size = match text.trim() {
        "0" => 0,
        text => amounts::size(text)?,
    };
    match size {
        REGION_MIN.. => Ok(Bytes::new(size)),
        _ => Err(
            "must be 1MiB at least, like \"4GiB\": a smaller region fits into caches".to_owned(),
        ),
    }
}

/// A time above zero.
pub(super) fn length(text: &str) -> Result<Duration, String> {
    inputs::duration(text).map(|length| Duration::from_nanos(length.as_ps() / 1_000))
}

/// Options that would do nothing.
fn refuse(arguments: &Arguments) -> Result<()> {
    let what = arguments.what.as_str();
    let given = [
        (arguments.region.is_some(), "--region", "bandwidth"),
        (
            arguments.stream_region.is_some(),
            "--stream-region",
            "latency",
        ),
        (arguments.cores.is_some(), "--cores", "latency"),
    ];
    let idle = given
        .into_iter()
        .find(|(given, _, of)| *given && *of == what);
    match idle {
        Some((_, option, _)) => Err(inputs::bad(format!(
            "{option}: `isolane mem bench {what}` has no such thing; drop the option, or measure both: together"
        ))),
        None => Ok(()),
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<Status> {
    refuse(arguments)?;
    let nodes = Nodes::of(&Tiers::read(&MemoryHost::machine()));
    let victim = LatencySettings {
        region: arguments
            .region
            .unwrap_or(LatencySettings::default().region),
        far_percent: arguments.far_percent,
        length: arguments.length,
        nodes: nodes.clone(),
    };
    let usual = BandwidthSettings::default();
    let streams = BandwidthSettings {
        cores: arguments.cores.unwrap_or(usual.cores),
        region: arguments.stream_region.unwrap_or(usual.region),
        far_percent: arguments.far_percent,
        length: arguments.length,
        nodes,
        ..usual
    };
    let stop = interrupt::at_once_during(&format!("isolane mem bench {}", arguments.what))?;
    let results = match measure(&arguments.what, victim, &streams) {
        // The sizes are options.
        Err(error @ MemError::NoRoom { .. }) => return Err(inputs::bad(error.to_string())),
        measured => measured?,
    };
    stop.done();
    match arguments.json {
        true => output::print_json(&results)?,
        false => output::print(&text(&results))?,
    }
    Ok(Status::Done)
}

fn measure(
    what: &str,
    victim: LatencySettings,
    streams: &BandwidthSettings,
) -> Result<Results, MemError> {
    Ok(match what {
        "latency" => Results {
            latency: Some(bench::latency(&victim)?),
            bandwidth: None,
        },
        "bandwidth" => Results {
            latency: None,
            bandwidth: Some(bench::bandwidth(streams)?),
        },
        _ => {
            let near = LatencySettings {
                far_percent: 0,
                ..victim
            };
            let (latency, bandwidth) = bench::together(&near, streams)?;
            Results {
                latency: Some(latency),
                bandwidth: Some(bandwidth),
            }
        }
    })
}

fn text(results: &Results) -> String {
    let mut text = String::new();
    if let Some(latency) = &results.latency {
        let mut table = Table::new(
            "rrrrr",
            &["region", "mean ns", "p50 ns", "p90 ns", "p99 ns"],
        );
        table.row(vec![
            size_text(latency.region_bytes),
            number(latency.mean_ns),
            number(latency.p50_ns),
            number(latency.p90_ns),
            number(latency.p99_ns),
        ]);
        text.push_str(&fitted(&table));
        if latency.interrupted_samples > 0 {
            text += &format!(
                "  {} more samples do not count: another program had the processor meanwhile\n",
                latency.interrupted_samples
            );
        }
    }
    if let Some(streams) = &results.bandwidth {
        let rate = bandwidth_text(streams.bandwidth_bytes_per_s.max(0.0) as u64);
        text.push_str(&format!(
            "  {rate} by {} streams of {} each\n",
            streams.cores,
            size_text(streams.region_bytes)
        ));
    }
    text
}

//! `isolane hunt speed`: how long single simulated experiments take on this machine, and how much memory.
//!
//! Random workloads of the space, as in a hunt: first with at most 500 queue pairs, then with as many as the space
//! allows. Units: seconds, and the peak of the process's resident memory in MB. Limits: one core; the peak only grows,
//! so the large ones come last; where `/proc/self/status` lacks the peak, the peak is left out.

use crate::inputs::{self, bad};
use crate::output;
use crate::status::Status;
use crate::text::{Table, fitted, number};
use anyhow::{Context, Result};
use isolane_common_quantities::rng::Stream;
use isolane_study_hunt::HuntError;
use isolane_study_hunt::experiment::{Lab, Target};
use isolane_study_hunt::space::{Feature, Space};
use isolane_study_testbed_simulator::SimTestbed;
use serde::Serialize;
use std::time::Instant;

/// Queue pairs up to which an experiment counts as usual.
const USUAL: u64 = 500;
/// Queue pairs of large ones.
const LARGE: u64 = 20_000;

/// Arguments of `isolane hunt speed`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Device: sim: and a profile's name or file
    #[arg(long, value_name = "sim:PROFILE", default_value = "sim:cx6-200g-roce")]
    target: String,
    /// Random workloads of up to 500 queue pairs
    #[arg(long, default_value_t = 40, value_parser = crate::numbers::whole::<u32>(1..=100_000))]
    usual: u32,
    /// Random workloads of 20,000 queue pairs
    #[arg(long, default_value_t = 8, value_parser = crate::numbers::whole::<u32>(1..=100_000))]
    large: u32,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Experiments of one size.
#[derive(Debug, Serialize)]
struct Timing {
    queue_pairs: String,
    experiments: usize,
    median_s: f64,
    p90_s: f64,
    longest_s: f64,
    /// The workload that took longest.
    longest: String,
    peak_mb: Option<f64>,
}

pub(super) fn run(arguments: &Arguments) -> Result<Status> {
    let name = arguments.target.strip_prefix("sim:").ok_or_else(|| {
        bad(format!(
            "--target {}: must be sim: and a profile, like sim:cx6-200g-roce: real devices take the time they are given",
            arguments.target
        ))
    })?;
    let profile = inputs::profile(&mut inputs::library(), name)?;
    let lab = Lab::simulated(&SimTestbed, &profile);
    let sizes = [
        (
            format!("1 to {USUAL}"),
            format!("[1, {USUAL}]"),
            arguments.usual,
        ),
        (LARGE.to_string(), LARGE.to_string(), arguments.large),
    ];
    let mut timings = Vec::new();
    for (shown, allowed, count) in sizes {
        let restriction = format!("{} = {allowed}\n", Feature::QueuePairs.name());
        let space = Space::of(&profile).restricted(&restriction, "queue pairs")?;
        timings.push(timed(&lab, &space, (shown, count), arguments.seed)?);
    }
    match arguments.json {
        true => output::print_json(&timings)?,
        false => output::show(&text(&arguments.target, &timings))?,
    }
    Ok(Status::Done)
}

/// Times `count` random experiments of `space`, one after the other.
fn timed(lab: &Lab<'_>, space: &Space, (shown, count): (String, u32), seed: u64) -> Result<Timing> {
    let mut stream = Stream::named(seed, "hunt/speed");
    let mut all = Vec::new();
    for _ in 0..count {
        let point = space.draw(&mut stream);
        let point = point.map_err(|rule| HuntError::NoPoint { rule })?;
        let begun = Instant::now();
        lab.measure(&point, seed)?;
        all.push((begun.elapsed().as_secs_f64(), point));
    }
    all.sort_by(|left, right| left.0.total_cmp(&right.0));
    let part = |part: usize| all[(all.len() * part / 100).min(all.len() - 1)].0;
    let (longest_s, longest) = all.last().context("at least one experiment")?;
    Ok(Timing {
        queue_pairs: shown,
        experiments: all.len(),
        median_s: part(50),
        p90_s: part(90),
        longest_s: *longest_s,
        longest: longest.text(),
        peak_mb: peak_mb(),
    })
}

/// The most memory that this process ever held, MB.
fn peak_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1_024.0 / 1e6)
}

fn text(target: &str, timings: &[Timing]) -> String {
    let head = [
        "queue pairs",
        "experiments",
        "median s",
        "90 % s",
        "longest s",
        "peak MB",
    ];
    let mut table = Table::new("lrrrrr", &head);
    for timing in timings {
        table.row(vec![
            timing.queue_pairs.clone(),
            timing.experiments.to_string(),
            number(timing.median_s),
            number(timing.p90_s),
            number(timing.longest_s),
            timing.peak_mb.map_or("-".to_owned(), number),
        ]);
    }
    let mut text = format!(
        "simulated experiments on {target}, one core\n\n{}",
        fitted(&table)
    );
    for timing in timings {
        text.push_str(&format!(
            "\nlongest of {}: {}",
            timing.queue_pairs, timing.longest
        ));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_sample_and_the_peak_are_reported() {
        let profile = inputs::profile(&mut inputs::library(), "cx5-100g-roce").unwrap();
        let lab = Lab::simulated(&SimTestbed, &profile);
        let space = Space::of(&profile)
            .restricted(
                "queue_pairs = [1, 4]\nregions = 1\ndepth = 16\npost_list = 1\n",
                "test",
            )
            .unwrap();
        let timing = timed(&lab, &space, ("few".to_owned(), 5), 1).unwrap();
        assert_eq!(timing.experiments, 5);
        assert!(timing.median_s <= timing.p90_s && timing.p90_s <= timing.longest_s);
        assert!(timing.longest_s > 0.0 && !timing.longest.is_empty());
        if std::path::Path::new("/proc/self/status").exists() {
            assert!(timing.peak_mb.is_some_and(|peak| peak > 1.0));
        }
    }
}

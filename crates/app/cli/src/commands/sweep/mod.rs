//! `isolane sweep`: a network's scenario under every combination of settings and seeds, on all cores.
//!
//! Method: the points of a sweep are numbered, settings in the order given, seeds innermost ([`plan`]). A shard is every
//! n-th point. Runs share nothing and results are put in the order of their numbers, so that output has the same bytes
//! for any number of workers and, merged, for any number of shards ([`store`]). With `--out` each finished point is kept at
//! once, and the same command goes on where it was stopped.

mod plan;
mod show;
mod store;

use crate::file_kind::{FileKind, Wanted};
use crate::inputs::{self, bad};
use crate::network::{self, Job, Jobs};
use crate::output;
use crate::progress::ProgressArguments;
use crate::status::Status;
use crate::target::cancel_on_signal;
use crate::text::counted;
use anyhow::{Result, bail};
use isolane_common_quantities::units::Duration;
use isolane_common_toml_input::kind::ScenarioKind;
use plan::{Plan, Shard};
use std::collections::BTreeSet;
use std::path::PathBuf;
use store::{Document, Kept};

/// Arguments of `isolane sweep`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Scenario file (TOML) of a network; - reads it from stdin; with --merge the shards' JSON files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Values of a key, like policy.name=none,aequitas or traffic.all.load=0.5,0.8; may be repeated, every combination
    /// is run
    #[arg(long, value_name = "KEY=VALUE,...")]
    vary: Vec<String>,
    /// Set a key for all points, like floor=0.05; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Run each combination with this many seeds, counted up from the scenario's
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = crate::numbers::whole::<u64>(1..=10_000))]
    seeds: u64,
    /// First seed instead of the scenario's
    #[arg(long)]
    seed: Option<u64>,
    /// Measured time instead of the scenario's, like 5ms
    #[arg(long, value_parser = inputs::duration)]
    duration: Option<Duration>,
    /// Runs at once [default: one per core]
    #[arg(long, value_name = "N", value_parser = crate::numbers::whole::<u64>(1..=4_096))]
    jobs: Option<u64>,
    /// Run every n-th point only, from the i-th on, for other machines to run the rest
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// Keep results in this file (JSON); a sweep that was stopped goes on where it was
    #[arg(long, value_name = "FILE.json")]
    out: Option<PathBuf>,
    /// Put the shards' files together: the output of the whole sweep
    #[arg(long, conflicts_with_all = ["vary", "set", "seeds", "seed", "duration", "jobs", "shard"])]
    merge: bool,
    #[command(flatten)]
    progress: ProgressArguments,
    /// Print JSON: every point with its whole result
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values: a line per point and class
    #[arg(long)]
    csv: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let document = match arguments.merge {
        true => Some(store::merge(&arguments.files)?),
        false => sweep(arguments)?,
    };
    let Some(document) = document else {
        output::note(match arguments.out.is_some() {
            true => "isolane: interrupted; the same command goes on",
            false => "isolane: interrupted; nothing is kept without --out FILE.json",
        });
        return Ok(Status::Interrupted);
    };
    if let Some(path) = &arguments.out {
        output::write_file(path, &output::json(&document)?)?;
        store::forget(path);
    }
    match (arguments.json, arguments.csv) {
        (true, _) => output::print_json(&document)?,
        (_, true) => output::print(&show::csv(&document))?,
        _ => output::print(&show::text(&document))?,
    }
    Ok(Status::Done)
}

/// What the command takes; another scenario has its own error.
const NETWORK: Wanted = Wanted {
    kind: |kind| matches!(kind, FileKind::Scenario(_)),
    words: "the scenario of a network (TOML with [fabric], docs/reference/fabric-scenario.md)",
};

/// Runs the points; none when the user stopped it.
fn sweep(arguments: &Arguments) -> Result<Option<Document>> {
    let [file] = &arguments.files[..] else {
        bail!(bad(
            "a sweep is of one scenario; --merge takes several files"
        ));
    };
    let (text, name) = inputs::document_text(file, &NETWORK)?;
    if ScenarioKind::of(&text, &name)? != ScenarioKind::Network {
        bail!(bad(format!(
            "{name} is no network, and sweeps are of networks (files with [fabric]); isolane audit and recommend \
             compare RDMA hosts under many policies, isolane nic study Ethernet NICs"
        )));
    }
    if arguments.vary.is_empty() && arguments.seeds == 1 {
        bail!(bad(format!(
            "nothing varies: give --vary KEY=VALUE,... (like policy.name=none,aequitas), or --seeds N above 1; isolane sim \
             {name} is one run"
        )));
    }
    let plan = Plan::of(arguments, &text, &name)?;
    let shard = arguments.shard.unwrap_or(Shard::WHOLE);
    let mut document = plan.document(shard);
    let kept = match &arguments.out {
        Some(path) => Some(Kept::open(path, &document)?),
        None => None,
    };
    let done = kept.as_ref().map_or_else(Vec::new, Kept::points);
    let known: BTreeSet<u64> = done.iter().map(|point| point.index).collect();
    let points: Vec<_> = plan
        .points(shard)
        .filter(|point| !known.contains(&point.index))
        .collect();
    if !done.is_empty() {
        output::note(&format!(
            "isolane: {} of {} done already",
            done.len(),
            counted((done.len() + points.len()) as u64, "point")
        ));
    }
    let jobs = points.iter().map(|point| Job {
        scenario: point.scenario.clone(),
    });
    let jobs: Vec<Job> = jobs.collect();
    let cancel = cancel_on_signal()?;
    let bar = arguments.progress.part();
    let runs = Jobs {
        cancel: &cancel,
        workers: match arguments.jobs {
            Some(workers) => usize::try_from(workers)?,
            None => network::cores(),
        },
        bar: &bar,
    };
    let results = runs.run_each(&jobs, |index, result| match &kept {
        Some(kept) => kept.keep(&points[index].with(result.clone())),
        None => Ok(()),
    });
    bar.finish_and_clear();
    let Some(results) = network::unless_cancelled(results)? else {
        return Ok(None);
    };
    let new = points
        .iter()
        .zip(results)
        .map(|(point, result)| point.with(result));
    document.points = done.into_iter().chain(new).collect();
    document.points.sort_by_key(|point| point.index);
    Ok(Some(document))
}

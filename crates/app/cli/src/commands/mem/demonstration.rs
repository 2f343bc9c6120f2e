//! `isolane mem try`: interference in this machine's memory, and what Mercury does about it.

use crate::output;
use crate::status::Status;
use crate::text::{Table, counted, fitted, number};
use anyhow::{Context, Result};
use isolane_memory_service::MemError;
use isolane_memory_service::application::amounts::{bandwidth_text, size_text};
use isolane_memory_service::bench::demonstration::{self, Demonstration, Part, Phase, Verdict};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Arguments of `isolane mem try`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How long each of the three phases lasts
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = length)]
    length: Duration,
    /// Print JSON, with every period
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<Status> {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    ctrlc::set_handler(move || stopped.store(true, Ordering::Relaxed))
        .context("cannot wait for signals")?;
    let seconds = arguments.length.as_secs_f64();
    let begins = |part| {
        let what = match part {
            Part::Alone => "random accesses alone",
            Part::Beside => "random accesses beside streams",
            Part::Steered => "both, and Mercury limits the streams",
        };
        output::note(&format!("isolane mem try: {what}, {seconds} s"));
    };
    let found = match demonstration::run(arguments.length, &stop, begins) {
        Err(error @ MemError::Interrupted) => {
            output::note(&format!("isolane mem try: {error}"));
            return Ok(Status::Interrupted);
        }
        found => found?,
    };
    match arguments.json {
        true => output::print_json(&found)?,
        false => output::print(&text(&found))?,
    }
    Ok(match found.verdict {
        Verdict::Kept | Verdict::NoInterference => Status::Done,
        Verdict::Missed => Status::No,
    })
}

fn text(found: &Demonstration) -> String {
    let mut table = Table::new(
        "lrrrrr",
        &[
            &format!("random accesses to {}", size_text(found.region_bytes)),
            "p50 ns",
            "p99 ns",
            "samples",
            "streams read",
            "stream CPU %",
        ],
    );
    let rows = [
        ("alone", Some(&found.alone)),
        ("beside streams", Some(&found.beside)),
        ("under Mercury", found.steered.as_ref()),
    ];
    for (name, phase) in rows {
        let Some(phase) = phase else { continue };
        table.row(row(name, phase));
    }
    format!("{}\n{}", sentence(found), fitted(&table)) + &remarks(found)
}

fn row(name: &str, phase: &Phase) -> Vec<String> {
    let streams = phase.stream_thousandths > 0.0;
    let only = |text: String| if streams { text } else { "-".to_owned() };
    vec![
        name.to_owned(),
        number(phase.p50_ns),
        number(phase.p99_ns),
        phase.samples.to_string(),
        only(bandwidth_text(phase.bandwidth_bytes_per_s.max(0.0) as u64)),
        only(number(phase.stream_thousandths / 10.0)),
    ]
}

/// A phase of less than a second ends before Mercury has limited the streams.
fn length(text: &str) -> Result<Duration, String> {
    match super::bench::length(text)? {
        short if short < Duration::from_secs(1) => Err("must be at least 1s".to_owned()),
        length => Ok(length),
    }
}

fn sentence(found: &Demonstration) -> String {
    let rise = (found.beside.p50_ns / found.alone.p50_ns - 1.0) * 100.0;
    let streams = counted(u64::from(found.streams), "stream");
    let objective = number(found.objective_ns);
    match (&found.steered, found.verdict) {
        (Some(steered), Verdict::Kept) => format!(
            "{streams} raised the median latency of random accesses by {rise:.0} %; Mercury kept it within {objective} ns, and the streams kept {:.0} % of their bandwidth.",
            100.0 * steered.bandwidth_bytes_per_s / found.beside.bandwidth_bytes_per_s
        ),
        (Some(steered), _) => format!(
            "{streams} raised the median latency of random accesses by {rise:.0} %; Mercury did not meet the objective of {objective} ns: the median was {} ns in the second half of its phase.",
            number(steered.p50_ns)
        ),
        (None, _) => {
            let change = if rise < 0.0 { "lowered" } else { "raised" };
            format!(
                "{streams} {change} the median latency of random accesses by {:.0} %, less than the 10 % that count as interference: Mercury had nothing to control.",
                rise.abs()
            )
        }
    }
}

/// What the table does not say.
fn remarks(found: &Demonstration) -> String {
    let phases = [
        Some(&found.alone),
        Some(&found.beside),
        found.steered.as_ref(),
    ];
    let parts = phases.iter().flatten().map(|phase| phase.ran_percent);
    let least = parts.fold(100.0, f64::min);
    let mut text = String::new();
    if least < RAN_PERCENT_MIN {
        text += &format!(
            "  the measuring thread had its processor for {least:.0} % of a phase only: other programs are part of these figures; \
             repeat this on a quiet machine\n"
        );
    }
    if found.steered.is_some() {
        text += &format!(
            "  objective: the median alone plus 10 %, {} ns; \"under Mercury\" is the second half of its phase\n",
            number(found.objective_ns)
        );
    }
    text
}

/// A thread that had its processor for less of the time competed with others.
const RAN_PERCENT_MIN: f64 = 90.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(p50_ns: f64, bandwidth_bytes_per_s: f64, stream_thousandths: f64) -> Phase {
        Phase {
            p50_ns,
            p99_ns: p50_ns * 1.5,
            samples: 1_000_000,
            interrupted_samples: 100,
            ran_percent: 99.0,
            bandwidth_bytes_per_s,
            stream_thousandths,
        }
    }

    #[test]
    fn the_verdict_comes_first_and_says_what_the_streams_keep() {
        let mut found = Demonstration {
            alone: phase(100.0, 0.0, 0.0),
            beside: phase(150.0, 12e9, 1_000.0),
            steered: Some(phase(108.0, 2.4e9, 202.0)),
            region_bytes: 8 << 20,
            streams: 1,
            objective_ns: 110.0,
            verdict: Verdict::Kept,
            steps: Vec::new(),
        };
        let shown = text(&found);
        let first = |shown: &str| shown.lines().next().unwrap_or_default().to_owned();
        assert_eq!(
            first(&shown),
            "1 stream raised the median latency of random accesses by 50 %; Mercury kept it within 110.0 ns, and the streams kept \
             20 % of their bandwidth."
        );
        assert!(shown.contains("random accesses to 8 MiB"), "{shown}");
        assert!(!shown.contains("quiet machine"), "{shown}");
        found.verdict = Verdict::Missed;
        found.alone.ran_percent = 48.3;
        let shown = text(&found);
        assert!(
            first(&shown).contains(
                "Mercury did not meet the objective of 110.0 ns: the median was 108.0 ns"
            )
        );
        assert!(
            shown.contains("its processor for 48 % of a phase only"),
            "{shown}"
        );
        found.beside.p50_ns = 104.0;
        found.steered = None;
        found.verdict = Verdict::NoInterference;
        assert!(first(&text(&found)).ends_with("Mercury had nothing to control."));
    }
}

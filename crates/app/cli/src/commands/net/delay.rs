//! `isolane net delay`: the worst delay of each class of a port by queueing theory, without a simulation.

use crate::inputs::bad;
use crate::output;
use crate::report;
use crate::status::Status;
use crate::text::{Table, fitted, number};
use anyhow::{Result, bail};
use isolane_app_report::{WfqDelays, WfqPoint, intervals};
use isolane_rpc_policy::queueing::Arrivals;
use isolane_rpc_policy::queueing::fluid::Port;
use isolane_rpc_policy::queueing::region::{Line, guaranteed_share};
use isolane_rpc_policy::queueing::two_class::{Case, TwoClasses};
use std::fmt::Write;
use std::path::PathBuf;

/// Version of what `--json` prints.
const VERSION: u32 = 1;
/// Lines of the table that a terminal shows.
const ROWS: usize = 20;

/// Arguments of `isolane net delay`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Two classes: weight of the high class, the low one has 1
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true)]
    #[arg(value_parser = plain, conflicts_with = "weights")]
    phi: Option<f64>,
    /// Any number of classes: their weights, the most important first, like 8:4:1
    #[arg(long, value_name = "W:W:...")]
    weights: Option<String>,
    /// Ratio in which the classes after the first divide the rest of the traffic, like 2:1; equal parts if not given
    #[arg(long, value_name = "P:P:...")]
    rest: Option<String>,
    /// Arrival rate during a burst, relative to the line rate
    #[arg(long, default_value_t = 1.4, value_parser = plain, allow_negative_numbers = true)]
    rho: f64,
    /// Average load, relative to the line rate
    #[arg(long, default_value_t = 0.8, value_parser = plain, allow_negative_numbers = true)]
    mu: f64,
    /// Only this share of the first class, from 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = plain, allow_negative_numbers = true)]
    share: Option<f64>,
    /// Length of the period in microseconds: delays are shown in microseconds too
    #[arg(long, value_name = "US", value_parser = plain, allow_negative_numbers = true)]
    period_us: Option<f64>,
    /// Points between 0 and 1
    #[arg(long, default_value_t = 100, value_parser = crate::numbers::whole::<u32>(1..=100_000))]
    steps: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Also write an HTML page with the plot into this directory
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<Status> {
    if let Some(directory) = &arguments.report {
        output::check_directory(directory)?;
    }
    let delays = compute(arguments)?;
    match arguments.json {
        true => output::print_json(&delays)?,
        false => output::show(&text(&delays))?,
    }
    if let Some(directory) = &arguments.report {
        let path = report::write_wfq(directory, &delays)?;
        output::note(&format!("wrote {}", path.display()));
    }
    Ok(Status::Done)
}

/// Weights of all classes, and the parts in which those after the first divide what is left; the first entry of these is 0.
fn weights_and_rest(arguments: &Arguments) -> Result<(Vec<f64>, Vec<f64>)> {
    let weights = match (&arguments.weights, arguments.phi) {
        (Some(weights), _) => numbers("--weights", weights)?,
        (None, Some(phi)) => vec![phi, 1.0],
        (None, None) => bail!(bad(
            "isolane net delay needs --phi WEIGHT of the first of two classes, or --weights W:W:... of all classes, like 8:4:1"
        )),
    };
    if weights.len() < 2 {
        bail!(bad(
            "--weights names one class; delays depend on what the classes divide, so give two or more, like 4:1"
                .to_owned()
        ));
    }
    let mut rest = vec![0.0];
    match &arguments.rest {
        Some(text) => rest.extend(numbers("--rest", text)?),
        None => rest.resize(weights.len(), 1.0),
    }
    if rest.len() != weights.len() {
        bail!(bad(format!(
            "--rest has {} parts for {} classes after the first; give one for each",
            rest.len() - 1,
            weights.len() - 1
        )));
    }
    Ok((weights, rest))
}

/// Shares of the first class to compute.
fn shares(arguments: &Arguments) -> Result<Vec<f64>> {
    Ok(match arguments.share {
        Some(share) if !(0.0..=1.0).contains(&share) => {
            bail!(bad(format!("--share {share} is not from 0 to 1")))
        }
        Some(share) => vec![share],
        None => {
            let steps = arguments.steps;
            (0..=steps)
                .map(|i| f64::from(i) / f64::from(steps))
                .collect()
        }
    })
}

fn compute(arguments: &Arguments) -> Result<WfqDelays> {
    let arrivals = Arrivals::new(arguments.mu, arguments.rho)?;
    let (weights, rest) = weights_and_rest(arguments)?;
    if let Some(period) = arguments
        .period_us
        .filter(|period| !(*period > 0.0 && period.is_finite()))
    {
        bail!(bad(format!("--period-us {period} is not above 0")));
    }
    let port = Port::new(&weights, arrivals)?;
    let line = Line::new(port.clone(), 0, &rest)?;
    let shares = shares(arguments)?;
    let two = match weights[..] {
        [high, low] => Some(TwoClasses::new(high / low, arrivals)?),
        _ => None,
    };
    let points = shares.into_iter().map(|share| {
        let delay_periods = line.delays(share);
        WfqPoint {
            share,
            delay_us: arguments
                .period_us
                .map(|period| delay_periods.iter().map(|delay| delay * period).collect()),
            delay_periods,
            case: two.map(|two| words(two.case(share)).to_owned()),
        }
    });
    let unloaded = line.within(
        &(0..weights.len())
            .map(|class| (class == 0).then_some(0.0))
            .collect::<Vec<_>>(),
    );
    let sum: f64 = rest.iter().sum();
    Ok(WfqDelays {
        version: VERSION,
        points: points.collect(),
        admissible_share: line
            .admissible()
            .into_iter()
            .map(|(from, to)| [from, to])
            .collect(),
        guaranteed_line_rates: (0..weights.len() - 1)
            .map(|class| guaranteed_share(&port, class))
            .collect(),
        undelayed_share_max: unloaded.first().map_or(0.0, |(_, to)| *to),
        rest: rest[1..].iter().map(|part| part / sum).collect(),
        weights,
        load: arrivals.load,
        burst: arrivals.burst,
        period_us: arguments.period_us,
    })
}

/// A number without a unit.
fn plain(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let number: Option<f64> = text.parse().ok();
    number.filter(|number| number.is_finite()).ok_or_else(|| match text.strip_suffix('%') {
        Some(percent) if percent.trim().parse::<f64>().is_ok() => {
            "write it as a part of 1, like 0.8 for 80%".to_owned()
        }
        _ => "must be a plain number, like 0.8: loads are relative to the line rate, weights to each other"
            .to_owned(),
    })
}

/// Numbers with colons between them.
fn numbers(option: &str, text: &str) -> Result<Vec<f64>> {
    let one = |part: &str| {
        let number: Option<f64> = part.trim().parse().ok();
        number.filter(|number| number.is_finite()).ok_or_else(|| {
            bad(format!(
                "{option} {text}: {part:?} is not a finite number; write numbers with colons between them, like 8:4:1"
            ))
        })
    };
    text.split(':').map(one).collect()
}

fn words(case: Case) -> &'static str {
    match case {
        Case::HighUndelayed => "class 0 never waits",
        Case::HighFirst => "both wait, class 0 is done first",
        Case::LowFirst => "both wait, class 1 is done first",
        Case::LowUndelayed => "class 1 never waits",
        Case::HighAboveLine => "class 0 alone exceeds the line",
        Case::LowAboveLine => "class 1 alone exceeds the line",
    }
}

fn text(delays: &WfqDelays) -> String {
    let weights: Vec<String> = delays.weights.iter().map(f64::to_string).collect();
    let mut text = format!(
        "Weights {}, load {} of the line, bursts at {} of the line\n\n",
        weights.join(":"),
        delays.load,
        delays.burst
    );
    let unit = match delays.period_us {
        Some(_) => "us",
        None => "periods",
    };
    let mut headings = vec!["share of class 0".to_owned()];
    headings.extend((0..weights.len()).map(|class| format!("delay of {class}, {unit}")));
    let two = delays.weights.len() == 2;
    if two {
        headings.push("case".to_owned());
    }
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let columns: String = (0..headings.len())
        .map(|column| match two && column + 1 == headings.len() {
            true => 'l',
            false => 'r',
        })
        .collect();
    let mut table = Table::new(columns, &headings);
    let every = (delays.points.len() - 1).div_ceil(ROWS).max(1);
    for point in delays.points.iter().step_by(every) {
        let values = point.delay_us.as_ref().unwrap_or(&point.delay_periods);
        let mut row = vec![number(point.share)];
        row.extend(values.iter().map(|value| number(*value)));
        row.extend(point.case.clone());
        table.row(row);
    }
    text.push_str(&fitted(&table));
    let _ = writeln!(
        text,
        "\n  No class waits longer than a lower one while class 0 has {} of the traffic.",
        intervals(&delays.admissible_share)
    );
    let _ = writeln!(
        text,
        "  Class 0 never waits up to a share of {}.",
        number(delays.undelayed_share_max)
    );
    for (class, rate) in delays.guaranteed_line_rates.iter().enumerate() {
        let _ = writeln!(
            text,
            "  Class {class} is admitted at least {} of the line rate at any load of the other classes.",
            number(*rate)
        );
    }
    text
}

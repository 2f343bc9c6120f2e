//! When a run has settled, as a pure function of what its tenants did in consecutive windows.
//!
//! Problem: a run that is too short answers from its start: caches fill, queues drain, a policy uses up what it saved.
//! How long that takes differs a hundredfold between workloads. Method: a measured time is cut into [`WINDOWS`] equal
//! windows. A rate has settled when the windows agree within [`AGREEMENT`] of their mean, or when a limit is known and
//! the windows leave no doubt on which side of it their mean is: all of them are on that side, and the mean is farther
//! from the limit than Student's interval of [`CONFIDENCE`] reaches. A 99th percentile has settled when [`SAMPLES`]
//! messages completed and both halves of the measured time agree within [`LATENCY_AGREEMENT`], or when a limit is known
//! and the distribution-free bounds of the percentile ([`crate::stats::bounds`]) are on one side of it, in both halves.
//! A figure that moves towards its limit is open, even where its windows agree, if it crosses the limit when it goes on
//! moving until the run has lasted twice as long (`drifts`). A tenant that completes nothing has settled too. Where a
//! run has not settled, it goes on for longer ([`longer`]).
//!
//! Units: goodput in gigabits per second, other rates per second, latency in microseconds.
//! Limits: a change that is neither in the windows nor a steady trend of them stays unseen. Callers therefore wait first for every time constant that
//! they know: the posting at the start, the policy's, the period of control loops. `docs/internals/settling.md` has them.

use crate::stats::Histogram;
use crate::stats::bounds::ranks;
use crate::units::Duration;

/// Windows of a measured time: the fewest that show a trend and its end in either half.
pub const WINDOWS: usize = 4;
/// The largest difference between windows that agree, part of their mean.
pub const AGREEMENT: f64 = 0.05;
/// The largest difference between the 99th percentiles of two halves that agree, part of their mean.
pub const LATENCY_AGREEMENT: f64 = 0.10;
/// Completions from which the 99th percentile is used without bounds: ten are above it.
pub const SAMPLES: u64 = 1_000;
/// Confidence of a decision before windows agree or samples are enough, on one side.
pub const CONFIDENCE: f64 = 0.99;
/// The same of Student's distribution with `WINDOWS - 1` degrees of freedom, standard errors.
const STUDENT: f64 = 4.541;
/// The same for the slope of a line through the windows: 95 %, on one side, `WINDOWS - 2` degrees of freedom. Chance makes
/// one run in twenty go on for longer.
const STUDENT_SLOPE: f64 = 2.920;
/// Events in a window that differ by chance of where it begins.
const SLACK: f64 = 2.0;
/// A tenant that completes nothing for so many times its latency limit has a latency above it.
const SILENCE: f64 = 20.0;
/// Samples that a bound from below needs: fewer are all of one moment.
const FEW: u64 = 4;
/// The most by which one measured time is longer than the one before.
const LONGER_MOST: f64 = 8.0;

/// What one tenant did in one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Payload delivered, bytes.
    pub bytes: u64,
    /// Messages completed.
    pub messages: u64,
    /// Operations of an application completed.
    pub operations: u64,
    /// Control verbs completed.
    pub controls: u64,
}

/// Latency in the measured time, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latencies {
    /// Messages measured.
    pub samples: u64,
    /// 99th percentile; absent where none completed.
    pub p99: Option<f64>,
    /// At most the true percentile, with [`CONFIDENCE`]; absent where samples are too few or their values are not known.
    pub low: Option<f64>,
    /// At least the true percentile.
    pub high: Option<f64>,
    /// 99th percentile of either half.
    pub halves: [Option<f64>; 2],
}

impl Latencies {
    /// From the latencies of both halves, picoseconds.
    pub fn of(first: &Histogram, second: &Histogram) -> Self {
        let us = |ps: Option<u64>| ps.map(|ps| ps as f64 / 1e6);
        let mut both = first.clone();
        both.merge(second);
        let ranks = ranks(both.count(), 0.99, CONFIDENCE);
        Self {
            samples: both.count(),
            p99: us(both.quantile(0.99)),
            low: us(ranks.lower.and_then(|rank| both.at_rank(rank))),
            high: us(ranks.upper.and_then(|rank| both.at_rank(rank))),
            halves: [us(first.quantile(0.99)), us(second.quantile(0.99))],
        }
    }
}

/// What one tenant did in a measured time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Windows {
    /// Simulated time before the first window.
    pub before: Duration,
    /// Length of each window.
    pub length: Duration,
    /// One per window.
    pub counts: [Counts; WINDOWS],
    /// Latency of its messages.
    pub latencies: Latencies,
}

/// A figure that a limit or a reader cares about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Payload, gigabits per second; more is better.
    Goodput,
    /// Messages per second; more is better.
    Messages,
    /// Operations per second; more is better.
    Operations,
    /// Control verbs per second; more is better.
    Controls,
    /// 99th percentile of the latency, microseconds; less is better.
    P99,
}

/// A figure and the value that separates kept from broken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// The figure.
    pub figure: Figure,
    /// The least rate or the largest latency that keeps it.
    pub value: f64,
}

/// What has to be known of a tenant when its run ends.
#[derive(Clone, Debug, PartialEq)]
pub enum Demand {
    /// Nothing: the tenant is there for others.
    Nothing,
    /// Its rates.
    Rates,
    /// Its rates, unless one of them surely keeps its limit: above that it does not matter how far.
    RatesBelow(Vec<Limit>),
    /// Its rates and its 99th percentile latency.
    Latency,
    /// The side of each limit that its figure is on.
    Limits(Vec<Limit>),
}

/// The judgement on a tenant at the end of a measured time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Standing {
    /// Whether every figure of the demand is known.
    pub settled: bool,
    /// The windows, or the bounds of the percentile, are on both sides of a limit, or the figure is too near to the
    /// limit to decide its side.
    pub on_the_edge: bool,
    /// Part of the samples that a percentile needs which were there, 1 at most.
    pub sampled: f64,
}

/// Judges what one tenant did.
pub fn standing(demand: &Demand, windows: &Windows) -> Standing {
    let all = |figures: &[Figure]| Standing {
        settled: figures.iter().all(|&figure| agrees(figure, windows)),
        on_the_edge: false,
        sampled: 1.0,
    };
    let rates = [
        Figure::Goodput,
        Figure::Messages,
        Figure::Operations,
        Figure::Controls,
    ];
    match demand {
        Demand::Nothing => all(&[]),
        Demand::Rates => all(&rates),
        Demand::RatesBelow(limits) => {
            let standing = all(&rates);
            let mut sides = limits.iter().map(|limit| side(limit, windows));
            Standing {
                settled: standing.settled || sides.any(|side| side == Some(true)),
                ..standing
            }
        }
        Demand::Latency => {
            let rates = all(&rates);
            Standing {
                settled: rates.settled && agrees(Figure::P99, windows),
                sampled: sampled(windows),
                ..rates
            }
        }
        Demand::Limits(limits) => {
            let mut standing = Standing {
                settled: true,
                on_the_edge: false,
                sampled: 1.0,
            };
            let mut surely_broken = false;
            let mut plainly_broken = false;
            for limit in limits {
                let side = side(limit, windows);
                let stays = !drifts(limit, windows);
                let edge = is_on_the_edge(limit, windows);
                surely_broken |= side == Some(false) && stays;
                plainly_broken |= side == Some(false) && stays && !edge;
                standing.settled &= stays && (side.is_some() || agrees(limit.figure, windows));
                standing.on_the_edge |= edge;
                if limit.figure == Figure::P99 {
                    standing.sampled = sampled(windows);
                }
            }
            // One broken limit decides, for any values of the others.
            standing.settled |= surely_broken;
            standing.on_the_edge &= !plainly_broken;
            standing
        }
    }
}

/// How long to measure next, after `length` was too short for tenants in this state: twice as long, or as long as the
/// missing samples take.
pub fn longer(length: Duration, standings: &[Standing]) -> Duration {
    let open = standings.iter().filter(|standing| !standing.settled);
    let sampled = open.map(|standing| standing.sampled).fold(1.0, f64::min);
    // A tenth more than needed, since samples come unevenly.
    let times = (1.1 / sampled.max(f64::MIN_POSITIVE)).clamp(2.0, LONGER_MOST);
    Duration::from_ns_f64(length.as_us_f64() * 1e3 * times)
}

fn sampled(windows: &Windows) -> f64 {
    (windows.latencies.samples as f64 / SAMPLES as f64).min(1.0)
}

/// The values of a rate in the windows.
fn values(figure: Figure, windows: &Windows) -> [f64; WINDOWS] {
    let seconds = windows.length.as_secs_f64();
    windows
        .counts
        .map(|counts| count(figure, &counts) / seconds)
}

/// What is counted for a rate, in the unit of the rate times seconds.
fn count(figure: Figure, counts: &Counts) -> f64 {
    match figure {
        Figure::Goodput => counts.bytes as f64 * 8.0 / 1e9,
        Figure::Messages => counts.messages as f64,
        Figure::Operations => counts.operations as f64,
        Figure::Controls => counts.controls as f64,
        Figure::P99 => unreachable!("a latency is not counted"),
    }
}

/// Whether the windows, or the halves of a latency, agree.
fn agrees(figure: Figure, windows: &Windows) -> bool {
    if figure == Figure::P99 {
        let Latencies {
            samples, halves, ..
        } = windows.latencies;
        let [Some(first), Some(second)] = halves else {
            return false;
        };
        let mean = f64::midpoint(first, second);
        return samples >= SAMPLES && (first - second).abs() <= LATENCY_AGREEMENT * mean;
    }
    let counts = windows.counts.map(|counts| count(figure, &counts));
    let (least, most) = range(&counts);
    let slack = match figure {
        // Payload is counted by the packet.
        Figure::Goodput => 0.0,
        _ => SLACK,
    };
    most - least <= (AGREEMENT * mean(&counts)).max(slack)
}

/// On which side of `limit` the tenant surely is: kept, or broken.
fn side(limit: &Limit, windows: &Windows) -> Option<bool> {
    if limit.figure == Figure::P99 {
        return latency_side(limit.value, windows);
    }
    let values = values(limit.figure, windows);
    let mean = mean(&values);
    let squares = values.iter().map(|value| (value - mean).powi(2));
    let deviation = (squares.sum::<f64>() / (WINDOWS - 1) as f64).sqrt();
    let reach = STUDENT * deviation / (WINDOWS as f64).sqrt();
    let (least, most) = range(&values);
    match () {
        () if least >= limit.value && mean - reach >= limit.value => Some(true),
        () if most < limit.value && mean + reach < limit.value => Some(false),
        () => None,
    }
}

fn latency_side(limit: f64, windows: &Windows) -> Option<bool> {
    let of = &windows.latencies;
    if of.samples == 0 {
        let waited = windows.length.as_us_f64() * WINDOWS as f64;
        return (waited >= SILENCE * limit).then_some(false);
    }
    let above = |bound: Option<f64>| bound.is_some_and(|bound| bound > limit);
    let below = |bound: Option<f64>| bound.is_some_and(|bound| bound <= limit);
    match () {
        () if of.samples >= FEW && above(of.low) && of.halves.into_iter().all(above) => Some(false),
        () if below(of.high) && of.halves.into_iter().all(below) => Some(true),
        () => None,
    }
}

/// Whether the figure of `limit` moves steadily towards it, so that it crosses it when it goes on until the run has lasted
/// twice as long. The 99th percentile of a closed loop moves as its messages become fewer.
fn drifts(limit: &Limit, windows: &Windows) -> bool {
    let moves = |figure| {
        let values = values(figure, windows);
        (
            mean(&values),
            mean(&values) + trend(&values) * ahead(windows),
        )
    };
    if limit.figure != Figure::P99 {
        let (now, then) = moves(limit.figure);
        return (now >= limit.value) != (then >= limit.value);
    }
    let (now, then) = moves(Figure::Messages);
    let Some(p99) = windows.latencies.p99.filter(|_| now > 0.0) else {
        return false;
    };
    let later = match then > 0.0 {
        true => p99 * now / then,
        false => f64::INFINITY,
    };
    (p99 <= limit.value) != (later <= limit.value)
}

/// Windows from the middle of the measured time until the run has lasted twice as long.
fn ahead(windows: &Windows) -> f64 {
    let measured = WINDOWS as f64;
    let before = windows.before.as_ps() as f64 / windows.length.as_ps().max(1) as f64;
    measured / 2.0 + before + measured
}

/// Change of `values` from one window to the next by the line of least squares, as far as it is not chance.
fn trend(values: &[f64; WINDOWS]) -> f64 {
    let middle = (WINDOWS - 1) as f64 / 2.0;
    let places = values.iter().enumerate();
    let places = places.map(|(index, value)| (index as f64 - middle, value));
    let spread: f64 = places.clone().map(|(place, _)| place * place).sum();
    let slope = places
        .clone()
        .map(|(place, value)| place * value)
        .sum::<f64>()
        / spread;
    let mean = mean(values);
    let rest: f64 = places
        .map(|(place, value)| (value - mean - slope * place).powi(2))
        .sum();
    let error = (rest / (WINDOWS - 2) as f64 / spread).sqrt();
    slope.signum() * (slope.abs() - STUDENT_SLOPE * error).max(0.0)
}

/// Whether windows, or bounds, are on both sides of `limit`, or too near to it to decide.
fn is_on_the_edge(limit: &Limit, windows: &Windows) -> bool {
    if is_near(limit, windows) {
        return true;
    }
    if limit.figure == Figure::P99 {
        let of = &windows.latencies;
        let low = of.low.or(of.p99).unwrap_or(f64::INFINITY);
        let high = of.high.unwrap_or(f64::INFINITY);
        return low <= limit.value && limit.value < high;
    }
    let (least, most) = range(&values(limit.figure, windows));
    least < limit.value && limit.value <= most
}

/// Whether the figure is as near to `limit` as windows, or halves, that agree are to each other.
fn is_near(limit: &Limit, windows: &Windows) -> bool {
    let (value, agreement) = match limit.figure {
        Figure::P99 => (windows.latencies.p99, LATENCY_AGREEMENT),
        figure => (Some(mean(&values(figure, windows))), AGREEMENT),
    };
    value.is_some_and(|value| (value - limit.value).abs() <= agreement * limit.value)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn range(values: &[f64]) -> (f64, f64) {
    let fold = |(least, most): (f64, f64), &value: &f64| (least.min(value), most.max(value));
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), fold)
}

#[cfg(test)]
mod tests;

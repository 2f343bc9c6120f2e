//! Configurations measured in turns: medians, and ratios of runs that are next to each other in time.
//!
//! Problem: a machine that others use too is faster in one minute than in the next, by more than what is to be shown: one
//! percent of throughput, three of processor time.
//! Method: every round runs each configuration once; a ratio is taken within its round, so what was slow for both falls
//! out, and the median over rounds is the figure. Its least and most show what is left of the noise.
//! Throughput is held against plain `mq`, processor time against the Linux configuration whose median is least.
//! Units end the names; ratios are fractions. Limits: the least of several medians is a little lower than the true least,
//! which favours Linux. Source: the aims are ours; that Titan must cost neither: titan 7.1.

use super::NicResult;
use isolane_common_quantities::stats::summary::median;
use isolane_ethernet_scenario::config::{self, PLAIN};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// How far below plain `mq` throughput may be.
pub const THROUGHPUT_AIM: f64 = 0.01;
/// How far above the best Linux configuration processor time may be.
pub const CPU_AIM: f64 = 0.03;

/// A ratio over rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least of a round.
    pub least: f64,
    /// The most of a round.
    pub most: f64,
}

/// One configuration: medians over rounds, and ratios within them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PairedRow {
    /// Its name.
    pub config: String,
    /// Whether it is Linux with settings alone.
    pub is_linux: bool,
    /// Payload of all flows, gigabits per second.
    pub throughput_gbps: f64,
    /// Busy time of the sending host's processors, percent of one.
    pub cpu_percent: f64,
    /// 90th percentile of pings, microseconds; absent if a round had none.
    pub ping_p90_us: Option<f64>,
    /// Worst unfairness over a millisecond.
    pub nfm_1ms: f64,
    /// Worst unfairness over a second.
    pub nfm_1s: f64,
    /// Throughput over that of plain `mq`.
    pub throughput_of_plain: Spread,
    /// Processor time over that of the best Linux configuration; absent if that one used none that could be measured.
    pub cpu_of_best: Option<Spread>,
}

/// All configurations with one number of flows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PairedSummary {
    /// Bulk flows.
    pub flows: u32,
    /// Rounds in which all configurations ran.
    pub rounds: u32,
    /// The Linux configuration with the least processor time.
    pub best_linux: String,
    /// In the order in which they were named.
    pub rows: Vec<PairedRow>,
}

impl PairedRow {
    /// Whether throughput is within its aim.
    pub fn keeps_throughput(&self) -> bool {
        self.throughput_of_plain.median >= 1.0 - THROUGHPUT_AIM
    }

    /// Whether processor time is within its aim.
    pub fn keeps_cpu(&self) -> bool {
        self.cpu_of_best
            .is_some_and(|ratio| ratio.median <= 1.0 + CPU_AIM)
    }
}

/// The summaries of `results`, whose seed is the round, one for each number of flows. Rounds that lack a configuration do
/// not count; without plain `mq` or a whole round there is no summary.
///
/// ```
/// assert!(isolane_study_results::ethernet::paired::summaries(&[]).is_empty());
/// ```
pub fn summaries(results: &[NicResult]) -> Vec<PairedSummary> {
    let loads: BTreeSet<u32> = results.iter().map(|run| run.flows).collect();
    loads
        .into_iter()
        .filter_map(|flows| summary(flows, results))
        .collect()
}

fn summary(flows: u32, results: &[NicResult]) -> Option<PairedSummary> {
    let mut names: Vec<&str> = Vec::new();
    let mut by_round: BTreeMap<u64, BTreeMap<&str, &NicResult>> = BTreeMap::new();
    for run in results.iter().filter(|run| run.flows == flows) {
        if !names.contains(&run.config.as_str()) {
            names.push(&run.config);
        }
        by_round
            .entry(run.seed)
            .or_default()
            .insert(&run.config, run);
    }
    let rounds: Vec<&BTreeMap<&str, &NicResult>> = by_round
        .values()
        .filter(|round| round.len() == names.len())
        .collect();
    let of = |name: &str, value: fn(&NicResult) -> f64| -> Vec<f64> {
        rounds.iter().map(|round| value(round[name])).collect()
    };
    let middle = |name: &str, value: fn(&NicResult) -> f64| median(&of(name, value));
    let best = names
        .iter()
        .copied()
        .filter(|name| is_linux(name))
        .filter_map(|name| Some((middle(name, cpu)?, name)))
        .min_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, name)| name)?;
    let plain = names.iter().copied().find(|name| *name == PLAIN.name)?;
    let row = |name: &&str| {
        let pings: Option<Vec<f64>> = rounds
            .iter()
            .map(|round| round[*name].ping_us.map(|ping| ping.p90))
            .collect();
        Some(PairedRow {
            config: (*name).to_owned(),
            is_linux: is_linux(name),
            throughput_gbps: middle(name, throughput)?,
            cpu_percent: middle(name, cpu)?,
            ping_p90_us: pings.and_then(|pings| median(&pings)),
            nfm_1ms: middle(name, |run| run.nfm_1ms)?,
            nfm_1s: middle(name, |run| run.nfm_1s)?,
            throughput_of_plain: spread(&of(name, throughput), &of(plain, throughput))?,
            cpu_of_best: spread(&of(name, cpu), &of(best, cpu)),
        })
    };
    Some(PairedSummary {
        flows,
        rounds: rounds.len() as u32,
        best_linux: best.to_owned(),
        rows: names.iter().map(row).collect::<Option<_>>()?,
    })
}

fn is_linux(name: &str) -> bool {
    name == PLAIN.name || config::named(name).is_some_and(config::NicConfig::is_linux)
}

fn throughput(run: &NicResult) -> f64 {
    run.throughput_gbps
}

fn cpu(run: &NicResult) -> f64 {
    run.cpu_percent
}

/// Each of `values` over its partner; absent if a partner is 0.
fn spread(values: &[f64], partners: &[f64]) -> Option<Spread> {
    if partners.iter().any(|partner| *partner <= 0.0) {
        return None;
    }
    let pairs = values.iter().zip(partners);
    let ratios: Vec<f64> = pairs.map(|(value, partner)| value / partner).collect();
    Some(Spread {
        median: median(&ratios)?,
        least: ratios.iter().copied().min_by(f64::total_cmp)?,
        most: ratios.iter().copied().max_by(f64::total_cmp)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(config: &str, round: u64, throughput_gbps: f64, cpu_percent: f64) -> NicResult {
        NicResult {
            testbed: "soft-nic".to_owned(),
            throughput_gbps,
            cpu_percent,
            nfm_1ms: 1.0,
            nfm_1s: 0.5,
            ..NicResult::simulated(config, 12, round)
        }
    }

    /// A machine that slows down by half in its second round: medians of each would differ by that, ratios do not.
    #[test]
    fn what_slows_a_whole_round_down_falls_out() {
        let results = [
            run("mq", 1, 1.0, 40.0),
            run("isolane", 1, 0.995, 41.0),
            run("C6", 1, 1.0, 44.0),
            run("isolane", 2, 0.5, 82.0),
            run("mq", 2, 0.5, 80.0),
            run("C6", 2, 0.5, 88.0),
            run("mq", 3, 1.0, 40.0),
            run("isolane", 3, 0.98, 40.0),
            run("C6", 3, 1.0, 39.0),
            run("mq", 4, 9.0, 1.0),
        ];
        let summaries = summaries(&results);
        let [summary] = summaries.as_slice() else {
            panic!("one number of flows: {summaries:?}");
        };
        assert_eq!((summary.rounds, summary.best_linux.as_str()), (3, "mq"));
        let names: Vec<&str> = summary.rows.iter().map(|row| row.config.as_str()).collect();
        assert_eq!(names, ["mq", "isolane", "C6"]);
        let ours = &summary.rows[1];
        assert_eq!(
            ours.throughput_of_plain,
            Spread {
                median: 0.995,
                least: 0.98,
                most: 1.0
            }
        );
        assert_eq!(ours.cpu_of_best.map(|ratio| ratio.median), Some(1.025));
        assert!(ours.keeps_throughput() && ours.keeps_cpu() && !ours.is_linux);
        assert!(summary.rows[2].is_linux && !summary.rows[2].keeps_cpu());
    }

    #[test]
    fn nothing_is_held_against_what_did_not_run() {
        assert_eq!(summaries(&[run("isolane", 1, 1.0, 1.0)]), []);
        let no_time = [run("mq", 1, 1.0, 0.0), run("T1", 1, 0.9, 3.0)];
        let row = &summaries(&no_time)[0].rows[1];
        assert!(row.cpu_of_best.is_none() && !row.keeps_cpu() && !row.keeps_throughput());
    }
}

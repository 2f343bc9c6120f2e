//! Results of a study put together as its tables show them: one cell for each configuration and load, the mean of its runs.
//!
//! Units end the names. Method: runs of one configuration and as many flows (or hosts) are one cell; numbers are means, as
//! in the paper, and times of clusters are pooled. Cells are in the order of load, then of the catalogue.
//! Limits: runs of several testbeds belong into several summaries.
//! Source: titan 6 ("5 times ... the average").

use super::NicResult;
use isolane_ethernet_scenario::config::CATALOGUE;
use std::collections::{BTreeMap, BTreeSet};

/// How much a host, or a cluster of hosts, had to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Load {
    /// Long flows from one host to another.
    Flows(u32),
    /// Hosts that all send to each other.
    Hosts(u32),
}

/// One configuration under one load.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The load.
    pub load: Load,
    /// The configuration's name.
    pub config: String,
    /// Runs put together here.
    pub runs: u32,
    /// Bytes on the wire, gigabits per second.
    pub throughput_gbps: f64,
    /// Busy time of the sending host's processors, percent of one.
    pub cpu_percent: f64,
    /// 90th percentile of pings, microseconds; absent if no run had pings.
    pub ping_p90_us: Option<f64>,
    /// Worst unfairness over a millisecond.
    pub nfm_1ms: f64,
    /// Worst unfairness over a second.
    pub nfm_1s: f64,
    /// Completion times of all connections of a cluster, milliseconds, ascending; empty of flows that never end.
    pub completion_ms: Vec<f64>,
    /// Of each host of each run, the last completion less the first, milliseconds, ascending.
    pub spread_ms: Vec<f64>,
    /// What the testbed could not do of the configuration.
    pub not_done: BTreeSet<String>,
}

/// The load of `result`.
pub fn load(result: &NicResult) -> Load {
    match &result.completion_ms {
        Some(completions) => Load::Hosts(completions.spread_ms.len() as u32),
        None => Load::Flows(result.flows),
    }
}

/// The cells of `results`.
///
/// ```
/// assert!(isolane_study_results::ethernet::summary::cells(&[]).is_empty());
/// ```
pub fn cells(results: &[NicResult]) -> Vec<Cell> {
    let place = |name: &str| CATALOGUE.iter().position(|config| config.name == name);
    let mut groups: BTreeMap<(Load, usize, &str), Vec<&NicResult>> = BTreeMap::new();
    for result in results {
        let name = result.config.as_str();
        let key = (load(result), place(name).unwrap_or(usize::MAX), name);
        groups.entry(key).or_default().push(result);
    }
    groups
        .into_iter()
        .map(|((load, _, name), runs)| cell(load, name, &runs))
        .collect()
}

fn cell(load: Load, name: &str, runs: &[&NicResult]) -> Cell {
    let mean =
        |of: fn(&NicResult) -> f64| runs.iter().map(|run| of(run)).sum::<f64>() / runs.len() as f64;
    let pings: Vec<f64> = runs
        .iter()
        .filter_map(|run| run.ping_us.map(|ping| ping.p90))
        .collect();
    let pooled = |of: fn(&super::Completions) -> &Vec<f64>| {
        let all = runs.iter().filter_map(|run| run.completion_ms.as_ref());
        let mut all: Vec<f64> = all.flat_map(of).copied().collect();
        all.sort_by(f64::total_cmp);
        all
    };
    Cell {
        load,
        config: name.to_owned(),
        runs: runs.len() as u32,
        throughput_gbps: mean(|run| run.throughput_gbps),
        cpu_percent: mean(|run| run.cpu_percent),
        ping_p90_us: (!pings.is_empty()).then(|| pings.iter().sum::<f64>() / pings.len() as f64),
        nfm_1ms: mean(|run| run.nfm_1ms),
        nfm_1s: mean(|run| run.nfm_1s),
        completion_ms: pooled(|completions| &completions.all_ms),
        spread_ms: pooled(|completions| &completions.spread_ms),
        not_done: runs.iter().flat_map(|run| run.not_done.clone()).collect(),
    }
}

/// The loads of `cells`, ascending, each once.
pub fn loads(cells: &[Cell]) -> Vec<Load> {
    let loads: BTreeSet<Load> = cells.iter().map(|cell| cell.load).collect();
    loads.into_iter().collect()
}

impl Load {
    /// As a heading: `12 flows`.
    pub fn words(self) -> String {
        match self {
            Self::Flows(1) => "1 flow".to_owned(),
            Self::Flows(flows) => format!("{flows} flows"),
            Self::Hosts(hosts) => format!("{hosts} hosts, all to all"),
        }
    }
}

/// The nearest-rank quantile of `sorted`, ascending; absent of an empty list.
pub fn quantile(sorted: &[f64], rank: f64) -> Option<f64> {
    let place = (rank * sorted.len() as f64).ceil() as usize;
    sorted
        .get(place.max(1).min(sorted.len()).checked_sub(1)?)
        .copied()
}

/// Reasons why the testbed could not run a configuration, each with its configurations.
pub fn not_done(cells: &[Cell]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut lines: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for cell in cells {
        for line in &cell.not_done {
            lines.entry(line).or_default().insert(&cell.config);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::{Completions, Quantiles};
    use super::*;

    fn run(config: &str, flows: u32, seed: u64) -> NicResult {
        NicResult {
            throughput_gbps: 9.0 + seed as f64,
            cpu_percent: 50.0,
            ping_us: (seed > 1).then_some(Quantiles {
                count: 1,
                p50: 1.0,
                p90: seed as f64,
                p99: 3.0,
            }),
            nfm_1ms: 1.0,
            nfm_1s: 0.5 * seed as f64,
            not_done: vec![format!("seed {}", seed % 2)],
            ..NicResult::simulated(config, flows, seed)
        }
    }

    #[test]
    fn runs_of_a_cell_are_averaged_and_cells_are_in_the_catalogue_s_order() {
        let results = [
            run("isolane", 3, 1),
            run("C6", 12, 1),
            run("C6", 3, 1),
            run("C6", 3, 2),
            run("C6", 3, 3),
            run("mine", 3, 1),
        ];
        let cells = cells(&results);
        let names: Vec<(Load, &str, u32)> = cells
            .iter()
            .map(|cell| (cell.load, cell.config.as_str(), cell.runs))
            .collect();
        let want = [
            (Load::Flows(3), "C6", 3),
            (Load::Flows(3), "isolane", 1),
            (Load::Flows(3), "mine", 1),
            (Load::Flows(12), "C6", 1),
        ];
        assert_eq!(names, want);
        assert_eq!((cells[0].throughput_gbps, cells[0].nfm_1s), (11.0, 1.0));
        assert_eq!(
            (cells[0].ping_p90_us, cells[1].ping_p90_us),
            (Some(2.5), None)
        );
        assert_eq!(cells[0].not_done.len(), 2);
        assert_eq!(loads(&cells), [Load::Flows(3), Load::Flows(12)]);
    }

    #[test]
    fn clusters_pool_their_times() {
        let mut one = run("T1", 1, 1);
        one.completion_ms = Some(Completions {
            all_ms: vec![3.0, 1.0],
            spread_ms: vec![2.0, 1.0],
        });
        let mut two = one.clone();
        two.completion_ms = Some(Completions {
            all_ms: vec![2.0],
            spread_ms: vec![5.0, 0.5],
        });
        let cells = cells(&[one, two]);
        assert_eq!(cells[0].load, Load::Hosts(2));
        assert_eq!(cells[0].completion_ms, [1.0, 2.0, 3.0]);
        assert_eq!(cells[0].spread_ms, [0.5, 1.0, 2.0, 5.0]);
        assert_eq!(quantile(&cells[0].spread_ms, 0.5), Some(1.0));
        assert_eq!(
            (quantile(&[], 0.5), quantile(&[7.0], 0.0)),
            (None, Some(7.0))
        );
    }
}

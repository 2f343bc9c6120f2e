//! Tables of studies on a terminal, shaped like the paper's (titan, tables 3 and 5): one for each number of flows.

use crate::text::{Table, counted, fitted};
use isolane_common_quantities::stats::fairness::{WeightedBytes, jain_index};
use isolane_common_quantities::stats::summary::median;
use isolane_common_quantities::units::Bytes;
use isolane_ethernet_scenario::config::PLAIN;
use isolane_study_results::ethernet::NicResult;
use isolane_study_results::ethernet::paired::{
    CPU_AIM, PairedRow, PairedSummary, Spread, THROUGHPUT_AIM,
};
use isolane_study_results::ethernet::summary::{self, Cell, Load, cells, loads, quantile};
use std::fmt::Write;

/// All of `results`, which are of one testbed.
pub(crate) fn study(results: &[NicResult]) -> String {
    let cells = cells(results);
    let mut text = String::new();
    for load in loads(&cells) {
        let of_load: Vec<&Cell> = cells.iter().filter(|cell| cell.load == load).collect();
        let runs = of_load.iter().map(|cell| cell.runs).max().unwrap_or(1);
        let mean = match runs {
            1 => String::new(),
            runs => format!(", means of {runs} runs"),
        };
        let _ = writeln!(text, "{}{mean}", load.words());
        text.push_str(&match load {
            Load::Flows(_) => flows(&of_load),
            Load::Hosts(_) => hosts(&of_load),
        });
        text.push('\n');
    }
    text.push_str(&not_done(&cells));
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn flows(cells: &[&Cell]) -> String {
    let mut table = Table::new(
        "lrrrrr",
        &[
            "config",
            "TPut (Gb/s)",
            "CPU (%)",
            "ping p90 (ms)",
            "NFM (1 ms)",
            "NFM (1 s)",
        ],
    );
    for cell in cells {
        let ping = cell.ping_p90_us.map(|us| format!("{:.3}", us / 1e3));
        table.row(vec![
            cell.config.clone(),
            format!("{:.2}", cell.throughput_gbps),
            format!("{:.0}", cell.cpu_percent),
            ping.unwrap_or_else(|| "-".to_owned()),
            format!("{:.2}", cell.nfm_1ms),
            format!("{:.2}", cell.nfm_1s),
        ]);
    }
    fitted(&table)
}

fn hosts(cells: &[&Cell]) -> String {
    let mut table = Table::new(
        "lrrrrr",
        &[
            "config",
            "spread p50 (ms)",
            "spread p90 (ms)",
            "ends p50 (ms)",
            "ends p90 (ms)",
            "last (ms)",
        ],
    );
    let time = |values: &[f64], rank: f64| {
        quantile(values, rank).map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"))
    };
    for cell in cells {
        table.row(vec![
            cell.config.clone(),
            time(&cell.spread_ms, 0.5),
            time(&cell.spread_ms, 0.9),
            time(&cell.completion_ms, 0.5),
            time(&cell.completion_ms, 0.9),
            time(&cell.completion_ms, 1.0),
        ]);
    }
    fitted(&table)
}

/// Summaries of paired runs, and the runs they are of.
pub(crate) struct Paired<'a> {
    pub(crate) summaries: &'a [PairedSummary],
    pub(crate) runs: &'a [NicResult],
    /// Requested for each number of flows.
    pub(crate) rounds: u64,
}

/// How many rounds were measured; with the number that was requested where rounds are missing.
fn rounds_words(measured: u64, requested: u64) -> String {
    match measured == requested {
        true => counted(measured, "round"),
        false => format!("{measured} of {}", counted(requested, "round")),
    }
}

impl Paired<'_> {
    /// A table for each number of flows, with a sentence for each configuration that is not Linux alone.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for summary in self.summaries {
            let rounds = rounds_words(summary.rounds.into(), self.rounds);
            let _ = writeln!(
                text,
                "{}: medians of {rounds}, ratios within a round (least to most)",
                Load::Flows(summary.flows).words()
            );
            text.push_str(&paired_rows(summary));
            for row in summary.rows.iter().filter(|row| !row.is_linux) {
                text.push_str(&verdict(row, &summary.best_linux));
            }
            text.push('\n');
        }
        text.push_str(&not_done(&cells(self.runs)));
        text.truncate(text.trim_end().len());
        text.push('\n');
        text
    }
}

fn paired_rows(summary: &PairedSummary) -> String {
    let of_plain = format!("of {} (%)", PLAIN.name);
    let of_best = format!("of {} (%)", summary.best_linux);
    let headings = [
        "config",
        "TPut (Gb/s)",
        &of_plain,
        "CPU (%)",
        &of_best,
        "ping p90 (ms)",
        "NFM (1 ms)",
        "NFM (1 s)",
    ];
    let mut table = Table::new("lrrrrrrr", &headings);
    let nothing = || "-".to_owned();
    for row in &summary.rows {
        table.row(vec![
            row.config.clone(),
            format!("{:.3}", row.throughput_gbps),
            percent(row.throughput_of_plain),
            format!("{:.1}", row.cpu_percent),
            row.cpu_of_best.map_or_else(nothing, percent),
            row.ping_p90_us
                .map_or_else(nothing, |us| format!("{:.3}", us / 1e3)),
            format!("{:.2}", row.nfm_1ms),
            format!("{:.2}", row.nfm_1s),
        ]);
    }
    fitted(&table)
}

fn percent(ratio: Spread) -> String {
    format!(
        "{:.1} ({:.1} to {:.1})",
        100.0 * ratio.median,
        100.0 * ratio.least,
        100.0 * ratio.most
    )
}

fn verdict(row: &PairedRow, best: &str) -> String {
    let word = |kept| match kept {
        true => "within",
        false => "MISSED: not within",
    };
    let cpu = match row.cpu_of_best {
        Some(ratio) => format!(
            "processor time {:.1} % of {best}, {} {:.0} %",
            100.0 * ratio.median,
            word(row.keeps_cpu()),
            100.0 * CPU_AIM
        ),
        None => format!("processor time not compared, as {best} used none"),
    };
    format!(
        "  {}: throughput {:.1} % of {}, {} {:.0} %; {cpu}\n",
        row.config,
        100.0 * row.throughput_of_plain.median,
        PLAIN.name,
        word(row.keeps_throughput()),
        100.0 * THROUGHPUT_AIM
    )
}

/// Runs in a virtual machine: medians over rounds, of which `requested` were to be measured.
pub(crate) fn machine(results: &[NicResult], requested: u64) -> String {
    let headings = [
        "config",
        "TPut (Mb/s)",
        "CPU (%)",
        "Jain",
        "NFM (1 ms)",
        "NFM (1 s)",
        "ping p50 (ms)",
        "ping p90 (ms)",
        "ring (KB)",
    ];
    let mut table = Table::new("lrrrrrrrr", &headings);
    let mut names: Vec<&str> = Vec::new();
    for run in results {
        if !names.contains(&run.config.as_str()) {
            names.push(&run.config);
        }
    }
    for name in &names {
        // A run without queue assignment says nothing about it.
        let is_whole = |run: &NicResult| {
            !run.not_done
                .iter()
                .any(|line| line.starts_with("queue assignment:"))
        };
        let runs = || {
            results
                .iter()
                .filter(|run| run.config == *name && is_whole(run))
        };
        let middle = |digits: usize, value: &dyn Fn(&NicResult) -> Option<f64>| {
            let values: Vec<f64> = runs().filter_map(value).collect();
            median(&values).map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        table.row(vec![
            (*name).to_owned(),
            middle(1, &|run| Some(run.throughput_gbps * 1e3)),
            middle(0, &|run| Some(run.cpu_percent)),
            middle(3, &jain),
            middle(2, &|run| Some(run.nfm_1ms)),
            middle(2, &|run| Some(run.nfm_1s)),
            middle(1, &|run| run.ping_us.map(|ping| ping.p50 / 1e3)),
            middle(1, &|run| run.ping_us.map(|ping| ping.p90 / 1e3)),
            middle(0, &|run| {
                run.queue_bytes_max.first().map(|bytes| *bytes as f64 / 1e3)
            }),
        ]);
    }
    let rounds = rounds_words((results.len() / names.len().max(1)) as u64, requested);
    let flows = results.first().map_or(0, |run| run.flows);
    let mut text = format!("{flows} flows, medians of {rounds}\n{}", fitted(&table));
    let slow = results
        .iter()
        .filter(|run| !run.not_done.is_empty())
        .count();
    if slow > 0 {
        let _ = writeln!(
            text,
            "{slow} of {} runs did not fill the line or kept no queue assignment:",
            results.len()
        );
        for run in results.iter().filter(|run| !run.not_done.is_empty()) {
            let reasons = run.not_done.join("; ");
            let _ = writeln!(text, "  {}, round {}: {reasons}", run.config, run.seed);
        }
    }
    text
}

/// The Jain index of the flows of a run.
fn jain(run: &NicResult) -> Option<f64> {
    let flow = |gbps: &f64| WeightedBytes {
        sent: Bytes::new((gbps * run.measured_s * 1e9 / 8.0) as u64),
        weight: 1,
    };
    jain_index(&run.flow_gbps.iter().map(flow).collect::<Vec<_>>())
}

/// Reasons why the testbed could not run a configuration, each with its configurations.
fn not_done(cells: &[Cell]) -> String {
    let lines = summary::not_done(cells);
    if lines.is_empty() {
        return String::new();
    }
    let mut text = String::from("not done:\n");
    for (line, configs) in lines {
        let configs: Vec<&str> = configs.into_iter().collect();
        let _ = writeln!(text, "  {} ({})", line, configs.join(", "));
    }
    text
}

/// One run with its flows and queues, below its row of the study's table.
pub(crate) fn one(result: &NicResult) -> String {
    let mut text = study(std::slice::from_ref(result));
    if result.completion_ms.is_none() && !result.flow_gbps.is_empty() {
        let rates: Vec<String> = result
            .flow_gbps
            .iter()
            .map(|rate| format!("{rate:.3}"))
            .collect();
        let _ = writeln!(text, "\nflows (Gb/s): {}", wrapped(&rates));
    }
    if !result.queue_bytes.is_empty() {
        let all: u64 = result.queue_bytes.iter().sum();
        let parts: Vec<String> = result
            .queue_bytes
            .iter()
            .map(|bytes| format!("{:.1}", 100.0 * *bytes as f64 / all.max(1) as f64))
            .collect();
        let _ = writeln!(text, "bytes by queue (%): {}", wrapped(&parts));
    }
    let counts: Vec<String> = result
        .counts
        .iter()
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    if !counts.is_empty() {
        let _ = writeln!(text, "counts: {}", counts.join(", "));
    }
    text
}

/// Sixteen to a line.
fn wrapped(words: &[String]) -> String {
    let lines: Vec<String> = words.chunks(16).map(|line| line.join(" ")).collect();
    lines.join("\n  ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_study_results::ethernet::{Completions, Quantiles};
    use std::collections::BTreeMap;

    fn run(config: &str, flows: u32, seed: u64) -> NicResult {
        NicResult {
            throughput_gbps: 9.41,
            cpu_percent: 40.0 + seed as f64,
            ping_us: Some(Quantiles {
                count: 9,
                p50: 100.0,
                p90: 1_040.0,
                p99: 2_000.0,
            }),
            nfm_1ms: 1.92,
            nfm_1s: 0.5 * seed as f64,
            flow_gbps: vec![1.5; flows as usize],
            queue_bytes: vec![300, 100],
            queue_bytes_max: vec![9, 9],
            counts: BTreeMap::from([("moves".to_owned(), 4), ("packets".to_owned(), 77)]),
            not_done: vec!["no interrupts".to_owned()],
            ..NicResult::simulated(config, flows, seed)
        }
    }

    #[test]
    fn a_study_is_a_table_for_each_load() {
        let mut cluster = run("T1", 30, 1);
        cluster.completion_ms = Some(Completions {
            all_ms: vec![100.0, 120.0],
            spread_ms: vec![20.0, 10.0],
        });
        let text = study(&[
            run("T1", 12, 1),
            run("C6", 12, 1),
            run("C6", 12, 2),
            run("C6", 3, 1),
            cluster,
        ]);
        let want = "\
3 flows
  config  TPut (Gb/s)  CPU (%)  ping p90 (ms)  NFM (1 ms)  NFM (1 s)
  C6             9.41       41          1.040        1.92       0.50

12 flows, means of 2 runs
  config  TPut (Gb/s)  CPU (%)  ping p90 (ms)  NFM (1 ms)  NFM (1 s)
  C6             9.41       42          1.040        1.92       0.75
  T1             9.41       41          1.040        1.92       0.50

2 hosts, all to all
  config  spread p50 (ms)  spread p90 (ms)  ends p50 (ms)  ends p90 (ms)  last (ms)
  T1                 10.0             20.0          100.0          120.0      120.0

not done:
  no interrupts (C6, T1)
";
        assert_eq!(text, want);
    }

    #[test]
    fn paired_runs_are_a_table_with_a_sentence_for_what_is_ours() {
        let mut runs = Vec::new();
        for round in 1..=3 {
            for (config, cpu) in [("mq", 40.0), ("C6", 44.0), ("isolane", 41.0)] {
                let mut run = run(config, 12, round);
                run.cpu_percent = cpu;
                run.not_done.clear();
                runs.push(run);
            }
        }
        let summaries = isolane_study_results::ethernet::paired::summaries(&runs);
        let want = "\
12 flows: medians of 3 rounds, ratios within a round (least to most)
  config   TPut (Gb/s)               of mq (%)  CPU (%)               of mq (%)  ping p90 (ms)  NFM (1 ms)  NFM (1 s)
  mq             9.410  100.0 (100.0 to 100.0)     40.0  100.0 (100.0 to 100.0)          1.040        1.92       1.00
  C6             9.410  100.0 (100.0 to 100.0)     44.0  110.0 (110.0 to 110.0)          1.040        1.92       1.00
  isolane        9.410  100.0 (100.0 to 100.0)     41.0  102.5 (102.5 to 102.5)          1.040        1.92       1.00
  isolane: throughput 100.0 % of mq, within 1 %; processor time 102.5 % of mq, within 3 %
";
        let text = |rounds| {
            Paired {
                summaries: &summaries,
                runs: &runs,
                rounds,
            }
            .text()
        };
        assert_eq!(text(3), want);
        assert_eq!(text(7), want.replace("of 3 rounds", "of 3 of 7 rounds"));
    }

    #[test]
    fn a_machine_with_missing_rounds_says_so() {
        let first = |requested| {
            let runs = [run("fq", 12, 1), run("cake", 12, 1)];
            let text = machine(&runs, requested);
            text.lines().next().map(str::to_owned)
        };
        assert_eq!(first(1).as_deref(), Some("12 flows, medians of 1 round"));
        assert_eq!(
            first(7).as_deref(),
            Some("12 flows, medians of 1 of 7 rounds")
        );
    }

    #[test]
    fn one_run_shows_its_flows_queues_and_counts() {
        let mut result = run("C6", 2, 1);
        result.not_done.clear();
        let want = "\
2 flows
  config  TPut (Gb/s)  CPU (%)  ping p90 (ms)  NFM (1 ms)  NFM (1 s)
  C6             9.41       41          1.040        1.92       0.50

flows (Gb/s): 1.500 1.500
bytes by queue (%): 75.0 25.0
counts: moves 4, packets 77
";
        assert_eq!(one(&result), want);
    }
}

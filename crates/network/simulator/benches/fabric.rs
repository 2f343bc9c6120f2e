//! Whole networks on one core: wall time, packets and events per second, peak memory; medians of three runs.
//!
//! Each run is a process of its own, so that its peak memory is its own (Linux only). Beside our figures are those of
//! public simulators on one core of the same kind of machine; the replicas compare two runs on two threads with one.
//! `fabric run CASE [CALLS]` runs one case once, for profilers.
use isolane_network_scenario::model::FabricScenario;
use isolane_network_scenario::parse;
use isolane_network_simulator::run::{Observers, run};
use isolane_study_results::network::FabricResult;
use std::process::Command;
use std::time::Instant as Clock;

const RUNS: usize = 3;

struct Case {
    name: &'static str,
    text: &'static str,
    /// What a public simulator needs for the same: its name, seconds, megabytes.
    peer: (&'static str, f64, Option<f64>),
}

const CASES: [Case; 2] = [
    Case {
        name: "all-to-all-33",
        text: ALL_TO_ALL,
        peer: ("the public Aequitas simulator", 12.2, Some(328.0)),
    },
    Case {
        name: "permutation-1024",
        text: PERMUTATION,
        peer: ("csg-htsim", 12.4, None),
    },
];

/// 33 hosts, three classes, 32 KB calls in bursts, Swift and admission: 3.5 million data packets. As in the public
/// simulator, packets do not queue at the host that sends them.
const ALL_TO_ALL: &str = include_str!("data/all-to-all.toml");

/// Every host of a fat tree sends 2 MB to another: DCQCN, marks, pauses, 4 KB packets.
const PERMUTATION: &str = include_str!("data/permutation.toml");

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["run", name, rest @ ..] => {
            let case = CASES.iter().find(|case| case.name == *name);
            let case = case.expect("a case's name");
            let calls = rest.first().map(|calls| calls.parse().expect("a number"));
            once(case, calls);
        }
        _ => {
            for case in &CASES {
                compare(case);
            }
            replicas(&CASES[0]);
        }
    }
}

fn scenario(case: &Case, seed: u64, calls: Option<u64>) -> FabricScenario {
    let mut scenario = parse(case.text, "bench.toml").expect("the benchmark's scenario is valid");
    scenario.seed = seed;
    scenario.calls = calls.or(scenario.calls);
    scenario
}

fn finished(scenario: &FabricScenario) -> FabricResult {
    let outcome = run(scenario, Observers::default()).expect("the benchmark's scenario runs");
    let unfinished: u64 = outcome
        .result
        .classes
        .iter()
        .map(|class| class.unfinished)
        .sum();
    assert_eq!(unfinished, 0, "all calls end");
    outcome.result
}

/// Prints wall seconds, data packets, packets, events, simulated milliseconds, peak megabytes.
fn once(case: &Case, calls: Option<u64>) {
    let scenario = scenario(case, 1, calls);
    let start = Clock::now();
    let result = finished(&scenario);
    let wall = start.elapsed().as_secs_f64();
    let packets = &result.packets;
    println!(
        "{wall} {} {} {} {} {}",
        packets.data,
        packets.sent,
        packets.events,
        result.simulated_s * 1e3,
        peak_megabytes()
    );
}

fn peak_megabytes() -> f64 {
    let status =
        std::fs::read_to_string("/proc/self/status").expect("Linux has the status of the process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.map_or(f64::NAN, |kib| {
        kib.parse::<f64>().expect("a number") * 1024.0 / 1e6
    })
}

fn compare(case: &Case) {
    let program = std::env::current_exe().expect("a program has a path");
    let mut runs: Vec<Vec<f64>> = (0..RUNS)
        .map(|_| {
            let child = Command::new(&program).args(["run", case.name]).output();
            let child = child.expect("the benchmark starts itself");
            assert!(child.status.success(), "{}", case.name);
            let line = String::from_utf8(child.stdout).expect("numbers");
            let numbers = line.split_whitespace().map(str::parse);
            numbers.collect::<Result<_, _>>().expect("numbers")
        })
        .collect();
    runs.sort_by(|a, b| a[0].total_cmp(&b[0]));
    let [wall, data, sent, events, simulated_ms, megabytes] = runs[RUNS / 2][..] else {
        unreachable!("six numbers");
    };
    println!(
        "fabric/{} {wall:.3} s: {:.2} million data packets ({:.2} million with answers), {:.2} million data packets/s, \
         {:.1} million events/s, {:.4} s per simulated ms, {megabytes:.0} MB peak (median of {RUNS})",
        case.name,
        data / 1e6,
        sent / 1e6,
        data / 1e6 / wall,
        events / 1e6 / wall,
        wall / simulated_ms,
    );
    let (peer, seconds, memory) = case.peer;
    let memory = memory.map_or(String::new(), |memory| {
        format!(", {:.1} times less memory", memory / megabytes)
    });
    println!(
        "fabric/{} {:.1} times as fast as {peer} ({seconds} s){memory}",
        case.name,
        seconds / wall
    );
}

/// Two replicas on two threads against one on one.
fn replicas(case: &Case) {
    let scenarios = [1, 2].map(|seed| scenario(case, seed, None));
    let mut ratios: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Clock::now();
            finished(&scenarios[0]);
            let one = start.elapsed().as_secs_f64();
            let start = Clock::now();
            std::thread::scope(|scope| {
                for scenario in &scenarios {
                    scope.spawn(move || finished(scenario));
                }
            });
            2.0 * one / start.elapsed().as_secs_f64()
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    println!(
        "fabric/two-replicas {:.2} times the throughput of one (median of {RUNS})",
        ratios[RUNS / 2]
    );
}

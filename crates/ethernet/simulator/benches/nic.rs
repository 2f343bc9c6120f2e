//! How fast the simulator is: simulated against real time, packets a second of real time; medians of three runs.
//!
//! The large case is 24 hosts all to all at 10 Gb/s over two switches, as in titan 7.2. `nic CASE` runs one once, for
//! profilers.
use isolane_common_quantities::units::{Bytes, Duration};
use isolane_ethernet_scenario::config::named;
use isolane_ethernet_scenario::model::{NicStudy, NicTraffic};
use isolane_ethernet_scenario::profile::NicProfile;
use std::time::Instant;

const RUNS: usize = 3;

fn cases() -> Vec<(&'static str, NicStudy)> {
    let config = |name| *named(name).expect("a configuration");
    let flows = |name, flows| {
        let mut study = NicStudy::of_paper(config(name), flows, 1);
        study.warmup = Duration::from_ps(0);
        study.duration = Duration::from_secs(1);
        study
    };
    let cluster = |name| {
        let mut study = flows(name, 1);
        study.traffic = NicTraffic::AllToAll {
            hosts: 24,
            second_switch: 20,
            bytes: Bytes::new(10_000_000),
        };
        study
    };
    vec![
        ("flows-12-C6", flows("C6", 12)),
        ("flows-48-T3", flows("T3", 48)),
        ("cluster-24-C6", cluster("C6")),
        ("cluster-24-T1", cluster("T1")),
    ]
}

fn main() {
    let wanted = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'));
    let profile = NicProfile::of_paper();
    let runs = if wanted.is_some() { 1 } else { RUNS };
    println!(
        "{:15} {:>10} {:>9} {:>16} {:>14}",
        "case", "simulated", "real", "real/simulated", "packets/s"
    );
    for (name, study) in cases() {
        if wanted.as_deref().is_some_and(|wanted| wanted != name) {
            continue;
        }
        let mut times = Vec::new();
        let mut last = None;
        for _ in 0..runs {
            let from = Instant::now();
            last = Some(isolane_ethernet_simulator::run(&study, &profile));
            times.push(from.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        let (time, result) = (times[runs / 2], last.expect("it ran"));
        println!(
            "{name:15} {:8.3} s {time:7.2} s {:16.2} {:14.0}",
            result.measured_s,
            time / result.measured_s,
            result.counts["packets"] as f64 / time
        );
    }
}

//! `make vopr`: runs seed after seed for a time, and stops at the first that breaks an invariant.
//!
//! Usage: `vopr SECONDS [FIRST-SEED]`, or `vopr --seed SEED` for one run.
#![forbid(unsafe_code)]

use isolane_tools_models::{daemon, vopr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |text: &str| text.parse::<u64>().ok();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (seconds, first) = match words[..] {
        ["--seed", seed] => (Some(0), number(seed)),
        [seconds] => (number(seconds), Some(1)),
        [seconds, first] => (number(seconds), number(first)),
        _ => (None, None),
    };
    let (Some(seconds), Some(first)) = (seconds, first) else {
        eprintln!("usage: vopr SECONDS [FIRST-SEED] | vopr --seed SEED");
        return ExitCode::from(2);
    };
    let until = Instant::now() + Duration::from_secs(seconds);
    let (mut quota, mut node) = (vopr::Report::default(), daemon::Report::default());
    let mut seed = first;
    loop {
        let server = vopr::run(seed, vopr::Defect::None).map_err(|broken| broken.to_string());
        let ran = server.and_then(|server| {
            quota.add(&server);
            daemon::run(seed, daemon::Defect::None).map_err(|broken| broken.to_string())
        });
        match ran {
            Ok(report) => node.add(&report),
            Err(broken) => {
                println!(
                    "{broken}\nrun it alone: cargo run -p isolane-tools-models --bin vopr -- --seed {seed}"
                );
                return ExitCode::FAILURE;
            }
        }
        seed += 1;
        if Instant::now() >= until {
            break;
        }
    }
    println!(
        "quota server: {} seeds, {} events, {} kills, {} crashes of the machine, {} answers with leases; every invariant held",
        seed - first,
        quota.events,
        quota.kills,
        quota.crashes,
        quota.leases
    );
    println!(
        "daemon: {} seeds, {} steps, {} sessions, {} kills, {} stops, {} readings of active leases; every invariant held",
        seed - first,
        node.steps,
        node.sessions,
        node.kills,
        node.stops,
        node.leases
    );
    ExitCode::SUCCESS
}

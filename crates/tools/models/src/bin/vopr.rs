//! `make vopr`: runs seed after seed for a time, and stops at the first that breaks an invariant.
//!
//! Usage: `vopr SECONDS [FIRST-SEED]`, or `vopr --seed SEED` for one run.
#![forbid(unsafe_code)]

use isolane_tools_models::{daemon, guardian, memory, peers, vopr};
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
    let mut sums = Sums::default();
    let mut seed = first;
    loop {
        if let Err(broken) = sums.run(seed) {
            println!(
                "{broken}\nrun it alone: cargo run -p isolane-tools-models --bin vopr -- --seed {seed}"
            );
            return ExitCode::FAILURE;
        }
        seed += 1;
        if Instant::now() >= until {
            break;
        }
    }
    sums.print(seed - first);
    ExitCode::SUCCESS
}

/// What happened in all runs.
#[derive(Default)]
struct Sums {
    quota: vopr::Report,
    node: daemon::Report,
    memory: memory::Report,
    guardian: guardian::Report,
    peers: peers::Report,
}

impl Sums {
    /// Runs every service with one seed. The error names the first broken invariant.
    fn run(&mut self, seed: u64) -> Result<(), String> {
        let quota = vopr::run(seed, vopr::Defect::None);
        self.quota.add(&quota.map_err(|broken| broken.to_string())?);
        let node = daemon::run(seed, daemon::Defect::None);
        self.node.add(&node.map_err(|broken| broken.to_string())?);
        let memory = memory::run(seed, memory::Defect::None);
        self.memory
            .add(&memory.map_err(|broken| broken.to_string())?);
        let guardian = guardian::run(seed, guardian::Defect::None);
        self.guardian
            .add(&guardian.map_err(|broken| broken.to_string())?);
        let peers = peers::run(seed, peers::Defect::None);
        self.peers.add(&peers.map_err(|broken| broken.to_string())?);
        Ok(())
    }

    fn print(&self, seeds: u64) {
        let Self {
            quota,
            node,
            memory,
            guardian,
            peers,
        } = self;
        println!(
            "quota server: {seeds} seeds, {} events, {} kills, {} crashes of the machine, {} answers with leases; every invariant held",
            quota.events, quota.kills, quota.crashes, quota.leases
        );
        println!(
            "daemon: {seeds} seeds, {} steps, {} sessions, {} kills, {} stops, {} readings of active leases, {} enforcers, {} leases under a limit; every invariant held",
            node.steps,
            node.sessions,
            node.kills,
            node.stops,
            node.leases,
            node.enforcers,
            node.limited
        );
        println!(
            "memory service: {seeds} seeds, {} events, {} admissions, {} kills, {} readings of limits; every invariant held",
            memory.events, memory.admitted, memory.kills, memory.limited
        );
        println!(
            "guardian: {seeds} seeds, {} steps, {} listeners, {} rejected, {} calls, {} kills of enforcers with {} calls; every invariant held",
            guardian.steps,
            guardian.kept,
            guardian.rejected,
            guardian.calls,
            guardian.kills,
            guardian.orphans
        );
        println!(
            "peers: {seeds} seeds, {} events, {} links, {} of them broke, {} kills, {} reports; every invariant held",
            peers.events, peers.links, peers.breaks, peers.kills, peers.reports
        );
    }
}

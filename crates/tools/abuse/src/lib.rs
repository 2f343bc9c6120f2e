//! Attacks of peers on a listening socket and random kills, written once and run against every service.
//!
//! Problem: each service has its own listener, so a hole that was closed in one may be open in another. Method: the
//! service runs in a process of its own ([`Running`]). Each [`Attack`] runs against its socket, and
//! meanwhile an honest client makes requests one after the other ([`check`]). Every honest request must be answered,
//! and the service's open descriptors must stay in their bound. After an attack the service must have closed its
//! connections; at the end its memory must have stayed in its bound. Units: bytes, connections. Limits: an attacker is
//! one local process; it does not fill disks or set clocks. Every attack is bounded in count and time. [`kills`] has the
//! kills.

#![forbid(unsafe_code)]

mod attacks;
pub mod kills;
pub mod process;
mod socket;
pub mod stopped;

pub use attacks::{Attack, Target};
pub use process::Running;
pub use socket::Place;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The fewest honest requests during an attack.
const REQUESTS: usize = 20;
/// How long a service may take to close the connections of an attack that has ended.
const CLOSING: Duration = Duration::from_secs(30);
/// Time for which a service without free descriptors is observed, and the most that it may compute meanwhile.
const OBSERVED: (Duration, Duration) = (Duration::from_secs(2), Duration::from_millis(200));
/// Open descriptors that a service may have in addition to those before an attack: of its latest honest requests.
const MORE_DESCRIPTORS: usize = 4;

/// Runs every attack against the service, with an honest client beside it. `honest` makes one request over a new
/// connection. The error is what the service did wrong: an honest request has no answer, the service ends, has more
/// connections than it may, keeps connections that ended, takes more memory than [`Target::memory_max`], or computes
/// without pause when it can open no descriptor.
pub fn check(running: &Running, target: &Target, honest: &Honest<'_>) -> Result<(), String> {
    honest().map_err(|reason| format!("without an attack: {reason}"))?;
    let memory = running.peak_memory();
    let descriptors = running.descriptors() + MORE_DESCRIPTORS;
    for attack in Attack::all_on(&target.place) {
        check_one(attack, running, target, honest)
            .and_then(|()| closed(running, descriptors))
            .map_err(|reason| format!("{attack:?}: {reason}"))?;
    }
    without_descriptors(running, target)?;
    honest().map_err(|reason| format!("after it could open no descriptor: {reason}"))?;
    let grown = running.peak_memory().saturating_sub(memory);
    match grown <= target.memory_max {
        true => Ok(()),
        false => Err(format!(
            "its memory grew by {grown} B, {} B are the most",
            target.memory_max
        )),
    }
}

/// One honest request; the reason if it has no answer.
pub type Honest<'a> = dyn Fn() -> Result<(), String> + 'a;

/// Runs one attack with an honest client beside it. The error is what the service did wrong meanwhile.
pub fn check_one(
    attack: Attack,
    running: &Running,
    target: &Target,
    honest: &Honest<'_>,
) -> Result<(), String> {
    let (began, over) = (Barrier::new(2), AtomicBool::new(false));
    let open = std::thread::scope(|scope| {
        let attacker = scope.spawn(|| attack.run(target, &began, &over));
        began.wait();
        let mut requests = 0;
        let mut open = 0;
        while requests < REQUESTS || !attacker.is_finished() {
            if let Err(reason) = honest() {
                over.store(true, Ordering::Relaxed);
                return Err(format!("an honest client has no answer: {reason}"));
            }
            open = open.max(running.descriptors());
            requests += 1;
            over.store(requests >= REQUESTS, Ordering::Relaxed);
        }
        Ok(open)
    })?;
    match open <= target.descriptors_max {
        true => Ok(()),
        false => Err(format!(
            "{open} open descriptors, {} are the most",
            target.descriptors_max
        )),
    }
}

/// Waits until the connections of an attack that has ended are closed.
fn closed(running: &Running, most: usize) -> Result<(), String> {
    let began = Instant::now();
    loop {
        if !running.lives() {
            return Err("the service ended".to_owned());
        }
        let open = running.descriptors();
        if open <= most {
            return Ok(());
        }
        if began.elapsed() > CLOSING {
            return Err(format!(
                "{open} open descriptors after the attack, {most} are the most"
            ));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Newcomers while the service can open no descriptor: it must wait, not end and not compute without pause.
fn without_descriptors(running: &Running, target: &Target) -> Result<(), String> {
    let limit = running.forbid_descriptors();
    let newcomers: Vec<_> = (0..16)
        .filter_map(|_| target.place.connect().ok())
        .collect();
    let before = running.processor_time();
    std::thread::sleep(OBSERVED.0);
    if !running.lives() {
        return Err("it ended when it could open no descriptor".to_owned());
    }
    let used = running.processor_time().saturating_sub(before);
    running.allow_descriptors(limit);
    drop(newcomers);
    match used <= OBSERVED.1 {
        true => Ok(()),
        false => Err(format!(
            "when it can open no descriptor, it computes {used:?} in {:?}",
            OBSERVED.0
        )),
    }
}

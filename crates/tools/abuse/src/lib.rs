//! Attacks of peers on a listening socket, shortages and random kills, written once and run against every service.
//!
//! Problem: each service has its own listener, so a hole that was closed in one may be open in another. Method: the
//! service runs in a process of its own ([`Running`]). Each [`Attack`] runs against its socket, and
//! meanwhile an honest client makes requests one after the other ([`check`]). Every honest request must be answered,
//! and the service's open descriptors must stay in their bound. After an attack the service must have closed its
//! connections; at the end its memory must have stayed in its bound. Units: bytes, connections. Limits: an attacker is
//! one local process. Every attack is bounded in count and time. [`shortage`] has full disks and clocks that are set,
//! [`kills`] the kills.

#![forbid(unsafe_code)]

mod attacks;
pub mod kills;
pub mod process;
pub mod shortage;
mod socket;
pub mod stopped;

pub use attacks::{Attack, Target};
pub use process::Running;
pub use socket::Place;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// The fewest honest requests during an attack.
const REQUESTS: usize = 20;
/// How long a service may take to close the connections of an attack that has ended.
const CLOSING: Duration = Duration::from_secs(30);
/// Time for which a service without free descriptors is observed, and the most that it may compute meanwhile.
const OBSERVED: (Duration, Duration) = (Duration::from_secs(2), Duration::from_millis(200));
/// The most for which one of its threads may compute or wait for a processor meanwhile. On a busy machine a thread that
/// never pauses computes little.
const RUNNABLE: Duration = Duration::from_secs(1);
/// Connections to a service that gets no descriptor or memory.
const NEWCOMERS: usize = 16;
/// What counts against a limit of memory without being used, bytes: the listener's spare, and stacks, also those that the C
/// library keeps of threads that have ended. Measured at the port for peers: 109 stacks of 256 KiB for 93 threads, while the
/// used memory had grown by 14 MB.
const UNUSED_BYTES: u64 = 40 << 20;
/// Open descriptors that a service may have in addition to those before an attack: of its latest honest requests.
pub const MORE_DESCRIPTORS: usize = 4;

/// Runs every attack against the service, with an honest client beside it. `honest` makes one request over a new
/// connection. The error is what the service did wrong: an honest request has no answer, the service ends, has more
/// connections than it may, keeps connections that ended, takes more memory than [`Target::memory_max`], or computes
/// without pause when it gets no descriptor or no memory.
pub fn check(running: &Running, target: &Target, honest: &Honest<'_>) -> Result<(), String> {
    honest().map_err(|reason| format!("without an attack: {reason}"))?;
    let memory = running.peak_memory();
    let descriptors = running.descriptors() + MORE_DESCRIPTORS;
    let limit = running.limit_memory(target.memory_max + UNUSED_BYTES);
    let alone = Attack::all_on(&target.place).map(|attack| vec![attack]);
    for attacks in alone.chain([vec![Attack::NeverReads, Attack::Churn]]) {
        check_some(&attacks, running, target, honest)
            .and_then(|()| closed(running, descriptors))
            .map_err(|reason| format!("{attacks:?}: {reason}"))?;
    }
    running.allow(limit);
    for lack in Lack::ALL {
        // A thread that starts as memory is refused hangs with its connection. A service may keep its latest ones.
        let _ = closed(running, descriptors - MORE_DESCRIPTORS);
        lack.check(running, target)?;
        let answered = closed(running, descriptors).and_then(|()| honest());
        answered.map_err(|reason| format!("after it got no {}: {reason}", lack.name()))?;
    }
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

/// Runs attacks at the same time with an honest client beside them. The error is what the service did wrong meanwhile.
pub fn check_some(
    attacks: &[Attack],
    running: &Running,
    target: &Target,
    honest: &Honest<'_>,
) -> Result<(), String> {
    let over = AtomicBool::new(false);
    let (requests, open) = std::thread::scope(|scope| {
        let (begins, began) = channel();
        let over = &over;
        let attackers: Vec<_> = attacks
            .iter()
            .map(|attack| {
                let begins = begins.clone();
                scope.spawn(move || attack.run(target, begins, over))
            })
            .collect();
        drop(begins);
        for _ in attacks {
            let begun = began.recv();
            begun.map_err(|_| "an attack could not begin".to_owned())?;
        }
        let mut requests = 0;
        let mut open = 0;
        while requests < REQUESTS || !attackers.iter().all(ScopedJoinHandle::is_finished) {
            if let Err(reason) = honest() {
                over.store(true, Ordering::Relaxed);
                return Err(format!("an honest client has no answer: {reason}"));
            }
            open = open.max(running.descriptors());
            requests += 1;
            over.store(requests >= REQUESTS, Ordering::Relaxed);
        }
        Ok::<_, String>((requests, open))
    })?;
    println!("{attacks:?}: {requests} of {requests} honest requests answered");
    match open <= target.descriptors_max {
        true => Ok(()),
        false => Err(format!(
            "{open} open descriptors, {} are the most",
            target.descriptors_max
        )),
    }
}

/// Waits until the connections of an attack that has ended are closed, down to so many descriptors. The error is that the
/// service ended, or keeps more.
pub fn closed(running: &Running, most: usize) -> Result<(), String> {
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

/// What the kernel refuses to the service.
#[derive(Clone, Copy, Debug)]
pub enum Lack {
    /// Descriptors.
    Descriptors,
    /// Memory.
    Memory,
}

impl Lack {
    const ALL: [Self; 2] = [Self::Descriptors, Self::Memory];

    fn name(self) -> &'static str {
        match self {
            Self::Descriptors => "descriptor",
            Self::Memory => "memory",
        }
    }

    /// Newcomers meanwhile: the service must wait, not end and not compute without pause.
    pub fn check(self, running: &Running, target: &Target) -> Result<(), String> {
        let limit = match self {
            Self::Descriptors => running.forbid_descriptors(),
            Self::Memory => running.limit_memory(0),
        };
        let newcomers: Vec<_> = (0..NEWCOMERS)
            .filter_map(|_| target.place.connect().ok())
            .collect();
        for newcomer in &newcomers {
            newcomer.push(&target.request);
        }
        let (before, threads) = (running.processor_time(), running.runnable());
        std::thread::sleep(OBSERVED.0);
        let name = self.name();
        if !running.lives() {
            return Err(format!("it ended when it got no {name}"));
        }
        let used = running.processor_time().saturating_sub(before);
        let of_thread = |(id, time): (u32, Duration)| {
            time.saturating_sub(threads.get(&id).copied().unwrap_or_default())
        };
        let runnable = running.runnable().into_iter().map(of_thread).max();
        let runnable = runnable.unwrap_or_default();
        running.allow(limit);
        match used <= OBSERVED.1 && runnable <= RUNNABLE {
            true => Ok(()),
            false => Err(format!(
                "when it gets no {name}, it computes {used:?} in {:?}, and one thread wants a processor for {runnable:?}",
                OBSERVED.0
            )),
        }
    }
}

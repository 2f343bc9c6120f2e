//! Random kills of a program: the next one starts, nothing is lost, and nothing is left limited.
//!
//! Problem: a kill may come between any two steps of a program. Method: the program is a process of its own
//! ([`Running`]). A round lets it serve for a random time beside a client, kills it with SIGKILL, and starts it again;
//! in one round of four the next one is killed while it starts. After each kill the clients must get an end, no process
//! may be left, and the case's own checks must hold, before and after the next start ([`Case`]). A seed chooses all
//! times. Limits: the scheduler also decides where in the program a kill hits, so a seed does not repeat a failure
//! exactly.

use crate::process::{Running, started_for};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Environment variables for the number of kills and the seed.
const COUNT: &str = "ISOLANE_KILLS";
const SEED: &str = "ISOLANE_SEED";
/// How long a client may wait for the end of its connection, and what a dead program has started for its own end.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two looks at a state.
pub const PAUSE: Duration = Duration::from_millis(1);
/// Kills between two lines about them.
const LINE_EVERY: u64 = 500;

/// A client of one program: gets what the program printed about where it listens, and returns when the program does not
/// answer any more.
pub type Client = Arc<dyn Fn(&str) + Send + Sync>;

/// A program under kills, and what must hold.
pub struct Case<'a> {
    /// The role of its process.
    pub role: &'a str,
    /// Longest time for which it serves until it is killed.
    pub serves: Duration,
    /// Its client.
    pub client: Client,
    /// Whether processes that it started may outlive it.
    pub leaves_processes: bool,
    /// What must hold while no program runs; the error is what does not hold.
    pub dead: &'a dyn Fn() -> Result<(), String>,
    /// What must hold when the next one listens.
    pub alive: &'a dyn Fn(&Running) -> Result<(), String>,
}

impl std::fmt::Debug for Case<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Case")
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

/// How many kills, and when.
#[derive(Debug)]
pub struct Kills {
    program: &'static str,
    seed: u64,
    chance: u64,
    count: u64,
    done: u64,
    starting: u64,
    longest_start: Duration,
    patience: Duration,
}

impl Kills {
    /// `few` kills of `program` in a test run; the environment has more for `make kills`. Prints how to run them again.
    pub fn of(program: &'static str, few: u64) -> Self {
        let number = |name: &str| {
            let text = std::env::var(name).ok()?;
            let number = text.parse();
            Some(number.unwrap_or_else(|_| panic!("{name}={text}: must be a whole number")))
        };
        let since = std::time::SystemTime::UNIX_EPOCH
            .elapsed()
            .unwrap_or_default();
        let count = number(COUNT).unwrap_or(few);
        let seed = number(SEED).unwrap_or(since.as_nanos() as u64);
        println!("{count} kills; again: {SEED}={seed} make kills KILLS={count} PROGRAM={program}");
        Self::new(program, count, seed, PATIENCE)
    }

    /// `count` kills of a program with a planted defect. What does not come within `patience` counts as found.
    pub fn planted(count: u64, patience: Duration) -> Self {
        Self::new("planted", count, 1, patience)
    }

    fn new(program: &'static str, count: u64, seed: u64, patience: Duration) -> Self {
        Self {
            program,
            seed,
            chance: seed,
            count,
            done: 0,
            starting: 0,
            longest_start: Duration::ZERO,
            patience,
        }
    }

    /// How long a state may take to come.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// A random number below `bound` (SplitMix64).
    pub fn below(&mut self, bound: u64) -> u64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.chance ^ (self.chance >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }

    /// Sleeps for a random time below `longest`.
    pub fn sleep(&mut self, longest: Duration) {
        let micros = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
        std::thread::sleep(Duration::from_micros(self.below(micros)));
    }

    /// As many rounds as kills, each of which kills one program by itself. The error is what did not hold.
    pub fn each(
        mut self,
        mut round: impl FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        while self.done < self.count {
            round(&mut self).map_err(|reason| self.failed(&reason))?;
            self.count_one();
        }
        println!("{} kills of {}", self.done, self.program);
        Ok(())
    }

    fn failed(&self, reason: &str) -> String {
        format!(
            "{} after {} kills, seed {}: {reason}",
            self.program, self.done, self.seed
        )
    }

    fn kill(&mut self, running: Running) {
        running.kill();
        self.count_one();
    }

    fn count_one(&mut self) {
        self.done += 1;
        if self.done.is_multiple_of(LINE_EVERY) {
            println!("{} of {} kills of {}", self.done, self.count, self.program);
        }
    }

    /// Starts the program, and waits until it listens.
    fn start(&mut self, case: &Case<'_>, folder: &Path) -> Result<Running, String> {
        let began = Instant::now();
        let mut running = Running::spawn(case.role, folder);
        running
            .listens()
            .map_err(|reason| format!("the next start fails: {reason}"))?;
        self.longest_start = self.longest_start.max(began.elapsed());
        Ok(running)
    }

    /// Runs all rounds, and returns the program that runs at the end. The error is what did not hold.
    pub fn run(mut self, case: &Case<'_>, folder: &Path) -> Result<Running, String> {
        let mut running = self.start(case, folder)?;
        (case.alive)(&running)?;
        while self.done < self.count {
            running = self
                .round(running, case, folder)
                .map_err(|reason| self.failed(&reason))?;
        }
        println!(
            "{} kills of {}, {} of them while it started; the longest start took {:.3} s",
            self.done,
            self.program,
            self.starting,
            self.longest_start.as_secs_f64()
        );
        Ok(running)
    }

    fn round(
        &mut self,
        running: Running,
        case: &Case<'_>,
        folder: &Path,
    ) -> Result<Running, String> {
        let (over, ended) = channel();
        let (client, said) = (Arc::clone(&case.client), running.said().to_owned());
        std::thread::spawn(move || {
            client(&said);
            // The round may have failed meanwhile.
            let _ = over.send(());
        });
        self.sleep(case.serves);
        self.kill(running);
        // A client that panicked has ended too; what it found is in its message.
        match ended.recv_timeout(self.patience) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!(
                    "a client still waits {:?} after the kill",
                    self.patience
                ));
            }
            Err(RecvTimeoutError::Disconnected) => return Err("a client failed".to_owned()),
        }
        self.is_clean(case, folder)?;
        (case.dead)()?;
        while self.done < self.count && self.below(4) == 0 {
            let starting = Running::spawn(case.role, folder);
            self.sleep(self.longest_start);
            self.kill(starting);
            self.starting += 1;
            self.is_clean(case, folder)?;
        }
        let running = self.start(case, folder)?;
        (case.alive)(&running)?;
        Ok(running)
    }

    /// What the killed program had started ends.
    fn is_clean(&self, case: &Case<'_>, folder: &Path) -> Result<(), String> {
        if case.leaves_processes {
            return Ok(());
        }
        until(self.patience, "processes of a killed program ended", || {
            started_for(folder).is_empty()
        })
        .map_err(|reason| format!("{reason}: {:?}", started_for(folder)))
    }
}

/// Waits until `holds`. The error says that `what` did not become true in time.
pub fn until(
    patience: Duration,
    what: &str,
    mut holds: impl FnMut() -> bool,
) -> Result<(), String> {
    let began = Instant::now();
    while !holds() {
        if began.elapsed() > patience {
            return Err(format!("not within {patience:?}: {what}"));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

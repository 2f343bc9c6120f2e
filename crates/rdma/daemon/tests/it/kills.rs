//! Random SIGKILLs of the daemon and of applications that run the real shim: no leak, no stall.
//!
//! Problem: the lab's proof `kills` does this with real queue pairs of Soft-RoCE, about seven times a minute. This
//! test's provider has no hardware, so ten thousand kills take minutes: `make kills`. Method: one daemon (this program
//! with a role, one device of 200 Mb/s), two survivors of weights 1 and 2, and one victim per round. After a random
//! time the victim, the daemon, or both are killed. Applications write through the shim to their own memory and check
//! every byte. Processes that outlive a killed daemon end at the test's request. Every 25 rounds the daemon's objects
//! are counted. The last daemon's device is slow, and the survivors' shares of it follow their weights. Limits: both ends of a queue pair are in one process; the lab tests dead peers. Times are printed; only
//! a generous bound fails the test.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]

use crate::application;
use crate::support::{self, PATIENCE, wait_for};
use isolane_common_quantities::units::BitRate;
use isolaned::governor::Governor;
use isolaned::server::{Server, now_ns};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// Environment variable that sets a child's role and directory.
const ROLE: &str = "ISOLANED_KILLS_ROLE";
const FOLDER: &str = "ISOLANED_KILLS_FOLDER";
/// Environment variables for the number of kills and the seed.
const COUNT: &str = "ISOLANE_KILLS";
const SEED: &str = "ISOLANE_SEED";

/// A longer stall is counted and printed.
const LONG_STALL: Duration = Duration::from_secs(2);
/// The rate of the device, Mb/s.
const RATE_MBPS: u64 = 200;
/// The same for the last daemon: so low that weights divide the rate, not the processors, on a busy machine too.
const LAST_RATE_MBPS: u64 = 20;
/// Roles of the two kinds of daemon.
const DAEMON: &str = "daemon";
const LAST_DAEMON: &str = "last-daemon";
/// Rounds between two counts of the daemon's objects. More frequent counts would kill the daemon before survivors find
/// it: they retry once a second.
const COUNT_EVERY: u64 = 25;

/// Not a test: the body of a process with a role.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let folder = PathBuf::from(std::env::var_os(FOLDER).expect("set beside the role"));
    match role.as_str() {
        DAEMON => run_daemon(&folder, RATE_MBPS),
        LAST_DAEMON => run_daemon(&folder, LAST_RATE_MBPS),
        _ => application::run(&role, &folder),
    }
}

fn run_daemon(folder: &Path, rate_mbps: u64) {
    let mut config = support::config();
    // The applications send their own names and weights.
    config.trust_names = true;
    config.socket = socket(folder);
    config.devices[0].rate = Some(BitRate::from_bps(rate_mbps * 1_000_000));
    let rates = vec![BitRate::from_gbps(10)];
    let governor = Governor::new(config, rates, now_ns()).expect("sensible options");
    let never = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("a counter");
    let stop = never.try_clone().expect("a descriptor");
    Server::new(governor, stop)
        .expect("a socket")
        .run()
        .expect("until it is killed");
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("run/isolaned.sock")
}

/// A process of this test; killed on drop.
struct Process {
    child: Child,
    /// The role ends when this is closed.
    input: Option<ChildStdin>,
}

impl Process {
    fn start(role: &str, folder: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "kills::role", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(FOLDER, folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("a process");
        let input = child.stdin.take();
        Self { child, input }
    }

    fn kill(&mut self) {
        let pid = Pid::from_child(&self.child);
        // It may have ended by itself; `wait` reports that.
        let _ = kill_process(pid, Signal::KILL);
        let _ = self.child.wait();
    }

    /// Ends an application and checks its exit status.
    fn finish(&mut self, what: &str) {
        self.input = None;
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                assert!(status.success(), "{what}: {status}");
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{what} does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Fails if the process has ended.
    fn must_live(&mut self, what: &str) {
        let status = self.child.try_wait().expect("a child");
        assert!(status.is_none(), "{what} has ended: {status:?}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts a daemon and waits until it listens.
fn start_daemon(role: &str, folder: &Path) -> Process {
    let mut daemon = Process::start(role, folder);
    wait_for("a daemon", || {
        daemon.must_live("the daemon");
        support::listens(&socket(folder))
    });
    daemon
}

/// Descriptors of the daemon's process and regions of sessions.
fn holdings(daemon: &Process) -> (usize, usize) {
    let at = PathBuf::from(format!("/proc/{}", daemon.child.id()));
    let files = std::fs::read_dir(at.join("fd")).expect("proc").count();
    let maps = std::fs::read_to_string(at.join("maps")).expect("proc");
    (files, maps.matches("memfd:").count())
}

/// SplitMix64: the seed alone determines each round.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect(name))
}

/// Two applications that run all the time, and their stall times.
struct Survivors {
    processes: [Process; 2],
    names: [String; 2],
    folder: PathBuf,
    longest: Duration,
    long: u64,
}

impl Survivors {
    fn start(folder: &Path) -> Self {
        let names = [
            "survivor1:1:bandwidth".to_owned(),
            "survivor2:2:bandwidth".to_owned(),
        ];
        Self {
            processes: names.each_ref().map(|name| Process::start(name, folder)),
            names,
            folder: folder.to_owned(),
            longest: Duration::ZERO,
            long: 0,
        }
    }

    fn moved(&self) -> [u64; 2] {
        self.names
            .each_ref()
            .map(|name| application::bytes_moved(&self.folder, name))
    }

    /// Waits until both have moved bytes since `before`.
    fn must_move(&mut self, round: u64) {
        let before = self.moved();
        let began = Instant::now();
        while self
            .moved()
            .iter()
            .zip(before)
            .any(|(now, before)| *now <= before)
        {
            for process in &mut self.processes {
                process.must_live("a survivor");
            }
            let stood = began.elapsed();
            assert!(
                stood < PATIENCE,
                "round {round}: a survivor makes no progress for {stood:?}"
            );
            std::thread::sleep(Duration::from_micros(200));
        }
        let stood = began.elapsed();
        self.longest = self.longest.max(stood);
        self.long += u64::from(stood > LONG_STALL);
    }

    /// Bytes that each moved in `time`.
    fn rates(&self, time: Duration) -> [u64; 2] {
        let before = self.moved();
        std::thread::sleep(time);
        let after = self.moved();
        [after[0] - before[0], after[1] - before[1]]
    }
}

#[test]
fn killed_at_random_nothing_leaks_and_survivors_go_on() {
    if std::env::var_os(ROLE).is_some() {
        return;
    }
    let count = number(COUNT, 60);
    let seed = number(SEED, u64::from(std::process::id()) ^ now_ns());
    println!(
        "{count} kills; again: {SEED}={seed} {COUNT}={count} cargo test -p isolaned --test it killed"
    );
    let mut chance = Chance(seed);
    let folder = tempfile::tempdir().expect("a directory");
    let mut daemon = start_daemon(DAEMON, folder.path());
    let mut survivors = Survivors::start(folder.path());
    survivors.must_move(0);
    wait_for("both sessions", || holdings(&daemon).1 == 2);
    let files_at_rest = holdings(&daemon).0;
    let (mut kills, mut daemons, mut round) = (0, 0, 0);
    while kills < count {
        round += 1;
        let class = ["auto", "bandwidth", "throughput", "latency"][chance.below(4) as usize];
        let role = format!("victim{}:1:{class}", round % 4);
        let mut victim = Process::start(&role, folder.path());
        std::thread::sleep(Duration::from_micros(chance.below(30_000)));
        let (kill_daemon, kill_victim) = match chance.below(10) {
            0 => (true, false),
            1 => (true, true),
            _ => (false, true),
        };
        if kill_daemon {
            daemon.kill();
            daemons += 1;
            kills += 1;
        }
        if kill_victim {
            victim.kill();
            kills += 1;
        }
        survivors.must_move(round);
        if !kill_victim {
            victim.finish(&format!("round {round}: {role} without a daemon"));
        }
        if kill_daemon {
            daemon = start_daemon(DAEMON, folder.path());
        }
        // The victims' sessions have ended; the survivors have sessions in the old or the new daemon.
        if round % COUNT_EVERY == 0 || kills >= count {
            wait_for(
                &format!("two sessions in round {round}, seed {seed}"),
                || holdings(&daemon) == (files_at_rest, 2),
            );
            println!("{kills} of {count}");
        }
    }
    daemon.kill();
    daemon = start_daemon(LAST_DAEMON, folder.path());
    wait_for("both sessions with the last daemon", || {
        holdings(&daemon).1 == 2
    });
    // What the first leases allow at once does not follow the weights.
    survivors.must_move(round + 1);
    let [light, heavy] = survivors.rates(Duration::from_secs(5));
    println!(
        "{kills} kills ({daemons} of the daemon) in {round} rounds: survivors made no progress for {:.3} s at most, {} times \
         for more than 2 s; then {:.1} and {:.1} MB in 5 s, weights 1 and 2",
        survivors.longest.as_secs_f64(),
        survivors.long,
        light as f64 / 1e6,
        heavy as f64 / 1e6
    );
    assert!(
        heavy > light,
        "the heavier survivor gets more: {light} and {heavy} bytes"
    );
    for (process, name) in survivors.processes.iter_mut().zip(&survivors.names) {
        process.finish(name);
    }
    wait_for("no session", || holdings(&daemon).1 == 0);
}

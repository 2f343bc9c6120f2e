//! The full audit: every victim, alone and under every attacker, two policies, three seeds, as a user runs it.
//!
//! Prints seconds, how busy the cores were, and the largest resident memory (Linux, from /proc, sampled). The
//! catalogue has 21 victims of Husky and four latency victims; all of them run. One run takes about a minute on
//! two cores, so it is not repeated; `isolane audit` under `time` gives more samples.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time between two looks at the process.
const LOOK: Duration = Duration::from_millis(50);
/// Clock ticks of /proc/PID/stat per second on Linux.
const TICKS_PER_S: f64 = 100.0;

fn main() {
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench-audit");
    let start = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_isolane"))
        .args([
            "audit",
            "--policies",
            "none,justitia",
            "--seeds",
            "3",
            "--json",
        ])
        .arg("--report")
        .arg(&out)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary of this package exists");
    let (mut peak_kib, mut cpu_s) = (0, 0.0f64);
    let status = loop {
        (peak_kib, cpu_s) = (
            peak_kib.max(resident_peak_kib(&child).unwrap_or(0)),
            cpu_s.max(cpu_seconds(&child).unwrap_or(0.0)),
        );
        if let Some(status) = child.try_wait().expect("the child can be waited for") {
            break status;
        }
        std::thread::sleep(LOOK);
    };
    let seconds = start.elapsed().as_secs_f64();
    assert!(status.success(), "the audit failed: {status}");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "audit/full {seconds:.1} s, {:.2} of {cores} cores busy, {:.0} MB at most",
        cpu_s / seconds,
        peak_kib as f64 / 1e3 * 1.024,
    );
}

fn resident_peak_kib(child: &Child) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn cpu_seconds(child: &Child) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?;
    // The name, in parentheses, may hold spaces; user and system time are fields 14 and 15 of the line.
    let after_name = stat.rsplit(')').next()?;
    let mut fields = after_name.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_S)
}

//! Keeps a limit on the near memory of one control group with a backend of choice, and prints how that goes.
//!
//!     mem_enforce BACKEND CGROUP NEAR_BYTES SECONDS [NEAR_BYTES SECONDS]...
//!
//! One line of JSON per change: elapsed_s, limit_bytes, near_bytes, far_bytes, state, why. A limit below the one before it ends
//! two seconds after it has been reached, others run their time. For the virtual-machine lab. Exit: 0 every limit was reached, 1 one was not, 2 wrong usage, 3 the machine cannot.

use isolane_common_quantities::units::{Bytes, Instant};
use isolane_memory_policy::mercury::{AppId, TIERS_MAX};
use isolane_memory_service::backend::{self, BackendKind, Progress};
use isolane_memory_service::cgroup::Cgroup;
use isolane_memory_service::host::MemoryHost;
use std::process::ExitCode;
use std::time::{Duration, Instant as Clock};

const APP: AppId = AppId(1);
const LOOK: Duration = Duration::from_millis(50);
const HOLD: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |word: &String| word.parse::<u64>().ok();
    let (Some(kind), Some(cgroup)) = (
        words
            .first()
            .and_then(|word| word.parse::<BackendKind>().ok()),
        words.get(1).and_then(|word| Cgroup::new(word).ok()),
    ) else {
        eprintln!("usage: mem_enforce BACKEND CGROUP NEAR_BYTES SECONDS [NEAR_BYTES SECONDS]...");
        return ExitCode::from(2);
    };
    let limits: Vec<u64> = words[2..].iter().filter_map(number).collect();
    match keep(kind, &cgroup, &limits) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("mem_enforce: {error}");
            ExitCode::from(3)
        }
    }
}

/// Whether every limit was reached in its time.
fn keep(
    kind: BackendKind,
    cgroup: &Cgroup,
    limits: &[u64],
) -> Result<bool, isolane_memory_service::MemError> {
    let host = MemoryHost::machine();
    let mut backend = backend::open(&host, kind)?;
    backend.adopt(APP, cgroup, &[])?;
    let start = Clock::now();
    let (mut all, mut before) = (true, None);
    for pair in limits.chunks_exact(2) {
        let mut tiers = [None; TIERS_MAX];
        tiers[0] = Some(Bytes::new(pair[0]));
        backend.apply(APP, &tiers)?;
        let begin = Clock::now();
        let mut reached = None;
        let lowered = before.is_none_or(|before| pair[0] < before);
        before = Some(pair[0]);
        while begin.elapsed() < Duration::from_secs(pair[1]) {
            if lowered && reached.is_some_and(|at: Clock| at.elapsed() > HOLD) {
                break;
            }
            std::thread::sleep(LOOK);
            let now =
                Instant::from_ps(u64::try_from(start.elapsed().as_nanos()).unwrap_or(0) * 1000);
            for progress in backend.poll(now) {
                let (state, held, why) = match &progress {
                    Progress::Moving { held, .. } => ("moving", *held, String::new()),
                    Progress::Reached { held, .. } => ("reached", *held, String::new()),
                    Progress::Stuck { held, why, .. } => ("stuck", *held, why.to_string()),
                    Progress::Gone { .. } => ("gone", [Bytes::ZERO; TIERS_MAX], String::new()),
                    Progress::Released { .. } => continue,
                    Progress::AdoptFailed { why, .. } | Progress::ReleaseFailed { why, .. } => {
                        ("refused", [Bytes::ZERO; TIERS_MAX], why.to_string())
                    }
                };
                println!(
                    "{{\"elapsed_s\":{:.2},\"limit_bytes\":{},\"near_bytes\":{},\"far_bytes\":{},\"state\":\"{state}\",\"why\":{why:?}}}",
                    begin.elapsed().as_secs_f64(),
                    pair[0],
                    held[0].get(),
                    held[1].get(),
                );
                if state == "reached" {
                    reached.get_or_insert_with(Clock::now);
                }
            }
        }
        all &= reached.is_some();
    }
    backend.release(APP)?;
    Ok(all)
}

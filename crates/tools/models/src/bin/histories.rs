//! `make histories`: plays history after history over a real etcd, and stops at the first that breaks the promise.
//!
//! Usage: `histories COUNT [FIRST-SEED [AT-ONCE]]`, `histories --planted NAME COUNT` for a planted defect. The other
//! words are roles of child processes.
#![forbid(unsafe_code)]

use isolane_tools_models::histories::{
    Clocks, Defect, Etcd, Place, Report, RunError, print_wall, run, serve,
};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Histories at the same time: they mostly wait.
const AT_ONCE: u64 = 6;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().ok().filter(|number| *number > 0);
    match words[..] {
        ["--wall"] => finish(print_wall().map_err(|error| error.to_string())),
        ["--serve", file, defect] => match Defect::named(defect) {
            Some(defect) => finish(serve(Path::new(file), defect)),
            None => usage(),
        },
        ["--planted", defect, count] => match (Defect::named(defect), number(count)) {
            (Some(defect), Some(count)) => many(Batch {
                count,
                first: 1,
                at_once: AT_ONCE,
                defect,
            }),
            _ => usage(),
        },
        [count, ref rest @ ..] if rest.len() <= 2 => {
            let first = rest.first().map_or(Some(1), |text| number(text));
            let at_once = rest.get(1).map_or(Some(AT_ONCE), |text| number(text));
            match (number(count), first, at_once) {
                (Some(count), Some(first), Some(at_once)) => many(Batch {
                    count,
                    first,
                    at_once,
                    defect: Defect::None,
                }),
                _ => usage(),
            }
        }
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: histories COUNT [FIRST-SEED [AT-ONCE]] | histories --planted DEFECT COUNT");
    ExitCode::from(2)
}

fn finish(done: Result<(), String>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("histories: {reason}");
            ExitCode::FAILURE
        }
    }
}

struct Batch {
    count: u64,
    first: u64,
    at_once: u64,
    defect: Defect,
}

fn many(batch: Batch) -> ExitCode {
    let program = std::env::current_exe().expect("a path of this program");
    let clocks = match Clocks::find(&program) {
        Ok(clocks) => clocks,
        Err(error) => return finish(Err(format!("cannot try the clocks: {error}"))),
    };
    println!(
        "clocks of servers: {}; wall clock: {}",
        if clocks.offsets {
            "another offset at each start"
        } else {
            "not changed (no time namespaces here)"
        },
        if clocks.jumps {
            "jumps"
        } else {
            "not changed (Debian: libfaketime)"
        },
    );
    let place = Place {
        program: &program,
        clocks,
    };
    let next = AtomicU64::new(0);
    let found = Mutex::new(Found::default());
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..batch.at_once.min(batch.count) {
            scope.spawn(|| work(&batch, &place, &next, &found));
        }
    });
    let found = found.into_inner().expect("no thread panicked");
    let Found {
        histories,
        report,
        error,
        ..
    } = found;
    println!(
        "quota server over etcd: {histories} histories in {} s, {} servers started, {} kills, {} stops, {} faults of links, {} jumps of \
         the wall clock, {} uses of leases, {} acknowledged changes of terms",
        begun.elapsed().as_secs(),
        report.starts,
        report.kills,
        report.stops,
        report.partitions,
        report.jumps,
        report.leases,
        report.changes
    );
    match error {
        None => {
            println!("every history keeps the promise");
            ExitCode::SUCCESS
        }
        Some(error) => finish(Err(error)),
    }
}

#[derive(Default)]
struct Found {
    histories: u64,
    report: Report,
    error: Option<String>,
}

/// Plays histories until none is left or one is broken.
fn work(batch: &Batch, place: &Place<'_>, next: &AtomicU64, found: &Mutex<Found>) {
    let fail = |error: String| {
        next.store(batch.count, Ordering::Relaxed);
        found
            .lock()
            .expect("no thread panicked")
            .error
            .get_or_insert(error);
    };
    let mut etcd = match Etcd::start() {
        Ok(Some(etcd)) => etcd,
        Ok(None) => return fail("no etcd on this machine (Debian: etcd-server)".to_owned()),
        Err(error) => return fail(format!("etcd does not start: {error}")),
    };
    loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        if index >= batch.count {
            return;
        }
        match run(batch.first + index, batch.defect, &mut etcd, place) {
            Ok(report) => {
                let mut found = found.lock().expect("no thread panicked");
                found.histories += 1;
                found.report.add(&report);
            }
            Err(error @ RunError::System(_)) => return fail(error.to_string()),
            Err(RunError::Broken {
                seed,
                what,
                history,
            }) => {
                return fail(format!("seed {seed}: {what}\n{history:#?}"));
            }
        }
    }
}

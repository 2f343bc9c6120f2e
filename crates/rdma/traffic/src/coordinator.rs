//! Runs the workers of one tenant, over any kind of stream.
//!
//! Method: a thread per worker reads its lines into a queue. Each step of the coordinator has a time limit, so a worker
//! that hangs or ends early ends the run with an error that names the worker. Time limits: preparing [`PREPARE`],
//! connecting [`CONNECT`], and [`SILENCE`] without a progress message.

use crate::worker::{
    Failure, FailureKind, FromWorker, LineError, Lines, Plan, PlanError, Prepared, Progress,
    Report, ToWorker, Window, connect, write_line,
};
use isolane_rdma_scenario::model::Host;
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Time limit of preparing: registering much memory takes seconds.
pub const PREPARE: Duration = Duration::from_secs(60);
/// Time limit of connecting: thousands of queue pairs take seconds.
pub const CONNECT: Duration = Duration::from_secs(60);
/// Time limit without a message: a worker sends progress every half second.
pub const SILENCE: Duration = Duration::from_secs(10);
/// Interval at which an interruption is checked.
const STEP: Duration = Duration::from_millis(50);
/// Delay between `start` and the first message, so that all workers have read `start`.
const START_DELAY: Duration = Duration::from_millis(50);

/// A connection to a worker.
pub struct Link {
    name: String,
    writer: Box<dyn Write + Send>,
    inbox: Receiver<Heard>,
}

enum Heard {
    Message(Box<FromWorker>),
    Closed,
    Broken(LineError),
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum CoordinatorError {
    #[error("{name}: {}", failure.message)]
    Failed { name: String, failure: Failure },
    #[error("{name} ended before the end of the run; its standard error may say why")]
    Gone { name: String },
    #[error(
        "{name} sent nothing for {seconds} s; check that its process runs and its host is reachable"
    )]
    Silent { name: String, seconds: u64 },
    #[error("{name}: {error}")]
    Line { name: String, error: LineError },
    #[error(
        "{name} sent a message out of order: expected {expected}; use the same isolane at both ends"
    )]
    OutOfTurn {
        name: String,
        expected: &'static str,
    },
    /// A host of the plan has no worker.
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("interrupted before anything was measured")]
    Interrupted,
}

impl CoordinatorError {
    /// Kind of the failure, for the exit code; `None` for an interruption.
    pub fn kind(&self) -> Option<FailureKind> {
        match self {
            Self::Failed { failure, .. } => Some(failure.kind),
            Self::Gone { .. }
            | Self::Silent { .. }
            | Self::Line { .. }
            | Self::OutOfTurn { .. } => Some(FailureKind::Traffic),
            Self::Plan(_) => Some(FailureKind::Job),
            Self::Interrupted => None,
        }
    }
}

impl Link {
    /// The worker called `name` that writes to `reader` and reads from `writer`.
    pub fn new(
        name: &str,
        reader: impl BufRead + Send + 'static,
        writer: impl Write + Send + 'static,
    ) -> Self {
        let (sender, inbox) = channel();
        std::thread::spawn(move || {
            let mut lines = Lines::new(reader);
            loop {
                let heard = match lines.next_message() {
                    Ok(Some(message)) => Heard::Message(Box::new(message)),
                    Ok(None) => Heard::Closed,
                    Err(error) => Heard::Broken(error),
                };
                let last = !matches!(heard, Heard::Message(_));
                if sender.send(heard).is_err() || last {
                    return;
                }
            }
        });
        Self {
            name: name.to_owned(),
            writer: Box::new(writer),
            inbox,
        }
    }

    fn say(&mut self, message: &ToWorker) -> Result<(), CoordinatorError> {
        // A failed worker reports its failure before it closes; prefer that report.
        if write_line(&mut self.writer, message).is_ok() {
            return Ok(());
        }
        while let Ok(heard) = self.inbox.recv_timeout(STEP) {
            if let Heard::Message(message) = heard
                && let FromWorker::Failed(failure) = *message
            {
                return Err(self.failed(failure));
            }
        }
        Err(self.gone())
    }

    /// Returns the next message, or `None` after `patience`.
    fn hear(&mut self, patience: Duration) -> Result<Option<FromWorker>, CoordinatorError> {
        match self.inbox.recv_timeout(patience) {
            Ok(Heard::Message(message)) => match *message {
                FromWorker::Failed(failure) => Err(self.failed(failure)),
                message => Ok(Some(message)),
            },
            Ok(Heard::Closed) | Err(RecvTimeoutError::Disconnected) => Err(self.gone()),
            Ok(Heard::Broken(LineError::Read(_))) => Err(self.gone()),
            Ok(Heard::Broken(error)) => Err(CoordinatorError::Line {
                name: self.name.clone(),
                error,
            }),
            Err(RecvTimeoutError::Timeout) => Ok(None),
        }
    }

    fn expect(
        &mut self,
        patience: Duration,
        interrupted: &AtomicBool,
    ) -> Result<FromWorker, CoordinatorError> {
        let begin = Instant::now();
        while begin.elapsed() < patience {
            if interrupted.load(Ordering::Relaxed) {
                return Err(CoordinatorError::Interrupted);
            }
            if let Some(message) = self.hear(STEP)? {
                return Ok(message);
            }
        }
        Err(self.silent(patience))
    }

    fn failed(&self, failure: Failure) -> CoordinatorError {
        CoordinatorError::Failed {
            name: self.name.clone(),
            failure,
        }
    }

    fn gone(&self) -> CoordinatorError {
        CoordinatorError::Gone {
            name: self.name.clone(),
        }
    }

    fn silent(&self, patience: Duration) -> CoordinatorError {
        CoordinatorError::Silent {
            name: self.name.clone(),
            seconds: patience.as_secs(),
        }
    }

    fn out_of_turn(&self, expected: &'static str) -> CoordinatorError {
        CoordinatorError::OutOfTurn {
            name: self.name.clone(),
            expected,
        }
    }
}

/// Runs `plan` on the workers at `links`, one per host of the plan, and returns their reports.
///
/// When `interrupted` becomes true, the run ends early with what was measured. `progress` receives progress messages.
/// Workers end when their links are dropped.
pub fn coordinate(
    plan: &Plan,
    links: &mut BTreeMap<Host, Link>,
    interrupted: &AtomicBool,
    progress: &mut dyn FnMut(Host, &Progress),
) -> Result<BTreeMap<Host, Report>, CoordinatorError> {
    let mut prepared: BTreeMap<Host, Prepared> = BTreeMap::new();
    for (host, job) in &plan.jobs {
        link(links, *host)?.say(&ToWorker::Job(Box::new(job.clone())))?;
    }
    for host in plan.jobs.keys() {
        let link = link(links, *host)?;
        match link.expect(PREPARE, interrupted)? {
            FromWorker::Prepared(addresses) => prepared.insert(*host, addresses),
            _ => return Err(link.out_of_turn("prepared")),
        };
    }
    for (host, peers) in connect(plan, &prepared)? {
        link(links, host)?.say(&ToWorker::Connect { peers })?;
    }
    for host in plan.jobs.keys() {
        let link = link(links, *host)?;
        match link.expect(CONNECT, interrupted)? {
            FromWorker::Connected => {}
            _ => return Err(link.out_of_turn("connected")),
        }
    }
    for host in plan.jobs.keys() {
        let after_ns = START_DELAY.as_nanos() as u64;
        link(links, *host)?.say(&ToWorker::Start { after_ns })?;
    }
    let posting: Vec<Host> = hosts(plan, true);
    let mut reports = BTreeMap::new();
    gather(links, plan, &posting, &mut reports, interrupted, progress)?;
    let window = measured(&reports);
    for host in plan.jobs.keys() {
        link(links, *host)?.say(&ToWorker::Stop { window })?;
    }
    // An interrupted run still gets its reports: workers answer `stop` at once.
    let all: Vec<Host> = plan.jobs.keys().copied().collect();
    let never = AtomicBool::new(false);
    gather(links, plan, &all, &mut reports, &never, progress)?;
    Ok(reports)
}

fn link(links: &mut BTreeMap<Host, Link>, host: Host) -> Result<&mut Link, PlanError> {
    links.get_mut(&host).ok_or(PlanError::NoPeer {
        end: 0,
        host: host.letter(),
    })
}

fn hosts(plan: &Plan, posting: bool) -> Vec<Host> {
    let hosts = plan.jobs.iter().filter(|(_, job)| job.posts() == posting);
    hosts.map(|(host, _)| *host).collect()
}

/// The window that all posting workers measured.
fn measured(reports: &BTreeMap<Host, Report>) -> Option<Window> {
    let windows = reports.values().map(|report| report.window);
    windows.reduce(|one, other| Window {
        from_ns: one.from_ns.min(other.from_ns),
        to_ns: one.to_ns.max(other.to_ns),
    })
}

/// Waits for the reports of `wanted`, while all workers must send progress.
fn gather(
    links: &mut BTreeMap<Host, Link>,
    plan: &Plan,
    wanted: &[Host],
    reports: &mut BTreeMap<Host, Report>,
    interrupted: &AtomicBool,
    progress: &mut dyn FnMut(Host, &Progress),
) -> Result<(), CoordinatorError> {
    let mut heard: BTreeMap<Host, Instant> = plan
        .jobs
        .keys()
        .map(|host| (*host, Instant::now()))
        .collect();
    while wanted.iter().any(|host| !reports.contains_key(host)) {
        if interrupted.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut quiet = true;
        for host in plan
            .jobs
            .keys()
            .filter(|host| !reports.contains_key(host))
            .copied()
            .collect::<Vec<_>>()
        {
            let link = link(links, host)?;
            match link.hear(Duration::ZERO)? {
                Some(FromWorker::Progress(sign)) => progress(host, &sign),
                Some(FromWorker::Report(report)) => {
                    reports.insert(host, *report);
                }
                Some(_) => return Err(link.out_of_turn("report")),
                None => {
                    let last = heard[&host];
                    if last.elapsed() > SILENCE {
                        return Err(link.silent(SILENCE));
                    }
                    continue;
                }
            }
            quiet = false;
            heard.insert(host, Instant::now());
        }
        if quiet {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(())
}

//! Runs a worker from its first line to its last.

use super::control::ControlEnd;
use super::data::DataEnd;
use super::drive::Drive;
use super::error::EndError;
use super::fault::FaultEnd;
use super::meter::Counted;
use super::shared::Shared;
use crate::worker::{
    EndAddress, Failure, FailureKind, FromWorker, Job, LatencyNs, LineError, Lines, Prepared,
    Report, Sample, ToWorker, Window, Work, write_line,
};
use isolane_common_linux::pool::has_memory;
use isolane_common_quantities::stats::Histogram;
use isolane_rdma_verbs_sys::safe::{Context, VerbsError};
use isolane_rdma_verbs_sys::{Library, Lookup};
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Interval of progress messages.
const PROGRESS: Duration = Duration::from_millis(500);
/// Longest delay of a start, nanoseconds.
const START_MAX_NS: u64 = 60_000_000_000;

/// Values that override the job's: those of a server's command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Device name.
    pub device: Option<String>,
    /// Port number.
    pub port: Option<u8>,
    /// GID index.
    pub gid_index: Option<u32>,
    /// Largest memory of a job, bytes; larger jobs are rejected.
    pub memory_max: Option<u64>,
}

/// How a worker ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It reported and received `stop`.
    Done,
    /// The coordinator closed before a report.
    Abandoned,
    /// It failed and reported the failure.
    Failed(Failure),
}

/// What the reading thread passes on.
enum Input {
    Message(ToWorker),
    Closed,
    Broken(LineError),
}

/// Stack of the thread that reads jobs, bytes.
const READER_STACK_BYTES: usize = 512 << 10;
/// Memory for the starts of readers, bytes.
const STARTS_BYTES: u64 = 16 << 20;

/// Starts the thread that reads, if there is memory: a thread that gets none at its start leaves its session waiting. One
/// session after the other looks and starts, because all may come at once.
fn start_reader(read: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    static STARTING: Mutex<()> = Mutex::new(());
    let _turn = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if !has_memory(STARTS_BYTES) {
        return Err(std::io::ErrorKind::OutOfMemory.into());
    }
    let thread = std::thread::Builder::new().stack_size(READER_STACK_BYTES);
    thread.spawn(read).map(drop)
}

/// Runs one worker over `reader` and `writer` until it receives `stop` or the reader ends.
///
/// A thread reads; it ends with the reader.
pub fn serve<R, W>(reader: R, writer: &mut W, overrides: &Overrides) -> Outcome
where
    R: BufRead + Send + 'static,
    W: Write,
{
    let (sender, inputs) = channel();
    let started = start_reader(move || {
        let mut lines = Lines::new(reader);
        loop {
            let input = match lines.next_message() {
                Ok(Some(message)) => Input::Message(message),
                Ok(None) => Input::Closed,
                Err(error) => Input::Broken(error),
            };
            let last = !matches!(input, Input::Message(_));
            if sender.send(input).is_err() || last {
                return;
            }
        }
    });
    let mut session = Session { inputs, writer };
    let served = started
        .map_err(|error| Failure {
            kind: FailureKind::Machine,
            message: format!("cannot start a thread: {error}"),
        })
        .and_then(|()| session.run(overrides));
    match served {
        Ok(outcome) => outcome,
        Err(failure) => {
            // A closed connection cannot receive the failure.
            let _ = write_line(session.writer, &FromWorker::Failed(failure.clone()));
            Outcome::Failed(failure)
        }
    }
}

/// Checks that this machine has libibverbs, the device, and the permission to use it. The error names what is missing,
/// and is of kind [`FailureKind::Machine`].
pub fn probe(device: &str, port: u8) -> Result<(), Failure> {
    let open = || -> Result<(), EndError> {
        let library = Library::open(Lookup::Program).map_err(VerbsError::from)?;
        let context = Context::open(&library, device)?;
        context.port(port)?;
        Ok(())
    };
    open().map_err(|error| error.failure())
}

struct Session<'a, W> {
    inputs: Receiver<Input>,
    writer: &'a mut W,
}

enum End {
    Data(Box<DataEnd>),
    Control(ControlEnd),
    Fault(FaultEnd),
}

/// Events from the threads of a run.
enum Event {
    Counted(usize, Box<Counted>),
    Ended(Option<EndError>),
}

impl<W: Write> Session<'_, W> {
    fn run(&mut self, overrides: &Overrides) -> Result<Outcome, Failure> {
        let mut job = match self.next()? {
            Some(ToWorker::Job(job)) => *job,
            Some(ToWorker::Stop { .. }) | None => return Ok(Outcome::Abandoned),
            Some(_) => return Err(out_of_turn("a job")),
        };
        job.device = overrides.device.clone().unwrap_or(job.device);
        job.port = overrides.port.unwrap_or(job.port);
        job.gid_index = overrides.gid_index.or(job.gid_index);
        job.check().map_err(|error| Failure {
            kind: FailureKind::Job,
            message: error.to_string(),
        })?;
        if let Some(most) = overrides.memory_max
            && job.memory_bytes() > most
        {
            return Err(Failure {
                kind: FailureKind::Job,
                message: format!(
                    "the job needs {} bytes of memory and this server allows {most}: \
                     use fewer or smaller messages, or start the server with a larger --memory-max",
                    job.memory_bytes()
                ),
            });
        }
        let library = Library::open(Lookup::Program).map_err(VerbsError::from);
        let library = library.map_err(|error| EndError::from(error).failure())?;
        let mut ends = prepare(&library, &job).map_err(|error| error.failure())?;
        self.say(&FromWorker::Prepared(addresses(&ends)))?;
        let peers = match self.next()? {
            Some(ToWorker::Connect { peers }) => peers,
            Some(ToWorker::Stop { .. }) | None => return Ok(Outcome::Abandoned),
            Some(_) => return Err(out_of_turn("connect")),
        };
        connect(&mut ends, &peers).map_err(|error| error.failure())?;
        self.traffic(&job, &ends)
    }

    /// Runs from `connected` to the end.
    fn traffic(&mut self, job: &Job, ends: &[End]) -> Result<Outcome, Failure> {
        // Each end posts its receives before the peer may begin.
        for end in ends {
            if let End::Data(end) = end {
                let shared = Shared::new(Instant::now());
                let mut drive = Drive::new(end, job, &shared);
                drive
                    .post_first_receives()
                    .map_err(|error| error.failure())?;
            }
        }
        self.say(&FromWorker::Connected)?;
        let after_ns = match self.next()? {
            Some(ToWorker::Start { after_ns }) => after_ns.min(START_MAX_NS),
            Some(ToWorker::Stop { .. }) | None => return Ok(Outcome::Abandoned),
            Some(_) => return Err(out_of_turn("start")),
        };
        let shared = Shared::new(Instant::now() + Duration::from_nanos(after_ns));
        let (sender, events) = channel();
        std::thread::scope(|scope| {
            for (index, end) in ends.iter().enumerate() {
                let (sender, shared) = (sender.clone(), &shared);
                scope.spawn(move || {
                    let mut deliver = |counted| {
                        // The receiver lives until all threads have ended.
                        let _ = sender.send(Event::Counted(index, Box::new(counted)));
                    };
                    let answer = match end {
                        End::Data(end) => Drive::new(end, job, shared).run(&mut deliver),
                        End::Control(end) => end.run(job, shared, &mut deliver),
                        End::Fault(end) => end.run(job, shared, &mut deliver),
                    };
                    let _ = sender.send(Event::Ended(answer.err()));
                });
            }
            let outcome = self.watch(job, ends, &shared, &events);
            shared.stop(shared.posted_window());
            outcome
        })
    }

    /// Waits for reports, progress and orders.
    fn watch(
        &mut self,
        job: &Job,
        ends: &[End],
        shared: &Shared,
        events: &Receiver<Event>,
    ) -> Result<Outcome, Failure> {
        let mut counted: Vec<Option<Counted>> = ends.iter().map(|_| None).collect();
        let (mut reported, mut stopping, mut running) = (false, false, ends.len());
        let mut said = Instant::now();
        let mut failure = None;
        loop {
            while let Ok(event) = events.try_recv() {
                match event {
                    Event::Counted(index, figures) => counted[index] = Some(*figures),
                    Event::Ended(error) => {
                        running -= 1;
                        failure = failure.or(error.map(|error| Failure {
                            kind: FailureKind::Traffic,
                            message: error.failure().message,
                        }));
                    }
                }
            }
            let posting_done = job.ends.iter().zip(&counted).all(|(end, counted)| {
                let passive = matches!(&end.work, Work::Data(data) if !data.posts());
                passive || counted.is_some()
            });
            if job.posts() && posting_done && !reported {
                shared.request_snapshot();
            }
            if !reported && counted.iter().all(Option::is_some) {
                reported = true;
                let report = assemble(job, counted.iter().flatten(), shared);
                self.say(&FromWorker::Report(Box::new(report)))?;
            }
            if stopping && running == 0 {
                return match failure {
                    Some(failure) if !reported => Err(failure),
                    _ => Ok(Outcome::Done),
                };
            }
            // Short while the threads end, because their messages do not wake this one.
            match self.inputs.recv_timeout(Duration::from_millis(5)) {
                Ok(Input::Message(ToWorker::Stop { window })) => {
                    stopping = true;
                    shared.stop(window.filter(|window| window.from_ns < window.to_ns));
                }
                Ok(Input::Message(_)) => return Err(out_of_turn("stop")),
                Ok(Input::Broken(error)) => return Err(broken(&error)),
                Ok(Input::Closed) | Err(RecvTimeoutError::Disconnected) if stopping => {
                    // The input may close after `stop`; the threads still have to end.
                    std::thread::sleep(Duration::from_millis(1));
                }
                Ok(Input::Closed) | Err(RecvTimeoutError::Disconnected) => {
                    return Ok(if reported {
                        Outcome::Done
                    } else {
                        Outcome::Abandoned
                    });
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if said.elapsed() >= PROGRESS && !reported {
                said = Instant::now();
                self.say(&FromWorker::Progress(shared.progress()))?;
            }
        }
    }

    fn next(&mut self) -> Result<Option<ToWorker>, Failure> {
        match self.inputs.recv() {
            Ok(Input::Message(message)) => Ok(Some(message)),
            Ok(Input::Broken(error)) => Err(broken(&error)),
            Ok(Input::Closed) | Err(_) => Ok(None),
        }
    }

    fn say(&mut self, message: &FromWorker) -> Result<(), Failure> {
        write_line(self.writer, message).map_err(|error| Failure {
            kind: FailureKind::Traffic,
            message: format!("the coordinator closed the connection: {error}"),
        })
    }
}

fn out_of_turn(wanted: &str) -> Failure {
    Failure {
        kind: FailureKind::Job,
        message: format!("a message came out of order: expected {wanted}"),
    }
}

fn broken(error: &LineError) -> Failure {
    Failure {
        kind: FailureKind::Traffic,
        message: error.to_string(),
    }
}

fn prepare(library: &Library, job: &Job) -> Result<Vec<End>, EndError> {
    let ends = job.ends.iter().map(|end| {
        Ok(match &end.work {
            Work::Data(work) => End::Data(Box::new(DataEnd::prepare(library, job, end, work)?)),
            Work::Control(work) => End::Control(ControlEnd::prepare(library, job, end, work)?),
            Work::Fault(work) => End::Fault(FaultEnd::prepare(library, job, end, *work)?),
        })
    });
    ends.collect()
}

fn addresses(ends: &[End]) -> Prepared {
    let data = ends.iter().filter_map(|end| match end {
        End::Data(end) => Some((end.id, end.address())),
        End::Control(_) | End::Fault(_) => None,
    });
    Prepared {
        process_id: std::process::id(),
        ends: data.collect(),
    }
}

fn connect(ends: &mut [End], peers: &BTreeMap<u32, EndAddress>) -> Result<(), EndError> {
    for end in ends {
        if let End::Data(end) = end {
            let peer = peers.get(&end.id).ok_or_else(|| EndError::Peer {
                end: end.name.clone(),
                what: "no address for end",
                value: end.id.to_string(),
                remedy: "connect must name the peer of every end",
            })?;
            end.connect(peer)?;
        }
    }
    Ok(())
}

fn assemble<'a>(job: &Job, counted: impl Iterator<Item = &'a Counted>, shared: &Shared) -> Report {
    let mut report = Report {
        tenant: job.tenant.clone(),
        device: job.device.clone(),
        steady: true,
        cpu_s: processor_seconds(),
        sample_interval_ns: job.sample_interval_ns,
        ..Report::default()
    };
    let mut histogram = Histogram::new();
    let mut window: Option<Window> = None;
    for (end, counted) in job.ends.iter().zip(counted) {
        let mut figures = counted.report.clone();
        figures.id = end.id;
        figures.name.clone_from(&end.name);
        histogram.merge(&counted.histogram);
        report.steady &= counted.steady;
        if report.series.len() < counted.series.len() {
            report
                .series
                .resize(counted.series.len(), Sample::default());
        }
        for (sample, other) in report.series.iter_mut().zip(&counted.series) {
            sample.add(other);
        }
        let passive = matches!(&end.work, Work::Data(data) if !data.posts());
        if !passive || !job.posts() {
            let whole = window.get_or_insert(figures.window);
            whole.from_ns = whole.from_ns.min(figures.window.from_ns);
            whole.to_ns = whole.to_ns.max(figures.window.to_ns);
        }
        report.ends.push(figures);
    }
    let now = shared.now();
    report.window = window.unwrap_or(Window {
        from_ns: 0,
        to_ns: now,
    });
    report.latency = LatencyNs::of(&histogram);
    report.latency_counts = histogram.counts().collect();
    report
}

/// Processor time of this process so far, seconds.
fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

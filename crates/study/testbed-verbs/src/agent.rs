//! The agent: starts and watches the worker processes of one machine for a controller at the end of a byte stream.
//!
//! Problem: a process on another machine must end when its controller ends or the agent ends, and it must be traffic of
//! our own program only. Method: one session is one process with one stream. The agent starts only
//! [`AgentOptions::program`], with arguments that no message can change. The agent limits workers and bytes. When the
//! stream or the session's time ends, the agent kills every process group that it started.
//!
//! Limits: [`crate::message::WORKERS_MAX`] workers, lines of [`crate::message::LINE_MAX`] bytes, a lifetime. A worker
//! sees its input close when the agent is killed, and ends by itself.

use crate::lines::Lines;
use crate::message::{Event, Message, Paced, Pacing, Request, VERSION, WORKERS_MAX};
use crate::pace::Daemon;
use crate::process::{self, Process};
use crate::sources;
use isolane_common_linux::Root;
use isolane_rdma_inventory::counters;
use isolane_rdma_inventory::counters::{Snapshot, Window};
use isolane_rdma_inventory::environment::environment;
use isolane_rdma_traffic::nodes::{Nodes, has_gpu};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{ChildStdout, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How a session is served.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The program whose workers are started: `isolane` itself.
    pub program: PathBuf,
    /// The arguments that make it a worker.
    pub arguments: Vec<String>,
    /// The longest session.
    pub lifetime: Duration,
    /// The path of `/sys`.
    pub root: Root,
}

impl AgentOptions {
    /// Workers of `program`, `isolane` as it is installed, on this machine.
    pub fn of(program: PathBuf) -> Self {
        Self {
            program,
            arguments: ["rdma", "traffic", "--worker"].map(str::to_owned).to_vec(),
            lifetime: LIFETIME,
            root: Root::with_emulated_devices(),
        }
    }
}

/// The longest session unless another is set: an audit of a day.
pub const LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// How long a worker may take to end after it has closed its output or lost its input.
const ENDING: Duration = Duration::from_secs(3);
/// How often the session looks whether its time is over.
const LOOK: Duration = Duration::from_millis(200);
/// Requests read ahead.
const AHEAD: usize = 16;

/// Why a session ended before its controller did.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum AgentError {
    #[error("agent: cannot read from the controller: {0}")]
    Read(io::Error),
    /// A request was no message of ours.
    #[error("agent: {0}")]
    Message(#[from] crate::message::MessageError),
    #[error(
        "agent: the controller has version {theirs} of the protocol, this agent {VERSION}; install the same \
         release of isolane on both machines"
    )]
    Version { theirs: u32 },
    #[error("agent: the session reached its limit of {} s; see --lifetime", .0.as_secs())]
    Lifetime(Duration),
}

/// Serves one session: until `input` ends, or its time is over. When it returns, every process it started is gone.
/// Fails if the controller sent something else than requests, or the session lasted too long.
pub fn serve(
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
    options: &AgentOptions,
) -> Result<(), AgentError> {
    let session = Arc::new(Session {
        output: Mutex::new(Box::new(output)),
        workers: Mutex::new(BTreeMap::new()),
        daemon: Mutex::new(None),
        expired: AtomicBool::new(false),
    });
    let (over, watched) = sync_channel::<()>(0);
    let watchdog = {
        let (session, lifetime) = (Arc::clone(&session), options.lifetime);
        thread::spawn(move || session.watch(&watched, lifetime))
    };
    let result = Server {
        session: &session,
        options,
        readings: BTreeMap::new(),
        since: Instant::now(),
    }
    .run(read_ahead(input, Arc::clone(&session)));
    if let Err(error) = &result {
        session.say(&Event::Failed {
            reason: error.to_string(),
        });
    }
    session.clear();
    drop(over);
    // It only waits for the sender that was just dropped.
    let _ = watchdog.join();
    result
}

/// Lines of `input`, as many as fit the channel. At its end every worker is killed from here, since the main thread
/// may be waiting for one that does not read.
fn read_ahead(
    input: impl Read + Send + 'static,
    session: Arc<Session>,
) -> Receiver<io::Result<String>> {
    let (sender, receiver) = sync_channel(AHEAD);
    // Not joined: it ends with its input, which may be a terminal that never does.
    thread::spawn(move || {
        let mut lines = Lines::new(input);
        loop {
            let line = lines.next().transpose();
            let last = !matches!(line, Some(Ok(_)));
            if last {
                session.kill();
            }
            let Some(line) = line else { return };
            if sender.send(line).is_err() || last {
                return;
            }
        }
    });
    receiver
}

/// What the threads of a session share.
struct Session {
    output: Mutex<Box<dyn Write + Send>>,
    workers: Mutex<BTreeMap<u32, Worker>>,
    daemon: Mutex<Option<Daemon>>,
    expired: AtomicBool,
}

struct Worker {
    process: Arc<Process>,
    listener: Option<JoinHandle<()>>,
}

impl Session {
    /// Sends `event`. A failure is ignored: the reader notices that a controller is gone.
    fn say(&self, event: &Event) {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = output
            .write_all(event.encode().as_bytes())
            .and_then(|()| output.flush());
    }

    fn workers(&self) -> std::sync::MutexGuard<'_, BTreeMap<u32, Worker>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn daemon(&self) -> std::sync::MutexGuard<'_, Option<Daemon>> {
        self.daemon.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the daemon and kills every worker, and waits until its last word is passed on.
    fn clear(&self) {
        let workers: Vec<Worker> = {
            let mut workers = self.workers();
            std::mem::take(&mut *workers).into_values().collect()
        };
        for worker in &workers {
            worker.process.kill();
        }
        for mut worker in workers {
            if let Some(listener) = worker.listener.take() {
                // A panicked listener has nothing more to pass on.
                let _ = listener.join();
            }
        }
        let daemon = self.daemon().take();
        if let Some(daemon) = daemon {
            daemon.stop();
        }
    }

    /// Kills the workers when the session's time is over, even where the main thread waits for a controller that
    /// does not read.
    fn watch(&self, over: &Receiver<()>, lifetime: Duration) {
        if let Err(RecvTimeoutError::Timeout) = over.recv_timeout(lifetime) {
            self.expired.store(true, Ordering::Relaxed);
            self.kill();
        }
    }

    /// Kills every worker; their listeners do the rest.
    fn kill(&self) {
        for worker in self.workers().values() {
            worker.process.kill();
        }
    }

    /// Passes on what worker `id` says, and its end.
    fn listen(&self, id: u32, process: &Process, output: ChildStdout) {
        let mut lines = Lines::new(output);
        loop {
            match lines.next() {
                Ok(Some(line)) => self.say(&Event::Said { worker: id, line }),
                Ok(None) => break,
                Err(_) => {
                    process.kill();
                    break;
                }
            }
        }
        let status = process.finish(ENDING);
        let event = Event::Ended {
            worker: id,
            how: process::how(status),
            well: status.success(),
            complaint: process.complaint(),
        };
        self.say(&event);
        self.workers().remove(&id);
    }
}

/// The main thread of a session.
struct Server<'a> {
    session: &'a Arc<Session>,
    options: &'a AgentOptions,
    readings: BTreeMap<(String, u8), Snapshot>,
    since: Instant,
}

impl Server<'_> {
    fn run(&mut self, requests: Receiver<io::Result<String>>) -> Result<(), AgentError> {
        let mut greeted = false;
        loop {
            let line = match requests.recv_timeout(LOOK) {
                Ok(line) => line.map_err(AgentError::Read)?,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {
                    if self.session.expired.load(Ordering::Relaxed) {
                        return Err(AgentError::Lifetime(self.options.lifetime));
                    }
                    continue;
                }
            };
            let request = Request::decode(&line)?;
            match (greeted, request) {
                (false, Request::Hello { version, .. }) if version == VERSION => {
                    greeted = true;
                    self.session.say(&Event::Welcome {
                        version: VERSION,
                        program: env!("CARGO_PKG_VERSION").to_owned(),
                        devices: self.devices(),
                    });
                }
                (false, Request::Hello { version, .. }) => {
                    return Err(AgentError::Version { theirs: version });
                }
                (false, _) => {
                    return Err(crate::message::MessageError::Field { field: "hello" }.into());
                }
                (true, request) => {
                    if let Err(reason) = self.serve(request) {
                        self.session.say(&Event::Failed { reason });
                    }
                }
            }
        }
    }

    /// The machine's RDMA devices, with NUMA nodes and GPU as workers see them.
    fn devices(&self) -> BTreeMap<String, Nodes> {
        let (root, gpu) = (&self.options.root, has_gpu());
        let names = root.list("/sys/class/infiniband").into_iter();
        let places = |name: &str| Nodes {
            gpu,
            ..Nodes::read(root, name)
        };
        names.map(|name| (name.clone(), places(&name))).collect()
    }

    fn serve(&mut self, request: Request) -> Result<(), String> {
        match request {
            Request::Hello { .. } => Err("hello was said before".to_owned()),
            Request::Spawn { worker, pacing } => self.spawn(worker, pacing.as_ref()),
            Request::Pace(paced) => self.pace(&paced),
            Request::Say { worker, mut line } => {
                let process = self.process(worker);
                line.push('\n');
                // The end of a worker that is gone is an event of its own, which follows.
                let _ = process.map(|process| process.write(line.as_bytes()));
                Ok(())
            }
            Request::Close { worker } => {
                if let Some(process) = self.process(worker) {
                    process.close();
                }
                Ok(())
            }
            Request::Counters { device, port } => {
                self.counters(device, port);
                Ok(())
            }
            Request::Describe { device, port } => {
                let root = &self.options.root;
                let facts = environment(root, &device, u32::from(port));
                self.session.say(&Event::Described { device, facts });
                Ok(())
            }
            Request::Clear => {
                self.session.clear();
                self.readings.clear();
                self.session.say(&Event::Cleared);
                Ok(())
            }
        }
    }

    fn process(&self, worker: u32) -> Option<Arc<Process>> {
        let workers = self.session.workers();
        workers
            .get(&worker)
            .map(|worker| Arc::clone(&worker.process))
    }

    fn pace(&self, paced: &Paced) -> Result<(), String> {
        if self.session.daemon().is_some() {
            return Err("the session has a daemon already".to_owned());
        }
        let daemon = Daemon::start(&self.options.program, paced)?;
        *self.session.daemon() = Some(daemon);
        self.session.say(&Event::Paced);
        Ok(())
    }

    /// The command that starts a worker.
    fn command(&self, pacing: Option<&Pacing>) -> Result<Command, String> {
        let AgentOptions {
            program, arguments, ..
        } = self.options;
        match (pacing, self.session.daemon().as_ref()) {
            (None, _) => {
                let mut command = Command::new(program);
                command.args(arguments);
                Ok(command)
            }
            (Some(pacing), Some(daemon)) => Ok(daemon.command(program, arguments, pacing)),
            (Some(_), None) => Err("no daemon paces this session".to_owned()),
        }
    }

    fn spawn(&self, id: u32, pacing: Option<&Pacing>) -> Result<(), String> {
        let mut command = self.command(pacing)?;
        let mut workers = self.session.workers();
        if workers.contains_key(&id) {
            return Err(format!("worker {id} runs already"));
        }
        if workers.len() >= WORKERS_MAX {
            return Err(format!("more than {WORKERS_MAX} workers in one session"));
        }
        let (process, output) = Process::start(&mut command)
            .map_err(|error| format!("cannot start {}: {error}", self.options.program.display()))?;
        let listener = {
            let (session, process) = (Arc::clone(self.session), Arc::clone(&process));
            thread::spawn(move || session.listen(id, &process, output))
        };
        // The listener takes the map's lock to remove itself, which is held until it is in.
        workers.insert(
            id,
            Worker {
                process,
                listener: Some(listener),
            },
        );
        Ok(())
    }

    fn counters(&mut self, device: String, port: u8) {
        let root = &self.options.root;
        let extra = sources::extra(root, &device, u32::from(port));
        let now_ns = u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let reading = counters::read(root, &device, u32::from(port), &extra, now_ns);
        let key = (device.clone(), port);
        let window = self
            .readings
            .get(&key)
            .and_then(|earlier| Window::between(earlier, &reading))
            .unwrap_or_default();
        self.readings.insert(key, reading);
        let rises = window.rises.iter();
        self.session.say(&Event::Counters {
            device,
            seconds: window.seconds,
            rises: rises
                .map(|(counter, rise)| (counter.name().to_owned(), *rise))
                .collect(),
        });
    }
}

//! Experiments done by other processes: on this machine, or through Ray on many.
//!
//! Problem: one process has the cores of one machine. Method: a worker is this program with `--worker`, which builds the
//! same target from the same options and then answers lines of JSON: an experiment's point and seed, its result. Workers of
//! `--executor processes` are our own children; with `--executor ray` the one child is `python -m isolane.hunt`, which has a
//! worker on every core of a Ray cluster and passes lines on. An experiment's result follows from its point and seed, and
//! the hunt takes results in the order of its own batches, so that it cannot matter who answered or when.
//!
//! The first line to a worker says what the hunt measured at its start; the first answer says which build it is and how
//! many experiments it takes at once. Limits: a worker that ends takes the hunt with it - what was measured is in the
//! journal - unless Ray starts it again; simulated devices only.

use super::Arguments;
use super::ground::Place;
use crate::commands::audit;
use crate::commands::edge::python;
use crate::inputs::bad;
use anyhow::{Context, Result, bail};
use isolane_study_hunt::HuntError;
use isolane_study_hunt::experiment::{Measured, Target};
use isolane_study_hunt::space::Point;
use isolane_study_hunt::state::Start;
use isolane_study_testbed::TestbedError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The Python side.
const PACKAGE: &str = "isolane.hunt";

/// Who does the experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Executor {
    /// Threads of this process.
    Local,
    /// Processes on this machine.
    Processes,
    /// A Ray cluster (pip install './python[ray]' in a clone).
    Ray,
}

/// The first line to a worker.
#[derive(Serialize, Deserialize)]
struct Hello {
    start: Start,
}

/// The first line from a worker.
#[derive(Serialize, Deserialize)]
struct Ready {
    build: String,
    workers: usize,
}

/// An experiment to do.
#[derive(Serialize, Deserialize)]
struct Order {
    id: u64,
    point: Point,
    seed: u64,
}

/// The result: one of the two.
#[derive(Serialize, Deserialize)]
struct Answer {
    id: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    measured: Option<Measured>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

type Waiting = Mutex<BTreeMap<u64, Sender<Answer>>>;

/// A child that does experiments.
struct Link {
    child: Child,
    orders: Option<Mutex<ChildStdin>>,
    waiting: Arc<Waiting>,
    reader: Option<JoinHandle<()>>,
}

/// See the module.
pub(super) struct Farm {
    name: String,
    executor: &'static str,
    links: Vec<Link>,
    /// A link for each experiment that may be begun now.
    free: Mutex<Vec<usize>>,
    next: AtomicU64,
    cancel: Arc<AtomicBool>,
}

impl Farm {
    /// The farm of `arguments`, if any; `local` processes where they are on this machine.
    pub(super) fn of(
        arguments: &Arguments,
        (start, name): (&Start, &str),
        local: usize,
        cancel: &Arc<AtomicBool>,
    ) -> Result<Option<Self>> {
        let (executor, commands) = match arguments.executor {
            Executor::Local => return Ok(None),
            Executor::Processes => {
                let program = std::env::current_exe().context("this program has no path")?;
                let command = || {
                    let mut command = Command::new(&program);
                    command.args(words(arguments)?);
                    Ok(command)
                };
                let commands: Result<Vec<Command>> = (0..local).map(|_| command()).collect();
                ("processes", commands?)
            }
            Executor::Ray => ("ray", vec![ray(arguments)?]),
        };
        let mut farm = Self {
            name: name.to_owned(),
            executor,
            links: Vec::new(),
            free: Mutex::new(Vec::new()),
            next: AtomicU64::new(0),
            cancel: Arc::clone(cancel),
        };
        // All begin before the first is waited for.
        let children: Result<Vec<(Child, ChildStdin, ChildStdout)>> = commands
            .into_iter()
            .map(|command| started(command, start))
            .collect();
        for (child, orders, answers) in children? {
            farm.join(child, orders, answers)?;
        }
        Ok(Some(farm))
    }

    /// Experiments that it does at once.
    pub(super) fn workers(&self) -> usize {
        lock(&self.free).len()
    }

    /// Adds a child, once it is ready.
    fn join(&mut self, child: Child, orders: ChildStdin, answers: ChildStdout) -> Result<()> {
        let mut answers = BufReader::new(answers);
        let mut line = String::new();
        let index = self.links.len();
        let waiting: Arc<Waiting> = Arc::default();
        self.links.push(Link {
            child,
            orders: Some(Mutex::new(orders)),
            waiting: Arc::clone(&waiting),
            reader: None,
        });
        let read = answers.read_line(&mut line);
        let ready: Option<Ready> = read.ok().and_then(|_| serde_json::from_str(&line).ok());
        let Some(ready) = ready else {
            bail!(TestbedError::Unavailable {
                reason: format!(
                    "--executor {}: no worker began; what it said is above",
                    self.executor
                ),
            });
        };
        if ready.build != audit::build() {
            bail!(bad(format!(
                "--executor {}: workers have another build of isolane ({}, this is {}): install the same everywhere",
                self.executor,
                ready.build,
                audit::build()
            )));
        }
        lock(&self.free).extend(std::iter::repeat_n(index, ready.workers));
        self.links[index].reader = Some(std::thread::spawn(move || deliver(answers, &waiting)));
        Ok(())
    }

    fn failed(&self, what: &str) -> HuntError {
        if self.cancel.load(Ordering::Relaxed) {
            return TestbedError::Interrupted.into();
        }
        let reason = format!(
            "--executor {}: {what}; what was measured is kept: go on with --resume",
            self.executor
        );
        TestbedError::Failed { reason }.into()
    }

    fn ask(&self, link: &Link, point: &Point, seed: u64) -> Result<Measured, HuntError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = mpsc::channel();
        lock(&link.waiting).insert(id, sender);
        let order = Order {
            id,
            point: point.clone(),
            seed,
        };
        let mut line = serde_json::to_string(&order).expect("an order is plain data");
        line.push('\n');
        let orders = link
            .orders
            .as_ref()
            .expect("it is open until it is dropped");
        let sent = lock(orders).write_all(line.as_bytes());
        let answer = match sent {
            Ok(()) => receiver.recv().ok(),
            Err(_) => None,
        };
        let answer = answer.ok_or_else(|| self.failed("a worker ended"))?;
        match (answer.measured, answer.error) {
            (Some(measured), _) => Ok(measured),
            (None, error) => {
                Err(self.failed(&error.unwrap_or_else(|| "an empty answer".to_owned())))
            }
        }
    }
}

impl Target for Farm {
    fn name(&self) -> &str {
        &self.name
    }

    fn measure(&self, point: &Point, seed: u64) -> Result<Measured, HuntError> {
        let index = lock(&self.free).pop();
        let index = index.expect("no more experiments are begun than there are workers");
        let measured = self.ask(&self.links[index], point, seed);
        lock(&self.free).push(index);
        measured
    }
}

impl Drop for Farm {
    fn drop(&mut self) {
        for link in &mut self.links {
            // The end of its input is the end of a worker.
            link.orders = None;
            // Nothing is left to do about one that cannot be waited for.
            let _ = link.child.wait();
            if let Some(reader) = link.reader.take() {
                let _ = reader.join();
            }
        }
    }
}

/// Hands answers to those who wait for them, until there are no more.
fn deliver(answers: BufReader<ChildStdout>, waiting: &Waiting) {
    for line in answers.lines() {
        let answer = line.ok().and_then(|line| serde_json::from_str(&line).ok());
        let Some(answer): Option<Answer> = answer else {
            break;
        };
        if let Some(sender) = lock(waiting).remove(&answer.id) {
            // The receiver may have ended.
            let _ = sender.send(answer);
        }
    }
    lock(waiting).clear();
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn started(mut command: Command, start: &Start) -> Result<(Child, ChildStdin, ChildStdout)> {
    // In a group of their own: Ctrl-C stops the hunt, which ends its workers.
    let child = command
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child =
        child.with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let mut orders = child.stdin.take().context("the child has an input")?;
    let answers = child.stdout.take().context("the child has an output")?;
    let hello = Hello {
        start: start.clone(),
    };
    let line = format!("{}\n", serde_json::to_string(&hello)?);
    // For a process that has ended already, `wait` returns its status.
    let _ = orders.write_all(line.as_bytes());
    Ok((child, orders, answers))
}

/// The words that make this program a worker of the hunt.
fn words(arguments: &Arguments) -> Result<Vec<String>> {
    let mut words = vec!["hunt".to_owned(), "--worker".to_owned()];
    if let Some(target) = &arguments.target {
        words.extend(["--target".to_owned(), target.clone()]);
    }
    if let Some(victim) = &arguments.victim {
        let path = victim
            .to_str()
            .context("the path of --victim must be UTF-8")?;
        words.extend(["--victim".to_owned(), path.to_owned()]);
        words.extend(["--alpha".to_owned(), arguments.alpha.to_string()]);
        if let Some(policy) = &arguments.policy {
            words.extend(["--policy".to_owned(), policy.clone()]);
        }
    }
    words.extend(["--seed".to_owned(), arguments.seed.to_string()]);
    Ok(words)
}

/// The Python program that has a worker on every core of a Ray cluster.
fn ray(arguments: &Arguments) -> Result<Command> {
    let python = python::interpreter(None, PACKAGE, &["ray"])
        .map_err(|missing| bad(format!("--executor ray: {missing}")))?;
    let mut command = Command::new(python);
    command.args(["-m", PACKAGE]);
    // Files travel to the nodes under their own names.
    let profile = arguments
        .target
        .as_deref()
        .and_then(|t| t.strip_prefix("sim:"));
    let profile = profile.filter(|name| name.ends_with(".toml") || name.contains('/'));
    let victim = arguments.victim.as_ref().and_then(|path| path.to_str());
    for file in profile.into_iter().chain(victim) {
        command.args(["--file", file]);
    }
    command.arg("--").args(words(arguments)?);
    Ok(command)
}

/// What a worker does: answers orders until there are no more.
pub(super) fn work(arguments: &Arguments, place: &Place) -> Result<()> {
    let mut input = std::io::stdin().lock();
    let mut line = String::new();
    input.read_line(&mut line)?;
    let hello: Hello = serde_json::from_str(&line)
        .map_err(|error| bad(format!("--worker is for isolane itself: {error}")))?;
    place.with(arguments, &hello.start, |target, _, _| {
        answer_all(target, &mut input, &mut std::io::stdout().lock())
    })
}

fn answer_all(target: &dyn Target, input: &mut dyn BufRead, output: &mut dyn Write) -> Result<()> {
    let mut say = |line: String| {
        writeln!(output, "{line}")?;
        output.flush()
    };
    let ready = Ready {
        build: audit::build(),
        workers: 1,
    };
    say(serde_json::to_string(&ready)?)?;
    for line in input.lines() {
        let order: Order = serde_json::from_str(&line?)?;
        let (measured, error) = match target.measure(&order.point, order.seed) {
            Ok(measured) => (Some(measured), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let answer = Answer {
            id: order.id,
            measured,
            error,
        };
        say(serde_json::to_string(&answer)?)?;
    }
    Ok(())
}

//! The controller's end of a session with an agent: here, over ssh, or over TLS.
//!
//! All sessions of a run deliver into one channel, so the controller waits for the first event of any session. A thread
//! of its own writes the requests, so a peer that does not read cannot block the controller. Dropping a session closes
//! its stream and kills the local process behind the stream. The agent then ends everything that it started.

use crate::error::VerbsError;
use crate::lines::Lines;
use crate::message::{Event, Message, Request, VERSION};
use crate::process::{self, Process};
use crate::secure::Fate;
use crate::target::Machine;
use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

/// How machines are reached.
#[derive(Clone, Debug)]
pub struct Reach {
    /// `isolane` on this machine.
    pub program: PathBuf,
    /// The arguments that make it an agent at the end of a pipe.
    pub arguments: Vec<String>,
    /// The ssh program (`ISOLANE_SSH`); it is called as ssh is.
    pub ssh: OsString,
    /// Certificates of this machine: agents are reached over TLS instead of ssh.
    pub identity: Option<PathBuf>,
}

impl Reach {
    /// By `isolane` at `program` here, and the user's ssh elsewhere.
    pub fn of(program: PathBuf) -> Self {
        Self {
            program,
            arguments: ["rdma", "agent", "--stdio"].map(str::to_owned).to_vec(),
            ssh: "ssh".into(),
            identity: None,
        }
    }
}

/// The TCP port of agents where no other is named.
pub const PORT: u16 = 18_530;

/// What a session delivers.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A message.
    Event(Event),
    /// Nothing more will come, and why.
    Closed(String),
}

/// A session.
#[derive(Debug)]
pub(crate) struct Link {
    /// `this machine`, or the host's name.
    pub(crate) machine: String,
    requests: Option<Sender<String>>,
    process: Option<Arc<Process>>,
}

/// How long an agent may take to end by itself when its stream is closed.
const ENDING: Duration = Duration::from_secs(3);
/// Lines of a login shell that may come before the agent's first word.
const NOISE_LINES: usize = 64;

impl Link {
    /// Begins a session with the agent of `machine` (none: this one); what it says arrives in `arrivals` with `index`.
    pub(crate) fn open(
        machine: Option<&Machine>,
        reach: &Reach,
        index: usize,
        arrivals: &Sender<(usize, Arrival)>,
    ) -> Result<Self, VerbsError> {
        match (machine, &reach.identity) {
            (None, _) => {
                let mut command = Command::new(&reach.program);
                command.args(&reach.arguments);
                Self::over("this machine".to_owned(), command, index, arrivals)
            }
            (Some(machine), None) => {
                if machine.port.is_some() {
                    return Err(VerbsError::Unreachable {
                        machine: machine.to_string(),
                        reason: "a port is for agents over TLS (--identity); ssh takes its port from ~/.ssh/config"
                            .to_owned(),
                    });
                }
                let mut command = Command::new(&reach.ssh);
                // ssh must not prompt: during a run the terminal is not available for an answer.
                command.args(["-T", "-o", "BatchMode=yes", "--"]);
                command.arg(&machine.name);
                command.args(["isolane", "rdma", "agent", "--stdio"]);
                Self::over(machine.to_string(), command, index, arrivals)
            }
            (Some(machine), Some(identity)) => {
                let (stream, fate) = crate::secure::connect(machine, identity)?;
                let reader = stream
                    .try_clone()
                    .map_err(|error| VerbsError::Unreachable {
                        machine: machine.to_string(),
                        reason: error.to_string(),
                    })?;
                let machine = machine.to_string();
                let arrivals = arrivals.clone();
                thread::spawn(move || {
                    deliver(reader, index, &arrivals, |greeted, _| {
                        closed(&fate, greeted)
                    });
                });
                Ok(Self::with(machine, Closing(stream), None))
            }
        }
    }

    fn over(
        machine: String,
        mut command: Command,
        index: usize,
        arrivals: &Sender<(usize, Arrival)>,
    ) -> Result<Self, VerbsError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let started = Process::start(&mut command);
        let (process, output) = started.map_err(|error| VerbsError::Unreachable {
            machine: machine.clone(),
            reason: format!("cannot start {program}: {error}"),
        })?;
        let arrivals = arrivals.clone();
        let behind = Arc::clone(&process);
        thread::spawn(move || {
            deliver(output, index, &arrivals, |_, noise| ending(&behind, noise));
        });
        let input = Input(Arc::clone(&process));
        Ok(Self::with(machine, input, Some(process)))
    }

    fn with(
        machine: String,
        mut output: impl Write + Send + 'static,
        process: Option<Arc<Process>>,
    ) -> Self {
        let (requests, lines) = channel::<String>();
        thread::spawn(move || {
            for line in lines {
                let written = output.write_all(line.as_bytes());
                if written.and_then(|()| output.flush()).is_err() {
                    // The reader of the same stream reports the end.
                    return;
                }
            }
        });
        let link = Self {
            machine,
            requests: Some(requests),
            process,
        };
        link.send(&Request::Hello {
            version: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
        });
        link
    }

    /// Sends `request`; one that cannot be delivered is followed by [`Arrival::Closed`].
    pub(crate) fn send(&self, request: &Request) {
        if let Some(requests) = &self.requests {
            let _ = requests.send(request.encode());
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Ends the writer, which drops its half of the stream.
        self.requests.take();
        if let Some(process) = self.process.take() {
            process.finish(ENDING);
        }
    }
}

/// Passes on what `input` says until its end, which `ending` explains: whether the agent said anything, and what came
/// instead.
fn deliver(
    input: impl Read,
    index: usize,
    arrivals: &Sender<(usize, Arrival)>,
    ending: impl Fn(bool, &str) -> String,
) {
    let mut lines = Lines::new(input);
    let mut noise = 0;
    let mut last_noise = String::new();
    let mut greeted = false;
    let reason = loop {
        match lines.next() {
            Ok(Some(line)) => match Event::decode(&line) {
                Ok(event) => {
                    greeted = true;
                    if arrivals.send((index, Arrival::Event(event))).is_err() {
                        return;
                    }
                }
                // A login shell may greet before the agent does.
                Err(_) if !greeted && noise < NOISE_LINES => {
                    noise += 1;
                    last_noise = line.chars().filter(|c| !c.is_control()).take(200).collect();
                }
                Err(error) => break error.to_string(),
            },
            Ok(None) => break ending(greeted, &last_noise),
            // The thread that moves bytes went with a request unread: an end like others, with its reason.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                break ending(greeted, &last_noise);
            }
            Err(error) => break error.to_string(),
        }
    };
    // After the run no receiver is left.
    let _ = arrivals.send((index, Arrival::Closed(reason)));
}

/// Why a TLS stream ended.
fn closed(fate: &Fate, greeted: bool) -> String {
    // The thread that moves bytes says why just before it closes the stream that was read here.
    match (fate.text(), greeted) {
        (Some(reason), _) => reason,
        (None, true) => "it closed the connection".to_owned(),
        (None, false) => {
            "it closed the connection at once: see its own messages, or --sessions if it is busy"
                .to_owned()
        }
    }
}

/// Why a stream ended, by the process behind it.
fn ending(process: &Process, noise: &str) -> String {
    let ended = process.ended(ENDING).map(process::how);
    let complaint = process.complaint();
    let said = match (complaint.is_empty(), noise.is_empty()) {
        (false, _) => format!(": {complaint}"),
        (true, false) => format!(" after {noise:?}"),
        (true, true) => String::new(),
    };
    match ended {
        Some(how) => format!("it ended with {how}{said}"),
        None => format!("it closed its output{said}"),
    }
}

/// A socket that closes for its reader too when it is dropped.
struct Closing(UnixStream);

impl Write for Closing {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        // It fails only where it is closed already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// A process's input as a writer that closes it when dropped.
struct Input(Arc<Process>);

impl Write for Input {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        self.0.close();
    }
}

//! The lab's programs, from start to their last line: one process per client and server, in its namespace.
//!
//! Method: a thread per program reads its stdout line by line, another keeps the end of its stderr. Every wait ends: at
//! a document, at the program's end, at the time limit, or when the user interrupts. Dropping a program kills it.

use crate::error::LabError;
use isolane_common_linux::command::command;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Language of a client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Language {
    /// tonic.
    Rust,
    /// grpcio.
    Python,
    /// grpc.aio.
    PythonAio,
    /// grpc-go.
    Go,
    /// grpc++.
    Cpp,
    /// grpc-java.
    Java,
}

impl Language {
    /// All languages, in the order in which they serve each other.
    pub const ALL: [Self; 6] = [
        Self::Rust,
        Self::Python,
        Self::PythonAio,
        Self::Go,
        Self::Cpp,
        Self::Java,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Python => "python",
            Self::PythonAio => "python-aio",
            Self::Go => "go",
            Self::Cpp => "cpp",
            Self::Java => "java",
        }
    }
}

/// Commands that start the programs; the role follows as the last argument.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    /// The `isolane` binary and its hidden command.
    pub rust: Vec<String>,
    /// An interpreter that has the package.
    pub python: PathBuf,
    /// The Go program.
    pub go: PathBuf,
    /// The C++ program.
    pub cpp: PathBuf,
    /// The archive of the Java program.
    pub java: PathBuf,
}

impl Commands {
    /// Command that starts the Java program.
    pub fn java_line(&self) -> Vec<String> {
        // Compiling every method twice would take processors that the lab needs.
        [
            "java",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-jar",
        ]
        .into_iter()
        .map(str::to_owned)
        .chain([self.java.display().to_string()])
        .collect()
    }

    fn line(&self, language: Language, role: Role) -> Vec<String> {
        let module = |interface: &str| {
            let interpreter = self.python.display().to_string();
            let words = ["-m", "isolane.lab", "--interface", interface].map(str::to_owned);
            [vec![interpreter], words.to_vec()].concat()
        };
        let mut line = match language {
            Language::Rust => self.rust.clone(),
            Language::Python => module("grpcio"),
            Language::PythonAio => module("aio"),
            Language::Go => vec![self.go.display().to_string()],
            Language::Cpp => vec![self.cpp.display().to_string()],
            Language::Java => self.java_line(),
        };
        line.push(role.name().to_owned());
        line
    }
}

/// Role of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Issues calls.
    Client,
    /// Answers calls.
    Server,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// A running program.
#[derive(Debug)]
pub struct Program {
    language: Language,
    role: Role,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    words: Arc<Mutex<VecDeque<u8>>>,
}

/// Bytes of stderr that are kept for a message.
const WORDS_BYTES: usize = 600;
/// Interval at which a wait checks for an interruption.
const TICK: Duration = Duration::from_millis(50);

impl Program {
    /// Starts the program of `language` in the namespace `space`. Fails if the program cannot be started.
    pub fn start(
        commands: &Commands,
        language: Language,
        role: Role,
        space: &str,
    ) -> Result<Self, LabError> {
        let line = commands.line(language, role);
        let mut process = command("ip");
        process.args(["netns", "exec", space]).args(&line);
        // In a group of its own: Ctrl-C stops the lab, which ends its programs.
        process.process_group(0).stdin(Stdio::piped());
        process.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = process.spawn().map_err(|error| {
            LabError::Machine(format!("cannot start `{}`: {error}", line.join(" ")))
        })?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("stdout is a pipe");
        let mut stderr = child.stderr.take().expect("stderr is a pipe");
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let words = Arc::new(Mutex::new(VecDeque::new()));
        let kept = words.clone();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stderr.read(&mut buffer) {
                let mut kept = kept.lock().expect("no holder panics");
                kept.extend(&buffer[..count]);
                let extra = kept.len().saturating_sub(WORDS_BYTES);
                kept.drain(..extra);
            }
        });
        Ok(Self {
            language,
            role,
            child,
            stdin,
            lines,
            words,
        })
    }

    /// Sends a document. Fails if the program has ended.
    pub fn send(&mut self, document: &impl Serialize) -> Result<(), LabError> {
        let text = serde_json::to_string(document).expect("the lab's documents are JSON");
        let stdin = self.stdin.as_mut().expect("stdin is open until close");
        writeln!(stdin, "{text}")
            .and_then(|()| stdin.flush())
            .map_err(|_| self.problem("ended before its job"))
    }

    /// Closes the program's stdin: a server prints its counts and ends.
    pub fn close(&mut self) {
        self.stdin = None;
    }

    /// Waits for the next document, until `limit`. Fails if the program ends, sends something else, sends nothing in
    /// time, or the user interrupts.
    pub fn receive<T: DeserializeOwned>(
        &self,
        limit: Instant,
        interrupted: &AtomicBool,
    ) -> Result<T, LabError> {
        loop {
            if interrupted.load(Ordering::Relaxed) {
                return Err(LabError::Interrupted);
            }
            match self.lines.recv_timeout(TICK) {
                Ok(line) => {
                    return serde_json::from_str(&line)
                        .map_err(|error| self.problem(&format!("said {line:.80}: {error}")));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.problem("ended early")),
                Err(RecvTimeoutError::Timeout) if Instant::now() > limit => {
                    return Err(self.problem("said nothing in time"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn problem(&self, problem: &str) -> LabError {
        // The last stderr output and the end of stdout come through different pipes.
        thread::sleep(TICK);
        let words = self.words.lock().expect("no holder panics").clone();
        let words = String::from_utf8_lossy(&Vec::from(words))
            .trim()
            .replace('\n', " | ");
        LabError::Program {
            language: self.language.name(),
            role: self.role.name(),
            problem: problem.to_owned(),
            words: if words.is_empty() {
                "none".to_owned()
            } else {
                words
            },
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

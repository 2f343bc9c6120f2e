//! `isolane rdma top`: who uses the RDMA devices now, and what each may.
//!
//! Method: the daemon's snapshot is read over its control socket every interval; rates are differences of two.
//! On a terminal the view is drawn over itself; elsewhere one view follows the other.

mod view;

use crate::output;
use crate::status::Status;
use anyhow::{Context, Result, bail};
use isolaned::settings::CONTROL_PATH;
use isolaned::snapshot::Snapshot;
use serde::Serialize;
use std::io::{IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest answer: a full daemon's snapshot is a tenth of it.
const ANSWER_MAX: u64 = 256 << 20;
/// Home, and clear what is below.
const OVER: &str = "\x1b[H\x1b[J";

/// Arguments of `isolane rdma top`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Print one view and end
    #[arg(long)]
    once: bool,
    /// Print snapshots as JSON, one line each
    #[arg(long)]
    json: bool,
    /// Time between two views
    #[arg(long, default_value = "1s", value_parser = crate::numbers::interval)]
    interval: Duration,
    /// Leave out the queue pairs
    #[arg(long)]
    brief: bool,
    /// Control socket of the daemon
    #[arg(long, value_name = "PATH", default_value = CONTROL_PATH)]
    socket: PathBuf,
}

/// How a command prints its view again and again.
#[derive(Debug, clap::Args)]
pub(crate) struct Views {
    /// Print one view and end
    #[arg(long)]
    pub(crate) once: bool,
    /// Print JSON, one line for each view
    #[arg(long)]
    json: bool,
    /// Time between two views
    #[arg(long, default_value = "1s", value_parser = crate::numbers::interval)]
    pub(crate) interval: Duration,
}

impl Views {
    /// Prints one view: JSON, or `text`, which a terminal shows in place of the view before.
    pub(crate) fn print(&self, value: &impl Serialize, text: &str) -> Result<()> {
        let draw_over = std::io::stdout().is_terminal() && !self.once;
        match (self.json, draw_over) {
            (true, _) => output::print(&output::compact_json(value)?),
            (false, true) => output::print(&format!("{OVER}{text}")),
            (false, false) => output::print(text),
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let mut before = snapshot(&arguments.socket)?;
    if arguments.json {
        loop {
            let line = serde_json::to_string(&before).context("cannot make JSON")?;
            output::print(&(line + "\n"))?;
            if arguments.once {
                return Ok(Status::Done);
            }
            std::thread::sleep(arguments.interval);
            before = snapshot(&arguments.socket)?;
        }
    }
    let draw_over = std::io::stdout().is_terminal() && !arguments.once;
    loop {
        std::thread::sleep(arguments.interval);
        let now = snapshot(&arguments.socket)?;
        let text = view::text(&before, &now, arguments.brief);
        match draw_over {
            true => output::print(&format!("{OVER}{text}"))?,
            false => output::print(&text)?,
        }
        if arguments.once {
            return Ok(Status::Done);
        }
        if !draw_over {
            output::print("\n")?;
        }
        before = now;
    }
}

/// The daemon's snapshot of now.
pub(super) fn snapshot(socket: &Path) -> Result<Snapshot> {
    let stream = UnixStream::connect(socket);
    let mut stream = match stream {
        Ok(stream) => stream,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            bail!(
                "{} may not be opened: run as root, or join the daemon's group",
                socket.display()
            )
        }
        Err(error) => bail!(
            "no daemon answers at {} ({error}); start isolaned, or name its control_socket with --socket",
            socket.display()
        ),
    };
    let asked = || {
        format!(
            "the daemon at {} does not answer as isolaned does",
            socket.display()
        )
    };
    stream
        .set_read_timeout(Some(PATIENCE))
        .with_context(asked)?;
    stream
        .set_write_timeout(Some(PATIENCE))
        .with_context(asked)?;
    stream
        .write_all(b"GET /snapshot HTTP/1.0\r\n\r\n")
        .with_context(asked)?;
    let mut answer = String::new();
    stream
        .take(ANSWER_MAX)
        .read_to_string(&mut answer)
        .with_context(asked)?;
    let (head, body) = answer.split_once("\r\n\r\n").with_context(asked)?;
    if !head.starts_with("HTTP/1.1 200") {
        bail!("{}: {}", asked(), head.lines().next().unwrap_or_default());
    }
    serde_json::from_str(body)
        .with_context(|| format!("{}; are both of the same release?", asked()))
}

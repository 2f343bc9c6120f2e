//! `isolane rdma top`: who uses the RDMA devices now, and what each may.
//!
//! Method: the daemon's snapshot is read over its control socket every interval; rates are differences of two.
//! On a terminal the view is drawn over itself; elsewhere one view follows the other.

mod view;

use crate::screen::Screen;
use crate::status::Status;
use anyhow::{Context, Result, bail};
use isolaned::settings::CONTROL_PATH;
use isolaned::snapshot::Snapshot;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long the daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest answer: a full daemon's snapshot is a tenth of it.
const ANSWER_MAX: u64 = 256 << 20;

/// Arguments of `isolane rdma top`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    views: Views,
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
    /// Where to print them.
    pub(crate) fn screen(&self) -> Screen {
        Screen::new(self.json, !self.once)
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let Views {
        once,
        json,
        interval,
    } = arguments.views;
    let mut screen = arguments.views.screen();
    let mut before = snapshot(&arguments.socket)?;
    loop {
        // A snapshot as JSON needs no second one.
        if json {
            screen.print(&before, String::new)?;
            if once {
                return Ok(Status::Done);
            }
        }
        std::thread::sleep(interval);
        let now = snapshot(&arguments.socket)?;
        if !json {
            screen.print(&now, || view::text(&before, &now, arguments.brief))?;
            if once {
                return Ok(Status::Done);
            }
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

//! `isolane rdma top`: who uses the RDMA devices now, and what each may.
//!
//! Method: the daemon's snapshot is read over its control socket every interval; rates are differences of two.
//! On a terminal the view is drawn over itself; elsewhere one view follows the other.

mod view;

use super::watch::{self, AtRisk, Follower};
use crate::output;
use crate::screen::Screen;
use crate::status::Status;
use anyhow::{Context, Result, bail};
use isolaned::settings::CONTROL_PATH;
use isolaned::snapshot::Snapshot;
use serde::Serialize;
use std::collections::BTreeMap;
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
    /// Also name the tenants that may be in a known anomaly: the directory or the JSON of a hunt, or a file of published ones
    #[arg(long, value_name = "DIR|FILE")]
    anomalies: Option<PathBuf>,
    /// Also write these tenants as OpenMetrics text to this file, at each view
    #[arg(long, value_name = "FILE", requires = "anomalies")]
    metrics: Option<PathBuf>,
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
    let known = arguments.anomalies.as_deref();
    let mut follower = known.map(Follower::open).transpose()?;
    // A snapshot as JSON needs no second one, but the counters of an anomaly do.
    let is_instant = json && follower.is_none();
    loop {
        if is_instant {
            screen.print(&before, String::new)?;
            if once {
                return Ok(Status::Done);
            }
        }
        std::thread::sleep(interval);
        let now = snapshot(&arguments.socket)?;
        if !is_instant {
            let shown = Shown {
                snapshot: &now,
                anomalies: at_risk(follower.as_mut(), &now, arguments.metrics.as_deref())?,
            };
            screen.print(&shown, || {
                let found = shown.anomalies.as_deref();
                view::text(&before, &now, arguments.brief)
                    + &found.map_or_else(String::new, watch::text)
            })?;
            if once {
                return Ok(Status::Done);
            }
        }
        before = now;
    }
}

/// What `--json` prints: the daemon's snapshot, and the anomalies with `--anomalies`.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    snapshot: &'a Snapshot,
    #[serde(skip_serializing_if = "Option::is_none")]
    anomalies: Option<Vec<AtRisk>>,
}

/// The anomalies that the daemon's tenants and other users may be in since the last call; also writes them to `metrics`.
fn at_risk(
    follower: Option<&mut Follower>,
    now: &Snapshot,
    metrics: Option<&Path>,
) -> Result<Option<Vec<AtRisk>>> {
    let Some(follower) = follower else {
        return Ok(None);
    };
    let sessions = now.sessions.iter();
    let tenants: BTreeMap<u32, &str> = sessions
        .map(|session| (session.pid, session.tenant.as_str()))
        .collect();
    let found = follower.next(&tenants)?;
    if let Some(path) = metrics {
        output::write_file(path, &watch::metrics(&found))?;
    }
    Ok(Some(found))
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

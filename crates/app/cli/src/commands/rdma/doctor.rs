//! `isolane rdma doctor`: what this machine has for RDMA, what is wrong with it, and what to do.

use super::run::shim;
use super::top;
use crate::output;
use crate::status::Status;
use anyhow::Result;
use isolane_common_linux::Root;
use isolane_rdma_inventory::doctor;
use isolane_rdma_inventory::doctor::{Live, Software, Verdict, text};
use isolane_rdma_session::{SOCKET_PATH, environment};
use isolaned::settings::CONTROL_PATH;
use isolaned::snapshot::DeviceSnapshot;
use std::env;
use std::path::Path;

/// What the help of the command ends with.
const EXIT_CODES: &str = "\
Exit codes:
  0    nothing is wrong (with --strict: and there is no warning)
  1    something is wrong
  2    no device has that name, while there are others
  3    this machine has no RDMA device, with any value of --device; the report says what is missing";

/// Arguments of `isolane rdma doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    /// Check this device alone
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Count warnings as failures
    #[arg(long)]
    strict: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let root = Root::with_emulated_devices();
    let mut live = Live::read(&root, software());
    // Without a daemon, or without the right to its control socket, a loaded preload library counts as a session.
    if let Ok(snapshot) = top::snapshot(Path::new(CONTROL_PATH)) {
        live.sessions = Some(snapshot.paced());
        let foreign = snapshot
            .devices
            .into_iter()
            .filter(|device| device.has_foreign);
        let rate = |device: DeviceSnapshot| Some((device.name, device.foreign_bytes_per_s?));
        live.foreign = foreign.filter_map(rate).collect();
    }
    let examination = doctor::examine(&root, &live, arguments.device.as_deref())?;
    match arguments.json {
        true => output::print_json(&examination)?,
        false => output::show(&text::render(&examination))?,
    }
    if let (false, Some(name)) = (examination.rdma, &arguments.device) {
        output::note(&format!(
            "isolane: no device {name:?}: this machine has no RDMA device at all; the report says what it takes to have one"
        ));
    }
    let limit = match arguments.strict {
        true => Verdict::Warn,
        false => Verdict::Fail,
    };
    Ok(match (examination.rdma, examination.worst() >= limit) {
        (false, _) => Status::Missing,
        (true, true) => Status::No,
        (true, false) => Status::Done,
    })
}

fn software() -> Software {
    let socket = env::var(environment::SOCKET).ok();
    Software {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        socket: socket
            .filter(|path| !path.is_empty())
            .unwrap_or_else(|| SOCKET_PATH.to_owned()),
        shim: shim(),
    }
}

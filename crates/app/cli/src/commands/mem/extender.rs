//! `isolane mem extender`: reports to the Kubernetes scheduler which machines suit an application.

use crate::inputs::bad;
use crate::output;
use crate::status::Status;
use anyhow::{Context, Result};
use isolane_memory_service::fleet::server;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the help of the command ends with.
const AFTER: &str = "\
Nodes need a fresh summary in their annotation, by a timer on each of them:
  kubectl annotate --overwrite node NODE isolane.dev/machine=\"$(isolane mem status --summary)\"
The scheduler's configuration names this address: urlPrefix http://ADDRESS, filterVerb filter, prioritizeVerb prioritize, \
nodeCacheCapable false.";

/// Arguments of `isolane mem extender`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// Address and port; the protocol is HTTP without TLS, so run it beside the scheduler
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9494")]
    listen: String,
}

pub(super) fn run(arguments: &Arguments) -> Result<Status> {
    let address: SocketAddr = arguments.listen.parse().map_err(|_| {
        bad(format!(
            "--listen {}: must be an address and a port, like 127.0.0.1:9494 or [::1]:9494",
            arguments.listen
        ))
    })?;
    let listener = TcpListener::bind(address)
        .with_context(|| format!("cannot listen on {address}; choose another with --listen"))?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    ctrlc::set_handler(move || stopped.store(true, Ordering::Relaxed))
        .context("cannot wait for signals")?;
    let bound = listener.local_addr().unwrap_or(address);
    output::note(&format!(
        "isolane mem extender: answers the scheduler on http://{bound}; Ctrl-C ends it"
    ));
    server::serve(listener, &stop, &|line| output::note(line))
        .with_context(|| format!("serving on {bound} ended"))?;
    Ok(Status::Done)
}

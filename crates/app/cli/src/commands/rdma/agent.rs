//! `isolane rdma agent`: the end of a session that starts workers, on this machine or for another.

use crate::inputs::{self, bad};
use crate::output;
use crate::status::Status;
use anyhow::{Context, Result, bail};
use isolane_common_quantities::units::Duration;
use isolane_study_testbed_verbs::agent::{AgentOptions, serve};
use isolane_study_testbed_verbs::identity;
use isolane_study_testbed_verbs::link::PORT;
use isolane_study_testbed_verbs::listen::{ListenOptions, Listener};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// File name of the daemon.
const DAEMON: &str = "isolaned";
/// Sessions at once unless another number is given.
const SESSIONS: u32 = 4;

/// Arguments of `isolane rdma agent`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,
    /// Serve one session on standard input and output, as `ssh HOST isolane rdma agent --stdio` does
    #[arg(long, conflicts_with = "listen")]
    stdio: bool,
    /// Wait for controllers on this address, like 0.0.0.0:18530; the port may be left out
    #[arg(long, value_name = "ADDRESS", requires = "identity")]
    listen: Option<String>,
    /// Directory with this machine's certificates, made by `isolane rdma agent init`
    #[arg(long, value_name = "DIR", requires = "listen")]
    identity: Option<PathBuf>,
    /// Sessions at once
    #[arg(long, default_value_t = SESSIONS, value_parser = crate::numbers::whole::<u32>(1..=64), requires = "listen")]
    sessions: u32,
    /// End the daemon of this directory when standard input ends; agents start it
    #[arg(long, value_name = "DIR", hide = true, conflicts_with_all = ["stdio", "listen"])]
    guard: Option<PathBuf>,
    /// Longest session, like 100s [default: a day]
    #[arg(long, value_parser = inputs::duration)]
    lifetime: Option<Duration>,
}

/// What else than serving.
#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Make a private authority in DIR, and in DIR/NAME the certificates of each machine
    Init(Init),
}

/// Arguments of `isolane rdma agent init`.
#[derive(Debug, clap::Args)]
struct Init {
    /// Where the authority is or will be
    directory: PathBuf,
    /// Names or addresses by which machines are reached, and `controller` for the controller
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What `init` prints as JSON.
#[derive(Serialize)]
struct Made<'a> {
    directories: Vec<&'a Path>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    if let Some(Action::Init(init)) = &arguments.action {
        return make(init);
    }
    if let Some(directory) = &arguments.guard {
        return guard(&program, directory);
    }
    if let (Some(address), Some(identity)) = (&arguments.listen, &arguments.identity) {
        return listen(arguments, address, identity, program);
    }
    if !arguments.stdio {
        bail!(bad(
            "isolane rdma agent needs --stdio (under ssh), or --listen ADDRESS and --identity DIR"
        ));
    }
    let mut options = AgentOptions::of(program);
    if let Some(lifetime) = arguments.lifetime {
        options.lifetime = std::time::Duration::from_nanos(lifetime.as_ps() / 1000);
    }
    serve(std::io::stdin(), std::io::stdout(), &options)?;
    Ok(Status::Done)
}

/// The daemon beside this program, or the one of the search path.
fn guard(program: &Path, directory: &Path) -> Result<Status> {
    let beside = program.with_file_name(DAEMON);
    let daemon = match beside.is_file() {
        true => beside,
        false => PathBuf::from(DAEMON),
    };
    match isolane_study_testbed_verbs::pace::guard(&daemon, directory) {
        Ok(()) => Ok(Status::Done),
        Err(reason) => bail!(reason),
    }
}

fn listen(
    arguments: &Arguments,
    address: &str,
    identity: &Path,
    program: PathBuf,
) -> Result<Status> {
    let mut session = ["rdma", "agent", "--stdio"].map(str::to_owned).to_vec();
    if let Some(lifetime) = arguments.lifetime {
        session.extend([
            "--lifetime".to_owned(),
            lifetime.to_string().replace(' ', ""),
        ]);
    }
    let listener = Listener::bind(ListenOptions {
        address: with_port(address),
        identity: identity.to_owned(),
        sessions: arguments.sessions as usize,
        program,
        arguments: session,
    })?;
    output::note(&format!(
        "isolane rdma agent: listening on {}",
        listener.address()
    ));
    listener.serve(&|line| output::note(&format!("isolane rdma agent: {line}")));
    Ok(Status::Done)
}

/// `address` with the default port where it names none.
fn with_port(address: &str) -> String {
    let port = match address.rsplit_once(':') {
        Some((host, port)) => {
            let bare = host.contains(':') && !host.ends_with(']');
            !bare && port.parse::<u16>().is_ok()
        }
        None => false,
    };
    match (port, address.contains(':') && !address.starts_with('[')) {
        (true, _) => address.to_owned(),
        (false, true) => format!("[{address}]:{PORT}"),
        (false, false) => format!("{address}:{PORT}"),
    }
}

fn make(init: &Init) -> Result<Status> {
    let made = identity::create(&init.directory, &init.names)?;
    let directories: Vec<&Path> = made.iter().map(PathBuf::as_path).collect();
    if init.json {
        output::print_json(&Made { directories })?;
        return Ok(Status::Done);
    }
    for directory in directories {
        output::print(&format!("{}\n", directory.display()))?;
    }
    output::note(
        "copy each directory to its machine (scp -rp); keep the authority's own directory to yourself",
    );
    Ok(Status::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_added_where_none_is() {
        for (given, full) in [
            ("0.0.0.0", "0.0.0.0:18530"),
            ("0.0.0.0:7", "0.0.0.0:7"),
            ("::1", "[::1]:18530"),
            ("[::1]", "[::1]:18530"),
            ("[::1]:7", "[::1]:7"),
            ("nodea", "nodea:18530"),
        ] {
            assert_eq!(with_port(given), full);
        }
    }
}

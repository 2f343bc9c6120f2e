//! `isolane rdma enforce`: holds tenants that are not trusted to what a file grants them.

use crate::file_kind::Wanted;
use crate::inputs::{self, bad};
use crate::output;
use crate::status::{BadInput, Status};
use crate::text::counted;
use anyhow::{Context, Result};
use isolane_common_quantities::units;
use isolane_rdma_enforcer::container;
use isolane_rdma_enforcer::control::supervisor::Mode;
use isolane_rdma_enforcer::enforcer::{Enforcer, Options, PAUSE};
use isolane_rdma_enforcer::guardian::{DIRECTORY, serve};
use isolane_rdma_scenario::enforcement;
use isolane_rdma_scenario::enforcement::Enforcement;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What the help of the command ends with.
const AFTER: &str = "\
Control verbs are delayed for programs started by `isolane rdma run --enforce` and for containers whose seccomp profile \
names the guardian's socket (--print-seccomp shows what to add to the profile). Needs root.

Exit codes:
  0    done: the time of --once or --duration is over
  1    with --once or --duration: a tenant exceeds something
  2    a mistake in the file or on the command line
  3    no RDMA device, no privilege, or another enforcer
  130  interrupted";

/// Time that --once looks at.
const ONCE: Duration = Duration::from_secs(1);
/// Time between two status lines.
const STATUS: Duration = Duration::from_secs(1);

/// Arguments of `isolane rdma enforce`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// File with the tenants, how to recognise each, and their limits
    #[arg(required_unless_present_any = ["guardian", "print_seccomp"])]
    profiles: Option<PathBuf>,
    /// Observe for one second, print the result, and end; nothing is delayed, sent or capped
    #[arg(long, conflicts_with = "duration")]
    once: bool,
    /// End after this time, like 10s
    #[arg(long, value_name = "TIME")]
    duration: Option<String>,
    /// Report only: nothing is delayed, sent or capped
    #[arg(long)]
    shadow: bool,
    /// Check the file and end
    #[arg(long)]
    check: bool,
    /// Observe this RDMA device alone
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Print this tenant's figures alone
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Send congestion notifications for a device through a network interface
    #[arg(long, value_name = "DEVICE=INTERFACE")]
    notify: Vec<String>,
    /// Directory of the sockets
    #[arg(long, value_name = "PATH", default_value = DIRECTORY)]
    directory: PathBuf,
    /// Socket of the daemon, which limits the rates of tenants under the preload library
    #[arg(long, value_name = "PATH", default_value = isolane_rdma_session::SOCKET_PATH)]
    daemon: PathBuf,
    /// Print JSON: one document at the end, or without an end one line a second
    #[arg(long)]
    json: bool,
    /// Print what a container's seccomp profile needs
    #[arg(long)]
    print_seccomp: bool,
    /// Keep the listeners (started by the command itself)
    #[arg(long, hide = true)]
    guardian: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    if arguments.guardian {
        serve::serve(&arguments.directory).context("the guardian cannot serve")?;
        return Ok(Status::Done);
    }
    if arguments.print_seccomp {
        output::print_json(&container::seccomp(&arguments.directory))?;
        return Ok(Status::Done);
    }
    let file = read(arguments)?;
    if arguments.check {
        return check(arguments, &file);
    }
    let end = end(arguments)?;
    let mut enforcer = Enforcer::start(options(arguments, file)?)?;
    let stopped = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&stopped);
    ctrlc::set_handler(move || stop.store(true, Ordering::Relaxed))
        .context("cannot wait for signals")?;
    let begun = Instant::now();
    let mut next = begun + STATUS;
    while !stopped.load(Ordering::Relaxed) && end.is_none_or(|end| begun.elapsed() < end) {
        enforcer.step()?;
        if Instant::now() >= next {
            next += STATUS;
            if end.is_none() || !arguments.json {
                say(arguments, &mut enforcer, false)?;
            }
        }
        std::thread::sleep(PAUSE);
    }
    let exceeded = say(arguments, &mut enforcer, true)?;
    drop(enforcer);
    Ok(match (end, exceeded) {
        (None, _) => Status::Interrupted,
        (Some(_), _) if stopped.load(Ordering::Relaxed) => Status::Interrupted,
        (Some(_), true) => Status::No,
        (Some(_), false) => Status::Done,
    })
}

/// What the command takes.
const LIMITS: Wanted = Wanted {
    kind: |_| false,
    words: "tenants with their limits (TOML, docs/guides/enforce.md)",
};

fn read(arguments: &Arguments) -> Result<Enforcement> {
    let path = arguments.profiles.as_ref().expect("clap requires it here");
    let text = inputs::read(path, &LIMITS)?;
    let file = enforcement::parse(&text, &path.display().to_string())?;
    if let Some(name) = &arguments.tenant
        && file.tenants.iter().all(|tenant| tenant.name != *name)
    {
        let names = file.tenants.iter().map(|tenant| tenant.name.as_str());
        return Err(bad(format!(
            "--tenant {name}: {} has no such tenant{}",
            path.display(),
            inputs::suggestion(name, names)
        )));
    }
    Ok(file)
}

fn check(arguments: &Arguments, file: &Enforcement) -> Result<Status> {
    isolane_rdma_enforcer::law::Law::new(&file.tenants, file.capacity)?;
    match arguments.json {
        true => output::print_json(file)?,
        false => {
            let tenants = counted(file.tenants.len() as u64, "tenant");
            output::print(&format!("{tenants}, no mistake\n"))?;
        }
    }
    Ok(Status::Done)
}

fn end(arguments: &Arguments) -> Result<Option<Duration>> {
    if arguments.once {
        return Ok(Some(ONCE));
    }
    let Some(text) = &arguments.duration else {
        return Ok(None);
    };
    let duration: units::Duration = inputs::duration(text).map_err(BadInput)?;
    Ok(Some(Duration::from_secs_f64(duration.as_secs_f64())))
}

fn options(arguments: &Arguments, file: Enforcement) -> Result<Options> {
    let mut notify = BTreeMap::new();
    for text in &arguments.notify {
        let Some((device, interface)) = text.split_once('=') else {
            return Err(bad(format!(
                "--notify {text}: must be written DEVICE=INTERFACE"
            )));
        };
        notify.insert(device.to_owned(), interface.to_owned());
    }
    let directory = std::path::absolute(&arguments.directory)?;
    let own = std::env::current_exe().context("cannot find this program to start a guardian")?;
    let guardian: Vec<OsString> = vec![
        own.into(),
        "rdma".into(),
        "enforce".into(),
        "--guardian".into(),
        "--directory".into(),
        directory.clone().into(),
    ];
    Ok(Options {
        file,
        directory,
        guardian,
        mode: match arguments.shadow || arguments.once {
            true => Mode::Shadow,
            false => Mode::Enforce,
        },
        device: arguments.device.clone(),
        notify,
        daemon: arguments.daemon.clone(),
        needs_device: true,
    })
}

/// Prints the state; returns whether a tenant exceeds a limit.
fn say(arguments: &Arguments, enforcer: &mut Enforcer, last: bool) -> Result<bool> {
    let mut status = enforcer.status();
    if let Some(name) = &arguments.tenant {
        status.tenants.retain(|tenant| tenant.name == *name);
        status
            .unsupervised
            .retain(|process| process.tenant == *name);
    }
    match (arguments.json, last) {
        (true, true) => output::print_json(&status)?,
        (true, false) => output::print(&output::compact_json(&status)?)?,
        (false, _) => output::print(&status.text())?,
    }
    Ok(status
        .tenants
        .iter()
        .any(|tenant| !tenant.verdicts.is_empty()))
}

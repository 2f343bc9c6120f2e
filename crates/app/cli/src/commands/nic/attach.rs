//! `isolane nic attach`: Titan on a device, with a controller beside it.
//!
//! The controller is this program again, detached from the terminal, or this process with `--foreground`. The
//! controller may end at any time: queue assignment continues in the kernel.

use super::Place;
use crate::output;
use crate::status::Status;
use crate::text::counted;
use anyhow::{Context, Result, bail};
use isolane_common_linux::notify::Notify;
use isolane_ethernet_attach::bond::{self, BondController};
use isolane_ethernet_attach::control::{Controller, Ended};
use isolane_ethernet_attach::journal::Journal;
use isolane_ethernet_attach::options::{Named, Options, Segments, Weights};
use isolane_ethernet_attach::{NicError, System, attach};
use serde::Serialize;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long the controller may take to say that it runs: 10 s were too short on an emulated machine whose host had a load of 24.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// Arguments of `isolane nic attach`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    /// Source of a flow's weight: flow (every weight is one), dscp (the class selector), cgroup (the container)
    #[arg(long, default_value = "flow", value_parser = ["flow", "dscp", "cgroup"])]
    weights: String,
    /// Segments while flows share queues: auto (16K), off (never changed), or a size from 4K to 64K
    #[arg(long, value_name = "SIZE", default_value = "auto")]
    dsos: String,
    /// Give each processor queues of its own; XPS maps of the device are empty until detach
    #[arg(long)]
    xps: bool,
    /// Keep one queue light for small packets and for DSCP EF, CS6 and CS7
    #[arg(long)]
    latency: bool,
    /// A container and its weight (100 is usual), like /tenants.slice/web=200
    #[arg(long, value_name = "PATH=WEIGHT")]
    container: Vec<String>,
    /// Every child of this cgroup is a container with the weight of its cpu.weight
    #[arg(long, value_name = "PATH")]
    slice: Option<String>,
    /// Attach even if the driver is known to choose queues itself; the controller detects this and stops the assignment
    #[arg(long)]
    any_driver: bool,
    /// Run the controller in the foreground, and detach at its end
    #[arg(long)]
    foreground: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Control what is attached (started by the command itself)
    #[arg(long, hide = true)]
    controller: bool,
}

/// What was done.
#[derive(Debug, Serialize)]
struct Attached<'a> {
    device: &'a str,
    queues: u16,
    options: &'a Options,
    controller: Option<u32>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let options = options(arguments)?;
    let system = arguments.place.enter()?;
    let device = arguments.place.device.as_str();
    if arguments.controller {
        return control(&Target::of(&system, device)?);
    }
    if system.is_private() && !arguments.foreground {
        bail!(NicError::Kernel {
            action: format!("attach {device}"),
            detail: "this process has its own mounts, as under `ip netns exec`, so the BPF programs would end with it; \
                     use --netns NAME outside of `ip netns exec`, or --foreground"
                .to_owned(),
        });
    }
    let target = Target::of(&system, device)?;
    let journals = target.attach(options)?;
    if arguments.foreground {
        return foreground(arguments, &target, &journals);
    }
    let started = start(arguments, &target, &journals[0]);
    if let Err(error) = started {
        // The controller may have changed things, and the journal with them, before it failed.
        target
            .undo(&journals)
            .context("and it could not be undone")?;
        return Err(error);
    }
    say(arguments, &target)?;
    Ok(Status::Done)
}

/// What is attached: a device, or the devices of a bond.
struct Target<'a> {
    system: &'a System,
    device: &'a str,
    is_bond: bool,
}

impl<'a> Target<'a> {
    fn of(system: &'a System, device: &'a str) -> Result<Self, NicError> {
        Ok(Self {
            system,
            device,
            is_bond: bond::is_bond(device)?,
        })
    }

    /// At least one journal.
    fn attach(&self, options: Options) -> Result<Vec<Journal>, NicError> {
        match self.is_bond {
            true => bond::attach(self.system, self.device, options),
            false => Ok(vec![attach::attach(self.system, self.device, options)?]),
        }
    }

    /// At least one journal.
    fn journals(&self) -> Result<Vec<Journal>, NicError> {
        let found = match self.is_bond {
            true => bond::journals(self.system, self.device)?,
            false => Vec::from_iter(Journal::of_device(self.system, self.device)?),
        };
        match found.is_empty() {
            true => Err(NicError::NotAttached {
                place: self.system.place(),
                device: self.device.to_owned(),
            }),
            false => Ok(found),
        }
    }

    /// Controls it until `stop` is set or it ends; `started` is called when the controllers are in the journals.
    fn control(&self, stop: &AtomicBool, started: impl FnOnce()) -> Result<Ended, NicError> {
        if self.is_bond {
            let mut controllers = BondController::new(self.system, self.device)?;
            started();
            return controllers.run(stop, &mut |line| output::note(&format!("isolane: {line}")));
        }
        let mut controller = Controller::new(self.system, self.journals()?.remove(0))?;
        started();
        controller.run(stop)
    }

    fn undo(&self, journals: &[Journal]) -> Result<(), NicError> {
        match self.is_bond {
            true => bond::undo_all(self.system, self.device),
            false => attach::undo_latest(self.system, &journals[0]),
        }
    }
}

fn options(arguments: &Arguments) -> Result<Options> {
    let containers: std::result::Result<Vec<Named>, NicError> = arguments
        .container
        .iter()
        .map(|text| text.parse())
        .collect();
    let options = Options {
        weights: match arguments.weights.as_str() {
            "dscp" => Weights::Dscp,
            "cgroup" => Weights::Cgroup,
            _ => Weights::Flow,
        },
        segments: arguments.dsos.parse::<Segments>()?,
        pools: arguments.xps,
        latency: arguments.latency,
        containers: containers?,
        slice: arguments.slice.clone(),
        any_driver: arguments.any_driver,
    };
    options.check()?;
    Ok(options)
}

/// The process that stays.
fn control(target: &Target<'_>) -> Result<Status> {
    // A session of its own: the terminal that we were started from may go.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/").context("cannot leave the directory")?;
    let stop = stop_flag()?;
    target.control(&stop, || {})?;
    Ok(Status::Done)
}

fn foreground(arguments: &Arguments, target: &Target<'_>, journals: &[Journal]) -> Result<Status> {
    let stop = stop_flag()?;
    let ended = target.control(&stop, || {
        if let Err(error) = say(arguments, target) {
            output::note(&format!("isolane: {error:#}"));
        }
        // Flows have queues, and the controller is in the journal.
        Notify::from_environment()
            .ready_in_time(&format!("flows of {} have queues", target.device));
    });
    if matches!(ended, Err(_) | Ok(Ended::Stopped)) {
        target
            .undo(journals)
            .context("and it could not be undone")?;
    }
    Ok(match ended? {
        Ended::Stopped => Status::Interrupted,
        Ended::Gone => bail!(NicError::Gone {
            device: target.device.to_owned(),
        }),
        Ended::Detached => Status::Done,
    })
}

fn stop_flag() -> Result<Arc<AtomicBool>> {
    let stopped = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&stopped);
    ctrlc::set_handler(move || stop.store(true, Ordering::Relaxed))
        .context("cannot wait for signals")?;
    Ok(stopped)
}

/// The most that is read of what a controller wrote last, bytes.
const LOG_MAX: u64 = 64 << 10;

/// Starts the controller and waits until it says that it runs.
fn start(arguments: &Arguments, target: &Target<'_>, journal: &Journal) -> Result<()> {
    let system = target.system;
    let (private, log) = (system.make_private()?, journal.log());
    let file = private
        .create(&log)
        .with_context(|| format!("cannot write {}", system.run().join(&log).display()))?;
    let own = std::env::current_exe().context("cannot find this program to start a controller")?;
    let mut command = Command::new(own);
    command.args(["nic", "attach", &arguments.place.device, "--controller"]);
    if let Some(name) = &arguments.place.netns {
        command.args(["--netns", name]);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file);
    let mut child = command.spawn().context("cannot start a controller")?;
    let begun = Instant::now();
    let mut ended = false;
    while !ended && begun.elapsed() < PATIENCE {
        let is_controlled = |journal: &Journal| journal.running(system).is_some();
        if target.journals()?.iter().all(is_controlled) {
            return Ok(());
        }
        let status = child.try_wait().context("cannot watch the controller")?;
        ended = status.is_some();
        thread::sleep(PAUSE);
    }
    let _ = child.kill();
    let _ = child.wait();
    let said = private
        .read(&log, LOG_MAX)
        .ok()
        .flatten()
        .unwrap_or_default();
    match (ended, said.trim()) {
        (false, "") => bail!("the controller did not start within {PATIENCE:?}"),
        (_, said) => bail!("the controller did not start: {said}"),
    }
}

fn say(arguments: &Arguments, target: &Target<'_>) -> Result<()> {
    let journals = target.journals()?;
    let controller = |journal: &Journal| {
        let controller = journal.running(target.system);
        controller.map(|controller| controller.process)
    };
    if arguments.json {
        let mut attached: Vec<Attached<'_>> = Vec::new();
        for journal in &journals {
            attached.push(Attached {
                device: &journal.device,
                queues: journal.queues,
                options: &journal.options,
                controller: controller(journal),
            });
        }
        return match target.is_bond {
            true => output::print_json(&attached),
            false => output::print_json(&attached[0]),
        };
    }
    let mut text = String::new();
    for journal in &journals {
        text.push_str(&format!(
            "{}: {}; each new flow gets the queue with the least weight. Process {} controls the device, and checks each second that flows use the chosen queues.\n",
            journal.device,
            counted(u64::from(journal.queues), "queue"),
            controller(journal).unwrap_or_default()
        ));
        text.push_str(&match &journal.weight_interface {
            Some(name) => format!("Queue weights go to the device by {name}.\n"),
            None => "The device takes no queue weights: it serves its queues in turn.\n".to_owned(),
        });
    }
    text.push_str(&format!(
        "`isolane nic status {0}{netns}` shows queues and flows; `isolane nic detach {0}{netns}` restores the device.\n",
        target.device,
        netns = target.system.place()
    ));
    output::print(&text)
}

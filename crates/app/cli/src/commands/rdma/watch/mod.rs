//! `isolane rdma watch`: who uses the RDMA devices, and how near each known limit is.
//!
//! Reads counters, and the kernel's list of RDMA objects. Needs no daemon and no root, and changes nothing.

mod risks;
mod view;

use crate::inputs::{self, bad};
use crate::screen::Views;
use crate::status::Status;
use anyhow::{Context, Result, anyhow, bail};
use isolane_common_linux::{HostError, Root};
use isolane_rdma_inventory::inventory::Inventory;
use isolane_rdma_inventory::rdma::Connection;
use isolane_rdma_inventory::watch::{Known, Reading, View, Wanted};
use risks::Anomalies;
pub(super) use risks::{AtRisk, metrics, text};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// What the help of the command ends with.
const AFTER: &str = "\
Reads counters and the kernel's list of RDMA objects; opens no device and changes nothing. Listing the objects makes the \
driver query each queue pair: with thousands of queue pairs use --no-users or a long --interval.

Exit codes:
  0    --count views were printed, or Ctrl-C without --count
  2    wrong usage, or no device has that name, while there are others
  3    this machine has no RDMA device
  130  interrupted before --count views";

/// Arguments of `isolane rdma watch`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// Watch this device alone
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    #[command(flatten)]
    views: Views,
    /// Leave out the users, whose list makes the driver query each queue pair
    #[arg(long)]
    no_users: bool,
    /// Also read `ethtool -S`: pauses, drops and PCIe stalls of some drivers
    #[arg(long)]
    ethtool: bool,
    /// The device's profile, for limits that no counter shows (see `isolane catalog profiles`)
    #[arg(long, value_parser = inputs::profile_names(), hide_possible_values = true)]
    profile: Option<String>,
    /// Also compare the users with known anomalies: the directory or the JSON of a hunt, or a file of published ones [default:
    /// the published ones of --profile, if there are any]
    #[arg(long, value_name = "DIR|FILE", conflicts_with_all = ["no_users", "root"])]
    anomalies: Option<PathBuf>,
    /// Read a copy of /sys and /proc below this directory instead of this machine
    #[arg(long, value_name = "DIRECTORY")]
    root: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Status> {
    let known = arguments.profile.as_deref().map(known).transpose()?;
    let anomalies = Anomalies::read(arguments.anomalies.as_deref(), arguments.profile.as_deref())?;
    let mut devices = Devices::open(Scope {
        root: arguments.root.as_deref(),
        device: arguments.device.as_deref(),
        no_users: arguments.no_users,
        ethtool: arguments.ethtool,
    })?;
    let (send, interrupted) = channel();
    ctrlc::set_handler(move || {
        let _ = send.send(());
    })
    .context("cannot catch Ctrl-C")?;
    let mut before = devices.read();
    let mut screen = arguments.views.screen();
    while arguments
        .views
        .count
        .is_none_or(|count| screen.shown() < count)
    {
        if waited(&interrupted, arguments.views.interval) {
            return Ok(match arguments.views.count {
                Some(_) => Status::Interrupted,
                None => Status::Done,
            });
        }
        let now = devices.read();
        if now.devices.is_empty() {
            bail!("the RDMA devices are gone; isolane rdma doctor says what this machine has");
        }
        let view = View::between(&devices.root, &before, &now, known.as_ref())
            .context("the steady clock did not advance")?;
        let at_risk = match (&anomalies, &now.users) {
            (Some(anomalies), Ok(users)) => Some(anomalies.of(users, &view, &BTreeMap::new())),
            _ => None,
        };
        let shown = Shown {
            view: &view,
            anomalies: at_risk.as_deref(),
        };
        screen.print(&shown, || {
            view::text(&view) + &at_risk.as_deref().map_or_else(String::new, text)
        })?;
        before = now;
    }
    Ok(Status::Done)
}

/// What is printed.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    view: &'a View,
    #[serde(skip_serializing_if = "Option::is_none")]
    anomalies: Option<&'a [AtRisk]>,
}

/// Waits for one interval; true at Ctrl-C.
fn waited(interrupted: &Receiver<()>, interval: Duration) -> bool {
    !matches!(
        interrupted.recv_timeout(interval),
        Err(RecvTimeoutError::Timeout)
    )
}

/// The limits of a device profile.
fn known(name: &str) -> Result<Known> {
    const MILLION: f64 = 1e6;
    let profile = inputs::profile(&mut inputs::library(), name)?;
    Ok(Known {
        source: format!("profile {}", profile.name),
        messages_per_s: profile.value("justitia", "message_rate_max_mps") * MILLION,
        context_entries: profile.value("cache", "context_entries"),
        protection_entries: profile.value("cache", "protection_entries"),
    })
}

/// The users of this machine's devices, compared with known anomalies for another command's view.
pub(super) struct Follower {
    devices: Devices<'static>,
    before: Reading,
    anomalies: Anomalies,
}

impl Follower {
    /// Compares with the anomalies of a hunt or of a file.
    pub(super) fn open(known: &Path) -> Result<Self> {
        let anomalies = Anomalies::read(Some(known), None)?
            .with_context(|| format!("{} has no anomalies", known.display()))?;
        let mut devices = Devices::open(Scope::default())?;
        Ok(Self {
            before: devices.read(),
            devices,
            anomalies,
        })
    }

    /// The anomalies that the users may be in since the last call; `tenants` are their tenants by process id.
    pub(super) fn next(&mut self, tenants: &BTreeMap<u32, &str>) -> Result<Vec<AtRisk>> {
        let now = self.devices.read();
        let users = now.users.as_ref();
        let users =
            users.map_err(|reason| anyhow!("the devices' users are not known: {reason}"))?;
        let view = View::between(&self.devices.root, &self.before, &now, None)
            .context("the steady clock did not advance")?;
        let found = self.anomalies.of(users, &view, tenants);
        self.before = now;
        Ok(found)
    }
}

/// What is read, and of which machine.
#[derive(Clone, Copy, Default)]
struct Scope<'a> {
    root: Option<&'a Path>,
    device: Option<&'a str>,
    no_users: bool,
    ethtool: bool,
}

/// The devices that are read.
struct Devices<'a> {
    root: Root,
    scope: Scope<'a>,
    objects: Objects,
    begun: Instant,
}

/// Where the list of RDMA objects is from.
enum Objects {
    Kernel(Connection),
    /// The broker of emulated devices.
    Emulator,
    /// There is none, for this reason.
    Unknown(String),
}

impl<'a> Devices<'a> {
    fn open(scope: Scope<'a>) -> Result<Self> {
        let root = match scope.root {
            Some(directory) if !directory.is_dir() => {
                return Err(bad(format!(
                    "--root {}: must be a directory with a copy of /sys",
                    directory.display()
                )));
            }
            Some(directory) => Root::at(directory),
            None => Root::with_emulated_devices(),
        };
        let names = root.list("/sys/class/infiniband");
        if names.is_empty() {
            bail!(
                "no RDMA device in {}; isolane rdma doctor says how to get one",
                root.path("/sys/class/infiniband").display()
            );
        }
        if let Some(device) = scope.device
            && !names.iter().any(|name| name == device)
        {
            let (device, known) = (device.to_owned(), names);
            return Err(HostError::NoDevice { device, known }.into());
        }
        let unknown = |reason: &str| Objects::Unknown(reason.to_owned());
        let objects = match (scope.root, scope.no_users) {
            (_, true) => unknown("not read (--no-users)"),
            (Some(_), _) => unknown("a copy of /sys has no list of RDMA objects"),
            (None, false) if Inventory::of_emulated(&root, None).is_some() => Objects::Emulator,
            (None, false) => match Connection::open() {
                Ok(connection) => Objects::Kernel(connection),
                Err(error) => Objects::Unknown(error.to_string()),
            },
        };
        Ok(Self {
            root,
            scope,
            objects,
            begun: Instant::now(),
        })
    }

    fn read(&mut self) -> Reading {
        let device = self.scope.device;
        let users = match &mut self.objects {
            Objects::Kernel(connection) => {
                Inventory::read(connection, device).map_err(|error| error.to_string())
            }
            Objects::Emulator => Ok(Inventory::of_emulated(&self.root, device).unwrap_or_default()),
            Objects::Unknown(reason) => Err(reason.clone()),
        };
        let wanted = Wanted {
            device,
            ethtool: self.scope.ethtool,
        };
        // The counters last: their time is the reading's.
        let taken_ns = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Reading::take(&self.root, wanted, users, taken_ns)
    }
}

//! The checks of `isolane rdma doctor`: the state of a machine with RDMA devices, and what to fix.
//!
//! Method: [`Live`] holds the answers of sockets, programs and limits; everything else is read below a [`Root`]. Each
//! check is one function that reads and returns [`Check`]s: a verdict, the observation with units, and what to do. No
//! check changes anything.
//!
//! * [`live`] - what is no file;
//! * [`machine`] - kernel, libraries, memory, cgroups, shim and daemon;
//! * [`device`] - state, rate, MTU, addresses, users of one device;
//! * [`ethernet`] - PFC, classes, ECN, type of service of a RoCE device;
//! * [`bus`] - PCIe, NUMA, IOMMU;
//! * [`missing`] - what to do on a machine without RDMA;
//! * [`text`] - the report as text.
//!
//! Limits: thresholds are those of common practice and named in place; a warning is a thing to look at, a failure is a
//! thing that will not work.

pub mod bus;
pub mod device;
pub mod ethernet;
pub mod live;
pub mod machine;
pub mod missing;
pub mod text;

pub use live::{Live, Software};

use crate::counters::Driver;
use crate::inventory::ProcessHoldings;
use isolane_common_linux::error::HostError;
use isolane_common_linux::root::Root;
use serde::Serialize;
use std::fmt;

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Correct.
    Ok,
    /// Not visible; `action` says how to check it.
    Unknown,
    /// It works, but is slow or risky.
    Warn,
    /// It does not work.
    Fail,
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
        })
    }
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Check {
    /// Device name; `None` for the machine.
    pub device: Option<String>,
    /// Name of the check.
    pub name: &'static str,
    /// Result of the check.
    pub verdict: Verdict,
    /// The observation, with units.
    pub seen: String,
    /// What to do, mostly commands; `None` if nothing is needed.
    pub action: Option<String>,
}

impl Check {
    fn new(name: &'static str, verdict: Verdict, seen: impl Into<String>) -> Self {
        Self {
            device: None,
            name,
            verdict,
            seen: seen.into(),
            action: None,
        }
    }

    fn ok(name: &'static str, seen: impl Into<String>) -> Self {
        Self::new(name, Verdict::Ok, seen)
    }

    fn warn(name: &'static str, seen: impl Into<String>, action: impl Into<String>) -> Self {
        Self::new(name, Verdict::Warn, seen).with_action(action)
    }

    fn fail(name: &'static str, seen: impl Into<String>, action: impl Into<String>) -> Self {
        Self::new(name, Verdict::Fail, seen).with_action(action)
    }

    fn unknown(name: &'static str, seen: impl Into<String>, action: impl Into<String>) -> Self {
        Self::new(name, Verdict::Unknown, seen).with_action(action)
    }

    fn with_action(mut self, action: impl Into<String>) -> Self {
        self.action = Some(action.into());
        self
    }

    fn of(mut self, device: &str) -> Self {
        self.device = Some(device.to_owned());
        self
    }
}

/// A whole report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Examination {
    /// Version of this format.
    pub version: u32,
    /// False if no RDMA works on the machine.
    pub rdma: bool,
    /// The checked devices.
    pub devices: Vec<DeviceName>,
    /// The checks: first the machine's, then each device's.
    pub checks: Vec<Check>,
    /// Holders of these devices' objects; empty if the kernel does not report them.
    pub processes: Vec<ProcessHoldings>,
}

/// A device in the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct DeviceName {
    /// Its name.
    pub name: String,
    /// Its driver's module.
    pub driver: String,
    /// Version of its firmware; empty for software devices.
    pub firmware: String,
}

impl Examination {
    /// The worst verdict; unknown counts as correct.
    pub fn worst(&self) -> Verdict {
        let verdicts = self.checks.iter().map(|check| check.verdict);
        verdicts.max().unwrap_or(Verdict::Ok)
    }

    /// Number of checks with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        let checks = self.checks.iter();
        checks.filter(|check| check.verdict == verdict).count()
    }
}

/// Version of [`Examination`].
pub const VERSION: u32 = 1;

/// Checks the machine, and every device or `device` alone. Fails with [`HostError::NoDevice`] if there are devices and
/// none has that name.
pub fn examine(root: &Root, live: &Live, device: Option<&str>) -> Result<Examination, HostError> {
    let known = root.list("/sys/class/infiniband");
    if known.is_empty() {
        return Ok(Examination {
            version: VERSION,
            rdma: false,
            devices: Vec::new(),
            checks: missing::checks(root, live),
            processes: Vec::new(),
        });
    }
    let chosen: Vec<String> = match device {
        Some(name) if known.iter().any(|known| known == name) => vec![name.to_owned()],
        Some(name) => {
            return Err(HostError::NoDevice {
                device: name.to_owned(),
                known,
            });
        }
        None => known,
    };
    let is_emulated = |name: &String| Driver::of(root, name) == Driver::Emulated;
    let mut checks = machine::checks(root, live, chosen.iter().all(is_emulated));
    let mut devices = Vec::new();
    for name in &chosen {
        let driver = Driver::of(root, name);
        let of_device = device_checks(root, live, name, &driver);
        checks.extend(of_device.into_iter().map(|check| check.of(name)));
        devices.push(DeviceName {
            name: name.clone(),
            driver: driver.name().to_owned(),
            firmware: root
                .text(&format!("/sys/class/infiniband/{name}/fw_ver"))
                .unwrap_or_default(),
        });
    }
    Ok(Examination {
        version: VERSION,
        rdma: true,
        devices,
        checks,
        processes: processes(root, live, &chosen),
    })
}

fn processes(root: &Root, live: &Live, devices: &[String]) -> Vec<ProcessHoldings> {
    let mut processes = live
        .inventory
        .as_ref()
        .map_or_else(|_| Vec::new(), |inventory| inventory.by_process(root));
    for entry in &mut processes {
        entry.devices.retain(|device, _| devices.contains(device));
    }
    processes.retain(|entry| !entry.devices.is_empty());
    processes
}

fn device_checks(root: &Root, live: &Live, name: &str, driver: &Driver) -> Vec<Check> {
    let mut checks = device::access(root, name, driver);
    let ports = root.list(&format!("/sys/class/infiniband/{name}/ports"));
    for port in ports.iter().filter_map(|port| port.parse().ok()) {
        let port = device::Port::read(root, live, name, port);
        checks.extend(device::port(root, live, &port));
        if port.is_roce() && !driver.is_software() {
            checks.extend(ethernet::checks(root, live, &port));
        }
    }
    if !driver.is_software() {
        checks.extend(bus::checks(root, name));
    }
    checks.extend(device::limits(root, name));
    checks.push(device::users(root, live, name));
    checks.extend(device::unheld(root, live, name));
    checks
}

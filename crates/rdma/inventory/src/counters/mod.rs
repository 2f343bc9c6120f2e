//! Counters of a link, with the same meaning on every vendor's device.
//!
//! Method: [`map`] lists meaning, unit and width of each driver's counters; [`read()`] takes a [`Snapshot`] of all
//! available ones; [`Window`] subtracts two snapshots. A counter that a device does not have is missing, never zero.
//!
//! Units: bytes, packets, events. Limits: the kernel refreshes hardware counters at most once per `lifespan` (10 ms by
//! default), so shorter windows have no meaning; ethtool's counters cost a process per reading and are optional.

pub mod map;

pub use map::{Counter, Driver, Source};

use crate::dcb::FlowControl;
use isolane_common_linux::error::HostError;
use isolane_common_linux::root::Root;
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::Command;

/// Counters from other sources than files, if the caller has them.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    /// The network device's own counters ([`ethtool`]).
    pub ethtool: BTreeMap<String, u64>,
    /// Pause frames per priority.
    pub flow_control: Option<FlowControl>,
}

/// All counters of one link at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// Time of the snapshot, nanoseconds of a steady clock.
    pub taken_ns: u64,
    /// The counters, in their own unit.
    pub values: BTreeMap<Counter, Reading>,
}

/// One counter at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Reading {
    /// Value, in bytes if it counts bytes.
    pub value: u64,
    /// Modulus at which the value wraps; zero means 2^64.
    pub modulus: u64,
}

/// Reads the counters of `device`/`port`; `taken_ns` is the current time of the caller's steady clock.
pub fn read(root: &Root, device: &str, port: u32, extra: &Extra, taken_ns: u64) -> Snapshot {
    read_if(root, device, port, extra, |_| true, taken_ns)
}

/// Reads only the counters of which `wanted` is true: each may be a command to the device's firmware.
pub fn read_if(
    root: &Root,
    device: &str,
    port: u32,
    extra: &Extra,
    wanted: impl Fn(Counter) -> bool,
    taken_ns: u64,
) -> Snapshot {
    let driver = Driver::of(root, device);
    let network_device = std::cell::LazyCell::new(|| network_device(root, device, port));
    let folder = format!("/sys/class/infiniband/{device}/ports/{port}");
    let raw = |source: Source, name: &str| -> Option<u64> {
        match source {
            Source::Port => root.number(&format!("{folder}/counters/{name}")),
            Source::Hardware => root.number(&format!("{folder}/hw_counters/{name}")),
            Source::NetworkDevice => {
                let network_device = network_device.as_deref()?;
                root.number(&format!(
                    "/sys/class/net/{network_device}/statistics/{name}"
                ))
            }
            Source::Ethtool => extra.ethtool.get(name).copied(),
            Source::FlowControl => None,
        }
    };
    let mut values = BTreeMap::new();
    for entry in map::entries(&driver) {
        if values.contains_key(&entry.counter) || !wanted(entry.counter) {
            continue;
        }
        let mut found = entry
            .names
            .iter()
            .filter_map(|name| raw(entry.source, name));
        let value = match entry.sum {
            true => found.reduce(u64::wrapping_add),
            false => found.next(),
        };
        let Some(value) = value else {
            continue;
        };
        let reading = Reading {
            value: value.wrapping_mul(u64::from(entry.factor)),
            modulus: entry.modulus(),
        };
        values.insert(entry.counter, reading);
    }
    if let Some(flow_control) = &extra.flow_control {
        values.extend(pauses(flow_control));
    }
    Snapshot { taken_ns, values }
}

/// Pauses of all priorities together.
fn pauses(flow_control: &FlowControl) -> [(Counter, Reading); 2] {
    let frames = |counts: &[u64]| Reading {
        value: counts
            .iter()
            .fold(0, |sum: u64, count| sum.wrapping_add(*count)),
        modulus: 0,
    };
    let sent = frames(&flow_control.pauses_sent);
    let received = frames(&flow_control.pauses_received);
    [
        (Counter::PriorityPausesSent, sent),
        (Counter::PriorityPausesReceived, received),
    ]
}

/// The network device below a port, which its GIDs name.
pub fn network_device(root: &Root, device: &str, port: u32) -> Option<String> {
    let folder = format!("/sys/class/infiniband/{device}/ports/{port}/gid_attrs/ndevs");
    let of_gid = |index: &str| {
        let name = root.text(&format!("{folder}/{index}"));
        name.filter(|name| !name.is_empty())
    };
    // Index 0 is the first of the list. Soft-RoCE has 1,024 entries: to list them took 0.4 s in an emulated machine.
    let named = of_gid("0").or_else(|| root.list(&folder).iter().find_map(|index| of_gid(index)));
    named.or_else(|| {
        // One port per function is the rule; a driver with two lists them in order of dev_port.
        let siblings = format!("/sys/class/infiniband/{device}/device/net");
        let siblings = root.list(&siblings);
        let of_port = siblings.iter().find(|name| {
            let number = root.number(&format!("/sys/class/net/{name}/dev_port"));
            number == Some(u64::from(port.saturating_sub(1)))
        });
        of_port
            .or(siblings.first())
            .cloned()
            .or_else(|| root.text(&format!("/sys/class/infiniband/{device}/parent")))
            .filter(|name| !name.is_empty())
    })
}

/// The change between two snapshots of one link.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Window {
    /// Length, seconds.
    pub seconds: f64,
    /// Increase of each counter; a counter that was reset in between, or is in one snapshot only, is missing.
    pub rises: BTreeMap<Counter, u64>,
}

impl Window {
    /// The change from `before` to `after`; `None` if no time passed.
    pub fn between(before: &Snapshot, after: &Snapshot) -> Option<Self> {
        let nanoseconds = after.taken_ns.checked_sub(before.taken_ns)?;
        if nanoseconds == 0 {
            return None;
        }
        let rises = after.values.iter().filter_map(|(counter, later)| {
            let earlier = before.values.get(counter)?;
            Some((*counter, rise(*earlier, *later)?))
        });
        Some(Self {
            seconds: nanoseconds as f64 / 1e9,
            rises: rises.collect(),
        })
    }

    /// Increase of a counter per second.
    pub fn per_second(&self, counter: Counter) -> Option<f64> {
        Some(*self.rises.get(&counter)? as f64 / self.seconds)
    }
}

/// Increase of a counter across its wrap. An increase of half its range or more counts as a reset (the driver was
/// reloaded), because no window is that long: half of a 32-bit packet count takes over a minute at 30 million packets a
/// second.
fn rise(earlier: Reading, later: Reading) -> Option<u64> {
    if earlier.modulus != later.modulus {
        return None;
    }
    let moved = match later.modulus {
        0 => later.value.wrapping_sub(earlier.value),
        modulus if later.value >= modulus || earlier.value >= modulus => return None,
        _ if later.value >= earlier.value => later.value - earlier.value,
        modulus => modulus - earlier.value + later.value,
    };
    let half = match later.modulus {
        0 => 1 << 63,
        modulus => modulus / 2,
    };
    (moved < half).then_some(moved)
}

/// The counters that a network device's driver names itself, as `ethtool -S` prints them. Runs that program: the call
/// behind it is an ioctl without a safe wrapper. Fails with [`HostError::Program`] where there is no ethtool.
pub fn ethtool(network_device: &str) -> Result<BTreeMap<String, u64>, HostError> {
    let output = Command::new("ethtool")
        .args(["-S", network_device])
        .output()
        .map_err(|source| HostError::Program {
            program: format!("ethtool -S {network_device}"),
            source,
        })?;
    Ok(parse_ethtool(&String::from_utf8_lossy(&output.stdout)))
}

/// `     rx_prio3_pause: 17` per line; other lines are passed over.
pub fn parse_ethtool(text: &str) -> BTreeMap<String, u64> {
    let lines = text.lines().filter_map(|line| {
        let (name, value) = line.trim().rsplit_once(':')?;
        Some((name.trim().to_owned(), value.trim().parse().ok()?))
    });
    lines.collect()
}

#[cfg(test)]
pub(crate) mod tests;

//! Users of the RDMA devices, and the distance to each known limit, from counters alone.
//!
//! Problem: an operator wants to see a shared device before anything is installed on the machine. Method: a
//! [`Reading`] has each port's counters, rate and bus, the kernel's list of RDMA objects and the limits of cgroups.
//! [`View::between`] compares two readings: rates of the ports, the part of each limit in use, signs of congestion and
//! loss, and what each process holds. Nothing is opened, created or changed.
//!
//! The kernel counts no traffic per process. The packet sequence numbers of a process's RC queue pairs show its packets,
//! as long as a queue pair sends fewer than 2^24 packets between two readings; a queue pair that sends more is counted
//! too low. Units: Gb/s, packets per second. Limits: listing the users makes the driver query each queue pair. A limit
//! of the device that is in no counter, such as its message rate, is known only from [`Known`].

mod signs;

use crate::counters::{self, Counter, Driver, Extra, Snapshot, Window};
use crate::doctor::bus;
use crate::doctor::device::cgroups;
use crate::inventory::{Holdings, Inventory};
use crate::rdma::{QueuePair, QueuePairKind};
use isolane_common_linux::cgroup::{Limit as CgroupLimit, RdmaController};
use isolane_common_linux::process::Process;
use isolane_common_linux::root::Root;
use serde::Serialize;
use std::collections::BTreeMap;

/// Part of a limit from which its use is [`Standing::Near`].
const NEAR: f64 = 0.8;
/// Part of a limit from which its use is [`Standing::Full`]: headers keep payload below the last few percent.
const FULL: f64 = 0.95;
/// Packet sequence numbers have 24 bits.
const SEQUENCE_MASK: u32 = (1 << 24) - 1;
/// Digits of a container's identifier that identify it to people.
const SHORT_IDENTIFIER: usize = 12;

/// State of the devices at one moment.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Time, nanoseconds of a steady clock.
    pub taken_ns: u64,
    /// The devices by name.
    pub devices: Vec<DeviceReading>,
    /// Users of the devices, or why they are unknown.
    pub users: Result<Inventory, String>,
    /// Limits of cgroups.
    pub caps: Vec<Cap>,
}

/// One device at one moment.
#[derive(Clone, Debug)]
pub struct DeviceReading {
    /// Its name.
    pub name: String,
    /// Its driver.
    pub driver: Driver,
    /// Rate of its PCIe link in each direction, Gb/s, before packet headers.
    pub bus_gbps: Option<f64>,
    /// Its ports by number.
    pub ports: Vec<PortReading>,
}

/// One port at one moment.
#[derive(Clone, Debug)]
pub struct PortReading {
    /// Its number, from 1.
    pub number: u32,
    /// Whether the port carries traffic.
    pub active: bool,
    /// Rate in each direction, Gb/s.
    pub rate_gbps: Option<f64>,
    /// Its counters.
    pub counters: Snapshot,
}

/// A limit of a cgroup for one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cap {
    /// Path of the cgroup.
    pub cgroup: String,
    /// Name of the device.
    pub device: String,
    /// What is limited: objects or contexts.
    pub what: &'static str,
    /// How many exist.
    pub used: u32,
    /// How many may exist.
    pub limit: u32,
}

/// What a reading contains.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// This device alone.
    pub device: Option<&'a str>,
    /// Also the counters of `ethtool -S`, at the cost of a process for each port.
    pub ethtool: bool,
}

impl Reading {
    /// Reads the devices below `root` and the limits of cgroups. `users` is the caller's list of objects.
    pub fn take(
        root: &Root,
        wanted: Wanted<'_>,
        users: Result<Inventory, String>,
        taken_ns: u64,
    ) -> Self {
        let names = root.list("/sys/class/infiniband").into_iter();
        let names = names.filter(|name| wanted.device.is_none_or(|device| device == name));
        let devices: Vec<DeviceReading> = names
            .map(|name| DeviceReading::take(root, name, wanted.ethtool, taken_ns))
            .collect();
        let caps = caps(root)
            .into_iter()
            .filter(|cap| devices.iter().any(|device| device.name == cap.device))
            .collect();
        Self {
            taken_ns,
            devices,
            users,
            caps,
        }
    }
}

impl DeviceReading {
    fn take(root: &Root, name: String, ethtool: bool, taken_ns: u64) -> Self {
        let folder = format!("/sys/class/infiniband/{name}/ports");
        let port = |number: u32| {
            let file = |file: &str| format!("{folder}/{number}/{file}");
            let ethtool = counters::network_device(root, &name, number)
                .filter(|_| ethtool)
                .and_then(|network_device| counters::ethtool(&network_device).ok());
            let extra = Extra {
                ethtool: ethtool.unwrap_or_default(),
                ..Extra::default()
            };
            PortReading {
                number,
                active: root.number_before_colon(&file("state")) == Some(4),
                rate_gbps: root.text(&file("rate")).and_then(|text| gbps(&text)),
                counters: counters::read(root, &name, number, &extra, taken_ns),
            }
        };
        let numbers = root.list(&folder).into_iter();
        Self {
            ports: numbers
                .filter_map(|text| Some(port(text.parse().ok()?)))
                .collect(),
            driver: Driver::of(root, &name),
            bus_gbps: bus::link_gbps(root, &name),
            name,
        }
    }
}

/// `100 Gb/sec (4X EDR)` as 100; a rate of zero is none.
fn gbps(text: &str) -> Option<f64> {
    let number: f64 = text.split_whitespace().next()?.parse().ok()?;
    (number > 0.0).then_some(number)
}

/// Every cgroup limit for an RDMA device.
fn caps(root: &Root) -> Vec<Cap> {
    let mut found = Vec::new();
    for cgroup in cgroups(root) {
        let Ok(controller) = RdmaController::of(root, &cgroup) else {
            continue;
        };
        let held = controller.current().unwrap_or_default();
        for (device, limits) in controller.limits().unwrap_or_default() {
            let held = held.get(&device).copied().unwrap_or_default();
            let both = [
                ("objects", limits.objects, held.objects),
                ("contexts", limits.handles, held.handles),
            ];
            for (what, limit, used) in both {
                if let CgroupLimit::AtMost(limit) = limit {
                    found.push(Cap {
                        cgroup: cgroup.clone(),
                        device: device.clone(),
                        what,
                        used,
                        limit,
                    });
                }
            }
        }
    }
    found
}

/// Limits of a device that no counter shows, such as those of a device profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// The source of the limits.
    pub source: String,
    /// Messages that the device sends per second.
    pub messages_per_s: f64,
    /// Queue pairs, completion queues and the like whose state the device can cache.
    pub context_entries: f64,
    /// Memory regions whose rights the device can cache.
    pub protection_entries: f64,
}

/// What happened between two readings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct View {
    /// Version of this format.
    pub version: u32,
    /// Length of the window, seconds.
    pub seconds: f64,
    /// The ports.
    pub ports: Vec<Port>,
    /// Each known limit, by device.
    pub limits: Vec<Limit>,
    /// Counters that rose and show congestion, loss or a slow host.
    pub signs: Vec<Sign>,
    /// The processes that hold objects, those with the most packets first.
    pub users: Vec<User>,
    /// Why the users are unknown.
    pub users_unknown: Option<String>,
}

/// Traffic of one port.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Port {
    /// Name of the device.
    pub device: String,
    /// The port, from 1.
    pub port: u32,
    /// Kernel module of the driver.
    pub driver: String,
    /// Whether the port carries traffic.
    pub active: bool,
    /// Rate in each direction.
    pub rate_gbps: Option<f64>,
    /// Sent.
    pub sent_gbps: Option<f64>,
    /// Received.
    pub received_gbps: Option<f64>,
    /// Packets sent per second.
    pub sent_packets_per_s: Option<f64>,
    /// Packets received per second.
    pub received_packets_per_s: Option<f64>,
    /// Whether the bytes are those of the network device below, which include other traffic.
    pub of_network_device: bool,
}

/// How near a limit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Below 80 %.
    Free,
    /// From 80 %.
    Near,
    /// From 95 %.
    Full,
}

/// The use of one limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// The device, its port, or a cgroup and a device.
    pub of: String,
    /// What is limited.
    pub what: &'static str,
    /// Unit of the next two numbers.
    pub unit: &'static str,
    /// How much is in use.
    pub used: f64,
    /// How much may be.
    pub limit: f64,
    /// Part in use, percent.
    pub used_percent: f64,
    /// How near.
    pub standing: Standing,
    /// The source of the limit.
    pub source: String,
}

/// A counter that rose.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sign {
    /// Name of the device.
    pub device: String,
    /// The port, from 1.
    pub port: u32,
    /// The counter.
    pub counter: Counter,
    /// Increase per second.
    pub per_s: f64,
    /// What the increase says.
    pub meaning: &'static str,
}

/// A process and what it holds of one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct User {
    /// Name of the device.
    pub device: String,
    /// The owner, from the process's cgroup: a pod, a container, a unit or a user.
    pub owner: String,
    /// Process id.
    pub pid: u32,
    /// Short name of the program; empty if the process has ended.
    pub program: String,
    /// What it holds.
    pub holds: Holdings,
    /// Packets that its RC queue pairs sent per second; `None` if it has none that can send.
    pub rc_packets_per_s: Option<f64>,
}

impl View {
    /// What happened from `before` to `now`; `root` has the processes. `None` if no time passed.
    pub fn between(
        root: &Root,
        before: &Reading,
        now: &Reading,
        known: Option<&Known>,
    ) -> Option<Self> {
        let nanoseconds = now.taken_ns.checked_sub(before.taken_ns)?;
        if nanoseconds == 0 {
            return None;
        }
        let seconds = nanoseconds as f64 / 1e9;
        let windows = windows(before, now);
        let mut view = Self {
            version: 1,
            seconds,
            ports: Vec::new(),
            limits: Vec::new(),
            signs: Vec::new(),
            users: Vec::new(),
            users_unknown: now.users.as_ref().err().cloned(),
        };
        for device in &now.devices {
            view.device(device, &windows, now.users.as_ref().ok(), known);
        }
        for cap in &now.caps {
            let of = format!("{} {}", cap.cgroup, cap.device);
            let (used, limit) = (f64::from(cap.used), f64::from(cap.limit));
            view.limit(of, cap.what, "", used, limit, "rdma.max");
        }
        if let Ok(users) = &now.users {
            view.users = self::users(root, users, before.users.as_ref().ok(), seconds);
        }
        Some(view)
    }

    fn device(
        &mut self,
        device: &DeviceReading,
        windows: &Windows<'_>,
        users: Option<&Inventory>,
        known: Option<&Known>,
    ) {
        let (mut sent, mut received, mut messages) = (None, None, None);
        for port in &device.ports {
            let window = windows.get(&(device.name.as_str(), port.number));
            let shown = shown(device, port, window);
            let of = format!("{}/{}", device.name, port.number);
            for (what, gbps) in [("send", shown.sent_gbps), ("receive", shown.received_gbps)] {
                if let (Some(gbps), Some(rate)) = (gbps, port.rate_gbps) {
                    self.limit(of.clone(), what, "Gb/s", gbps, rate, "rate of the port");
                }
            }
            if !shown.of_network_device {
                sent = added(sent, shown.sent_gbps);
                received = added(received, shown.received_gbps);
            }
            messages = added(messages, shown.sent_packets_per_s);
            self.signs
                .extend(signs::found(&device.name, port.number, window));
            self.ports.push(shown);
        }
        let of = || device.name.clone();
        let both = [("PCIe from memory", sent), ("PCIe to memory", received)];
        for (what, gbps) in both {
            if let (Some(gbps), Some(bus)) = (gbps, device.bus_gbps) {
                self.limit(of(), what, "Gb/s", gbps, bus, "PCIe link, without headers");
            }
        }
        let Some(known) = known else {
            return;
        };
        if let Some(packets) = messages {
            let limit = known.messages_per_s;
            self.limit(
                of(),
                "messages, at most",
                "/s",
                packets,
                limit,
                &known.source,
            );
        }
        if let Some(users) = users {
            self.caches(&device.name, users, known);
        }
    }

    /// Compares the objects of a device with the entries of its caches.
    fn caches(&mut self, name: &str, users: &Inventory, known: &Known) {
        let pairs = users.queue_pairs.iter().filter(|pair| pair.device == name);
        let queues = users.completion_queues.iter();
        let queues = queues.filter(|queue| queue.device == name);
        let regions = users.memory_regions.iter();
        let regions = regions.filter(|region| region.device == name).count() as f64;
        let contexts = (pairs.count() + queues.count()) as f64;
        let (of, source) = (|| name.to_owned(), &known.source);
        let limit = known.context_entries;
        self.limit(of(), "cached contexts", "", contexts, limit, source);
        let limit = known.protection_entries;
        self.limit(of(), "cached regions", "", regions, limit, source);
    }

    fn limit(
        &mut self,
        of: String,
        what: &'static str,
        unit: &'static str,
        used: f64,
        limit: f64,
        source: &str,
    ) {
        let part = match limit > 0.0 {
            true => used / limit,
            // A cgroup may allow none: then the limit is reached.
            false => 1.0,
        };
        self.limits.push(Limit {
            of,
            what,
            unit,
            used,
            limit,
            used_percent: part * 100.0,
            standing: match part {
                part if part >= FULL => Standing::Full,
                part if part >= NEAR => Standing::Near,
                _ => Standing::Free,
            },
            source: source.to_owned(),
        });
    }
}

fn added(sum: Option<f64>, more: Option<f64>) -> Option<f64> {
    match (sum, more) {
        (Some(sum), Some(more)) => Some(sum + more),
        (sum, more) => sum.or(more),
    }
}

/// The change of each port's counters; a port that is in one reading only is missing.
type Windows<'a> = BTreeMap<(&'a str, u32), Window>;

fn windows<'a>(before: &Reading, now: &'a Reading) -> Windows<'a> {
    let mut windows = Windows::new();
    for device in &now.devices {
        let earlier = before.devices.iter().find(|old| old.name == device.name);
        for port in &device.ports {
            let old =
                earlier.and_then(|old| old.ports.iter().find(|old| old.number == port.number));
            let window = old.and_then(|old| Window::between(&old.counters, &port.counters));
            if let Some(window) = window {
                windows.insert((device.name.as_str(), port.number), window);
            }
        }
    }
    windows
}

fn shown(device: &DeviceReading, port: &PortReading, window: Option<&Window>) -> Port {
    let per_s = |counter| window.and_then(|window| window.per_second(counter));
    let gbps = |counter| per_s(counter).map(|bytes| bytes * 8.0 / 1e9);
    // Where the driver counts no RDMA bytes, those of the network device are the nearest, on software devices only.
    let of_network_device = device.driver.is_software() && gbps(Counter::TxBytes).is_none();
    let (tx, rx) = match of_network_device {
        true => (Counter::NetdevTxBytes, Counter::NetdevRxBytes),
        false => (Counter::TxBytes, Counter::RxBytes),
    };
    Port {
        device: device.name.clone(),
        port: port.number,
        driver: device.driver.name().to_owned(),
        active: port.active,
        rate_gbps: port.rate_gbps,
        sent_gbps: gbps(tx),
        received_gbps: gbps(rx),
        sent_packets_per_s: per_s(Counter::TxPackets),
        received_packets_per_s: per_s(Counter::RxPackets),
        of_network_device,
    }
}

/// Who holds objects, by packets, then by queue pairs, then by process id.
fn users(root: &Root, now: &Inventory, before: Option<&Inventory>, seconds: f64) -> Vec<User> {
    let packets = before.map_or_else(BTreeMap::new, |before| packets(before, now));
    let mut users = Vec::new();
    for entry in now.by_process(root) {
        for (device, holds) in entry.devices {
            let key = (device.clone(), entry.process.id);
            users.push(User {
                owner: owner(&entry.process),
                pid: entry.process.id,
                program: entry.process.command.clone(),
                rc_packets_per_s: packets.get(&key).map(|packets| *packets as f64 / seconds),
                device,
                holds,
            });
        }
    }
    users.sort_by(|left, right| {
        let packets = |user: &User| user.rc_packets_per_s.unwrap_or(0.0);
        packets(right)
            .total_cmp(&packets(left))
            .then(right.holds.queue_pairs.cmp(&left.holds.queue_pairs))
            .then(left.pid.cmp(&right.pid))
            .then(left.device.cmp(&right.device))
    });
    users
}

/// Packets that the RC queue pairs of each device and process sent, by their sequence numbers.
fn packets(before: &Inventory, now: &Inventory) -> BTreeMap<(String, u32), u64> {
    let key = |pair: &QueuePair| {
        (
            pair.device.clone(),
            pair.number,
            pair.holder.clone(),
            pair.remote_number,
        )
    };
    let sends = |pair: &&QueuePair| {
        pair.kind == QueuePairKind::ReliableConnection && pair.send_sequence.is_some()
    };
    let earlier: BTreeMap<_, u32> = before
        .queue_pairs
        .iter()
        .filter(sends)
        .filter_map(|pair| Some((key(pair), pair.send_sequence?)))
        .collect();
    let mut sums = BTreeMap::new();
    for pair in now.queue_pairs.iter().filter(sends) {
        let (Some(process), Some(later)) = (pair.holder.process(), pair.send_sequence) else {
            continue;
        };
        // A number that both readings have may be a new queue pair; then its peer differs as a rule.
        let Some(earlier) = earlier.get(&key(pair)) else {
            continue;
        };
        let sent = later.wrapping_sub(*earlier) & SEQUENCE_MASK;
        *sums.entry((pair.device.clone(), process)).or_insert(0) += u64::from(sent);
    }
    sums
}

/// The owner of a process, by its cgroup: pod, container, unit, else user.
fn owner(process: &Process) -> String {
    let workload = &process.workload;
    if let Some(pod) = &workload.pod {
        return format!("pod-{pod}");
    }
    if let Some(container) = &workload.container {
        let short: String = container
            .identifier
            .chars()
            .take(SHORT_IDENTIFIER)
            .collect();
        return format!("{}-{short}", container.runtime);
    }
    match (&workload.unit, process.user) {
        (Some(unit), _) if unit.ends_with(".service") => unit.clone(),
        (_, Some(user)) => format!("user-{user}"),
        (_, None) => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests;

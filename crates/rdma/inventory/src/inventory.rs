//! The kernel's RDMA resources per process, per cgroup and per tenant; those of emulated devices, by their broker.
//!
//! Method: one pass over every device and kind ([`Inventory::read`]). Then the holders are read from `/proc`
//! ([`Inventory::by_process`]) and grouped by tenant ([`by_tenant`]). The pass is not atomic: objects change between
//! two requests, and a process that ended in between has no command and no cgroup.
//!
//! A tenant cannot hide objects: the kernel attributes an object to the thread that made its protection domain or
//! context, and [`Inventory::read`] replaces the thread by its process. A tenant name claimed by a process has no effect
//! here. Limit: the kernel does not name a thread that has ended, so the holder of its objects is unknown.
//! Source: `drivers/infiniband/core/restrack.c` and `fill_res_name_pid` in `nldev.c`, Linux 6.12.

use crate::rdma::{
    CompletionQueue, Connection, ConnectionIdentifier, Context, Device, Holder, Link, MemoryRegion,
    ProtectionDomain, QueuePair, QueuePairState, SharedReceiveQueue,
};
use isolane_common_linux::error::HostError;
use isolane_common_linux::process::{self, Process};
use isolane_common_linux::root::Root;
use serde::Serialize;
use std::collections::BTreeMap;

/// All resources that the kernel tracks, over all devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Inventory {
    /// Devices by index.
    pub devices: Vec<Device>,
    /// Links.
    pub links: Vec<Link>,
    /// Queue pairs.
    pub queue_pairs: Vec<QueuePair>,
    /// Completion queues.
    pub completion_queues: Vec<CompletionQueue>,
    /// Memory regions.
    pub memory_regions: Vec<MemoryRegion>,
    /// Protection domains.
    pub protection_domains: Vec<ProtectionDomain>,
    /// Connection identifiers.
    pub connection_identifiers: Vec<ConnectionIdentifier>,
    /// Contexts.
    pub contexts: Vec<Context>,
    /// Shared receive queues.
    pub shared_receive_queues: Vec<SharedReceiveQueue>,
}

/// Objects held of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Holdings {
    /// Queue pairs.
    pub queue_pairs: u32,
    /// Number of queue pairs that can send (RTS or SQD).
    pub queue_pairs_sending: u32,
    /// Completion queues.
    pub completion_queues: u32,
    /// Sum of the entries of all completion queues.
    pub completion_entries: u64,
    /// Memory regions.
    pub memory_regions: u32,
    /// Registered bytes; a page registered twice counts twice.
    pub memory_bytes: u64,
    /// Protection domains.
    pub protection_domains: u32,
    /// Connection identifiers.
    pub connection_identifiers: u32,
    /// Contexts.
    pub contexts: u32,
    /// Shared receive queues.
    pub shared_receive_queues: u32,
}

impl Holdings {
    /// Adds the objects of another holder.
    pub fn add(&mut self, other: &Self) {
        self.queue_pairs += other.queue_pairs;
        self.queue_pairs_sending += other.queue_pairs_sending;
        self.completion_queues += other.completion_queues;
        self.completion_entries += other.completion_entries;
        self.memory_regions += other.memory_regions;
        self.memory_bytes = self.memory_bytes.saturating_add(other.memory_bytes);
        self.protection_domains += other.protection_domains;
        self.connection_identifiers += other.connection_identifiers;
        self.contexts += other.contexts;
        self.shared_receive_queues += other.shared_receive_queues;
    }
}

/// A process and the objects that it holds of each device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct ProcessHoldings {
    /// The process; only its id if it has ended meanwhile.
    pub process: Process,
    /// Objects held, by device name.
    pub devices: BTreeMap<String, Holdings>,
}

/// A group of processes and the objects that they hold together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GroupHoldings {
    /// Process ids, ascending.
    pub processes: Vec<u32>,
    /// Objects held, by device name.
    pub devices: BTreeMap<String, Holdings>,
}

mod emulated;

impl Inventory {
    /// Reads all resources of the emulated devices below `root`, or of `device` alone; `None` where no device is emulated.
    pub fn of_emulated(root: &Root, device: Option<&str>) -> Option<Self> {
        let devices = emulated::devices(root, device);
        (!devices.is_empty()).then(|| emulated::read(root, devices))
    }

    /// Reads all resources of every device, or of `device` alone. Fails with [`HostError::NoRdmaSubsystem`],
    /// [`HostError::NoDevice`] or the kernel's error. A device that is removed meanwhile is left out.
    pub fn read(connection: &mut Connection, device: Option<&str>) -> Result<Self, HostError> {
        let devices = match device {
            Some(name) => vec![connection.device(name)?],
            None => connection.devices()?,
        };
        let mut inventory = Self::default();
        for device in devices {
            let name = device.name.clone();
            if let Err(error) = inventory.read_device(connection, device) {
                let still_there = connection
                    .devices()?
                    .iter()
                    .any(|device| device.name == name);
                if still_there {
                    return Err(error);
                }
                inventory.forget(&name);
            }
        }
        inventory.attribute_to_processes(&Root::machine());
        Ok(inventory)
    }

    /// Replaces threads by their processes.
    fn attribute_to_processes(&mut self, root: &Root) {
        let mut known: BTreeMap<u32, u32> = BTreeMap::new();
        let mut replace = |holder: &mut Holder| {
            if let Holder::Process(id) = holder {
                let find = || process::of_thread(root, *id).unwrap_or(*id);
                *id = *known.entry(*id).or_insert_with(find);
            }
        };
        let holders = (self.queue_pairs.iter_mut().map(|one| &mut one.holder))
            .chain(self.completion_queues.iter_mut().map(|one| &mut one.holder))
            .chain(self.memory_regions.iter_mut().map(|one| &mut one.holder))
            .chain(
                self.protection_domains
                    .iter_mut()
                    .map(|one| &mut one.holder),
            )
            .chain(
                self.connection_identifiers
                    .iter_mut()
                    .map(|one| &mut one.holder),
            )
            .chain(self.contexts.iter_mut().map(|one| &mut one.holder))
            .chain(
                self.shared_receive_queues
                    .iter_mut()
                    .map(|one| &mut one.holder),
            );
        holders.for_each(&mut replace);
    }

    fn read_device(
        &mut self,
        connection: &mut Connection,
        device: Device,
    ) -> Result<(), HostError> {
        self.links.extend(connection.links(&device)?);
        self.queue_pairs.extend(connection.queue_pairs(&device)?);
        self.completion_queues
            .extend(connection.completion_queues(&device)?);
        self.memory_regions
            .extend(connection.memory_regions(&device)?);
        self.protection_domains
            .extend(connection.protection_domains(&device)?);
        self.connection_identifiers
            .extend(connection.connection_identifiers(&device)?);
        self.contexts.extend(connection.contexts(&device)?);
        self.shared_receive_queues
            .extend(connection.shared_receive_queues(&device)?);
        self.devices.push(device);
        Ok(())
    }

    fn forget(&mut self, device: &str) {
        self.devices.retain(|entry| entry.name != device);
        self.links.retain(|entry| entry.device != device);
        self.queue_pairs.retain(|entry| entry.device != device);
        self.completion_queues
            .retain(|entry| entry.device != device);
        self.memory_regions.retain(|entry| entry.device != device);
        self.protection_domains
            .retain(|entry| entry.device != device);
        self.connection_identifiers
            .retain(|entry| entry.device != device);
        self.contexts.retain(|entry| entry.device != device);
        self.shared_receive_queues
            .retain(|entry| entry.device != device);
    }

    /// Objects of each holder by device, including kernel and unknown holders.
    pub fn holdings(&self) -> BTreeMap<Holder, BTreeMap<String, Holdings>> {
        let mut all: BTreeMap<Holder, BTreeMap<String, Holdings>> = BTreeMap::new();
        let mut of = |holder: &Holder, device: &str, count: &dyn Fn(&mut Holdings)| {
            let devices = all.entry(holder.clone()).or_default();
            count(devices.entry(device.to_owned()).or_default());
        };
        for entry in &self.queue_pairs {
            let sends = matches!(
                entry.state,
                QueuePairState::ReadyToSend | QueuePairState::SendQueueDrained
            );
            of(&entry.holder, &entry.device, &|held| {
                held.queue_pairs += 1;
                held.queue_pairs_sending += u32::from(sends);
            });
        }
        for entry in &self.completion_queues {
            of(&entry.holder, &entry.device, &|held| {
                held.completion_queues += 1;
                held.completion_entries += u64::from(entry.entries);
            });
        }
        for entry in &self.memory_regions {
            of(&entry.holder, &entry.device, &|held| {
                held.memory_regions += 1;
                held.memory_bytes = held.memory_bytes.saturating_add(entry.length_bytes);
            });
        }
        for entry in &self.protection_domains {
            of(&entry.holder, &entry.device, &|held| {
                held.protection_domains += 1;
            });
        }
        for entry in &self.connection_identifiers {
            of(&entry.holder, &entry.device, &|held| {
                held.connection_identifiers += 1;
            });
        }
        for entry in &self.contexts {
            of(&entry.holder, &entry.device, &|held| held.contexts += 1);
        }
        for entry in &self.shared_receive_queues {
            of(&entry.holder, &entry.device, &|held| {
                held.shared_receive_queues += 1;
            });
        }
        all
    }

    /// Objects of each process, by process id.
    pub fn by_process(&self, root: &Root) -> Vec<ProcessHoldings> {
        let holdings = self.holdings().into_iter();
        holdings
            .filter_map(|(holder, devices)| {
                let id = holder.process()?;
                let ended = || Process {
                    id,
                    ..Process::default()
                };
                let process = Process::read(root, id).unwrap_or_else(ended);
                Some(ProcessHoldings { process, devices })
            })
            .collect()
    }
}

/// Objects of each tenant; `tenant` returns the tenant of a process, and processes without one are left out.
pub fn by_tenant(
    processes: &[ProcessHoldings],
    tenant: impl Fn(&Process) -> Option<String>,
) -> BTreeMap<String, GroupHoldings> {
    let mut groups: BTreeMap<String, GroupHoldings> = BTreeMap::new();
    for entry in processes {
        let Some(name) = tenant(&entry.process) else {
            continue;
        };
        let group = groups.entry(name).or_default();
        group.processes.push(entry.process.id);
        for (device, held) in &entry.devices {
            group.devices.entry(device.clone()).or_default().add(held);
        }
    }
    for group in groups.values_mut() {
        group.processes.sort_unstable();
    }
    groups
}

/// Conditions that assign processes to a tenant. Every given condition must match; a rule without conditions matches
/// nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantRule {
    /// Name of the tenant.
    pub tenant: String,
    /// Path of a cgroup; matches the cgroup and all below it.
    pub cgroup: Option<String>,
    /// Container id or its beginning (at least 12 characters).
    pub container: Option<String>,
    /// UID of a Kubernetes pod.
    pub pod: Option<String>,
    /// Real user id.
    pub user: Option<u32>,
}

impl TenantRule {
    /// Whether `process` matches.
    pub fn matches(&self, process: &Process) -> bool {
        const SHORT_IDENTIFIER: usize = 12;
        let conditions = [
            self.cgroup.as_ref().map(|cgroup| {
                let path = process.cgroup.as_deref();
                path.is_some_and(|path| is_below(path, cgroup))
            }),
            self.container.as_ref().map(|identifier| {
                let container = process.workload.container.as_ref();
                container.is_some_and(|container| {
                    container.identifier == *identifier
                        || (identifier.len() >= SHORT_IDENTIFIER
                            && container.identifier.starts_with(identifier.as_str()))
                })
            }),
            self.pod
                .as_ref()
                .map(|pod| process.workload.pod.as_ref() == Some(pod)),
            self.user.map(|user| process.user == Some(user)),
        ];
        let mut set = conditions.into_iter().flatten().peekable();
        set.peek().is_some() && set.all(|holds| holds)
    }
}

/// Whether `path` is `parent` or below it; `/blue2` is not below `/blue`.
fn is_below(path: &str, parent: &str) -> bool {
    let parent = parent.trim_end_matches('/');
    match path.strip_prefix(parent) {
        Some(rest) => rest.is_empty() || rest.starts_with('/'),
        None => false,
    }
}

#[cfg(test)]
mod tests;

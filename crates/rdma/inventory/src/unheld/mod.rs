//! RDMA work that the preload library cannot pace: which process does it, why, and what to do.
//!
//! Problem: a program that bypasses the preload library takes what others were promised, and nothing shows it. Method:
//! the kernel lists the holders of contexts and queue pairs; a holder without a session, and a queue pair that no
//! session reports, are not paced. The reason follows from the process's executable and its mapped libraries: static
//! linking, a missing preload library, libibverbs opened at run time, or functions of a vendor's library that post work
//! past the verbs. A vendor's functions are reported when a mapped object *can* call them; the kernel does not show
//! whether the object does. The list of an emulated device is that of its broker. Limits: a holder whose `/proc` files are not
//! readable has [`Reason::Unknown`]. Source: proc(5), ld.so(8), mlx5dv(7).

pub mod elf;
mod objects;

use crate::counters::Driver;
use crate::inventory::Inventory;
use crate::rdma::{QueuePair, QueuePairKind, QueuePairState};
use elf::Files;
use isolane_common_linux::process::Process;
use isolane_common_linux::root::Root;
use objects::Objects;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Why work is not paced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The program is statically linked.
    Static,
    /// The program was started without the preload library.
    NotPreloaded,
    /// The program was started without the preload library and opens libibverbs at run time.
    OpensAtRunTime,
    /// The preload library is loaded but has no session.
    NoSession,
    /// Neither executable nor mapped libraries can be read.
    Unknown,
    /// Queue pairs of a vendor's own transport, such as DC or SRD.
    VendorTransport,
    /// Raw packet queue pairs.
    RawPackets,
    /// Queue pairs that were created past the preload library, or before the session.
    QueuePairs,
    /// Functions that give a program the queues themselves: it writes requests and doorbells without a call.
    DirectDoorbells,
    /// Functions that create objects by firmware commands (DEVX): the kernel lists no queue pair.
    Devx,
    /// Functions of a vendor that create queue pairs.
    VendorQueuePairs,
}

impl Reason {
    /// What the process does, for people.
    pub fn text(self) -> &'static str {
        match self {
            Self::Static => "is statically linked, so no library can be loaded before its own",
            Self::NotPreloaded => "was started without the preload library",
            Self::OpensAtRunTime => {
                "was started without the preload library and opens libibverbs at run time"
            }
            Self::NoSession => "has the preload library but no session with isolaned",
            Self::Unknown => "has no session with isolaned; its libraries cannot be read",
            Self::VendorTransport => "has queue pairs of a vendor's own transport (DC, SRD)",
            Self::RawPackets => "has raw packet queue pairs",
            Self::QueuePairs => "has queue pairs that its session does not report",
            Self::DirectDoorbells => "can write to the device's queues itself",
            Self::Devx => "can create queues by firmware commands (DEVX)",
            Self::VendorQueuePairs => "can create queue pairs by a vendor's function",
        }
    }

    /// What to do about it.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Static => "link the program dynamically, or limit it with isolane rdma enforce",
            Self::NotPreloaded | Self::OpensAtRunTime => "start it with isolane rdma run",
            Self::NoSession => {
                "start it again after isolaned; check ISOLANE_DISABLE, ISOLANE_SOCKET and its line on standard error"
            }
            Self::Unknown => {
                "run isolaned and isolane rdma doctor as root in the host's namespaces"
            }
            Self::QueuePairs => {
                "start it again after isolaned; if it uses more than 65,536 queue pairs or a vendor's completion queues, limit it with isolane rdma enforce"
            }
            Self::DirectDoorbells | Self::Devx | Self::VendorQueuePairs => {
                "use verbs (UCX: UCX_TLS=rc_v,ud_v,self,sm), or limit it with isolane rdma enforce"
            }
            Self::VendorTransport | Self::RawPackets => {
                "use RC, UC or UD queue pairs, or limit it with isolane rdma enforce"
            }
        }
    }

    /// Its name in metrics and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::NotPreloaded => "not-preloaded",
            Self::OpensAtRunTime => "opens-at-run-time",
            Self::NoSession => "no-session",
            Self::Unknown => "unknown",
            Self::VendorTransport => "vendor-transport",
            Self::RawPackets => "raw-packets",
            Self::QueuePairs => "queue-pairs",
            Self::DirectDoorbells => "direct-doorbells",
            Self::Devx => "devx",
            Self::VendorQueuePairs => "vendor-queue-pairs",
        }
    }
}

/// A process whose work is not paced, or can be done unpaced, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unheld {
    /// Process id, in the daemon's namespace.
    pub pid: u32,
    /// The kernel's short name of the program.
    pub program: String,
    /// The devices that it uses.
    pub devices: Vec<String>,
    /// Number of its queue pairs that are not paced for this reason; zero if none is known.
    pub queue_pairs: u64,
    /// Why its work is not paced.
    pub reason: Reason,
    /// What shows it: a library and its function, or a number of queue pairs; may be empty.
    pub evidence: String,
}

impl Unheld {
    /// The reason and what shows it, for people.
    pub fn what(&self) -> String {
        match self.evidence.as_str() {
            "" => self.reason.text().to_owned(),
            evidence => format!("{} ({evidence})", self.reason.text()),
        }
    }
}

/// One process's session with the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// Numbers of its paced queue pairs; `None` if the session reports none of them (the latency class) or not all.
    pub queue_pairs: Option<BTreeSet<u32>>,
}

/// The sessions and devices that [`Finder::find`] compares with the kernel's list.
#[derive(Clone, Copy, Debug)]
pub struct Compared<'a> {
    /// Names of the devices that the daemon serves.
    pub devices: &'a [String],
    /// Sessions by process id; `None` if they are not known: then a loaded preload library counts as a session.
    pub sessions: Option<&'a BTreeMap<u32, Session>>,
    /// Processes that are not reported: the daemon itself.
    pub without: &'a [u32],
}

/// Finds processes that use the devices unpaced. It keeps what it read of their files.
#[derive(Clone, Debug, Default)]
pub struct Finder {
    files: Files,
}

impl Finder {
    /// Every process that uses the devices unpaced, by process id and reason.
    pub fn find(
        &mut self,
        root: &Root,
        inventory: &Inventory,
        compared: Compared<'_>,
    ) -> Vec<Unheld> {
        let mut found = Vec::new();
        for (pid, devices) in users(inventory, compared.devices) {
            if compared.without.contains(&pid) {
                continue;
            }
            let Some(process) = Process::read(root, pid) else {
                continue;
            };
            let user = User {
                pid,
                program: process.command,
                queue_pairs: sending(inventory, pid, &devices),
                has_mlx5: devices
                    .iter()
                    .any(|device| Driver::of(root, device) == Driver::Mlx5),
                objects: Objects::read(root, pid, &mut self.files),
                devices,
            };
            found.extend(user.judge(compared.sessions));
        }
        found.sort_by_key(|one| (one.pid, one.reason));
        found
    }
}

/// Users of the devices by process id.
fn users(inventory: &Inventory, devices: &[String]) -> BTreeMap<u32, Vec<String>> {
    let mut users: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
    let contexts = inventory
        .contexts
        .iter()
        .map(|one| (&one.device, &one.holder));
    let queue_pairs = inventory.queue_pairs.iter();
    let held = contexts.chain(queue_pairs.map(|one| (&one.device, &one.holder)));
    for (device, holder) in held.filter(|(device, _)| devices.contains(device)) {
        if let Some(pid) = holder.process() {
            users.entry(pid).or_default().insert(device.clone());
        }
    }
    let users = users.into_iter();
    users
        .map(|(pid, devices)| (pid, devices.into_iter().collect()))
        .collect()
}

/// The process's queue pairs that can send. The kernel's own types do not count.
fn sending<'a>(inventory: &'a Inventory, pid: u32, devices: &[String]) -> Vec<&'a QueuePair> {
    let of_it = inventory.queue_pairs.iter().filter(|one| {
        one.holder.process() == Some(pid)
            && devices.contains(&one.device)
            && one.state == QueuePairState::ReadyToSend
    });
    of_it
        .filter(|one| {
            !matches!(
                one.kind,
                QueuePairKind::Management | QueuePairKind::General | QueuePairKind::ExtendedTarget
            )
        })
        .collect()
}

/// A process that uses a device.
struct User<'a> {
    pid: u32,
    program: String,
    devices: Vec<String>,
    queue_pairs: Vec<&'a QueuePair>,
    has_mlx5: bool,
    objects: Option<Objects>,
}

impl User<'_> {
    fn judge(&self, sessions: Option<&BTreeMap<u32, Session>>) -> Vec<Unheld> {
        let preloads = self.objects.as_ref().is_some_and(|one| one.preloads);
        let session = match sessions {
            Some(sessions) => sessions.get(&self.pid).cloned(),
            None => preloads.then(Session::default),
        };
        let mut found = match &session {
            Some(session) => self.outside(session),
            None => vec![self.without_session()],
        };
        found.extend(self.capabilities());
        found
    }

    fn of(&self, reason: Reason, queue_pairs: u64, evidence: String) -> Unheld {
        Unheld {
            pid: self.pid,
            program: self.program.clone(),
            devices: self.devices.clone(),
            queue_pairs,
            reason,
            evidence,
        }
    }

    fn without_session(&self) -> Unheld {
        let reason = match &self.objects {
            None => Reason::Unknown,
            Some(objects) if objects.is_static => Reason::Static,
            Some(objects) if objects.preloads => Reason::NoSession,
            Some(objects) if objects.opens_verbs_at_run_time() => Reason::OpensAtRunTime,
            Some(_) => Reason::NotPreloaded,
        };
        self.of(reason, self.queue_pairs.len() as u64, String::new())
    }

    /// Queue pairs that the session does not report, by reason.
    fn outside(&self, session: &Session) -> Vec<Unheld> {
        let Some(known) = &session.queue_pairs else {
            return Vec::new();
        };
        let mut counts: BTreeMap<Reason, Vec<u32>> = BTreeMap::new();
        for queue_pair in &self.queue_pairs {
            let reason = match queue_pair.kind {
                QueuePairKind::Driver => Reason::VendorTransport,
                QueuePairKind::RawPacket | QueuePairKind::RawIpv6 | QueuePairKind::RawEthertype => {
                    Reason::RawPackets
                }
                _ if known.contains(&queue_pair.number) => continue,
                _ => Reason::QueuePairs,
            };
            counts.entry(reason).or_default().push(queue_pair.number);
        }
        let each = counts.into_iter();
        each.map(|(reason, numbers)| {
            let evidence = match numbers[..] {
                [number] => format!("queue pair {number}"),
                _ => format!("{} queue pairs, the first is {}", numbers.len(), numbers[0]),
            };
            self.of(reason, numbers.len() as u64, evidence)
        })
        .collect()
    }

    /// Functions of the vendor's library that mapped objects can call.
    fn capabilities(&self) -> Vec<Unheld> {
        let Some(objects) = self.objects.as_ref().filter(|_| self.has_mlx5) else {
            return Vec::new();
        };
        let calls = objects.vendor_calls.iter();
        calls
            .map(|(reason, evidence)| self.of(*reason, 0, evidence.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests;

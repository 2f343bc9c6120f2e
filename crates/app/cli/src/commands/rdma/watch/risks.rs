//! Known anomalies that the users of the devices may be in.

use crate::commands::advise;
use crate::text::counted;
use anyhow::Result;
use isolane_rdma_inventory::counters::Counter;
use isolane_rdma_inventory::inventory::Inventory;
use isolane_rdma_inventory::rdma::{QueuePairKind, QueuePairState};
use isolane_rdma_inventory::watch::View;
use isolane_study_hunt::known::KnownSet;
use isolane_study_hunt::monitor::Symptom;
use isolane_study_hunt::running::{Risk, Seen, risks};
use isolane_study_hunt::space::Space;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Counters that show pause frames of a device that falls behind.
const PAUSES: [Counter; 3] = [
    Counter::PausesSent,
    Counter::PriorityPausesSent,
    Counter::PauseSentUs,
];

/// What is known of the devices.
pub(super) struct Anomalies {
    device: Space,
    set: KnownSet,
}

/// An anomaly that a process may be in.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct AtRisk {
    device: String,
    owner: String,
    pid: u32,
    program: String,
    /// The symptom in words.
    symptom: &'static str,
    /// The counter that shows the symptom now; without one the process is at risk only.
    counter: Option<Counter>,
    #[serde(flatten)]
    risk: Risk,
}

impl Anomalies {
    /// The anomalies of a file or a hunt, or the published ones of the profile; `None` without either.
    pub(super) fn read(file: Option<&Path>, profile: Option<&str>) -> Result<Option<Self>> {
        let sets = match (file, profile) {
            (Some(_), _) => advise::known(file, profile)?,
            (None, Some(name)) if KnownSet::published_profiles().any(|known| known == name) => {
                advise::known(None, profile)?
            }
            _ => Vec::new(),
        };
        let first = sets.into_iter().next();
        Ok(first.map(|(_, device, set)| Self { device, set }))
    }

    /// The anomalies that each user of a view may be in.
    pub(super) fn of(&self, users: &Inventory, view: &View) -> Vec<AtRisk> {
        let mut found = Vec::new();
        for user in &view.users {
            let seen = seen(users, &user.device, user.pid);
            let risks = seen
                .iter()
                .flat_map(|seen| risks(seen, &self.device, &self.set));
            found.extend(risks.map(|risk| AtRisk {
                device: user.device.clone(),
                owner: user.owner.clone(),
                pid: user.pid,
                program: user.program.clone(),
                symptom: risk.symptom.name(),
                counter: counter(view, &user.device, risk.symptom),
                risk,
            }));
        }
        found.sort_by_key(|one| one.counter.is_none());
        found
    }
}

/// The counter of the device that shows the symptom. No counter shows that throughput is low.
fn counter(view: &View, device: &str, symptom: Symptom) -> Option<Counter> {
    let mut signs = view.signs.iter().filter(|sign| sign.device == device);
    let shows = |counter| symptom == Symptom::PauseFrames && PAUSES.contains(&counter);
    signs
        .find(|sign| shows(sign.counter))
        .map(|sign| sign.counter)
}

/// What the kernel shows of a process on a device, one for each transport. Queue pairs of other kinds (the driver's own,
/// XRC) are of no workload of a hunt.
fn seen(users: &Inventory, device: &str, pid: u32) -> Vec<Seen> {
    let pairs = users.queue_pairs.iter().filter(|pair| {
        pair.device == device
            && pair.holder.process() == Some(pid)
            && matches!(
                pair.state,
                QueuePairState::ReadyToSend | QueuePairState::SendQueueDrained
            )
    });
    let mut transports: BTreeMap<&'static str, u64> = BTreeMap::new();
    for pair in pairs {
        let transport = match pair.kind {
            QueuePairKind::ReliableConnection => "rc",
            QueuePairKind::UnreliableConnection => "uc",
            QueuePairKind::UnreliableDatagram => "ud",
            _ => continue,
        };
        *transports.entry(transport).or_default() += 1;
    }
    let regions = users.memory_regions.iter();
    let lengths: Vec<u64> = regions
        .filter(|region| region.device == device && region.holder.process() == Some(pid))
        .map(|region| region.length_bytes)
        .collect();
    let [least, most] = [lengths.iter().min(), lengths.iter().max()];
    let region_bytes = [least, most].map(|length| length.copied().unwrap_or(0));
    let transports = transports.into_iter();
    transports
        .map(|(transport, queue_pairs)| Seen {
            transport,
            queue_pairs,
            regions: lengths.len() as u64,
            region_bytes,
        })
        .collect()
}

/// The anomalies as lines.
pub(super) fn text(found: &[AtRisk]) -> String {
    let mut text = "\nKnown anomalies of the users\n".to_owned();
    if found.is_empty() {
        text += "  none: of each known anomaly a condition is broken, or none is visible\n";
    }
    for one in found {
        let state = match one.counter {
            Some(counter) => format!("SEEN ({} rises)", counter.name()),
            None => "at risk, symptom not seen".to_owned(),
        };
        let Risk {
            anomaly,
            transport,
            holds,
            open,
            change,
            ..
        } = &one.risk;
        let mut lines = vec![
            format!(
                "{} {} (pid {}) on {}, {transport}: anomaly {anomaly} ({}), {state}",
                one.owner, one.program, one.pid, one.device, one.symptom
            ),
            format!("  holds: {}", holds.join(", ")),
        ];
        if !open.is_empty() {
            let count = counted(open.len() as u64, "condition");
            lines.push(format!("  not decided, {count}: {}", open.join(", ")));
        }
        if let Some(way) = change {
            lines.push(format!(
                "  cheapest change: {} ({})",
                way.keep,
                way.effort.name()
            ));
        }
        for line in lines {
            text += &format!("  {line}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_rdma_inventory::rdma::{Holder, MemoryRegion, QueuePair};

    fn pair(kind: QueuePairKind, state: QueuePairState) -> QueuePair {
        QueuePair {
            device: "rnic0".to_owned(),
            port: Some(1),
            number: 17,
            remote_number: None,
            kind,
            state,
            send_sequence: None,
            receive_sequence: None,
            path_migration: None,
            protection_domain: None,
            holder: Holder::Process(7),
        }
    }

    #[test]
    fn each_transport_counts_its_own_queue_pairs() {
        use QueuePairKind::{Driver, ReliableConnection, UnreliableDatagram};
        use QueuePairState::{Init, ReadyToSend};
        let mut users = Inventory::default();
        let many = vec![pair(ReliableConnection, ReadyToSend); 64];
        users.queue_pairs.extend(many);
        users.queue_pairs.extend([
            pair(UnreliableDatagram, ReadyToSend),
            pair(UnreliableDatagram, Init),
            pair(Driver, ReadyToSend),
        ]);
        for length_bytes in [4096, 1 << 20] {
            users.memory_regions.push(MemoryRegion {
                device: "rnic0".to_owned(),
                number: None,
                length_bytes,
                local_key: None,
                remote_key: None,
                protection_domain: None,
                holder: Holder::Process(7),
            });
        }
        let of = |transport, queue_pairs| Seen {
            transport,
            queue_pairs,
            regions: 2,
            region_bytes: [4096, 1 << 20],
        };
        assert_eq!(seen(&users, "rnic0", 7), [of("rc", 64), of("ud", 1)]);
        assert_eq!(seen(&users, "rnic0", 8), []);
        assert_eq!(seen(&users, "rnic1", 7), []);
    }
}

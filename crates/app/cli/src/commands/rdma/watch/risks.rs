//! Known anomalies that the users of the devices may be in.

use crate::commands::advise;
use crate::text::counted;
use anyhow::Result;
use isolane_common_text_output::openmetrics::{Families, Kind};
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
pub(in crate::commands::rdma) struct AtRisk {
    /// The tenant that the daemon paces the process for.
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
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

    /// The anomalies that each user of a view may be in; `tenants` are tenants by process id, where they are known.
    pub(super) fn of(
        &self,
        users: &Inventory,
        view: &View,
        tenants: &BTreeMap<u32, &str>,
    ) -> Vec<AtRisk> {
        let mut found = Vec::new();
        for user in &view.users {
            let seen = seen(users, &user.device, user.pid);
            let risks = seen
                .iter()
                .flat_map(|seen| risks(seen, &self.device, &self.set));
            found.extend(risks.map(|risk| AtRisk {
                tenant: tenants.get(&user.pid).map(|&name| name.to_owned()),
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
pub(in crate::commands::rdma) fn text(found: &[AtRisk]) -> String {
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
        let tenant = one.tenant.as_ref();
        let tenant = tenant.map_or_else(String::new, |name| format!("tenant {name}: "));
        let mut lines = vec![
            format!(
                "{tenant}{} {} (pid {}) on {}, {transport}: anomaly {anomaly} ({}), {state}",
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

/// The anomalies as OpenMetrics text.
pub(in crate::commands::rdma) fn metrics(found: &[AtRisk]) -> String {
    let mut families = Families::default();
    let help = "Known anomaly that a process may be in: 1 if a counter shows the symptom now, 0 if the process only meets the \
                visible conditions";
    let mut family = families.family(Kind::Gauge, "isolane_anomaly_seen", help);
    for one in found {
        let change = one.risk.change.as_ref().map_or("", |way| way.keep.as_str());
        family.sample(
            &[
                ("tenant", &one.tenant.as_deref().unwrap_or("")),
                ("owner", &one.owner),
                ("program", &one.program),
                ("pid", &one.pid),
                ("device", &one.device),
                ("transport", &one.risk.transport),
                ("anomaly", &one.risk.anomaly),
                ("symptom", &one.symptom),
                ("change", &change),
            ],
            one.counter.is_some(),
        );
    }
    families.into_text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_rdma_inventory::inventory::Holdings;
    use isolane_rdma_inventory::rdma::{Holder, MemoryRegion, QueuePair};
    use isolane_rdma_inventory::watch::User;

    fn pair(kind: QueuePairKind, state: QueuePairState) -> QueuePair {
        QueuePair::of(("rnic0".to_owned(), 17), kind, state, Holder::Process(7))
    }

    fn region(length_bytes: u64, holder: Holder) -> MemoryRegion {
        MemoryRegion {
            device: "rnic0".to_owned(),
            length_bytes,
            holder,
            ..MemoryRegion::default()
        }
    }

    #[test]
    fn text_and_metrics_name_the_tenant_and_the_cheapest_change() {
        let found = [AtRisk {
            tenant: Some("backup".to_owned()),
            device: "rnic0".to_owned(),
            owner: "user-0".to_owned(),
            pid: 7,
            program: "copy".to_owned(),
            symptom: Symptom::PauseFrames.name(),
            counter: Some(Counter::PausesSent),
            risk: Risk {
                anomaly: "3".to_owned(),
                transport: "rc",
                symptom: Symptom::PauseFrames,
                holds: vec!["queue_pairs >= 16".to_owned()],
                open: Vec::new(),
                note: None,
                change: None,
            },
        }];
        let shown = text(&found);
        let want =
            "  tenant backup: user-0 copy (pid 7) on rnic0, rc: anomaly 3 (pause frames), SEEN";
        assert!(shown.contains(want), "{shown}");
        let exported = metrics(&found);
        let sample = exported.lines().nth(2).unwrap();
        assert_eq!(
            sample,
            "isolane_anomaly_seen{tenant=\"backup\",owner=\"user-0\",program=\"copy\",pid=\"7\",device=\"rnic0\",\
             transport=\"rc\",anomaly=\"3\",symptom=\"pause frames\",change=\"\"} 1"
        );
        assert!(metrics(&[]).ends_with("# EOF\n"));
    }

    /// Two processes of two tenants, and one of no tenant: the one with many queue pairs is named, with its tenant and a change.
    #[test]
    fn the_tenant_that_meets_the_visible_conditions_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("known.toml");
        let text = "profile = \"cx5-100g-roce\"\nsource = \"test\"\n[[anomaly]]\nname = \"planted\"\n\
                    symptom = \"pause-frames\"\n[anomaly.conditions]\nservice = \"rc-write\"\nqueue_pairs = [8, 20000]\n";
        std::fs::write(&file, text).unwrap();
        let anomalies = Anomalies::read(Some(&file), None).unwrap().unwrap();
        let mut users = Inventory::default();
        let mut view = View {
            version: 1,
            seconds: 1.0,
            ports: Vec::new(),
            limits: Vec::new(),
            signs: Vec::new(),
            users: Vec::new(),
            users_unknown: None,
        };
        for (pid, pairs) in [(7, 2), (8, 8), (9, 1)] {
            let holder = Holder::Process(pid);
            let ready = QueuePair {
                holder: holder.clone(),
                ..pair(
                    QueuePairKind::ReliableConnection,
                    QueuePairState::ReadyToSend,
                )
            };
            users.queue_pairs.extend(vec![ready; pairs]);
            users.memory_regions.push(region(4096, holder));
            view.users.push(User {
                device: "rnic0".to_owned(),
                owner: "user-0".to_owned(),
                pid,
                program: "copy".to_owned(),
                holds: Holdings::default(),
                rc_packets_per_s: None,
            });
        }
        let tenants = BTreeMap::from([(7, "web"), (8, "backup")]);
        let found = anomalies.of(&users, &view, &tenants);
        let [one] = found.as_slice() else {
            panic!("{found:?}")
        };
        assert_eq!(
            (one.tenant.as_deref(), one.pid, one.counter),
            (Some("backup"), 8, None)
        );
        assert_eq!(one.risk.anomaly, "planted");
        let change = one.risk.change.as_ref().unwrap();
        assert_eq!(change.keep, "queue_pairs <= 4");
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
        let regions = [4096, 1 << 20].map(|bytes| region(bytes, Holder::Process(7)));
        users.memory_regions.extend(regions);
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

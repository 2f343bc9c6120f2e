//! Known anomalies that the users of the devices may be in.

use crate::commands::advise;
use crate::text::counted;
use anyhow::Result;
use isolane_rdma_inventory::counters::Counter;
use isolane_rdma_inventory::inventory::Inventory;
use isolane_rdma_inventory::rdma::{QueuePairKind, QueuePairState};
use isolane_rdma_inventory::watch::{User, View};
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

/// What is known of the devices, and what was found out of it.
pub(super) struct Anomalies {
    device: Space,
    set: KnownSet,
    /// Answers for what was seen of a process: a search each, and processes change rarely.
    answers: BTreeMap<Seen, Vec<Risk>>,
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
        Ok(sets.into_iter().next().map(|(_, device, set)| Self {
            device,
            set,
            answers: BTreeMap::new(),
        }))
    }

    /// The anomalies that each user of a view may be in.
    pub(super) fn of(&mut self, users: &Inventory, view: &View) -> Vec<AtRisk> {
        let mut found = Vec::new();
        for user in &view.users {
            let seen = seen(users, user);
            let risks = self
                .answers
                .entry(seen)
                .or_insert_with_key(|seen| risks(seen, &self.device, &self.set));
            for risk in risks {
                found.push(AtRisk {
                    device: user.device.clone(),
                    owner: user.owner.clone(),
                    pid: user.pid,
                    program: user.program.clone(),
                    symptom: risk.symptom.name(),
                    counter: counter(view, &user.device, risk.symptom),
                    risk: risk.clone(),
                });
            }
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

/// What the kernel shows of a process.
fn seen(users: &Inventory, user: &User) -> Seen {
    let pairs = users.queue_pairs.iter().filter(|pair| {
        pair.device == user.device
            && pair.holder.process() == Some(user.pid)
            && matches!(
                pair.state,
                QueuePairState::ReadyToSend | QueuePairState::SendQueueDrained
            )
    });
    let mut seen = Seen::default();
    for pair in pairs {
        seen.queue_pairs += 1;
        let transport = match pair.kind {
            QueuePairKind::ReliableConnection => "rc",
            QueuePairKind::UnreliableConnection => "uc",
            QueuePairKind::UnreliableDatagram => "ud",
            _ => continue,
        };
        if !seen.transports.contains(&transport) {
            seen.transports.push(transport);
        }
    }
    let regions = users
        .memory_regions
        .iter()
        .filter(|region| region.device == user.device && region.holder.process() == Some(user.pid));
    let lengths: Vec<u64> = regions.map(|region| region.length_bytes).collect();
    seen.regions = lengths.len() as u64;
    seen.region_bytes = [
        lengths.iter().copied().min().unwrap_or(0),
        lengths.iter().copied().max().unwrap_or(0),
    ];
    seen
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
            holds,
            open,
            change,
            ..
        } = &one.risk;
        let mut lines = vec![
            format!(
                "{} {} (pid {}) on {}: anomaly {anomaly} ({}), {state}",
                one.owner, one.program, one.pid, one.device, one.symptom
            ),
            format!("  holds: {}", holds.join(", ")),
        ];
        if !open.is_empty() {
            let count = counted(open.len() as u64, "condition");
            lines.push(format!("  not visible, {count}: {}", open.join(", ")));
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

//! The published triggers of Collie 3.11 as workloads: concrete workloads that show an anomaly, from `anomalies/triggers.toml`.

use crate::monitor::Symptom;
use crate::space::Point;
use crate::space::point::{DIRECTIONS, MEMORIES, SERVICES};
use serde::Deserialize;

const FILE: &str = include_str!("../../../../anomalies/triggers.toml");

/// All of them, in the order of the publication.
pub fn triggers() -> Vec<Trigger> {
    let file: File =
        toml::from_str(FILE).expect("a test reads the file that comes with the program");
    file.trigger
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    trigger: Vec<Trigger>,
}

/// A published workload that shows an anomaly.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trigger {
    /// The anomaly's number in the publication.
    pub anomaly: String,
    /// The device's profile.
    pub profile: String,
    /// What is seen.
    pub symptom: Symptom,
    /// The workload.
    pub point: Setting,
    /// For each necessary condition a milder setting that breaks it alone.
    pub without: Vec<Without>,
}

/// One condition broken.
#[derive(Clone, Deserialize)]
pub struct Without {
    /// The condition.
    pub condition: String,
    /// What changes.
    #[serde(flatten)]
    pub setting: Setting,
}

/// Some features of a point; those of a trigger and of what it is changed to.
#[derive(Clone, Default, Deserialize)]
pub struct Setting {
    direction: Option<String>,
    memory_a: Option<String>,
    memory_b: Option<String>,
    service: Option<String>,
    queue_pairs: Option<u64>,
    mtu: Option<u64>,
    post_list: Option<u64>,
    depth: Option<u64>,
    regions: Option<u64>,
    region_bytes: Option<u64>,
    requests: Option<Vec<Vec<u64>>>,
}

impl Setting {
    /// These features, the others as in `base`.
    #[must_use]
    pub fn over(&self, base: &Self) -> Self {
        Self {
            direction: self.direction.clone().or_else(|| base.direction.clone()),
            memory_a: self.memory_a.clone().or_else(|| base.memory_a.clone()),
            memory_b: self.memory_b.clone().or_else(|| base.memory_b.clone()),
            service: self.service.clone().or_else(|| base.service.clone()),
            queue_pairs: self.queue_pairs.or(base.queue_pairs),
            mtu: self.mtu.or(base.mtu),
            post_list: self.post_list.or(base.post_list),
            depth: self.depth.or(base.depth),
            regions: self.regions.or(base.regions),
            region_bytes: self.region_bytes.or(base.region_bytes),
            requests: self.requests.clone().or_else(|| base.requests.clone()),
        }
    }

    /// The workload of a setting that gives every feature of the transport and the pattern.
    pub fn point(&self) -> Point {
        let index = |names: &[&str], name: &Option<String>| {
            let name = name.as_deref().unwrap_or(names[0]);
            let found = names.iter().position(|known| *known == name);
            found.expect("a name of the space") as u64
        };
        let number = |value: Option<u64>| value.expect("every trigger gives it");
        let mut point = Point {
            direction: index(DIRECTIONS, &self.direction),
            memory_a: index(MEMORIES, &self.memory_a),
            memory_b: index(MEMORIES, &self.memory_b),
            regions: number(self.regions),
            region_bytes: number(self.region_bytes),
            service: index(SERVICES, &self.service),
            queue_pairs: number(self.queue_pairs),
            mtu: number(self.mtu),
            post_list: number(self.post_list),
            depth: number(self.depth),
            receive_depth: 0,
            receive_batch: 0,
            requests: self.requests.clone().expect("every trigger gives it"),
            control: 0,
            receives: 0,
            second: None,
        };
        if point.has_receives() {
            (point.receive_depth, point.receive_batch) = (2 * point.depth, point.post_list);
        }
        point
    }
}

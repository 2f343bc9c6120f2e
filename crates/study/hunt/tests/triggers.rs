//! The published triggers on the simulated devices: each shows its symptom, and loses it with any one of its conditions.
//!
//! Problem: a model that shows an anomaly for a wrong reason shows it too often or not often enough; what tells is whether
//! each published condition is necessary. Method: the data of `anomalies/triggers.toml`, each point judged by the hunt's own
//! monitor; the whole table is compared with what was last looked at and accepted. Limits: one seed; a condition is broken
//! by one value far from it, so borders are not tested. Source: collie, table 3.2 and 3.11.

use expect_test::expect_file;
use isolane_rdma_scenario::library::Library;
use isolane_study_hunt::bounds::Bounds;
use isolane_study_hunt::experiment::{Lab, Target};
use isolane_study_hunt::monitor::{Symptom, judge};
use isolane_study_hunt::space::Point;
use isolane_study_hunt::space::point::{DIRECTIONS, MEMORIES, SERVICES};
use isolane_study_testbed_simulator::SimTestbed;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;

const FILE: &str = include_str!("../../../../anomalies/triggers.toml");
const SEED: u64 = 1;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    trigger: Vec<Trigger>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Trigger {
    anomaly: String,
    profile: String,
    symptom: Symptom,
    point: Setting,
    without: Vec<Without>,
}

#[derive(Deserialize)]
struct Without {
    condition: String,
    #[serde(flatten)]
    setting: Setting,
}

/// Some features of a point; those of a trigger and of what it is changed to.
#[derive(Clone, Default, Deserialize)]
struct Setting {
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
    fn over(&self, base: &Self) -> Self {
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

    fn point(&self) -> Point {
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
        };
        if point.has_receives() {
            (point.receive_depth, point.receive_batch) = (2 * point.depth, point.post_list);
        }
        point
    }
}

fn line(
    text: &mut String,
    name: &str,
    point: &Point,
    lab: &Lab<'_>,
    bounds: &Bounds,
) -> Option<Symptom> {
    let measured = lab.measure(point, SEED).expect("the simulator runs it");
    let judged = judge(point, &measured, bounds);
    let percent = |part: f64| (part * 100.0).round();
    let sound = judged.symptom.map_or("sound", Symptom::name);
    writeln!(
        text,
        "{name:<20} {sound:<14} pause {:>3} %, bits {:>3} %, packets {:>3} %, offer {:>3} %{}",
        percent(judged.pause_ratio),
        percent(judged.of_bits),
        percent(judged.of_packets),
        percent(judged.of_offer),
        if measured.steady { "" } else { ", not steady" },
    )
    .expect("writing to a string never fails");
    judged.symptom
}

#[test]
fn every_trigger_shows_its_symptom_and_each_condition_is_necessary() {
    let file: File = toml::from_str(FILE).expect("the file is well-formed");
    let library = Library::embedded();
    let mut bounds: BTreeMap<String, Bounds> = BTreeMap::new();
    let mut text = String::new();
    let (mut shown, mut needed, mut conditions) = (0, 0, 0);
    for trigger in &file.trigger {
        let profile = library.profile(&trigger.profile).expect("shipped");
        let lab = Lab::simulated(&SimTestbed, profile);
        let bounds = bounds.entry(trigger.profile.clone()).or_insert_with(|| {
            Bounds::measure(&lab, profile, SEED).expect("the simulator runs benchmarks")
        });
        let name = format!("#{} {}", trigger.anomaly, trigger.symptom.name());
        writeln!(text, "{name}").expect("writing to a string never fails");
        let seen = line(&mut text, "  trigger", &trigger.point.point(), &lab, bounds);
        shown += usize::from(seen == Some(trigger.symptom));
        for without in &trigger.without {
            let point = without.setting.over(&trigger.point).point();
            let name = format!("  without {}", without.condition);
            let seen = line(&mut text, &name, &point, &lab, bounds);
            needed += usize::from(seen != Some(trigger.symptom));
            conditions += 1;
        }
    }
    writeln!(
        text,
        "{shown} of {} triggers, {needed} of {conditions} conditions",
        file.trigger.len()
    )
    .expect("writing to a string never fails");
    expect_file!["triggers.txt"].assert_eq(&text);
}

//! Which mechanisms end the symptoms of workloads whose causes are known.

use super::*;
use crate::space::Space;
use crate::space::tests::profile;

/// Many deep receive queues with a cache of receive queues so small that each lookup misses: the results differ only where
/// the device has no other place for receives.
#[test]
fn the_cache_of_receive_queues_is_a_mechanism_only_where_it_is_used() {
    let point = Point {
        queue_pairs: 64,
        depth: 128,
        receive_depth: 256,
        ..crate::space::tests::plain()
    };
    let mut listed = Vec::new();
    for name in ["cx5-100g-roce", "cx6-200g-roce", "p2100-100g-roce"] {
        let (device, mut small) = (profile(name), profile(name));
        let cache = small.section_mut("cache").expect("every profile has it");
        cache.get_mut("receive_wqe_entries").unwrap().value = 16.0;
        let testbed = isolane_study_testbed_simulator::SimTestbed;
        let run = |device: &Profile| Lab::simulated(&testbed, device).measure(&point, 1);
        let is_used = run(&device).unwrap() != run(&small).unwrap();
        let bounds = crate::synthetic::bounds();
        let knockout = Knockout::of(&testbed, &device, &bounds);
        let is_listed = knockout.mechanisms().any(|one| one.name == RECEIVE_QUEUES);
        assert_eq!(is_listed, is_used, "{name}");
        listed.push(is_listed);
    }
    assert_eq!(listed, [true, false, false]);
}

fn trigger(anomaly: &str) -> Point {
    let all = crate::triggers::triggers();
    let trigger = all.iter().find(|one| one.anomaly == anomaly);
    trigger.expect("it was published").point.point()
}

/// The names of the causes of `symptom` of `point` on the device `name` with a link of `link_gbps`.
fn causes_of(name: &str, (point, symptom): (&Point, Symptom), link_gbps: f64) -> Vec<&'static str> {
    let bounds = Bounds {
        link_gbps,
        packets_per_s: 1e9,
        services: Vec::new(),
    };
    let testbed = isolane_study_testbed_simulator::SimTestbed;
    let device = profile(name);
    let knockout = Knockout::of(&testbed, &device, &bounds);
    let measured = Lab::simulated(&testbed, &device).measure(point, 1).unwrap();
    let counters = &measured.counters;
    let causes = |shown| {
        let finding = (point, symptom);
        knockout.causes(finding, 1, &shown, counters).unwrap()
    };
    let found = causes(BTreeSet::new());
    if let [only] = found.as_slice() {
        // With one cause, the order of the runs changes nothing.
        assert_eq!(causes(BTreeSet::from([only.name])), found);
        assert_eq!(causes(BTreeSet::from([BUS])), found);
    }
    found.into_iter().map(|one| one.name).collect()
}

/// Payload that is read twice fills the bus; a wider bus ends that too.
#[test]
fn what_packet_memory_does_to_the_bus_belongs_to_packet_memory() {
    let finding = (&trigger("14"), Symptom::LowThroughput);
    let causes = causes_of("p2100-100g-roce", finding, 100.0);
    assert_eq!(causes, [PACKET_MEMORY]);
}

/// Traffic inside the host and from the other one, all of it to GPU memory: either pauses the link.
#[test]
fn mechanisms_that_suffice_each_explain_a_finding_together() {
    let loopback = Point {
        queue_pairs: 4,
        post_list: 1,
        depth: 16,
        regions: 1,
        ..trigger("13")
    };
    let gpu = Point {
        memory_a: 2,
        ..loopback.clone()
    };
    let to_gpu = Point {
        direction: point::ONE_WAY,
        memory_b: 2,
        ..loopback.clone()
    };
    let of = |point| causes_of("cx6-200g-roce", (point, Symptom::PauseFrames), 200.0);
    assert_eq!(of(&loopback), [LOOPBACK_PATH]);
    assert_eq!(of(&to_gpu), ["gpu-path"]);
    let all = of(&gpu);
    assert!(all.len() > 10 && all.contains(&"gpu-path"), "{all:?}");
}

/// The link is 200 Gb/s fast, not the 400 Gb/s that the bounds say.
#[test]
fn what_stays_without_all_mechanisms_has_no_cause() {
    let point = crate::space::tests::plain();
    let finding = (&point, Symptom::LowThroughput);
    let causes = causes_of("cx6-200g-roce", finding, 400.0);
    assert_eq!(causes, Vec::<&str>::new());
}

#[test]
fn a_device_without_what_does_not_concern_a_workload_does_the_same() {
    let testbed = isolane_study_testbed_simulator::SimTestbed;
    let bounds = crate::synthetic::bounds();
    let mut left_out = 0;
    for (name, anomalies) in [
        ("cx6-200g-roce", ["3", "9", "10"]),
        ("p2100-100g-roce", ["14", "15", "16"]),
    ] {
        let device = profile(name);
        let knockout = Knockout::of(&testbed, &device, &bounds);
        for point in anomalies.map(trigger) {
            let run = |device| Lab::simulated(&testbed, device).measure(&point, 1).unwrap();
            let with = run(&device);
            for (mechanism, without) in &knockout.without {
                if !mechanism.concerns(&point) {
                    left_out += 1;
                    assert_eq!(
                        run(without).counters,
                        with.counters,
                        "{mechanism:?} {point:?}"
                    );
                }
            }
        }
    }
    assert!(left_out > 12, "{left_out}");
}

/// Of each published trigger: without a mechanism whose counters stayed at zero, the symptom stays.
#[test]
fn a_mechanism_that_a_workload_does_not_use_is_no_cause() {
    let testbed = isolane_study_testbed_simulator::SimTestbed;
    let mut unused = 0;
    let mut bounds_of = BTreeMap::new();
    for trigger in crate::triggers::triggers() {
        let (device, point) = (profile(&trigger.profile), trigger.point.point());
        let lab = Lab::simulated(&testbed, &device);
        let bounds = bounds_of
            .entry(trigger.profile.clone())
            .or_insert_with(|| Bounds::measure(&lab, &device, &Space::of(&device), 1).unwrap());
        let knockout = Knockout::of(&testbed, &device, bounds);
        let measured = lab.measure(&point, 1).unwrap();
        let symptom = judge(&point, &measured, bounds).symptom;
        assert_eq!(symptom, Some(trigger.symptom), "{}", trigger.anomaly);
        for one in knockout.mechanisms().filter(|one| one.concerns(&point)) {
            if one.used(&measured.counters) == 0.0 {
                unused += 1;
                let without = knockout.without(one, &point, 1).unwrap().symptom;
                assert_eq!(without, symptom, "{} {}", trigger.anomaly, one.name);
            }
        }
    }
    assert!(unused > 18, "{unused}");
}

#[test]
fn a_device_is_named_without_what_it_does_not_have() {
    let bounds = crate::synthetic::bounds();
    let testbed = isolane_study_testbed_simulator::SimTestbed;
    let names = |name: &str| -> Vec<&str> {
        let knockout = Knockout::of(&testbed, &profile(name), &bounds);
        knockout.mechanisms().map(|one| one.name).collect()
    };
    let all = names("cx6-200g-roce");
    assert!(
        all.contains(&"ordering") && !all.contains(&"packet-memory"),
        "{all:?}"
    );
    let other = names("p2100-100g-roce");
    assert!(
        other.contains(&"packet-memory") && !other.contains(&"ordering"),
        "{other:?}"
    );
}

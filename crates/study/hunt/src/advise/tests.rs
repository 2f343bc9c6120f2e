//! Advice on a target whose faults the test knows.

use super::*;
use crate::hunt::{Settings, hunt};
use crate::known::KnownSet;
use crate::monitor::Symptom;
use crate::synthetic::{Fault, Synthetic, bench, fault, space};
use expect_test::expect;

/// Many connections that SEND, and long lists over a small MTU.
fn faults() -> Vec<Fault> {
    vec![
        fault(
            Symptom::PauseFrames,
            &[
                (Feature::Service, Allowed::Set(vec![1])),
                (Feature::QueuePairs, Allowed::Range(64, 20_000)),
            ],
        ),
        fault(
            Symptom::LowThroughput,
            &[
                (Feature::Mtu, Allowed::Set(vec![1_024])),
                (Feature::PostList, Allowed::Range(16, 128)),
            ],
        ),
    ]
}

fn found() -> KnownSet {
    let target = Synthetic {
        faults: faults(),
        ..Synthetic::default()
    };
    let settings = Settings {
        seed: 3,
        searcher: "random".to_owned(),
        counters: Vec::new(),
        reduces: true,
        stages: crate::search::Stages::default(),
        tests: true,
    };
    let found = hunt(&mut bench(&target, 1_500, 3), &space(), &settings).unwrap();
    assert_eq!(found.anomalies.len(), 2, "{found:?}");
    KnownSet::of(&found)
}

fn application(text: &str) -> Space {
    space().restricted(text, "app.toml").unwrap()
}

#[test]
fn an_application_apart_from_all_conditions_is_clear() {
    let app = application("service = \"rc-write\"\nmtu = 4096\n");
    let advice = advise(&app, &space(), &found());
    assert_eq!((advice.known, advice.reached.len()), (2, 0));
    assert!(advice.text().contains("reaches none of 2 known anomalies"));
}

#[test]
fn ways_out_come_cheapest_first_and_say_what_to_keep_to() {
    let app = application("service = \"rc-send\"\nqueue_pairs = [1, 1000]\nmtu = 1024\n");
    let advice = advise(&app, &space(), &found());
    let ways: Vec<String> = advice
        .reached
        .iter()
        .flat_map(|one| {
            let always = one.always;
            one.ways.iter().map(move |way| {
                format!(
                    "{} always={always} {:?} within={} ends={:?} opens={:?}",
                    way.keep, way.effort, way.within, way.ends, way.opens
                )
            })
        })
        .collect();
    expect![[r#"
        queue_pairs <= 32 always=false Resources within=true ends=["1"] opens=[]
        service = all but rc-send always=false Transport within=false ends=["1"] opens=[]
        post_list <= 8 always=false Constant within=true ends=["2"] opens=[]
        mtu = all but 1KiB always=false Setting within=false ends=["2"] opens=[]"#]]
    .assert_eq(&ways.join("\n"));
}

#[test]
fn the_advice_ends_the_anomaly() {
    let (found, device) = (found(), space());
    let app = application("service = \"rc-send\"\nqueue_pairs = [1, 1000]\nmtu = 1024\n");
    for one in advise(&app, &device, &found).reached {
        for way in one.ways {
            let known = found.known.iter().find(|known| known.name == one.name);
            let set = known.unwrap();
            let inside = &set.region.features[&way.feature];
            let (_, rest) = outside(&app, &device, way.feature, inside).unwrap();
            let mut changed = app.clone();
            changed.narrow(way.feature, rest);
            let mut stream = Stream::named(9, "test");
            for _ in 0..200 {
                let point = changed.draw(&mut stream).unwrap();
                let fault = &faults()[usize::from(set.symptom == Symptom::LowThroughput)];
                assert!(!fault.region.has(&point), "{}: {point:?}", way.keep);
            }
        }
    }
}

#[test]
fn a_workload_that_always_has_the_conditions_is_reported() {
    let app = application(
        "service = \"rc-send\"\nqueue_pairs = [100, 200]\nmtu = 4096\ndirection = \"one-way\"\n",
    );
    let advice = advise(&app, &space(), &found());
    assert_eq!(advice.reached.len(), 1);
    let one = &advice.reached[0];
    assert!(one.always, "{one:?}");
    assert!(one.ways.iter().all(|way| !way.within), "{one:?}");
}

#[test]
fn tensors_with_meta_data_meet_the_published_anomaly() {
    let text = include_str!("../../../../../examples/byteps-like.toml");
    let app = application(text);
    let published = KnownSet::published("cx6-200g-roce", &space())
        .unwrap()
        .unwrap();
    let advice = advise(&app, &space(), &published);
    expect![[r#"
        Collie, table 3.2: the application reaches 1 of 13 known anomalies

        anomaly 9 (pause frames), can be reached
          conditions  direction = bidirectional, elements >= 3, smallest <= 1KiB, largest >= 64KiB
          example     direction=bidirectional memory_a=local memory_b=local regions=256 region_bytes=2MiB service=rc-write queue_pairs=32 mtu=4KiB post_list=1 depth=128 pattern=[64KiB+2MiB+256B]
          known       Short writes to host memory hold up long ones on hosts without PCIe relaxed ordering; forcing it ends the anomaly.
          way out     keep elements <= 2 (the layout of messages)
          or          keep 2KiB <= smallest <= 64KiB (the layout of messages)
          or          change to largest <= 32KiB (the layout of messages)
          or          change to direction = one-way (which hosts send)
    "#]].assert_eq(&advice.text());
}

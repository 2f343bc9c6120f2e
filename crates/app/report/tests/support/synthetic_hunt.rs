//! Made-up hunts for the tests of their page.

use isolane_rdma_scenario::library::Library;
use isolane_study_hunt::bench::Spent;
use isolane_study_hunt::bounds::Bounds;
use isolane_study_hunt::compare::{COMPARISON_VERSION, Comparison, Contestant, Race};
use isolane_study_hunt::hunt::{Anomaly, Ended, HuntResult, TracePoint};
use isolane_study_hunt::mfs::{Checks, FeatureSet};
use isolane_study_hunt::monitor::{Judgement, Symptom};
use isolane_study_hunt::region::Region;
use isolane_study_hunt::space::{Allowed, Feature, Point, Space};
use isolane_study_hunt::state::HUNT_VERSION;
use isolane_study_hunt::victim::{Harm, VictimSummary};
use std::collections::BTreeMap;

const COUNTERS: [&str; 4] = [
    "receive_wqe_cache_miss",
    "icm_cache_miss",
    "pcie_to_host_utilisation",
    "responder_unit_utilisation",
];

pub(crate) fn space() -> Space {
    let library = Library::embedded();
    Space::of(library.profile("cx6-200g-roce").expect("it is embedded"))
}

fn point() -> Point {
    Point {
        direction: 0,
        memory_a: 0,
        memory_b: 0,
        regions: 1,
        region_bytes: 65_536,
        service: 5,
        queue_pairs: 1,
        mtu: 2_048,
        post_list: 64,
        depth: 256,
        receive_depth: 512,
        receive_batch: 1,
        requests: vec![vec![2_048]],
        control: 0,
        receives: 0,
        second: None,
    }
}

fn spent(experiments: u64) -> Spent {
    Spent {
        experiments,
        modelled_s: experiments as f64 * 24.0,
    }
}

fn anomaly(number: u32, symptom: Symptom, at: u64, conditions: &[(Feature, Allowed)]) -> Anomaly {
    let set = FeatureSet {
        symptom,
        region: Region {
            features: conditions.iter().cloned().collect(),
        },
        witness: point(),
        outside: BTreeMap::new(),
        unsure: Vec::new(),
        checks: Some(Checks {
            reproduces: true,
            broken_without_effect: Vec::new(),
            tried: 8,
            shown: 7,
        }),
    };
    let counters = COUNTERS
        .iter()
        .zip(1u32..)
        .map(|(name, weight)| ((*name).to_owned(), f64::from(weight * number) * 2.5e5));
    Anomaly {
        number,
        symptom,
        point: point(),
        judgement: Judgement {
            pause_ratio: 0.12,
            of_bits: 0.4,
            of_packets: 0.3,
            symptom: Some(symptom),
            ..Judgement::default()
        },
        counters: counters.collect(),
        found_at: spent(at),
        reduced_at: spent(at + 60),
        set: (!conditions.is_empty()).then_some(set),
        times: number,
        harm: None,
    }
}

/// Three anomalies, the last not reduced.
pub(crate) fn hunt() -> HuntResult {
    let range = |feature, from, to| (feature, Allowed::Range(from, to));
    let set = |feature, values: &[u64]| (feature, Allowed::Set(values.to_vec()));
    let trace = (0..90u64).map(|step| TracePoint {
        spent: spent((step / 4 + 1) * 4 + step / 30 * 60),
        counters: (0..COUNTERS.len() as u64)
            .map(|index| ((step * 37 + index * 11) % 100) as f64 * 1e4)
            .collect(),
        symptom: (step % 30 == 29).then_some(Symptom::PauseFrames),
    });
    let names = COUNTERS.iter().map(|name| (*name).to_owned());
    HuntResult {
        version: HUNT_VERSION,
        target: "sim:cx6-200g-roce".to_owned(),
        searcher: "screen".to_owned(),
        seed: 1,
        ended: Ended::Budget,
        spent: spent(280),
        settling: None,
        counters: names.clone().collect(),
        usual_counters: names.map(|name| (name, 2e5)).collect(),
        bounds: Some(Bounds {
            link_gbps: 200.0,
            packets_per_s: 2.1e8,
            services: Vec::new(),
        }),
        victim: None,
        anomalies: vec![
            anomaly(
                1,
                Symptom::PauseFrames,
                32,
                &[
                    set(Feature::Service, &[5]),
                    range(Feature::PostList, 64, 128),
                    range(Feature::Depth, 256, 4_096),
                ],
            ),
            anomaly(
                2,
                Symptom::LowThroughput,
                124,
                &[
                    set(Feature::Service, &[0]),
                    range(Feature::QueuePairs, 512, 20_000),
                    range(Feature::Depth, 1, 16),
                    range(Feature::Largest, 32, 1_024),
                ],
            ),
            anomaly(3, Symptom::PauseFrames, 216, &[]),
        ],
        not_repeated: 1,
        unsettled: 0,
        trace: trace.collect(),
    }
}

/// Two attacks of a victim; the second is the worse.
pub(crate) fn victim() -> HuntResult {
    let mut result = hunt();
    result.victim = Some(VictimSummary {
        victim: "small-write".to_owned(),
        policy: "sriov".to_owned(),
        on_sale: true,
        alone: Default::default(),
        rule: "at least (1 - 0.25) x min(90 M/s alone, 52 M/s guaranteed) = 39 M/s".to_owned(),
        attacker_part: 0.5,
    });
    result.anomalies.truncate(2);
    for (anomaly, retained) in result.anomalies.iter_mut().zip([0.3, 0.1]) {
        anomaly.symptom = Symptom::Interference;
        anomaly.harm = Some(Harm {
            retained,
            link_share: 0.2,
            victim: Default::default(),
            column: None,
            exhausted: Some("address translation cache (MTT/MPT)".to_owned()),
        });
    }
    result
}

/// Two searchers; one finds more.
pub(crate) fn comparison() -> Comparison {
    let race = |name: &str, found: u64| Race {
        contestant: Contestant::parse(name).expect("it is one"),
        seed: 1,
        spent: spent(1_500),
        found: (1..=found)
            .map(|n| (n.to_string(), spent(n * 100)))
            .collect(),
        others: 0,
        findings: 0,
        mechanisms: 0,
        conditions: Default::default(),
        compared: Vec::new(),
        other_causes: Default::default(),
        search_experiments: 700,
        counter_max: 0.0,
    };
    Comparison {
        version: COMPARISON_VERSION,
        target: "sim:<b>".to_owned(),
        budget: "10 modelled hours".to_owned(),
        anomalies: (1..=13).map(|n: u32| n.to_string()).collect(),
        races: vec![race("anneal", 9), race("random:no-mfs", 3)],
    }
}

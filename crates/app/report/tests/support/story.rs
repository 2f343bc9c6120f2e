//! An explanation made up for tests of its page; it says nothing about any device.

use isolane_study_explain::explanation::*;

fn steps(value: f64) -> impl Iterator<Item = f64> {
    (0..60).map(move |point| if point < 20 { 0.0 } else { value })
}

fn layer(name: &str, value: f64) -> Layer {
    Layer {
        name: name.to_owned(),
        values: steps(value).map(Some).collect(),
    }
}

/// `victim` waits for context misses of `crowd`.
pub(crate) fn explanation(victim: &str) -> Explanation {
    let crowd = || {
        vec![Part {
            tenant: "crowd".to_owned(),
            share: 1.0,
        }]
    };
    let mut explanation: Explanation =
        serde_json::from_str(include_str!("../../../../study/explain/src/example.json"))
            .expect("the example is an explanation");
    explanation.victim = victim.to_owned();
    explanation.verdict = format!("{victim} keeps 20 % of its goodput.");
    explanation.chain = vec![Link {
        role: "cause".to_owned(),
        text: "crowd runs WRITE of 512 B on 1536 queue pairs.".to_owned(),
    }];
    let cause = &mut explanation.causes[0];
    (cause.caused_by, cause.occupants) = (crowd(), crowd());
    explanation.series = Series {
        point_us: 50.0,
        victim_gbps: vec![1.0; 60],
        alone_gbps: vec![5.0; 60],
        attacker_gbps: steps(20.0).collect(),
        victim_p99_us: vec![Some(10.0); 60],
        alone_p99_us: vec![Some(2.0); 60],
        occupancy_of: "slots for queue-pair context misses of host A".to_owned(),
        occupancy_unit: "busy, %".to_owned(),
        occupancy: vec![layer("crowd", 90.0), layer(victim, 10.0)],
        waits: vec![
            layer("context miss slots, A", 6.0),
            layer("other waits", 1.0),
            layer("service", 1.0),
        ],
        misses: vec![layer("contexts, host A", 93.0)],
    };
    explanation
}

//! An explanation made up for tests of its page; it says nothing about any device.

use isolane_rdma_scenario::model::Host;
use isolane_study_audit::cell::{Metrics, VictimKind};
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
    let metrics = |goodput_gbps: f64| Metrics {
        goodput_gbps,
        message_rate_per_s: goodput_gbps * 1e6,
        p99_us: Some(10.0 / goodput_gbps),
        ..Metrics::default()
    };
    let step = Step {
        stage: "metadata".to_owned(),
        resource: "slots for queue-pair context misses".to_owned(),
        host: Host::A,
        waits: true,
        caused_by: Some("crowd".to_owned()),
        from_us: 0.5,
        us: 6.25,
    };
    Explanation {
        version: EXPLANATION_VERSION,
        profile: "cx5-100g-roce".to_owned(),
        policy: "none".to_owned(),
        on_sale: true,
        seed: 1,
        victim: victim.to_owned(),
        kind: VictimKind::Rate,
        victim_does: "WRITE of 64 B on 4 queue pairs".to_owned(),
        attacker: "crowd".to_owned(),
        attacker_does: "WRITE of 512 B on 1536 queue pairs".to_owned(),
        settled: true,
        warmup_us: 150.0,
        measured_us: 3000.0,
        attack_us: 1000.0,
        window_us: [1150.0, 3000.0],
        loss: Loss {
            alone: metrics(5.0),
            attacked: metrics(1.0),
            retained: 0.2,
            hurt: true,
        },
        latency: MeanLatency {
            alone_us: 2.0,
            attacked_us: 10.0,
            messages_alone: 900,
            messages_attacked: 180,
            unfinished: 4,
        },
        verdict: format!("{victim} keeps 20 % of its goodput."),
        chain: vec![Link {
            role: "cause".to_owned(),
            text: "crowd runs WRITE of 512 B on 1536 queue pairs.".to_owned(),
        }],
        causes: vec![Cause {
            resource: "context-miss-slots".to_owned(),
            title: "slots for queue-pair context misses".to_owned(),
            host: Host::A,
            alone_us: 0.0,
            attacked_us: 6.0,
            added_us: 6.0,
            share: 0.75,
            caused_by: crowd(),
            busy_alone: Some(0.0),
            busy_attacked: Some(0.95),
            occupants: crowd(),
            sentence: "A message waited 6.00 us on average.".to_owned(),
        }],
        stages: vec![StageTime {
            stage: "schedule queue".to_owned(),
            waited_alone_us: 1.0,
            served_alone_us: 1.0,
            waited_attacked_us: 9.0,
            served_attacked_us: 1.0,
        }],
        caches: vec![],
        message_alone: vec![],
        message_attacked: vec![step],
        series: Series {
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
        },
        rerun: "isolane explain web crowd".to_owned(),
    }
}

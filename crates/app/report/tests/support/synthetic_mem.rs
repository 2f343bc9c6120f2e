//! Made-up results of tiered memory: plausible numbers from names alone, the same every time.

use isolane_study_results::memory::{
    MEM_RESULT_VERSION, MemAppPoint, MemAppResult, MemChange, MemMachineResult, MemPoint,
    MemProfileResult, MemResult, MemTierResult,
};
use std::collections::BTreeMap;

const POINTS: u32 = 60;
const GB: f64 = 1e9;

/// Redis, a stream called `stream`, and an application that `fcfs` refuses, under `policy`.
pub(crate) fn run(policy: &str, stream: &str) -> MemResult {
    let mercury = policy == "mercury";
    let refused = policy == "fcfs";
    let redis = |at: f64| match mercury {
        true => 150.0 + 6.0 * (at / 7.0).sin(),
        false => 190.0 + 12.0 * (at / 11.0).sin(),
    };
    let rate = |at: f64| match mercury {
        true => 50.0 + 2.0 * (at / 5.0).cos(),
        false => 96.0 + 3.0 * (at / 9.0).cos(),
    };
    let point = |latency_ns: f64, bandwidth_gb_per_s: f64, near: f64, cpu_share: f64| MemAppPoint {
        latency_ns,
        bandwidth_gb_per_s,
        throughput: bandwidth_gb_per_s * 1e6,
        local_bytes: (near * GB) as u64,
        cpu_share,
    };
    let series = (0..=POINTS).map(|index| {
        let at_s = f64::from(index) * 6.0;
        let mut apps = BTreeMap::from([("redis".to_owned(), point(redis(at_s), 0.33, 19.0, 1.0))]);
        if (10..50).contains(&index) {
            let (near, cpu) = if mercury { (9.5, 0.85) } else { (38.0, 1.0) };
            apps.insert(stream.to_owned(), point(310.0, rate(at_s), near, cpu));
        }
        MemPoint { at_s, apps }
    });
    let mut apps = vec![
        app("redis", "redis", "operations", 3, (redis(0.0), 0.33)),
        app(stream, "llama", "tokens", 2, (310.0, rate(0.0))),
        app("late", "vector-flat", "queries", 1, (180.0, 20.0)),
    ];
    apps[0].slo_latency_ns = Some(160.0);
    apps[0].slo_met_share = if mercury { 1.0 } else { 0.0 };
    apps[1].slo_bandwidth_gb_per_s = Some(50.0);
    if mercury || refused {
        for one in &mut apps {
            one.verdict = Some("admitted".to_owned());
            one.profile = Some(MemProfileResult {
                admissible: true,
                local_bytes: 8_000_000_000,
                cpu_share: 1.0,
                bandwidth_gb_per_s: 50.0,
            });
        }
    }
    if refused {
        apps[2] = MemAppResult {
            verdict: Some("refused".to_owned()),
            verdict_reason: Some("3.1 GB of near memory short".to_owned()),
            ran_s: 0.0,
            ..app("late", "vector-flat", "queries", 1, (0.0, 0.0))
        };
    }
    MemResult {
        version: MEM_RESULT_VERSION,
        scenario: "made-up".to_owned(),
        machine: "xeon-6330".to_owned(),
        policy: policy.to_owned(),
        seed: 1,
        warmup_s: 120.0,
        measured_s: 240.0,
        apps,
        tiers: ["local", "far"].map(tier).to_vec(),
        machine_wide: MemMachineResult {
            slots_busy_share: 0.7,
            slot_wait_ns: 12.5,
            hint_faults_per_s: 120_000.0,
            healthy_local_gb_per_s: 94.7,
            healthy_hint_faults_per_s: 375_000.0,
            counts: BTreeMap::from([
                ("actions".to_owned(), 40),
                ("demoted_pages".to_owned(), 70_000),
                ("promoted_pages".to_owned(), 12_000),
            ]),
        },
        series: series.collect(),
        changes: match mercury {
            true => (0..20).map(|index| change(index, stream)).collect(),
            false => Vec::new(),
        },
    }
}

fn app(name: &str, kind: &str, operation: &str, priority: u32, means: (f64, f64)) -> MemAppResult {
    MemAppResult {
        name: name.to_owned(),
        kind: kind.to_owned(),
        priority,
        slo_latency_ns: None,
        slo_bandwidth_gb_per_s: None,
        verdict: None,
        verdict_reason: None,
        ran_s: 240.0,
        latency_ns: (means.0 > 0.0).then_some(means.0),
        bandwidth_gb_per_s: means.1,
        throughput: means.1 * 1e6,
        operation: operation.to_owned(),
        operation_us: (means.1 > 0.0).then_some(3.5),
        slo_met_share: 1.0,
        local_bytes: 19_000_000_000,
        far_bytes: 1_000_000_000,
        last_local_bytes: 19_000_000_000,
        last_far_bytes: 1_000_000_000,
        cpu_share: 1.0,
        promoted_bytes: 0,
        demoted_bytes: 0,
        last_reason: None,
        profile: None,
    }
}

fn tier(name: &str) -> MemTierResult {
    MemTierResult {
        name: name.to_owned(),
        capacity_bytes: 80_000_000_000,
        used_bytes: 60_000_000_000,
        bandwidth_gb_per_s: 40.0,
        utilisation: 0.4,
        latency_ns: 160.0,
        queue_full_share: 0.0,
    }
}

fn change(index: u32, stream: &str) -> MemChange {
    let (app, reason) = match index % 4 {
        0 => ("redis", "has less than its objective needs"),
        _ => (stream, "gives bandwidth to redis"),
    };
    MemChange {
        at_s: f64::from(index) * 1.2,
        app: app.to_owned(),
        local_limit_bytes: Some(40_000_000_000 - u64::from(index) * 1_000_000_000),
        cpu_share: 1.0 - f64::from(index) * 0.01,
        reason: reason.to_owned(),
    }
}

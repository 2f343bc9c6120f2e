//! What a decision of Mercury costs: `cargo bench -p isolane-common-quantities --bench mercury`.
//!
//! One control step and one admission on a machine with 10 and 100 applications, all of which want something: a third
//! are latency-sensitive and too slow, a third are streams, a third take what is left. Prints microseconds (the median
//! of repeats, with the fastest and the slowest). The aims are 2 ms a step and 10 ms an admission. Without `--bench` (as
//! under `cargo test`) every case runs once, only to show that it works.

use isolane_common_quantities::units::{Bytes, Duration, Instant};
use isolane_memory_policy::mercury::{
    AppId, AppSpec, AppView, MemoryPolicy, Mercury, MercuryOptions, Objective, Observation, PERIOD,
    Reading, Source, TIERS_MAX, Thresholds, TierView,
};
use std::hint::black_box;
use std::time::Instant as WallClock;

fn main() {
    let measured = std::env::args().any(|argument| argument == "--bench");
    println!("Mercury, us: median (fastest to slowest)");
    for apps in [10, 100] {
        let (mut mercury, seen) = machine(apps);
        let mut now = Instant::ZERO;
        case(
            &format!("control step, {apps} applications"),
            measured,
            || {
                now += PERIOD;
                mercury.step(now, &seen);
                while let Some(action) = mercury.poll_action() {
                    black_box(action);
                }
            },
        );
        let important = spec(1_000, u32::MAX, Objective::Bandwidth(150 * GB));
        case(&format!("admission, {apps} applications"), measured, || {
            black_box(mercury.plan(&important, &seen));
        });
    }
}

const GB: u64 = 1_000_000_000;
const NEAR: u64 = 512 * GB;

fn spec(id: u32, priority: u32, objective: Objective) -> AppSpec {
    AppSpec {
        name: format!("app{id}"),
        ..AppSpec::new(AppId(id), objective, priority, Bytes::new(20 * GB))
    }
}

fn reading<T>(value: T) -> Option<Reading<T>> {
    Some(Reading {
        value,
        age: Duration::ZERO,
        source: Source::Pmu,
    })
}

/// A full machine in which every application misses its objective.
fn machine(apps: u32) -> (Mercury, Observation) {
    let thresholds = Thresholds {
        local_bandwidth: 200 * GB,
        hint_faults_per_s: 100_000.0,
    };
    let mut options = MercuryOptions::new(thresholds, Bytes::new(NEAR));
    options.far_bandwidth = Some(20 * GB);
    options.near_bandwidth = Some(300 * GB);
    let mut mercury = Mercury::new(options).expect("the options are in range");
    let capacity = Bytes::new(NEAR);
    let tier = |capacity| TierView {
        capacity,
        used: Bytes::ZERO,
        bandwidth: reading(150 * GB),
    };
    let mut seen = Observation {
        tiers: vec![tier(capacity), tier(Bytes::new(4 * NEAR))],
        hint_faults_per_s: reading(90_000.0),
        apps: Vec::new(),
    };
    for id in 0..apps {
        let objective = match id % 3 {
            0 => Objective::Latency(Duration::from_ns(100)),
            1 => Objective::Bandwidth(10 * GB),
            _ => Objective::BestEffort,
        };
        mercury.arrive(Instant::ZERO, spec(id, id, objective), &seen);
        let near = Bytes::new(NEAR / u64::from(apps));
        let mut held = [Bytes::ZERO; TIERS_MAX];
        held[0] = near;
        held[1] = Bytes::new(20 * GB).saturating_sub(near);
        seen.tiers[0].used += near;
        seen.apps.push(AppView {
            id: AppId(id),
            held,
            latency: reading(Duration::from_ns(150 + u64::from(id))),
            bandwidth: reading(6 * GB),
            cpu_used: None,
        });
    }
    while mercury.poll_action().is_some() {}
    (mercury, seen)
}

fn case(name: &str, measured: bool, mut operation: impl FnMut()) {
    let repeats = if measured { REPEATS } else { 1 };
    let mut times: Vec<f64> = (0..repeats)
        .map(|_| {
            let start = WallClock::now();
            operation();
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let (fastest, slowest) = (times[0], times[times.len() - 1]);
    println!(
        "{name:40} {:10.1} ({fastest:.1} to {slowest:.1})",
        times[times.len() / 2]
    );
}

const REPEATS: usize = 501;

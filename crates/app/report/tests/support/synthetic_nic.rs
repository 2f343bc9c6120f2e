//! Made-up results of network cards: plausible numbers from names alone, the same every time.

use isolane_study_results::ethernet::{Completions, NicResult, Quantiles};
use std::collections::BTreeMap;

/// A number from 0 to 1 that follows from `text` and `seed`.
fn noise(text: &str, seed: u64) -> f64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in text.bytes() {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        state ^= state >> 29;
    }
    (state >> 11) as f64 / (1u64 << 53) as f64
}

fn run(config: &str, flows: u32, seed: u64) -> NicResult {
    let luck = noise(config, seed ^ u64::from(flows));
    let fair = config.starts_with('T') || config == "isolane";
    let scale = if fair { 0.2 } else { 1.0 };
    NicResult {
        throughput_gbps: 9.41,
        cpu_percent: 45.0 + 20.0 * luck,
        ping_us: Some(Quantiles {
            count: 500,
            p50: 150.0,
            p90: 300.0 + 40.0 * f64::from(flows) * luck,
            p99: 4_000.0,
        }),
        nfm_1ms: (0.5 + luck) * scale * (1.0 + f64::from(flows) / 40.0),
        nfm_1s: 0.5 * scale,
        flow_gbps: (0..flows).map(|_| 9.0 / f64::from(flows)).collect(),
        queue_bytes: vec![1_000_000; 8],
        queue_bytes_max: vec![262_144; 8],
        counts: BTreeMap::from([("moves".to_owned(), 12)]),
        ..NicResult::simulated(config, flows, seed)
    }
}

/// Every configuration with every number of flows, `seeds` times.
pub(crate) fn study(configs: &[&str], flows: &[u32], seeds: u64) -> Vec<NicResult> {
    let mut results = Vec::new();
    for flows in flows {
        for config in configs {
            results.extend((1..=seeds).map(|seed| run(config, *flows, seed)));
        }
    }
    results
}

/// A cluster of `hosts`.
pub(crate) fn cluster(config: &str, hosts: u32, seed: u64) -> NicResult {
    let slow = if config.starts_with('T') { 20.0 } else { 160.0 };
    let flows = hosts * (hosts - 1);
    let mut all_ms: Vec<f64> = (0..flows)
        .map(|flow| 400.0 + slow * noise(config, seed * 1_000 + u64::from(flow)))
        .collect();
    all_ms.sort_by(f64::total_cmp);
    NicResult {
        ping_us: None,
        completion_ms: Some(Completions {
            all_ms,
            spread_ms: (0..hosts)
                .map(|host| slow * (0.5 + 0.5 * noise(config, u64::from(host) + seed)))
                .collect(),
        }),
        ..run(config, flows, seed)
    }
}

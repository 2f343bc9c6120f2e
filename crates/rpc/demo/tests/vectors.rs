//! The file that holds the Go module's algorithm to the one in `core`, bit for bit.
//!
//! Goal: `go/isolane/testdata/admission.json` says what `core` decides on random calls; the Go tests replay it. Method:
//! the file is generated and compared; `ISOLANE_UPDATE=1` writes it again.
#![allow(clippy::unwrap_used)]

use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::units::{Duration, Instant};
use isolane_rpc_policy::aequitas::{AdmitState, AequitasOptions, Decision, Probability};
use serde_json::{Value, json};
use std::path::Path;

const FILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../go/isolane/testdata/admission.json"
);
const CASES: u64 = 12;
const STEPS: u64 = 120;

fn parts(probability: Probability) -> u64 {
    (probability.as_f64() * (1u64 << 32) as f64) as u64
}

fn case(index: u64) -> Value {
    let mut draw = Stream::indexed(1, "vectors", index);
    let target = Duration::from_ns(100 + draw.below(50_000));
    let percentile = [50.0, 90.0, 99.0, 99.9, 99.99][draw.below(5) as usize];
    let step = |draw: &mut Stream| (1 + draw.below(300)) as f64 / 3000.0;
    let (increment, decrement, floor) = (step(&mut draw), step(&mut draw), step(&mut draw));
    let options = AequitasOptions {
        increment: Probability::from_f64(increment),
        decrement_per_mtu: Probability::from_f64(decrement),
        floor: Probability::from_f64(floor),
        idle_after: Duration::from_ms(50),
        ..AequitasOptions::new(target, percentile)
    };
    let mut now = Instant::ZERO + Duration::from_us(draw.below(1000));
    let mut state = AdmitState::new(now);
    let begin = now;
    let mut steps = Vec::new();
    for _ in 0..STEPS {
        let longest = [20, 2_000, 60_000][draw.below(3) as usize];
        now += Duration::from_ns(draw.below(longest * 1000));
        let random = (draw.next_u64() >> 32) as u32;
        let admitted = state.decide(&options, now, random) == Decision::Admit;
        let mtus = draw.below(20) as u32;
        // Around the objective, with every tenth value exactly on it or absurd.
        let objective = target.as_ps() * u64::from(mtus.max(1));
        let latency = match draw.below(10) {
            0 => objective,
            1 => u64::MAX,
            _ => draw.below(objective * 5 / 2),
        };
        state.on_completion(&options, now, Duration::from_ps(latency), mtus);
        steps.push(json!([
            now.saturating_since(Instant::ZERO).as_ps(),
            random,
            u8::from(admitted),
            latency,
            mtus,
            parts(state.probability())
        ]));
    }
    json!({
        "target_ps": target.as_ps(),
        "percentile": percentile,
        "increment": increment,
        "decrement": decrement,
        "floor": floor,
        "idle_after_ps": options.idle_after.as_ps(),
        "window_ps": options.increment_window().as_ps(),
        "begin_ps": begin.saturating_since(Instant::ZERO).as_ps(),
        "steps": steps,
    })
}

#[test]
fn the_vectors_are_what_core_decides() {
    let cases: Vec<String> = (0..CASES).map(|index| case(index).to_string()).collect();
    let text = format!(
        "{{\"about\":\"each step: now_ps, random, admitted, latency_ps, mtus, probability in parts of 2^32 after it; \
         written by crates/rpc/demo/tests/vectors.rs\",\"cases\":[\n{}\n]}}\n",
        cases.join(",\n")
    );
    if std::env::var_os("ISOLANE_UPDATE").is_some() {
        std::fs::write(Path::new(FILE), &text).unwrap();
    }
    let kept = std::fs::read_to_string(FILE).unwrap_or_default();
    assert!(
        kept == text,
        "the vectors of the Go module are not what core decides: run ISOLANE_UPDATE=1 cargo test -p isolane-rpc-demo --test \
         vectors, then the Go tests"
    );
}

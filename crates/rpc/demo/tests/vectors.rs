//! The files that hold the algorithms of the Go and Java libraries to those of `isolane-rpc-policy`, bit for bit.
//!
//! Goal: `go/isolane/testdata/admission.json` and `aequitas2.json` say what the policies decide on random calls; the
//! tests of Go and Java replay them. The table of the Rust library, which C and Python use, replays the second file here.
//! Method: the files are generated and compared; `ISOLANE_UPDATE=1` writes them again.
#![allow(clippy::unwrap_used)]

use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::units::{Duration, Instant};
use isolane_rpc::table::{Ask, Table};
use isolane_rpc_policy::aequitas::{AdmitState, AequitasOptions, Decision, Probability};
use isolane_rpc_policy::aequitas2::{Aequitas2Options, Channel, Outcome, Port};
use serde_json::{Value, json};
use std::path::Path;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../go/isolane/testdata");
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
    compare("admission.json", &text);
}

/// Compares a file with `text`, or writes it.
fn compare(file: &str, text: &str) {
    let file = Path::new(FOLDER).join(file);
    if std::env::var_os("ISOLANE_UPDATE").is_some() {
        std::fs::write(&file, text).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        kept == text,
        "{}: these are not the decisions of the policy: run ISOLANE_UPDATE=1 cargo test -p isolane-rpc-demo --test \
         vectors, then the tests of Go and Java",
        file.display()
    );
}

/// Traces of Aequitas 2.
const TRACES: u64 = 8;
/// Destinations on one host.
const CHANNELS: u64 = 3;

/// Settings of a trace for Aequitas 2; its times are nanoseconds.
struct Settings2 {
    target_ns: u64,
    percentile: f64,
    floor: f64,
    cut: f64,
}

/// Longer than any pause but a rare one, nanoseconds.
const IDLE_AFTER_NS: u64 = 200_000_000;

impl Settings2 {
    fn draw(draw: &mut Stream) -> Self {
        Self {
            target_ns: 500 + draw.below(50_000),
            percentile: [90.0, 99.0, 99.9, 99.99][draw.below(4) as usize],
            floor: [0.001, 0.01, 0.3][draw.below(3) as usize],
            cut: [0.02, 0.0625, 0.5][draw.below(3) as usize],
        }
    }

    fn options(&self) -> Aequitas2Options {
        let target = Duration::from_ns(self.target_ns);
        let mut options = Aequitas2Options::new(target, self.percentile);
        options.base.floor = Probability::from_f64(self.floor);
        options.base.idle_after = Duration::from_ns(IDLE_AFTER_NS);
        options.cut = Probability::from_f64(self.cut);
        options
    }
}

fn at(ns: u64) -> Instant {
    Instant::ZERO + Duration::from_ns(ns)
}

/// A random trace with what the policy decides. A call is `[now, channel, mtus, admitted]`, the end of one is `[now, the
/// number of the call's step, latency, gap of the port, admitted part of the channel]`.
fn trace(index: u64) -> Value {
    let mut draw = Stream::indexed(2, "aequitas2", index);
    let settings = Settings2::draw(&mut draw);
    let options = settings.options();
    let mut now = 1_000_000;
    // One nanosecond before the first call, as in the libraries.
    let mut port = Port::new(at(now - 1));
    let mut channels = [Channel::default(); CHANNELS as usize];
    let mut steps: Vec<Value> = Vec::new();
    // The end, the call's step, channel and size.
    let mut running: Vec<(u64, usize, usize, u64)> = Vec::new();
    for call in 0..STEPS * 2 {
        let idle = call > CHANNELS && draw.below(150) == 0;
        now += match (call, idle) {
            (0, _) => 0,
            (_, true) => IDLE_AFTER_NS + 1 + draw.below(1_000),
            (_, false) => draw.below(settings.target_ns * 8),
        };
        running.sort_unstable();
        let ended = running.iter().take_while(|call| call.0 <= now).count();
        for (end, step, channel, mtus) in running.drain(..ended) {
            let issued = steps[step][0].as_u64().unwrap();
            let latency = end - issued;
            let gap = channels[channel].gap(&options, at(end));
            let outcome = Outcome {
                issued: at(issued),
                latency: Duration::from_ns(latency),
                met: latency < settings.target_ns * mtus,
                gap,
            };
            port.on_outcome(&options, at(end), outcome);
            let part = channels[channel].probability(&options, port.gap());
            steps.push(json!([end, step, latency, port.gap(), part.parts()]));
        }
        // Every destination is known before the first pause.
        let channel = match call < CHANNELS {
            true => call,
            false => draw.below(CHANNELS),
        } as usize;
        let mtus = 1 + draw.below(8);
        let decision = channels[channel].decide(&options, port.gap(), at(now), mtus as u32);
        let admitted = decision == Decision::Admit;
        let step = steps.len();
        steps.push(json!([now, channel, mtus, u8::from(admitted)]));
        // A congestion in each quarter of the trace; else a miss now and then.
        let slow = call % (STEPS / 2) < STEPS / 10 || draw.below(40) == 0;
        let objective = settings.target_ns * mtus;
        let latency = match slow {
            true => objective + draw.below(objective * 3),
            false => draw.below(objective),
        };
        if admitted {
            running.push((now + latency, step, channel, mtus));
        }
    }
    json!({
        "target_ns": settings.target_ns,
        "percentile": settings.percentile,
        "floor": settings.floor,
        "cut": settings.cut,
        "idle_after_ns": IDLE_AFTER_NS,
        "steps": steps,
    })
}

#[test]
fn the_traces_of_aequitas_2_are_what_the_policy_decides() {
    let cases: Vec<String> = (0..TRACES).map(|index| trace(index).to_string()).collect();
    let text = format!(
        "{{\"about\":\"three destinations of one host; a call: now_ns, destination, mtus, admitted; an end: now_ns, number \
         of the call's step, latency_ns, gap_ps of the port, admitted part of the destination in parts of 2^32; written by \
         crates/rpc/demo/tests/vectors.rs\",\"cases\":[\n{}\n]}}\n",
        cases.join(",\n")
    );
    compare("aequitas2.json", &text);
}

/// Goal: the library's table, with its locks and its places of hosts, decides as the policy does.
#[test]
fn the_table_decides_as_the_traces_say() {
    let number = |value: &Value| value.as_u64().unwrap();
    let mut below_one = 0;
    for index in 0..TRACES {
        let case = trace(index);
        let text = format!(
            "algorithm = \"aequitas-2\"\nmtu_bytes = 1000\nidle_after = \"{}ns\"\nfloor = {}\ncut = {}\n\
             [[class]]\nname = \"high\"\ndscp = 46\ntarget_per_mtu = \"{}ns\"\npercentile = {}\n\
             [[class]]\nname = \"low\"\ndscp = 8\n",
            case["idle_after_ns"],
            case["floor"],
            case["cut"],
            case["target_ns"],
            case["percentile"]
        );
        let settings = isolane_rpc::settings::parse("trace", &text).unwrap();
        let steps = case["steps"].as_array().unwrap();
        let table = Table::new(&settings, index, number(&steps[0][0]));
        let name = |channel: u64| format!("host:{channel}");
        let mut tickets = vec![None; steps.len()];
        let mut refused = 0;
        for (place, step) in steps.iter().enumerate() {
            let now = number(&step[0]);
            if step.as_array().unwrap().len() == 4 {
                let destination = name(number(&step[1]));
                let ask = Ask {
                    destination: destination.as_bytes(),
                    class: 0,
                    bytes: number(&step[2]) * 1_000,
                };
                let verdict = table.decide(ask, now, u32::MAX);
                assert_eq!(!verdict.downgraded, step[3] == 1, "{index}, step {place}");
                refused += u64::from(verdict.downgraded);
                tickets[place] = Some(verdict.ticket);
                continue;
            }
            let call = number(&step[1]) as usize;
            let ticket = tickets[call].unwrap();
            table.complete(ticket, number(&step[2]), now).unwrap();
            let destination = name(number(&steps[call][1]));
            let part = table.probability(destination.as_bytes(), 0).unwrap();
            assert_eq!(part.parts(), number(&step[4]), "{index}, step {place}");
            below_one += u64::from(part < Probability::ONE);
        }
        assert!(refused > 10, "{index}: {refused} calls were not admitted");
    }
    assert!(below_one > 100, "{below_one} parts below one");
}

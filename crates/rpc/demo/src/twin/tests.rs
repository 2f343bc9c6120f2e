//! Tests of the model: its port against one of small steps, its labs against the bound of the lab's verdict.

use super::*;
use crate::job::{Admission, AdmissionClass};
use crate::measure::mix;
use proptest::prelude::*;

fn jobs(plan: &Plan, clients: u64, seed: u64, asked: [f64; CLASSES]) -> Vec<ClientJob> {
    let class = |target_ms: f64, increment: f64| AdmissionClass {
        target_per_mtu_us: target_ms * 1000.0 / f64::from(plan.call_mtus()),
        percentile: plan.percentile,
        increment: increment / clients as f64,
        decrement_per_mtu: 0.01,
        floor: 0.1,
    };
    let one = |client: u64| ClientJob {
        server: String::new(),
        call_bytes: plan.call_bytes,
        period_us: plan.period_ms * 1000,
        burst_us: plan.burst_us(),
        burst_calls_per_s: plan.burst_calls_per_s() / clients as f64,
        mix: asked,
        dscp: plan.dscp,
        issue_us: plan.with_ms * 1000,
        drain_us: 0,
        seed: seed * 1000 + client,
        admission: Some(Admission {
            shadow: false,
            mtu_bytes: plan.mtu_bytes(),
            // As the lab finds them at the target mix: 60 and 90 calls a second.
            classes: vec![class(17.0, 0.0102), class(40.0, 0.01 * 3.6)],
        }),
    };
    (0..clients).map(one).collect()
}

/// Ends of `calls` at a port that divides the line in steps of 0.1 us.
fn slow_model(plan: &Plan, calls: &[(u64, u8)], call_us: f64) -> Vec<(u64, u8, f64)> {
    const STEP_US: f64 = 0.1;
    let mut left: Vec<f64> = calls.iter().map(|_| call_us).collect();
    let mut ends = Vec::new();
    let mut now = 0.0;
    while ends.len() < calls.len() {
        let first = |class: u8| {
            (0..calls.len())
                .find(|&i| calls[i].1 == class && calls[i].0 as f64 <= now && left[i] > 0.0)
        };
        let heads: Vec<usize> = (0..CLASSES as u8).filter_map(first).collect();
        let sum: u32 = heads
            .iter()
            .map(|&i| plan.weights[usize::from(calls[i].1)])
            .sum();
        now += STEP_US;
        for i in heads {
            left[i] -= STEP_US * f64::from(plan.weights[usize::from(calls[i].1)]) / f64::from(sum);
            if left[i] <= 0.0 {
                ends.push((calls[i].0, calls[i].1, now));
            }
        }
    }
    ends
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn calls_end_when_a_port_of_small_steps_ends_them(
        gaps in prop::collection::vec((0u64..40, 0u8..3), 1..14),
    ) {
        let plan = Plan { line_bit_per_s: 13_000_000_000, ..Plan::quick() };
        let mut at_us = 0;
        let calls: Vec<(u64, u8)> = gaps
            .iter()
            .map(|&(gap, class)| { at_us += gap; (at_us, class) })
            .collect();
        let mut port = Port::new(&plan);
        let mut ends = Vec::new();
        for &(at_us, asked) in &calls {
            port.serve(at_us as f64, |end| ends.push((end.at_us, end.ran, end.end_us)));
            port.take(asked, Waiting { client: 0, asked, at_us });
        }
        port.serve(f64::INFINITY, |end| ends.push((end.at_us, end.ran, end.end_us)));
        let mut slow = slow_model(&plan, &calls, port.call_us);
        let key = |a: &(u64, u8, f64), b: &(u64, u8, f64)| {
            (a.1, a.2).partial_cmp(&(b.1, b.2)).expect("times are numbers")
        };
        ends.sort_by(key);
        slow.sort_by(key);
        prop_assert_eq!(ends.len(), slow.len());
        for (fast, slow) in ends.iter().zip(&slow) {
            // Each earlier call can delay the stepped model by one step.
            let steps = 0.1 * (1 + calls.len()) as f64 * 13.0;
            prop_assert!((fast.0, fast.1) == (slow.0, slow.1), "{fast:?} {slow:?}");
            prop_assert!((fast.2 - slow.2).abs() <= steps, "{fast:?} {slow:?}");
        }
    }
}

#[test]
fn a_full_port_gives_each_class_what_theory_guarantees() {
    let plan = Plan::quick();
    let mut port = Port::new(&plan);
    for asked in (0..CLASSES as u8).flat_map(|class| [class; 2]) {
        let waiting = Waiting {
            client: 0,
            asked,
            at_us: 0,
        };
        port.take(asked, waiting);
    }
    let mut ends = Vec::new();
    port.serve(f64::INFINITY, |end| ends.push((end.ran, end.end_us)));
    let theory = plan.theory(&plan.asked_mix).unwrap();
    let near = |end: (u8, f64), class, us: f64| end.0 == class && (end.1 - us).abs() < 0.01;
    assert!(
        near(ends[0], 0, theory.guaranteed_us[0]),
        "{ends:?} {theory:?}"
    );
    assert!(
        near(ends[5], 2, 6.0 * theory.wire_us),
        "{ends:?} {theory:?}"
    );
}

#[test]
fn equal_jobs_give_equal_calls_and_admission_moves_the_mix_near_the_target() {
    let plan = Plan::quick();
    let jobs = jobs(&plan, 4, 1, plan.asked_mix);
    let mut calls = play(&plan, &jobs);
    assert_eq!(calls, play(&plan, &jobs));
    calls.retain(|call| call.3 >= plan.settle_ms * 1000);
    let ran = mix(&calls, |call| call.1);
    for class in 0..CLASSES {
        assert!((ran[class] - plan.target_mix[class]).abs() < 0.1, "{ran:?}");
    }
}

/// The inputs of a verdict on a lab with these clients: the calls after settling, and the permitted difference of their
/// halves.
struct Judge {
    plan: Plan,
    from_us: u64,
    bound: [f64; CLASSES],
}

impl Judge {
    fn of(clients: u64) -> Self {
        let plan = Plan::quick();
        let from_us = plan.settle_ms * 1000;
        let bound = chance(&plan, &jobs(&plan, clients, 1, plan.asked_mix), from_us)
            .halves
            .map(|error| crate::verdict::MIX_ERRORS * error);
        Self {
            plan,
            from_us,
            bound,
        }
    }

    /// Calls after the lab has settled.
    fn settled(&self, jobs: &[ClientJob]) -> Vec<Call> {
        let mut calls = play(&self.plan, jobs);
        calls.retain(|call| call.3 >= self.from_us);
        calls
    }

    fn says_it_moved(&self, calls: &[Call]) -> bool {
        let [first, second] = halves(calls);
        (0..CLASSES).any(|class| (first[class] - second[class]).abs() > self.bound[class])
    }
}

/// Goal: the rate of false alarms. Method: labs with different seeds against the bound from replays.
#[test]
fn of_right_labs_about_one_in_a_thousand_is_called_wrong() {
    const LABS: u64 = 1000;
    for clients in [1, 4] {
        let judge = Judge::of(clients);
        let plan = &judge.plan;
        let is_wrong =
            |seed| judge.says_it_moved(&judge.settled(&jobs(plan, clients, seed, plan.asked_mix)));
        let wrong = (2..LABS + 2).filter(|&seed| is_wrong(seed)).count();
        println!(
            "{clients} clients: bound {:.3?}, {wrong} of {LABS} called wrong",
            judge.bound
        );
        assert!(wrong <= 3, "{wrong} of {LABS} with {clients} clients");
    }
}

/// Goal: a mix that is not stationary is detected. Method: in the second half the applications request another mix.
#[test]
fn a_mix_that_moves_for_a_reason_is_found() {
    let judge = Judge::of(4);
    let plan = &judge.plan;
    let half_us = (judge.from_us + plan.with_ms * 1000) / 2;
    let mut calls = judge.settled(&jobs(plan, 4, 1, plan.asked_mix));
    calls.retain(|call| call.3 < half_us);
    let mut other = judge.settled(&jobs(plan, 4, 1, [0.1, 0.1, 0.8]));
    other.retain(|call| call.3 >= half_us);
    calls.extend(other);
    assert!(judge.says_it_moved(&calls), "{:?}", judge.bound);
}

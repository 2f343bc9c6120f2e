//! Tests adaptation where the kernel does not let an application reach its limit.

use super::plant::{GB, Machine, Plant};
use super::tests::{latency, mercury, profiled, quiet};
use super::*;

/// Kernel tiering promotes what the backend demotes: near memory never rests, and never reaches the limit.
#[test]
fn an_application_that_the_kernel_keeps_above_its_limit_is_adapted() {
    let mut plant = Plant::new(Machine::default(), mercury(70 * GB));
    let redis = profiled(latency(2, 2, 150, 30 * GB), 10 * GB, GB);
    assert_eq!(plant.start(redis, quiet(30 * GB, 1)), Verdict::Admitted);
    while plant.policy.poll_action().is_some() {}
    let mut seen = plant.observe();
    seen.apps[0].latency = Some(Reading {
        value: Duration::from_ns(300),
        age: Duration::ZERO,
        source: Source::Pmu,
    });
    let acts = (1..20).find(|step| {
        let near = (12 + step % 2) * GB;
        seen.apps[0].held[0] = Bytes::new(near);
        seen.apps[0].held[1] = Bytes::new(30 * GB - near);
        plant.policy.step(Instant::ZERO + PERIOD * *step, &seen);
        plant.policy.poll_action().is_some()
    });
    assert!(acts.is_some(), "it waits for pages that never rest");
}

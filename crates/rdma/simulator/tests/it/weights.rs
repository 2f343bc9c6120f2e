//! Which policies divide a NIC by weight: what `isolane catalog policies` says of each, and audits count on.
#![allow(clippy::unwrap_used)]
use crate::common::{goodput, run};
use isolane_rdma_scenario::stack::{ALL, honours_weights};

/// Two tenants that offer the same, more than the link carries, with weights 3 and 1. Harmonic's limiters swing, so
/// that its heavier tenant stays well below its part: more than the other is what all that honour weights give.
#[test]
fn weights_count_under_the_policies_that_say_so() {
    for policy in ALL {
        let text = format!(
            r#"
            topology = "switch"
            warmup = "4ms"
            duration = "1ms"
            [policy]
            name = "{policy}"
            [[tenant]]
            name = "heavy"
            weight = 3
            perftest = "ib_write_bw -s 65536 -q 4 -t 16"
            [[tenant]]
            name = "light"
            perftest = "ib_write_bw -s 65536 -q 4 -t 16"
            "#
        );
        let result = run(&text);
        let (heavy, light) = (goodput(&result, "heavy"), goodput(&result, "light"));
        match honours_weights(policy) {
            true => assert!(heavy > 1.05 * light, "{policy}: {heavy} and {light} Gb/s"),
            false => assert!(heavy < 1.05 * light, "{policy}: {heavy} and {light} Gb/s"),
        }
    }
}

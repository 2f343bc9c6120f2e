//! Workloads of simple benchmarks: what a person runs first on a device.
//!
//! A sound device reaches its bounds with them, so bounds are measured with them and choices are tried with them.

use super::point::{self, Feature, Point};

/// A small message, bytes.
const SMALL: u64 = 64;

/// Small messages of one service, one way.
pub(crate) fn simple(service: u64, queue_pairs: u64, post_list: u64) -> Point {
    let point = Point {
        direction: point::ONE_WAY,
        memory_a: 0,
        memory_b: 0,
        regions: 1,
        region_bytes: 4_096,
        service: 0,
        queue_pairs,
        mtu: 1_024,
        post_list,
        depth: 128,
        receive_depth: 0,
        receive_batch: 0,
        requests: vec![vec![SMALL]],
        control: 0,
        receives: 0,
        second: None,
    };
    let point = Feature::Service.set(&point, service);
    match point.has_receives() {
        true => Feature::ReceiveDepth.set(&point, 512),
        false => point,
    }
}

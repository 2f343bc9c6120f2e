//! Mean waits of one queue against M/D/1 and M/M/1.
//!
//! Method: batch means. Each of [`SEEDS`] runs is cut into batches long enough that their means are nearly independent
//! (20,000 packets; at load 0.8 the waits' correlation vanishes within some hundred); the first batch of a run, in
//! which the queue fills, is left out. Theory must be within the 99.9 % confidence interval of the mean of all batches,
//! and the interval must be narrower than 5 % of the wait, so that it can fail.

use super::harness::{Arrival, RATE, waits};
use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::units::{Bytes, Duration};
use isolane_network_simulator::discipline::Order;

const SEEDS: u64 = 5;
const BATCH: usize = 20_000;
const BATCHES: usize = 11;
/// Student's t for 99.9 % (two-sided) at 49 degrees of freedom.
const T: f64 = 3.500;

/// Poisson arrivals whose packets have the sizes that `bytes` draws.
fn poisson(seed: u64, mean_gap: Duration, bytes: impl Fn(&mut Stream) -> u16) -> Vec<Arrival> {
    let mut gaps = Stream::named(seed, "gaps");
    let mut sizes = Stream::named(seed, "sizes");
    let mut now = 0;
    (0..BATCH * BATCHES)
        .map(|_| {
            now += gaps.exponential(mean_gap).as_ps();
            (now, 0, bytes(&mut sizes))
        })
        .collect()
}

/// Mean of the batches' means and half the width of its confidence interval, picoseconds.
fn mean_wait(mean_gap: Duration, bytes: impl Fn(&mut Stream) -> u16) -> (f64, f64) {
    let means: Vec<f64> = (1..=SEEDS)
        .flat_map(|seed| {
            let waits = waits(Order::Wfq, &[1], poisson(seed, mean_gap, &bytes));
            let batches = waits.chunks(BATCH).skip(1);
            let mean = |batch: &[(u8, u64)]| {
                batch.iter().map(|(_, wait)| *wait as f64).sum::<f64>() / batch.len() as f64
            };
            batches.map(mean).collect::<Vec<f64>>()
        })
        .collect();
    let count = means.len() as f64;
    assert_eq!(means.len(), 50, "T is for 49 degrees of freedom");
    let mean = means.iter().sum::<f64>() / count;
    let squares: f64 = means.iter().map(|one| (one - mean).powi(2)).sum();
    let deviation = (squares / (count - 1.0)).sqrt();
    (mean, T * deviation / count.sqrt())
}

fn check(name: &str, load: f64, theory: f64, (mean, half): (f64, f64)) {
    assert!(
        (mean - theory).abs() <= half,
        "{name} at load {load}: waits {mean:.0} ps on average (seeds 1 to {SEEDS}), theory says {theory:.0} +- {half:.0}"
    );
    assert!(
        half < 0.05 * theory,
        "{name} at load {load}: the interval is {half:.0} of {theory:.0} ps"
    );
}

fn service(bytes: f64) -> f64 {
    RATE.time_for(Bytes::new(1_000_000)).as_ps() as f64 * bytes / 1e6
}

#[test]
fn packets_of_one_size_wait_as_in_an_m_d_1_queue() {
    for load in [0.3, 0.5, 0.8] {
        let service = service(5120.0);
        let gap = Duration::from_ps((service / load).round() as u64);
        let theory = load / (2.0 * (1.0 - load)) * service;
        check("M/D/1", load, theory, mean_wait(gap, |_| 5120));
    }
}

#[test]
fn packets_of_exponential_sizes_wait_as_in_an_m_m_1_queue() {
    // Sizes are rounded up to whole bytes, which adds half a byte to the mean of 3,000; larger ones than 65,535 bytes
    // do not fit a packet and are one in 3 billion.
    let mean = Duration::from_ps(3_000_000);
    let draw = |sizes: &mut Stream| {
        let bytes = sizes.exponential(mean).as_ps() / 1_000 + 1;
        bytes.min(u64::from(u16::MAX)) as u16
    };
    for load in [0.3, 0.5, 0.8] {
        let service = service(3_000.5);
        let gap = Duration::from_ps((service / load).round() as u64);
        let theory = load / (1.0 - load) * service;
        check("M/M/1", load, theory, mean_wait(gap, draw));
    }
}

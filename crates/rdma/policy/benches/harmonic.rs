//! What one poll of Harmonic's daemon costs: `cargo bench -p isolane-common-quantities --bench harmonic`.
//!
//! Prints nanoseconds per tenant and poll (the median of repeats, with the fastest and the slowest), for tenants
//! that all exceed their allocations. Without `--bench` (as under `cargo test`) every case runs a few polls, only
//! to show that it works.

use isolane_common_quantities::units::{BitRate, Duration, Instant};
use isolane_rdma_policy::harmonic::statistics::{BusDirection, ObjectKind, TenantStatistics};
use isolane_rdma_policy::harmonic::{
    BusFormat, Capacity, Harmonic, HarmonicOptions, PerformanceProfile, RequestCosts, allocate,
};
use std::hint::black_box;
use std::time::Instant as WallClock;

fn main() {
    let measured = std::env::args().any(|argument| argument == "--bench");
    let (repeats, polls) = if measured { (15, 20_000) } else { (1, 8) };
    println!("Harmonic, one poll, ns per tenant: median (fastest to slowest)");
    for tenants in [1, 8, 64, 512] {
        let mut times: Vec<f64> = (0..repeats)
            .map(|_| run(tenants, (polls / tenants).max(4)))
            .collect();
        times.sort_by(f64::total_cmp);
        println!(
            "{tenants:>5} tenants {:>8.1} ({:.1} to {:.1})",
            times[times.len() / 2],
            times[0],
            times[times.len() - 1]
        );
    }
}

/// Nanoseconds per tenant and poll.
fn run(tenants: usize, polls: usize) -> f64 {
    let nic = Capacity {
        rate: BitRate::from_gbps(25),
        data_requests_per_s: 30_000_000,
        pcie_rate: BitRate::from_gbps(32),
    };
    let profile = PerformanceProfile {
        weight: 1,
        ..PerformanceProfile::default()
    };
    let format = BusFormat {
        payload_max: 128,
        header: 20,
        work_request: 36,
        receive: 16,
    };
    let options = HarmonicOptions::published(RequestCosts::CONNECTX_6_DX, format, 1_000_000);
    let allocations = allocate(&nic, &vec![profile; tenants]).expect("equal parts");
    let mut daemon = Harmonic::new(options, nic, allocations).expect("published settings");
    let mut counters = vec![TenantStatistics::default(); tenants];
    let mut now = Instant::ZERO;
    let start = WallClock::now();
    for _ in 0..polls {
        now += Duration::from_us(100);
        for counts in &mut counters {
            counts.add(ObjectKind::SendQueue, BusDirection::ToNic, 100, 3_600);
            counts.add(ObjectKind::PrivateMemory, BusDirection::ToNic, 700, 350_000);
            counts.add(ObjectKind::Context, BusDirection::ToNic, 70, 4_480);
        }
        daemon.poll(now, black_box(&counters));
        while let Some(batch) = daemon.poll_action() {
            black_box(batch);
        }
    }
    start.elapsed().as_nanos() as f64 / (polls * tenants) as f64
}

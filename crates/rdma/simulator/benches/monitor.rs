//! Nanoseconds per transfer that a PCIe monitor takes account of; the median of five runs each.
use isolane_common_quantities::rng::Stream;
use isolane_rdma_policy::harmonic::statistics::{BusDirection, ObjectKind};
use isolane_rdma_simulator::monitor::{
    MappingUpdate, Monitor, MonitorOptions, Operation, PAGE, StoreSize, TlpHeaders,
};
use std::time::Instant as Clock;

const TRANSFERS: usize = 4_000_000;
const TENANTS: u32 = 16;

fn main() {
    for (name, pages, bytes) in [
        ("monitor/account, 1,000 pages, one packet", 1_000, 128),
        ("monitor/account, 40,000 pages, one packet", 40_000, 128),
        ("monitor/account, 40,000 pages, 32 packets", 40_000, 4096),
    ] {
        let mut monitor = mapped(pages);
        let mut rng = Stream::named(1, "monitor-bench");
        let headers: Vec<TlpHeaders> = (0..65_536)
            .map(|_| TlpHeaders {
                address: (1 << 32) + rng.below(pages) * PAGE,
                bytes,
                each: 128,
                direction: BusDirection::ToHost,
            })
            .collect();
        let mut at = 0;
        report(name, TRANSFERS, || {
            for number in 0..TRANSFERS {
                at += 1_000_000;
                monitor.observe(at, headers[number % headers.len()]);
            }
        });
        assert_eq!(monitor.unmapped().bytes, 0);
    }
    let mut monitor = mapped(40_000);
    report("monitor/insert and delete a page", 400_000, || {
        for number in 0..200_000 {
            let page = 50_000 + number % 1_000;
            for operation in [Operation::Insert, Operation::Delete] {
                let entry = update(operation, 1, page).encode();
                monitor.update(&entry).expect("a valid entry");
            }
        }
    });
    report("monitor/poll one tenant", 1_000_000, || {
        for number in 0..1_000_000u32 {
            std::hint::black_box(monitor.poll((number % TENANTS) as u16));
        }
    });
}

fn mapped(pages: u64) -> Monitor {
    let mut monitor = Monitor::new(MonitorOptions {
        store: StoreSize::PROTOTYPE,
        engines: 4,
        tenants: TENANTS as usize,
    });
    for page in 0..pages {
        let entry = update(Operation::Insert, page as u32 % TENANTS, page).encode();
        monitor.update(&entry).expect("a valid entry");
    }
    assert_eq!(monitor.rejected(), 0);
    monitor
}

fn update(operation: Operation, tenant: u32, page: u64) -> MappingUpdate {
    MappingUpdate {
        operation,
        tenant,
        kind: ObjectKind::PrivateMemory,
        bytes: PAGE as u32,
        address: (1 << 32) + page * PAGE,
    }
}

fn report(name: &str, operations: usize, mut work: impl FnMut()) {
    let mut times: Vec<f64> = (0..5)
        .map(|_| {
            let start = Clock::now();
            work();
            start.elapsed().as_secs_f64() * 1e9 / operations as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{name} {:.1} ns (median of 5)", times[2]);
}

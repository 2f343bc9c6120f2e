//! A lease: the daemon grants it, the preload library reads it. Property: whoever sees the end of a lease sees its terms
//! or those of a later lease, so a prolonged lease never paces at an older rate.

use super::{Checked, NO_ACQUIRE, NO_RELEASE, NONE, Own, broken, holds};
use isolane_rdma_session::region::{Lease, Meter};
use loom::sync::Arc;
use loom::thread;
use std::sync::atomic::AtomicU64;

/// The lease number `number`: every term tells it.
fn lease(number: u32) -> Lease {
    Lease {
        rate_bytes_per_s: u64::from(number),
        rate_operations_per_s: u64::from(number),
        burst_bytes: u64::from(number),
        burst_operations: u64::from(number),
        chunk_bytes: number,
        valid_until_ns: u64::from(number),
        flags: number,
    }
}

/// The daemon grants a lease while the library reads.
fn program<const DEFECT: u8>() {
    let mut meter = Meter::<Checked<DEFECT>>::default();
    // Each term multiplies the runs; the others are written and read between these.
    for term in [
        &mut meter.rate_operations_per_s,
        &mut meter.burst_bytes,
        &mut meter.burst_operations,
    ] {
        *term = Own::Left(AtomicU64::new(1));
    }
    let meter = Arc::new(meter);
    let library = Arc::clone(&meter);
    let library = thread::spawn(move || {
        let seen = library.lease();
        let terms = [
            seen.rate_bytes_per_s,
            seen.rate_operations_per_s,
            seen.burst_bytes,
            seen.burst_operations,
            seen.chunk_bytes.into(),
            seen.flags.into(),
        ];
        for term in terms {
            assert!(term >= seen.valid_until_ns, "older terms than the end");
        }
    });
    meter.grant(&lease(1));
    library.join().expect("no panic");
}

#[test]
fn a_lease_has_its_terms_or_later_ones() {
    assert!(holds(program::<NONE>) > 100);
}

#[test]
fn a_lease_without_an_ordering_is_found() {
    for found in [broken(program::<NO_RELEASE>), broken(program::<NO_ACQUIRE>)] {
        assert!(found.unwrap().contains("older terms than the end"));
    }
}

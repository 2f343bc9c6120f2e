//! A lease: the daemon grants it, the preload library reads it. Property: a reader that sees the end of a lease
//! sees the terms of this lease or of a later one, so a prolonged lease never paces at an older rate.

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

/// Number of terms.
const TERMS: usize = 6;

/// The daemon grants a lease while the library reads. Loom sees one term and the end: each word multiplies the runs.
fn program<const DEFECT: u8>(term: usize) {
    let mut meter = Meter::<Checked<DEFECT>>::default();
    let long = [
        &mut meter.rate_bytes_per_s,
        &mut meter.rate_operations_per_s,
        &mut meter.burst_bytes,
        &mut meter.burst_operations,
    ];
    for (_, word) in long.into_iter().enumerate().filter(|(at, _)| *at != term) {
        *word = Own::Left(AtomicU64::new(0));
    }
    let short = [&mut meter.chunk_bytes, &mut meter.flags];
    for (_, word) in short
        .into_iter()
        .enumerate()
        .filter(|(at, _)| 4 + *at != term)
    {
        *word = Own::Left(AtomicU64::new(0));
    }
    let meter = Arc::new(meter);
    let library = Arc::clone(&meter);
    let library = thread::spawn(move || {
        let seen = library.lease();
        let terms: [u64; TERMS] = [
            seen.rate_bytes_per_s,
            seen.rate_operations_per_s,
            seen.burst_bytes,
            seen.burst_operations,
            seen.chunk_bytes.into(),
            seen.flags.into(),
        ];
        assert!(
            terms[term] >= seen.valid_until_ns,
            "older terms than the end"
        );
    });
    (1..=2).for_each(|number| meter.grant(&lease(number)));
    library.join().expect("no panic");
}

#[test]
fn a_lease_has_its_terms_or_later_ones() {
    for term in 0..TERMS {
        assert!(holds(move || program::<NONE>(term)) > 10);
    }
}

#[test]
fn a_lease_without_an_ordering_is_found() {
    for term in 0..TERMS {
        let found = [
            broken(move || program::<NO_RELEASE>(term)),
            broken(move || program::<NO_ACQUIRE>(term)),
        ];
        for found in found {
            assert!(found.unwrap().contains("older terms than the end"));
        }
    }
}

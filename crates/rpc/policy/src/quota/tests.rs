//! Pools with simulated clients that have their own clocks, lost messages, deaths and restarts.

use super::divide::{Claim, divide};
use super::*;
use crate::queueing::Arrivals;
use proptest::prelude::*;

const TERM_MS: u64 = 3_000;

fn pool() -> Pool {
    let port = Port::new(&[8.0, 4.0, 1.0], Arrivals::new(0.8, 1.4).unwrap()).unwrap();
    // 1,000 x 4/13 x 0.8/1.4 bytes per second: small numbers show every byte.
    let bound = Bound::new(&port, BitRate::from_gbps_f64(8e-6), 1);
    assert_eq!(bound.bytes_per_s(), 175);
    let mut pool = Pool::new(bound, Duration::from_ms(TERM_MS));
    pool.set(
        "a",
        Terms {
            weight: 1,
            guarantee: 50,
        },
    )
    .unwrap();
    pool.set(
        "b",
        Terms {
            weight: 3,
            guarantee: 0,
        },
    )
    .unwrap();
    pool.set(
        "c",
        Terms {
            weight: 1,
            guarantee: 0,
        },
    )
    .unwrap();
    pool
}

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_ms(ms)
}

#[test]
fn more_than_the_bound_is_not_promised_and_the_sum_is_shown() {
    let mut pool = pool();
    let error = pool
        .set(
            "c",
            Terms {
                weight: 1,
                guarantee: 126,
            },
        )
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "guarantees of 1.408 kb/s exceed what can be guaranteed, 8 kb/s x 4/13 x 0.8/1.4 = 1.4 kb/s: \
         a 400 b/s + c 1.008 kb/s; lower one of them"
    );
    pool.set(
        "c",
        Terms {
            weight: 1,
            guarantee: 125,
        },
    )
    .unwrap();
    let error = pool
        .set(
            "d",
            Terms {
                weight: 0,
                guarantee: 0,
            },
        )
        .unwrap_err();
    assert_eq!(error, QuotaError::Weight("d".to_owned()));
    let error = pool.renew(at(0), "nobody", "x", 1, None).unwrap_err();
    assert_eq!(error, QuotaError::Unknown("nobody".to_owned()));
}

#[test]
fn a_newcomer_waits_for_what_others_may_be_using() {
    let mut pool = pool();
    let first = pool.renew(at(0), "b", "x", 1_000, None).unwrap();
    assert_eq!(first.rate, 175, "alone");
    let early = pool.renew(at(10), "a", "y", 1_000, None).unwrap();
    assert_eq!(early.rate, 0);
    // b is granted less now, but the pool does not know whether b received the answer.
    let lower = pool
        .renew(at(1_000), "b", "x", 1_000, Some(first.serial))
        .unwrap();
    assert_eq!(lower.rate, 93, "3/4 of 175 - 50, rounded down");
    assert_eq!(
        pool.renew(at(1_010), "a", "y", 1_000, None).unwrap().rate,
        0
    );
    pool.renew(at(2_000), "b", "x", 1_000, Some(lower.serial))
        .unwrap();
    assert_eq!(
        pool.renew(at(2_010), "a", "y", 1_000, None).unwrap().rate,
        82
    );
}

#[test]
fn a_dead_clients_rate_comes_back_after_its_term() {
    let mut pool = pool();
    pool.renew(at(0), "b", "x", 1_000, None).unwrap();
    assert_eq!(pool.renew(at(2_999), "a", "y", 60, None).unwrap().rate, 0);
    assert_eq!(pool.renew(at(3_000), "a", "y", 60, None).unwrap().rate, 60);
    pool.release(at(3_001), "a", "y");
    assert_eq!(pool.promised(), 0);
}

#[test]
fn a_clock_that_runs_backwards_stops() {
    let mut pool = pool();
    pool.renew(at(10_000), "b", "x", 1_000, None).unwrap();
    assert_eq!(pool.renew(at(0), "a", "y", 60, None).unwrap().rate, 0);
    assert_eq!(pool.renew(at(13_000), "a", "y", 60, None).unwrap().rate, 60);
}

#[test]
fn a_restart_remembers_clients_of_tenants_that_are_gone_and_longer_terms() {
    let mut before = pool();
    let gone = Terms {
        weight: 1,
        guarantee: 0,
    };
    before.set("gone", gone).unwrap();
    before.renew(at(0), "gone", "x", 100, None).unwrap();
    before.renew(at(0), "b", "y", 40, None).unwrap();
    // The next server lacks one tenant and has a tenth of the term.
    let mut next = pool();
    next.term = Duration::from_ms(TERM_MS / 10);
    for holding in before.holdings() {
        assert_eq!(holding.term, Duration::from_ms(TERM_MS));
        next.restore(at(0), holding);
    }
    assert_eq!(next.promised(), 140);
    assert!(!next.knows("gone"));
    // Both are stored again for the next restart.
    assert_eq!(next.holdings().count(), 2);
    let rate = |pool: &mut Pool, ms| pool.renew(at(ms), "a", "z", 1_000, None).unwrap().rate;
    assert_eq!(
        rate(&mut next, TERM_MS - 1),
        35,
        "the rate that no client may be using"
    );
    // Then both have expired, and their demands with them.
    assert_eq!(rate(&mut next, TERM_MS), 175);
}

#[test]
fn clients_of_a_tenant_are_bounded() {
    let mut pool = pool();
    for client in 0..CLIENTS_MAX {
        pool.restore(
            at(0),
            Holding {
                tenant: "a",
                client: &client.to_string(),
                serial: 1,
                rate: 0,
                term: Duration::from_ms(TERM_MS),
            },
        );
    }
    let error = pool.renew(at(1), "a", "one more", 1, None).unwrap_err();
    assert_eq!(error, QuotaError::Crowded("a".to_owned()));
    assert!(pool.renew(at(1), "a", "0", 1, None).is_ok(), "a known one");
    assert!(pool.renew(at(1), "b", "one more", 1, None).is_ok());
    assert!(pool.renew(at(TERM_MS), "a", "one more", 1, None).is_ok());
}

/// A correct client: uses its lease until a part of the term after its request, by its own clock.
#[derive(Clone, Debug, Default)]
struct Holder {
    serial: Option<u64>,
    rate: u64,
    /// In milliseconds of true time.
    until_ms: u64,
    demand: u64,
}

const TENANTS: [&str; 3] = ["a", "b", "c"];

/// True milliseconds in which a clock that is off by `off` percent counts a client's part of the term.
fn own_term_ms(off: i64) -> u64 {
    (TERM_MS * CLIENT_PART / 100 * 100) / (100 + off) as u64
}

fn used(holders: &[Holder], now_ms: u64) -> u64 {
    let valid = holders.iter().filter(|holder| now_ms < holder.until_ms);
    valid.map(|holder| holder.rate).sum()
}

#[derive(Clone, Debug)]
enum Step {
    /// Client, demand, whether the answer is lost.
    Renew(usize, u64, bool),
    /// The server is killed and restarts from its store.
    Restart,
    /// The server's clock is set back by this much.
    Back(u64),
}

fn step() -> impl Strategy<Value = (u64, Step)> {
    let what = prop_oneof![
        12 => (0usize..6, 0u64..400, prop::bool::weighted(0.2)).prop_map(|(c, d, l)| Step::Renew(c, d, l)),
        1 => Just(Step::Restart),
        1 => (0u64..10_000).prop_map(Step::Back),
    ];
    (0u64..1_500, what)
}

proptest! {
    /// After any loss, kill or clock step, the clients together never exceed the bound.
    #[test]
    fn clients_never_use_more_than_the_bound(
        steps in prop::collection::vec(step(), 1..200),
        off in prop::collection::vec(-8i64..=8, 6),
    ) {
        let mut server = pool();
        let mut holders = vec![Holder::default(); 6];
        let (mut now_ms, mut clock_ms) = (0, 20_000u64);
        for (gap_ms, step) in steps {
            now_ms += gap_ms;
            clock_ms += gap_ms;
            match step {
                Step::Renew(client, demand, lost) => {
                    let name = format!("client {client}");
                    let tenant = TENANTS[client % 3];
                    let serial = holders[client].serial;
                    let lease = server.renew(at(clock_ms), tenant, &name, demand, serial).unwrap();
                    if !lost {
                        let until_ms = now_ms + own_term_ms(off[client]);
                        holders[client] = Holder { serial: Some(lease.serial), rate: lease.rate, until_ms, demand };
                    }
                }
                Step::Restart => {
                    let mut next = pool();
                    for holding in server.holdings() {
                        next.restore(at(clock_ms), holding);
                    }
                    server = next;
                }
                Step::Back(ms) => clock_ms = clock_ms.saturating_sub(ms),
            }
            prop_assert!(server.promised() <= 175);
            prop_assert!(used(&holders, now_ms) <= 175, "{holders:?} at {now_ms} ms");
        }
    }

    /// With constant demands, all tenants reach the fair share after a few renewals and keep it.
    #[test]
    fn converges_to_the_fair_division(
        before in prop::collection::vec(0u64..400, 6),
        demands in prop::collection::vec(0u64..400, 6),
    ) {
        let mut server = pool();
        let mut holders = vec![Holder::default(); 6];
        let mut now_ms = 0;
        let mut round = |demands: &[u64], holders: &mut [Holder]| {
            for (client, holder) in holders.iter_mut().enumerate() {
                now_ms += 100;
                let name = format!("client {client}");
                let lease = server.renew(at(now_ms), TENANTS[client % 3], &name, demands[client], holder.serial);
                let lease = lease.unwrap();
                (holder.serial, holder.rate, holder.demand) = (Some(lease.serial), lease.rate, demands[client]);
            }
        };
        for _ in 0..4 {
            round(&before, &mut holders);
        }
        // One round to learn all demands, one to reduce leases, one to report that, one to grant the freed rate.
        for _ in 0..4 {
            round(&demands, &mut holders);
        }
        let claims: Vec<Claim> = (0..3).map(|tenant| Claim {
            demand: demands[tenant] + demands[tenant + 3],
            guarantee: if tenant == 0 { 50 } else { 0 },
            weight: if tenant == 1 { 3 } else { 1 },
        }).collect();
        for (tenant, part) in divide(175, &claims).into_iter().enumerate() {
            let sum = holders[tenant].rate + holders[tenant + 3].rate;
            prop_assert_eq!(sum, part, "tenant {} of {:?}", tenant, holders);
        }
    }
}

/// Goal: a lease counts until its end though the numbers before it were lost with the machine. Method: a client holds a
/// lease that a new pool does not know; a request that it sent earlier names that lease and arrives late.
#[test]
fn a_late_request_with_a_lost_number_does_not_end_a_newer_lease() {
    let mut pool = pool();
    let lease = pool.renew(at(0), "a", "here", 1_000, Some(115)).unwrap();
    assert_eq!((lease.serial, lease.rate), (116, 175));
    pool.renew(at(1), "a", "here", 0, Some(115)).unwrap();
    assert_eq!(pool.promised(), 175);
    // No claim makes the numbers run out.
    pool.renew(at(2), "a", "here", 0, Some(u64::MAX)).unwrap();
    for claimed in [u64::MAX / 2, 1 << 40, 200 + LOST_MAX] {
        let lease = pool.renew(at(3), "a", "here", 0, Some(claimed)).unwrap();
        assert!(lease.serial < 200, "{claimed}");
    }
}

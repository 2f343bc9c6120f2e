//! Facts about allocations, the control law and the limiter of control verbs, and properties against plain models.

use super::statistics::{BusDirection, ObjectKind, TenantStatistics};
use super::*;
use isolane_common_quantities::units::{BitRate, Bytes, Duration, Instant};
use proptest::prelude::*;

const FORMAT: BusFormat = BusFormat {
    payload_max: 128,
    header: 20,
    work_request: 36,
    receive: 16,
};

fn nic() -> Capacity {
    Capacity {
        rate: BitRate::from_gbps(25),
        data_requests_per_s: 30_000_000,
        pcie_rate: BitRate::from_gbps(32),
    }
}

fn tenant(name: &str, gbps: Option<u64>, requests: Option<u64>) -> PerformanceProfile {
    PerformanceProfile {
        name: name.to_owned(),
        weight: 1,
        rate: gbps.map(BitRate::from_gbps),
        data_requests_per_s: requests,
        ..PerformanceProfile::default()
    }
}

fn daemon(options: HarmonicOptions, allocations: Vec<Allocation>) -> Harmonic {
    Harmonic::new(options, nic(), allocations).expect("the options are right")
}

fn options() -> HarmonicOptions {
    HarmonicOptions::published(RequestCosts::CONNECTX_6_DX, FORMAT, 1_000_000)
}

fn us(us: u64) -> Instant {
    Instant::ZERO + Duration::from_us(us)
}

/// Batches of a run in which tenant 0 sends at `gbps` all the time: when, and how many notifications.
fn batches(options: HarmonicOptions, gbps: f64, until_us: u64) -> Vec<(u64, u32)> {
    let allocations = allocate(&nic(), &[tenant("a", Some(10), None)]).unwrap();
    let mut daemon = daemon(options, allocations);
    let mut found = Vec::new();
    while daemon.poll_timeout() <= us(until_us) {
        let now = daemon.poll_timeout();
        let mut counts = TenantStatistics::default();
        let bytes = (gbps * now.as_ps() as f64 / 8e3) as u64;
        counts.add(
            ObjectKind::PrivateMemory,
            BusDirection::ToNic,
            bytes / 512,
            bytes,
        );
        daemon.poll(now, &[counts]);
        while let Some(batch) = daemon.poll_action() {
            found.push((now.as_ps() / 1_000_000, batch.notifications));
        }
    }
    found
}

/// Goodput after 10 ms and the last explicit rate, both Gb/s, of a tenant with 10 Gb/s whose senders obey each rate at once and
/// want 24 Gb/s for `busy_ms` and 4 Gb/s after that.
fn under_explicit_rates(busy_ms: u64, until_ms: u64) -> (f64, f64) {
    let options = HarmonicOptions {
        explicit_rate: true,
        ..options()
    };
    let allocations = allocate(&nic(), &[tenant("a", Some(10), None)]).unwrap();
    let mut daemon = daemon(options, allocations);
    let (mut allowed, mut bytes, mut before) = (f64::INFINITY, 0.0, Instant::ZERO);
    let mut at_10_ms = 0.0;
    while daemon.poll_timeout() <= us(until_ms * 1_000) {
        let now = daemon.poll_timeout();
        let wanted = match now < us(busy_ms * 1_000) {
            true => 24.0_f64,
            false => 4.0,
        };
        let time = now.saturating_since(before).as_ps() as f64;
        bytes += wanted.min(allowed) * time / 8e3;
        before = now;
        if now <= us(10_000) {
            at_10_ms = bytes;
        }
        let mut counts = TenantStatistics::default();
        let (object, direction) = (ObjectKind::PrivateMemory, BusDirection::ToNic);
        counts.add(object, direction, bytes as u64 / 512, bytes as u64);
        daemon.poll(now, &[counts]);
        while let Some(batch) = daemon.poll_action() {
            let rate = batch.rate.expect("rates replace notifications");
            allowed = rate.as_bps() as f64 / 1e9;
        }
    }
    let seconds = (until_ms - 10) as f64 / 1e3;
    ((bytes - at_10_ms) * 8e-9 / seconds, allowed)
}

#[test]
fn explicit_rates_hold_a_tenant_at_its_rate_and_free_it_afterwards() {
    let (goodput, _) = under_explicit_rates(30, 30);
    assert!((9.9..=10.1).contains(&goodput), "{goodput} Gb/s of 10");
    let (_, allowed) = under_explicit_rates(10, 30);
    assert_eq!(allowed, 25.0, "the rate of the line");
}

#[test]
fn bus_shares_follow_dominant_shares_as_in_the_worked_example() {
    // The example's printed shares, 2/3 of the rate and 1/2 of the requests, give 4 : 3.
    let printed = Capacity {
        rate: BitRate::from_gbps_f64(22.5),
        pcie_rate: BitRate::from_gbps(28),
        ..nic()
    };
    let tenants = [
        tenant("a", Some(15), Some(10_000_000)),
        tenant("b", Some(5), Some(15_000_000)),
    ];
    let split = allocate(&printed, &tenants).unwrap();
    let gbps = |one: &Allocation| one.pcie_rate.as_gbps_f64();
    assert!((gbps(&split[0]) - 16.0).abs() < 1e-6 && (gbps(&split[1]) - 12.0).abs() < 1e-6);
    assert_eq!(split[0].dominant, Dominant::Rate);
    assert_eq!(split[1].dominant, Dominant::DataRequests);
    // Its printed capacity of 25 Gb/s makes the first share 3/5, and the proportion 6 : 5.
    let split = allocate(&nic(), &tenants).unwrap();
    assert!((gbps(&split[0]) / gbps(&split[1]) - 1.2).abs() < 1e-6);
}

#[test]
fn capacity_without_a_guarantee_is_split_by_weight() {
    let mut tenants = [
        tenant("a", Some(10), None),
        tenant("b", None, None),
        tenant("c", None, None),
    ];
    tenants[2].weight = 2;
    let split = allocate(&nic(), &tenants).unwrap();
    let rates: Vec<f64> = split.iter().map(|one| one.rate.as_gbps_f64()).collect();
    assert_eq!(rates, [10.0, 5.0, 10.0]);
    let requests: Vec<u64> = split.iter().map(|one| one.data_requests_per_s).collect();
    assert_eq!(requests, [7_500_000, 7_500_000, 15_000_000]);
}

#[test]
fn too_much_is_refused_with_the_sum() {
    let says = |tenants: &[PerformanceProfile]| allocate(&nic(), tenants).unwrap_err().to_string();
    assert_eq!(
        says(&[
            tenant("alice", Some(10), None),
            tenant("bob", Some(20), None)
        ]),
        "guarantees of rate add up to more than the NIC has: alice 10 + bob 20 = 30 Gb/s, the NIC has 25 Gb/s: \
         lower them by 5 Gb/s in all"
    );
    let many = [
        tenant("alice", None, Some(20_000_000)),
        tenant("bob", None, Some(10_500_000)),
    ];
    assert!(says(&many).contains("alice 20 + bob 10.5 = 30.5 M requests/s"));
    let all = [tenant("alice", Some(25), None), tenant("bob", None, None)];
    assert!(says(&all).contains("nothing is left for bob"));
    assert!(says(&[tenant("alice", Some(0), None)]).contains("zero"));
    let mut weightless = tenant("alice", None, None);
    weightless.weight = 0;
    assert!(says(&[weightless]).contains("the weight of alice is zero"));
}

#[test]
fn no_tenant_within_its_allocation_is_notified() {
    assert_eq!(batches(options(), 10.0, 5_000), []);
    assert_eq!(batches(options(), 0.0, 5_000), []);
}

#[test]
fn batches_follow_equation_5_1() {
    // 20 % too much: 500 us * 0.8; twice too much: T_min.
    let times = |gbps| -> Vec<u64> {
        batches(options(), gbps, 1_300)
            .iter()
            .map(|b| b.0)
            .collect()
    };
    assert_eq!(times(12.0), [400, 800, 1_200]);
    assert_eq!(times(20.0), [200, 400, 600, 800, 1_000, 1_200]);
    // Just above the target, T_basic.
    assert_eq!(times(10.01), [500, 1_000]);
}

#[test]
fn more_excess_means_more_notifications_up_to_the_most() {
    let of = |gbps| batches(options(), gbps, 500)[0].1;
    assert_eq!(
        [of(11.0), of(12.0), of(20.0), of(25.0), of(45.0)],
        [1, 2, 2, 3, 4]
    );
    let two = HarmonicOptions {
        notifications_max: 2,
        ..options()
    };
    assert_eq!(batches(two, 45.0, 500)[0].1, 2);
}

#[test]
fn a_device_whose_alpha_falls_quickly_takes_more_notifications() {
    let quick = HarmonicOptions {
        reaction: Reaction {
            shift: 8,
            period: Duration::from_us(1),
        },
        ..options()
    };
    let of = |options: &HarmonicOptions, gbps| -> Vec<u32> {
        let found = batches(options.clone(), gbps, 1_300);
        found.iter().map(|batch| batch.1).collect()
    };
    // Before the first batch alpha is one; after 400 us it is a fifth, after 500 us a seventh.
    assert_eq!(of(&quick, 12.0), [2, 3, 4]);
    assert_eq!(of(&options(), 12.0), [2, 2, 2]);
    assert_eq!(of(&quick, 10.01), [1, 1]);
}

/// One poll after 500 us, when any excess is reported, with these counts.
fn once(
    options: HarmonicOptions,
    tenants: &[PerformanceProfile],
    counts: &[TenantStatistics],
) -> Vec<Batch> {
    let mut daemon = daemon(options, allocate(&nic(), tenants).unwrap());
    daemon.poll(us(500), counts);
    std::iter::from_fn(|| daemon.poll_action()).collect()
}

fn counts(seen: &[(ObjectKind, BusDirection, u64, u64)]) -> TenantStatistics {
    let mut counts = TenantStatistics::default();
    for &(kind, direction, transactions, bytes) in seen {
        counts.add(kind, direction, transactions, bytes);
    }
    counts
}

#[test]
fn requests_and_the_bus_have_limits_of_their_own() {
    use BusDirection::{ToHost, ToNic};
    let tenants = [tenant("a", None, None), tenant("b", None, None)];
    // 20 M requests/s of 8 B, 10,000 in 500 us: little payload, more than 15 M/s.
    let small = counts(&[
        (ObjectKind::Doorbell, ToNic, 625, 40_000),
        (ObjectKind::SendQueue, ToNic, 625, 10_000 * 36),
        (ObjectKind::PrivateMemory, ToNic, 10_000, 80_000),
    ]);
    let found = once(options(), &tenants, &[small, TenantStatistics::default()]);
    assert_eq!((found.len(), found[0].reason), (1, Reason::DataRequests));
    // 6 M atomics/s count three times.
    let atomics = counts(&[
        (ObjectKind::AtomicMemory, ToNic, 3_000, 24_000),
        (ObjectKind::AtomicMemory, ToHost, 3_000, 24_000),
    ]);
    let found = once(options(), &tenants, &[TenantStatistics::default(), atomics]);
    assert_eq!(
        (found[0].tenant, found[0].reason),
        (1, Reason::DataRequests)
    );
    // Served WRITEs of 40 B at 11 Gb/s of payload, below 12.5, take 16.5 of the bus, above 16.
    let served = |gbps: u64| {
        let requests = gbps * 1_000_000 / 8 / 2 / 40;
        counts(&[(
            ObjectKind::RemoteWriteMemory,
            ToHost,
            requests,
            40 * requests,
        )])
    };
    let found = once(
        options(),
        &tenants,
        &[served(11), TenantStatistics::default()],
    );
    assert_eq!((found.len(), found[0].reason), (1, Reason::Bus));
    assert_eq!(
        once(
            options(),
            &tenants,
            &[served(10), TenantStatistics::default()]
        ),
        []
    );
}

#[test]
fn contended_caches_slow_the_lowest_priority_and_then_by_dominant_usage() {
    use BusDirection::ToNic;
    let busy = |bytes| {
        counts(&[
            (ObjectKind::PrivateMemory, ToNic, 400, bytes),
            (ObjectKind::Context, ToNic, 600, 600 * 64),
        ])
    };
    let low = PerformanceProfile {
        priority: 1,
        ..tenant("low", None, None)
    };
    let same = [tenant("a", None, None), tenant("b", None, None)];
    // Equal priorities: who uses more than half of what gets through.
    let found = once(options(), &same, &[busy(200_000), busy(100_000)]);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].tenant, found[0].reason), (0, Reason::Cache));
    // The lowest priority, although the other uses more than its part as well.
    let three = [tenant("a", None, None), low, tenant("c", None, None)];
    let found = once(
        options(),
        &three,
        &[busy(150_000), busy(150_000), busy(1_000)],
    );
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].tenant, found[0].reason), (1, Reason::Cache));
    // Below its part, it is left alone.
    let found = once(
        options(),
        &three,
        &[busy(150_000), busy(2_000), busy(1_000)],
    );
    assert_eq!((found.len(), found[0].tenant), (1, 0));
    // Below the threshold no tenant is slowed.
    let calm = HarmonicOptions {
        cache_misses_per_s: 1_000_000_000,
        ..options()
    };
    assert_eq!(once(calm, &same, &[busy(200_000), busy(100_000)]), []);
    // Alone, the whole is one's part.
    assert_eq!(once(options(), &same[..1], &[busy(200_000)]), []);
}

#[test]
fn options_that_cannot_work_are_refused() {
    let says = |options: HarmonicOptions| {
        let allocations = allocate(&nic(), &[tenant("a", None, None)]).unwrap();
        Harmonic::new(options, nic(), allocations)
            .unwrap_err()
            .to_string()
    };
    let backwards = HarmonicOptions {
        t_min: Duration::from_us(600),
        ..options()
    };
    assert!(says(backwards).contains("t_basic, 500 us"));
    let none = HarmonicOptions {
        notifications_max: 0,
        ..options()
    };
    assert!(says(none).contains("notifications_max is 0"));
}

#[test]
fn a_verb_beyond_capacity_is_rejected_and_destruction_makes_room() {
    let mut limiter = ControlLimiter::new(ControlProfile {
        queue_pairs: Some(2),
        region_bytes: Some(Bytes::new(8_192)),
        ..ControlProfile::default()
    });
    let pair = Objects {
        queue_pairs: 1,
        ..Objects::default()
    };
    limiter.hold(&pair);
    assert_eq!(limiter.create(us(0), &pair), Verdict::After(Duration::ZERO));
    let full = Limit {
        name: "queue_pairs",
        most: 2,
        asked: 3,
    };
    assert_eq!(limiter.create(us(0), &pair), Verdict::Rejected(full));
    // Full of one kind, it may still have others.
    let region = Objects {
        memory_regions: 1,
        region_bytes: 8_192,
        ..Objects::default()
    };
    assert_eq!(
        limiter.create(us(0), &region),
        Verdict::After(Duration::ZERO)
    );
    assert!(matches!(
        limiter.create(us(0), &region),
        Verdict::Rejected(Limit {
            name: "region_total",
            ..
        })
    ));
    assert_eq!(limiter.destroy(us(0), &pair), Duration::ZERO);
    assert_eq!(limiter.create(us(0), &pair), Verdict::After(Duration::ZERO));
    assert_eq!(limiter.counts(), (2, 0));
}

proptest! {
    /// Verbs pass at the profile's rate at most, none is refused, and one that is within the rate does not wait.
    #[test]
    fn verbs_are_delayed_to_their_rate_and_never_refused(
        rate in 1_u64..100_000,
        gaps in prop::collection::vec(0_u64..2_000_000_000, 1..200),
    ) {
        let profile = ControlProfile { control_requests_per_s: Some(rate), ..ControlProfile::default() };
        let mut limiter = ControlLimiter::new(profile);
        let interval = 1_000_000_000_000_u64.div_ceil(rate);
        let (mut now, mut last) = (0, None::<u64>);
        for gap in gaps {
            now += gap;
            let Verdict::After(wait) = limiter.create(Instant::from_ps(now), &Objects::default()) else {
                return Err(TestCaseError::fail("a rate never rejects"));
            };
            let passes = now + wait.as_ps();
            // The plain model: as early as it may, one interval after the one before.
            let expected = last.map_or(now, |last| now.max(last + interval));
            prop_assert_eq!(passes, expected);
            last = Some(passes);
        }
    }

    /// No split hands out more than there is, and promises are kept to the bit.
    #[test]
    fn a_split_keeps_promises_and_the_capacity(
        tenants in prop::collection::vec((1_u32..10, prop::option::of(1_u64..5), prop::option::of(1_u64..6_000_000)), 1..6),
    ) {
        let profiles: Vec<PerformanceProfile> = tenants
            .iter()
            .map(|(weight, gbps, requests)| PerformanceProfile {
                weight: *weight,
                ..tenant("t", *gbps, *requests)
            })
            .collect();
        let Ok(split) = allocate(&nic(), &profiles) else {
            return Err(TestCaseError::fail("five times 4 of 25 Gb/s and 6 of 30 M/s fit"));
        };
        let sum = |of: fn(&Allocation) -> u64| split.iter().map(of).sum::<u64>();
        prop_assert!(sum(|one| one.rate.as_bps()) <= nic().rate.as_bps());
        prop_assert!(sum(|one| one.data_requests_per_s) <= nic().data_requests_per_s);
        prop_assert!(sum(|one| one.pcie_rate.as_bps()) <= nic().pcie_rate.as_bps());
        for (profile, one) in profiles.iter().zip(&split) {
            prop_assert!(profile.rate.is_none_or(|rate| rate == one.rate));
            prop_assert!(profile.data_requests_per_s.is_none_or(|n| n == one.data_requests_per_s));
            let share = (one.rate.as_bps() as f64 / 25e9).max(one.data_requests_per_s as f64 / 30e6);
            prop_assert!((one.share as f64 / SHARE_ONE as f64 - share).abs() < 1e-8);
        }
    }

    /// Against equation 5.1 in floating point: a steady excess is reported at the first poll at or after T_i, and so
    /// on.
    #[test]
    fn a_steady_excess_is_notified_every_t_i(gbps in 10.3_f64..60.0) {
        let found = batches(options(), gbps, 3_000);
        let t = (500.0 * (1.0 - (gbps - 10.0) / 10.0)).max(200.0);
        let period = (t / 100.0).ceil() as u64 * 100;
        // A whole number of polls is decided by rounding.
        prop_assume!((t / 100.0 - (t / 100.0).round()).abs() > 1e-3 || t == 200.0);
        let expected: Vec<u64> = (1..=3_000 / period).map(|n| n * period).collect();
        prop_assert_eq!(found.iter().map(|b| b.0).collect::<Vec<_>>(), expected);
    }

    /// Counters that wrap change nothing.
    #[test]
    fn decisions_do_not_depend_on_where_counters_begin(bytes in 0_u64..2_000_000, offset in any::<u64>()) {
        let tenants = [tenant("a", Some(10), None)];
        let run = |offset: u64| {
            let mut daemon = daemon(options(), allocate(&nic(), &tenants).unwrap());
            let at = |bytes: u64| counts(&[(ObjectKind::PrivateMemory, BusDirection::ToNic, offset, offset.wrapping_add(bytes))]);
            daemon.begin(us(1), &[at(0)]);
            daemon.poll(us(501), &[at(bytes)]);
            daemon.poll_action()
        };
        prop_assert_eq!(run(0), run(offset));
    }
}

//! Limits by hand, and that no history lets members exceed one.

use super::super::{Change, GroupId, LeaseOptions, Rates, Usage};
use super::*;
use isolane_common_quantities::units::{Duration, Instant};
use proptest::prelude::*;

const DEVICE: Rates = Rates {
    bytes_per_s: 6_000_000_000,
    operations_per_s: 30_000_000,
};
const HUNGRY: Usage = Usage {
    bytes: 0,
    operations: 0,
    waiting: true,
};

fn leases() -> Leases {
    let options = LeaseOptions {
        idle_after: Duration::from_ms(20),
        hungry_for: Duration::from_ms(8),
    };
    Leases::new(options, DEVICE)
}

fn at(us: u64) -> Instant {
    Instant::ZERO + Duration::from_us(us)
}

/// One member in each of so many groups of weight one.
fn members(leases: &mut Leases, count: usize) -> Vec<MemberId> {
    let one = |_| {
        let group = leases.open(1);
        leases.join(group, 1)
    };
    (0..count).map(one).collect()
}

fn shares(leases: &Leases, members: &[MemberId]) -> Vec<u64> {
    let share = |&member| leases.share(member).bytes_per_s;
    members.iter().map(share).collect()
}

#[test]
fn a_limit_over_several_groups_is_one_limit_and_the_rest_flows_to_the_others() {
    let mut leases = leases();
    let members = members(&mut leases, 3);
    let limit = leases.open_limit(1_000_000_000);
    for member in &members[..2] {
        leases.limit(*member, LimitKind::Tenant, Some(limit));
    }
    for member in &members {
        leases.observe(at(0), *member, HUNGRY);
    }
    leases.divide();
    assert_eq!(
        shares(&leases, &members),
        [500_000_000, 500_000_000, 5_000_000_000]
    );
    assert_eq!(leases.share(members[0]).operations_per_s, 2_500_000);
}

#[test]
fn a_limit_holds_on_a_device_without_other_users() {
    let mut leases = leases();
    let members = members(&mut leases, 1);
    let limit = leases.open_limit(1_000_000_000);
    leases.limit(members[0], LimitKind::Tenant, Some(limit));
    assert_eq!(
        leases.share_if_active(members[0]).bytes_per_s,
        1_000_000_000
    );
    assert_eq!(leases.observe(at(0), members[0], HUNGRY), Change::Active);
    leases.divide();
    assert_eq!(shares(&leases, &members), [1_000_000_000]);
    leases.set_limit_rate(limit, 2_000_000_000);
    leases.divide();
    assert_eq!(shares(&leases, &members), [2_000_000_000]);
    leases.limit(members[0], LimitKind::Tenant, None);
    leases.divide();
    assert_eq!(shares(&leases, &members), [6_000_000_000]);
}

#[test]
fn what_one_member_of_a_limit_does_not_use_the_other_may() {
    let mut leases = leases();
    let members = members(&mut leases, 2);
    let limit = leases.open_limit(1_000_000_000);
    for member in &members {
        leases.limit(*member, LimitKind::Tenant, Some(limit));
    }
    for step in 0..40 {
        leases.observe(at(step * 1_000), members[0], HUNGRY);
        // 100 MB/s.
        let modest = Usage {
            bytes: 100_000,
            ..Usage::default()
        };
        leases.observe(at(step * 1_000), members[1], modest);
        leases.divide();
    }
    let each = shares(&leases, &members);
    assert!((840_000_000..=850_000_000).contains(&each[0]), "{each:?}");
    assert_eq!(each[0] + each[1], 1_000_000_000);
}

#[test]
fn limits_of_two_kinds_hold_at_once() {
    let mut leases = leases();
    let members = members(&mut leases, 3);
    let tenant = leases.open_limit(1_000_000_000);
    let source = leases.open_limit(3_000_000_000);
    leases.limit(members[0], LimitKind::Tenant, Some(tenant));
    for member in &members[..2] {
        leases.limit(*member, LimitKind::Source, Some(source));
    }
    for member in &members {
        leases.observe(at(0), *member, HUNGRY);
    }
    leases.divide();
    // The first member's tenant leaves more of the source to the second member, and both leave more of the device to the third.
    assert_eq!(
        shares(&leases, &members),
        [1_000_000_000, 2_000_000_000, 3_000_000_000]
    );
}

#[test]
fn a_group_counts_once_in_each_sum_of_its_members() {
    let mut leases = leases();
    let groups = [leases.open(1), leases.open(4)];
    let members = [0, 0, 0, 1].map(|at| leases.join(groups[at], 1));
    for member in &members[..2] {
        leases.observe(at(0), *member, HUNGRY);
    }
    let before = leases.changes();
    leases.observe(at(0), members[3], HUNGRY);
    assert!(leases.changes() > before);
    let sums_of = |member: MemberId| [0b01, 0b11, 0b100, 0b10][member.0 as usize];
    let mut sums = [0; 3];
    leases.add_active_weights(sums_of, &mut sums);
    // The idle third member counts nowhere.
    assert_eq!(sums, [1, 5, 0]);
}

#[test]
fn a_limit_above_the_share_changes_nothing() {
    let mut leases = leases();
    let members = members(&mut leases, 2);
    let limit = leases.open_limit(5_000_000_000);
    leases.limit(members[0], LimitKind::Tenant, Some(limit));
    for member in &members {
        leases.observe(at(0), *member, HUNGRY);
    }
    leases.divide();
    assert_eq!(shares(&leases, &members), [3_000_000_000; 2]);
}

#[test]
fn who_rests_leaves_the_division() {
    let mut leases = leases();
    let members = members(&mut leases, 2);
    let limit = leases.open_limit(1_000_000_000);
    for member in &members {
        leases.limit(*member, LimitKind::Tenant, Some(limit));
        leases.observe(at(0), *member, HUNGRY);
    }
    leases.rest(members[0]);
    leases.rest(members[0]);
    leases.divide();
    assert_eq!(
        (leases.active(), leases.cap(members[1], LimitKind::Tenant)),
        (1, 1_000_000_000)
    );
    assert_eq!(
        leases.cap(members[0], LimitKind::Tenant),
        500_000_000,
        "if it came again"
    );
}

proptest! {
    /// Goal: under any history of arrivals, uses and limits, the members of a limit have no more than the limit, and
    /// all members have no more than the device. A device with an active unlimited member is granted whole.
    #[test]
    fn no_limit_is_exceeded(
        steps in prop::collection::vec((0u8..9, 0usize..12, 0u64..3_000_000, any::<bool>(), 1u32..5), 1..120)
    ) {
        let mut leases = leases();
        let groups: Vec<GroupId> = (1..4).map(|weight| leases.open(weight)).collect();
        let mut rates = [1_000_000_000u64, 10_000_000, 0];
        let limits = rates.map(|rate| leases.open_limit(rate));
        let mut present: Vec<(MemberId, Option<usize>)> = Vec::new();
        let mut now = at(0);
        for (step, which, bytes, waiting, weight) in steps {
            let chosen = which % present.len().max(1);
            match step {
                0 | 1 => present.push((leases.join(groups[which % 3], weight), None)),
                2 if !present.is_empty() => {
                    leases.leave(present.swap_remove(chosen).0);
                }
                3 if !present.is_empty() => {
                    let limit = (weight < 4).then_some(weight as usize - 1);
                    present[chosen].1 = limit;
                    leases.limit(present[chosen].0, LimitKind::Tenant, limit.map(|at| limits[at]));
                }
                4 => {
                    rates[which % 3] = bytes * 1_000;
                    leases.set_limit_rate(limits[which % 3], bytes * 1_000);
                }
                5 => now += Duration::from_ms(7),
                6 if !present.is_empty() => leases.rest(present[chosen].0),
                _ if !present.is_empty() => {
                    let usage = Usage { bytes, operations: bytes / 4_096, waiting };
                    leases.observe(now, present[chosen].0, usage);
                }
                _ => {}
            }
            now += Duration::from_us(300);
            leases.divide();
            let share = |member| leases.share(member).bytes_per_s;
            for (at, rate) in rates.iter().enumerate() {
                let held = present.iter().filter(|(_, limit)| *limit == Some(at));
                let sum: u64 = held.clone().map(|&(member, _)| share(member)).sum();
                prop_assert!(sum <= *rate, "{sum} of {rate}");
                for &(member, _) in held {
                    prop_assert!(leases.share_if_active(member).bytes_per_s <= *rate);
                }
            }
            let sum: u64 = present.iter().map(|&(member, _)| share(member)).sum();
            prop_assert!(sum <= DEVICE.bytes_per_s);
            let free = |&&(member, limit): &&(MemberId, Option<usize>)| {
                limit.is_none() && leases.is_active(member)
            };
            if present.iter().any(|one| free(&one)) {
                let lost = DEVICE.bytes_per_s - sum;
                prop_assert!(lost <= 3 * leases.active() as u64, "{lost} B/s are not granted");
            }
        }
    }

    /// Goal: with a maximum for each, filling still grants all that is allowed. Method: while there is a remainder, no
    /// receiver is below its maximum.
    #[test]
    fn the_remainder_is_above_all_maxima(
        rate in 0u64..10_000_000,
        wants in prop::collection::vec((1u32..10, 0u64..3_000_000, 0u64..3_000_000, any::<bool>()), 1..20),
    ) {
        let mut wants: Vec<Want> = wants.into_iter().enumerate().map(|(id, (weight, demand, room, free))| {
            let most = if free { EVERYTHING } else { demand + room };
            Want { id: id as u32, weight, demand, most, share: 0 }
        }).collect();
        fill(rate, &mut wants);
        let sum: u64 = wants.iter().map(|want| want.share).sum();
        prop_assert!(sum <= rate);
        prop_assert!(wants.iter().all(|want| want.share <= want.most));
        let lost = rate - sum;
        if lost > 2 * wants.len() as u64 {
            prop_assert!(wants.iter().all(|want| want.share == want.most), "{lost} left: {wants:?}");
        }
    }
}

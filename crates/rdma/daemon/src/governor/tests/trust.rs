//! What a process gains by its claims: nothing by default, a bounded share where the operator trusts them.
//!
//! Method: an honest tenant of one user beside another user's processes in simulated time; rates are what the leases
//! admit.

use super::*;
use isolane_rdma_session::slot::Occupant;

fn untrusting() -> Config {
    Config {
        trust_names: false,
        own_names_max: Config::default().own_names_max,
        rules: Vec::new(),
        ..config()
    }
}

/// A process of a user with arbitrary claims.
fn of(user: u32, claim: &str, weight: u32) -> Who {
    Who {
        user,
        weight,
        ..who(claim, Class::Bandwidth)
    }
}

#[test]
fn a_claimed_weight_does_not_take_the_device() {
    let mut host = Host::new(untrusting());
    host.start_bulk(of(1000, "honest", 1));
    host.start_bulk(of(1001, "greedy", 1 << 20));
    host.run(50);
    let sent = host.sent_in(1_000);
    near(sent[0], 2_500_000);
}

#[test]
fn two_hundred_names_of_one_user_share_one_part() {
    let mut host = Host::new(untrusting());
    host.start_bulk(of(1000, "honest", 1));
    for name in 0..200 {
        host.start_bulk(of(1001, &format!("t{name}"), 1));
    }
    host.run(50);
    let sent = host.sent_in(1_000);
    near(sent[0], 2_500_000);
    let snapshot = host.governor.snapshot(host.now_ns);
    let names: Vec<_> = snapshot.tenants.iter().map(|one| &one.name).collect();
    assert_eq!(names, ["user-1000", "user-1001"]);
}

#[test]
fn a_trusted_owner_has_a_bounded_part() {
    let mut host = Host::new(Config {
        trust_names: true,
        ..untrusting()
    });
    host.start_bulk(of(1000, "", 1));
    for name in 0..50 {
        host.start_bulk(of(1001, &format!("t{name}"), 1 << 20));
    }
    host.run(50);
    let snapshot = host.governor.snapshot(host.now_ns);
    // Eight names of weight 4, the owner itself, and the honest tenant.
    assert_eq!(snapshot.tenants.len(), 10);
    let weights: u32 = snapshot.tenants.iter().map(|one| one.weight).sum();
    assert_eq!(weights, 8 * 4 + 1 + 1);
    let sent = host.sent_in(1_000);
    near(sent[0], 5_000_000 / 34);
}

#[test]
fn names_are_free_again_when_their_processes_are_gone() {
    let mut host = Host::new(Config {
        trust_names: true,
        ..untrusting()
    });
    for name in 0..8 {
        host.start(of(1001, &format!("t{name}"), 1));
    }
    host.start(of(1001, "ninth", 1));
    host.start(of(1002, "of-another", 1));
    let tenants = |host: &mut Host| {
        let snapshot = host.governor.snapshot(host.now_ns);
        let names = snapshot.tenants.into_iter().map(|one| one.name);
        names.collect::<Vec<_>>()
    };
    let known = tenants(&mut host);
    assert!(known.contains(&"user-1001".to_owned()) && known.contains(&"of-another".to_owned()));
    assert!(!known.contains(&"ninth".to_owned()));
    host.stop(0);
    host.start(of(1001, "ninth", 1));
    assert!(tenants(&mut host).contains(&"ninth".to_owned()));
}

#[test]
fn a_claim_of_the_latency_class_changes_nothing_for_others() {
    for trust_classes in [false, true] {
        let mut host = Host::new(Config {
            trust_classes,
            ..untrusting()
        });
        let honest = host.start_bulk(of(1000, "honest", 1));
        host.run(50);
        let before = host.processes[honest].lease();
        host.start(Who {
            class: Class::Latency,
            ..of(1001, "false", 1)
        });
        host.run(50);
        let after = host.processes[honest].lease();
        assert_eq!(
            (before.chunk_bytes, before.burst_bytes),
            (after.chunk_bytes, after.burst_bytes)
        );
        assert_eq!(host.device().latency_weight, 0);
    }
}

/// A process that declares the latency class and has queue pairs that are slow, small and shallow.
fn start_fast(host: &mut Host, user: u32, queue_pairs: usize) -> usize {
    let at = host.start(Who {
        class: Class::Latency,
        ..of(user, "fast", 1)
    });
    for slot in 0..queue_pairs {
        make_queue_pair(&host.processes[at], slot, slot as u32);
    }
    host.governor.signalled(host.now_ns, host.processes[at].key);
    at
}

fn post_all(host: &mut Host, at: usize, queue_pairs: usize, ms: u64, bytes: u64) {
    for _ in 0..ms {
        host.run(1);
        for slot in 0..queue_pairs {
            post(&host.processes[at], slot, 1, bytes, 1);
        }
    }
}

fn class_of(host: &Host, at: usize) -> u32 {
    host.processes[at].region.slots[0]
        .class
        .load(Ordering::Relaxed)
}

#[test]
fn a_declared_latency_process_that_is_trusted_begins_fast_and_one_that_is_not_is_found_out() {
    for trust_classes in [false, true] {
        let mut host = Host::new(Config {
            trust_classes,
            ..untrusting()
        });
        let at = start_fast(&mut host, 1000, 1);
        host.run(20);
        assert_eq!(class_of(&host, at) == Class::Latency as u32, trust_classes);
        post_all(&mut host, at, 1, 300, 64);
        assert_eq!(class_of(&host, at), Class::Latency as u32);
    }
}

/// The counters of the next queue pair begin at zero, also if it gets the number of the last one.
#[test]
fn a_queue_pair_that_returns_with_its_number_has_sent_no_bulk() {
    let mut host = Host::new(Config {
        trust_classes: true,
        ..untrusting()
    });
    let at = start_fast(&mut host, 1000, 1);
    post_all(&mut host, at, 1, 300, 64);
    let slot = &host.processes[at].region.slots[0];
    slot.leave();
    slot.occupy(&Occupant::default());
    post_all(&mut host, at, 1, 300, 64);
    assert_eq!(class_of(&host, at), Class::Latency as u32);
    assert_eq!(host.governor.figures().latency_lost_total, 0);
}

/// 64 queue pairs post 1 KiB per millisecond each: 65 MB/s on a device of 5 MB/s. Each of them looks like latency.
#[test]
fn a_tenant_that_sends_bulk_under_the_latency_class_loses_it_and_others_keep_their_chunks() {
    let mut host = Host::new(Config {
        trust_classes: true,
        ..untrusting()
    });
    let honest = host.start_bulk(of(1000, "honest", 1));
    host.run(50);
    let before = host.processes[honest].lease().chunk_bytes;
    let cheat = start_fast(&mut host, 1001, 64);
    post_all(&mut host, cheat, 64, 150, 1_024);
    assert_eq!(class_of(&host, cheat), Class::Bandwidth as u32);
    assert_eq!(host.device().latency_weight, 0);
    assert_eq!(host.processes[honest].lease().chunk_bytes, before);
    let snapshot = host.governor.snapshot(host.now_ns);
    let lost: Vec<_> = snapshot
        .tenants
        .iter()
        .map(|one| (one.name.as_str(), one.latency_lost_on.len()))
        .collect();
    assert_eq!(lost, [("user-1000", 0), ("user-1001", 1)]);
    assert_eq!(snapshot.daemon.latency_lost_total, 1);
    // Reconnecting does not help, and an honest latency tenant keeps the class.
    host.stop(cheat);
    let cheat = start_fast(&mut host, 1001, 1);
    host.run(20);
    assert_eq!(class_of(&host, cheat), Class::Bandwidth as u32);
    let fast = start_fast(&mut host, 1002, 1);
    post_all(&mut host, fast, 1, 300, 64);
    assert_eq!(class_of(&host, fast), Class::Latency as u32);
    // After ten seconds without bulk the tenant has the class again.
    post_all(&mut host, cheat, 1, 11_000, 64);
    assert_eq!(class_of(&host, cheat), Class::Latency as u32);
}

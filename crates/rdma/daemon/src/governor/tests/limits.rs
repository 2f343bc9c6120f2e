//! The enforcer's limits, in simulated time.

use super::*;
use crate::snapshot::LimitSnapshot;
use isolane_rdma_session::message::{NO_LIMIT, NO_TENANT};

/// A process with that id.
fn process(pid: u32, tenant: &str) -> Who {
    Who {
        pid,
        ..who(tenant, Class::Bandwidth)
    }
}

#[test]
fn a_limited_process_keeps_its_limit_and_the_others_have_the_rest() {
    let mut host = Host::new(config());
    host.start_bulk(process(1, "a"));
    host.start_bulk(process(2, "b"));
    host.governor.limit_tenant(0, 1_000_000);
    host.governor.limit_process(1, 0);
    host.run(50);
    let sent = host.sent_in(1_000);
    near(sent[0], 1_000_000);
    near(sent[1], 4_000_000);
    host.governor.limit_tenant(0, 2_000_000);
    host.run(50);
    near(host.sent_in(1_000)[0], 2_000_000);
    host.governor.limit_tenant(0, NO_LIMIT);
    host.run(50);
    near(host.sent_in(1_000)[0], 2_500_000);
}

#[test]
fn the_enforcers_tenants_need_not_be_the_daemons() {
    let mut host = Host::new(config());
    for (pid, tenant) in [(1, "a"), (2, "b"), (3, "b")] {
        host.start_bulk(process(pid, tenant));
    }
    // One process of `a` and one of `b` are one tenant of the enforcer.
    host.governor.limit_tenant(7, 1_000_000);
    host.governor.limit_process(1, 7);
    host.governor.limit_process(2, 7);
    host.run(50);
    let sent = host.sent_in(1_000);
    near(sent[0] + sent[1], 1_000_000);
    near(sent[2], 4_000_000);
}

#[test]
fn a_limit_that_is_known_before_the_process_binds_its_first_lease() {
    let mut host = Host::new(config());
    host.governor.limit_process(9, 3);
    host.governor.limit_tenant(3, 500_000);
    let at = host.start(process(9, "late"));
    assert_eq!(host.processes[at].lease().rate_bytes_per_s, 500_000);
    // Idle processes receive the change too.
    host.governor.limit_tenant(3, 400_000);
    host.step();
    assert_eq!(host.processes[at].lease().rate_bytes_per_s, 400_000);
    host.governor.limit_process(9, NO_TENANT);
    host.step();
    assert_eq!(host.processes[at].lease().rate_bytes_per_s, 5_000_000);
}

#[test]
fn a_limit_outlives_a_reload_and_ends_when_it_is_lifted() {
    let mut host = Host::new(config());
    let at = host.start_bulk(process(4, "a"));
    host.governor.limit_tenant(0, 1_000_000);
    host.governor.limit_process(4, 0);
    host.run(10);
    let (config, rates) = (config(), vec![BitRate::from_gbps(1)]);
    host.governor
        .reconfigure(host.now_ns, config, rates)
        .expect("the same options");
    host.run(10);
    assert_eq!(host.processes[at].lease().rate_bytes_per_s, 1_000_000);
    host.governor.lift_limits();
    host.run(10);
    assert_eq!(host.processes[at].lease().rate_bytes_per_s, 5_000_000);
    // The next enforcer's tenant with that number has no limit.
    host.governor.limit_process(4, 0);
    host.run(10);
    assert_eq!(host.processes[at].lease().rate_bytes_per_s, 5_000_000);
}

#[test]
fn a_device_without_a_policy_paces_those_with_a_limit_only() {
    let mut without = config();
    without.devices[0].policy = PolicyName::None;
    let mut host = Host::new(without);
    host.start_bulk(process(1, "a"));
    host.start_bulk(process(2, "b"));
    host.run(10);
    assert_eq!(host.governor.next_deadline_ns(), None, "no meter is read");
    host.governor.limit_tenant(0, 1_000_000);
    host.governor.limit_process(1, 0);
    host.run(50);
    near(host.sent_in(1_000)[0], 1_000_000);
    let lease = host.processes[0].lease();
    assert_eq!(lease.flags, METER_ACTIVE);
    assert_eq!(lease.rate_operations_per_s, 0, "operations are free");
    assert_ne!(host.processes[1].lease().flags & METER_RELEASED, 0);
    // Two processes of the tenant share its limit.
    host.start_bulk(process(3, "c"));
    host.governor.limit_process(3, 0);
    host.run(50);
    let sent = host.sent_in(1_000);
    near(sent[0], 500_000);
    near(sent[2], 500_000);
    host.governor.lift_limits();
    host.run(50);
    for process in &host.processes {
        assert_ne!(process.lease().flags & METER_RELEASED, 0);
    }
    assert_eq!(host.governor.next_deadline_ns(), None, "nor now");
}

/// Number of a process's limit, and its share per second of sending and of READs.
type Shown = (Option<u32>, [Option<u64>; 2]);

fn shown(host: &mut Host) -> (Vec<LimitSnapshot>, Vec<Shown>) {
    let snapshot = host.governor.snapshot(host.now_ns);
    let sessions = snapshot.sessions.iter().map(|session| {
        let meter = |at: usize| session.meters[at].limit_bytes_per_s;
        (session.limit, [meter(0), meter(1)])
    });
    (snapshot.limits, sessions.collect())
}

#[test]
fn every_limit_in_force_is_shown_with_its_members() {
    let mut host = Host::new(config());
    host.start_bulk(process(1, "a"));
    host.start_bulk(process(2, "b"));
    host.start(Who {
        class: Class::Latency,
        ..process(3, "fast")
    });
    host.start_bulk(process(4, "b"));
    let free: Shown = (None, [None; 2]);
    assert_eq!(shown(&mut host), (vec![], vec![free; 4]));
    for pid in 1..4 {
        assert!(host.governor.limit_process(pid, 7));
    }
    host.run(10);
    assert_eq!(
        shown(&mut host).1,
        vec![free; 4],
        "whose they are is no limit"
    );
    host.governor.limit_tenant(7, 1_000_000);
    host.governor.limit_tenant(2, 3_000);
    host.run(50);
    let (limits, sessions) = shown(&mut host);
    let nobodys = LimitSnapshot {
        number: 2,
        bytes_per_s: 3_000,
        ..LimitSnapshot::default()
    };
    let held = LimitSnapshot {
        number: 7,
        bytes_per_s: 1_000_000,
        sessions: 3,
        unheld: 1,
        tenants: ["a", "b", "fast"].map(str::to_owned).to_vec(),
    };
    assert_eq!(limits, [nobodys, held]);
    // Both send and neither READs: each may READ at the whole limit and send at half.
    let half: Shown = (Some(7), [Some(500_000), Some(1_000_000)]);
    assert_eq!(sessions, [half, half, (Some(7), [None; 2]), free]);
    host.governor.lift_limits();
    host.run(10);
    assert_eq!(shown(&mut host), (vec![], vec![free; 4]));
}

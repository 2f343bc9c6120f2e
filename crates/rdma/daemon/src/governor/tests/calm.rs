//! A sender that is alone on its device is read rarely, and only while it is alone.

use super::*;

/// Number of readings in `ms`.
fn looks_in(host: &mut Host, ms: u64) -> u64 {
    let before = host.governor.figures().periods_total;
    host.run(ms);
    host.governor.figures().periods_total - before
}

#[test]
fn a_lone_sender_is_read_rarely_until_another_one_needs_the_device() {
    let mut host = Host::new(config());
    host.start_bulk(who("a", Class::Bandwidth));
    host.run(10);
    let alone = looks_in(&mut host, 80);
    assert!(
        (9..=11).contains(&alone),
        "{alone} looks in 80 ms at one that is alone"
    );
    let other = host.start_bulk(who("b", Class::Bandwidth));
    host.step();
    let two = looks_in(&mut host, 80);
    assert!((79..=81).contains(&two), "{two} looks in 80 ms at two");
    host.stop(other);
    host.run(10);
    let alone = looks_in(&mut host, 80);
    assert!((9..=11).contains(&alone), "{alone} after the other left");
    host.start(who("fast", Class::Latency));
    host.step();
    let protected = looks_in(&mut host, 80);
    assert!(
        (79..=81).contains(&protected),
        "{protected} looks in 80 ms next to a latency flow"
    );
}

/// A process counts when it draws credit, which can be less often than every 20 ms.
#[test]
fn a_lone_sender_that_counts_rarely_keeps_its_lease() {
    let mut host = Host::new(config());
    let at = host.start(who("a", Class::Bandwidth));
    let mut signals = 0;
    for _ in 0..20 {
        let meter = &host.processes[at].region.meters[0];
        meter.passed_bytes.fetch_add(65_536, Ordering::Relaxed);
        if host.processes[at].lease().flags & METER_ACTIVE == 0 {
            signals += 1;
            let key = host.processes[at].key;
            host.governor.signalled(host.now_ns, key);
        }
        host.run(50);
    }
    assert_eq!(signals, 1, "it signals when it begins, and never again");
    host.run(200);
    assert_eq!(host.processes[at].lease().flags, 0);
    assert_eq!(host.governor.next_deadline_ns(), None);
}

/// A silent sender's share goes to a newcomer at the next reading.
#[test]
fn a_resting_sender_gives_its_share_to_a_newcomer() {
    let mut host = Host::new(config());
    let first = host.start(who("a", Class::Bandwidth));
    host.processes[first].backlog = 10_000;
    host.run(40);
    assert_eq!(host.processes[first].lease().flags, METER_ACTIVE);
    let second = host.start_bulk(who("b", Class::Bandwidth));
    host.run(2);
    assert_eq!(host.processes[first].lease().flags, 0);
    assert_eq!(host.processes[second].lease().rate_bytes_per_s, 5_000_000);
}

#[test]
fn an_idle_host_needs_no_daemon() {
    let mut host = Host::new(config());
    let bulk = host.start(who("bulk", Class::Bandwidth));
    host.run(10);
    assert_eq!(host.governor.next_deadline_ns(), None);
    host.processes[bulk].backlog = 100_000;
    host.run(200);
    assert_eq!(host.processes[bulk].sent, 100_000);
    assert_eq!(host.governor.next_deadline_ns(), None);
    assert_eq!(host.processes[bulk].lease().flags, 0);
    assert_eq!(host.processes[bulk].lease().valid_until_ns, u64::MAX);
}

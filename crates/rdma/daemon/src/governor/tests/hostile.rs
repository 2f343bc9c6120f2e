//! Processes with false claims, many of them, and determinism: one history gives one result.

use super::*;
use proptest::prelude::*;

#[test]
fn who_waits_for_ever_without_sending_gives_its_share_back() {
    let mut host = Host::new(config());
    let honest = host.start_bulk(who("honest", Class::Bandwidth));
    let liar = host.start(who("liar", Class::Bandwidth));
    let meter = &host.processes[liar].region.meters[0];
    meter.waiting_since_ns.store(1, Ordering::Relaxed);
    let key = host.processes[liar].key;
    host.governor.signalled(host.now_ns, key);
    host.governor.settle(host.now_ns);
    assert_eq!(host.device().active_sending, 1);
    for _ in 0..15_000 {
        let meter = &host.processes[liar].region.meters[0];
        meter.waiting_since_ns.store(1, Ordering::Relaxed);
        // Writes false counters after the host's honest step.
        host.processes[liar].backlog = 0;
        host.now_ns += MS / 10;
        host.governor.advance(host.now_ns);
    }
    host.run(30);
    assert_eq!(host.processes[honest].lease().rate_bytes_per_s, 5_000_000);
}

#[test]
fn a_thousand_tenants_come_share_and_go() {
    let mut host = Host::new(Config {
        devices: vec![DeviceConfig {
            name: "rxe0".to_owned(),
            rate: Some(BitRate::from_gbps(8)),
            ..DeviceConfig::default()
        }],
        ..config()
    });
    for tenant in 0..1_000 {
        host.start_bulk(who(&format!("tenant-{tenant}"), Class::Bandwidth));
    }
    host.run(30);
    assert_eq!(host.device().active_sending, 1_000);
    for process in &host.processes {
        assert_eq!(process.lease().rate_bytes_per_s, 1_000_000);
    }
    for process in &mut host.processes[10..] {
        process.backlog = 0;
    }
    host.run(60);
    for process in &host.processes[..10] {
        near(process.lease().rate_bytes_per_s, 100_000_000);
    }
    while !host.processes.is_empty() {
        host.stop(0);
    }
    host.run(1);
    let snapshot = host.governor.snapshot(host.now_ns);
    assert_eq!((snapshot.sessions.len(), snapshot.tenants.len()), (0, 0));
    assert_eq!(host.governor.next_deadline_ns(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Goal: hostile writes, arrivals, wake-ups and deaths cause no panic; the honest tenant keeps its share, leases
    /// never exceed the device, and dead processes leave nothing. Method: random histories with random words in every
    /// field that a process may write.
    #[test]
    fn false_claims_harm_no_other_process(
        steps in prop::collection::vec((0u8..6, any::<u16>(), any::<u64>(), any::<u64>()), 50..300)
    ) {
        let mut host = Host::new(config());
        let honest = host.start_bulk(who("honest", Class::Bandwidth));
        host.run(20);
        let mut liars: Vec<(SessionKey, Region)> = Vec::new();
        let before = host.processes[honest].sent;
        let began_ns = host.now_ns;
        for (step, which, one, two) in steps {
            match step {
                0 => {
                    let name = ["x", "y"][usize::from(which) % 2];
                    let class = Class::from_number(u32::from(which) % 4).expect("four classes");
                    if class != Class::Latency && liars.len() < 8 {
                        let begun = host.governor.arrive(host.now_ns, who(name, class)).expect("room");
                        let region = Region::map(&begun.memory).expect("a region");
                        host.governor.open(host.now_ns, begun.key, "rxe0");
                        liars.push((begun.key, region));
                    }
                }
                1 if !liars.is_empty() => {
                    let (key, _) = liars.swap_remove(usize::from(which) % liars.len());
                    host.governor.depart(host.now_ns, key);
                }
                _ if !liars.is_empty() => {
                    let (key, region) = &liars[usize::from(which) % liars.len()];
                    let meter = &region.meters[usize::from(which) % 4];
                    meter.passed_bytes.store(one, Ordering::Relaxed);
                    meter.passed_operations.store(two, Ordering::Relaxed);
                    meter.waiting_since_ns.store(one ^ two, Ordering::Relaxed);
                    // A hostile process also overwrites the daemon's fields.
                    meter.valid_until_ns.store(two, Ordering::Relaxed);
                    region.header.slots_high.store(one as u32, Ordering::Relaxed);
                    region.header.session.store(one, Ordering::Relaxed);
                    let slot = &region.slots[usize::from(which) % isolane_rdma_session::region::SLOTS];
                    slot.state.store(step.into(), Ordering::Relaxed);
                    slot.meters.store(two as u32, Ordering::Relaxed);
                    slot.posted_messages.store(one, Ordering::Relaxed);
                    slot.posted_bytes.store(two, Ordering::Relaxed);
                    slot.completed_messages.store(two, Ordering::Relaxed);
                    let key = *key;
                    host.governor.signalled(host.now_ns, key);
                }
                _ => {}
            }
            host.run(1);
            let device = host.device();
            prop_assert!(device.leased_bytes_per_s <= RATE / 8);
        }
        let sent = host.processes[honest].sent - before;
        // Two other tenants share with it: a third, and half of that if a liar counts as a latency flow.
        let due = (host.now_ns - began_ns) as f64 * 1e-9 * RATE as f64 / 8.0 / 3.0 / 2.0;
        prop_assert!(sent as f64 >= due * 0.9, "{sent} of {due}");
        for (key, _) in liars {
            host.governor.depart(host.now_ns, key);
        }
        host.run(400);
        let snapshot = host.governor.snapshot(host.now_ns);
        prop_assert_eq!((snapshot.sessions.len(), snapshot.tenants.len()), (1, 1));
        prop_assert_eq!(snapshot.devices[0].latency_weight, 0);
        prop_assert_eq!(snapshot.devices[0].active_sending, 1);
        prop_assert_eq!(host.processes[honest].lease().rate_bytes_per_s, RATE / 8);
    }

    /// Goal: the same history gives the same leases.
    #[test]
    fn the_same_history_gives_the_same_leases(
        steps in prop::collection::vec((0u8..4, any::<u8>()), 1..60)
    ) {
        let play = || {
            let mut host = Host::new(config());
            let mut log = Vec::new();
            for &(step, which) in &steps {
                match step {
                    0 => {
                        host.start_bulk(who(&format!("t{}", which % 5), Class::Bandwidth));
                    }
                    1 if !host.processes.is_empty() => host.stop(usize::from(which) % host.processes.len()),
                    2 if !host.processes.is_empty() => {
                        let at = usize::from(which) % host.processes.len();
                        host.processes[at].backlog = u64::from(which) * 1_000;
                    }
                    _ => {}
                }
                host.run(3);
                log.extend(host.processes.iter().map(|process| (process.lease(), process.counters())));
            }
            log
        };
        prop_assert_eq!(play(), play());
    }
}

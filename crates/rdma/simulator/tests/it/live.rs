//! NICs with work from outside behave as the scenarios' NICs do.

use crate::common;
use isolane_common_quantities::units::Instant;
use isolane_rdma_scenario::library::Library;
use isolane_rdma_scenario::model::{Topology, Transport, Verb};
use isolane_rdma_simulator::rnic::live::{Connection, LiveNics, LivePair, LiveRequest, Report};

fn nics(hosts: usize, topology: Topology) -> LiveNics {
    LiveNics::new(&common::profile("cx5-100g-roce"), hosts, topology, 1).expect("a known policy")
}

fn connection(nics: &mut LiveNics, verb: Verb, ends: (u8, u8)) -> Connection {
    Connection {
        from: ends.0,
        to: ends.1,
        verb,
        transport: Transport::Rc,
        mtu: 4096,
        depth: 128,
        read_atomic_max: 16,
        region_bytes: 1 << 20,
        core: nics.core(),
    }
}

const FAR: Instant = Instant::from_ps(1 << 50);

fn request(bytes: u64) -> LiveRequest {
    LiveRequest {
        bytes,
        elements: 1,
        signalled: true,
        inline: false,
    }
}

/// Keeps `depth` requests under way until `total` are done; the time of the last completion, ps.
fn closed_loop(nics: &mut LiveNics, pair: LivePair, bytes: u64, depth: u32, total: u32) -> u64 {
    for _ in 0..depth {
        nics.post(nics.now(), pair, &[request(bytes)]);
    }
    let (mut posted, mut done, mut last) = (depth, 0, 0);
    while done < total {
        nics.run_until(nics.next_time().expect("work is under way"));
        while let Some((at, report)) = nics.next_report(nics.now()) {
            if let Report::Completed { upto, .. } = report {
                for _ in done..upto {
                    nics.post(at, pair, &[request(bytes)]);
                    posted += 1;
                }
                done = upto;
                last = at.as_ps();
            }
        }
        if let Some(due) = nics.next_time() {
            nics.run_until(due);
        }
    }
    assert!(posted >= total);
    last
}

#[test]
fn one_write_is_delivered_before_it_is_completed() {
    let mut nics = nics(2, Topology::BackToBack);
    let connection = connection(&mut nics, Verb::Write, (0, 1));
    let (pair, first) = nics.connect(&connection);
    nics.post(Instant::ZERO, pair, &[request(64)]);
    nics.run_until(FAR);
    let reports: Vec<Report> =
        std::iter::from_fn(|| nics.next_report(FAR).map(|(_, report)| report)).collect();
    let delivered = Report::Delivered {
        pair,
        message: first,
    };
    assert_eq!(
        reports,
        [
            delivered,
            Report::Completed {
                pair,
                upto: first + 1
            }
        ]
    );
}

#[test]
fn a_closed_loop_reaches_the_goodput_of_the_same_scenario() {
    let mut nics = nics(2, Topology::BackToBack);
    let connection = connection(&mut nics, Verb::Write, (0, 1));
    let (pair, _) = nics.connect(&connection);
    let total = 500;
    let end = closed_loop(&mut nics, pair, 65_536, 32, total);
    let ours = f64::from(total) * 65_536.0 * 8_000.0 / end as f64;
    let text = common::tenant(
        "a",
        "bandwidth",
        "verb = \"write\"\nsize = 65536\ndepth = 32",
    );
    let scenario = common::run(&format!("duration = \"3ms\"\n{text}"));
    let theirs = scenario.tenants[0].goodput_gbps;
    let ratio = ours / theirs;
    assert!(
        (0.98..1.02).contains(&ratio),
        "{ours} against {theirs} Gb/s"
    );
}

#[test]
fn the_same_posts_give_the_same_reports() {
    let run = || {
        let mut nics = nics(3, Topology::Switch);
        let mut pairs = Vec::new();
        for (verb, ends) in [
            (Verb::Write, (0, 2)),
            (Verb::Read, (1, 2)),
            (Verb::Send, (2, 2)),
        ] {
            let connection = connection(&mut nics, verb, ends);
            pairs.push(nics.connect(&connection).0);
        }
        for round in 0..50 {
            for &pair in &pairs {
                let at = Instant::from_ps(round * 700_000);
                nics.run_until(at);
                nics.post(at, pair, &[request(10_000), request(64)]);
            }
        }
        nics.run_until(FAR);
        std::iter::from_fn(move || nics.next_report(FAR)).collect::<Vec<_>>()
    };
    let reports = run();
    assert_eq!(reports, run());
    let completed = |report: &&(Instant, Report)| matches!(report.1, Report::Completed { .. });
    assert!(reports.iter().filter(completed).count() >= 3);
}

/// Devices with a cache of receives count the receives that are there; a live pair has as many as it needs.
#[test]
fn every_device_serves_every_verb_and_transport() {
    for profile in Library::embedded().profiles() {
        let kinds = [
            (Verb::Write, Transport::Rc),
            (Verb::Read, Transport::Rc),
            (Verb::FetchAdd, Transport::Rc),
            (Verb::Send, Transport::Rc),
            (Verb::Send, Transport::Uc),
            (Verb::Send, Transport::Ud),
        ];
        for (verb, transport) in kinds {
            let mut nics = LiveNics::new(profile, 2, Topology::Switch, 1).expect("a known policy");
            let connection = Connection {
                transport,
                mtu: 1024,
                ..connection(&mut nics, verb, (0, 1))
            };
            let (pair, _) = nics.connect(&connection);
            let bytes = if verb == Verb::FetchAdd { 8 } else { 1000 };
            closed_loop(&mut nics, pair, bytes, 32, 200);
        }
    }
}

#[test]
fn more_requests_than_slots_wait_and_are_sent() {
    let mut nics = nics(2, Topology::BackToBack);
    let connection = connection(&mut nics, Verb::Write, (0, 1));
    let (pair, _) = nics.connect(&connection);
    nics.post(Instant::ZERO, pair, &[request(4096); 1000]);
    nics.run_until(FAR);
    let delivered = |(_, report): &(Instant, Report)| matches!(report, Report::Delivered { .. });
    let reports = std::iter::from_fn(|| nics.next_report(FAR));
    assert_eq!(reports.filter(delivered).count(), 1000);
}

#[test]
fn a_pair_that_was_given_back_serves_the_next_connection() {
    let mut nics = nics(2, Topology::BackToBack);
    let connection = connection(&mut nics, Verb::Read, (0, 1));
    let (pair, _) = nics.connect(&connection);
    nics.post(Instant::ZERO, pair, &[request(4096)]);
    nics.run_until(FAR);
    nics.give_back(pair, &connection);
    assert_eq!(nics.connect(&connection), (pair, 1));
    assert_ne!(nics.connect(&connection).0, pair);
}

/// Of a queue of 2 MiB messages, which would take 20 ms, the device finishes no more than a few packets after its pair was
/// given back, so that the next connection is as fast as on a quiet device.
#[test]
fn work_of_a_pair_that_was_given_back_is_dropped() {
    for verb in [Verb::Write, Verb::Send, Verb::Read] {
        let mut nics = nics(2, Topology::Switch);
        let bulk = connection(&mut nics, verb, (0, 1));
        let pairs: Vec<LivePair> = (0..4).map(|_| nics.connect(&bulk).0).collect();
        for &pair in &pairs {
            nics.post(Instant::ZERO, pair, &[request(2 << 20); 30]);
        }
        nics.run_until(Instant::from_ps(50_000_000));
        let before = nics.port_bytes(1);
        for &pair in &pairs {
            nics.give_back(pair, &bulk);
        }
        nics.run_until(FAR);
        let after = nics.port_bytes(1);
        let moved = after.0 + after.1 - before.0 - before.1;
        assert!(moved < 1 << 20, "{verb:?}: {moved} B after the end");
        // What the pairs were is served again, in full.
        let (again, first) = nics.connect(&bulk);
        assert!(pairs.contains(&again), "{verb:?}: {again:?}");
        while nics.next_report(FAR).is_some() {}
        nics.post(nics.now(), again, &[request(2 << 20)]);
        nics.run_until(Instant::from_ps(FAR.as_ps() + (1 << 40)));
        let reports = std::iter::from_fn(|| nics.next_report(nics.now()));
        let upto = reports.filter_map(|(_, report)| match report {
            Report::Completed { upto, .. } => Some(upto),
            Report::Delivered { .. } => None,
        });
        assert_eq!(upto.last(), Some(first + 1), "{verb:?}");
    }
}

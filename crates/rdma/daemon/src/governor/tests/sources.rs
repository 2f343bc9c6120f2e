//! READs are granted and reported by the device that they read.

use super::*;
use crate::order::{PeerId, Reads};

const NEAR: PortAddress = PortAddress([1; 16]);
const FAR: PortAddress = PortAddress([2; 16]);
const STRANGE: PortAddress = PortAddress([3; 16]);

fn peer(device: &str) -> PeerId {
    PeerId {
        daemon: [7; 16],
        device: device.to_owned(),
    }
}

/// Peers at [`NEAR`] and [`FAR`] that grant these rates.
fn grants(near: u64, far: u64) -> Vec<Grant> {
    let grant = |device, port, rate| Grant {
        peer: peer(device),
        ports: vec![port],
        rate: BitRate::from_bps(rate),
    };
    vec![grant("near", NEAR, near), grant("far", FAR, far)]
}

/// A process that READs without end from `port`, or from a port that its session does not name.
fn start_reads(host: &mut Host, name: &str, port: Option<PortAddress>) -> usize {
    let at = host.start_bulk(who(name, Class::Bandwidth));
    let process = &mut host.processes[at];
    process.meters[0] = match port {
        None => process.meters[1],
        Some(port) => host
            .governor
            .open_reads(host.now_ns, process.key, "rxe0", port),
    };
    at
}

fn last_reads(host: &Host) -> Reads {
    let reads = host.orders.iter().rev().find_map(|order| match order {
        Order::TellReads(reads) => Some(reads.clone()),
        _ => None,
    });
    reads.expect("the peers were told")
}

fn of(reads: &Reads, device: &str) -> [u64; 2] {
    reads.by_peer[&peer(device)]
}

#[test]
fn reads_are_held_to_what_their_source_grants_and_others_are_not() {
    let mut host = Host::new(config());
    host.governor.granted(0, grants(RATE / 4, RATE));
    start_reads(&mut host, "one", Some(NEAR));
    start_reads(&mut host, "two", Some(FAR));
    host.run(50);
    let sent = host.sent_in(1_000);
    near(sent[0], 1_250_000);
    near(sent[1], 3_750_000);
}

#[test]
fn a_process_reads_from_two_sources_at_the_rate_of_each() {
    let mut host = Host::new(config());
    host.governor.granted(0, grants(RATE / 4, RATE / 2));
    let one = start_reads(&mut host, "one", Some(NEAR));
    let key = host.processes[one].key;
    let number = host.governor.open_reads(host.now_ns, key, "rxe0", FAR);
    host.run(50);
    assert_eq!(
        host.processes[one].region.meters[usize::from(number)]
            .lease()
            .rate_bytes_per_s,
        RATE / 8 / 2
    );
    near(host.sent_in(1_000)[0], 1_250_000);
}

#[test]
fn a_peer_that_appears_limits_the_reads_that_are_there() {
    let mut host = Host::new(config());
    start_reads(&mut host, "one", Some(NEAR));
    host.run(50);
    near(host.sent_in(1_000)[0], 5_000_000);
    host.governor.granted(0, grants(RATE / 4, RATE));
    host.run(50);
    near(host.sent_in(1_000)[0], 1_250_000);
    host.governor.granted(0, Vec::new());
    host.run(50);
    near(host.sent_in(1_000)[0], 5_000_000);
}

#[test]
fn each_peer_learns_of_the_reads_from_its_own_ports() {
    let mut host = Host::new(config());
    host.governor.granted(0, grants(0, 0));
    start_reads(&mut host, "one", Some(NEAR));
    start_reads(&mut host, "two", Some(NEAR));
    start_reads(&mut host, "two", Some(FAR));
    start_reads(&mut host, "three", Some(STRANGE));
    host.run(50);
    let reads = last_reads(&host);
    assert_eq!([of(&reads, "near"), of(&reads, "far")], [[2, 0], [1, 0]]);
    assert_eq!(reads.unknown, [0, 0]);
    // A source that is not known may be any peer.
    start_reads(&mut host, "four", None);
    host.run(50);
    let reads = last_reads(&host);
    assert_eq!([of(&reads, "near"), of(&reads, "far")], [[3, 0], [2, 0]]);
    assert_eq!(reads.unknown, [1, 0]);
}

#[test]
fn a_latency_flow_counts_at_the_device_that_it_reads() {
    let mut host = Host::new(config());
    host.governor.granted(0, grants(0, 0));
    let at = host.start(who("quiet", Class::Auto));
    let process = &host.processes[at];
    let number = host
        .governor
        .open_reads(host.now_ns, process.key, "rxe0", FAR);
    make_queue_pair(process, 0, 17);
    let slot = &process.region.slots[0];
    slot.direct(u32::from(process.meters[0]) | u32::from(number) << 16);
    slot.describe(None, true);
    host.governor.signalled(host.now_ns, process.key);
    for _ in 0..200 {
        host.run(1);
        post(&host.processes[at], 0, 10, 64, 1);
    }
    let reads = last_reads(&host);
    assert_eq!([of(&reads, "near"), of(&reads, "far")], [[0, 0], [0, 1]]);
    host.stop(at);
    host.run(1);
    assert_eq!(of(&last_reads(&host), "far"), [0, 0]);
}

#[test]
fn a_session_that_names_devices_without_end_gets_a_bounded_number() {
    let mut host = Host::new(config());
    host.governor.granted(0, grants(RATE / 4, RATE));
    let at = host.start_bulk(who("liar", Class::Bandwidth));
    let key = host.processes[at].key;
    let open = |host: &mut Host, number: u32| {
        let mut bytes = [9; 16];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        host.governor
            .open_reads(host.now_ns, key, "rxe0", PortAddress(bytes))
    };
    let given: Vec<u16> = (0..1_000).map(|number| open(&mut host, number)).collect();
    assert!(given[..SOURCES].iter().all(|meter| *meter != NO_METER));
    assert!(given[SOURCES..].iter().all(|meter| *meter == NO_METER));
    assert_eq!(open(&mut host, 3), given[3]);
    assert_eq!(
        host.governor
            .open_reads(host.now_ns, key, "no such device", NEAR),
        NO_METER
    );
    // It READs by all of them: no peer hears of it, and nobody's share changes.
    for meter in given[..SOURCES].iter().map(|meter| usize::from(*meter)) {
        let meter = &host.processes[at].region.meters[meter];
        meter.waiting_since_ns.store(1, Ordering::Relaxed);
    }
    host.governor.signalled(host.now_ns, key);
    start_reads(&mut host, "honest", Some(FAR));
    host.run(50);
    let reads = last_reads(&host);
    assert_eq!([of(&reads, "near"), of(&reads, "far")], [[0, 0], [1, 0]]);
    // Half of the device, until the liar's work has been waiting for too long.
    near(host.sent_in(500)[1], 1_250_000);
}

#[test]
fn a_reload_keeps_sources_and_grants() {
    let mut host = Host::new(config());
    host.governor.granted(0, grants(RATE / 4, RATE));
    start_reads(&mut host, "one", Some(NEAR));
    host.run(50);
    host.governor
        .reconfigure(host.now_ns, config(), vec![BitRate::from_gbps(1)])
        .expect("the options worked before");
    host.run(50);
    near(host.sent_in(1_000)[0], 1_250_000);
}

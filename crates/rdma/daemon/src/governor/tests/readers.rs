//! Latency flows that READ: the device from which they READ grants less to the READs of others.

use super::*;
use isolane_rdma_session::region::Service;

/// A process whose queue pair posts few small messages, until it has the latency class.
fn start_quiet(host: &mut Host, has_read: bool) -> usize {
    let at = host.start(who("quiet", Class::Auto));
    make_queue_pair(&host.processes[at], 0, 17);
    host.processes[at].region.slots[0].describe(None, has_read);
    host.governor.signalled(host.now_ns, host.processes[at].key);
    for _ in 0..200 {
        host.run(1);
        post(&host.processes[at], 0, 10, 64, 1);
    }
    assert_eq!(host.device().latency_weight, 1);
    at
}

#[test]
fn peers_learn_of_latency_flows_that_read() {
    for has_read in [false, true] {
        let mut host = Host::new(config());
        let quiet = start_quiet(&mut host, has_read);
        let state = last_report(&host);
        assert_eq!(state.reading_latency_weight, u64::from(has_read));
        host.stop(quiet);
        host.run(1);
        assert_eq!(last_report(&host).reading_latency_weight, 0);
    }
}

#[test]
fn a_latency_flow_that_begins_to_read_is_counted_from_then_on() {
    let mut host = Host::new(config());
    let quiet = start_quiet(&mut host, false);
    host.processes[quiet].region.slots[0].describe(Some(Service::default()), true);
    host.run(200);
    assert_eq!(last_report(&host).reading_latency_weight, 1);
}

#[test]
fn a_process_whose_messages_are_not_seen_counts_as_a_reader() {
    let mut host = Host::new(config());
    host.start(who("fast", Class::Latency));
    host.run(1);
    assert_eq!(last_report(&host).reading_latency_weight, 1);
}

#[test]
fn the_device_that_is_read_keeps_half_for_the_latency_reads() {
    let grant = |reading_latency_weight| {
        let mut host = Host::new(config());
        let reads = RemoteState {
            reading_hungry_weight: 1,
            sending_latency_weight: 1,
            reading_latency_weight,
            ..RemoteState::default()
        };
        host.governor.remote(host.now_ns, 0, reads);
        host.run(1);
        last_report(&host).read_rate.as_bps()
    };
    assert_eq!([grant(0), grant(1)], [RATE, RATE / 2]);
}

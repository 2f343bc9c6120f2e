//! Traffic of a process without a session beside one that cooperates: late reference messages, and the port's counters.

use super::*;

/// A host with a bulk process, a latency process, and a neighbour that sends `foreign` bytes per second.
fn run(host: &mut Host, periods: u64, foreign: u64) {
    for _ in 0..periods {
        let before = host.processes[0].sent;
        let since_ns = host.now_ns;
        let window = host.governor.count_window(0);
        while host.now_ns < since_ns + window.as_ps() / 1_000 {
            host.step();
            host.governor
                .reference_latency(host.now_ns, 0, Duration::from_ms(50));
        }
        let length_ns = host.now_ns - since_ns;
        let ours = host.processes[0].sent - before;
        let count = PortCount {
            length: Duration::from_ns(length_ns),
            // Headers of large messages, and a reference message of 88 bytes each millisecond.
            sent_bytes: ours
                + ours / 50
                + 88 * length_ns / MS
                + foreign * length_ns / 1_000_000_000,
            received_packets: 0,
        };
        host.governor.port_counted(host.now_ns, 0, &count);
    }
}

fn host() -> Host {
    let mut host = Host::new(config());
    host.start_bulk(who("bulk", Class::Bandwidth));
    host.start(who("fast", Class::Latency));
    host
}

#[test]
fn a_neighbour_without_a_session_halves_nobody() {
    let mut host = host();
    run(&mut host, 20, 2_000_000);
    assert_eq!(host.processes[0].lease().rate_bytes_per_s, RATE / 8);
    let device = host.device();
    assert!(device.has_foreign);
    let rate = device.foreign_bytes_per_s.expect("the port was counted");
    // A lower bound: the bulk process counts a message per 500 bytes, which may have as many headers.
    assert!((400_000..2_000_000).contains(&rate), "{rate}");
}

#[test]
fn the_sessions_own_traffic_is_halved_as_before() {
    let mut host = host();
    run(&mut host, 20, 0);
    assert_eq!(host.processes[0].lease().rate_bytes_per_s, RATE / 16);
    let device = host.device();
    assert!(!device.has_foreign);
    assert_eq!(device.foreign_bytes, 0);
}

#[test]
fn the_control_loop_works_again_when_the_neighbour_ends() {
    let mut host = host();
    run(&mut host, 20, 2_000_000);
    run(&mut host, 20, 0);
    assert_eq!(host.processes[0].lease().rate_bytes_per_s, RATE / 16);
    assert!(!host.device().has_foreign);
}

#[test]
fn a_reload_keeps_the_measurement() {
    let mut host = host();
    run(&mut host, 20, 2_000_000);
    let (config, rates) = (
        host.governor.config().clone(),
        host.governor.port_rates().to_vec(),
    );
    let reloaded = host.governor.reconfigure(host.now_ns, config, rates);
    reloaded.expect("the configuration worked before");
    run(&mut host, 3, 2_000_000);
    assert_eq!(host.processes[0].lease().rate_bytes_per_s, RATE / 8);
}

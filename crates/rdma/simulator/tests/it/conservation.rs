//! What is sent arrives, is on its way, or was dropped; nothing is faster than the link or the bus.
use crate::common::{bulk, counter, goodput, of, run, small, tenant};
use isolane_rdma_scenario::model::Host;
use isolane_study_results::rdma::RunResult;

/// Bytes that may be on the cable, in a switch or in a receive buffer at the start or end of measuring.
const IN_FLIGHT_BYTES: u64 = 1 << 20;

fn mixed(policy: &str, topology: &str) -> String {
    let mut text =
        format!("topology = \"{topology}\"\nduration = \"3ms\"\n[policy]\nname = \"{policy}\"\n");
    text += &bulk("bulk", "1MiB", 4);
    text += &small("pings");
    text += &tenant(
        "reads",
        "bandwidth",
        "verb = \"read\"\nsize = \"16KiB\"\nqueue_pairs = 2",
    );
    text += &tenant(
        "sends",
        "throughput",
        "verb = \"send\"\nsize = 300\nqueue_pairs = 2\npost_list = 8\nbidirectional = true",
    );
    text += &tenant(
        "adds",
        "throughput",
        "verb = \"fetch-add\"\nsize = 8\nqueue_pairs = 2",
    );
    text += &tenant(
        "loop",
        "bandwidth",
        "verb = \"write\"\nsize = \"64KiB\"\nto = \"a\"\ndepth = 4",
    );
    text
}

fn within_capacity(result: &RunResult) {
    for counters in &result.counters {
        for (name, value) in &counters.ratios {
            assert!((0.0..=1.0).contains(value), "{name} = {value}");
        }
        let gbps = |name: &str| counters.values[name] as f64 * 8.0 / result.measured_s / 1e9;
        // Rounded up by what was under way when measuring began or ended.
        for (name, capacity) in [
            ("tx_vport_rdma_unicast_bytes", 100.0),
            ("rx_vport_rdma_unicast_bytes", 100.0),
            ("pcie_inbound_bytes", 128.0),
            ("pcie_outbound_bytes", 128.0),
        ] {
            assert!(
                gbps(name) <= capacity * 1.005,
                "{name} at {:?}: {} Gb/s",
                counters.host,
                gbps(name)
            );
        }
    }
}

#[test]
fn what_leaves_one_host_arrives_at_the_other() {
    for policy in ["none", "justitia", "lite", "hw-priority", "palos"] {
        for topology in ["back-to-back", "switch"] {
            let result = run(&mixed(policy, topology));
            for (from, to) in [(Host::A, Host::B), (Host::B, Host::A)] {
                let sent = counter(&result, from, "tx_vport_rdma_unicast_bytes");
                let arrived = counter(&result, to, "rx_vport_rdma_unicast_bytes");
                assert!(
                    sent.abs_diff(arrived) < IN_FLIGHT_BYTES,
                    "{policy}, {topology}: {sent} sent, {arrived} arrived"
                );
                let sent = counter(&result, from, "tx_vport_rdma_unicast_packets");
                let arrived = counter(&result, to, "rx_vport_rdma_unicast_packets");
                assert!(
                    sent.abs_diff(arrived) < 2000,
                    "{policy}, {topology}: {sent} packets sent, {arrived} arrived"
                );
            }
        }
    }
}

#[test]
fn nothing_exceeds_the_link_or_the_bus() {
    for policy in ["none", "justitia", "lite", "hw-priority", "palos"] {
        for topology in ["back-to-back", "switch"] {
            let result = run(&mixed(policy, topology));
            within_capacity(&result);
            let wire = goodput(&result, "bulk") + goodput(&result, "sends") / 2.0;
            assert!(wire < 100.0, "{policy}, {topology}: {wire}");
        }
    }
}

#[test]
fn payload_and_headers_add_up_to_the_bytes_on_the_wire() {
    let result = run(&bulk("bulk", "64KiB", 4));
    let bulk = of(&result, "bulk");
    // 16 packets of 4096 B with 82 B each and one RETH of 16 B.
    let expected = (65_536.0 + 16.0 * 82.0 + 16.0) / 65_536.0;
    assert!((bulk.wire_gbps / bulk.goodput_gbps - expected).abs() < 0.001);
    let counted = counter(&result, Host::A, "tx_vport_rdma_unicast_bytes") as f64 * 8.0
        / result.measured_s
        / 1e9;
    assert!((counted - bulk.wire_gbps).abs() < 0.01 * counted);
}

#[test]
fn every_message_is_acknowledged_and_completed_once() {
    let result = run(&format!(
        "warmup = \"0us\"\nduration = \"5ms\"\n{}",
        tenant(
            "few",
            "throughput",
            "verb = \"write\"\nsize = 9000\nqueue_pairs = 3\niterations = 50\ndepth = 8",
        )
    ));
    assert_eq!(
        of(&result, "few")
            .latency_us
            .as_ref()
            .expect("completed")
            .samples,
        150
    );
    assert_eq!(
        (of(&result, "few").message_rate_per_s * result.measured_s).round(),
        150.0
    );
    assert_eq!(counter(&result, Host::B, "acks_sent"), 150);
    assert_eq!(counter(&result, Host::A, "cqe_written"), 150);
    // Three packets each.
    assert_eq!(
        counter(&result, Host::A, "tx_vport_rdma_unicast_packets"),
        450
    );
}

#[test]
fn messages_without_a_receive_are_dropped_one_by_one() {
    let send = "verb = \"send\"\ntransport = \"uc\"\nsize = 9000\niterations = 40\nreceive_batch = 0\ndepth = 4";
    let text = format!(
        "warmup = \"0us\"\nduration = \"5ms\"\n{}",
        tenant("drops", "throughput", send)
    );
    // A scenario whose receives never come may not wait for them to end.
    let text = text.replace("iterations = 40\n", "");
    let result = run(&text);
    assert_eq!(goodput(&result, "drops"), 0.0);
    let dropped = counter(&result, Host::B, "unreliable_drops");
    let sent = counter(&result, Host::A, "tx_vport_rdma_unicast_packets");
    assert!(
        dropped > 100 && sent.abs_diff(3 * dropped) < 200,
        "{dropped} messages dropped of {sent} packets"
    );
}

//! The counters that a hunt reads, by meaning: each with the names that testbeds report it by, the most exact first.
//!
//! Problem: the simulator reports counters by the names of one vendor's driver, real devices by the common names of the
//! inventory, and Soft-RoCE and siw only those of the network device below. Method: a list of names per meaning; the first that
//! a host has counts. A meaning that no counter of the host has is none, not zero. Limits: bytes of the network device
//! include other traffic; a device that counts pause frames and not their time gets an upper bound of the time.

use isolane_study_results::rdma::HostCounters;

/// A quantity, by the names of its counters.
pub(crate) type Names = &'static [&'static str];

const RX_BYTES: Names = &["rx_vport_rdma_unicast_bytes", "rx_bytes", "netdev_rx_bytes"];
const TX_BYTES: Names = &["tx_vport_rdma_unicast_bytes", "tx_bytes", "netdev_tx_bytes"];
const RX_PACKETS: Names = &["rx_vport_rdma_unicast_packets", "rx_packets"];
const TX_PACKETS: Names = &["tx_vport_rdma_unicast_packets", "tx_packets"];
/// Time for which the device paused its link, microseconds.
pub(crate) const PAUSE_US: Names = &["tx_prio3_pause_duration", "pause_sent_us"];
const PAUSES: Names = &["priority_pauses_sent", "pauses_sent"];

/// What every device has.
pub const PERFORMANCE: [Names; 2] = [RX_BYTES, RX_PACKETS];
/// What vendors show on request: nine, as many as the paper's had. Real devices show few of them; the nearest one is the second.
pub const DIAGNOSTIC: [Names; 9] = [
    &["icm_cache_miss", "context_misses"],
    &["mtt_cache_miss", "translation_misses"],
    &["mpt_cache_miss", "protection_misses"],
    &["receive_wqe_cache_miss", "receive_misses"],
    &["context_miss_busy"],
    &["translation_miss_busy"],
    &["pcie_to_nic_utilisation", "pcie_read_stalls"],
    &["pcie_to_host_utilisation", "pcie_write_stalls"],
    &["responder_unit_utilisation"],
];

/// How full finite resources are, at most or in use of their time: what a resource says before it runs out.
pub const OCCUPANCY: [Names; 6] = [
    &["receive_buffer_peak_ratio"],
    &["receive_cache_peak_ratio"],
    &["request_cache_peak_ratio"],
    &["packet_memory_ratio"],
    &["remote_socket_utilisation"],
    &["gpu_path_utilisation"],
];

/// Longest pause that one frame can ask for: 65,535 quanta of 512 bits.
const PAUSE_BITS: f64 = 65_535.0 * 512.0;

/// A direction of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Received,
    Sent,
}

/// The first of `names` that `host` has.
fn value(host: &HostCounters, names: Names) -> Option<u64> {
    names
        .iter()
        .find_map(|name| host.values.get(*name))
        .copied()
}

/// Bytes over the port, headers included.
pub(crate) fn bytes(host: &HostCounters, way: Way) -> Option<u64> {
    match way {
        Way::Received => value(host, RX_BYTES),
        Way::Sent => value(host, TX_BYTES),
    }
}

/// Packets over the port.
pub(crate) fn packets(host: &HostCounters, way: Way) -> Option<u64> {
    match way {
        Way::Received => value(host, RX_PACKETS),
        Way::Sent => value(host, TX_PACKETS),
    }
}

/// Time for which the device paused its link of `link_gbps`, part of `seconds`.
pub(crate) fn pause_ratio(host: &HostCounters, seconds: f64, link_gbps: f64) -> f64 {
    if let Some(paused_us) = value(host, PAUSE_US) {
        return paused_us as f64 / (seconds * 1e6);
    }
    let frames = value(host, PAUSES).unwrap_or(0);
    (frames as f64 * PAUSE_BITS / (link_gbps * 1e9) / seconds).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isolane_rdma_scenario::model::Host;

    fn host(values: &[(&str, u64)]) -> HostCounters {
        let values = values.iter();
        HostCounters {
            host: Host::A,
            values: values
                .map(|(name, value)| ((*name).to_owned(), *value))
                .collect(),
            ratios: Default::default(),
        }
    }

    #[test]
    fn each_vendors_counters_give_bytes_packets_and_pauses() {
        let simulated = host(&[
            ("rx_vport_rdma_unicast_bytes", 100),
            ("rx_vport_rdma_unicast_packets", 3),
            ("tx_prio3_pause_duration", 10_000),
        ]);
        let mlx5 = host(&[
            ("rx_bytes", 100),
            ("rx_packets", 3),
            ("pause_sent_us", 10_000),
        ]);
        for counted in [&simulated, &mlx5] {
            assert_eq!(bytes(counted, Way::Received), Some(100));
            assert_eq!(packets(counted, Way::Received), Some(3));
            assert_eq!(bytes(counted, Way::Sent), None);
            assert_eq!(pause_ratio(counted, 1.0, 100.0), 0.01);
        }
        let rxe = host(&[("netdev_rx_bytes", 100), ("rx_packets", 3)]);
        assert_eq!(bytes(&rxe, Way::Received), Some(100));
        assert_eq!(pause_ratio(&rxe, 1.0, 100.0), 0.0);
    }

    #[test]
    fn pause_frames_without_times_are_an_upper_bound() {
        // Each frame pauses 100 Gb/s for 336 us at most.
        let irdma = host(&[("pauses_sent", 1), ("priority_pauses_sent", 2)]);
        let ratio = pause_ratio(&irdma, 1.0, 100.0);
        assert!((ratio - 2.0 * 335.5e-6).abs() < 1e-6, "{ratio}");
    }
}

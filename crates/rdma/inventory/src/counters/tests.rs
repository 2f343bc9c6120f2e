//! Counters of test trees of each driver, and windows against the plain difference.

use super::*;
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn tree(driver: Option<&str>, files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
    let directory = tempfile::tempdir().unwrap();
    let device = directory.path().join("sys/class/infiniband/d0");
    fs::create_dir_all(device.join("device")).unwrap();
    if let Some(driver) = driver {
        symlink(
            format!("../../../../bus/pci/drivers/{driver}"),
            device.join("device/driver"),
        )
        .unwrap();
    }
    for (path, text) in files {
        write(&device, path, text);
    }
    let root = Root::at(directory.path());
    (directory, root)
}

fn value(snapshot: &Snapshot, counter: Counter) -> Option<u64> {
    snapshot.values.get(&counter).map(|reading| reading.value)
}

#[test]
fn port_data_counters_are_words_and_read_as_bytes() {
    let files = [
        ("ports/1/counters/port_xmit_data", "1000"),
        ("ports/1/hw_counters/np_cnp_sent", "7"),
        ("ports/1/hw_counters/out_of_buffer", "3"),
    ];
    let (_directory, root) = tree(Some("mlx5_core"), &files);
    let snapshot = read(&root, "d0", 1, &Extra::default(), 0);
    assert_eq!(value(&snapshot, Counter::TxBytes), Some(4000));
    assert_eq!(value(&snapshot, Counter::CnpSent), Some(7));
    assert_eq!(snapshot.values[&Counter::RnrNaksSent].modulus, 1 << 32);
    assert_eq!(
        value(&snapshot, Counter::RxBytes),
        None,
        "what is absent is not zero"
    );
}

#[test]
fn old_and_new_names_of_a_driver_mean_the_same() {
    for name in ["rx_ecn_marked_pkts", "np_ecn_marked_roce_packets"] {
        let path = format!("ports/1/hw_counters/{name}");
        let (_directory, root) = tree(Some("bnxt_en"), &[(&path, "5")]);
        let snapshot = read(&root, "d0", 1, &Extra::default(), 0);
        assert_eq!(value(&snapshot, Counter::EcnMarked), Some(5), "{name}");
    }
}

#[test]
fn software_devices_are_distinguished() {
    let (_directory, root) = tree(None, &[("parent", "v0"), ("node_type", "1: CA")]);
    assert_eq!(Driver::of(&root, "d0"), Driver::Rxe);
    let (_directory, root) = tree(None, &[("node_type", "4: RNIC")]);
    assert_eq!(Driver::of(&root, "d0"), Driver::Siw);
}

#[test]
fn ethtool_and_flow_control_join_the_files() {
    let (directory, root) = tree(Some("mlx5_core"), &[("ports/1/gid_attrs/ndevs/0", "eth4")]);
    write(
        directory.path(),
        "sys/class/net/eth4/statistics/tx_bytes",
        "99",
    );
    let flow_control = FlowControl {
        pauses_received: [0, 0, 0, 4, 5, 0, 0, 0],
        ..FlowControl::default()
    };
    let extra = Extra {
        ethtool: parse_ethtool(
            "NIC statistics:\n     outbound_pci_stalled_wr_events: 12\n     name: none\n",
        ),
        flow_control: Some(flow_control),
    };
    let snapshot = read(&root, "d0", 1, &extra, 0);
    assert_eq!(value(&snapshot, Counter::PcieWriteStalls), Some(12));
    assert_eq!(value(&snapshot, Counter::PriorityPausesReceived), Some(9));
    assert_eq!(value(&snapshot, Counter::NetdevTxBytes), Some(99));
}

#[test]
fn pause_times_of_all_priorities_are_added_up_on_every_vendor() {
    let lines = [
        ("mlx5_core", "tx_prio{}_pause_duration"),
        ("bnxt_en", "pfc_pri{}_tx_duration_us"),
    ];
    for (driver, name) in lines {
        let (_directory, root) = tree(Some(driver), &[]);
        let ethtool = [(0, 5), (3, 100)]
            .map(|(priority, value)| (name.replace("{}", &priority.to_string()), value));
        let extra = Extra {
            ethtool: ethtool.into(),
            ..Extra::default()
        };
        let snapshot = read(&root, "d0", 1, &extra, 0);
        assert_eq!(
            value(&snapshot, Counter::PauseSentUs),
            Some(105),
            "{driver}"
        );
    }
}

#[test]
fn an_emulated_device_has_the_brokers_counters() {
    let files = [
        ("ports/1/counters/port_rcv_data", "7"),
        ("ports/1/hw_counters/icm_cache_miss", "5"),
    ];
    let (_directory, root) = tree(Some("isolane-emulator"), &files);
    let snapshot = read(&root, "d0", 1, &Extra::default(), 0);
    assert_eq!(value(&snapshot, Counter::RxBytes), Some(28));
    assert_eq!(value(&snapshot, Counter::ContextMisses), Some(5));
    assert_eq!(value(&snapshot, Counter::TxBytes), None);
}

/// Drivers whose counters are known; the emulated one is the last.
pub(crate) const DRIVERS: [Driver; 7] = [
    Driver::Mlx5,
    Driver::Bnxt,
    Driver::Irdma,
    Driver::Efa,
    Driver::Rxe,
    Driver::Siw,
    Driver::Emulated,
];

#[test]
fn names_in_json_are_the_names_in_text() {
    for driver in DRIVERS {
        for entry in map::entries(&driver) {
            let json = serde_json::to_string(&entry.counter).unwrap();
            assert_eq!(json, format!("\"{}\"", entry.counter));
        }
    }
}

fn snapshot(taken_ns: u64, value: u64, modulus: u64) -> Snapshot {
    let reading = Reading { value, modulus };
    Snapshot {
        taken_ns,
        values: BTreeMap::from([(Counter::TxBytes, reading)]),
    }
}

#[test]
fn a_reset_counter_is_unknown_and_not_a_huge_rise() {
    let window = Window::between(&snapshot(0, 5_000, 0), &snapshot(1_000_000_000, 10, 0)).unwrap();
    assert_eq!(window.rises.get(&Counter::TxBytes), None);
    assert_eq!(
        Window::between(&snapshot(5, 0, 0), &snapshot(5, 1, 0)),
        None,
        "no time passed"
    );
}

#[test]
fn rates_are_per_second() {
    let window = Window::between(&snapshot(0, 100, 0), &snapshot(500_000_000, 350, 0)).unwrap();
    assert_eq!(window.per_second(Counter::TxBytes), Some(500.0));
}

proptest! {
    /// The model: a counter of unlimited width that the device shows modulo its own.
    #[test]
    fn a_rise_is_exact_over_any_wrap(start in any::<u64>(), rise in 0u64..(1 << 31), kind in 0usize..3) {
        let modulus = [0u64, 1 << 32, 4 << 32][kind];
        let shown = |full: u128| match modulus {
            0 => full as u64,
            modulus => (full % u128::from(modulus)) as u64,
        };
        let full = u128::from(start);
        let before = snapshot(0, shown(full), modulus);
        let after = snapshot(1, shown(full + u128::from(rise)), modulus);
        let window = Window::between(&before, &after).unwrap();
        prop_assert_eq!(window.rises.get(&Counter::TxBytes), Some(&rise));
    }

    #[test]
    fn any_ethtool_text_is_read(text in "\\PC{0,200}") {
        parse_ethtool(&text);
    }
}

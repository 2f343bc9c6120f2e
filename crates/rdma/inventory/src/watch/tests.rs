//! A ConnectX-5 at two moments, with two processes in a pod and in a user's session.

use super::*;
use crate::counters::map;
use crate::counters::tests::DRIVERS;
use crate::rdma::{CompletionQueue, Holder, MemoryRegion};
use std::fs;

const PORT: &str = "sys/class/infiniband/mlx5_0/ports/1";

/// Writes `PATH = CONTENT` lines below `directory`.
fn write(directory: &std::path::Path, text: &str) {
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (path, content) = line.split_once(" = ").unwrap();
        let path = directory.join(path.trim());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content.replace("\\n", "\n").replace("\\t", "\t")).unwrap();
    }
}

fn machine() -> (tempfile::TempDir, Root) {
    let directory = tempfile::tempdir().unwrap();
    let base = format!(
        "{PORT}/state = 4: ACTIVE
        {PORT}/rate = 100 Gb/sec (4X EDR)
        sys/class/infiniband/mlx5_0/device/current_link_speed = 8.0 GT/s PCIe
        sys/class/infiniband/mlx5_0/device/current_link_width = 16
        proc/self/mounts = cgroup2 /sys/fs/cgroup cgroup2 rw 0 0
        sys/fs/cgroup/kubepods/rdma.max = mlx5_0 hca_handle=max hca_object=100
        sys/fs/cgroup/kubepods/rdma.current = mlx5_0 hca_handle=1 hca_object=85
        proc/7/comm = trainer
        proc/7/cgroup = 0::/kubepods/burstable/pod3f2a1c9e-0000-4000-8000-00000000000a/cri
        proc/8/comm = ib_write_bw
        proc/8/cgroup = 0::/user.slice/user-1000.slice/session-1.scope
        proc/8/status = Uid:\\t1000\\t0\\t0\\t0"
    );
    write(directory.path(), &base);
    let driver = directory
        .path()
        .join("sys/class/infiniband/mlx5_0/device/driver");
    std::os::unix::fs::symlink("../../bus/pci/drivers/mlx5_core", driver).unwrap();
    let root = Root::at(directory.path());
    (directory, root)
}

/// Counters after `seconds` at 96 Gb/s sent and 1 Gb/s received, in 4-byte words as the driver counts.
fn counters(directory: &std::path::Path, seconds: u64) {
    let text = format!(
        "{PORT}/counters/port_xmit_data = {}
        {PORT}/counters/port_rcv_data = {}
        {PORT}/counters/port_xmit_packets = {}
        {PORT}/counters/port_rcv_packets = 0
        {PORT}/hw_counters/out_of_buffer = {}
        {PORT}/hw_counters/rp_cnp_handled = 5",
        seconds * 3_000_000_000,
        seconds * 31_250_000,
        seconds * 3_000_000,
        seconds * 20,
    );
    write(directory, &text);
}

fn pair(number: u32, holder: u32, send_sequence: u32) -> QueuePair {
    QueuePair {
        device: "mlx5_0".into(),
        port: Some(1),
        number,
        remote_number: Some(9),
        kind: QueuePairKind::ReliableConnection,
        state: 3.into(),
        send_sequence: Some(send_sequence),
        receive_sequence: None,
        path_migration: None,
        protection_domain: None,
        holder: Holder::Process(holder),
    }
}

fn inventory(pairs: Vec<QueuePair>) -> Inventory {
    let region = MemoryRegion {
        device: "mlx5_0".into(),
        number: None,
        length_bytes: 3 << 20,
        local_key: None,
        remote_key: None,
        protection_domain: None,
        holder: Holder::Process(7),
    };
    Inventory {
        queue_pairs: pairs,
        memory_regions: vec![region],
        completion_queues: vec![CompletionQueue {
            device: "mlx5_0".into(),
            number: None,
            entries: 64,
            users: 1,
            context: None,
            holder: Holder::Process(7),
        }],
        ..Inventory::default()
    }
}

/// The view of two seconds; the sequence number of process 8 wraps meanwhile.
fn view(known: Option<&Known>) -> View {
    let (directory, root) = machine();
    counters(directory.path(), 1);
    let pairs = vec![pair(1, 7, 100), pair(2, 8, SEQUENCE_MASK)];
    let before = Reading::take(
        &root,
        Wanted::default(),
        Ok(inventory(pairs)),
        1_000_000_000,
    );
    counters(directory.path(), 3);
    let pairs = vec![pair(1, 7, 300), pair(2, 8, 5_999_999), pair(3, 8, 70_000)];
    let now = Reading::take(
        &root,
        Wanted::default(),
        Ok(inventory(pairs)),
        3_000_000_000,
    );
    View::between(&root, &before, &now, known).unwrap()
}

fn limits(view: &View) -> Vec<(&str, &str, String, Standing)> {
    let rows = view.limits.iter().map(|limit| {
        let percent = format!("{:.2}", limit.used_percent);
        (limit.of.as_str(), limit.what, percent, limit.standing)
    });
    rows.collect()
}

#[test]
fn use_of_port_bus_and_cgroup_is_measured_against_their_limits() {
    let view = view(None);
    let port = &view.ports[0];
    assert_eq!(
        (port.driver.as_str(), port.active, port.rate_gbps),
        ("mlx5_ib", true, Some(100.0))
    );
    assert_eq!(
        (port.sent_gbps, port.received_gbps),
        (Some(96.0), Some(1.0))
    );
    assert_eq!(port.sent_packets_per_s, Some(3e6));
    let want = [
        ("mlx5_0/1", "send", "96.00".to_owned(), Standing::Full),
        ("mlx5_0/1", "receive", "1.00".to_owned(), Standing::Free),
        (
            "mlx5_0",
            "PCIe from memory",
            "76.17".to_owned(),
            Standing::Free,
        ),
        (
            "mlx5_0",
            "PCIe to memory",
            "0.79".to_owned(),
            Standing::Free,
        ),
        (
            "/kubepods mlx5_0",
            "objects",
            "85.00".to_owned(),
            Standing::Near,
        ),
    ];
    assert_eq!(limits(&view), want);
}

#[test]
fn a_profile_adds_limits_that_no_counter_shows() {
    let known = Known {
        source: "profile x".into(),
        messages_per_s: 30e6,
        context_entries: 4.0,
        protection_entries: 10.0,
    };
    let view = view(Some(&known));
    let added: Vec<_> = limits(&view).into_iter().skip(4).take(3).collect();
    let want = [
        (
            "mlx5_0",
            "messages, at most",
            "10.00".to_owned(),
            Standing::Free,
        ),
        (
            "mlx5_0",
            "cached contexts",
            "100.00".to_owned(),
            Standing::Full,
        ),
        (
            "mlx5_0",
            "cached regions",
            "10.00".to_owned(),
            Standing::Free,
        ),
    ];
    assert_eq!(added, want);
}

#[test]
fn users_have_their_owner_and_their_packets() {
    let view = view(None);
    let users: Vec<_> = view
        .users
        .iter()
        .map(|user| {
            (
                user.owner.as_str(),
                user.program.as_str(),
                user.rc_packets_per_s,
                user.holds.queue_pairs,
            )
        })
        .collect();
    let want = [
        // A queue pair that is new in the second reading has no rate.
        ("user-1000", "ib_write_bw", Some(3e6), 2),
        (
            "pod-3f2a1c9e-0000-4000-8000-00000000000a",
            "trainer",
            Some(100.0),
            1,
        ),
    ];
    assert_eq!(users, want);
}

#[test]
fn a_counter_that_does_not_change_is_no_sign() {
    let view = view(None);
    let signs: Vec<_> = view
        .signs
        .iter()
        .map(|sign| (sign.counter, sign.per_s))
        .collect();
    assert_eq!(signs, [(Counter::RnrNaksSent, 20.0)]);
}

#[test]
fn a_port_without_byte_counters_has_no_rate_and_no_limit() {
    let (directory, root) = machine();
    fs::remove_dir_all(directory.path().join("sys/fs")).unwrap();
    let take = |now| Reading::take(&root, Wanted::default(), Err("no netlink".into()), now);
    let view = View::between(&root, &take(1), &take(2), None).unwrap();
    assert_eq!((view.ports[0].sent_gbps, view.limits.len()), (None, 0));
    assert_eq!(view.users_unknown.as_deref(), Some("no netlink"));
    assert_eq!(View::between(&root, &take(2), &take(2), None), None);
}

#[test]
fn another_device_than_the_wanted_one_is_left_out() {
    let (_directory, root) = machine();
    let wanted = Wanted {
        device: Some("mlx5_1"),
        ..Wanted::default()
    };
    let reading = Reading::take(&root, wanted, Err(String::new()), 1);
    assert!(reading.devices.is_empty() && reading.caps.is_empty());
}

#[test]
fn only_counters_of_traffic_have_no_meaning() {
    let traffic = [
        Counter::TxBytes,
        Counter::RxBytes,
        Counter::TxPackets,
        Counter::RxPackets,
        Counter::NetdevTxBytes,
        Counter::NetdevRxBytes,
        Counter::CnpIgnored,
    ];
    for entry in DRIVERS[..6].iter().flat_map(map::entries) {
        let known = signs::SIGNS.iter().any(|(sign, _)| *sign == entry.counter);
        assert_eq!(
            known,
            !traffic.contains(&entry.counter),
            "{}",
            entry.counter
        );
    }
}

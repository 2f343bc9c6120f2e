//! The doctor's report over test machines, as text. A golden file shows the operator's view.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

mod support;

use expect_test::expect_file;
use isolane_common_linux::{HostError, Root};
use isolane_rdma_inventory::dcb::{Bridging, Classes, FlowControl, Selection};
use isolane_rdma_inventory::doctor;
use isolane_rdma_inventory::doctor::live::PathMtu;
use isolane_rdma_inventory::doctor::{Examination, Live, Software, Verdict, text};
use isolane_rdma_inventory::inventory::Inventory;
use isolane_rdma_inventory::rdma::{Holder, MemoryRegion, QueuePair};
use isolane_rdma_inventory::unheld::Session;
use std::collections::BTreeMap;
use support::tree;

const COMMON: &str = include_str!("trees/common.txt");
const MODULES: &str = include_str!("trees/modules.txt");
const MLX5: &str = include_str!("trees/mlx5.txt");

fn live() -> Live {
    Live {
        inventory: Ok(Inventory::default()),
        rdma_netlink: true,
        software: Software {
            version: "0.1.0".into(),
            socket: "/run/isolane/clients/isolaned.sock".into(),
            shim: Err("libisolane_shim.so is not installed".into()),
        },
        ..Live::default()
    }
}

/// Priority 3 lossless in a class of its own, DSCP 26 leading there.
fn well_set() -> Bridging {
    let mut flow_control = FlowControl {
        capable: 8,
        enabled: 0x08,
        ..FlowControl::default()
    };
    flow_control.pauses_received[3] = 42;
    let mut classes = Classes {
        capable: 8,
        class_of_priority: [0, 1, 2, 3, 4, 5, 6, 7],
        ..Classes::default()
    };
    classes.selection[3] = Selection::Share;
    classes.bandwidth_percent[3] = 50;
    Bridging {
        flow_control: Some(flow_control),
        classes: Some(classes),
        dscp_priorities: vec![(26, 3)],
    }
}

fn check(root: &Root, live: &Live, golden: &str) -> Examination {
    let examination = doctor::examine(root, live, None).unwrap();
    let path = format!("{}/tests/golden/{golden}.txt", env!("CARGO_MANIFEST_DIR"));
    expect_file![path].assert_eq(&text::render(&examination));
    examination
}

#[test]
fn a_well_set_roce_machine_is_all_fine() {
    let (_directory, root) = tree(&[COMMON, MODULES, MLX5, include_str!("trees/mlx5-good.txt")]);
    let holder = Holder::Process(1234);
    let inventory = Inventory {
        queue_pairs: vec![
            queue_pair(17, holder.clone()),
            queue_pair(18, holder.clone()),
        ],
        memory_regions: vec![MemoryRegion {
            device: "mlx5_0".into(),
            number: None,
            length_bytes: 262_144,
            local_key: None,
            remote_key: None,
            protection_domain: None,
            holder,
        }],
        ..Inventory::default()
    };
    let live = Live {
        inventory: Ok(inventory),
        sessions: Some(BTreeMap::from([(1234, Session::default())])),
        software: Software {
            shim: Ok("/usr/lib/isolane/libisolane_shim.so".into()),
            ..live().software
        },
        bridging: BTreeMap::from([("eth4".to_owned(), well_set())]),
        path_mtu: BTreeMap::from([(
            ("mlx5_0".to_owned(), 1),
            PathMtu {
                active: 4096,
                most: 4096,
            },
        )]),
        ..live()
    };
    let examination = check(&root, &live, "mlx5-good");
    assert_eq!(examination.worst(), Verdict::Ok);
    let [user] = &examination.processes[..] else {
        panic!("one process uses the device: {:?}", examination.processes);
    };
    assert_eq!(
        (user.process.id, user.devices["mlx5_0"].queue_pairs),
        (1234, 2)
    );
}

fn queue_pair(number: u32, holder: Holder) -> QueuePair {
    QueuePair {
        device: "mlx5_0".into(),
        port: Some(1),
        number,
        remote_number: None,
        kind: 2.into(),
        state: 3.into(),
        send_sequence: None,
        receive_sequence: None,
        path_migration: None,
        protection_domain: None,
        holder,
    }
}

#[test]
fn a_badly_set_roce_machine_says_what_to_fix() {
    let (_directory, root) = tree(&[COMMON, MLX5, include_str!("trees/mlx5-bad.txt")]);
    let mut bridging = well_set();
    if let Some(classes) = &mut bridging.classes {
        classes.class_of_priority = [0; 8];
    }
    let live = Live {
        bridging: BTreeMap::from([("eth4".to_owned(), bridging)]),
        locked_memory_bytes: Some(8 << 20),
        ..live()
    };
    let examination = check(&root, &live, "mlx5-bad");
    assert_eq!(examination.worst(), Verdict::Fail);
    let silent = examination
        .checks
        .iter()
        .filter(|check| check.verdict != Verdict::Ok && check.action.is_none());
    assert_eq!(silent.count(), 0, "every problem has a remedy");
}

#[test]
fn a_software_device_has_no_bus_and_no_lossless_network_to_check() {
    let (_directory, root) = tree(&[COMMON, MODULES, include_str!("trees/rxe.txt")]);
    let examination = check(&root, &live(), "rxe");
    assert_ne!(examination.worst(), Verdict::Fail);
    let checked = |name: &str| examination.checks.iter().any(|check| check.name == name);
    assert!(!checked("PCIe") && !checked("PFC") && checked("GID"));
}

#[test]
fn an_infiniband_port_without_subnet_manager_fails() {
    let (_directory, root) = tree(&[COMMON, MODULES, include_str!("trees/infiniband.txt")]);
    let live = Live {
        path_mtu: BTreeMap::from([(
            ("mlx5_2".to_owned(), 1),
            PathMtu {
                active: 2048,
                most: 4096,
            },
        )]),
        inventory: Err("list the queue pairs of mlx5_2: not permitted".into()),
        ..live()
    };
    check(&root, &live, "infiniband");
}

#[test]
fn a_machine_without_rdma_gets_the_way_there() {
    let (_directory, root) = tree(&[include_str!("trees/none.txt")]);
    let nothing = Live {
        rdma_netlink: false,
        inventory: Err("none".into()),
        ..live()
    };
    let examination = check(&root, &nothing, "none");
    assert!(!examination.rdma);
    let (_directory, root) = tree(&[include_str!("trees/bare.txt")]);
    let examination = check(&root, &nothing, "bare");
    assert!(!examination.rdma);
}

#[test]
fn an_unknown_device_is_refused_with_the_names_there_are() {
    let (_directory, root) = tree(&[COMMON, MODULES, include_str!("trees/rxe.txt")]);
    let error = doctor::examine(&root, &live(), Some("mlx5_0")).unwrap_err();
    assert!(
        matches!(&error, HostError::NoDevice { known, .. } if known == &["r0"]),
        "{error}"
    );
    assert_eq!(
        doctor::examine(&root, &live(), Some("r0"))
            .unwrap()
            .devices
            .len(),
        1
    );
}

/// Output of a check on the well configured machine after one change.
fn says(change: &str, bridging: Option<Bridging>, name: &str) -> (Verdict, String) {
    let (_directory, root) = tree(&[
        COMMON,
        MODULES,
        MLX5,
        include_str!("trees/mlx5-good.txt"),
        change,
    ]);
    let live = Live {
        bridging: bridging
            .map(|bridging| ("eth4".to_owned(), bridging))
            .into_iter()
            .collect(),
        ..live()
    };
    let examination = doctor::examine(&root, &live, Some("mlx5_0")).unwrap();
    let check = examination
        .checks
        .into_iter()
        .find(|check| check.name == name)
        .unwrap();
    (check.verdict, check.seen)
}

fn with_priorities(enabled: u8) -> Option<Bridging> {
    let mut bridging = well_set();
    bridging.flow_control = bridging
        .flow_control
        .map(|control| FlowControl { enabled, ..control });
    Some(bridging)
}

#[test]
fn each_link_of_the_lossless_chain_is_judged_alone() {
    let (verdict, seen) = says("", with_priorities(0), "PFC");
    assert_eq!(verdict, Verdict::Warn, "{seen}");
    let (verdict, seen) = says("", with_priorities(0b1111), "PFC");
    assert!(
        verdict == Verdict::Warn && seen.contains("0, 1, 2, 3"),
        "{seen}"
    );
    let (verdict, seen) = says("", None, "PFC");
    assert_eq!(verdict, Verdict::Unknown, "{seen}");
    let forced = "/sys/class/infiniband/mlx5_0/tc/1/traffic_class = Global tclass=32";
    let (verdict, seen) = says(forced, with_priorities(0b1000), "type of service");
    assert!(
        verdict == Verdict::Warn && seen.starts_with("32: DSCP 8, priority 1"),
        "{seen}"
    );
    let version_1 = "/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode = IB/RoCE v1";
    let (verdict, seen) = says(version_1, with_priorities(0b1000), "type of service");
    assert!(
        verdict == Verdict::Warn && seen.contains("RoCE v1"),
        "{seen}"
    );
}

#[test]
fn a_slow_card_in_a_full_slot_is_distinguished_from_a_card_in_a_narrow_one() {
    let narrow = "/sys/class/infiniband/mlx5_0/device/current_link_width = 4";
    assert_eq!(says(narrow, None, "PCIe").0, Verdict::Fail);
    let full = format!("{narrow}\n/sys/class/infiniband/mlx5_0/device/max_link_width = 4");
    assert_eq!(says(&full, None, "PCIe").0, Verdict::Warn);
}

#[test]
fn what_the_daemon_cannot_pace_is_named_with_a_remedy() {
    let (_directory, root) = tree(&[
        COMMON,
        MODULES,
        MLX5,
        include_str!("trees/mlx5-good.txt"),
        "/run/isolane/clients/isolaned.sock =\n/proc/1234/comm = bypass\n/proc/1234/exe = #!",
    ]);
    let inventory = Inventory {
        queue_pairs: vec![queue_pair(17, Holder::Process(1234))],
        ..Inventory::default()
    };
    let live = Live {
        inventory: Ok(inventory),
        sessions: Some(BTreeMap::new()),
        foreign: BTreeMap::from([("mlx5_0".to_owned(), 1_250_000_000)]),
        ..live()
    };
    let examination = doctor::examine(&root, &live, None).unwrap();
    let checks = examination.checks.iter();
    let found: Vec<_> = checks
        .filter(|check| check.name == "not paced")
        .map(|check| (check.seen.as_str(), check.action.is_some()))
        .collect();
    assert_eq!(
        found,
        [
            ("10.000 Gb/s that no session posted", true),
            (
                "bypass (pid 1234) has no session with isolaned; its libraries cannot be read",
                true
            ),
        ]
    );
}

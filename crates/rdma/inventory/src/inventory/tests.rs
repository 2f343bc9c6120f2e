//! Two processes of two tenants on two devices, counted per process, cgroup and tenant.

use super::*;
use crate::rdma::QueuePairKind;
use std::fs;

fn queue_pair(device: &str, number: u32, state: u8, holder: Holder) -> QueuePair {
    let kind = QueuePairKind::ReliableConnection;
    QueuePair::of((device.to_owned(), number), kind, state.into(), holder)
}

fn region(device: &str, length_bytes: u64, holder: Holder) -> MemoryRegion {
    MemoryRegion {
        device: device.to_owned(),
        length_bytes,
        holder,
        ..MemoryRegion::default()
    }
}

/// Two processes in two cgroups, one of them on two devices, and the kernel's own queue pair.
fn inventory() -> Inventory {
    Inventory {
        queue_pairs: vec![
            queue_pair("r0", 1, 3, Holder::Kernel("ib_core".into())),
            queue_pair("r0", 17, 3, Holder::Process(7)),
            queue_pair("r0", 18, 2, Holder::Process(7)),
            queue_pair("r1", 17, 3, Holder::Process(7)),
            queue_pair("r0", 19, 3, Holder::Process(8)),
        ],
        memory_regions: vec![
            region("r0", 4096, Holder::Process(7)),
            region("r0", u64::MAX, Holder::Process(8)),
            region("r0", 1, Holder::Process(8)),
        ],
        ..Inventory::default()
    }
}

fn root() -> (tempfile::TempDir, Root) {
    let directory = tempfile::tempdir().unwrap();
    for (process, command, cgroup, user) in [
        (7, "ib_write_bw", "/tenants/blue/a", 1000),
        (8, "ucx", "/tenants/blue2", 1001),
    ] {
        let folder = directory.path().join(format!("proc/{process}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("comm"), command).unwrap();
        fs::write(folder.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
        fs::write(
            folder.join("status"),
            format!("Name:\tx\nUid:\t{user}\t0\t0\t0\n"),
        )
        .unwrap();
    }
    let root = Root::at(directory.path());
    (directory, root)
}

#[test]
fn resources_are_counted_per_process_and_device() {
    let (_directory, root) = root();
    let processes = inventory().by_process(&root);
    assert_eq!(processes.len(), 2, "the kernel's own are no process");
    let first = &processes[0];
    assert_eq!(
        (first.process.id, first.process.command.as_str()),
        (7, "ib_write_bw")
    );
    let on_r0 = first.devices["r0"];
    assert_eq!(
        (
            on_r0.queue_pairs,
            on_r0.queue_pairs_sending,
            on_r0.memory_bytes
        ),
        (2, 1, 4096)
    );
    assert_eq!(first.devices["r1"].queue_pairs, 1);
    assert_eq!(
        processes[1].devices["r0"].memory_bytes,
        u64::MAX,
        "sums saturate"
    );
}

#[test]
fn objects_of_a_thread_belong_to_its_process() {
    let (directory, root) = root();
    let thread = directory.path().join("proc/70");
    fs::create_dir_all(&thread).unwrap();
    fs::write(thread.join("status"), "Name:\tworker\nTgid:\t7\nPid:\t70\n").unwrap();
    let mut inventory = inventory();
    inventory
        .queue_pairs
        .push(queue_pair("r0", 20, 3, Holder::Process(70)));
    inventory
        .memory_regions
        .push(region("r0", 64, Holder::Process(70)));
    inventory
        .memory_regions
        .push(region("r0", 64, Holder::Process(9)));
    inventory.attribute_to_processes(&root);
    let holdings = inventory.holdings();
    assert!(!holdings.contains_key(&Holder::Process(70)));
    let own = holdings[&Holder::Process(7)]["r0"];
    assert_eq!((own.queue_pairs, own.memory_bytes), (3, 4160));
    assert_eq!(
        holdings[&Holder::Process(9)]["r0"].memory_regions,
        1,
        "it has ended"
    );
}

#[test]
fn rules_tie_processes_to_tenants_by_cgroup_before_user() {
    let (_directory, root) = root();
    let rules = [
        TenantRule {
            tenant: "blue".into(),
            cgroup: Some("/tenants/blue".into()),
            ..TenantRule::default()
        },
        TenantRule {
            tenant: "green".into(),
            user: Some(1001),
            ..TenantRule::default()
        },
        TenantRule {
            tenant: "nobody".into(),
            ..TenantRule::default()
        },
    ];
    let processes = inventory().by_process(&root);
    let tenants = by_tenant(&processes, |process| {
        let rule = rules.iter().find(|rule| rule.matches(process));
        rule.map(|rule| rule.tenant.clone())
    });
    assert_eq!(
        tenants.keys().collect::<Vec<_>>(),
        ["blue", "green"],
        "/tenants/blue2 is not below /tenants/blue"
    );
    assert_eq!(tenants["blue"].processes, [7]);
    assert_eq!(tenants["green"].devices["r0"].queue_pairs, 1);
}

#[test]
fn groups_add_up_to_the_processes() {
    let (_directory, root) = root();
    let processes = inventory().by_process(&root);
    let all = by_tenant(&processes, |_| Some("all".into()));
    assert_eq!(all["all"].devices["r0"].queue_pairs, 3);
    let cgroups = by_tenant(&processes, |process| process.cgroup.clone());
    let total: u32 = cgroups
        .values()
        .map(|group| group.devices["r0"].queue_pairs)
        .sum();
    assert_eq!(total, 3);
}

#[test]
fn a_process_that_ended_keeps_its_resources() {
    let (directory, root) = root();
    fs::remove_dir_all(directory.path().join("proc/8")).unwrap();
    let processes = inventory().by_process(&root);
    assert_eq!(
        processes[1].process,
        Process {
            id: 8,
            ..Process::default()
        }
    );
    assert_eq!(
        by_tenant(&processes, |process| process.cgroup.clone()).len(),
        1
    );
}

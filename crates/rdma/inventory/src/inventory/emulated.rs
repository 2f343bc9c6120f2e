//! The objects of emulated devices, which no kernel tracks: the broker of `isolane rdma emulate` lists them in a file.
//!
//! A line has a kind, the process that holds the object, the object's number, and more numbers that depend on the kind
//! (`crates/rdma/emulator/src/objects.rs`). A line of another form is passed over.

use super::Inventory;
use crate::counters::Driver;
use crate::rdma::{
    CompletionQueue, Context, Device, Holder, MemoryRegion, ProtectionDomain, QueuePair,
    QueuePairKind, QueuePairState, SharedReceiveQueue,
};
use isolane_common_linux::root::Root;

/// The emulated devices below `root`, or `wanted` alone.
pub(super) fn devices(root: &Root, wanted: Option<&str>) -> Vec<String> {
    let mut names = root.list("/sys/class/infiniband");
    names.retain(|name| {
        wanted.is_none_or(|wanted| wanted == name) && Driver::of(root, name) == Driver::Emulated
    });
    names
}

/// The objects of `devices`.
pub(super) fn read(root: &Root, devices: Vec<String>) -> Inventory {
    let mut inventory = Inventory::default();
    for (index, name) in (0..).zip(devices) {
        let file = format!("/sys/class/infiniband/{name}/objects");
        for line in root.text(&file).unwrap_or_default().lines() {
            add(&mut inventory, &name, line);
        }
        inventory.devices.push(Device {
            index,
            name,
            port_count: 1,
            ..Device::default()
        });
    }
    inventory
}

fn add(inventory: &mut Inventory, device: &str, line: &str) -> Option<()> {
    let mut words = line.split(' ');
    let kind = words.next()?;
    let mut next = || words.next()?.parse::<u64>().ok();
    let mut small = || u32::try_from(next()?).ok();
    let (process, number) = (small()?, small()?);
    let (device, holder) = (device.to_owned(), Holder::Process(process));
    match kind {
        "context" => inventory.contexts.push(Context {
            device,
            number,
            holder,
        }),
        "qp" => {
            let kind = QueuePairKind::from(u8::try_from(small()?).ok()?);
            let state = QueuePairState::from(u8::try_from(small()?).ok()?);
            let remote_number = small();
            inventory.queue_pairs.push(QueuePair {
                remote_number,
                ..QueuePair::of((device, number), kind, state, holder)
            });
        }
        "cq" => inventory.completion_queues.push(CompletionQueue {
            device,
            number: Some(number),
            entries: small()?,
            users: 0,
            context: None,
            holder,
        }),
        "mr" => inventory.memory_regions.push(MemoryRegion {
            device,
            number: Some(number),
            length_bytes: next()?,
            holder,
            ..MemoryRegion::default()
        }),
        "pd" => inventory.protection_domains.push(ProtectionDomain {
            device,
            number: Some(number),
            users: 0,
            context: None,
            holder,
        }),
        "srq" => inventory.shared_receive_queues.push(SharedReceiveQueue {
            device,
            number,
            protection_domain: None,
            context: None,
            holder,
        }),
        _ => {}
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::Holdings;
    use std::fs;

    #[test]
    fn the_brokers_lines_are_objects_of_processes() {
        let directory = tempfile::tempdir().unwrap();
        let device = directory.path().join("sys/class/infiniband/rnic0");
        fs::create_dir_all(device.join("device")).unwrap();
        std::os::unix::fs::symlink("../isolane-emulator", device.join("device/driver")).unwrap();
        let lines = "context 7 0\nqp 7 256 2 3 257\nqp 7 258 4 1 0\ncq 7 2 64\nmr 7 5 4096\npd 7 1\n\
                     srq 8 9\nunknown 7 1\nqp 7\nmr x y z\n";
        fs::write(device.join("objects"), lines).unwrap();
        let root = Root::at(directory.path());
        assert_eq!(devices(&root, None), ["rnic0"]);
        assert!(devices(&root, Some("rnic1")).is_empty());
        let held = read(&root, devices(&root, None)).holdings();
        let expected = Holdings {
            contexts: 1,
            queue_pairs: 2,
            queue_pairs_sending: 1,
            completion_queues: 1,
            completion_entries: 64,
            memory_regions: 1,
            memory_bytes: 4096,
            protection_domains: 1,
            ..Holdings::default()
        };
        assert_eq!(held[&Holder::Process(7)]["rnic0"], expected);
        assert_eq!(held[&Holder::Process(8)]["rnic0"].shared_receive_queues, 1);
    }
}

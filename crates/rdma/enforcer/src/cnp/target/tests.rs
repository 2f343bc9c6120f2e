//! Only this host supplies targets.

use super::*;
use isolane_common_linux::Root;
use isolane_rdma_inventory::rdma::Holder;
use std::fs;

/// A host with one device, made of files.
pub(in crate::cnp) fn port() -> LocalPort {
    let directory = tempfile::tempdir().unwrap();
    let file = |path: &str, text: &str| {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let port = "sys/class/infiniband/r0/ports/1";
    let gids = [
        ("0", "fe80:0000:0000:0000:0000:00ff:fe00:000b", "RoCE v2"),
        ("1", "0000:0000:0000:0000:0000:ffff:0a07:0001", "RoCE v2"),
        ("2", "0000:0000:0000:0000:0000:ffff:0a07:0009", "IB/RoCE v1"),
    ];
    for (index, gid, kind) in gids {
        file(&format!("{port}/gids/{index}"), gid);
        file(&format!("{port}/gid_attrs/types/{index}"), kind);
        file(&format!("{port}/gid_attrs/ndevs/{index}"), "v0");
    }
    file("sys/class/net/v0/address", "02:00:00:00:00:0b\n");
    let root = Root::at(directory.path());
    assert_eq!(LocalPort::read(&root, "r1", 1), None);
    LocalPort::read(&root, "r0", 1).unwrap()
}

pub(in crate::cnp) fn queue_pair() -> QueuePair {
    QueuePair {
        device: "r0".to_owned(),
        port: Some(1),
        number: 17,
        remote_number: Some(18),
        kind: QueuePairKind::ReliableConnection,
        state: QueuePairState::ReadyToSend,
        send_sequence: None,
        receive_sequence: None,
        path_migration: None,
        protection_domain: None,
        holder: Holder::Process(1),
    }
}

#[test]
fn the_destination_is_this_hosts_own_port_for_any_peer() {
    for peer in ["8.8.8.8", "10.7.0.2", "fd00::9"] {
        let peer: IpAddr = peer.parse().unwrap();
        let target = Target::of(&queue_pair(), port(), Some(peer)).unwrap();
        let notification = target.notification([2, 0, 0, 0, 0, 1], CODE_POINT);
        let Addresses::V4 {
            source,
            destination,
        } = notification.addresses
        else {
            panic!("{notification:?}");
        };
        assert_eq!(destination.octets(), [10, 7, 0, 1]);
        assert_eq!(notification.destination_hardware, [2, 0, 0, 0, 0, 0x0b]);
        assert_eq!(notification.queue_pair, 17);
        let stands_for = match peer {
            IpAddr::V4(peer) => peer,
            IpAddr::V6(_) => destination,
        };
        assert_eq!(source, stands_for);
    }
}

#[test]
fn only_connected_queue_pairs_of_processes_that_send_are_targets() {
    let of = |change: &dyn Fn(&mut QueuePair)| {
        let mut changed = queue_pair();
        change(&mut changed);
        Target::of(&changed, port(), None).is_some()
    };
    assert!(of(&|_| {}));
    assert!(!of(&|pair| pair.state = QueuePairState::Init));
    assert!(!of(&|pair| pair.kind = QueuePairKind::UnreliableDatagram));
    assert!(!of(&|pair| pair.kind = QueuePairKind::General));
    assert!(!of(&|pair| pair.holder = Holder::Kernel("nvme".into())));
    assert!(!of(&|pair| pair.holder = Holder::Unknown));
    assert!(!of(&|pair| pair.number = 1 << 24));
}

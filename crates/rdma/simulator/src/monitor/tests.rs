//! Tests the whole monitor: headers and entries in, counters out.

use super::*;
use isolane_rdma_policy::harmonic::statistics::ObjectKind;
use proptest::prelude::*;

fn monitor() -> Monitor {
    Monitor::new(MonitorOptions {
        store: StoreSize {
            heads: 64,
            pool: 64,
        },
        engines: 1,
        tenants: 3,
    })
}

fn map(monitor: &mut Monitor, tenant: u32, kind: ObjectKind, address: u64, bytes: u32) {
    let update = MappingUpdate {
        operation: Operation::Insert,
        tenant,
        kind,
        bytes,
        address,
    };
    monitor.update(&update.encode()).expect("a valid entry");
}

fn write(address: u64, bytes: u64) -> TlpHeaders {
    TlpHeaders {
        address,
        bytes,
        each: 128,
        direction: BusDirection::ToHost,
    }
}

#[test]
fn bytes_go_to_the_tenant_whose_page_it_is() {
    let mut monitor = monitor();
    map(&mut monitor, 1, ObjectKind::RemoteWriteMemory, PAGE, 8192);
    map(&mut monitor, 2, ObjectKind::CompletionQueue, 3 * PAGE, 4096);
    monitor.observe(0, write(PAGE, 4096));
    monitor.observe(0, write(3 * PAGE + 64, 64));
    let first = monitor
        .poll(1)
        .of(ObjectKind::RemoteWriteMemory, BusDirection::ToHost);
    assert_eq!((first.transactions, first.bytes), (32, 4096));
    assert_eq!(
        monitor
            .poll(2)
            .of(ObjectKind::CompletionQueue, BusDirection::ToHost)
            .bytes,
        64
    );
    assert_eq!(monitor.poll(0), TenantStatistics::default());
    assert_eq!(monitor.poll(9), TenantStatistics::default());
}

#[test]
fn a_transfer_across_two_objects_is_split_at_the_page() {
    let mut monitor = monitor();
    map(&mut monitor, 1, ObjectKind::PrivateMemory, PAGE, 4096);
    map(&mut monitor, 2, ObjectKind::PrivateMemory, 2 * PAGE, 4096);
    monitor.observe(0, write(2 * PAGE - 100, 300));
    assert_eq!(monitor.poll(1).total().bytes, 100);
    assert_eq!(monitor.poll(2).total().bytes, 200);
    assert_eq!(monitor.poll(2).total().transactions, 2);
}

#[test]
fn unmapped_accesses_are_counted_apart() {
    let mut monitor = monitor();
    monitor.observe(0, write(5 * PAGE, 256));
    assert_eq!(monitor.unmapped().bytes, 256);
    map(&mut monitor, 1, ObjectKind::SendQueue, 5 * PAGE, 4096);
    monitor.observe(0, write(5 * PAGE, 256));
    let gone = MappingUpdate {
        operation: Operation::Delete,
        tenant: 1,
        kind: ObjectKind::SendQueue,
        bytes: 4096,
        address: 5 * PAGE,
    };
    monitor.update(&gone.encode()).expect("a valid entry");
    monitor.observe(0, write(5 * PAGE, 256));
    assert_eq!(monitor.unmapped().bytes, 512);
    assert_eq!(monitor.poll(1).total().bytes, 256);
}

#[test]
fn an_entry_of_an_unknown_tenant_is_refused() {
    let mut monitor = monitor();
    map(&mut monitor, 3, ObjectKind::SendQueue, PAGE, 8192);
    assert_eq!(monitor.rejected(), 2);
    assert!(monitor.store().is_empty());
}

#[test]
fn broken_entries_change_nothing() {
    let mut monitor = monitor();
    assert!(monitor.update(&[0xff; MappingUpdate::BYTES]).is_err());
    assert!(monitor.store().is_empty());
}

#[test]
fn the_prototype_holds_its_mappings_in_2_mib() {
    let monitor = Monitor::new(MonitorOptions {
        store: StoreSize::PROTOTYPE,
        engines: 2,
        tenants: 16,
    });
    assert_eq!(monitor.store().footprint_bytes(), 2 << 20);
    assert_eq!(monitor.footprint_bytes(), (2 << 20) + 16 * 320 + 2 * 4096);
    // 554 blocks of 36 Kb are what the prototype uses.
    assert!(monitor.footprint_bytes() < 554 * 36 * 1024 / 8);
}

proptest! {
    /// One call for a transfer counts as one call for each of its packets.
    #[test]
    fn a_transfer_counts_as_its_packets(
        transfers in proptest::collection::vec((0u64..6 * PAGE, 1u64..9000, 0u64..400_000), 1..60),
        packet in prop_oneof![Just(128u64), Just(256), Just(512)],
    ) {
        let (mut whole, mut single) = (monitor(), monitor());
        for each in [&mut whole, &mut single] {
            map(each, 1, ObjectKind::PrivateMemory, 0, 8192);
            map(each, 2, ObjectKind::AtomicMemory, 3 * PAGE, 4096);
        }
        let mut now = 0;
        for (address, bytes, gap) in transfers {
            now += gap;
            let headers = TlpHeaders { address, bytes, each: packet, direction: BusDirection::ToNic };
            whole.observe(now, headers);
            // Packets do not cross pages.
            let mut at = address;
            while at < address + bytes {
                let length = packet.min(PAGE - at % PAGE).min(address + bytes - at);
                let page_start = at - at % PAGE;
                let first = page_start.max(address);
                let within = (at - first) % packet;
                prop_assert_eq!(within, 0);
                single.observe(now, TlpHeaders { address: at, bytes: length, ..headers });
                at += length;
            }
        }
        for tenant in 0..3 {
            prop_assert_eq!(whole.poll(tenant), single.poll(tenant));
        }
        prop_assert_eq!(whole.unmapped(), single.unmapped());
        prop_assert_eq!(whole.overflowed(), single.overflowed());
        prop_assert_eq!(whole.searches(), single.searches());
    }
}

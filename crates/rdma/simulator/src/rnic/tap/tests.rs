//! What a monitor counted against what the model moved: the only place where both are known.

use super::*;
use isolane_rdma_policy::harmonic::statistics::{ObjectKind, Usage};
use isolane_rdma_scenario::library::Library;
use isolane_rdma_scenario::model::Scenario;

impl<const RECORDS: bool> World<RECORDS> {
    /// The tenant behind an owner; the host's own work has none.
    fn tenant_of(&self, owner: Owner) -> Option<u16> {
        match owner {
            Owner::Pair(pair) => Some(self.pairs[pair as usize].tenant),
            Owner::Loop(index) => Some(self.loops[index as usize].tenant),
            Owner::Host => None,
        }
    }

    pub(super) fn note_truth(&mut self, host: usize, access: Access) {
        if let Some(tenant) = self.tenant_of(access.owner) {
            let row = &mut self.moved[host];
            let tenant = usize::from(tenant);
            if row.len() <= tenant {
                row.resize(tenant + 1, 0);
            }
            row[tenant] += access.bytes;
        }
    }
}

const MIXED: &str = include_str!("../../../tests/data/mixed.toml");

fn scenario(text: &str) -> Scenario {
    isolane_rdma_scenario::parse(text, "test.toml", &Library::embedded()).expect("a valid scenario")
}

fn watched(text: &str) -> World {
    let mut world = with_monitors(&scenario(text));
    world.run();
    world
}

fn with_monitors(scenario: &Scenario) -> World {
    on_bus(scenario, None)
}

/// As [`with_monitors`], with PCIe at `gbps` for transactions. The faster the bus, the more engines a monitor has.
fn on_bus(scenario: &Scenario, gbps: Option<f64>) -> World {
    let library = Library::embedded();
    let mut profile = library
        .profile(&scenario.profile)
        .expect("a shipped profile")
        .clone();
    if let Some(gbps) = gbps {
        let bus = |name: &str| {
            profile
                .pcie
                .get(name)
                .expect("every profile has it")
                .clone()
        };
        let (mut rate, mut data_link) = (bus("rate_gbps"), bus("data_link_share"));
        (rate.value, data_link.value) = (gbps, 0.0);
        profile.pcie.insert("rate_gbps".to_owned(), rate);
        profile.pcie.insert("data_link_share".to_owned(), data_link);
    }
    let mut world = <World>::build(scenario, &profile).expect("the policy exists");
    world.attach_monitors();
    world
}

fn monitor(world: &World, host: usize) -> &Monitor {
    world.monitors[host].as_ref().expect("attached")
}

#[test]
fn every_tenant_is_charged_exactly_what_the_model_moved_for_it() {
    // Four engines: with the three of a PCIe 3.0 x16 slot some headers of this mix are missed.
    let mut world = on_bus(&scenario(MIXED), Some(128.0));
    world.run();
    for host in 0..2 {
        let monitor = monitor(&world, host);
        assert_eq!(monitor.unmapped(), Usage::default(), "host {host}");
        assert_eq!(monitor.overflowed(), Usage::default(), "host {host}");
        assert_eq!(monitor.rejected(), 0, "host {host}");
        let mut moved = 0;
        for (tenant, &bytes) in world.moved[host].iter().enumerate() {
            let counted = monitor.poll(tenant as u16).total().bytes;
            assert_eq!(counted, bytes, "tenant {tenant} on host {host}");
            moved += bytes;
        }
        assert!(moved > 1_000_000, "host {host}: {moved}");
    }
}

#[test]
fn what_is_missed_and_what_is_counted_add_up_to_what_was_moved() {
    let scenario = scenario(MIXED);
    let mut world = with_monitors(&scenario);
    // One engine is too slow for this bus, and 16 + 16 slots hold only some of the pages.
    let options = MonitorOptions {
        store: StoreSize {
            heads: 16,
            pool: 16,
        },
        engines: 1,
        tenants: scenario.tenants.len() + 1,
    };
    for monitor in &mut world.monitors {
        *monitor = Some(Box::new(Monitor::new(options)));
    }
    world.run();
    for host in 0..2 {
        let monitor = monitor(&world, host);
        let counted: u64 = (0..world.moved[host].len())
            .map(|tenant| monitor.poll(tenant as u16).total().bytes)
            .sum();
        let moved: u64 = world.moved[host].iter().sum();
        assert!(monitor.unmapped().bytes > 0 && monitor.overflowed().bytes > 0);
        assert_eq!(
            counted + monitor.unmapped().bytes + monitor.overflowed().bytes,
            moved,
            "host {host}"
        );
    }
}

#[test]
fn each_verb_leaves_its_own_trace() {
    let world = watched(MIXED);
    let statistics = |host: usize, tenant: u16| monitor(&world, host).poll(tenant);
    let (bulk, reads, sends, adds) = (0, 1, 2, 3);
    // Host 0 asks, host 1 answers.
    assert!(
        statistics(0, bulk)
            .of(ObjectKind::PrivateMemory, BusDirection::ToNic)
            .bytes
            > 0
    );
    assert!(
        statistics(1, bulk)
            .of(ObjectKind::RemoteWriteMemory, BusDirection::ToHost)
            .bytes
            > 0
    );
    assert_eq!(
        statistics(1, bulk)
            .of(ObjectKind::RemoteReadMemory, BusDirection::ToNic)
            .bytes,
        0
    );
    assert!(
        statistics(1, reads)
            .of(ObjectKind::RemoteReadMemory, BusDirection::ToNic)
            .bytes
            > 0
    );
    assert_eq!(
        statistics(1, reads)
            .of(ObjectKind::RemoteWriteMemory, BusDirection::ToHost)
            .bytes,
        0
    );
    let landed = statistics(0, reads).of(ObjectKind::PrivateMemory, BusDirection::ToHost);
    assert!(landed.bytes > 0);
    assert!(statistics(1, adds).atomics() > 0);
    for tenant in [bulk, reads, sends] {
        assert_eq!(statistics(1, tenant).atomics(), 0);
    }
    assert!(statistics(1, sends).receive_bytes() > 0);
    for tenant in [bulk, reads, adds] {
        assert_eq!(statistics(1, tenant).receive_bytes(), 0);
        assert!(statistics(0, tenant).doorbells() > 0);
        assert!(
            statistics(0, tenant)
                .of(ObjectKind::SendQueue, BusDirection::ToNic)
                .bytes
                > 0
        );
        assert!(
            statistics(0, tenant)
                .of(ObjectKind::CompletionQueue, BusDirection::ToHost)
                .bytes
                > 0
        );
    }
}

#[test]
fn the_same_run_counts_the_same() {
    let (one, other) = (watched(MIXED), watched(MIXED));
    for host in 0..2 {
        for tenant in 0..7 {
            assert_eq!(
                monitor(&one, host).poll(tenant),
                monitor(&other, host).poll(tenant)
            );
        }
        assert_eq!(
            monitor(&one, host).searches(),
            monitor(&other, host).searches()
        );
    }
}

#[test]
fn control_verbs_keep_the_mappings_up_to_date() {
    let world = watched(MIXED);
    let library = Library::embedded();
    let profile = library.profile("cx5-100g-roce").expect("a shipped profile");
    let mut before = <World>::build(&scenario(MIXED), profile).expect("the policy exists");
    before.attach_monitors();
    for tenant in 0..7 {
        before.announce(0, tenant);
    }
    for index in 0..before.loops.len() as u32 {
        before.announce_loop(0, index);
    }
    let alive = |world: &World| world.loops.iter().map(|each| each.alive).sum::<u64>() as i64;
    let pages = |world: &World| monitor(world, 0).store().len() as i64;
    let updates = monitor(&world, 0).updates() - monitor(&before, 0).updates();
    let each = world.loops[0].pages as i64;
    assert!(updates >= 2, "{updates}");
    assert_eq!(
        pages(&world) - pages(&before),
        each * (alive(&world) - alive(&before))
    );
}

#[test]
fn polls_and_updates_take_their_bytes_of_the_bus() {
    let mut world = watched(MIXED);
    let before = (world.nics[0].pcie_in_free, world.nics[0].pcie_out_free);
    let late = before.0.max(before.1) + 1_000_000;
    assert!(world.poll_monitor(late, 0, 0).is_some());
    assert_eq!(world.nics[0].pcie_in_free - late, world.device.pcie.of(800));
    assert_eq!(
        world.nics[0].pcie_out_free - late,
        world.device.pcie.of(960)
    );
    let sent = world.monitors[1].as_ref().unwrap().updates();
    let counted = world.nics[1].count.pcie_in_bytes;
    world.announce(late, 0);
    let entries = world.monitors[1].as_ref().unwrap().updates() - sent;
    assert!(entries > 0);
    assert_eq!(world.nics[1].count.pcie_in_bytes - counted, entries * 44);
}

//! Writes to etcd that are late: how leases and terms could be lost, step by step.

use super::links::{Link, Mode};
use super::processes::Etcd;
use super::world::{CLASSES, GROUP, settings};
use isolane_common_quantities::rng::Stream;
use isolane_common_quantities::units::Instant;
use isolane_rpc::quota::ledger::Ledger;
use isolane_rpc::quota::protocol::{Answer, Request, Terms};
use isolane_rpc::quota::settings::parse;
use isolane_rpc::quota::store::etcd::EtcdStore;
use isolane_rpc::quota::store::{Record, Store, StoreError};
use std::net::SocketAddr;

const PREFIX: &str = "/late";
/// Tries of what a slow machine may not finish in time.
const TRIES: usize = 50;

/// A real etcd, and a link to it.
fn etcd() -> Option<(Etcd, Link)> {
    let Some(etcd) = Etcd::start().unwrap() else {
        let required = std::env::var_os("ISOLANE_REQUIRE_ETCD").is_some();
        assert!(!required, "no etcd here, and CI must have one");
        println!("skipped: no etcd on this machine (Debian: etcd-server)");
        return None;
    };
    let link = Link::start(Stream::named(1, "link")).unwrap();
    link.lead_to(Some(etcd.address()));
    Some((etcd, link))
}

fn store(address: SocketAddr) -> EtcdStore {
    EtcdStore::new(address, PREFIX)
}

fn grant(rate_bytes_per_s: u64) -> Record {
    Record::Grant {
        group: GROUP.to_owned(),
        class: CLASSES[0].0.to_owned(),
        tenant: "search".to_owned(),
        client: "here".to_owned(),
        serial: rate_bytes_per_s,
        rate_bytes_per_s,
        term_ms: Some(1_000),
    }
}

/// Stores a record. On a slow machine a write may take too long; then the store is settled, and it is tried again.
fn write(store: &mut EtcdStore, record: &Record) {
    let stored = (0..TRIES).any(|_| {
        (!store.is_unsure() || store.settle(&[]).is_ok())
            && store.append(std::slice::from_ref(record)).is_ok()
    });
    assert!(stored, "etcd stores nothing");
}

/// Tries until another server is found to have taken the store over.
fn is_taken(mut act: impl FnMut() -> Result<(), StoreError>) -> bool {
    (0..TRIES).any(|_| matches!(act(), Err(StoreError::Taken(_))))
}

/// Does something whose requests are held, and lets later connections through. The caller delivers what is held.
fn held<T>(link: &Link, act: impl FnOnce() -> T) -> T {
    link.set([Mode::Hold, Mode::Open]);
    let done = act();
    link.spare_later();
    done
}

fn deliver(link: &Link) {
    link.set([Mode::Open; 2]);
    link.wait_for_answers();
}

#[test]
fn a_late_write_replaces_no_later_lease() {
    let Some((etcd, link)) = etcd() else { return };
    let mut first = store(link.address());
    first.load().unwrap();
    // etcd's lease is there before the link holds the write.
    write(&mut first, &grant(1));
    held(&link, || first.append(&[grant(2)]).unwrap_err());
    assert!(first.is_unsure());
    write(&mut first, &grant(3));
    assert!(!first.is_unsure());
    deliver(&link);
    assert_eq!(store(etcd.address()).load().unwrap().records, [grant(3)]);
}

/// Goal: a server whose change of the number has no answer recognises its own number, and notices another server.
/// Method: the link holds the answer to the change, which is the second call of settling.
#[test]
fn a_server_recognises_its_own_number_and_that_of_another_one() {
    let Some((etcd, link)) = etcd() else { return };
    let mut first = store(link.address());
    first.load().unwrap();
    write(&mut first, &grant(1));
    // The lease of etcd is there, so the first call is the write.
    link.set([Mode::Open, Mode::Hold]);
    first.append(&[grant(2)]).unwrap_err();
    assert!(first.is_unsure());
    link.spare_next();
    first.settle(&[]).unwrap_err();
    link.set([Mode::Open; 2]);
    assert!(first.is_unsure());
    let settled = (0..TRIES).any(|_| first.settle(&[]).is_ok());
    assert!(settled, "the server does not recognise its number");
    store(etcd.address()).load().unwrap();
    assert!(is_taken(|| first.append(&[grant(3)])));
    assert!(is_taken(|| first.settle(&[])));
}

/// Goal: a change that failed takes no capacity from a later one that was acknowledged. Method: the write of a large
/// guarantee is late; then another tenant gets a guarantee that fits only without it.
#[test]
fn a_change_that_failed_does_not_come_back() {
    let Some((etcd, link)) = etcd() else { return };
    let settings = parse("test", &settings(link.address(), PREFIX, 1_000)).unwrap();
    let open = |address| Ledger::open(&settings, Box::new(store(address)), Instant::ZERO).unwrap();
    let change = |ledger: &Ledger, tenant: &str, guarantee_bytes_per_s| {
        let terms = Terms {
            tenant: tenant.to_owned(),
            group: GROUP.to_owned(),
            class: CLASSES[0].0.to_owned(),
            weight: 1,
            guarantee_bytes_per_s,
        };
        ledger.answer(Instant::ZERO, Request::Set(terms))
    };
    let ledger = open(link.address());
    let failed = held(&link, || change(&ledger, "ads", 20_000_000));
    assert!(matches!(failed, Answer::Error(_)), "{failed:?}");
    // With 12.5 MB/s of `search` and 6.25 MB/s of `ads` that is all.
    let done = (0..TRIES).any(|_| change(&ledger, "batch", 25_000_000) == Answer::Done);
    assert!(done, "etcd stores nothing");
    deliver(&link);
    let next = open(etcd.address());
    let Answer::Pools(pools) = next.answer(Instant::ZERO, Request::Show) else {
        panic!("no state");
    };
    let guarantees = |pool: usize| {
        pools[pool]
            .tenants
            .iter()
            .map(|tenant| tenant.guarantee_bytes_per_s)
    };
    assert_eq!(pools[0].class, CLASSES[0].0);
    let expected = [
        ("ads", 6_250_000),
        ("batch", 25_000_000),
        ("search", 12_500_000),
    ];
    assert!(
        guarantees(0).eq(expected.map(|(_, guarantee)| guarantee)),
        "{:?}",
        pools[0]
    );
}

/// Goal: the store has exactly the terms of a server that started, as a journal has. Method: a server that skipped terms,
/// because they do not fit a changed file, replaces the store by the others.
#[test]
fn a_start_removes_terms_that_the_server_skipped() {
    let Some((etcd, _)) = etcd() else { return };
    let terms = |tenant: &str| {
        Record::Set(Terms {
            tenant: tenant.to_owned(),
            group: GROUP.to_owned(),
            class: CLASSES[0].0.to_owned(),
            weight: 1,
            guarantee_bytes_per_s: 7,
        })
    };
    let mut first = store(etcd.address());
    first.load().unwrap();
    first.replace(&[terms("ads"), terms("search")], 0).unwrap();
    first.replace(&[terms("search"), grant(1)], 0).unwrap();
    let loaded = store(etcd.address()).load().unwrap().records;
    assert_eq!(loaded, [terms("search"), grant(1)]);
}

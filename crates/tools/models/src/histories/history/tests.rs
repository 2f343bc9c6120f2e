//! Histories that are made up: each rule of the check, kept and broken.

use super::*;

fn held(client: usize, rate: u64, from_ns: u64, to_ns: u64) -> Held {
    Held {
        client,
        pool: 0,
        rate,
        from_ns,
        to_ns,
    }
}

fn terms(tenant: &str, guarantee_bytes_per_s: u64) -> Terms {
    Terms {
        tenant: tenant.to_owned(),
        group: "rack1".to_owned(),
        class: "high".to_owned(),
        weight: 1,
        guarantee_bytes_per_s,
    }
}

fn history() -> History {
    History {
        pools: vec![("high".to_owned(), 100)],
        ..History::default()
    }
}

fn check_held(held: Vec<Held>, expected: Result<(), &str>) {
    let checked = History { held, ..history() }.check();
    match expected {
        Ok(()) => assert_eq!(checked, Ok(())),
        Err(part) => assert!(
            checked.as_ref().is_err_and(|error| error.contains(part)),
            "{checked:?}"
        ),
    }
}

#[test]
fn rates_in_use_at_the_same_time_must_fit_the_bound() {
    check_held(vec![held(0, 60, 0, 10), held(1, 40, 5, 9)], Ok(()));
    check_held(vec![held(0, 60, 0, 10), held(1, 41, 10, 20)], Ok(()));
    let over = Err("clients use 101 of 100 bytes/s at 9 ns");
    check_held(vec![held(0, 60, 0, 10), held(1, 41, 9, 20)], over);
    // An empty use is none, and another pool has its own bound.
    check_held(vec![held(0, 60, 0, 10), held(1, 41, 5, 5)], Ok(()));
    let other = Held {
        pool: 1,
        ..held(1, 41, 5, 9)
    };
    check_held(vec![held(0, 60, 0, 10), other], Ok(()));
}

#[test]
fn an_earlier_server_grants_nothing_after_the_next_one_has_begun() {
    let with = |grants: Vec<(u64, u64)>| History {
        starts: vec![(1, 10), (2, 20)],
        grants,
        ..history()
    };
    assert_eq!(with(vec![(1, 15), (2, 25)]).check(), Ok(()));
    // The request was on its way when the next server began.
    assert_eq!(with(vec![(1, 19)]).check(), Ok(()));
    let error = with(vec![(1, 21)]).check().unwrap_err();
    assert!(error.contains("server 1 granted a lease"), "{error}");
}

/// Changes of one tenant's terms by their guarantees, and the guarantee that the last server found.
fn check_changes(changes: &[(u64, Outcome)], found: u64) -> Result<(), String> {
    let changes = changes.iter().map(|(guarantee, outcome)| Change {
        terms: terms("search", *guarantee),
        outcome: *outcome,
    });
    let history = History {
        changes: changes.collect(),
        terms: vec![terms("search", found), terms("ads", 99)],
        ..history()
    };
    history.check()
}

#[test]
fn acknowledged_terms_are_not_lost() {
    use Outcome::{Done, Failed, Rejected, Unknown};
    assert_eq!(check_changes(&[(1, Done), (2, Done)], 2), Ok(()));
    assert!(check_changes(&[(1, Done), (2, Done)], 1).is_err());
    assert!(check_changes(&[(1, Done)], 0).is_err());
    // Rejected changes have no effect; failed ones may have been stored.
    assert!(check_changes(&[(1, Done), (2, Rejected)], 2).is_err());
    assert_eq!(check_changes(&[(1, Done), (2, Failed)], 2), Ok(()));
    // After a later acknowledgement a failed change is void. One without an answer may still be on its way.
    assert!(check_changes(&[(1, Failed), (2, Done)], 1).is_err());
    assert_eq!(check_changes(&[(1, Unknown), (2, Done)], 1), Ok(()));
    // Nothing was acknowledged.
    assert_eq!(check_changes(&[(1, Failed)], 0), Ok(()));
}

#[test]
fn tenants_have_their_guarantees_after_the_calm_time() {
    let with = |held| History {
        calm: vec![Calm {
            terms: terms("search", 50),
            clients: 2,
            held,
        }],
        ..history()
    };
    assert_eq!(with(48).check(), Ok(()), "two divisions round");
    let error = with(47).check().unwrap_err();
    assert!(
        error.contains("has 47 of its guaranteed 50 bytes/s"),
        "{error}"
    );
}

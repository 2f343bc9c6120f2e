//! Floors come with an application, stay in force, show when they have no effect, and go with it.

use super::*;
use crate::application::Floors;

const FLOORS: Floors = Floors {
    low_bytes: 64 << 20,
    min_bytes: 0,
};

fn guarded() -> Application {
    Application {
        floors: FLOORS,
        ..app("redis", 3, 400)
    }
}

fn floors(bench: &Bench) -> Option<Floors> {
    bench.world.lock().floors.get(REDIS).copied()
}

fn problem(bench: &mut Bench) -> Option<String> {
    let Answer::Status(status) = bench.ask(Request::Status) else {
        panic!("no status");
    };
    status.applications[0].problem.clone()
}

/// Steps until the next comparison with the machine.
fn compare(bench: &mut Bench) {
    bench.steps(26);
}

#[test]
fn floors_are_restored_and_lifted() {
    let mut bench = Bench::new();
    bench.admit(guarded());
    assert_eq!(floors(&bench), Some(FLOORS));
    bench.world.lock().floors.clear();
    compare(&mut bench);
    assert_eq!(
        floors(&bench),
        Some(FLOORS),
        "another program had changed it"
    );
    // Its process lives on in our cgroup.
    bench.ask(Request::Remove(Name {
        name: "redis".to_owned(),
    }));
    assert_eq!(floors(&bench), Some(Floors::default()));
}

#[test]
fn an_application_without_floors_does_not_inherit_those_of_a_cgroup_that_was_left() {
    let mut bench = Bench::new();
    bench.world.lock().floors.insert(REDIS.to_owned(), FLOORS);
    bench.world.lock().refuse.insert("floors", 1);
    bench.admit(app("redis", 3, 400));
    assert!(problem(&mut bench).is_some_and(|why| why.contains("floors")));
    bench.steps(6);
    assert_eq!(problem(&mut bench), None);
    assert_eq!(floors(&bench), Some(Floors::default()));
}

#[test]
fn a_stopped_service_leaves_no_floor() {
    let mut bench = Bench::new();
    bench.admit(guarded());
    bench.service().close();
    assert_eq!(floors(&bench), Some(Floors::default()));
}

#[test]
fn a_floor_that_the_machine_refuses_is_shown_and_tried_again() {
    let mut bench = Bench::new();
    bench.world.lock().refuse.insert("floors", 1);
    bench.admit(guarded());
    assert!(problem(&mut bench).is_some_and(|why| why.contains("floors")));
    bench.steps(6);
    assert_eq!((problem(&mut bench), floors(&bench)), (None, Some(FLOORS)));
}

#[test]
fn a_floor_without_effect_is_shown() {
    let mut bench = Bench::new();
    bench.world.lock().breaches.insert(REDIS.to_owned(), 3);
    bench.admit(guarded());
    compare(&mut bench);
    assert_eq!(
        problem(&mut bench),
        None,
        "breaches before the floor do not count"
    );
    bench.world.lock().breaches.insert(REDIS.to_owned(), 5);
    compare(&mut bench);
    let why = problem(&mut bench).unwrap();
    assert!(why.contains("below memory_low 2 times"), "{why}");
    compare(&mut bench);
    assert_eq!(problem(&mut bench), Some(why), "it stays in sight");
}

#[test]
fn only_cgroups_of_the_service_have_floors() {
    let mut bench = Bench::new();
    bench.world.add("/apps/redis", &[1], "max 100000");
    let answer = bench.submit(guarded(), Place::Cgroup("/apps/redis".to_owned()));
    let Answer::Failed(failure) = answer else {
        panic!("{answer:?}");
    };
    assert!(
        failure.message.contains("/apps/redis is not"),
        "{}",
        failure.message
    );
    assert_eq!(
        bench
            .world
            .lock()
            .journal
            .as_ref()
            .map_or(0, |journal| journal.entries.len()),
        0
    );
}

#[test]
fn floors_are_within_the_memory_of_the_machine() {
    let mut bench = Bench::new();
    bench.step();
    let with = |name: &str, priority, low_mib: u64, min_mib: u64| Application {
        memory_bytes: None,
        floors: Floors {
            low_bytes: low_mib << 20,
            min_bytes: min_mib << 20,
        },
        ..app(name, priority, 1)
    };
    let mut said = |application| match bench.submit(application, Place::Caller) {
        Answer::Failed(failure) => failure.message,
        Answer::Admitted(_) => "admitted".to_owned(),
        answer => panic!("{answer:?}"),
    };
    expect!["memory_low = 19.5 GiB: all tiers of this machine together have 9.77 GiB: write a smaller floor, or leave the floor out"].assert_eq(&said(with("redis", 3, 20_000, 0)));
    expect!["memory_min = 19.5 GiB: all tiers of this machine together have 9.77 GiB: write a smaller floor, or leave the floor out"].assert_eq(&said(with("redis", 3, 0, 20_000)));
    assert_eq!(said(with("redis", 3, 10_000, 6_000)), "admitted");
    expect!["memory_min = 5.86 GiB: other applications have a memory_min of 5.86 GiB together, and all tiers of this machine have 9.77 GiB: write a smaller floor, or leave the floor out"].assert_eq(&said(with("other", 4, 0, 6_000)));
    assert_eq!(said(with("other", 4, 6_000, 4_000)), "admitted");
}

//! What the controller reports, and what it does not decide: one fact for each test.
//!
//! Method: as the tests above, on a machine that fails on demand.

use super::*;

#[test]
fn a_foreign_value_written_while_no_service_ran_stays() {
    let mut bench = Bench::new();
    bench.world.add("/kube/pod", &[7], "max 100000");
    bench.submit(
        Application {
            name: "pod".to_owned(),
            ..stream("pod", 1)
        },
        Place::Cgroup("/kube/pod".to_owned()),
    );
    bench.step();
    let cpu = |bench: &Bench| bench.world.group("/kube/pod").unwrap().cpu;
    assert_eq!(cpu(&bench), "50000 100000");
    bench.restart();
    assert_eq!(cpu(&bench), "50000 100000", "ours is known as ours");
    {
        let mut state = bench.world.lock();
        state.groups.get_mut("/kube/pod").unwrap().cpu = "40000 100000".to_owned();
    }
    bench.restart();
    let now = bench.now;
    let problems = bench.service().status(now).problems.join("; ");
    assert!(
        problems.contains("pod: another program changed cpu.max of /kube/pod to `40000 100000`"),
        "{problems}"
    );
    assert_eq!(cpu(&bench), "20000 100000", "ours is a part of theirs");
    bench.ask(Request::Remove(Name {
        name: "pod".to_owned(),
    }));
    assert_eq!(cpu(&bench), "40000 100000");
}

#[test]
fn no_application_is_admitted_on_an_old_reading() {
    let mut bench = Bench::new();
    bench.step();
    bench.world.lock().sensors_old_ms = 401;
    for place in [Place::Caller, Place::Cgroup(REDIS.to_owned())] {
        let Answer::Failed(failure) = bench.submit(app("redis", 3, 400), place) else {
            panic!("taken in");
        };
        assert_eq!(failure.code, crate::protocol::FailureCode::Busy);
        assert!(failure.message.contains("401 ms ago"), "{failure}");
    }
    assert!(bench.world.lock().groups.is_empty());
    bench.world.lock().sensors_old_ms = 400;
    bench.admit(app("redis", 3, 400));
    // The loop itself hangs.
    bench.now = bench.now.saturating_add(Duration::from_secs(1));
    let answer = bench.ask(Request::Plan(Plan {
        application: app("other", 4, 1),
    }));
    assert!(matches!(answer, Answer::Failed(_)), "{answer:?}");
}

#[test]
fn who_was_yielded_to_keeps_its_name_after_it_left() {
    let mut bench = Bench::mercury();
    bench.admit(app("low", 1, 900));
    bench.admit(app("high", 2, 500));
    let reason = |bench: &mut Bench| {
        let now = bench.now;
        let status = bench.service().status(now);
        let low = status
            .applications
            .into_iter()
            .find(|app| app.name == "low");
        low.unwrap().last_change.unwrap().reason
    };
    assert_eq!(reason(&mut bench), "gives memory to high");
    bench.ask(Request::Remove(Name {
        name: "high".to_owned(),
    }));
    assert_eq!(reason(&mut bench), "gives memory to high");
}

#[test]
fn a_plan_says_whose_objective_would_break() {
    let mut bench = Bench::mercury();
    bench.admit(app("low", 1, 900));
    bench
        .world
        .lock()
        .groups
        .get_mut("/isolane-mem/low")
        .unwrap()
        .pages = Bytes::from_mib(900);
    bench
        .world
        .lock()
        .latency
        .insert("/isolane-mem/low".to_owned(), 158_000);
    bench.steps(3);
    let answer = bench.ask(Request::Plan(Plan {
        application: app("high", 2, 800),
    }));
    let Answer::Planned(plan) = answer else {
        panic!("{answer:?}");
    };
    let said: Vec<(&str, Option<bool>)> = plan
        .yields
        .iter()
        .map(|given| (given.name.as_str(), given.slo_kept))
        .collect();
    assert_eq!(said, [("low", Some(false))]);
}

#[test]
fn what_the_machine_refuses_is_in_status_metrics_and_journal() {
    let mut bench = Bench::new();
    bench.world.lock().refuse.insert("apply", 1_000);
    bench.admit(app("redis", 3, 400));
    bench.step();
    let now = bench.now;
    let status = bench.service().status(now);
    let change = status.applications[0].last_change.clone().unwrap();
    assert!(change.refused.unwrap().contains("apply: not permitted"));
    let trouble = |bench: &Bench| {
        let journal = bench.world.lock().journal.clone().unwrap();
        journal.entries[0].trouble.clone()
    };
    assert!(trouble(&bench).unwrap().contains("apply: not permitted"));
    bench.restart();
    let now = bench.now;
    let problems = bench.service().status(now).problems.join("; ");
    assert!(
        problems.contains("redis, when the last service ended"),
        "{problems}"
    );
    bench.world.lock().refuse.clear();
    bench.steps(15);
    assert_eq!(trouble(&bench), None);
}

#[test]
fn status_reads_the_pressures_of_all_applications_once() {
    let mut bench = Bench::new();
    bench.admit(app("redis", 3, 400));
    bench.admit(app("other", 4, 1));
    bench.ask(Request::Status);
    assert_eq!(bench.world.lock().pressure_reads, 1);
}

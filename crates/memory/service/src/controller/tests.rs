//! The controller on a machine that fails at every point.
//!
//! One fact for each test here; random orders of events are in [`chaos`].

mod chaos;
mod files;
mod floors;
mod reports;
mod strict;

use super::*;
use crate::application::pod::Place;
use crate::application::tests::redis;
use crate::application::{Application, Slo};
use crate::protocol::{Admission, Name, Plan, Planned, RefusedCode, Submission};
use expect_test::expect;
use fake::World;
use isolane_common_quantities::units::Bytes;
use isolane_memory_policy::mercury::{Mercury, MercuryOptions, PERIOD};
use strict::Strict;

/// Nothing is interference.
const THRESHOLDS: Thresholds = Thresholds {
    local_bandwidth: u64::MAX / 2,
    hint_faults_per_s: 1e12,
};

const REDIS: &str = "/isolane-mem/redis";

/// A world, its service and its clock.
struct Bench {
    world: World,
    controller: Option<Controller>,
    now: Instant,
    policy: fn() -> Box<dyn ControlPolicy>,
}

impl Bench {
    fn new() -> Self {
        Self::with(|| Box::new(Strict::default()))
    }

    fn mercury() -> Self {
        Self::with(|| {
            let options = MercuryOptions::new(THRESHOLDS, fake::NEAR);
            Box::new(Mercury::new(options).unwrap())
        })
    }

    fn with(policy: fn() -> Box<dyn ControlPolicy>) -> Self {
        let mut bench = Self {
            policy,
            world: World::default(),
            controller: None,
            now: Instant::ZERO,
        };
        bench.restart();
        bench
    }

    /// As the kernel ends a service: nothing is done, and a new one begins.
    fn restart(&mut self) {
        let service = self.controller.take();
        // Dropping does nothing to the world; were that to change, this would hide it.
        std::mem::forget(service);
        let started = self.world.start(self.now, (self.policy)());
        self.controller = Some(started.unwrap());
    }

    fn service(&mut self) -> &mut Controller {
        self.controller.as_mut().unwrap()
    }

    fn ask(&mut self, request: Request) -> Answer {
        let now = self.now;
        self.service().answer(now, request, Some(4711))
    }

    fn submit(&mut self, application: Application, place: Place) -> Answer {
        self.ask(Request::Submit(Submission { application, place }))
    }

    fn admit(&mut self, application: Application) -> Admission {
        match self.submit(application, Place::Caller) {
            Answer::Admitted(admission) => admission,
            answer => panic!("{answer:?}"),
        }
    }

    /// Near limits by cgroup, of those that have one.
    fn near_limits(&self) -> BTreeMap<String, Bytes> {
        let state = self.world.lock();
        let limit =
            |(path, group): (&String, &fake::Group)| Some((path.clone(), group.limits?[0]?));
        state.groups.iter().filter_map(limit).collect()
    }

    fn step(&mut self) {
        self.now = self.now.saturating_add(PERIOD);
        let now = self.now;
        self.service().step(now);
    }

    fn steps(&mut self, count: u32) {
        (0..count).for_each(|_| self.step());
    }
}

fn app(name: &str, priority: u32, mib: u64) -> Application {
    Application {
        name: name.to_owned(),
        priority,
        memory_bytes: Some(mib << 20),
        ..redis()
    }
}

/// With a processor limit; one of weight 1 gets another one now and then.
fn stream(name: &str, priority: u32) -> Application {
    Application {
        slo: Slo::BandwidthBytesPerS(1_000_000_000),
        ..app(name, priority, 10)
    }
}

fn near(world: &World, path: &str) -> Option<Bytes> {
    world.group(path)?.limits?[0]
}

#[test]
fn an_application_is_placed_limited_and_forgotten_when_it_ends() {
    let mut bench = Bench::new();
    let admission = bench.admit(app("redis", 3, 400));
    assert_eq!((admission.cgroup.as_str(), admission.lacks), (REDIS, None));
    let group = bench.world.group(REDIS).unwrap();
    assert!(group.processes.contains(&4711));
    assert_eq!(near(&bench.world, REDIS), Some(Bytes::from_mib(400)));
    bench.step();
    bench
        .world
        .lock()
        .groups
        .get_mut(REDIS)
        .unwrap()
        .processes
        .clear();
    bench.step();
    assert_eq!(bench.world.group(REDIS), None);
    assert!(bench.service().is_empty());
    assert_eq!(bench.world.lock().journal.as_ref().unwrap().entries, []);
}

#[test]
fn a_more_important_one_takes_as_the_plan_predicted() {
    let mut bench = Bench::new();
    bench.admit(app("low", 1, 800));
    let high = app("high", 2, 900);
    let Answer::Planned(plan) = bench.ask(Request::Plan(Plan {
        application: high.clone(),
    })) else {
        panic!("no plan");
    };
    let Planned { kept, yields, .. } = plan;
    assert!(kept);
    assert_eq!(
        near(&bench.world, "/isolane-mem/low"),
        Some(Bytes::from_mib(800)),
        "a plan changes nothing"
    );
    let admission = bench.admit(high);
    assert_eq!(admission.yields, yields);
    expect![[r#"low: [Some(838860800), None] -> [Some(104857600), None]"#]].assert_eq(&format!(
        "{}: {:?} -> {:?}",
        yields[0].name, yields[0].before.tier_bytes, yields[0].after.tier_bytes
    ));
    assert_eq!(
        near(&bench.world, "/isolane-mem/low"),
        Some(Bytes::from_mib(100))
    );
}

#[test]
fn who_may_not_run_leaves_no_trace() {
    let mut bench = Bench::new();
    bench.admit(app("redis", 3, 400));
    let refused = |answer| match answer {
        Answer::Refused(refused) => (refused.code, refused.message),
        answer => panic!("{answer:?}"),
    };
    let (code, message) = refused(bench.submit(app("other", 3, 1), Place::Caller));
    assert_eq!(code, RefusedCode::DuplicatePriority);
    assert_eq!(
        message,
        "priority 3 of other is that of redis; priorities are unique: 4 is free"
    );
    let (code, _) = refused(bench.submit(app("redis", 4, 1), Place::Caller));
    assert_eq!(code, RefusedCode::Duplicate);
    assert_eq!(bench.world.lock().groups.len(), 1);
    let failed = |answer| match answer {
        Answer::Failed(failure) => failure.message,
        answer => panic!("{answer:?}"),
    };
    let much = Application {
        caps: vec![crate::application::Cap {
            tier: 0,
            most: crate::application::amounts::Amount::Bytes(5 << 30),
        }],
        ..app("much", 5, 1)
    };
    assert_eq!(
        failed(bench.submit(much, Place::Caller)),
        "5 GiB of tier 0 is more than there is: it has 1000 MiB: write at most that, or leave the limit out"
    );
    let third = Application {
        far_tiers: vec![2],
        ..app("third", 5, 1)
    };
    assert_eq!(
        failed(bench.submit(third, Place::Caller)),
        "tier 2 does not exist: this machine has tiers 0 to 1"
    );
    let inside = failed(bench.submit(app("inside", 5, 1), Place::Cgroup(REDIS.to_owned())));
    assert!(inside.contains("overlap"), "{inside}");
    let nowhere = failed(bench.submit(app("nowhere", 5, 1), Place::Cgroup("/nowhere".to_owned())));
    assert!(nowhere.contains("is gone"), "{nowhere}");
}

#[test]
fn an_objective_better_than_the_machine_names_its_best() {
    let mut bench = Bench::new();
    bench.service().about.best_latency = Some(Duration::from_ns(120));
    let fast = Application {
        slo: Slo::LatencyPs(100_000),
        ..app("fast", 1, 1)
    };
    let Answer::Refused(refused) = bench.submit(fast, Place::Caller) else {
        panic!("not refused");
    };
    expect!["fast: latency 100ns is better than latency 120ns, the best value measured on this machine: give a weaker objective, or use another machine"]
        .assert_eq(&refused.message);
}

#[test]
fn an_objective_better_than_the_application_alone_is_refused_without_a_profile_of_the_machine() {
    let mut bench = Bench::new();
    let fast = Application {
        slo: Slo::LatencyPs(160_000),
        profile: Some(crate::application::Profile {
            admissible: true,
            local_bytes: 1 << 20,
            cpu_per_mille: 1_000,
            bandwidth_bytes_per_s: 1 << 30,
            best: Slo::LatencyPs(180_000),
        }),
        ..app("fast", 1, 1)
    };
    let Answer::Refused(refused) = bench.submit(fast, Place::Caller) else {
        panic!("not refused");
    };
    assert!(
        refused.message.contains("better than latency 180ns"),
        "{}",
        refused.message
    );
}

#[test]
fn a_foreign_cgroup_gets_its_own_limits_back() {
    let mut bench = Bench::new();
    bench.world.add("/kube/pod", &[7], "70000 100000");
    bench.submit(stream("pod", 1), Place::Cgroup("/kube/pod".to_owned()));
    bench.step();
    assert_eq!(bench.world.group("/kube/pod").unwrap().cpu, "35000 100000");
    bench.ask(Request::Remove(Name {
        name: "pod".to_owned(),
    }));
    let group = bench.world.group("/kube/pod").unwrap();
    assert_eq!((group.cpu.as_str(), group.limits), ("70000 100000", None));
    assert!(group.processes.contains(&7));
    assert_eq!(bench.world.lock().journal.as_ref().unwrap().entries, []);
}

#[test]
fn a_cgroup_made_again_at_the_same_path_is_another_application() {
    let mut bench = Bench::new();
    bench.world.add("/kube/pod", &[7], "max 100000");
    bench.submit(stream("pod", 1), Place::Cgroup("/kube/pod".to_owned()));
    bench.world.add("/kube/pod", &[8], "max 100000");
    bench.step();
    assert!(bench.service().is_empty());
    assert_eq!(bench.world.group("/kube/pod").unwrap().cpu, "max 100000");
}

#[test]
fn a_refused_limit_is_reported_and_tried_again() {
    let mut bench = Bench::new();
    bench.world.lock().refuse.insert("apply", 2);
    bench.admit(app("redis", 3, 400));
    let now = bench.now;
    let problem = bench.service().status(now).applications[0].problem.clone();
    assert!(problem.unwrap().contains("not permitted"));
    assert_eq!(near(&bench.world, REDIS), None);
    bench.steps(15);
    assert_eq!(near(&bench.world, REDIS), Some(Bytes::from_mib(400)));
    let now = bench.now;
    let status = bench.service().status(now);
    assert_eq!(
        (
            status.applications[0].problem.as_ref(),
            status.refused_writes
        ),
        (None, 2)
    );
}

#[test]
fn a_foreign_change_of_cpu_max_is_overruled() {
    let mut bench = Bench::new();
    bench.admit(stream("stream", 1));
    bench.step();
    bench
        .world
        .lock()
        .groups
        .get_mut("/isolane-mem/stream")
        .unwrap()
        .cpu = "max 100000".to_owned();
    bench.steps(40);
    assert_eq!(
        bench.world.group("/isolane-mem/stream").unwrap().cpu,
        "50000 100000"
    );
}

#[test]
fn a_limit_is_part_of_the_managers_own_and_a_later_one_of_theirs_stays() {
    let mut bench = Bench::new();
    bench.world.add("/kube/pod", &[7], "70000 100000");
    bench.submit(app("pod", 1, 100), Place::Cgroup("/kube/pod".to_owned()));
    bench.step();
    let set = |bench: &Bench, text: &str| {
        bench.world.lock().groups.get_mut("/kube/pod").unwrap().cpu = text.to_owned();
    };
    let cpu = |bench: &Bench| bench.world.group("/kube/pod").unwrap().cpu;
    set(&bench, "20000 100000");
    bench.steps(40);
    assert_eq!(
        cpu(&bench),
        "20000 100000",
        "we limit nothing, so theirs stays"
    );
    bench.restart();
    bench.step();
    assert_eq!(cpu(&bench), "20000 100000", "the journal knows theirs");
    // Changed a moment before we let go.
    set(&bench, "30000 100000");
    bench.ask(Request::Remove(Name {
        name: "pod".to_owned(),
    }));
    assert_eq!(cpu(&bench), "30000 100000");
}

#[test]
fn who_runs_already_is_not_in_its_own_way() {
    let mut bench = Bench::mercury();
    bench.world.add("/kube/pod", &[7], "max 100000");
    bench
        .world
        .lock()
        .groups
        .get_mut("/kube/pod")
        .unwrap()
        .pages = Bytes::from_mib(900);
    bench.step();
    bench.submit(app("pod", 1, 900), Place::Cgroup("/kube/pod".to_owned()));
    let limit = |bench: &Bench| near(&bench.world, "/kube/pod");
    assert_eq!(limit(&bench), Some(Bytes::from_mib(900)));
    bench.steps(5);
    assert_eq!(limit(&bench), Some(Bytes::from_mib(900)));
}

#[test]
fn a_restart_starves_no_application() {
    let mut bench = Bench::mercury();
    for (name, priority, mib) in [("low", 1, 600), ("high", 2, 500), ("more", 3, 100)] {
        bench.admit(app(name, priority, mib));
        let path = format!("/isolane-mem/{name}");
        bench.world.lock().groups.get_mut(&path).unwrap().pages = Bytes::from_mib(mib);
        bench.steps(3);
    }
    let before = bench.near_limits();
    assert_eq!(before["/isolane-mem/low"], Bytes::from_mib(400));
    assert_eq!(before["/isolane-mem/high"], Bytes::from_mib(500));
    for _ in 0..4 {
        bench.restart();
        assert_eq!(bench.near_limits(), before);
        bench.steps(3);
        assert_eq!(bench.near_limits(), before);
    }
}

#[test]
fn an_old_picture_changes_no_limit() {
    let mut bench = Bench::new();
    bench.admit(stream("stream", 1));
    let cpu = |bench: &Bench| bench.world.group("/isolane-mem/stream").unwrap().cpu;
    let weighted = Application {
        weight: 1,
        ..stream("other", 2)
    };
    bench.admit(weighted);
    let other = |bench: &Bench| bench.world.group("/isolane-mem/other").unwrap().cpu;
    let (first, second) = (cpu(&bench), other(&bench));
    bench.world.lock().sensors_old_ms = 401;
    bench.steps(9);
    assert_eq!((cpu(&bench), other(&bench)), (first, second.clone()));
    bench.world.lock().sensors_old_ms = 400;
    bench.steps(9);
    assert_ne!(other(&bench), second);
}

#[test]
fn removed_applications_that_run_on_do_not_fill_the_journal() {
    let mut bench = Bench::new();
    let most = crate::journal::ENTRIES_MAX;
    for index in 0..most {
        let name = format!("app{index}");
        bench.admit(app(&name, 1, 1));
        bench.ask(Request::Remove(Name { name }));
    }
    let Answer::Refused(refused) = bench.submit(app("more", 1, 1), Place::Caller) else {
        panic!("not refused");
    };
    assert_eq!(refused.code, RefusedCode::Full);
    let ended = format!("{}/app7", crate::cgroup::own::PARENT);
    bench
        .world
        .lock()
        .groups
        .get_mut(&ended)
        .unwrap()
        .processes
        .clear();
    bench.step();
    bench.admit(app("more", 1, 1));
}

#[test]
fn without_a_journal_nothing_is_done() {
    let mut bench = Bench::new();
    bench.world.lock().refuse.insert("save", 1);
    let Answer::Failed(failure) = bench.submit(app("redis", 3, 400), Place::Caller) else {
        panic!("no failure");
    };
    assert_eq!(failure.code, FailureCode::Machine);
    assert_eq!(bench.world.lock().groups.len(), 0);
    bench.admit(app("redis", 3, 400));
}

#[test]
fn objectives_are_judged_by_fresh_readings_only() {
    let mut bench = Bench::new();
    bench.admit(app("redis", 3, 400));
    bench.step();
    let now = bench.now;
    assert_eq!(bench.service().status(now).applications[0].slo_met, None);
    bench.world.lock().latency.insert(REDIS.to_owned(), 150_000);
    bench.step();
    bench.world.lock().latency.insert(REDIS.to_owned(), 170_000);
    bench.step();
    let now = bench.now;
    let status = bench.service().status(now);
    let shown = &status.applications[0];
    assert_eq!(
        (shown.slo_met, shown.slo_met_share),
        (Some(false), Some(0.5))
    );
    assert_eq!(shown.latency_ns.as_ref().unwrap().source, "probe");
}

#[test]
fn closing_lifts_limits_and_the_next_service_takes_up() {
    let mut bench = Bench::new();
    bench.admit(stream("stream", 1));
    bench.step();
    let now = bench.now;
    bench.service().close();
    let group = bench.world.group("/isolane-mem/stream").unwrap();
    assert_eq!(
        (group.cpu.as_str(), group.limits, group.processes.len()),
        ("max 100000", None, 1)
    );
    bench.restart();
    bench.step();
    assert_eq!(bench.service().status(now).applications[0].name, "stream");
    assert_ne!(
        bench.world.group("/isolane-mem/stream").unwrap().cpu,
        "max 100000"
    );
}

#[test]
fn a_stray_of_ours_is_removed_if_empty_and_reported_if_not() {
    let mut bench = Bench::new();
    bench.world.add("/isolane-mem/empty", &[], "max 100000");
    bench.world.add("/isolane-mem/alive", &[9], "max 100000");
    bench.restart();
    assert_eq!(bench.world.group("/isolane-mem/empty"), None);
    let now = bench.now;
    let problems = bench.service().status(now).problems;
    assert!(
        problems.len() == 1 && problems[0].contains("/isolane-mem/alive"),
        "{problems:?}"
    );
    assert!(
        bench
            .world
            .group("/isolane-mem/alive")
            .unwrap()
            .processes
            .contains(&9)
    );
}

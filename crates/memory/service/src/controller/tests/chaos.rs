//! Random events in a random order.
//!
//! Goal: applications arrive, end and vanish, writes fail, the service is killed in the middle of a call. After the
//! faults, limits are those of the policy, no other group has limits, none of our groups is left behind, and the only
//! effect on a process is the cgroup that it entered. Method: random events on [`crate::controller::fake`], then thirty periods
//! without faults, then a restart and as many again.

use super::*;
use crate::cgroup::own;
use crate::controller::fake::{CALLS, survives};
use isolane_memory_policy::mercury::CPU_ONE;
use proptest::prelude::*;

/// What may happen.
#[derive(Clone, Debug)]
enum Event {
    Submit {
        name: u8,
        priority: u8,
        is_stream: bool,
        is_own: bool,
        mib: u16,
    },
    Remove(u8),
    Plan {
        name: u8,
        priority: u8,
    },
    End(u8),
    Vanish(u8),
    MakeForeign(u8),
    Fork(u8),
    Steps(u8),
    Refuse(&'static str, u8),
    Close,
    Kill,
    KillAt(u8),
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn event() -> impl Strategy<Value = Event> {
    let name = 0u8..4;
    prop_oneof![
        4 => (name.clone(), 0u8..5, any::<bool>(), any::<bool>(), 1u16..1_200).prop_map(
            |(name, priority, is_stream, is_own, mib)| Event::Submit { name, priority, is_stream, is_own, mib }
        ),
        1 => name.clone().prop_map(Event::Remove),
        1 => (name.clone(), 0u8..5).prop_map(|(name, priority)| Event::Plan { name, priority }),
        2 => name.clone().prop_map(Event::End),
        1 => name.clone().prop_map(Event::Vanish),
        2 => name.clone().prop_map(Event::MakeForeign),
        1 => name.prop_map(Event::Fork),
        3 => (1u8..8).prop_map(Event::Steps),
        2 => (proptest::sample::select(CALLS.to_vec()), 1u8..4).prop_map(|(kind, count)| Event::Refuse(kind, count)),
        1 => Just(Event::Close),
        1 => Just(Event::Kill),
        3 => (1u8..40).prop_map(Event::KillAt),
    ]
}

fn foreign(name: u8) -> String {
    format!("/kube/{}", NAMES[usize::from(name)])
}

impl Bench {
    /// One event. The service may be killed in it; then another one starts.
    fn happen(&mut self, event: &Event, process: u32) {
        let name = |name: &u8| NAMES[usize::from(*name)].to_owned();
        let paths = |name: &u8| {
            [
                format!("{}/{}", own::PARENT, NAMES[usize::from(*name)]),
                foreign(*name),
            ]
        };
        match event {
            Event::Submit {
                name: at,
                priority,
                is_stream,
                is_own,
                mib,
            } => {
                let application = Application {
                    name: name(at),
                    memory_bytes: Some(u64::from(*mib) << 20),
                    weight: 1,
                    ..if *is_stream {
                        stream("x", (*priority).into())
                    } else {
                        app("x", (*priority).into(), 1)
                    }
                };
                let place = if *is_own {
                    Place::Caller
                } else {
                    Place::Cgroup(foreign(*at))
                };
                let request = Request::Submit(Submission { application, place });
                let now = self.now;
                self.living(|controller| {
                    controller.answer(now, request, Some(process));
                });
            }
            Event::Remove(at) => {
                let (now, request) = (self.now, Request::Remove(Name { name: name(at) }));
                self.living(|controller| {
                    controller.answer(now, request, None);
                });
            }
            Event::Plan { name: at, priority } => {
                let application = app(&name(at), (*priority).into(), 100);
                let (now, request) = (self.now, Request::Plan(Plan { application }));
                self.living(|controller| {
                    controller.answer(now, request, None);
                });
            }
            Event::End(at) => {
                for path in paths(at) {
                    if let Some(group) = self.world.lock().groups.get_mut(&path) {
                        group.processes.clear();
                    }
                }
            }
            Event::Vanish(at) => {
                for path in paths(at) {
                    self.world.lock().groups.remove(&path);
                }
            }
            Event::MakeForeign(at) => self.world.add(&foreign(*at), &[process], "70000 100000"),
            Event::Fork(at) => {
                for path in paths(at) {
                    let mut state = self.world.lock();
                    if let Some(group) = state
                        .groups
                        .get_mut(&path)
                        .filter(|group| !group.processes.is_empty())
                    {
                        group.processes.insert(process);
                    }
                }
            }
            Event::Steps(count) => {
                for _ in 0..*count {
                    self.now = self.now.saturating_add(PERIOD);
                    let now = self.now;
                    self.living(|controller| controller.step(now));
                }
            }
            Event::Refuse(kind, count) => {
                self.world.lock().refuse.insert(kind, (*count).into());
            }
            Event::Close => {
                self.living(Controller::close);
                self.begin();
            }
            Event::Kill => self.begin(),
            Event::KillAt(calls) => self.world.lock().dies_in = Some((*calls).into()),
        }
    }

    /// Does something that the service may not live through.
    fn living(&mut self, work: impl FnOnce(&mut Controller)) {
        let controller = self.controller.as_mut().unwrap();
        if survives(|| work(controller)).is_none() {
            self.begin();
        }
    }

    /// A new service, which may be killed as well while it starts, or find that the journal cannot be written.
    fn begin(&mut self) {
        std::mem::forget(self.controller.take());
        while self.controller.is_none() {
            let (world, now, policy) = (self.world.clone(), self.now, self.policy);
            let started = survives(|| world.start(now, policy()));
            self.controller = started.and_then(Result::ok);
        }
    }

    /// What must hold once nothing fails any more.
    fn check(&mut self) {
        {
            let mut state = self.world.lock();
            state.refuse.clear();
            state.dies_in = None;
        }
        self.steps(30);
        let world = self.world.clone();
        let state = world.lock();
        let controller = self.controller.as_ref().unwrap();
        let controlled: BTreeMap<&str, &Controlled> = controller
            .apps
            .values()
            .map(|app| (app.entry.cgroup.as_str(), app))
            .collect();
        for (path, group) in &state.groups {
            let is_ours = path.starts_with(own::PARENT);
            assert!(
                !is_ours || !group.processes.is_empty(),
                "{path} is left behind"
            );
            let Some(app) = controlled.get(path.as_str()) else {
                assert_eq!(
                    group.limits, None,
                    "{path} is not under control but limited"
                );
                let free = if is_ours {
                    "max 100000"
                } else {
                    group.cpu_before.as_str()
                };
                assert_eq!(group.cpu, free, "{path} is not under control but limited");
                continue;
            };
            let limits = controller.parts.policy.limits(AppId(app.entry.id)).unwrap();
            assert_eq!(app.wanted, limits, "{path}");
            assert_eq!(group.limits, Some(limits.tiers), "{path}");
            let cpu = match limits.cpu {
                CPU_ONE => group.cpu_before.clone(),
                cpu => crate::cgroup::cpu_max_below(&group.cpu_before, cpu, 1),
            };
            assert_eq!(group.cpu, cpu, "{path}");
        }
        assert!(
            controlled
                .keys()
                .all(|path| state.groups.contains_key(*path)),
            "a vanished one is under control"
        );
        let journal = state
            .journal
            .as_ref()
            .map_or(&[][..], |journal| &journal.entries);
        let named: std::collections::BTreeSet<&str> =
            journal.iter().map(|entry| entry.cgroup.as_str()).collect();
        for path in state
            .groups
            .keys()
            .filter(|path| path.starts_with(own::PARENT))
        {
            assert!(named.contains(path.as_str()), "{path} is in no journal");
        }
        assert_eq!(journal.len(), named.len(), "one entry for each cgroup");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn after_any_events_the_machine_is_in_order(events in prop::collection::vec(event(), 1..60)) {
        let mut bench = Bench::new();
        for (index, event) in events.iter().enumerate() {
            let process = 1_000 + u32::try_from(index).unwrap();
            bench.happen(event, process);
        }
        bench.check();
        bench.begin();
        bench.check();
    }
}

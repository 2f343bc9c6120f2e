//! Property tests over applications, readings and orders of events.

use super::*;
use proptest::prelude::*;

const MB: u64 = 1_000_000;
const NEAR: u64 = 1_000 * MB;

#[derive(Clone, Debug)]
enum Event {
    Arrive(AppSpec),
    Depart(u8),
    Step(Vec<Fake>, f64),
}

/// Readings of one application, in parts of something.
#[derive(Clone, Copy, Debug)]
struct Fake {
    near: u64,
    far: u64,
    latency_ns: u64,
    bandwidth: u64,
    age_ms: u64,
}

fn objective() -> impl Strategy<Value = Objective> {
    prop_oneof![
        (50u64..400).prop_map(|ns| Objective::Latency(Duration::from_ns(ns))),
        (1u64..200).prop_map(|gb| Objective::Bandwidth(gb * 1_000 * MB)),
        Just(Objective::BestEffort),
    ]
}

fn app() -> impl Strategy<Value = AppSpec> {
    let profile = (0u64..=1_000, 1u32..=CPU_ONE, 1u64..100_000, any::<bool>());
    (
        0u32..8,
        0u32..12,
        1u32..4,
        1u64..2_000,
        objective(),
        prop::option::of(profile),
        prop::option::of(0u64..1_000),
    )
        .prop_map(
            |(id, priority, weight, footprint, objective, profile, cap)| AppSpec {
                id: AppId(id),
                name: format!("app{id}"),
                objective,
                priority,
                weight,
                footprint: Bytes::new(footprint * MB),
                profile: profile.map(|(local, cpu, bandwidth, admissible)| Profile {
                    admissible,
                    local: Bytes::new(local.min(footprint) * MB),
                    cpu,
                    bandwidth: bandwidth * MB,
                    best: objective,
                }),
                caps: [cap.map(|cap| Bytes::new(cap * MB)), None, None, None],
                far_tiers: Vec::new(),
            },
        )
}

fn event() -> impl Strategy<Value = Event> {
    let fake = (
        0u64..800,
        0u64..800,
        20u64..1_000,
        0u64..300_000,
        prop_oneof![4 => Just(0u64), 1 => Just(500)],
    )
        .prop_map(|(near, far, latency_ns, bandwidth, age_ms)| Fake {
            near,
            far,
            latency_ns,
            bandwidth,
            age_ms,
        });
    prop_oneof![
        2 => app().prop_map(Event::Arrive),
        1 => (0u8..8).prop_map(Event::Depart),
        6 => (prop::collection::vec(fake, 8), 0f64..1e6).prop_map(|(fakes, faults)| Event::Step(fakes, faults)),
    ]
}

fn reading<T>(value: T, age_ms: u64) -> Option<Reading<T>> {
    Some(Reading {
        value,
        age: Duration::from_ms(age_ms),
        source: Source::Model,
    })
}

fn observation(fakes: &[Fake], faults: f64) -> Observation {
    let apps: Vec<AppView> = fakes
        .iter()
        .enumerate()
        .map(|(id, fake)| AppView {
            id: AppId(id as u32),
            held: [
                Bytes::new(fake.near * MB),
                Bytes::new(fake.far * MB),
                Bytes::ZERO,
                Bytes::ZERO,
            ],
            latency: reading(Duration::from_ns(fake.latency_ns), fake.age_ms),
            bandwidth: reading(fake.bandwidth * MB, fake.age_ms),
            cpu_used: None,
        })
        .collect();
    let used = fakes.iter().map(|fake| Bytes::new(fake.near * MB)).sum();
    Observation {
        tiers: vec![
            TierView {
                capacity: Bytes::new(NEAR),
                used,
                bandwidth: None,
            },
            TierView {
                capacity: Bytes::new(4 * NEAR),
                ..TierView::default()
            },
        ],
        hint_faults_per_s: reading(faults, 0),
        apps,
    }
}

fn policy(sharing: Sharing) -> Mercury {
    let thresholds = Thresholds {
        local_bandwidth: 100_000 * MB,
        hint_faults_per_s: 300_000.0,
    };
    let mut options = MercuryOptions::new(thresholds, Bytes::new(NEAR));
    options.sharing = sharing;
    Mercury::new(options).unwrap()
}

fn sharing() -> impl Strategy<Value = Sharing> {
    prop_oneof![Just(Sharing::Strict), Just(Sharing::Weighted)]
}

/// What the caller knows: the applications that run, and the limits that it received.
#[derive(Default)]
struct Ledger {
    specs: std::collections::BTreeMap<AppId, AppSpec>,
    announced: std::collections::BTreeMap<AppId, Limits>,
}

impl Ledger {
    fn take(&mut self, mercury: &mut Mercury, sharing: Sharing) -> Result<(), TestCaseError> {
        while let Some(action) = mercury.poll_action() {
            if action.reason == Reason::Departed {
                prop_assert_eq!(action.limits, Limits::NONE);
                self.announced.remove(&action.app);
                continue;
            }
            let spec = &self.specs[&action.app];
            let before = self.announced.insert(action.app, action.limits);
            prop_assert_ne!(before, Some(action.limits), "reported twice");
            prop_assert!((10..=CPU_ONE).contains(&action.limits.cpu) || spec.profile.is_some());
            if matches!(spec.objective, Objective::Latency(_)) {
                prop_assert_eq!(action.limits.cpu, CPU_ONE, "latency is never throttled");
            }
            if let (Some(cap), Some(near)) = (spec.caps[0], action.limits.tiers[0]) {
                prop_assert!(near <= cap, "{:?} above its cap {:?}", near, cap);
            }
            let to = match action.reason {
                Reason::YieldsMemory(to) | Reason::YieldsBandwidth(to) => to,
                _ => continue,
            };
            let below = spec.priority < self.specs[&to].priority;
            let open = spec.objective == Objective::BestEffort || sharing == Sharing::Weighted;
            prop_assert!(below || open, "{:?} yields to {:?}", spec, to);
        }
        for (&id, &limits) in &self.announced {
            prop_assert_eq!(mercury.limits(id), Some(limits));
        }
        Ok(())
    }
}

proptest! {
    /// Goal: for any readings, an important application never yields to an unimportant one, limits stay in their
    /// ranges, the caller receives every change once, and an arrival does what its plan says.
    #[test]
    fn objectives_hold_for_every_history(sharing in sharing(), events in prop::collection::vec(event(), 1..60)) {
        let mut mercury = policy(sharing);
        let mut ledger = Ledger::default();
        let mut now = Instant::ZERO;
        let mut seen = observation(&[], 0.0);
        for event in events {
            now += PERIOD;
            match event {
                Event::Arrive(spec) => {
                    let plan = mercury.plan(&spec, &seen);
                    let id = spec.id;
                    let verdict = mercury.arrive(now, spec.clone(), &seen);
                    prop_assert_eq!(&verdict, &plan.verdict);
                    if !matches!(verdict, Verdict::Refused(_)) {
                        prop_assert_eq!(mercury.limits(id), Some(plan.limits));
                        ledger.specs.insert(id, spec);
                    }
                }
                Event::Depart(id) => {
                    mercury.depart(now, AppId(u32::from(id)));
                    ledger.take(&mut mercury, sharing)?;
                    ledger.specs.remove(&AppId(u32::from(id)));
                }
                Event::Step(fakes, faults) => {
                    seen = observation(&fakes, faults);
                    mercury.step(now, &seen);
                }
            }
            ledger.take(&mut mercury, sharing)?;
        }
    }

    /// Against the obvious: megabyte by megabyte, from what is free, then from the least important. Without readings there
    /// are no faults to watch, so memory alone decides.
    #[test]
    fn near_memory_goes_as_if_megabyte_by_megabyte(apps in prop::collection::vec(app(), 1..10)) {
        let mut mercury = policy(Sharing::Strict);
        let mut seen = observation(&[], 0.0);
        seen.hint_faults_per_s = None;
        let mut model: Vec<(u32, AppId, bool, u64)> = Vec::new();
        for mut spec in apps {
            spec.objective = match spec.objective {
                Objective::Bandwidth(_) => Objective::BestEffort,
                other => other,
            };
            let verdict = mercury.arrive(Instant::ZERO, spec.clone(), &seen);
            if matches!(verdict, Verdict::Refused(_)) {
                continue;
            }
            let open = spec.objective == Objective::BestEffort;
            let cap = spec.caps[0].map_or(u64::MAX, Bytes::get);
            let wants = match (open, &spec.profile) {
                (true, _) => 0,
                (false, Some(profile)) => profile.local.get().min(cap),
                (false, None) => spec.footprint.get().min(cap),
            };
            let mut got = 0;
            while got < wants {
                let taken: u64 = model.iter().map(|entry| entry.3).sum::<u64>() + got;
                if taken + MB > NEAR {
                    let victim = model
                        .iter_mut()
                        .filter(|entry| (entry.2 || entry.0 < spec.priority) && entry.3 > 0)
                        .min_by_key(|entry| (!entry.2, entry.0));
                    let Some(victim) = victim else { break };
                    victim.3 -= MB;
                }
                got += MB;
            }
            if open {
                let taken: u64 = model.iter().map(|entry| entry.3).sum();
                got = (NEAR - taken).min(spec.footprint.get()).min(cap);
            }
            model.push((spec.priority, spec.id, open, got));
            for (_, id, _, near) in &model {
                let limit = mercury.limits(*id).unwrap().tiers[0];
                prop_assert_eq!(limit, Some(Bytes::new(*near)), "{:?}", id);
            }
        }
    }

    /// The same history gives the same actions.
    #[test]
    fn histories_repeat(events in prop::collection::vec(event(), 1..30)) {
        let run = || {
            let mut mercury = policy(Sharing::Strict);
            let mut actions = Vec::new();
            let mut now = Instant::ZERO;
            for event in &events {
                now += PERIOD;
                match event {
                    Event::Arrive(spec) => {
                        mercury.arrive(now, spec.clone(), &observation(&[], 0.0));
                    }
                    Event::Depart(id) => mercury.depart(now, AppId(u32::from(*id))),
                    Event::Step(fakes, faults) => mercury.step(now, &observation(fakes, *faults)),
                }
                actions.extend(std::iter::from_fn(|| mercury.poll_action()));
            }
            actions
        };
        prop_assert_eq!(run(), run());
    }
}

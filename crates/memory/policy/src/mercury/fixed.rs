//! Two baselines: limits by hand, and first come, first served.
//!
//! [`Fixed`] gives every application the limits it came with and never changes them. [`Fcfs`] gives every application
//! what profiling it alone has found, until near memory or bandwidth runs out, and takes nothing back: it knows
//! neither importance nor interference (mercury 5.5.3). Units: bytes, bytes per second.
//! Limits: neither looks at readings. Source: mercury 5.5.3; `Fixed` is ours.

use super::state::{App, Book};
use super::{
    Action, AppId, AppSpec, CPU_ONE, Limits, MemoryPolicy, Objective, Observation, Reason, Refusal,
    Shortfall, Verdict, tiers,
};
use isolane_common_quantities::units::{Bytes, Instant};
use std::collections::BTreeMap;

/// What both policies do after an arrival: limits stay until the application departs.
macro_rules! keeps_limits {
    () => {
        fn depart(&mut self, _: Instant, app: AppId) {
            if self.book.remove(app).is_some() {
                self.pending.push(departed(app));
            }
        }

        fn step(&mut self, _: Instant, _: &Observation) {}

        fn poll_action(&mut self) -> Option<Action> {
            take_first(&mut self.pending)
        }

        fn limits(&self, app: AppId) -> Option<Limits> {
            self.book.find(app).map(|app| app.limits)
        }
    };
}

/// Limits fixed by hand: those of the table, else an application's own caps.
#[derive(Clone, Debug, Default)]
pub struct Fixed {
    table: BTreeMap<AppId, Limits>,
    book: Book,
    pending: Vec<Action>,
}

impl Fixed {
    /// With these limits; an application that is not among them has its caps as limits, and all its processor time.
    pub fn new(table: BTreeMap<AppId, Limits>) -> Self {
        Self {
            table,
            ..Self::default()
        }
    }
}

impl MemoryPolicy for Fixed {
    fn arrive(&mut self, _: Instant, spec: AppSpec, _: &Observation) -> Verdict {
        if self.book.find(spec.id).is_some() {
            return Verdict::Refused(Refusal::Duplicate);
        }
        let own = Limits {
            tiers: spec.caps,
            cpu: CPU_ONE,
        };
        let limits = self.table.get(&spec.id).copied().unwrap_or(own);
        let mut app = App::new(spec, limits);
        app.reason = Reason::Fixed;
        self.book.insert(app);
        self.book.flush(&mut self.pending);
        Verdict::Admitted
    }

    keeps_limits!();
}

/// First come, first served.
#[derive(Clone, Debug, Default)]
pub struct Fcfs {
    /// Bandwidth of the near tier in bytes per second; `None` counts memory only.
    bandwidth: Option<u64>,
    book: Book,
    pending: Vec<Action>,
}

impl Fcfs {
    /// On a machine whose near tier carries so much, in bytes per second; `None` counts memory only.
    pub fn new(bandwidth: Option<u64>) -> Self {
        Self {
            bandwidth,
            ..Self::default()
        }
    }

    fn verdict(&self, spec: &AppSpec, seen: &Observation) -> Verdict {
        if self.book.find(spec.id).is_some() {
            return Verdict::Refused(Refusal::Duplicate);
        }
        if let Some(profile) = spec.profile.as_ref().filter(|profile| !profile.admissible) {
            return Verdict::Refused(Refusal::Inadmissible(profile.best));
        }
        let most = tiers::most(spec, seen);
        if spec.footprint.get() > most {
            return Verdict::Refused(Refusal::TooLarge {
                footprint: spec.footprint,
                capacity: Bytes::new(most),
            });
        }
        let others = self.book.apps.iter().map(|app| app.claim(None)).sum();
        let near = seen.tiers.first().map_or(0, |tier| tier.capacity.get());
        let free = near.saturating_sub(others);
        let taken: u64 = self.book.apps.iter().map(|app| bandwidth(&app.spec)).sum();
        let left = self
            .bandwidth
            .map_or(u64::MAX, |all| all.saturating_sub(taken));
        let lacks = Shortfall {
            local: Bytes::new(near_need(spec).saturating_sub(free)),
            bandwidth: bandwidth(spec).saturating_sub(left),
        };
        if lacks == Shortfall::default() {
            Verdict::Admitted
        } else {
            Verdict::Refused(Refusal::Exhausted(lacks))
        }
    }
}

impl MemoryPolicy for Fcfs {
    fn arrive(&mut self, _: Instant, spec: AppSpec, seen: &Observation) -> Verdict {
        let verdict = self.verdict(&spec, seen);
        if verdict == Verdict::Admitted {
            let cpu = spec.profile.map_or(CPU_ONE, |profile| profile.cpu);
            let limits = tiers::start(&spec, near_need(&spec), cpu);
            self.book.insert(App::new(spec, limits));
            self.book.flush(&mut self.pending);
        }
        verdict
    }

    keeps_limits!();
}

/// Near memory that an application requests: the profiled amount, else all its memory; none for best effort.
pub(super) fn near_need(spec: &AppSpec) -> u64 {
    let need = match (spec.objective, &spec.profile) {
        (Objective::BestEffort, _) => 0,
        (_, Some(profile)) => profile.local.get(),
        (_, None) => spec.footprint.get(),
    };
    need.min(spec.caps[0].map_or(u64::MAX, Bytes::get))
}

/// Bandwidth it will draw: what profiling found, else its objective.
fn bandwidth(spec: &AppSpec) -> u64 {
    match (&spec.profile, spec.objective) {
        (Some(profile), _) => profile.bandwidth,
        (None, Objective::Bandwidth(aim)) => aim,
        (None, _) => 0,
    }
}

/// The last word on an application.
pub(super) fn departed(app: AppId) -> Action {
    Action {
        app,
        limits: Limits::NONE,
        reason: Reason::Departed,
    }
}

pub(super) fn take_first(pending: &mut Vec<Action>) -> Option<Action> {
    (!pending.is_empty()).then(|| pending.remove(0))
}

//! A small policy for tests: near memory by strict priority, and processor limits that change now and then.

use isolane_common_quantities::units::{Bytes, Instant};
use isolane_memory_policy::mercury::{
    Action, AppId, AppSpec, CPU_ONE, Limits, MemoryPolicy, Objective, Observation, Reason, Refusal,
    Shortfall, TIERS_MAX, Verdict,
};
use std::collections::{BTreeMap, VecDeque};

/// The policy.
#[derive(Clone, Debug, Default)]
pub(super) struct Strict {
    apps: BTreeMap<AppId, (AppSpec, Limits)>,
    actions: VecDeque<Action>,
    steps: u32,
}

impl Strict {
    fn share(&mut self, reason: Reason) {
        let mut order: Vec<AppId> = self.apps.keys().copied().collect();
        order.sort_by_key(|id| std::cmp::Reverse(self.apps[id].0.priority));
        let mut left = crate::controller::fake::NEAR;
        for id in order {
            let (spec, limits) = self.apps.get_mut(&id).unwrap();
            let near = spec.footprint.min(left);
            left = left.saturating_sub(near);
            let cpu = match spec.objective {
                Objective::Bandwidth(_) if spec.weight == 1 => 400 + 100 * (self.steps / 3 % 7),
                Objective::Bandwidth(_) => 500,
                _ => CPU_ONE,
            };
            let mut tiers = [None; TIERS_MAX];
            tiers[0] = Some(near);
            let wanted = Limits { tiers, cpu };
            if *limits != wanted {
                *limits = wanted;
                self.actions.push_back(Action {
                    app: id,
                    limits: wanted,
                    reason,
                });
            }
        }
    }
}

impl MemoryPolicy for Strict {
    fn arrive(&mut self, _now: Instant, spec: AppSpec, _seen: &Observation) -> Verdict {
        let same = self
            .apps
            .values()
            .find(|(other, _)| other.priority == spec.priority);
        if let Some((other, _)) = same {
            return Verdict::Refused(Refusal::DuplicatePriority(other.id));
        }
        let (id, footprint) = (spec.id, spec.footprint);
        self.apps.insert(id, (spec, Limits::NONE));
        self.share(Reason::Admitted);
        let near = self.apps[&id].1.tiers[0].unwrap_or(Bytes::ZERO);
        match footprint.saturating_sub(near) {
            Bytes::ZERO => Verdict::Admitted,
            local => Verdict::BestEffort(Shortfall {
                local,
                bandwidth: 0,
            }),
        }
    }

    fn depart(&mut self, _now: Instant, app: AppId) {
        self.apps.remove(&app);
        self.share(Reason::Leftover);
    }

    fn step(&mut self, _now: Instant, _seen: &Observation) {
        self.steps += 1;
        self.share(Reason::Surplus);
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn limits(&self, app: AppId) -> Option<Limits> {
        self.apps.get(&app).map(|(_, limits)| *limits)
    }
}

//! Applications on the machine: arrival, memory accesses, changes and end.
//!
//! Units: bytes, seconds; rates in requests per nanosecond. Method: new memory is near while there is room and the
//! application's limit allows it, and farther otherwise (mercury 5.5.1: "allocate on fast memory tier first");
//! interleaved applications get their fixed shares.

use crate::balance::Demand;
use crate::pages::Pages;
use crate::settings::{Access, Machine};
use isolane_common_quantities::units::Duration;
use isolane_memory_policy::mercury::{CPU_ONE, Limits, Reason, TIERS_MAX};
use isolane_memory_scenario::application::MemApplication;
use isolane_memory_scenario::model::{MemApp, Placement};

/// An application in the run.
#[derive(Clone, Debug)]
pub(crate) struct App<'a> {
    pub(crate) spec: &'a MemApp,
    pub(crate) access: Access,
    pub(crate) operation: String,
    pub(crate) phase: Phase,
    pub(crate) pages: Pages,
    pub(crate) limits: Limits,
    pub(crate) reason: Option<Reason>,
    pub(crate) verdict: Option<&'static str>,
    /// The message for a rejected application or one on best effort.
    pub(crate) verdict_reason: Option<String>,
    /// Share of its cores that have work.
    pub(crate) activity: f64,
    /// Requests per nanosecond, in the last step.
    pub(crate) rate: f64,
    /// Latency that its loads see, nanoseconds, in the last step.
    pub(crate) latency: f64,
    /// Hint faults per second, in the last step.
    pub(crate) faults: f64,
    /// Share of its processor time that went into faults, in the last step.
    pub(crate) stalled: f64,
    /// Bytes moved so far, nearer and farther.
    pub(crate) promoted: f64,
    pub(crate) demoted: f64,
}

/// Where an application is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Waiting,
    Running,
    Gone,
}

impl<'a> App<'a> {
    pub(crate) fn new(spec: &'a MemApp) -> Self {
        let model = MemApplication::named(&spec.kind)
            .expect("the parser knows the applications' names from the same list");
        let access = Access::new(&model);
        Self {
            pages: Pages::new(access.skew),
            spec,
            access,
            operation: model.operation,
            phase: Phase::Waiting,
            limits: Limits::NONE,
            reason: None,
            verdict: None,
            verdict_reason: None,
            activity: 0.0,
            rate: 0.0,
            latency: 0.0,
            faults: 0.0,
            stalled: 0.0,
            promoted: 0.0,
            demoted: 0.0,
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// Whether the kernel and policies may move its pages.
    pub(crate) fn is_managed(&self) -> bool {
        self.spec.placement == Placement::Managed
    }

    /// Share of its processor time that it may use.
    pub(crate) fn cpu_share(&self) -> f64 {
        f64::from(self.limits.cpu) / f64::from(CPU_ONE)
    }

    /// Share of its processor time that it uses.
    pub(crate) fn cpu_used(&self) -> f64 {
        self.activity.min(self.cpu_share())
    }

    /// Visits of pages per second.
    pub(crate) fn visits(&self) -> f64 {
        self.rate * 1e9 / self.access.lines
    }

    /// Bytes that it may still put into `tier`.
    pub(crate) fn room(&self, tier: usize) -> f64 {
        match self.limits.tiers[tier] {
            Some(limit) if self.is_managed() => {
                (limit.get() as f64 - self.pages.held(tier)).max(0.0)
            }
            _ => f64::INFINITY,
        }
    }

    /// Its load on the memory system.
    pub(crate) fn demand(&self) -> Demand {
        let busy = f64::from(self.spec.cores) * self.cpu_used() * (1.0 - self.stalled);
        Demand {
            requests: busy * self.access.requests,
            think: self.access.think,
            mix: self.pages.mix(),
        }
    }
}

/// Free bytes of each tier.
pub(crate) fn free(machine: &Machine, apps: &[App<'_>]) -> [f64; TIERS_MAX] {
    let mut free = [0.0; TIERS_MAX];
    for (index, tier) in machine.tiers.iter().enumerate() {
        let held: f64 = apps.iter().map(|app| app.pages.held(index)).sum();
        free[index] = (tier.capacity - held).max(0.0);
    }
    free
}

/// Updates the load of the running application `index` to time `now`.
pub(crate) fn follow(machine: &Machine, apps: &mut [App<'_>], index: usize, now: Duration) {
    let load = apps[index].spec.load(now);
    apps[index].activity = load.activity;
    let grown = load.working_set.get() as f64 - apps[index].pages.bytes();
    if grown < -1.0 {
        apps[index].pages.remove(-grown);
    } else if grown > 1.0 {
        touch(machine, apps, index, grown);
    }
}

/// Gives application `index` new memory.
fn touch(machine: &Machine, apps: &mut [App<'_>], index: usize, bytes: f64) {
    let free = free(machine, apps);
    let app = &mut apps[index];
    let mut left = bytes;
    if let Placement::Interleaved(far) = app.spec.placement {
        for (tier, part) in [(0, 1.0 - far), (1, far)] {
            let here = (bytes * part).min(free[tier]);
            app.pages.add(tier, here);
            left -= here;
        }
    }
    for (tier, free) in free.iter().enumerate().take(machine.tiers.len()) {
        let held = app.pages.held(tier);
        let room = match app.limits.tiers[tier] {
            Some(limit) if app.is_managed() => (limit.get() as f64 - held).max(0.0),
            _ => f64::INFINITY,
        };
        let here = left.min(*free).min(room).max(0.0);
        app.pages.add(tier, here);
        left -= here;
    }
    // Limits may leave no tier open while memory is free somewhere: the kernel never refuses memory for that.
    for (tier, free) in free.iter().enumerate().rev() {
        let here = left.min(*free).max(0.0);
        app.pages.add(tier, here);
        left -= here;
    }
}

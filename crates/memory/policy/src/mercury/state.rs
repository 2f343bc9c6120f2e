//! Mercury's state of each application, and the order in which it handles applications.
//!
//! Units: bytes, thousandths of processor time; moments are counts of steps.
//! Limits: the book is a vector in ascending order of priority: a machine has at most hundreds of applications.

use super::{
    Action, AppId, AppSpec, AppView, CPU_ONE, Limits, Objective, Observation, Reading, Reason,
};
use isolane_common_quantities::units::Instant;

/// Waiting that doubles with each failure, in steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Backoff {
    wait: u64,
    until: u64,
}

impl Backoff {
    /// Five minutes: rare enough to be calm, and a change that nothing else shows is found in the end.
    const MOST: u64 = 1_500;

    pub(super) fn ready(&self, step: u64) -> bool {
        step >= self.until
    }

    /// Not before `steps` from now.
    pub(super) fn pause(&mut self, step: u64, steps: u64) {
        self.until = self.until.max(step + steps);
    }

    /// It helped for a while: wait half as long as the last time, at least `least`.
    pub(super) fn again(&mut self, step: u64, least: u64) {
        self.wait = (self.wait / 2).max(least);
        self.pause(step, self.wait);
    }

    /// It did not help: wait twice as long as the last time, at least `least`.
    pub(super) fn fail(&mut self, step: u64, least: u64) {
        self.wait = (self.wait * 2).clamp(least, Self::MOST);
        self.until = step + self.wait;
    }
}

/// The state of adaptation for one application.
#[derive(Clone, Debug)]
pub(super) struct Control {
    /// When its limits changed last.
    pub(super) changed: Option<Instant>,
    pub(super) changed_step: u64,
    /// Near bytes that its limit permits, and the least distance to them since this limit.
    pub(super) target: u64,
    pub(super) nearest: u64,
    /// Steps in a row in which its near memory came no nearer to the limit.
    pub(super) still: u64,
    /// Steps in a row with too little, and with too much.
    pub(super) short: u32,
    pub(super) surplus: u32,
    /// Part of the estimated change that is made at once; halves when the direction turns.
    pub(super) gain: f64,
    /// Whether its own last change was upward.
    pub(super) went_up: Option<bool>,
    /// When it shrank last.
    pub(super) shrank_step: Option<u64>,
    /// When it was given more bandwidth last.
    pub(super) regrew_step: Option<u64>,
    /// For whom it was squeezed last.
    pub(super) squeezed_for: Option<AppId>,
    /// Before it shrinks again, gets bandwidth again, squeezes others again.
    pub(super) shrink: Backoff,
    pub(super) regrow: Backoff,
    pub(super) relief: Backoff,
    /// Whether squeezing others was found useless the last time.
    pub(super) relief_useless: bool,
}

impl Control {
    fn new() -> Self {
        Self {
            changed: None,
            changed_step: 0,
            target: 0,
            nearest: 0,
            still: 0,
            short: 0,
            surplus: 0,
            gain: 1.0,
            went_up: None,
            shrank_step: None,
            regrew_step: None,
            squeezed_for: None,
            shrink: Backoff::default(),
            regrow: Backoff::default(),
            relief: Backoff::default(),
            relief_useless: false,
        }
    }

    /// Notes the near bytes that it holds and those that its limit permits. Pages that move to and fro are no approach: the
    /// kernel may promote what the service demotes, for ever. Less than `noticed` bytes are no approach either.
    pub(super) fn approach(&mut self, held: u64, target: u64, noticed: u64) {
        let distance = held.abs_diff(target);
        if self.target != target {
            self.target = target;
            self.nearest = distance;
        }
        if distance.saturating_add(noticed) < self.nearest {
            self.nearest = distance;
            self.still = 0;
        } else {
            self.still += 1;
        }
    }

    /// Whether the change of its limits at `changed` counts as the cause of trouble at `step`: the change, or the move
    /// of its pages, ended within [`CONSEQUENCE`].
    pub(super) fn is_recent(&self, step: u64, changed: u64) -> bool {
        self.still.min(step - changed) <= CONSEQUENCE
    }

    /// An application arrived or left: earlier waits no longer apply.
    pub(super) fn forget_waiting(&mut self) {
        self.gain = 1.0;
        self.shrink = Backoff::default();
        self.regrow = Backoff::default();
        self.relief = Backoff::default();
        self.relief_useless = false;
        self.shrank_step = None;
        self.regrew_step = None;
    }
}

/// An application and what was decided for it.
#[derive(Clone, Debug)]
pub(super) struct App {
    pub(super) spec: AppSpec,
    pub(super) limits: Limits,
    /// The limits that the caller received last.
    pub(super) announced: Option<Limits>,
    pub(super) reason: Reason,
    pub(super) control: Control,
}

impl App {
    pub(super) fn new(spec: AppSpec, limits: Limits) -> Self {
        Self {
            spec,
            limits,
            announced: None,
            reason: Reason::Admitted,
            control: Control::new(),
        }
    }

    /// Near memory it may fill: its limit, and never more than it has pages.
    pub(super) fn claim(&self, view: Option<&AppView>) -> u64 {
        let size = size(&self.spec, view);
        self.limits.tiers[0].map_or(size, |limit| limit.get().min(size))
    }

    pub(super) fn is_latency(&self) -> bool {
        matches!(self.spec.objective, Objective::Latency(_))
    }

    /// New limits; the caller of the policy receives them at the end of the step.
    pub(super) fn set(&mut self, limits: Limits, reason: Reason, now: Instant, step: u64) {
        if limits == self.limits {
            return;
        }
        self.limits = limits;
        self.reason = reason;
        self.control.changed = Some(now);
        self.control.changed_step = step;
    }
}

/// The memory an application has: what it said, or what it holds where that is more.
pub(super) fn size(spec: &AppSpec, view: Option<&AppView>) -> u64 {
    let held = view.map_or(0, held);
    spec.footprint.get().max(held)
}

/// All it holds.
pub(super) fn held(view: &AppView) -> u64 {
    view.held
        .iter()
        .fold(0, |sum, bytes| sum.saturating_add(bytes.get()))
}

/// The applications in ascending order of priority.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    pub(super) apps: Vec<App>,
}

impl Book {
    pub(super) fn position(&self, id: AppId) -> Option<usize> {
        self.apps.iter().position(|app| app.spec.id == id)
    }

    pub(super) fn find(&self, id: AppId) -> Option<&App> {
        self.apps.iter().find(|app| app.spec.id == id)
    }

    pub(super) fn insert(&mut self, app: App) {
        let place = self
            .apps
            .partition_point(|other| other.spec.priority < app.spec.priority);
        self.apps.insert(place, app);
    }

    pub(super) fn remove(&mut self, id: AppId) -> Option<App> {
        self.position(id).map(|place| self.apps.remove(place))
    }

    /// Changes since the last report, in order of identifiers.
    pub(super) fn flush(&mut self, pending: &mut Vec<Action>) {
        let from = pending.len();
        for app in &mut self.apps {
            if app.announced != Some(app.limits) {
                app.announced = Some(app.limits);
                pending.push(Action {
                    app: app.spec.id,
                    limits: app.limits,
                    reason: app.reason,
                });
            }
        }
        pending[from..].sort_by_key(|action| action.app);
    }
}

pub(super) fn view(seen: &Observation, id: AppId) -> Option<&AppView> {
    seen.apps
        .binary_search_by_key(&id, |view| view.id)
        .ok()
        .map(|place| &seen.apps[place])
}

/// How far an application is from its objective: 1 is just met, 2 is half as good. Nothing without a fresh reading, for
/// best effort, and for a stream that does not use more although it could.
pub(super) fn strain(app: &App, view: Option<&AppView>) -> Option<f64> {
    let view = view?;
    match app.spec.objective {
        Objective::BestEffort => None,
        Objective::Latency(aim) => {
            let latency = view.latency.as_ref().and_then(Reading::fresh)?;
            (!latency.is_zero() && !aim.is_zero())
                .then(|| latency.as_ps() as f64 / aim.as_ps() as f64)
        }
        Objective::Bandwidth(aim) => {
            let bandwidth = view.bandwidth.as_ref().and_then(Reading::fresh)?;
            let strain = aim as f64 / (bandwidth.max(1)) as f64;
            let used = view.cpu_used.as_ref().and_then(Reading::fresh);
            let idle = used.is_some_and(|used| {
                u64::from(used) * 1_000 < u64::from(app.limits.cpu.min(CPU_ONE)) * BUSY
            });
            (strain <= 1.0 || !idle).then_some(strain.min(STRAIN_MAX))
        }
    }
}

/// Trouble within so many steps (five seconds) is laid to the last change.
const CONSEQUENCE: u64 = 25;
/// Thousandths of its processor limit that a stream uses when it wants more than it gets: waiting for memory counts as
/// using the processor.
const BUSY: u64 = 900;
const STRAIN_MAX: f64 = 100.0;

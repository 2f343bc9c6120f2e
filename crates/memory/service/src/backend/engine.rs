//! The common part of all moving backends: the target of each application, its excess, and when to report an
//! application as stuck.
//!
//! Method: once per [`Engine::tick`] read what each application holds, compute one [`Work`] each (how much must leave a
//! tier, its destination, how much may return), let the [`Mover`] do a bounded piece of it, read again and report the
//! effect. Ticks without effect count; after [`PATIENCE`] of them the application is reported stuck, and the pauses
//! between its ticks grow. No clock is read here, so that made-up trees test it step by step.
//!
//! Units: bytes. Limits: `memory.numa_stat` lags by up to 64 pages per processor, so a limit counts as kept within
//! [`Context::slack`]. Source: Mercury 5.5.1; the batch of 64 is the kernel's MEMCG_CHARGE_BATCH.

use super::{Backend, BackendKind, Progress};
use crate::cgroup::Cgroup;
use crate::error::MemError;
use crate::host::MemoryHost;
use crate::tiers::{Tiers, parse_list};
use isolane_common_quantities::units::{Bytes, Instant};
use isolane_memory_policy::mercury::{AppId, TIERS_MAX, TierLimits};
use std::collections::BTreeMap;
use std::time::Duration;

/// Ticks without effect before an application is reported stuck.
pub const PATIENCE: u32 = 20;

/// Ticks between two tries for an application that is stuck, at most.
const REST_MAX: u32 = 64;

/// Of a tier's memory, what a move leaves free: the kernel's watermarks are below it.
const RESERVE_SHARE: u64 = 64;

/// The machine's parameters for movers.
#[derive(Clone, Debug)]
pub struct Context {
    /// Its files.
    pub host: MemoryHost,
    /// Its tiers.
    pub tiers: Tiers,
    /// By how much a counter of the kernel may be behind.
    pub slack: Bytes,
}

impl Context {
    /// Looks at a machine with two tiers at least. Fails with [`MemError::NoTiers`].
    pub fn new(host: MemoryHost) -> Result<Self, MemError> {
        let tiers = Tiers::required(&host)?;
        let processors = parse_list(
            &host
                .root
                .text("/sys/devices/system/cpu/online")
                .unwrap_or_default(),
        );
        let lag = Bytes::from_kib(256).get() * processors.len().max(1) as u64;
        Ok(Self {
            host,
            tiers,
            slack: Bytes::new(lag.max(Bytes::from_mib(1).get())),
        })
    }

    /// What may still move into a tier.
    pub fn room_in(&self, tier: usize) -> Bytes {
        let (total, free) = self.tiers.usage(&self.host, tier);
        free.saturating_sub(Bytes::new(total.get() / RESERVE_SHARE))
    }
}

/// Pages to move from one tier to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The tier they leave.
    pub from: usize,
    /// The tier they go to.
    pub to: usize,
    /// How many bytes.
    pub bytes: Bytes,
}

/// What should happen to one application now.
#[derive(Clone, Debug)]
pub struct Work {
    /// Whose.
    pub app: AppId,
    /// Its control group.
    pub cgroup: Cgroup,
    /// Its limits.
    pub limits: TierLimits,
    /// What it holds.
    pub held: [Bytes; TIERS_MAX],
    /// What must go farther.
    pub demote: Option<Move>,
    /// What may come nearer.
    pub promote: Option<Move>,
}

/// A mechanism, without the bookkeeping.
pub trait Mover: Send {
    /// Which.
    fn kind(&self) -> BackendKind;

    /// Starts to care for an application. Fails if the mechanism refuses it.
    fn begin(&mut self, context: &Context, app: AppId, cgroup: &Cgroup) -> Result<(), MemError>;

    /// One bounded piece of work for every application; one answer each, in the same order: whether the kernel got any
    /// request.
    fn step(&mut self, context: &Context, work: &[Work]) -> Vec<Result<bool, MemError>>;

    /// Stops caring for an application and lifts what limits it. Fails for a limit that could not be lifted.
    fn end(&mut self, context: &Context, app: AppId, cgroup: &Cgroup) -> Result<(), MemError>;

    /// How long to wait after a step with a request.
    fn pause(&self) -> Duration {
        Duration::ZERO
    }

    /// Ticks without effect before an application is reported stuck.
    fn patience(&self) -> u32 {
        PATIENCE
    }

    /// Takes back what was changed on the machine; called once at the end.
    fn stop(&mut self, _context: &Context) {}
}

/// One application and how far it is.
#[derive(Debug)]
struct Entry {
    cgroup: Cgroup,
    far_tiers: Vec<u8>,
    limits: Option<TierLimits>,
    reported: bool,
    fruitless: u32,
    best: Bytes,
    rest: u32,
}

/// A mover with its applications.
pub struct Engine<M> {
    /// The machine.
    pub context: Context,
    mover: M,
    apps: BTreeMap<AppId, Entry>,
}

/// How soon the next tick should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// After this long: there is work.
    After(Duration),
    /// At leisure.
    Idle,
}

impl<M: Mover> Engine<M> {
    /// An engine without applications.
    pub fn new(context: Context, mover: M) -> Self {
        Self {
            context,
            mover,
            apps: BTreeMap::new(),
        }
    }

    /// Which mechanism.
    pub fn kind(&self) -> BackendKind {
        self.mover.kind()
    }

    /// Whether an application is under control.
    pub fn has(&self, app: AppId) -> bool {
        self.apps.contains_key(&app)
    }

    /// See [`super::Backend::adopt`]. Fails for a group that is gone, or that the mechanism refuses.
    pub fn adopt(
        &mut self,
        app: AppId,
        cgroup: Cgroup,
        far_tiers: Vec<u8>,
    ) -> Result<(), MemError> {
        self.context.host.held_by_node(&cgroup)?;
        self.mover.begin(&self.context, app, &cgroup)?;
        let entry = Entry {
            cgroup,
            far_tiers,
            limits: None,
            reported: false,
            fruitless: 0,
            best: Bytes::new(u64::MAX),
            rest: 0,
        };
        self.apps.insert(app, entry);
        Ok(())
    }

    /// See [`super::Backend::apply`].
    pub fn apply(&mut self, app: AppId, limits: TierLimits) {
        if let Some(entry) = self.apps.get_mut(&app) {
            entry.limits = Some(limits);
            entry.reported = false;
            entry.fruitless = 0;
            entry.best = Bytes::new(u64::MAX);
            entry.rest = 0;
        }
    }

    /// See [`super::Backend::release`]. A group that is gone needs no lifting. Fails for a limit that could not be
    /// lifted.
    pub fn release(&mut self, app: AppId) -> Result<(), MemError> {
        let Some(entry) = self.apps.remove(&app) else {
            return Ok(());
        };
        match self.mover.end(&self.context, app, &entry.cgroup) {
            Err(error) if !error.is_gone() => Err(error),
            _ => Ok(()),
        }
    }

    /// One round over all applications. Reports are appended to `tell`.
    pub fn tick(&mut self, tell: &mut Vec<Progress>) -> Next {
        let mut work = Vec::new();
        let mut gone = Vec::new();
        let mut wants = false;
        for (app, entry) in &mut self.apps {
            let Some(limits) = entry.limits else { continue };
            match self.context.host.held(&self.context.tiers, &entry.cgroup) {
                Ok(held) => {
                    if entry.rest > 0 {
                        entry.rest -= 1;
                        continue;
                    }
                    work.push(plan(&self.context, *app, entry, limits, held));
                }
                Err(error) if error.is_gone() => gone.push(*app),
                Err(why) => tell.push(Progress::Stuck {
                    app: *app,
                    held: [Bytes::ZERO; TIERS_MAX],
                    why,
                }),
            }
        }
        for app in gone {
            // Nothing is left to lift; the result does not matter, because the application is gone.
            let _ = self.release(app);
            tell.push(Progress::Gone { app });
        }
        let answers = self.mover.step(&self.context, &work);
        debug_assert_eq!(answers.len(), work.len(), "one answer per application");
        for (work, answer) in work.into_iter().zip(answers) {
            wants |= self.judge(&work, answer, tell);
        }
        match wants {
            true => Next::After(self.mover.pause()),
            false => Next::Idle,
        }
    }

    /// Says what became of one application; true when it wants another step soon.
    fn judge(
        &mut self,
        work: &Work,
        answer: Result<bool, MemError>,
        tell: &mut Vec<Progress>,
    ) -> bool {
        let Some(entry) = self.apps.get_mut(&work.app) else {
            return false;
        };
        let held = match self.context.host.held(&self.context.tiers, &entry.cgroup) {
            Ok(held) => held,
            Err(_) => work.held,
        };
        let app = work.app;
        let over: Bytes = super::excess(&held, &work.limits).into_iter().sum();
        if over <= self.context.slack {
            entry.fruitless = 0;
            entry.best = Bytes::new(u64::MAX);
            if !entry.reported {
                entry.reported = true;
                tell.push(Progress::Reached { app, held });
            }
            return matches!(answer, Ok(true));
        }
        entry.reported = false;
        if over < entry.best {
            entry.best = over;
            entry.fruitless = 0;
        } else {
            entry.fruitless += 1;
        }
        let (asked, patience) = (matches!(answer, Ok(true)), self.mover.patience());
        let why = match answer {
            Err(why) => why,
            Ok(_) if entry.fruitless >= patience => MemError::Unmoved {
                cgroup: entry.cgroup.to_string(),
                over,
                tries: entry.fruitless,
            },
            Ok(true) => {
                tell.push(Progress::Moving { app, held });
                return true;
            }
            // Nothing to do although a limit is exceeded: there is no farther tier with room.
            Ok(false) => match full(&self.context, work) {
                Some(why) => why,
                None => return asked,
            },
        };
        entry.fruitless = entry.fruitless.saturating_add(1);
        entry.rest = (1 << (entry.fruitless / 4).min(6)).min(REST_MAX);
        tell.push(Progress::Stuck { app, held, why });
        false
    }

    /// Lets every application go and takes back what was changed.
    pub fn stop(&mut self) {
        let apps: Vec<AppId> = self.apps.keys().copied().collect();
        for app in apps {
            // The process ends; what cannot be lifted is found by the next life's reconciliation.
            let _ = self.release(app);
        }
        self.mover.stop(&self.context);
    }
}

/// An engine in its caller's time: each [`Backend::poll`] is a tick, and a request is done before the call returns.
/// This is for callers with simulated time; [`super::background`] is for all others. Dropped without [`Engine::stop`]
/// it leaves its limits in force, as a kill does.
impl<M: Mover> Backend for Engine<M> {
    fn kind(&self) -> BackendKind {
        self.mover.kind()
    }

    fn adopt(&mut self, app: AppId, cgroup: &Cgroup, far_tiers: &[u8]) -> Result<(), MemError> {
        Self::adopt(self, app, cgroup.clone(), far_tiers.to_vec())
    }

    fn apply(&mut self, app: AppId, limits: &TierLimits) -> Result<(), MemError> {
        match self.has(app) {
            true => Self::apply(self, app, *limits),
            false => return Err(MemError::Unknown(app.0)),
        }
        Ok(())
    }

    fn poll(&mut self, _now: Instant) -> Vec<Progress> {
        let mut tell = Vec::new();
        self.tick(&mut tell);
        tell
    }

    fn release(&mut self, app: AppId) -> Result<(), MemError> {
        Self::release(self, app)
    }
}

/// The far tier without room, where that is what stops an application.
fn full(context: &Context, work: &Work) -> Option<MemError> {
    let over = super::excess(&work.held, &work.limits);
    let from = over.iter().position(|bytes| *bytes > context.slack)?;
    let tier = (from + 1).min(context.tiers.len().saturating_sub(1));
    Some(MemError::FarFull {
        tier,
        free: context.tiers.free(&context.host, tier),
        needed: over[from],
    })
}

/// What should happen to an application that holds `held`.
fn plan(
    context: &Context,
    app: AppId,
    entry: &Entry,
    limits: TierLimits,
    held: [Bytes; TIERS_MAX],
) -> Work {
    let over = super::excess(&held, &limits);
    let tiers = context.tiers.len();
    let mut demote = None;
    for (from, bytes) in over.into_iter().enumerate().take(tiers.saturating_sub(1)) {
        if bytes <= Bytes::ZERO || demote.is_some() {
            continue;
        }
        let allowed = |tier: &usize| {
            entry.far_tiers.is_empty()
                || entry.far_tiers.iter().any(|far| usize::from(*far) == *tier)
        };
        demote = (from + 1..tiers).filter(allowed).find_map(|to| {
            let room = context.room_in(to);
            let bytes = bytes.min(room);
            (bytes > Bytes::ZERO).then_some(Move { from, to, bytes })
        });
    }
    Work {
        app,
        cgroup: entry.cgroup.clone(),
        limits,
        held,
        demote,
        promote: match demote {
            Some(_) => None,
            None => promotion(context, &limits, &held),
        },
    }
}

/// How much may move to the nearest tier: as much as the limit and the free memory allow, above a minimum.
fn promotion(context: &Context, limits: &TierLimits, held: &[Bytes; TIERS_MAX]) -> Option<Move> {
    let from = (1..context.tiers.len()).find(|tier| held[*tier] > context.slack)?;
    let room = context.room_in(0);
    let below = limits[0].map_or(room, |limit| limit.saturating_sub(held[0]));
    // Less than this would go back and forth: the counters are not exact.
    let worth = Bytes::new(context.slack.get() * 2)
        .get()
        .max(limits[0].map_or(0, |limit| limit.get() / 50));
    let bytes = room.min(below).min(held[from]);
    (bytes.get() > worth).then_some(Move { from, to: 0, bytes })
}

//! Backends: what moves pages so that an application keeps within its tier limits.
//!
//! A [`Backend`] is asynchronous: `apply` sets the targets, work runs beside the caller, and `poll` returns the
//! progress. No call waits for a migration. The mechanisms, best first, are [`BackendKind::PREFERENCE`].
//!
//! * [`kind`] - their names and order; [`engine`] - the bookkeeping that all of them share; [`background`] - its thread;
//! * [`per_numa_high`], [`damos`], [`reclaim`], [`move_pages`], [`cpuset`] - the mechanisms;
//! * [`undo`] - what a dead service left is taken back;
//! * [`fake`] - one for tests: bytes in memory, moved at a rate, with faults on demand.
//!
//! Units: bytes. Limits: what a limit means is the same everywhere - the most bytes of that tier which the control group
//! holds by `memory.numa_stat` - but how exactly it is kept is not; see each backend.
//! Source: Mercury 5.5.1; the order of mechanisms is ours.

pub mod background;
pub mod cpuset;
pub mod damos;
pub mod engine;
pub mod fake;
pub mod kind;
pub mod move_pages;
pub mod per_numa_high;
pub mod reclaim;
#[cfg(test)]
mod survival;
#[cfg(test)]
mod tests;
pub mod undo;

use crate::cgroup::Cgroup;
use crate::error::MemError;
use crate::host::MemoryHost;
use engine::Context;
use isolane_common_quantities::units::{Bytes, Instant};
use isolane_memory_policy::mercury::{AppId, TIERS_MAX, TierLimits};
pub use kind::BackendKind;

/// What became of an application's limits since the last `poll`.
#[derive(Debug)]
pub enum Progress {
    /// Pages move, and the limits do not hold yet.
    Moving {
        /// Whose.
        app: AppId,
        /// What it holds now.
        held: [Bytes; TIERS_MAX],
    },
    /// The limits hold. Said once after each change of limits, and again when they were exceeded meanwhile.
    Reached {
        /// Whose.
        app: AppId,
        /// What it holds now.
        held: [Bytes; TIERS_MAX],
    },
    /// Nothing moves although the limits do not hold: a full far tier, pinned pages, a refusal. Work goes on more slowly.
    Stuck {
        /// Whose.
        app: AppId,
        /// What it holds now.
        held: [Bytes; TIERS_MAX],
        /// Why.
        why: MemError,
    },
    /// Its control group is gone; it is released already.
    Gone {
        /// Whose.
        app: AppId,
    },
    /// It was not taken under control after all: the mechanism refuses it. It may be adopted again.
    AdoptFailed {
        /// Whose.
        app: AppId,
        /// Why.
        why: MemError,
    },
    /// It was released, and none of our limits is left: reported where [`Backend::is_releasing`] was true.
    Released {
        /// Whose.
        app: AppId,
    },
    /// It was released, but one of our limits could not be lifted.
    ReleaseFailed {
        /// Whose.
        app: AppId,
        /// Why.
        why: MemError,
    },
}

impl Progress {
    /// Whose.
    pub fn app(&self) -> AppId {
        match self {
            Self::Moving { app, .. }
            | Self::Reached { app, .. }
            | Self::Stuck { app, .. }
            | Self::Gone { app }
            | Self::AdoptFailed { app, .. }
            | Self::Released { app }
            | Self::ReleaseFailed { app, .. } => *app,
        }
    }

    /// Which of the things that happen to one application this is about: its limits, its coming, or its going.
    fn about(&self) -> u8 {
        match self {
            Self::Moving { .. } | Self::Reached { .. } | Self::Stuck { .. } | Self::Gone { .. } => {
                0
            }
            Self::AdoptFailed { .. } => 1,
            Self::Released { .. } | Self::ReleaseFailed { .. } => 2,
        }
    }
}

/// Keeps applications within their tier limits.
///
/// An application that is adopted and has no limits yet is left as it is. Released ones keep their pages where they are,
/// and no limit. Dropping a backend stops its work and takes back what it changed on the machine, except in the
/// applications' favour.
pub trait Backend: Send {
    /// Which mechanism.
    fn kind(&self) -> BackendKind;

    /// Its name in reports.
    fn name(&self) -> &'static str {
        self.kind().name()
    }

    /// Takes an application under control. `far_tiers` are the tiers that its far pages may use, nearest first; empty
    /// means any. Adopting twice replaces the first. Fails for a control group that is gone or must not be touched, or
    /// a mechanism that refuses it.
    fn adopt(&mut self, app: AppId, cgroup: &Cgroup, far_tiers: &[u8]) -> Result<(), MemError>;

    /// Says what should hold from now on. Returns at once. Fails with [`MemError::Unknown`], or an error that is known
    /// without waiting; [`Backend::poll`] returns all others.
    fn apply(&mut self, app: AppId, limits: &TierLimits) -> Result<(), MemError>;

    /// What happened since the last call; to be called every period.
    fn poll(&mut self, now: Instant) -> Vec<Progress>;

    /// Releases an application. One whose control group no longer exists is released without an error. Fails with
    /// [`MemError::Unknown`], or a limit that could not be lifted.
    fn release(&mut self, app: AppId) -> Result<(), MemError>;

    /// Whether an application that was released may still have limits of ours: [`Progress::Released`] or
    /// [`Progress::ReleaseFailed`] will say how that ended.
    fn is_releasing(&self, _app: AppId) -> bool {
        false
    }
}

/// How much of each tier exceeds the limits.
pub fn excess(held: &[Bytes; TIERS_MAX], limits: &TierLimits) -> [Bytes; TIERS_MAX] {
    std::array::from_fn(|tier| {
        limits[tier].map_or(Bytes::ZERO, |limit| held[tier].saturating_sub(limit))
    })
}

/// Starts a backend of this kind on a machine. The error says what this machine lacks for it, with a remedy.
/// [`BackendKind::Fake`] is made by [`fake::FakeBackend::new`].
pub fn open(host: &MemoryHost, kind: BackendKind) -> Result<Box<dyn Backend>, MemError> {
    fn start<M: engine::Mover + 'static>(
        context: Context,
        mover: M,
    ) -> Result<Box<dyn Backend>, MemError> {
        Ok(Box::new(background::Background::start(
            engine::Engine::new(context, mover),
        )?))
    }
    let context = Context::new(host.clone())?;
    match kind {
        BackendKind::PerNumaHigh => start(context, per_numa_high::PerNumaHigh::default()),
        BackendKind::DamosGoal => {
            let mover = damos::goal::GoalDriven::open(&context)?;
            start(context, mover)
        }
        BackendKind::DamosQuota => {
            let mover = damos::quota::Quota::open(&context, damos::quota::real_clock())?;
            start(context, mover)
        }
        BackendKind::Reclaim => match reclaim::demotes(host) {
            Some(true) => start(context, reclaim::Reclaim::default()),
            _ => Err(MemError::Unsupported {
                backend: kind,
                why: "demotion is off".to_owned(),
                remedy: reclaim::DEMOTION_REMEDY.to_owned(),
            }),
        },
        BackendKind::MovePages => {
            start(context, move_pages::MovePages::new(move_pages::KernelPages))
        }
        BackendKind::Cpuset => start(context, cpuset::Cpuset::default()),
        BackendKind::Fake => Ok(Box::new(fake::FakeBackend::new())),
    }
}

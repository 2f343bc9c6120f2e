//! The planted defects of the memory service's disk and backend.

use super::Defect;
use isolane_common_quantities::units::Instant;
use isolane_memory_policy::mercury::{AppId, TierLimits};
use isolane_memory_service::MemError;
use isolane_memory_service::backend::{BackendKind, Progress};
use isolane_memory_service::journal::{Journal, JournalError};
use isolane_memory_service::{Cgroup, backend, journal};

/// One of so many confirmed writes and limits is not done.
const SKIPPED: u64 = 4;

/// A disk.
pub(super) struct Store {
    inner: Box<dyn journal::Store>,
    defect: Defect,
    saved: u64,
}

impl Store {
    pub(super) fn new(inner: Box<dyn journal::Store>, defect: Defect) -> Self {
        Self {
            inner,
            defect,
            saved: 0,
        }
    }
}

impl journal::Store for Store {
    fn load(&mut self) -> Result<Journal, JournalError> {
        let journal = self.inner.load()?;
        match self.defect {
            Defect::IgnoresJournal => Ok(Journal::empty(&journal.boot)),
            _ => Ok(journal),
        }
    }

    fn save(&mut self, journal: &Journal) -> Result<(), JournalError> {
        self.saved += 1;
        match self.defect {
            Defect::LosesWrites if self.saved.is_multiple_of(SKIPPED) => Ok(()),
            _ => self.inner.save(journal),
        }
    }
}

/// A backend.
pub(super) struct Backend {
    inner: Box<dyn backend::Backend>,
    defect: Defect,
    applied: u64,
}

impl Backend {
    pub(super) fn new(inner: Box<dyn backend::Backend>, defect: Defect) -> Self {
        Self {
            inner,
            defect,
            applied: 0,
        }
    }
}

impl backend::Backend for Backend {
    fn kind(&self) -> BackendKind {
        self.inner.kind()
    }

    fn adopt(&mut self, app: AppId, cgroup: &Cgroup, far_tiers: &[u8]) -> Result<(), MemError> {
        self.inner.adopt(app, cgroup, far_tiers)
    }

    fn apply(&mut self, app: AppId, limits: &TierLimits) -> Result<(), MemError> {
        self.applied += 1;
        match self.defect {
            Defect::SkipsLimits if self.applied.is_multiple_of(SKIPPED) => Ok(()),
            _ => self.inner.apply(app, limits),
        }
    }

    fn poll(&mut self, now: Instant) -> Vec<Progress> {
        self.inner.poll(now)
    }

    fn release(&mut self, app: AppId) -> Result<(), MemError> {
        match self.defect {
            Defect::KeepsLimits => Ok(()),
            _ => self.inner.release(app),
        }
    }

    fn is_releasing(&self, app: AppId) -> bool {
        self.inner.is_releasing(app)
    }
}

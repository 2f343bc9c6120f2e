//! The backend `reclaim`: `memory.reclaim` on a machine that demotes (kernel 5.19).
//!
//! Method: with `/sys/kernel/mm/numa/demotion_enabled`, reclaiming pages of a near node moves them to the next tier
//! instead of dropping them. So the excess is written to `memory.reclaim` of the application's group, in pieces of
//! `PIECE`, and `memory.numa_stat` says what moved. What a raised limit leaves room for comes back by the kernel's NUMA
//! balancing (mode 2), when the application touches it.
//!
//! A kernel that reclaims without demoting would throw pages out, so the first piece of each application is small, and if
//! the group shrinks by more than moved the backend asks nothing more for that application: [`MemError::Unsupported`].
//!
//! Limits: reclaim takes the kernel's choice of cold pages and its choice of the target node; it looks at all nodes of
//! the group, file pages of the last tier may be dropped (not lost). EAGAIN means that the kernel found less than
//! requested. Source: the kernel's cgroup-v2 documentation; measured in the lab.

use super::BackendKind;
use super::engine::{Context, Mover, Work};
use crate::cgroup::Cgroup;
use crate::error::MemError;
use crate::host::MemoryHost;
use isolane_common_quantities::units::Bytes;
use isolane_memory_policy::mercury::AppId;
use std::collections::BTreeSet;

/// Bytes per write: a write takes about 18 ms per MiB on an emulated machine, and others wait meanwhile.
const PIECE: Bytes = Bytes::from_mib(16);

/// The first write of an application: enough to see where pages go.
const FIRST: Bytes = Bytes::from_mib(1);

/// Reclaimed less than requested.
const EAGAIN: i32 = 11;

/// Whether this kernel demotes.
pub const DEMOTION: &str = "/sys/kernel/mm/numa/demotion_enabled";

/// What to do where it does not.
pub(crate) const DEMOTION_REMEDY: &str =
    "switch demotion on: echo 1 > /sys/kernel/mm/numa/demotion_enabled";

/// Whether demotion is switched on.
pub fn demotes(host: &MemoryHost) -> Option<bool> {
    Some(matches!(host.root.text(DEMOTION)?.as_str(), "true" | "1"))
}

/// The mover.
#[derive(Debug, Default)]
pub struct Reclaim {
    /// Applications for which demotion has been seen to work.
    proven: BTreeSet<AppId>,
    /// Applications that lost pages instead: no further reclaim runs for them until they are adopted again.
    stopped: BTreeSet<AppId>,
}

impl Mover for Reclaim {
    fn kind(&self) -> BackendKind {
        BackendKind::Reclaim
    }

    fn begin(&mut self, context: &Context, app: AppId, cgroup: &Cgroup) -> Result<(), MemError> {
        self.proven.remove(&app);
        self.stopped.remove(&app);
        let file = context.host.cgroup_file(cgroup.path(), "memory.reclaim")?;
        if !context.host.root.exists(&file) {
            return Err(unsupported(
                "the kernel has no memory.reclaim",
                "it came with Linux 5.19",
            ));
        }
        match demotes(&context.host) {
            Some(true) => Ok(()),
            _ => Err(unsupported("demotion is off", DEMOTION_REMEDY)),
        }
    }

    fn step(&mut self, context: &Context, work: &[Work]) -> Vec<Result<bool, MemError>> {
        work.iter().map(|work| self.one(context, work)).collect()
    }

    fn end(&mut self, _context: &Context, app: AppId, _cgroup: &Cgroup) -> Result<(), MemError> {
        self.proven.remove(&app);
        self.stopped.remove(&app);
        Ok(())
    }
}

impl Reclaim {
    fn one(&mut self, context: &Context, work: &Work) -> Result<bool, MemError> {
        let Some(demote) = work.demote else {
            return Ok(false);
        };
        if self.stopped.contains(&work.app) {
            return Err(unsupported(DROPPED, DROPPED_REMEDY));
        }
        let proven = self.proven.contains(&work.app);
        let bytes = demote.bytes.min(if proven { PIECE } else { FIRST });
        let host = &context.host;
        let file = host.cgroup_file(work.cgroup.path(), "memory.reclaim")?;
        match host.root.write(&file, &bytes.get().to_string()) {
            Ok(()) => {}
            Err(error) => {
                let error = host.failed(&work.cgroup, error, "is the group writable for us?");
                // What was found moved all the same; the engine counts whether anything did.
                if error.code() != Some(EAGAIN) {
                    return Err(error);
                }
            }
        }
        if !proven {
            let now = host.held(&context.tiers, &work.cgroup)?;
            let left = work.held[demote.from].saturating_sub(now[demote.from]);
            let total = |held: &[Bytes]| held.iter().copied().sum::<Bytes>();
            let shrunk = total(&work.held).saturating_sub(total(&now));
            if left > Bytes::ZERO && shrunk.get() > left.get() / 2 + context.slack.get() {
                self.stopped.insert(work.app);
                return Err(unsupported(DROPPED, DROPPED_REMEDY));
            }
            if left > Bytes::ZERO {
                self.proven.insert(work.app);
            }
        }
        Ok(true)
    }
}

const DROPPED: &str = "this kernel dropped or swapped what should have been demoted, so it is not used again for this application";

const DROPPED_REMEDY: &str = "swapoff -a, free memory in the far tier, then remove the application and submit it again; or choose another backend";

fn unsupported(why: &str, remedy: &str) -> MemError {
    MemError::Unsupported {
        backend: BackendKind::Reclaim,
        why: why.to_owned(),
        remedy: remedy.to_owned(),
    }
}

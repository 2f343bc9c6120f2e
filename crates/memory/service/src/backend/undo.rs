//! Undoes the changes that a killed service left on the machine, for any backend.
//!
//! Problem: the successor may have another backend, which does not know the former backend's files. Even the same
//! backend would record the former writes as the original settings of the groups. Method: the journal says which
//! backend wrote and what `cpuset.mems` was. The successor calls [`undo`] once it holds the journal's lock and before
//! it starts a backend of its own, so that every backend begins on a clean machine. Pages stay where they are;
//! monitoring groups of ours go too. Units: none. Limits: a group whose inode is another one's now is left alone.

use super::BackendKind;
use super::damos::files;
use super::engine::Context;
use super::{cpuset, per_numa_high};
use crate::cgroup::Cgroup;
use crate::error::MemError;
use crate::host::MemoryHost;
use crate::indicator::files::Resctrl;
use crate::journal::{Journal, Owed};

/// Lifts all limits of the journal's backend, and ends a DAMON thread of ours. A limit that cannot be lifted is
/// reported, and the journal keeps it for every later backend.
pub fn undo(host: &MemoryHost, journal: &mut Journal) -> Vec<String> {
    let mut problems = Vec::new();
    if let Err(error) = files::clear(host) {
        problems.push(format!("DAMON of an earlier service still runs: {error}"));
    }
    Resctrl::remove_all(host);
    let mut owed = std::mem::take(&mut journal.owed);
    if let Some(backend) = journal.backend {
        let written = journal.entries.iter().map(|entry| Owed {
            backend,
            name: entry.application.name.clone(),
            cgroup: entry.cgroup.clone(),
            inode: entry.inode,
            mems_before: entry.mems_before.clone(),
        });
        for new in written {
            if !owed.contains(&new) {
                owed.push(new);
            }
        }
    }
    for debt in owed {
        if let Err(error) = lift(host, &debt) {
            problems.push(format!(
                "{}: limits of an earlier service ({}) are still there: {error}",
                debt.name, debt.backend
            ));
            journal.owed.push(debt);
        }
    }
    problems
}

/// Lifts one. A group that is gone, or another one by now, has none.
pub fn lift(host: &MemoryHost, owed: &Owed) -> Result<(), MemError> {
    let lifted = || -> Result<(), MemError> {
        let cgroup = Cgroup::new(&owed.cgroup)?;
        if owed.inode.is_some() && owed.inode != host.inode(cgroup.path()) {
            return Ok(());
        }
        match (owed.backend, &owed.mems_before) {
            (BackendKind::PerNumaHigh, _) => {
                per_numa_high::lift(&Context::new(host.clone())?, &cgroup)
            }
            (BackendKind::Cpuset, Some(before)) => cpuset::restore(host, &cgroup, before),
            _ => Ok(()),
        }
    };
    match lifted() {
        Err(error) if !error.is_gone() => Err(error),
        _ => Ok(()),
    }
}

//! What a service that was killed left on the machine is taken back, whichever backend it had.
//!
//! Problem: the successor may have another backend, which knows nothing of the former one's files; and even the same one
//! would take the former one's writes for what the groups had before.
//! Method: the journal says which backend wrote and what `cpuset.mems` was. The successor calls [`undo`] once it holds
//! the journal's lock and before it starts a backend of its own, so that every backend begins on a clean machine.
//! Pages stay where they are. Units: none. Limits: a group whose inode is another one's now is left alone.

use super::BackendKind;
use super::damos::files;
use super::engine::Context;
use super::{cpuset, per_numa_high};
use crate::cgroup::Cgroup;
use crate::error::MemError;
use crate::host::MemoryHost;
use crate::journal::{Entry, Journal};

/// Lifts all limits of the journal's backend, and ends a DAMON thread of ours. What could not be lifted is told.
pub fn undo(host: &MemoryHost, journal: &Journal) -> Vec<String> {
    let mut problems = Vec::new();
    if let Err(error) = files::clear(host) {
        problems.push(format!("DAMON of an earlier service still runs: {error}"));
    }
    let Some(kind) = journal.backend else {
        return problems;
    };
    for entry in &journal.entries {
        match lift(host, kind, entry) {
            Err(error) if !error.is_gone() => problems.push(format!(
                "{}: limits of an earlier service ({kind}) are still there: {error}",
                entry.application.name
            )),
            _ => {}
        }
    }
    problems
}

fn lift(host: &MemoryHost, kind: BackendKind, entry: &Entry) -> Result<(), MemError> {
    let cgroup = Cgroup::new(&entry.cgroup)?;
    if entry.inode.is_some() && entry.inode != host.inode(&cgroup) {
        return Ok(());
    }
    match (kind, &entry.mems_before) {
        (BackendKind::PerNumaHigh, _) => per_numa_high::lift(&Context::new(host.clone())?, &cgroup),
        (BackendKind::Cpuset, Some(before)) => cpuset::restore(host, &cgroup, before),
        _ => Ok(()),
    }
}

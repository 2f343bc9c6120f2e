//! The backend `per_numa_high`: the file `memory.per_numa_high` of the original's patched kernel.
//!
//! Method: the file has one line per node, `max` or the most bytes of that node. Writing moves the excess away at once and
//! keeps the limit from then on, so there is nothing to repeat. A tier of several nodes gets its limit split over them in
//! proportion to their memory. What was written is read again: a kernel that takes it otherwise is refused.
//!
//! Limits: no kernel of a distribution has it; tested on a made-up tree alone.
//! Source: Mercury 5.5.1.

use super::BackendKind;
use super::engine::{Context, Mover, Work};
use crate::cgroup::Cgroup;
use crate::error::MemError;
use isolane_memory_policy::mercury::{AppId, TierLimits};
use std::collections::BTreeMap;

/// The file in a group's directory.
pub const FILE: &str = "memory.per_numa_high";

/// The mover: the kernel does the work.
#[derive(Debug, Default)]
pub struct PerNumaHigh {
    written: BTreeMap<AppId, TierLimits>,
}

impl Mover for PerNumaHigh {
    fn kind(&self) -> BackendKind {
        BackendKind::PerNumaHigh
    }

    fn begin(&mut self, context: &Context, app: AppId, cgroup: &Cgroup) -> Result<(), MemError> {
        self.written.remove(&app);
        let file = context.host.cgroup_file(cgroup.path(), FILE)?;
        match context.host.root.exists(&file) {
            true => Ok(()),
            false => Err(unsupported("the kernel has no memory.per_numa_high")),
        }
    }

    fn step(&mut self, context: &Context, work: &[Work]) -> Vec<Result<bool, MemError>> {
        let each = work.iter().map(|work| {
            if self.written.get(&work.app) != Some(&work.limits) {
                write(context, &work.cgroup, &work.limits)?;
                self.written.insert(work.app, work.limits);
            }
            Ok(work.demote.is_some())
        });
        each.collect()
    }

    fn end(&mut self, context: &Context, app: AppId, cgroup: &Cgroup) -> Result<(), MemError> {
        // For any writer: limits of an earlier service are lifted like our own.
        self.written.remove(&app);
        lift(context, cgroup)
    }
}

/// Takes every limit off a group. Fails if the group has vanished, or the kernel refuses.
pub fn lift(context: &Context, cgroup: &Cgroup) -> Result<(), MemError> {
    write(context, cgroup, &TierLimits::default())
}

fn write(context: &Context, cgroup: &Cgroup, limits: &TierLimits) -> Result<(), MemError> {
    let text = lines(context, limits);
    let file = context.host.cgroup_file(cgroup.path(), FILE)?;
    context.host.root.write(&file, &text).map_err(|error| {
        context
            .host
            .failed(cgroup, error, "is the group writable for us?")
    })?;
    let back = context.host.read_cgroup(cgroup, FILE)?;
    match back.split_whitespace().eq(text.split_whitespace()) {
        true => Ok(()),
        false => Err(unsupported(&format!("wrote `{text}` and read `{back}`"))),
    }
}

/// One line per node, in order of nodes. Rounds a node's part down.
fn lines(context: &Context, limits: &TierLimits) -> String {
    let mut by_node = BTreeMap::new();
    for (tier, limit) in context.tiers.tiers.iter().zip(limits) {
        for node in &tier.nodes {
            let part = limit.map(|limit| {
                let own = context.tiers.node_total(&context.host, *node).get();
                let share =
                    u128::from(limit.get()) * u128::from(own) / u128::from(tier.total_bytes.max(1));
                u64::try_from(share).unwrap_or(u64::MAX)
            });
            by_node.insert(
                *node,
                part.map_or("max".to_owned(), |bytes| bytes.to_string()),
            );
        }
    }
    by_node.into_values().collect::<Vec<_>>().join("\n")
}

fn unsupported(why: &str) -> MemError {
    MemError::Unsupported {
        backend: BackendKind::PerNumaHigh,
        why: why.to_owned(),
        remedy: "it needs the kernel patch of the original; the other backends need none"
            .to_owned(),
    }
}

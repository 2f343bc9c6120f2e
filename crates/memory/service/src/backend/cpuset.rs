//! The backend `cpuset`: all of an application near, or all of it far (`cpuset.mems`).
//!
//! Method: an application within its near limit may use every node; one above it is confined to far nodes, and the kernel
//! moves its pages there at once. Between the two nothing is possible, so this is the last choice. To avoid going back and
//! forth, it comes back only when its whole memory would fit into the limit.
//!
//! Limits: needs the cpuset controller in the group; the write lasts as long as the migration. What the group's manager
//! had in `cpuset.mems` is put back at the end. Source: the kernel's cgroup-v2 documentation (cpuset).

use super::BackendKind;
use super::engine::{Context, Mover, Work};
use crate::cgroup::Cgroup;
use crate::error::MemError;
use crate::host::MemoryHost;
use isolane_common_quantities::units::Bytes;
use isolane_memory_policy::mercury::AppId;
use std::collections::BTreeMap;

/// The file in a group's directory.
pub const FILE: &str = "cpuset.mems";

/// What the group had before us, and what the kernel made of our last change while the group is far.
#[derive(Clone, Debug)]
struct State {
    before: String,
    far: Option<String>,
}

/// The mover.
#[derive(Debug, Default)]
pub struct Cpuset {
    states: BTreeMap<AppId, State>,
}

impl State {
    /// Whether the group still has our change. Another value is its manager's, who has changed it since.
    fn is_ours(&self, context: &Context, cgroup: &Cgroup) -> Result<bool, MemError> {
        Ok(match &self.far {
            Some(ours) => context.host.read_cgroup(cgroup, FILE)?.trim() == ours,
            None => false,
        })
    }
}

impl Mover for Cpuset {
    fn kind(&self) -> BackendKind {
        BackendKind::Cpuset
    }

    fn begin(&mut self, context: &Context, app: AppId, cgroup: &Cgroup) -> Result<(), MemError> {
        let before = context.host.read_cgroup(cgroup, FILE).map_err(|error| match error {
            MemError::Gone(_) => error,
            _ => MemError::Unsupported {
                backend: BackendKind::Cpuset,
                why: format!("`{cgroup}` has no cpuset.mems"),
                remedy: "give the group the cpuset controller (echo +cpuset > cgroup.subtree_control of its parent)"
                    .to_owned(),
            },
        })?;
        // Taken up again: what is there now may be ours.
        self.states
            .entry(app)
            .or_insert(State { before, far: None });
        Ok(())
    }

    fn step(&mut self, context: &Context, work: &[Work]) -> Vec<Result<bool, MemError>> {
        work.iter().map(|work| self.one(context, work)).collect()
    }

    fn end(&mut self, context: &Context, app: AppId, cgroup: &Cgroup) -> Result<(), MemError> {
        let Some(state) = self.states.get(&app) else {
            return Ok(());
        };
        let put_back = || match state.is_ours(context, cgroup)? {
            true => restore(&context.host, cgroup, &state.before),
            false => Ok(()),
        };
        match put_back() {
            // It will be tried again, and must still know what was there before.
            Err(error) if !error.is_gone() => Err(error),
            done => {
                self.states.remove(&app);
                done
            }
        }
    }
}

impl Cpuset {
    fn one(&mut self, context: &Context, work: &Work) -> Result<bool, MemError> {
        let Some(state) = self.states.get_mut(&work.app) else {
            return Ok(false);
        };
        if let (Some(demote), false) = (work.demote, state.far.is_some()) {
            let nodes = &context.tiers.tiers[demote.to].nodes;
            let list: Vec<String> = nodes.iter().map(u32::to_string).collect();
            write(&context.host, &work.cgroup, &list.join(","))?;
            let now = context.host.read_cgroup(&work.cgroup, FILE)?;
            state.far = Some(now.trim().to_owned());
            return Ok(true);
        }
        let total: Bytes = work.held.iter().copied().sum();
        let fits = work.limits[0].is_none_or(|limit| total <= limit) && total <= context.room_in(0);
        if state.far.is_some() && fits {
            if !state.is_ours(context, &work.cgroup)? {
                state.far = None;
                return Ok(true);
            }
            // The near nodes alone first: only a move away from the old set moves pages back.
            let near: Vec<String> = context
                .tiers
                .near_nodes()
                .iter()
                .map(u32::to_string)
                .collect();
            write(&context.host, &work.cgroup, &near.join(","))?;
            write(&context.host, &work.cgroup, &state.before)?;
            state.far = None;
            return Ok(true);
        }
        Ok(work.demote.is_some())
    }
}

/// Puts back what the group had before us, where it has something else. Fails if the group has vanished, or the kernel
/// refuses.
pub fn restore(host: &MemoryHost, cgroup: &Cgroup, before: &str) -> Result<(), MemError> {
    match host.read_cgroup(cgroup, FILE)?.trim() == before.trim() {
        true => Ok(()),
        false => write(host, cgroup, before),
    }
}

fn write(host: &MemoryHost, cgroup: &Cgroup, value: &str) -> Result<(), MemError> {
    let file = host.cgroup_file(cgroup.path(), FILE)?;
    // A line break alone is how the kernel takes an empty set.
    let value = if value.is_empty() { "\n" } else { value };
    host.root.write(&file, value).map_err(|error| {
        host.failed(
            cgroup,
            error,
            "are the nodes within the parent's cpuset.mems.effective?",
        )
    })
}

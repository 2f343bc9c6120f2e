//! The backends `damos_quota` and `damos_goal`: DAMON watches physical memory, and its schemes migrate what is cold from
//! near to far and what is hot from far to near, for one control group each.
//!
//! * [`files`] - the tree in sysfs: one kernel thread of ours, schemes, and whose they are;
//! * [`quota`] - kernels from 6.11: we set each scheme's quota from what is held;
//! * [`ranges`] - the addresses of an application's pages, so a quota is not spent on others';
//! * `module` - parts of the kernel that use DAMON themselves;
//! * [`goal`] - kernels from 7.2: a scheme tunes itself to a share of the node.
//!
//! Both need every page of a group to be in exactly that group: DAMON's filter takes no descendants, so each group below
//! an application's that has memory gets schemes of its own ([`leaves`]).
//!
//! Limits: DAMON is one for the machine; where another program uses it, these backends fail to start. Source: the
//! kernel's documentation of DAMON (admin-guide/mm/damon/usage, mm/damon/design).

pub mod files;
pub mod goal;
pub(crate) mod module;
pub mod quota;
pub mod ranges;

use crate::cgroup::Cgroup;
use crate::host::MemoryHost;

/// Groups of one application that get schemes, at most: each costs the kernel a pass over the regions.
pub const LEAVES_MAX: usize = 16;

/// The application's group and those below it.
pub fn leaves(host: &MemoryHost, cgroup: &Cgroup) -> Vec<Cgroup> {
    let mut found = vec![cgroup.clone()];
    let mut next = 0;
    while next < found.len() && found.len() < LEAVES_MAX {
        let parent = found[next].clone();
        for name in host.children(&parent) {
            let child = Cgroup::new(&format!("{}/{name}", parent.path()));
            if let (Ok(child), true) = (child, found.len() < LEAVES_MAX) {
                found.push(child);
            }
        }
        next += 1;
    }
    found
}

#[cfg(test)]
mod tests;

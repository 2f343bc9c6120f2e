//! Control groups of applications: their processes, their memory per node, their processor time.
//!
//! Problem: an application is all processes of one control group, so that forks and restarts need no attention. Method:
//! the files of the version 2 hierarchy: `memory.numa_stat`, `cgroup.procs`, `cpu.max`, `cpu.stat`. Anonymous and file
//! pages count as held, as in the original; kernel memory cannot be moved.
//!
//! * `floor` - memory that the kernel leaves to a group; [`own`] - groups that we made: below [`own::PARENT`], and removed when empty.
//!
//! Units: bytes, thousandths of a core, microseconds as the kernel's files have them. Limits: a group whose memory
//! controller is off has no `memory.numa_stat` and cannot be adopted. Source: the kernel's cgroup-v2 documentation.

mod floor;
pub mod own;

use crate::error::MemError;
use crate::host::MemoryHost;
use crate::tiers::Tiers;
use isolane_common_quantities::units::Bytes;
use isolane_memory_policy::mercury::{CPU_ONE, TIERS_MAX};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// The path of a control group below the mount of the version 2 hierarchy, such as `/isolane/redis`. Never the root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Cgroup(String);

impl Cgroup {
    /// Checks a path; one that begins with the mount point is taken as meant below it. Fails with
    /// [`MemError::BadCgroup`] for the root, for `..`, and for what is no absolute path.
    pub fn new(path: &str) -> Result<Self, MemError> {
        let bad = |why: &str| MemError::BadCgroup {
            path: path.to_owned(),
            why: why.to_owned(),
        };
        let below = path.strip_prefix("/sys/fs/cgroup").unwrap_or(path);
        if !below.starts_with('/') {
            return Err(bad("the path of a control group begins with `/`"));
        }
        let below = below.trim_end_matches('/');
        if below.is_empty() {
            return Err(bad("the root holds every process of the machine"));
        }
        if below
            .split('/')
            .skip(1)
            .any(|part| part.is_empty() || part == "." || part == "..")
        {
            return Err(bad("the path has an empty part, `.` or `..`"));
        }
        if below.contains(['\n', '\0']) {
            return Err(bad("the path has a line break or a zero byte"));
        }
        Ok(Self(below.to_owned()))
    }

    /// The path below the mount.
    pub fn path(&self) -> &str {
        &self.0
    }

    /// Whether `self` is `other` or below it.
    pub fn is_within(&self, other: &Self) -> bool {
        self.0
            .strip_prefix(&other.0)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl fmt::Display for Cgroup {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

/// The period that we write to `cpu.max`: the kernel's default.
const CPU_PERIOD_US: u64 = 100_000;

/// The kernel refuses smaller quotas.
const CPU_QUOTA_MIN_US: u64 = 1_000;

impl MemoryHost {
    /// Whether there is such a group.
    pub fn has_cgroup(&self, cgroup: &Cgroup) -> bool {
        self.cgroup_file(cgroup.path(), "cgroup.procs")
            .is_ok_and(|file| self.root.exists(&file))
    }

    /// Whether any process lives in the group or below; none when the kernel does not say.
    pub fn is_populated(&self, cgroup: &Cgroup) -> Option<bool> {
        let file = self.cgroup_file(cgroup.path(), "cgroup.events").ok()?;
        let text = self.root.text(&file)?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("populated "))?;
        Some(line.trim() == "1")
    }

    /// The processes of the group and of those below it, in order. Fails with [`MemError::Gone`].
    pub fn processes(&self, cgroup: &Cgroup) -> Result<Vec<u32>, MemError> {
        let text = self.read_cgroup(cgroup, "cgroup.procs")?;
        let mut found: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        for name in self.children(cgroup) {
            if let Ok(child) = Cgroup::new(&format!("{}/{name}", cgroup.path())) {
                // A child that vanishes meanwhile has no processes.
                found.extend(self.processes(&child).unwrap_or_default());
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// The names of the groups directly below.
    pub fn children(&self, cgroup: &Cgroup) -> Vec<String> {
        let Ok(directory) = self.cgroup_file(cgroup.path(), "") else {
            return Vec::new();
        };
        let mut names = self.root.list(&directory);
        names.retain(|name| self.root.path(&format!("{directory}/{name}")).is_dir());
        names
    }

    /// Anonymous and file pages of the group, in bytes by node. Fails with [`MemError::Gone`], and with
    /// [`MemError::Unexpected`] for a text that does not parse.
    pub fn held_by_node(&self, cgroup: &Cgroup) -> Result<BTreeMap<u32, Bytes>, MemError> {
        let text = self.read_cgroup(cgroup, "memory.numa_stat")?;
        parse_numa_stat(&text).ok_or_else(|| MemError::Unexpected {
            path: format!("{cgroup}/memory.numa_stat"),
            value: text.lines().next().unwrap_or_default().to_owned(),
            expected: "lines such as `anon N0=4096 N1=0`",
        })
    }

    /// What the group holds in each tier. Fails as [`MemoryHost::held_by_node`] does.
    pub fn held(&self, tiers: &Tiers, cgroup: &Cgroup) -> Result<[Bytes; TIERS_MAX], MemError> {
        let mut held = [Bytes::ZERO; TIERS_MAX];
        for (node, bytes) in self.held_by_node(cgroup)? {
            if let Some(tier) = tiers.tier_of(node) {
                held[tier] += bytes;
            }
        }
        Ok(held)
    }

    /// Processor time that the group has used, in microseconds. Fails with [`MemError::Gone`] or
    /// [`MemError::Unexpected`].
    pub fn cpu_used_us(&self, cgroup: &Cgroup) -> Result<u64, MemError> {
        let text = self.read_cgroup(cgroup, "cpu.stat")?;
        let found = text
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec "));
        found
            .and_then(|number| number.trim().parse().ok())
            .ok_or_else(|| MemError::Unexpected {
                path: format!("{cgroup}/cpu.stat"),
                value: text.lines().next().unwrap_or_default().to_owned(),
                expected: "a line `usage_usec NUMBER`",
            })
    }

    /// Limits the group's processor time to `thousandths` of `cores` cores; [`CPU_ONE`] lifts the limit. Fails with
    /// [`MemError::Gone`], and where the kernel rejects the write.
    pub fn set_cpu(&self, cgroup: &Cgroup, thousandths: u32, cores: u32) -> Result<(), MemError> {
        self.write_cpu(cgroup, &cpu_max(thousandths, cores))
    }

    /// Writes the text of `cpu.max`. Fails with [`MemError::Gone`], and where the kernel rejects the write.
    pub fn write_cpu(&self, cgroup: &Cgroup, value: &str) -> Result<(), MemError> {
        let file = self.cgroup_file(cgroup.path(), "cpu.max")?;
        self.root
            .write(&file, value)
            .map_err(|error| self.failed(cgroup, error, CPU_REMEDY))
    }

    /// A file of the group. Fails with [`MemError::Gone`] where the group is gone, else with the error of the read.
    pub fn read_cgroup(&self, cgroup: &Cgroup, file: &str) -> Result<String, MemError> {
        let path = self.cgroup_file(cgroup.path(), file)?;
        self.root
            .read(&path)
            .map_err(|error| self.failed(cgroup, error, ""))
    }

    /// Sorts a failure: a group that is no longer there is [`MemError::Gone`].
    pub(crate) fn failed(
        &self,
        cgroup: &Cgroup,
        error: isolane_common_linux::HostError,
        remedy: &str,
    ) -> MemError {
        let error = MemError::refused(error, remedy);
        match error.is_gone() && !self.has_cgroup(cgroup) {
            true => MemError::Gone(cgroup.to_string()),
            false => error,
        }
    }
}

const CPU_REMEDY: &str =
    "give the group the cpu controller (echo +cpu > cgroup.subtree_control of its parent)";

/// The text of `cpu.max`. Rounds the quota down, but not below what the kernel takes.
pub fn cpu_max(thousandths: u32, cores: u32) -> String {
    if thousandths >= CPU_ONE {
        return format!("max {CPU_PERIOD_US}");
    }
    let full = CPU_PERIOD_US * u64::from(cores.max(1));
    let quota = (full * u64::from(thousandths) / u64::from(CPU_ONE)).max(CPU_QUOTA_MIN_US);
    format!("{quota} {CPU_PERIOD_US}")
}

/// The same for a group whose own `cpu.max` was `before`: thousandths of what that leaves it, never more than it.
pub fn cpu_max_below(before: &str, thousandths: u32, cores: u32) -> String {
    let mut words = before
        .split_whitespace()
        .map(|word| word.parse::<u64>().ok());
    let (Some(Some(quota)), Some(Some(period))) = (words.next(), words.next()) else {
        return cpu_max(thousandths, cores);
    };
    if thousandths >= CPU_ONE {
        return before.to_owned();
    }
    let full = quota.min(period.saturating_mul(u64::from(cores.max(1))));
    let scaled = u128::from(full) * u128::from(thousandths) / u128::from(CPU_ONE);
    let scaled = u64::try_from(scaled).unwrap_or(full);
    format!("{} {period}", scaled.max(CPU_QUOTA_MIN_US).min(quota))
}

/// Sums the `anon` and `file` lines by node.
fn parse_numa_stat(text: &str) -> Option<BTreeMap<u32, Bytes>> {
    let mut held = BTreeMap::new();
    let mut seen = false;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if !matches!(words.next(), Some("anon" | "file")) {
            continue;
        }
        seen = true;
        for word in words {
            let (node, bytes) = word.strip_prefix('N')?.split_once('=')?;
            let entry = held.entry(node.parse().ok()?).or_insert(Bytes::ZERO);
            *entry = Bytes::new(entry.get().saturating_add(bytes.parse().ok()?));
        }
    }
    seen.then_some(held)
}

#[cfg(test)]
mod tests;

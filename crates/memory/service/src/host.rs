//! The files of one machine: where the control groups are mounted, and everything else below one root.
//!
//! Method: a [`MemoryHost`] is a [`Root`] and the mount point of the version 2 hierarchy found in `/proc/mounts`. Tests
//! make a directory with the same files.

use crate::error::MemError;
use isolane_common_linux::Root;

/// One machine as files.
#[derive(Clone, Debug)]
pub struct MemoryHost {
    /// Where `/` is.
    pub root: Root,
    /// Where the version 2 hierarchy of control groups is mounted; none where it is not.
    pub cgroups: Option<String>,
}

impl MemoryHost {
    /// This machine.
    pub fn machine() -> Self {
        Self::at(Root::machine())
    }

    /// The machine whose files are below `root`.
    pub fn at(root: Root) -> Self {
        let cgroups = root.text("/proc/mounts").and_then(|text| mount_of(&text));
        Self { root, cgroups }
    }

    /// The inode of a control group's directory, by its path in the hierarchy; none where it is gone.
    pub fn inode(&self, cgroup: &str) -> Option<u64> {
        use std::os::unix::fs::MetadataExt;
        let path = self.cgroup_file(cgroup, "").ok()?;
        Some(std::fs::metadata(self.root.path(&path)).ok()?.ino())
    }

    /// The path of a control group's file. Fails with [`MemError::NoCgroups`] without a version 2 hierarchy.
    pub fn cgroup_file(&self, cgroup: &str, file: &str) -> Result<String, MemError> {
        let mount = self.cgroups.as_deref().ok_or_else(no_cgroups)?;
        Ok(format!(
            "{}/{}/{file}",
            mount.trim_end_matches('/'),
            cgroup.trim_matches('/')
        ))
    }
}

/// Why nothing can be done without control groups.
pub(crate) fn no_cgroups() -> MemError {
    MemError::NoCgroups {
        seen: "the version 2 hierarchy is not mounted".to_owned(),
        remedy: "mount it (mount -t cgroup2 none /sys/fs/cgroup), or boot with \
                 systemd.unified_cgroup_hierarchy=1"
            .to_owned(),
    }
}

/// The first mount of type `cgroup2` in the text of `/proc/mounts`.
fn mount_of(text: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let mut words = line.split(' ');
        let point = words.nth(1)?;
        (words.next()? == "cgroup2").then(|| point.replace("\\040", " "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_2_mount_is_found_among_others() {
        let text = "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(mount_of(text).as_deref(), Some("/sys/fs/cgroup/unified"));
        assert_eq!(
            mount_of("cgroup /sys/fs/cgroup/memory cgroup rw 0 0\n"),
            None
        );
    }

    #[test]
    fn files_of_the_root_group_have_one_slash() {
        let host = MemoryHost {
            root: Root::at("/none"),
            cgroups: Some("/sys/fs/cgroup".to_owned()),
        };
        let file = |group: &str| host.cgroup_file(group, "cpu.max").unwrap();
        assert_eq!(file("/a/b"), "/sys/fs/cgroup/a/b/cpu.max");
        assert_eq!(file("/"), "/sys/fs/cgroup//cpu.max");
    }
}

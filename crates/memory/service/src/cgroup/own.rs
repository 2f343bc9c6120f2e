//! Control groups of our own making: one parent, one group per application that we started, nothing left behind.
//!
//! Method: [`create`] makes `PARENT/NAME` and gives it the controllers; [`remove`] removes it when it is empty, also
//! one that an earlier life of the daemon left. Only groups below [`PARENT`] are ever made or removed.
//!
//! Limits: needs write access to the hierarchy's root; a delegated group below it will not do.
//! Source: the kernel's cgroup-v2 documentation, sections on delegation and on `cgroup.subtree_control`.

use super::Cgroup;
use crate::error::MemError;
use crate::host::{MemoryHost, no_cgroups};
use std::fs;

/// Where our groups live, below the mount.
pub const PARENT: &str = "/isolane-mem";

/// Controllers that an application's group needs; `cpuset` is used where there is nothing better.
const CONTROLLERS: [&str; 3] = ["memory", "cpu", "cpuset"];

/// The first two of [`CONTROLLERS`] must be there.
const REQUIRED: usize = 2;

/// Whether a group is of our making.
pub fn is_ours(cgroup: &Cgroup) -> bool {
    Cgroup::new(PARENT).is_ok_and(|parent| cgroup.is_within(&parent) && *cgroup != parent)
}

/// Makes a group for an application and returns it; one that is there already is returned as it is. Fails for a bad
/// name, and without a hierarchy, its controllers or the permission.
pub fn create(host: &MemoryHost, name: &str) -> Result<Cgroup, MemError> {
    let bad = |why: &str| MemError::BadCgroup {
        path: name.to_owned(),
        why: why.to_owned(),
    };
    if name.is_empty()
        || name.len() > 64
        || name.contains(['/', '\n', '\0'])
        || name.starts_with('.')
    {
        return Err(bad(
            "a name has 1 to 64 bytes, no `/`, no line break, and does not begin with a dot",
        ));
    }
    let cgroup = Cgroup::new(&format!("{PARENT}/{name}"))?;
    enable(host, "/")?;
    make_directory(host, PARENT)?;
    enable(host, PARENT)?;
    make_directory(host, cgroup.path())?;
    Ok(cgroup)
}

/// Removes a group of ours; false when processes still live there. A group that is gone already is removed. Fails with
/// [`MemError::NotOurs`], and for a refusal other than "busy".
pub fn remove(host: &MemoryHost, cgroup: &Cgroup) -> Result<bool, MemError> {
    if !is_ours(cgroup) {
        return Err(MemError::NotOurs {
            object: format!("the control group `{cgroup}`"),
            owner: "somebody else".to_owned(),
            remedy: format!("only groups below {PARENT} are removed"),
        });
    }
    for child in host.children(cgroup) {
        let child = Cgroup::new(&format!("{}/{child}", cgroup.path()))?;
        if !remove(host, &child)? {
            return Ok(false);
        }
    }
    let removed = remove_directory(host, cgroup.path())?;
    // The parent goes with its last child; that it is busy is no failure.
    if removed && list(host).is_empty() {
        remove_directory(host, PARENT)?;
    }
    Ok(removed)
}

/// The groups of ours that exist, with or without processes.
pub fn list(host: &MemoryHost) -> Vec<Cgroup> {
    let Ok(parent) = Cgroup::new(PARENT) else {
        return Vec::new();
    };
    let names = host.children(&parent).into_iter();
    names
        .filter_map(|name| Cgroup::new(&format!("{PARENT}/{name}")).ok())
        .collect()
}

/// Moves a process into a group. Fails with [`MemError::Gone`], and where the process has ended or the group has
/// children with controllers.
pub fn enter(host: &MemoryHost, cgroup: &Cgroup, process: u32) -> Result<(), MemError> {
    let file = host.cgroup_file(cgroup.path(), "cgroup.procs")?;
    host.root
        .write(&file, &process.to_string())
        .map_err(|error| {
            host.failed(
                cgroup,
                error,
                "has the process ended, or does the group have children?",
            )
        })
}

/// Hands the controllers that exist down to the children of `path`.
fn enable(host: &MemoryHost, path: &str) -> Result<(), MemError> {
    let available = host
        .root
        .read(&host.cgroup_file(path, "cgroup.controllers")?)
        .map_err(|_| no_cgroups())?;
    let missing: Vec<&str> = CONTROLLERS[..REQUIRED]
        .iter()
        .filter(|name| !available.split_whitespace().any(|word| word == **name))
        .copied()
        .collect();
    if !missing.is_empty() {
        return Err(MemError::NoCgroups {
            seen: format!("`{path}` has no controller {} (it has: {available})", missing.join(", ")),
            remedy: "is version 1 mounted beside it? boot with systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all"
                .to_owned(),
        });
    }
    let file = host.cgroup_file(path, "cgroup.subtree_control")?;
    let enabled = host.root.text(&file).unwrap_or_default();
    for name in CONTROLLERS {
        let has = |text: &str| text.split_whitespace().any(|word| word == name);
        if has(&available) && !has(&enabled) {
            host.root
                .write(&file, &format!("+{name}"))
                .map_err(|error| {
                    MemError::refused(
                        error,
                        "do processes live in the group itself? they must be in a leaf",
                    )
                })?;
        }
    }
    Ok(())
}

fn make_directory(host: &MemoryHost, path: &str) -> Result<(), MemError> {
    let directory = host.root.path(&host.cgroup_file(path, "")?);
    match fs::create_dir(&directory) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Err(MemError::NotPermitted {
                action: format!("make the control group `{path}`"),
            })
        }
        Err(source) => Err(MemError::Kernel {
            action: format!("make the control group `{path}`"),
            source,
        }),
    }
}

/// False when it is in use.
fn remove_directory(host: &MemoryHost, path: &str) -> Result<bool, MemError> {
    let directory = host.root.path(&host.cgroup_file(path, "")?);
    match fs::remove_dir(&directory) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => Ok(false),
        Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => Ok(false),
        Err(source) => Err(MemError::Kernel {
            action: format!("remove the control group `{path}`"),
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    #[test]
    fn a_group_gets_the_controllers_on_the_way_down() {
        let tree = Tree::two_tiers();
        let host = tree.host();
        tree.write(
            "/sys/fs/cgroup/isolane-mem/cgroup.controllers",
            "memory cpu",
        );
        tree.write("/sys/fs/cgroup/isolane-mem/cgroup.subtree_control", "");
        let group = create(&host, "redis").unwrap();
        assert_eq!(group.path(), "/isolane-mem/redis");
        assert!(is_ours(&group));
        // A plain file keeps the last write; the kernel adds each to the set.
        assert_eq!(
            tree.read("/sys/fs/cgroup/isolane-mem/cgroup.subtree_control"),
            "+cpu"
        );
        assert_eq!(list(&host), [group]);
    }

    #[test]
    fn missing_controllers_are_named_with_a_remedy() {
        let tree = Tree::two_tiers();
        tree.write("/sys/fs/cgroup/cgroup.controllers", "cpu pids");
        let error = create(&tree.host(), "redis").unwrap_err().to_string();
        assert!(
            error.contains("memory") && error.contains("cgroup_no_v1"),
            "{error}"
        );
    }

    #[test]
    fn names_that_leave_the_parent_are_refused() {
        let tree = Tree::two_tiers();
        for name in ["", "a/b", "..", ".hidden", "a\nb"] {
            assert!(
                matches!(create(&tree.host(), name), Err(MemError::BadCgroup { .. })),
                "{name:?}"
            );
        }
    }

    #[test]
    fn only_our_own_groups_are_removed() {
        let tree = Tree::two_tiers();
        let foreign = tree.cgroup("/system.slice", &[(0, 1)]);
        assert!(matches!(
            remove(&tree.host(), &foreign),
            Err(MemError::NotOurs { .. })
        ));
        assert!(tree.host().has_cgroup(&foreign));
        let gone = Cgroup::new("/isolane-mem/gone").unwrap();
        assert!(remove(&tree.host(), &gone).unwrap());
    }
}

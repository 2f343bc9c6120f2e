//! The files of a host: `/sys` and `/proc` of this thread's network namespace, or test trees.
//!
//! Problem: `/sys/class/net` shows the devices of the namespace in which it was mounted, not of one entered later.
//! Method: after entering a namespace, a detached sysfs is mounted: it is not part of the file tree, is reached through
//! its descriptor, and ends with it. `/proc/sys/net` follows the reading thread by itself. Limits: entering a namespace
//! and mounting need CAP_SYS_ADMIN. Source: network_namespaces(7), fsmount(2).

use crate::error::NicError;
use isolane_common_linux::Root;
use isolane_common_linux::private::PrivateDirectory;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directory in which `ip netns` keeps namespaces.
const NAMED: &str = "/run/netns";
/// Mount point of cgroups.
const CGROUPS: &str = "/sys/fs/cgroup";
/// Directory of journals.
const RUN: &str = "/run/isolane/nic";
/// The namespace of this thread. `/proc/self` would be that of the process's first thread.
const OWN: &str = "/proc/thread-self/ns/net";

/// The files of a host.
#[derive(Clone, Debug)]
pub struct System {
    sys: Root,
    proc: Root,
    cgroups: Root,
    run: PathBuf,
    /// The name under which this namespace was entered.
    entered: Option<PathBuf>,
    /// Keeps a detached sysfs alive.
    _mount: Option<Arc<OwnedFd>>,
}

impl System {
    /// This machine, in the process's initial namespace.
    pub fn machine() -> Self {
        Self {
            sys: Root::at("/sys"),
            proc: Root::at("/proc"),
            cgroups: Root::at(unified(Path::new(CGROUPS))),
            run: PathBuf::from(RUN),
            entered: None,
            _mount: None,
        }
    }

    /// The trees `sys`, `proc` and `run` below `directory`, for tests.
    pub fn at(directory: &Path) -> Self {
        Self {
            sys: Root::at(directory.join("sys")),
            proc: Root::at(directory.join("proc")),
            cgroups: Root::at(unified(&directory.join("sys/fs/cgroup"))),
            run: directory.join("run"),
            entered: None,
            _mount: None,
        }
    }

    /// Moves this thread, and threads that it starts, into the network namespace `name` (a name of `ip netns` or a
    /// path), and uses its files. Fails with [`NicError::Namespace`] or [`NicError::NotPermitted`].
    pub fn enter(name: &str) -> Result<Self, NicError> {
        let path = match name.contains('/') {
            true => PathBuf::from(name),
            false => Path::new(NAMED).join(name),
        };
        let failed = |error: rustix::io::Errno| match error {
            rustix::io::Errno::PERM | rustix::io::Errno::ACCESS => NicError::NotPermitted {
                action: format!("enter the network namespace `{name}` (with CAP_SYS_ADMIN)"),
            },
            error => NicError::Namespace {
                name: name.to_owned(),
                reason: error.into(),
            },
        };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let namespace = rustix::fs::open(&path, flags, Mode::empty()).map_err(failed)?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(failed)?;
        let here = Self::here().map_err(failed)?;
        Ok(Self {
            entered: Some(path),
            ..here
        })
    }

    /// The namespace of this thread, through its own sysfs. Fails as fsopen(2) and fsmount(2) do.
    pub fn here() -> rustix::io::Result<Self> {
        let context = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(context.as_fd())?;
        let mount = fsmount(
            context.as_fd(),
            FsMountFlags::FSMOUNT_CLOEXEC,
            MountAttrFlags::empty(),
        )?;
        let sys = Root::at(format!("/proc/self/fd/{}", mount.as_raw_fd()));
        Ok(Self {
            sys,
            _mount: Some(Arc::new(mount)),
            ..Self::machine()
        })
    }

    /// Keeps journals below `directory` instead of the machine's runtime directory.
    #[must_use]
    pub fn with_run(mut self, directory: &Path) -> Self {
        directory.clone_into(&mut self.run);
        self
    }

    /// The files of sysfs, without the leading `/sys`.
    pub fn sys(&self) -> &Root {
        &self.sys
    }

    /// The files of procfs, without the leading `/proc`.
    pub fn proc(&self) -> &Root {
        &self.proc
    }

    /// The version 2 hierarchy of cgroups.
    pub fn cgroups(&self) -> &Root {
        &self.cgroups
    }

    /// Directory of the journals.
    pub fn run(&self) -> &Path {
        &self.run
    }

    /// The directory of journals; created if missing. Fails with [`NicError::File`] or [`NicError::NotPermitted`].
    pub fn make_private(&self) -> Result<PrivateDirectory, NicError> {
        PrivateDirectory::open_or_make(&self.run).map_err(|error| denied(&self.run, error))
    }

    /// The directory of journals; `None` if it does not exist. Fails with [`NicError::File`] or
    /// [`NicError::NotPermitted`].
    pub fn private(&self) -> Result<Option<PrivateDirectory>, NicError> {
        match PrivateDirectory::open(&self.run) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some).map_err(|error| denied(&self.run, error)),
        }
    }

    /// Inode number of this thread's network namespace; 0 if it is not visible.
    pub fn namespace() -> u64 {
        std::fs::metadata(OWN).map_or(0, |namespace| namespace.ino())
    }

    /// Cookie of this thread's network namespace: unique until the next boot, while its inode number is reused. 0 if
    /// the kernel has none.
    pub fn cookie() -> u64 {
        isolane_common_linux::network_namespace::cookie().unwrap_or(0)
    }

    /// Name of the entered namespace, in the form of `--netns`.
    pub fn entered(&self) -> Option<&str> {
        let path = self.entered.as_ref()?;
        let named = path.strip_prefix(NAMED).unwrap_or(path);
        named.to_str()
    }

    /// The option that follows the device's name in a command for this namespace: empty, or ` --netns NAME`.
    pub fn place(&self) -> String {
        self.entered()
            .map_or_else(String::new, |name| format!(" --netns {name}"))
    }

    /// Whether the name of the entered namespace is gone or names another one now: its owner deleted it, but it lives
    /// while we are in it.
    pub fn is_abandoned(&self) -> bool {
        let of = |path: &PathBuf| std::fs::metadata(path).map_or(0, |namespace| namespace.ino());
        self.entered
            .as_ref()
            .is_some_and(|path| of(path) != Self::namespace())
    }

    /// Whether this process has its own file tree (`ip netns exec` makes one), so that its mounts end with it.
    ///
    /// Compares with the first process's tree if that is visible. Otherwise the mounts decide: a tree of `ip netns
    /// exec` has the namespace's name as the source of `/sys`, and a tree whose root is only a slave of another one is
    /// a copy.
    pub fn is_private(&self) -> bool {
        let tree = |process: &str| self.proc.link_name(&format!("{process}/ns/mnt"));
        if let Some(first) = tree("1") {
            return Some(first) != tree("self");
        }
        self.proc
            .text("self/mountinfo")
            .is_some_and(|mounts| is_copy(&mounts))
    }

    /// Boot id.
    pub fn boot(&self) -> String {
        let boot = self.proc.text("sys/kernel/random/boot_id");
        boot.unwrap_or_default()
    }

    /// Number of online processors.
    pub fn processors(&self) -> u16 {
        let text = self.sys.text("devices/system/cpu/online");
        let count = text.as_deref().map_or(1, count_of_list);
        count.max(1)
    }

    /// The kernel's version, such as `6.18.1`.
    pub fn kernel(&self) -> String {
        let release = self.proc.text("sys/kernel/osrelease");
        release.unwrap_or_else(|| "unknown".to_owned())
    }
}

pub(crate) fn denied(path: &Path, error: std::io::Error) -> NicError {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => NicError::NotPermitted {
            action: format!("use {}", path.display()),
        },
        _ => NicError::file(path, error),
    }
}

/// The version 2 hierarchy: the mount itself, or a directory in it on hosts that also have version 1.
fn unified(mount: &Path) -> PathBuf {
    match mount.join("cgroup.controllers").exists() {
        true => mount.to_owned(),
        false => mount.join("unified"),
    }
}

/// Whether `/proc/self/mountinfo` describes a copied tree.
fn is_copy(mounts: &str) -> bool {
    const PLACE: usize = 4;
    const OPTIONAL: usize = 6;
    // The last mount at a place hides earlier ones.
    let at = |place: &str| {
        let mut lines = mounts.lines().rev();
        lines.find(|line| line.split(' ').nth(PLACE) == Some(place))
    };
    let follows = at("/").is_some_and(|line| {
        let optional = line.split(' ').skip(OPTIONAL);
        let mut optional = optional.take_while(|word| *word != "-");
        optional.any(|word| word.starts_with("master:"))
    });
    let named = at("/sys").is_some_and(|line| {
        let of_device = line.split_once(" - ").map_or("", |(_, rest)| rest);
        let mut words = of_device.split(' ');
        words.next() == Some("sysfs")
            && !matches!(words.next(), None | Some("sysfs" | "none" | "sys"))
    });
    follows || named
}

/// Number of entries of a list such as `0-3,8`.
fn count_of_list(list: &str) -> u16 {
    let count = |range: &str| -> Option<u16> {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.trim()
        .split(',')
        .filter_map(count)
        .fold(0, u16::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!(
            ["0", "0-3,8", "0-63", "x"].map(count_of_list),
            [1, 5, 64, 0]
        );
    }

    /// Lines that `ip netns exec` makes on a host with a private root, and on one with a shared root.
    #[test]
    fn a_copied_tree_is_known_by_its_mounts() {
        let host = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
                    23 27 0:22 / /sys rw,relatime shared:7 - sysfs sysfs rw\n";
        assert!(!is_copy(host) && !is_copy(""));
        let private = format!("{host}426 423 0:42 / /sys rw,relatime - sysfs green rw\n");
        assert!(is_copy(&private));
        let shared = host.replace("/ / rw,relatime", "/ / rw,relatime master:1");
        assert!(is_copy(&shared));
        let back = format!("{private}430 423 0:43 / /sys rw,relatime - sysfs sysfs rw\n");
        assert!(!is_copy(&back), "the last mount is the one that is seen");
    }

    #[test]
    fn a_namespace_that_is_not_there_is_named() {
        let error = System::enter("no-such-namespace").unwrap_err().to_string();
        assert!(
            error.contains("no-such-namespace") && error.contains("ip netns"),
            "{error}"
        );
    }
}

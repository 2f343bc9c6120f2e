//! Control groups: the cgroup of a process, the container in its path, and the rdma controller.
//!
//! Only the version 2 hierarchy counts; on a machine that also mounts version 1, the path is that of the unified
//! hierarchy. A path begins with `/` and is relative to the mount.
//!
//! The rdma controller counts two things per device: open device files (`hca_handle`), and all queue pairs, CQs, MRs
//! and PDs together (`hca_object`). Beyond a limit the kernel rejects the verbs call with ENOMEM; it does not delay
//! calls. Source: `Documentation/admin-guide/cgroup-v2.rst` (RDMA), cgroups(7).
//!
//! Container and pod come from the path alone, which contains runtime, container identifier and pod UID. Only the
//! runtime knows labels and names that users gave.

use crate::error::HostError;
use crate::root::Root;
use serde::Serialize;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::{fmt, fs};

/// The cgroup (version 2) of a process; `None` if the process has ended.
pub fn of_process(root: &Root, process: u32) -> Option<String> {
    let text = root.text(&format!("/proc/{process}/cgroup"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(line.strip_suffix(" (deleted)").unwrap_or(line).to_owned())
}

/// The cgroup path in the text of `/proc/PID/cgroup`: that of the unified hierarchy or, if it is missing, the longest
/// of the others. Empty if the text has none.
pub fn path(text: &str) -> &str {
    let paths = || text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let unified = text.lines().find_map(|line| line.strip_prefix("0::"));
    match unified {
        Some(path) if path != "/" => path,
        _ => paths().max_by_key(|path| path.len()).unwrap_or_default(),
    }
}

/// The part of a cgroup's path that the host made. A tenant makes the parts below it.
///
/// It ends at the outermost pod, container, user slice, service or scope. Of a path without any of them the first two
/// parts count; a text that does not begin with `/` has no such part.
///
/// ```
/// use isolane_common_linux::cgroup::responsible;
/// let own = "/user.slice/user-7.slice";
/// assert_eq!(responsible("/user.slice/user-7.slice/session-1.scope"), own);
/// assert_eq!(responsible("/docker/abc/made/by/its/root"), "/docker/abc");
/// ```
pub fn responsible(path: &str) -> &str {
    // A path of the kernel begins with `/`.
    if !path.starts_with('/') {
        return "";
    }
    let mut end = 0;
    let mut parent = "";
    for (index, part) in path.split('/').skip(1).enumerate() {
        end += 1 + part.len();
        let is_user = part.starts_with("user-") && part.ends_with(".slice");
        let is_unit = part.ends_with(".service") || part.ends_with(".scope");
        let is_container = pod_of_part(part).is_some() || container(part, parent).is_some();
        let holds_tenants = part.ends_with(".slice") || HOLD_TENANTS.contains(&part);
        if is_user || is_unit || is_container || (index >= 1 && !holds_tenants) {
            break;
        }
        parent = part;
    }
    &path[..end]
}

/// The pod of a cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod<'a> {
    /// Path of the pod's own cgroup.
    pub path: &'a str,
    /// UID, with dashes.
    pub uid: String,
}

/// The pod of the cgroup at `path`: the outermost one, below the kubelet's own cgroup. A kubelet with `--cgroup-root` has
/// its cgroup elsewhere, and its pods are not recognised.
pub fn pod(path: &str) -> Option<Pod<'_>> {
    let first = path.split('/').nth(1)?;
    let own = KUBELET.contains(&first).then(|| responsible(path))?;
    let part = own.rsplit('/').next()?;
    pod_of_part(part).map(|uid| Pod { path: own, uid })
}

/// Whether `text` can be the UID of a pod: 32 lower-case hexadecimal digits, with four dashes or, for a static pod, without.
pub fn is_pod_uid(text: &str) -> bool {
    let (dashes, digits): (Vec<u8>, Vec<u8>) = text.bytes().partition(|byte| *byte == b'-');
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    [0, 4].contains(&dashes.len()) && digits.len() == 32 && digits.iter().all(is_digit)
}

/// The kubelet's own cgroup; the second with systemd.
const KUBELET: [&str; 2] = ["kubepods", "kubepods.slice"];

/// The unit, container and pod in a cgroup's path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Workload {
    /// The innermost systemd service or scope that is no container: `sshd.service`, `session-3.scope`.
    pub unit: Option<String>,
    /// The innermost systemd slice: `user-1000.slice`.
    pub slice: Option<String>,
    /// The container.
    pub container: Option<Container>,
    /// UID of the Kubernetes pod, with dashes.
    pub pod: Option<String>,
}

/// A container in a cgroup's path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Container {
    /// Runtime: `docker`, `containerd`, `cri-o`, `podman`, `lxc`, `nspawn`; `unknown` if the path has only an
    /// identifier.
    pub runtime: &'static str,
    /// Identifier: 64 hexadecimal digits, or a name.
    pub identifier: String,
}

/// Groups of the kubelet between the root and the pods, where it does not use systemd's slices.
const HOLD_TENANTS: [&str; 3] = ["kubepods", "burstable", "besteffort"];
/// Prefixes of systemd scopes that runtimes make, with the runtime.
const SCOPES: [(&str, &str); 7] = [
    ("docker-", "docker"),
    ("cri-containerd-", "containerd"),
    ("nerdctl-", "containerd"),
    ("crio-conmon-", ""),
    ("crio-", "cri-o"),
    ("libpod-conmon-", ""),
    ("libpod-", "podman"),
];

impl Workload {
    /// Parses a path such as `/kubepods.slice/kubepods-pod1.slice/cri-containerd-2.scope`. A pod or a container
    /// counts only where the host creates cgroups ([`responsible`]): what runs in a pod, a container, a service or a session
    /// may create cgroups below its own, with any name. So the containers of a user's session are not recognised.
    pub fn of(path: &str) -> Self {
        let mut workload = Self {
            pod: pod(path).map(|pod| pod.uid),
            ..Self::default()
        };
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let own = responsible(path).split('/').filter(|part| !part.is_empty());
        let depth = own.count();
        for (index, part) in parts.iter().enumerate() {
            let parent = index.checked_sub(1).map_or("", |before| parts[before]);
            let container = container(part, parent);
            let is_container = container.is_some();
            // The host also creates the containers of a pod, directly below it.
            if index < depth || workload.pod.is_some() && index == depth {
                workload.container = container;
            }
            if is_container {
                continue;
            }
            if part.ends_with(".slice") {
                workload.slice = Some((*part).to_owned());
            } else if part.ends_with(".service") || part.ends_with(".scope") {
                workload.unit = Some((*part).to_owned());
            }
        }
        workload
    }
}

fn container(part: &str, parent: &str) -> Option<Container> {
    let make = |runtime, identifier: &str| {
        Some(Container {
            runtime,
            identifier: identifier.to_owned(),
        })
    };
    if let Some(name) = part.strip_prefix("lxc.payload.") {
        return make("lxc", name);
    }
    if parent == "lxc" {
        return make("lxc", part);
    }
    let scope = part.strip_suffix(".scope");
    let name = scope.unwrap_or(part);
    for (prefix, runtime) in SCOPES {
        if let Some(identifier) = name.strip_prefix(prefix) {
            let is_container = !runtime.is_empty() && is_identifier(identifier);
            return if is_container {
                make(runtime, identifier)
            } else {
                None
            };
        }
    }
    if let (Some(_), Some(machine)) = (scope, name.strip_prefix("machine-")) {
        return make("nspawn", machine);
    }
    if !is_identifier(part) {
        return None;
    }
    match parent {
        "docker" => make("docker", part),
        _ if pod_of_part(parent).is_some() => make("unknown", part),
        _ if part.len() == IDENTIFIER_DIGITS => make("unknown", part),
        _ => None,
    }
}

const IDENTIFIER_DIGITS: usize = 64;

fn is_identifier(text: &str) -> bool {
    const SHORT_DIGITS: usize = 12;
    text.len() >= SHORT_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// `pod<UID>` or `kubepods-burstable-pod<UID with underscores>.slice`.
fn pod_of_part(part: &str) -> Option<String> {
    let name = part.strip_suffix(".slice").unwrap_or(part);
    let identifier = match name.strip_prefix("kubepods-") {
        Some(rest) => rest
            .strip_prefix("besteffort-")
            .or_else(|| rest.strip_prefix("burstable-"))
            .unwrap_or(rest),
        None => name,
    };
    let identifier = identifier.strip_prefix("pod")?.replace('_', "-");
    is_pod_uid(&identifier).then_some(identifier)
}

/// Mount point of the version 2 hierarchy: `/sys/fs/cgroup`, or `/sys/fs/cgroup/unified` beside version 1.
pub fn mount(root: &Root) -> Option<String> {
    let mounts = root.text("/proc/self/mounts").unwrap_or_default();
    let listed = mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let place = words.nth(1)?;
        (words.next()? == "cgroup2").then(|| place.to_owned())
    });
    listed.or_else(|| {
        let usual = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
        let has_controllers = |place: &&str| root.exists(&format!("{place}/cgroup.controllers"));
        usual.into_iter().find(has_controllers).map(str::to_owned)
    })
}

/// The kernel's number of the cgroup `path` below `mount`; `None` if there is no such cgroup. A cgroup that is removed
/// and made again under the same path has another number: the kernel reuses none before the next boot.
pub fn number(root: &Root, mount: &str, path: &str) -> Option<u64> {
    let folder = root.path(&format!("{mount}/{}", path.trim_matches('/')));
    Some(fs::metadata(folder).ok()?.ino())
}

/// A count or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// No limit.
    #[default]
    Max,
    /// At most this many.
    AtMost(u32),
}

impl fmt::Display for Limit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Max => formatter.pad("max"),
            Self::AtMost(count) => count.fmt(formatter),
        }
    }
}

/// Limits of a cgroup for one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RdmaLimits {
    /// Largest number of open device files.
    pub handles: Limit,
    /// Largest number of objects of all kinds.
    pub objects: Limit,
}

/// Objects of one device that a cgroup holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RdmaUse {
    /// Number of open device files.
    pub handles: u32,
    /// Number of objects of all kinds.
    pub objects: u32,
}

/// The rdma controller of one cgroup.
#[derive(Clone, Debug)]
pub struct RdmaController<'a> {
    root: &'a Root,
    folder: String,
}

impl<'a> RdmaController<'a> {
    /// The controller of the cgroup `path`. Fails with [`HostError::Unexpected`] where version 2 is not mounted, or the
    /// controller is not enabled for that cgroup.
    pub fn of(root: &'a Root, path: &str) -> Result<Self, HostError> {
        let Some(mount) = mount(root) else {
            return Err(HostError::Unexpected {
                path: root.path("/proc/self/mounts"),
                value: "no cgroup2".to_owned(),
                expected: "a cgroup version 2 mount; mount it with `mount -t cgroup2 none /sys/fs/cgroup`",
            });
        };
        let path = path.trim_matches('/');
        let folder = match path {
            "" => mount,
            path => format!("{mount}/{path}"),
        };
        let controller = Self { root, folder };
        if !root.exists(&controller.file("rdma.max")) {
            return Err(HostError::Unexpected {
                path: root.path(&controller.folder),
                value: "no rdma.max".to_owned(),
                expected: "the rdma controller; enable it with `echo +rdma > cgroup.subtree_control` in every parent \
                           (the root cgroup itself has no limits)",
            });
        }
        Ok(controller)
    }

    /// Current use per device. A device without objects may be missing. Fails with [`HostError::Read`] or
    /// [`HostError::Unexpected`].
    pub fn current(&self) -> Result<BTreeMap<String, RdmaUse>, HostError> {
        let entries = self.entries("rdma.current")?;
        let count = |limit| match limit {
            Limit::Max => u32::MAX,
            Limit::AtMost(count) => count,
        };
        let held = entries.into_iter().map(|(device, limits)| {
            let held = RdmaUse {
                handles: count(limits.handles),
                objects: count(limits.objects),
            };
            (device, held)
        });
        Ok(held.collect())
    }

    /// Limits per device. Fails with [`HostError::Read`] or [`HostError::Unexpected`].
    pub fn limits(&self) -> Result<BTreeMap<String, RdmaLimits>, HostError> {
        self.entries("rdma.max")
    }

    /// Sets the limits of `device`. Existing objects stay, even above the limit. Fails with
    /// [`HostError::NotPermitted`], and with [`HostError::Write`] and EINVAL for a device that the kernel does not
    /// know.
    pub fn set_limits(&self, device: &str, limits: RdmaLimits) -> Result<(), HostError> {
        let value = format!(
            "{device} hca_handle={} hca_object={}",
            limits.handles, limits.objects
        );
        self.root.write(&self.file("rdma.max"), &value)
    }

    fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }

    fn entries(&self, name: &str) -> Result<BTreeMap<String, RdmaLimits>, HostError> {
        let file = self.file(name);
        let text = self.root.read(&file)?;
        let entries = text.lines().map(|line| {
            parse_entry(line).ok_or_else(|| HostError::Unexpected {
                path: self.root.path(&file),
                value: line.to_owned(),
                expected: "DEVICE hca_handle=COUNT hca_object=COUNT",
            })
        });
        entries.collect()
    }
}

/// Parses `rxe0 hca_handle=2 hca_object=max`; ignores unknown keys.
fn parse_entry(line: &str) -> Option<(String, RdmaLimits)> {
    let mut words = line.split_whitespace();
    let device = words.next()?.to_owned();
    let mut limits = RdmaLimits::default();
    for word in words {
        let (key, value) = word.split_once('=')?;
        let limit = match value {
            "max" => Limit::Max,
            count => Limit::AtMost(count.parse().ok()?),
        };
        match key {
            "hca_handle" => limits.handles = limit,
            "hca_object" => limits.objects = limit,
            _ => {}
        }
    }
    Some((device, limits))
}

#[cfg(test)]
mod tests;

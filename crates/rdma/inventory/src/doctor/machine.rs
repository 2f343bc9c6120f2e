//! Checks the machine: kernel, libraries, memory limits, cgroups, and Isolane's own parts.

use super::{Check, Live};
use isolane_common_linux::cgroup;
use isolane_common_linux::process::Process;
use isolane_common_linux::root::Root;

/// Every check of the machine. Emulated devices need nothing of the kernel and of rdma-core.
pub fn checks(root: &Root, live: &Live, emulated: bool) -> Vec<Check> {
    let mut checks = match emulated {
        true => Vec::new(),
        false => vec![
            kernel(root, live),
            modules(root),
            library(root),
            connection_manager(root),
            locked_memory(live),
            huge_pages(root),
            cgroups(root),
        ],
    };
    checks.extend([shim(live), daemon(root, live)]);
    checks
}

/// Release of the kernel, and its RDMA support.
fn kernel(root: &Root, live: &Live) -> Check {
    const NAME: &str = "kernel";
    let release = release(root);
    match (&live.inventory, live.rdma_netlink) {
        (Ok(_), _) => Check::ok(NAME, format!("Linux {release}, resource tracking works")),
        (Err(error), true) => Check::warn(
            NAME,
            format!("Linux {release}; resource tracking: {error}"),
            "run as root; if that does not help, use Linux 5.15 or later",
        ),
        (Err(_), false) => Check::unknown(
            NAME,
            format!("Linux {release}, no NETLINK_RDMA"),
            "modprobe ib_core",
        ),
    }
}

pub(super) fn release(root: &Root) -> String {
    root.text("/proc/sys/kernel/osrelease")
        .unwrap_or_else(|| "of unknown release".to_owned())
}

/// Modules that user space needs, loaded or built in.
fn modules(root: &Root) -> Check {
    const NAME: &str = "modules";
    let needed = ["ib_core", "ib_uverbs", "rdma_cm", "rdma_ucm"];
    let missing: Vec<&str> = needed
        .into_iter()
        .filter(|name| !is_module_there(root, name))
        .collect();
    match missing[..] {
        [] => Check::ok(NAME, needed.join(", ")),
        _ => {
            let action = format!("modprobe -a {}", missing.join(" "));
            let seen = format!("not loaded: {}", missing.join(", "));
            match missing.contains(&"ib_uverbs") {
                true => Check::fail(NAME, seen, action),
                false => Check::warn(NAME, seen, action),
            }
        }
    }
}

/// True when a module is loaded or built into the kernel.
pub(super) fn is_module_there(root: &Root, name: &str) -> bool {
    let built_in = || {
        let list = format!("/lib/modules/{}/modules.builtin", release(root));
        let file = format!("/{name}.ko");
        root.text(&list)
            .is_some_and(|text| text.lines().any(|line| line.ends_with(&file)))
    };
    root.exists(&format!("/sys/module/{name}")) || built_in()
}

/// Directories where distributions put libraries.
const LIBRARY_FOLDERS: [&str; 5] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
];

/// `libibverbs.so.1` and the version of rdma-core that it came with: `libibverbs.so.1.14.44.0` is of version 44.0.
pub(super) fn verbs_library(root: &Root) -> Option<(String, Option<String>)> {
    LIBRARY_FOLDERS.iter().find_map(|folder| {
        let file = format!("{folder}/libibverbs.so.1");
        let is_there = root.exists(&file) || root.link_name(&file).is_some();
        is_there.then(|| {
            let target = root.link_name(&file);
            let version = target.and_then(|name| {
                let numbers: Vec<&str> = name.rsplit('.').take(2).collect();
                Some(format!("{}.{}", numbers.get(1)?, numbers.first()?))
            });
            (file, version)
        })
    })
}

fn library(root: &Root) -> Check {
    const NAME: &str = "rdma-core";
    match verbs_library(root) {
        Some((file, Some(version))) => Check::ok(NAME, format!("version {version} ({file})")),
        Some((file, None)) => Check::ok(NAME, file),
        None => Check::fail(
            NAME,
            "no libibverbs.so.1 in the usual places",
            INSTALL_LIBRARY,
        ),
    }
}

pub(super) const INSTALL_LIBRARY: &str = "apt-get install rdma-core ibverbs-providers ibverbs-utils   # Debian, Ubuntu\n\
                                          dnf install rdma-core libibverbs-utils   # Fedora, RHEL";

fn connection_manager(root: &Root) -> Check {
    const NAME: &str = "rdma_cm";
    match root.exists("/dev/infiniband/rdma_cm") {
        true => Check::ok(NAME, "/dev/infiniband/rdma_cm"),
        false => Check::warn(
            NAME,
            "no /dev/infiniband/rdma_cm: programs that connect by address will not run",
            "modprobe rdma_ucm; in a container, pass the device file in",
        ),
    }
}

/// Registered memory is locked memory; the usual limit of 8 MiB stops most programs.
fn locked_memory(live: &Live) -> Check {
    const NAME: &str = "locked memory";
    const LITTLE_BYTES: u64 = 64 << 20;
    const ACTION: &str = "printf '* soft memlock unlimited\\n* hard memlock unlimited\\n' > /etc/security/limits.d/rdma.conf, \
                          then log in again; LimitMEMLOCK=infinity in a systemd unit";
    match live.locked_memory_bytes {
        None => Check::ok(NAME, "no limit"),
        Some(limit) => {
            let seen = format!("limit {} for a process", bytes(limit));
            match (live.privileged, limit < LITTLE_BYTES) {
                (true, _) => Check::warn(
                    NAME,
                    format!("{seen}; root is exempt, other users are not"),
                    ACTION,
                ),
                (false, true) => Check::fail(NAME, seen, ACTION),
                (false, false) => Check::warn(NAME, seen, ACTION),
            }
        }
    }
}

/// Huge pages need fewer translation entries in the RNIC's cache.
fn huge_pages(root: &Root) -> Check {
    const NAME: &str = "huge pages";
    let text = root.text("/proc/meminfo").unwrap_or_default();
    let value = |key: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_whitespace().next()?.parse().ok()
    };
    match (
        value("HugePages_Total:"),
        value("HugePages_Free:"),
        value("Hugepagesize:"),
    ) {
        (Some(total), Some(free), Some(size_kib)) => Check::ok(
            NAME,
            format!(
                "{total} reserved, {free} free, of {} each (optional)",
                bytes(size_kib << 10)
            ),
        ),
        _ => Check::unknown(NAME, "not in /proc/meminfo", "cat /proc/meminfo"),
    }
}

/// The rdma controller prevents a tenant from using up a device's objects.
fn cgroups(root: &Root) -> Check {
    const NAME: &str = "cgroup limits";
    let Some(mount) = cgroup::mount(root) else {
        return Check::warn(
            NAME,
            "no cgroup version 2 hierarchy",
            "boot with systemd.unified_cgroup_hierarchy=1",
        );
    };
    let has = |file: &str| {
        let text = root.text(&format!("{mount}/{file}")).unwrap_or_default();
        text.split_whitespace().any(|name| name == "rdma")
    };
    match (has("cgroup.controllers"), has("cgroup.subtree_control")) {
        (true, true) => Check::ok(NAME, "rdma controller enabled"),
        (true, false) => Check::warn(
            NAME,
            "rdma controller there, not enabled: a tenant may use up a device's objects",
            format!("echo +rdma > {mount}/cgroup.subtree_control"),
        ),
        (false, _) => Check::warn(
            NAME,
            "no rdma controller: a tenant may use up a device's objects",
            "boot a kernel with CONFIG_CGROUP_RDMA",
        ),
    }
}

/// Without the shim nothing is paced. The daemon checks its version when it connects.
fn shim(live: &Live) -> Check {
    const NAME: &str = "isolane shim";
    match &live.software.shim {
        Ok(place) => Check::ok(NAME, place.display().to_string()),
        Err(why) => Check::warn(
            NAME,
            why.as_str(),
            "put libisolane_shim.so beside isolane or in ../lib/isolane: without it `isolane rdma run` cannot pace programs",
        ),
    }
}

/// Process ids of the running daemons.
pub(super) fn daemons(root: &Root) -> impl Iterator<Item = u32> {
    const COMMAND: &str = "isolaned";
    let all = root.list("/proc").into_iter();
    all.filter_map(|name| name.parse().ok())
        .filter(|id| root.text(&format!("/proc/{id}/comm")).as_deref() == Some(COMMAND))
}

fn daemon(root: &Root, live: &Live) -> Check {
    const NAME: &str = "isolaned";
    let socket = &live.software.socket;
    let version = &live.software.version;
    let running = daemons(root).find_map(|id| Process::read(root, id));
    match (running, root.exists(socket)) {
        (Some(process), true) => Check::ok(
            NAME,
            format!(
                "running, pid {}, {socket} (this isolane is {version})",
                process.id
            ),
        ),
        (Some(process), false) => Check::warn(
            NAME,
            format!("running, pid {}, but no {socket}", process.id),
            "set ISOLANE_SOCKET to where it listens",
        ),
        (None, true) => Check::warn(
            NAME,
            format!("not running; a stale {socket} is there"),
            "systemctl restart isolaned",
        ),
        (None, false) => Check::warn(
            NAME,
            "not running: programs run unpaced",
            "systemctl start isolaned, or isolaned --device DEVICE",
        ),
    }
}

/// A size with a suitable unit.
pub(super) fn bytes(count: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    for (size, unit) in UNITS {
        if count >= size {
            let tenths = u128::from(count) * 10 / u128::from(size);
            return match tenths % 10 {
                0 => format!("{} {unit}", tenths / 10),
                rest => format!("{}.{rest} {unit}", tenths / 10),
            };
        }
    }
    format!("{count} B")
}

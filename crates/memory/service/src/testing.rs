//! A made-up machine for tests: the files that the crate reads and writes, in a temporary directory.
//!
//! Method: [`Tree::two_tiers`] has node 0 with processors and 512 MiB, node 1 without and 1 GiB, and a version 2 hierarchy
//! at `/sys/fs/cgroup`. Files keep the last write, which is where they differ from the kernel's. Units: bytes, MiB.

use crate::backend::engine::{Context, Engine, Mover};
use crate::cgroup::Cgroup;
use crate::host::MemoryHost;
use isolane_common_linux::Root;
use isolane_common_quantities::units::Bytes;
use isolane_memory_policy::mercury::{AppId, TierLimits};
use std::fs;

/// The application of tests that need one.
pub(crate) const APP: AppId = AppId(1);

/// A limit of so many MiB on the nearest tier alone.
pub(crate) fn near(mib: u64) -> TierLimits {
    [Some(Bytes::from_mib(mib)), None, None, None]
}

/// An engine over such a machine.
pub(crate) fn engine<M: Mover>(tree: &Tree, mover: M) -> Engine<M> {
    Engine::new(
        Context::new(tree.host()).expect("the machine has two tiers"),
        mover,
    )
}

/// Such a machine; its files go with it.
pub(crate) struct Tree {
    directory: tempfile::TempDir,
}

impl Tree {
    pub(crate) fn two_tiers() -> Self {
        let tree = Self {
            directory: tempfile::tempdir().expect("temporary directories can be made"),
        };
        tree.write("/proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
        tree.write("/sys/devices/system/node/has_memory", "0-1\n");
        tree.write("/sys/devices/system/node/has_cpu", "0\n");
        tree.write(
            "/sys/devices/virtual/memory_tiering/memory_tier4/nodelist",
            "0\n",
        );
        tree.write(
            "/sys/devices/virtual/memory_tiering/memory_tier10/nodelist",
            "1\n",
        );
        tree.node(0, 512, 400);
        tree.node(1, 1024, 1000);
        tree.write("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory\n");
        tree.write("/sys/fs/cgroup/cgroup.subtree_control", "");
        tree.write("/sys/fs/cgroup/cgroup.procs", "1\n");
        tree
    }

    pub(crate) fn node(&self, node: u32, total_mib: u64, free_mib: u64) {
        let text = format!(
            "Node {node} MemTotal:       {} kB\nNode {node} MemFree:        {} kB\n",
            total_mib << 10,
            free_mib << 10
        );
        self.write(
            &format!("/sys/devices/system/node/node{node}/meminfo"),
            &text,
        );
    }

    /// A group that holds so many MiB of anonymous memory by node.
    pub(crate) fn cgroup(&self, path: &str, held_mib: &[(u32, u64)]) -> Cgroup {
        let file = |name: &str| format!("/sys/fs/cgroup{path}/{name}");
        self.write(&file("cgroup.procs"), "");
        self.write(&file("cgroup.events"), "populated 1\nfrozen 0\n");
        self.write(&file("cpu.max"), "max 100000\n");
        self.write(&file("cpu.stat"), "usage_usec 0\nuser_usec 0\n");
        self.write(&file("memory.current"), "0\n");
        self.hold(path, held_mib);
        Cgroup::new(path).expect("tests use good paths")
    }

    /// Changes what a group holds.
    pub(crate) fn hold(&self, path: &str, held_mib: &[(u32, u64)]) {
        let words: Vec<String> = held_mib
            .iter()
            .map(|(node, mib)| format!("N{node}={}", mib << 20))
            .collect();
        let zeros: Vec<String> = held_mib
            .iter()
            .map(|(node, _)| format!("N{node}=0"))
            .collect();
        let text = format!("anon {}\nfile {}\n", words.join(" "), zeros.join(" "));
        self.write(&format!("/sys/fs/cgroup{path}/memory.numa_stat"), &text);
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        self.write_bytes(path, text.as_bytes());
    }

    pub(crate) fn write_bytes(&self, path: &str, bytes: &[u8]) {
        let path = self.directory.path().join(path.trim_start_matches('/'));
        let parent = path.parent().expect("paths of tests have a parent");
        fs::create_dir_all(parent).expect("directories can be made");
        fs::write(path, bytes).expect("files can be written");
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.directory.path().join(path.trim_start_matches('/')))
            .expect("the file exists")
    }

    /// Removes a file, or a directory with all below it.
    pub(crate) fn remove(&self, path: &str) {
        let path = self.directory.path().join(path.trim_start_matches('/'));
        let removed = match path.is_dir() {
            true => fs::remove_dir_all(path),
            false => fs::remove_file(path),
        };
        removed.expect("it was there");
    }

    pub(crate) fn host(&self) -> MemoryHost {
        MemoryHost::at(Root::at(self.directory.path()))
    }
}

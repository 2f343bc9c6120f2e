//! The executable and the mapped libraries of a process.

use super::Reason;
use super::elf::{Elf, Files};
use isolane_common_linux::root::Root;
use std::collections::{BTreeMap, BTreeSet};

/// The file name of the preload library.
const PRELOAD: &str = "libisolane_shim.so";
/// The beginning of libibverbs' file name, as rdma-core installs it and as an emulated device supplies it.
const VERBS: [&str; 2] = ["libibverbs.so", "isolane-ibverbs"];
/// Libraries whose use of verbs and of vendors' functions is no program's use: rdma-core's own, and ours.
const OWN: [&str; 7] = [
    "libibverbs",
    "libmlx5",
    "libmlx4",
    "libefa",
    "librdmacm",
    "libisolane_shim",
    "isolane-ibverbs",
];
/// Most mapped files that are read of one process: large programs map some hundred.
const FILES_MAX: usize = 2_048;

/// What a vendor's function lets a program do.
const VENDOR_CALLS: [(&str, Reason); 4] = [
    ("mlx5dv_init_obj", Reason::DirectDoorbells),
    ("mlx5dv_devx_obj_create", Reason::Devx),
    ("mlx5dv_devx_general_cmd", Reason::Devx),
    ("mlx5dv_create_qp", Reason::VendorQueuePairs),
];

/// The executable and the mapped libraries of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Objects {
    /// The executable has no dynamic loader.
    pub(super) is_static: bool,
    /// The preload library is mapped.
    pub(super) preloads: bool,
    /// libibverbs is mapped.
    has_verbs: bool,
    /// An object outside rdma-core was linked with libibverbs.
    links_verbs: bool,
    /// The first object that can call a vendor's function, and the function, by reason.
    pub(super) vendor_calls: BTreeMap<Reason, String>,
}

impl Objects {
    /// Reads the objects of a process; `None` if the caller may not read them or the process has ended.
    pub(super) fn read(root: &Root, pid: u32, known: &mut Files) -> Option<Self> {
        let files = mapped(root, pid)?;
        let executable = known.read(&root.path(&format!("/proc/{pid}/exe")))?;
        let mut objects = Self {
            // A program that was started by the loader's own path has mapped libraries.
            is_static: !executable.has_loader && !files.iter().any(|path| path.contains(".so")),
            ..Self::default()
        };
        objects.add("the executable", &executable);
        for path in files.iter().take(FILES_MAX) {
            let name = file_name(path);
            objects.preloads |= name == PRELOAD;
            objects.has_verbs |= is_verbs(name);
            if OWN.iter().any(|own| name.starts_with(own)) {
                continue;
            }
            // The process's own view of the file system: it may be in a container.
            let place = root.path(&format!("/proc/{pid}/root{path}"));
            if let Some(elf) = known.read(&place) {
                objects.add(name, &elf);
            }
        }
        Some(objects)
    }

    fn add(&mut self, name: &str, elf: &Elf) {
        self.links_verbs |= elf.needed.iter().any(|name| is_verbs(name));
        for (function, reason) in VENDOR_CALLS {
            if elf.undefined.contains(function) {
                let evidence = || format!("{name} calls {function}");
                self.vendor_calls.entry(reason).or_insert_with(evidence);
            }
        }
    }

    /// Whether libibverbs is loaded although no object was linked with it.
    pub(super) fn opens_verbs_at_run_time(&self) -> bool {
        self.has_verbs && !self.links_verbs
    }
}

/// Paths of the files that the process has mapped, executable parts alone.
fn mapped(root: &Root, pid: u32) -> Option<BTreeSet<String>> {
    let maps = root.text(&format!("/proc/{pid}/maps"))?;
    // Range, permissions, offset, device, inode, path. A path may contain spaces.
    let paths = maps.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let permissions = words.nth(1)?;
        let path = &line[line.find('/')?..];
        permissions.contains('x').then(|| path.to_owned())
    });
    Some(paths.collect())
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn is_verbs(name: &str) -> bool {
    VERBS.iter().any(|verbs| name.starts_with(verbs))
}

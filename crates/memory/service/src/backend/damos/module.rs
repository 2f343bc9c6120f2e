//! Parts of the kernel that run DAMON by themselves. The kernel then refuses any other thread with "busy".
//!
//! `damon_stat` runs by default on kernels that have it (Linux 6.17; Debian's do). Source: the kernel's documentation of DAMON's
//! modules, and `damon_start`.

use crate::error::MemError;
use crate::host::MemoryHost;

const MODULES: [&str; 3] = ["damon_stat", "damon_reclaim", "damon_lru_sort"];

/// The one that runs.
pub(super) fn running(host: &MemoryHost) -> Option<&'static str> {
    let runs = |module: &&str| host.root.text(&file(module)).as_deref() == Some("Y");
    MODULES.into_iter().find(runs)
}

/// The error for a DAMON that the kernel uses itself.
pub(super) fn not_ours(module: &str) -> MemError {
    MemError::NotOurs {
        object: "DAMON".to_owned(),
        owner: format!("the kernel's {module}"),
        remedy: remedy(module),
    }
}

/// How to end it.
pub(crate) fn remedy(module: &str) -> String {
    format!("echo N > {}, or choose another backend", file(module))
}

fn file(module: &str) -> String {
    format!("/sys/module/{module}/parameters/enabled")
}

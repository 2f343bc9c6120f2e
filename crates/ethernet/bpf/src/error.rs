//! What can go wrong between a device and its programs.

use std::io;
use std::path::PathBuf;

/// Why the programs cannot be loaded, attached, read or removed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum EbpfError {
    #[error("{0}")]
    BadInput(String),
    #[error(
        "the kernel rejects BPF programs: {reason}; run as root (CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON) on Linux 6.0 or newer with BTF"
    )]
    Refused { reason: String },
    #[error("{} holds programs already: detach them first, or open them", path.display())]
    Exists { path: PathBuf },
    #[error("no programs at {}: attach first", path.display())]
    Absent { path: PathBuf },
    #[error("{} holds programs of another version ({detail}): detach with the version that attached them, or remove the directory", path.display())]
    OtherVersion { path: PathBuf, detail: String },
    #[error("the device of {} is in another network namespace: run this command there", path.display())]
    OtherNamespace { path: PathBuf },
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("cannot {action}: {source}")]
    Kernel { action: String, source: io::Error },
    #[error(
        "cannot attach to the egress of cgroup {cgroup}: {source}; at most 64 programs run there, and none beside one that forbids others (`bpftool cgroup show`)"
    )]
    Cgroup { cgroup: u64, source: io::Error },
    #[error("{} has no program for cgroups, because an earlier release made it: attach the device again", path.display())]
    NoCgroupProgram { path: PathBuf },
    #[error("no room for another container: {most} have weights already; remove one")]
    Containers { most: usize },
}

impl EbpfError {
    pub(crate) fn kernel(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::Kernel { action, source }
    }
}

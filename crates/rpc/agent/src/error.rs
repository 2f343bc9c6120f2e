//! What can go wrong between a cgroup and its programs.

use std::io;
use std::path::PathBuf;

/// Why messages cannot be measured or marked.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum AgentError {
    #[error("{}: not a directory of version 2 cgroups; give a directory below {mount}", path.display())]
    NotCgroup { path: PathBuf, mount: String },
    #[error(
        "cannot open the cgroup {}: {source}; give a directory of version 2 cgroups (under `ip netns exec` there are none; `nsenter --net` keeps them)",
        path.display()
    )]
    Open { path: PathBuf, source: io::Error },
    #[error("{key} has no effect on messages that the kernel decides: {remedy}")]
    NotOffered {
        key: &'static str,
        remedy: &'static str,
    },
    #[error(
        "the kernel rejects BPF programs: {reason}; run as root (CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON) on Linux 6.0 or newer with BTF"
    )]
    Refused { reason: String },
    #[error(
        "cannot attach to cgroup {}: {reason}; a program there or above may forbid others (`bpftool cgroup tree` lists them)",
        path.display()
    )]
    Attach { path: PathBuf, reason: String },
    #[error("cannot {action}: {reason}")]
    Kernel {
        action: &'static str,
        reason: String,
    },
}

impl AgentError {
    /// Whether the caller gave what no machine accepts.
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::NotCgroup { .. } | Self::NotOffered { .. } | Self::Open { .. }
        )
    }
}

/// An error with its causes, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let mut words: Vec<String> = causes.map(|error| error.to_string()).collect();
    words.dedup();
    // The verifier's log has many lines; the last one with words is the reason.
    let text = words.join(": ");
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default().to_owned();
    match lines.next_back() {
        Some(last) => format!("{first} ... {last}"),
        None => first,
    }
}

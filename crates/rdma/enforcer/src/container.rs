//! The seccomp section that makes a container runtime send the listener to the guardian.
//!
//! The object is a part of `linux.seccomp` of the OCI runtime specification: `listenerPath` is the guardian's socket,
//! and the rule traps the verbs ioctl. The comparison is masked to 32 bits because the kernel uses 32 bits of the
//! command: a filter that compares 64 bits can be bypassed with a nonzero upper half. Source: OCI runtime
//! specification, config-linux, "Seccomp".

use crate::guardian::agent_path;
use crate::seccomp::filter::RDMA_VERBS_IOCTL;
use serde_json::{Value, json};
use std::path::Path;

/// The keys to merge into a container's `linux.seccomp`.
///
/// ```
/// let needs = isolane_rdma_enforcer::container::seccomp("/run/isolane".as_ref());
/// assert_eq!(needs["listenerPath"], "/run/isolane/clients/enforce.sock");
/// ```
pub fn seccomp(directory: &Path) -> Value {
    json!({
        "listenerPath": agent_path(directory),
        "flags": ["SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV"],
        "syscalls": [{
            "names": ["ioctl"],
            "action": "SCMP_ACT_NOTIFY",
            "args": [{
                "index": 1,
                "value": u64::from(u32::MAX),
                "valueTwo": RDMA_VERBS_IOCTL,
                "op": "SCMP_CMP_MASKED_EQ",
            }],
        }],
    })
}

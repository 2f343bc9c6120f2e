//! Errors of the kernel's interfaces; each message names the object and the remedy.

use libc::{EACCES, EINVAL, ENOENT, EOPNOTSUPP, EPERM};
use std::io;
use std::path::PathBuf;

/// Why a request to the host failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum HostError {
    /// The kernel has no NETLINK_RDMA: it has no RDMA core, or the module is not loaded.
    #[error(
        "the kernel has no RDMA subsystem (NETLINK_RDMA: {0}); load it with `modprobe ib_core`, \
         or boot a kernel built with CONFIG_INFINIBAND"
    )]
    NoRdmaSubsystem(#[source] io::Error),
    #[error("{action}: not permitted; run as root, or with CAP_NET_ADMIN")]
    NotPermitted { action: String },
    #[error("no RDMA device is named `{device}`; {}", known_devices(.known))]
    NoDevice { device: String, known: Vec<String> },
    #[error("{action}: this device's driver or this kernel does not offer it ({source})")]
    NotOffered { action: String, source: io::Error },
    #[error("{action}: {source}")]
    Kernel { action: String, source: io::Error },
    #[error(
        "{action}: the kernel's answer does not parse ({detail}); please report it with the kernel's version"
    )]
    Malformed { action: String, detail: String },
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write `{value}` to {}: {source}", path.display())]
    Write {
        path: PathBuf,
        value: String,
        source: io::Error,
    },
    #[error("{} says `{value}`; expected {expected}", path.display())]
    Unexpected {
        path: PathBuf,
        value: String,
        expected: &'static str,
    },
    #[error("cannot run `{program}`: {source}")]
    Program { program: String, source: io::Error },
}

fn known_devices(known: &[String]) -> String {
    match known {
        [] => "this machine has none".to_owned(),
        names => format!("there are: {}", names.join(", ")),
    }
}

impl HostError {
    /// Classifies an error of the kernel by its number.
    pub(crate) fn kernel(action: &str, source: io::Error) -> Self {
        let action = action.to_owned();
        match source.raw_os_error() {
            Some(EPERM | EACCES) => Self::NotPermitted { action },
            Some(EINVAL | EOPNOTSUPP | ENOENT) => Self::NotOffered { action, source },
            _ => Self::Kernel { action, source },
        }
    }

    /// An answer that cannot be parsed.
    pub(crate) fn malformed(action: &str, detail: impl Into<String>) -> Self {
        Self::Malformed {
            action: action.to_owned(),
            detail: detail.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_the_object_and_the_remedy() {
        let refusal = HostError::kernel("set rdma.max of /a", io::Error::from_raw_os_error(EPERM));
        assert_eq!(
            refusal.to_string(),
            "set rdma.max of /a: not permitted; run as root, or with CAP_NET_ADMIN"
        );
        let none = HostError::NoDevice {
            device: "mlx5_9".into(),
            known: vec!["mlx5_0".into(), "mlx5_1".into()],
        };
        assert_eq!(
            none.to_string(),
            "no RDMA device is named `mlx5_9`; there are: mlx5_0, mlx5_1"
        );
    }
}
